//! Request frames of the local socket.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A request about limits, with the fields of an HTTP body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest {
    #[serde(rename = "type")]
    _kind: String,
    #[serde(rename = "protocolVersion", default)]
    _version: Option<i64>,
    #[serde(default = "default_domain")]
    pub(crate) domain: String,
    #[serde(default)]
    pub(crate) attributes: AttributeMap,
    #[serde(default = "one")]
    pub(crate) cost: u64,
    #[serde(default)]
    pub(crate) idempotency_key: Option<String>,
}

/// A request for what keys have used, with the fields of an HTTP body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageRequest {
    #[serde(rename = "type")]
    _kind: String,
    #[serde(rename = "protocolVersion", default)]
    _version: Option<i64>,
    #[serde(default = "default_domain")]
    pub(crate) domain: String,
    #[serde(default)]
    pub(crate) attributes: AttributeMap,
}

/// A settlement of a reservation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleRequest {
    #[serde(rename = "type")]
    _kind: String,
    #[serde(rename = "protocolVersion", default)]
    _version: Option<i64>,
    pub(crate) reservation: String,
    #[serde(default)]
    pub(crate) actual: Option<u64>,
}

/// A request to the admin API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalAdminRequest {
    #[serde(rename = "type")]
    _kind: String,
    #[serde(rename = "protocolVersion", default)]
    _version: Option<i64>,
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) body: Value,
}

/// Attributes of a request: text, or whole numbers, which become text. Names are unique.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AttributeMap(Vec<(String, String)>);

impl AttributeMap {
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

impl<'de> Deserialize<'de> for AttributeMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributePairsVisitor)
    }
}

struct AttributePairsVisitor;

impl<'de> Visitor<'de> for AttributePairsVisitor {
    type Value = AttributeMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AttributeMap, A::Error> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let value = match value {
                Value::String(text) => text,
                Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
                _ => {
                    let problem = format!("attribute {name:?} is neither text nor a whole number");
                    return Err(A::Error::custom(problem));
                }
            };
            if pairs.len() == MOST_ATTRIBUTES {
                return Err(A::Error::custom(format!("more than {MOST_ATTRIBUTES} attributes")));
            }
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("attribute {name:?} appears twice")));
            }
            pairs.push((name, value));
        }
        Ok(AttributeMap(pairs))
    }
}

fn default_domain() -> String {
    tidegate::policy::Rule::DEFAULT_DOMAIN.into()
}

const fn one() -> u64 {
    1
}

/// The most attributes of a request; few enough for a linear search.
const MOST_ATTRIBUTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::{AttributeMap, CheckRequest};

    fn attributes(text: &str) -> Result<AttributeMap, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn attributes_are_text_or_whole_numbers() {
        let read = attributes(r#"{"user":"ada","n":-3,"big":18446744073709551615}"#);
        let read = read.expect("attributes");
        assert_eq!(read.pairs(), [("user", "ada"), ("n", "-3"), ("big", "18446744073709551615")]);
        for wrong in
            [r#"{"a":1.5}"#, r#"{"a":null}"#, r#"{"a":true}"#, r#"{"a":["b"]}"#, r#"{"a":{}}"#]
        {
            let error = attributes(wrong).expect_err(wrong);
            assert!(error.contains("neither text nor a whole number"), "{error}");
        }
        let twice = attributes(r#"{"a":"1","a":"2"}"#).expect_err("twice");
        assert!(twice.contains("appears twice"), "{twice}");
        assert!(attributes("[]").is_err());
    }

    #[test]
    fn unknown_fields_and_wrong_types_are_errors() {
        let read = |text: &str| serde_json::from_str::<CheckRequest>(text);
        let least = read(r#"{"type":"check"}"#).expect("all else has a default");
        assert_eq!((&*least.domain, least.cost), ("default", 1));
        for wrong in [
            r#"{"type":"check","costs":2}"#,
            r#"{"type":"check","cost":-1}"#,
            r#"{"type":"check","cost":1.5}"#,
            r#"{"type":"check","domain":7}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
