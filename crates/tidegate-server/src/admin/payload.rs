//! Bodies of admin requests: tables in TOML or JSON.

use serde_json::{Map, Value};
use tidegate::policy::{Policy, Rule, readable};

use super::AdminError;

/// The body of an admin request.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Nothing,
    Toml(String),
    Json(Value),
}

/// A table, as in a policy file.
pub(crate) type TomlTable = Map<String, Value>;

impl Payload {
    /// Decodes a body of HTTP: JSON if it begins with a brace, as no TOML does.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Self, AdminError> {
        let text = text_of(bytes)?;
        match text.trim_ascii_start() {
            "" => Ok(Self::Nothing),
            json if json.starts_with('{') => serde_json::from_str(json)
                .map(Self::Json)
                .map_err(|error| AdminError::unreadable(format!("the body is not JSON: {error}"))),
            _ => Ok(Self::Toml(text.into())),
        }
    }

    /// Decodes a body of HTTP that is TOML, whatever it begins with.
    pub(crate) fn of_toml(bytes: &[u8]) -> Result<Self, AdminError> {
        Ok(Self::Toml(text_of(bytes)?.into()))
    }

    /// Decodes the field `body` of a frame: a table, or text in TOML.
    pub(crate) fn of_json(body: Value) -> Self {
        match body {
            Value::Null => Self::Nothing,
            Value::String(text) => Self::Toml(text),
            other => Self::Json(other),
        }
    }

    /// The body as a table.
    pub(crate) fn table(self) -> Result<TomlTable, AdminError> {
        match self {
            Self::Nothing => {
                Err(AdminError::unreadable("the body is missing: send a table in JSON or TOML"))
            }
            Self::Json(Value::Object(table)) => Ok(table),
            Self::Json(_) => Err(AdminError::unreadable("the body is not a table")),
            Self::Toml(text) => {
                // Bounds size and depth before it is parsed.
                readable("body", text.as_bytes())?;
                let table: toml::Table = toml::from_str(&text).map_err(|error| {
                    AdminError::unreadable(format!("the body is not TOML: {error}"))
                })?;
                Ok(table.into_iter().map(|(name, value)| (name, as_json(value))).collect())
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, AdminError> {
    std::str::from_utf8(bytes).map_err(|_| AdminError::unreadable("the body is not UTF-8"))
}

/// Merges a table into another: null removes, tables merge, everything else replaces.
pub(crate) fn merge(table: &mut TomlTable, over: TomlTable) {
    for (name, value) in over {
        match (table.get_mut(&name), value) {
            (_, Value::Null) => drop(table.shift_remove(&name)),
            (Some(Value::Object(inner)), Value::Object(over)) => merge(inner, over),
            (_, value) => drop(table.insert(name, value)),
        }
    }
}

/// A rule as a table.
pub(crate) fn table_of(rule: &Rule) -> TomlTable {
    let file: toml::Table = toml::from_str(&rule.to_toml()).unwrap_or_default();
    let rules = file.into_iter().find(|(name, _)| name == "rule").map(|(_, rules)| as_json(rules));
    match rules {
        Some(Value::Array(mut rules)) => match rules.pop() {
            Some(Value::Object(rule)) => rule,
            _ => TomlTable::new(),
        },
        _ => TomlTable::new(),
    }
}

/// The rule of a table.
pub(crate) fn rule_of(table: TomlTable) -> Result<Rule, AdminError> {
    let text = in_list("rule", table)?;
    let policy = Policy::parse("rule.toml", text.as_bytes())?.policy;
    policy.rules().first().cloned().ok_or_else(|| AdminError::unfit("the body has no rule"))
}

/// A list with one table, as TOML.
pub(crate) fn in_list(name: &str, table: TomlTable) -> Result<String, AdminError> {
    let list = Map::from_iter([(name.to_owned(), Value::Array(vec![Value::Object(table)]))]);
    let text = toml::to_string(&list);
    text.map_err(|error| AdminError::unfit(format!("the table cannot be written as TOML: {error}")))
}

/// The value as JSON, with times as text.
pub(crate) fn as_json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(as_json).collect(),
        toml::Value::Table(table) => {
            table.into_iter().map(|(name, value)| (name, as_json(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::policy::Policy;

    use super::{Payload, Value, merge, rule_of, table_of};

    #[test]
    fn toml_and_json_decode_to_the_same_table() {
        let toml = "window = { max = 3, per = '1h' }\nuntil = 2027-01-01T00:00:00Z";
        let json = r#" {"window":{"max":3,"per":"1h"},"until":"2027-01-01T00:00:00Z"}"#;
        let table = |text: &str| Payload::of_bytes(text.as_bytes()).and_then(Payload::table);
        let (toml, json) = (table(toml).expect("TOML"), table(json).expect("JSON"));
        assert_eq!(toml, json);
        for wrong in ["{", "a = ", "", "[1]\u{0}", r#"{"a":1}}"#] {
            assert!(table(wrong).is_err(), "{wrong:?}");
        }
        let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(table(&deep).is_err());
    }

    #[test]
    fn merging_a_table_changes_only_its_fields() {
        let Value::Object(mut table) = json!({"a": {"b": 1, "c": 2}, "d": 3, "e": [1]}) else {
            unreachable!()
        };
        let Value::Object(over) = json!({"a": {"b": 9}, "d": null, "e": [2], "f": 4}) else {
            unreachable!()
        };
        merge(&mut table, over);
        assert_eq!(Value::from(table), json!({"a": {"b": 9, "c": 2}, "e": [2], "f": 4}));
    }

    #[test]
    fn a_rule_survives_the_conversion_to_a_table() {
        let policy = Policy::from_toml(
            r#"
            [[rule]]
            name     = "search \"x\" é"
            domain   = "api"
            match    = { plan = ["free", "trial"], path = "/search/*" }
            key      = ["ip"]
            sliding  = { max = 100, per = "1m", parts = 10 }
            cost     = { by = "tier", "1..=4" = 1, "5.." = 2 }
            override = [{ key = { ip = "203.0.113.7" }, max = 1000, until = 2027-01-01T00:00:00Z }]
            "#,
        )
        .expect("a policy");
        let rule = &policy.rules()[0];
        assert_eq!(&rule_of(table_of(rule)).expect("the same rule"), rule);
    }
}
