//! The `metadata` of a descriptor: a mapping of any values.

use std::sync::Arc;

use super::node::{Node, NodeValue};
use crate::policy::metadata::MOST_DEPTH;
use crate::policy::parse::diagnostic_sink::DiagnosticSink;
use crate::policy::{Metadata, MetadataNumber, MetadataValue};

/// The metadata, if there is any. What cannot be passed on is reported.
pub(super) fn read(node: &Node, report: &mut DiagnosticSink) -> Option<Arc<Metadata>> {
    if node.is_nothing() {
        return None;
    }
    let NodeValue::Map(entries) = &*node.value else {
        report.error(node.span.clone(), format!("`metadata` is a mapping, not {}", node.kind()));
        return None;
    };
    Some(table(entries, 1, report)).filter(|it| !it.is_empty()).map(Arc::new)
}

fn table(entries: &[(Node, Node)], depth: usize, report: &mut DiagnosticSink) -> Metadata {
    let entry = |(name, value): &(Node, Node)| {
        let value = read_value(value, depth + 1, report)?;
        Some((Box::from(name.text()?), value))
    };
    Metadata(entries.iter().filter_map(entry).collect())
}

fn read_value(node: &Node, depth: usize, report: &mut DiagnosticSink) -> Option<MetadataValue> {
    if depth > MOST_DEPTH {
        let message = format!("`metadata` is nested deeper than {MOST_DEPTH}");
        report.error(node.span.clone(), message);
        return None;
    }
    match &*node.value {
        _ if node.is_nothing() => {
            let problem = report.error(node.span.clone(), "a value of `metadata` is empty");
            problem.hint = Some("remove its name, or give it a value".into());
            None
        }
        NodeValue::Scalar(text, true) => Some(MetadataValue::Text(text.as_str().into())),
        NodeValue::Scalar(text, false) => Some(plain(text)),
        NodeValue::List(items) => {
            let items = items.iter().filter_map(|item| read_value(item, depth + 1, report));
            Some(MetadataValue::List(items.collect()))
        }
        NodeValue::Map(entries) => Some(MetadataValue::Table(table(entries, depth, report))),
    }
}

/// A value without quotes: `true` or `false`, a number, or else a text.
fn plain(text: &str) -> MetadataValue {
    match text {
        "true" | "True" | "TRUE" => return MetadataValue::Bool(true),
        "false" | "False" | "FALSE" => return MetadataValue::Bool(false),
        _ => {}
    }
    // Words such as `inf` and `nan` are texts.
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number = text.parse().ok().filter(|_| is_number).and_then(MetadataNumber::new);
    number.map_or_else(|| MetadataValue::Text(text.into()), MetadataValue::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_booleans_numbers_or_texts() {
        let number = |number| MetadataValue::Number(MetadataNumber::new(number).unwrap());
        for (text, expected) in [
            ("true", MetadataValue::Bool(true)),
            ("False", MetadataValue::Bool(false)),
            ("7", number(7.0)),
            ("-1.5e3", number(-1_500.0)),
            (".5", number(0.5)),
            ("1e999", MetadataValue::Text("1e999".into())),
            ("inf", MetadataValue::Text("inf".into())),
            ("1.2.3", MetadataValue::Text("1.2.3".into())),
            ("e", MetadataValue::Text("e".into())),
            ("gpt-4", MetadataValue::Text("gpt-4".into())),
        ] {
            assert_eq!(plain(text), expected, "{text}");
        }
    }
}
