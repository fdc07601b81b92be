//! Mappings with known fields.

use super::node::{Node, NodeValue};
use crate::policy::parse::diagnostic_sink::DiagnosticSink;

/// The known fields of a mapping.
pub(super) struct Fields<'n>(&'n Node);

/// The mapping of a node; unknown fields are reported.
pub(super) fn fields<'n>(
    node: &'n Node,
    what: &str,
    known: &[&str],
    report: &mut DiagnosticSink,
) -> Option<Fields<'n>> {
    let NodeValue::Map(entries) = &*node.value else {
        let message = format!("{what} is a mapping, not {}", node.kind());
        report.error(node.span.clone(), message);
        return None;
    };
    for (key, _) in entries {
        let name = key.text().unwrap_or_default();
        if !known.contains(&name) {
            let nearest = known.iter().max_by(|a, b| {
                let likeness = |it: &str| strsim::jaro_winkler(it, name);
                likeness(a).total_cmp(&likeness(b))
            });
            let hint = match nearest.filter(|it| strsim::jaro_winkler(it, name) > 0.8) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("the fields of {what} are `{}`", known.join("`, `")),
            };
            let message = format!("unknown field `{name}` in {what}");
            report.error(key.span.clone(), message).hint = Some(hint);
        }
    }
    Some(Fields(node))
}

impl<'n> Fields<'n> {
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.0.get(name)
    }

    /// The text of a field; `None` if there is none.
    pub(super) fn text(&self, name: &str, report: &mut DiagnosticSink) -> Option<String> {
        let node = self.get(name).filter(|node| !node.is_nothing())?;
        if node.text().is_none() {
            report.error(node.span.clone(), format!("`{name}` is a text, not {}", node.kind()));
        }
        node.text().map(str::to_owned)
    }

    /// Whether a field is `true`.
    pub(super) fn flag(&self, name: &str, report: &mut DiagnosticSink) -> bool {
        let Some(node) = self.get(name).filter(|node| !node.is_nothing()) else { return false };
        match node.text() {
            Some("true" | "True" | "TRUE") => true,
            Some("false" | "False" | "FALSE") => false,
            _ => {
                report.error(node.span.clone(), format!("`{name}` is `true` or `false`"));
                false
            }
        }
    }
}
