//! Bodies of admin requests: tables in TOML or JSON.
//!
//! A body is decoded when its client may send it, on a thread that may block, and into a bounded number
//! of values: in memory a value may take fifty times its bytes.

use std::cell::Cell;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tidegate::policy::{Policy, Rule, readable};

use super::AdminError;

/// The body of an admin request, as it arrived.
#[derive(Debug)]
pub(crate) enum RawPayload {
    /// JSON if it begins with a brace, as no TOML does.
    Any(Bytes),
    /// TOML, whatever it begins with.
    Toml(Bytes),
    /// The field of a frame, which is short.
    Decoded(Payload),
}

impl RawPayload {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Any(bytes) | Self::Toml(bytes) => bytes.len(),
            Self::Decoded(_) => 0,
        }
    }

    /// Decodes it as a table, if there is one, without holding up a worker of the runtime.
    pub(crate) async fn decode_table(self) -> Result<Payload, AdminError> {
        let payload = self.decode().await?;
        if !matches!(payload, Payload::Toml(_)) {
            return Ok(payload);
        }
        let parsed = tokio::task::spawn_blocking(move || payload.table()).await;
        let table = parsed.unwrap_or_else(|_| Err(AdminError::outage()))?;
        Ok(Payload::Json(Value::Object(table)))
    }

    /// Decodes it, without holding up a worker of the runtime. Text in TOML stays text.
    pub(crate) async fn decode(self) -> Result<Payload, AdminError> {
        let decode: fn(&[u8]) -> Result<Payload, AdminError> = match &self {
            Self::Any(_) => Payload::of_bytes,
            Self::Toml(_) => Payload::of_toml,
            Self::Decoded(_) => |_| Ok(Payload::Nothing),
        };
        match self {
            Self::Decoded(payload) => Ok(payload),
            Self::Any(bytes) if bytes.is_empty() => Ok(Payload::Nothing),
            Self::Any(bytes) | Self::Toml(bytes) => {
                let decoded = tokio::task::spawn_blocking(move || decode(&bytes)).await;
                decoded.unwrap_or_else(|_| Err(AdminError::outage()))
            }
        }
    }
}

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
            json if json.starts_with('{') => bounded_json(json)
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
                let is_mark = |byte: &&u8| matches!(**byte, b',' | b'=' | b'[' | b'{');
                if text.as_bytes().iter().filter(is_mark).count() > MOST_VALUES {
                    return Err(AdminError::unfit(format!("more than {MOST_VALUES} values")));
                }
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

/// A JSON text with a bounded number of values.
fn bounded_json(text: &str) -> Result<Value, serde_json::Error> {
    let left = Cell::new(MOST_VALUES);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = BoundedValue(&left).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A value, of which so many may still come.
#[derive(Clone, Copy)]
struct BoundedValue<'c>(&'c Cell<usize>);

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0.get().checked_sub(1) {
            Some(left) => self.0.set(left),
            None => return Err(D::Error::custom(format_args!("more than {MOST_VALUES} values"))),
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut table = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            table.insert(name, map.next_value_seed(self)?);
        }
        Ok(table.into())
    }
}

/// The most values in a body: a list of as many addresses may be banned at once.
const MOST_VALUES: usize = 16_384;

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
pub(super) mod tests {
    use serde_json::json;
    use tidegate::policy::Policy;

    use super::{MOST_VALUES, Payload, RawPayload, Value, merge, rule_of, table_of};

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
        let many = |count: usize| format!(r#"{{"a":[{}0]}}"#, "0,".repeat(count));
        assert!(table(&many(MOST_VALUES - 3)).is_ok());
        assert!(table(&many(MOST_VALUES - 2)).is_err(), "one more than it may have");
        let flat = |count: usize| format!("a = [{}0]", "0,".repeat(count));
        assert!(table(&flat(MOST_VALUES - 2)).is_ok());
        assert!(table(&flat(MOST_VALUES - 1)).is_err());
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

    #[test]
    fn a_table_in_toml_is_parsed_on_a_thread_that_may_block() {
        // The text itself needs no thread: it is the field of a frame.
        let raw = RawPayload::Decoded(Payload::Toml("a = 1".to_owned()));
        let decoded = while_blocking_threads_are_busy(raw.decode_table()).expect("a table");
        assert!(matches!(decoded, Payload::Json(table) if table == json!({ "a": 1 })));
    }

    #[test]
    fn a_body_is_decoded_on_a_thread_that_may_block() {
        let raw = RawPayload::Any(bytes::Bytes::from_static(b"{\"a\":1}"));
        let decoded = while_blocking_threads_are_busy(raw.decode());
        let table = decoded.and_then(Payload::table).expect("a table");
        assert_eq!(Value::from(table), json!({ "a": 1 }));
    }

    /// Polls a future once while no thread that may block is free, so that it has to wait for one,
    /// and returns its output.
    pub(in crate::admin) fn while_blocking_threads_are_busy<F: Future>(future: F) -> F::Output {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build().expect("a runtime");
        let (release, busy) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            tokio::task::spawn_blocking(move || busy.recv());
            let mut future = std::pin::pin!(future);
            let first = std::future::poll_fn(|context| {
                std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
            });
            assert!(first.await, "a worker of the runtime has done it");
            drop(release);
            future.await
        })
    }
}
