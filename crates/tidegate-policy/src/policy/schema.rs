//! The JSON schema of the policy file, generated from the table of fields that the parser uses.

use std::fmt;

use super::fields::{self, Field, MOST, Presence, Section, ValueKind};
use super::limit::ALGORITHMS;
use super::rule_fields::RULE;

/// The schema of the policy file: JSON Schema, draft 2020-12.
///
/// For editors that complete and check TOML. The parser checks more: numbers, names and
/// patterns.
#[must_use]
pub fn schema() -> String {
    let mut file = vec![
        ("$schema".into(), text("https://json-schema.org/draft/2020-12/schema")),
        ("title".into(), text("tidegate policy")),
    ];
    file.extend(members(&fields::FILE));
    format!("{}\n", Json::Object(file))
}

/// A table with exactly the fields of a section.
fn members(section: &Section) -> Vec<(String, Json)> {
    let fields = section.fields.iter().map(|field| (field.name.into(), property(field)));
    let mut members = vec![
        ("type".into(), text("object")),
        ("additionalProperties".into(), Json::Bool(false)),
        ("properties".into(), Json::Object(fields.collect())),
    ];
    let required = section.fields.iter().filter(|field| field.need == Presence::Required);
    let required: Vec<Json> = required.map(|field| text(field.name)).collect();
    if !required.is_empty() {
        members.push(("required".into(), Json::List(required)));
    }
    if std::ptr::eq(section, &raw const RULE) {
        let one = |name| object([("required", Json::List(vec![text(name)]))]);
        let any = ALGORITHMS.iter().map(|it| one(it.field.name)).collect();
        members.push(("oneOf".into(), Json::List(any)));
    }
    members
}

fn property(field: &Field) -> Json {
    let mut members = vec![("description".into(), text(field.about))];
    let Json::Object(kind) = kind(&field.kind) else { unreachable!("a kind is an object") };
    members.extend(kind);
    Json::Object(members)
}

fn kind(kind: &ValueKind) -> Json {
    let string = || ("type", text("string"));
    match kind {
        ValueKind::Text => object([string(), ("minLength", Json::Number(1))]),
        ValueKind::Bool => object([("type", text("boolean"))]),
        ValueKind::Integer { min, max } => integer(*min, *max),
        ValueKind::Duration => object([string(), ("pattern", text(DURATION))]),
        ValueKind::DurationOr(words) => {
            any([object([string(), ("pattern", text(DURATION))]), one_of(words)])
        }
        ValueKind::Rate => object([string(), ("pattern", text(RATE))]),
        ValueKind::Choice(words) => one_of(words),
        ValueKind::ChoiceOr(words, section) => any([one_of(words), Json::Object(members(section))]),
        ValueKind::Share => object([
            ("type", text("number")),
            ("exclusiveMinimum", Json::Number(0)),
            ("maximum", Json::Number(1)),
        ]),
        ValueKind::IntegerOr { min, words } => any([integer(*min, MOST), one_of(words)]),
        ValueKind::FractionOr(words) => {
            let (min, max) = (("minimum", Json::Number(0)), ("maximum", Json::Number(1)));
            any([object([("type", text("number")), min, max]), one_of(words)])
        }
        ValueKind::Texts => {
            let item = object([string(), ("minLength", Json::Number(1))]);
            object([("type", text("array")), ("items", item)])
        }
        ValueKind::Patterns => {
            let one = || object([("type", Json::List(vec![text("string"), text("integer")]))]);
            let least = ("minItems", Json::Number(1));
            let list = object([("type", text("array")), ("items", one()), least]);
            object([("type", text("object")), ("additionalProperties", any([one(), list]))])
        }
        ValueKind::Cost => {
            let by = object([string(), ("minLength", Json::Number(1))]);
            let rows = object([
                ("type", text("object")),
                ("properties", object([("by", by)])),
                ("required", Json::List(vec![text("by")])),
                ("minProperties", Json::Number(2)),
                ("additionalProperties", integer(1, MOST)),
            ]);
            any([integer(1, MOST), rows])
        }
        ValueKind::Metadata => object([("type", text("object"))]),
        // Tools pass the date-times of TOML on as text.
        ValueKind::Time => object([string(), ("format", text("date-time"))]),
        ValueKind::Table(section) => Json::Object(members(section)),
        ValueKind::Tables(section) => {
            object([("type", text("array")), ("items", Json::Object(members(section)))])
        }
    }
}

fn integer(min: u64, max: u64) -> Json {
    let range = [("minimum", Json::Number(min)), ("maximum", Json::Number(max))];
    object([("type", text("integer"))].into_iter().chain(range))
}

fn one_of(words: &[&str]) -> Json {
    object([("enum", Json::List(words.iter().map(|word| text(word)).collect()))])
}

fn any<const N: usize>(kinds: [Json; N]) -> Json {
    object([("anyOf", Json::List(kinds.into()))])
}

fn object<'k>(members: impl IntoIterator<Item = (&'k str, Json)>) -> Json {
    Json::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn text(text: &str) -> Json {
    Json::Text(text.into())
}

/// As much of JSON as a schema needs.
#[derive(Debug)]
enum Json {
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth + 1);
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(text) => write_text(f, text),
            Self::List(items) if items.is_empty() => f.write_str("[]"),
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}\n{indent}", if at > 0 { "," } else { "" })?;
                    item.write(f, depth + 1)?;
                }
                write!(f, "\n{}]", "  ".repeat(depth))
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (at, (key, value)) in members.iter().enumerate() {
                    write!(f, "{}\n{indent}", if at > 0 { "," } else { "" })?;
                    write_text(f, key)?;
                    f.write_str(": ")?;
                    value.write(f, depth + 1)?;
                }
                write!(f, "\n{}}}", "  ".repeat(depth))
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

const DURATION: &str = r"^\s*([0-9][0-9_]*(\.[0-9_]+)?\s*[a-zµμ]+\s*)+$";
const RATE: &str = r"^\s*[0-9][0-9_]*\s*(/| per )\s*[0-9a-zµμ._ ]+$";
