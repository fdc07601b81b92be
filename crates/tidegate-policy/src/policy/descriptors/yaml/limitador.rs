//! Files of Limitador: a list of limits, each for the requests of a namespace that meet its
//! conditions.
//!
//! Conditions and variables there name a descriptor of the call, by its index. So each limit is a
//! group: rules that limit nothing take the other descriptors out, and the values that a condition
//! excludes; the limit itself applies to the rest. A limit over several descriptors is an error:
//! here each descriptor is decided by itself.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use tidegate_core::Window;

use super::ImportedRule;
use super::cel::{self, Test};
use super::fields::{Fields, fields};
use super::names::UniqueNames;
use super::node::{Node, NodeValue};
use crate::policy::descriptors::rule_names::{self, condition};
use crate::policy::key::{Key, KeyPart, attribute_name};
use crate::policy::parse::diagnostic_sink::DiagnosticSink;
use crate::policy::text::{TextError, quoted};
use crate::policy::{Condition, CostTable, Limit, Missing, Pattern, Rule};

/// Reads a document: a list of limits, or a mapping with one under `limits`.
pub(super) fn read(
    document: &Node,
    names: &mut UniqueNames,
    report: &mut DiagnosticSink,
    found: &mut Vec<ImportedRule>,
) {
    let list = match &*document.value {
        NodeValue::List(_) => document,
        _ => {
            let Some(fields) = fields(document, "the file", &["limits"], report) else { return };
            let Some(list) = fields.get("limits") else {
                report.error(document.span.clone(), "the file has no `limits`");
                return;
            };
            list
        }
    };
    let NodeValue::List(items) = &*list.value else {
        let message = format!("limits are a list, not {}", list.kind());
        report.error(list.span.clone(), message);
        return;
    };
    for item in items {
        read_limit(item, names, report, found);
    }
}

fn read_limit(
    item: &Node,
    names: &mut UniqueNames,
    report: &mut DiagnosticSink,
    found: &mut Vec<ImportedRule>,
) {
    let Some(fields) = fields(item, "a limit", &FIELDS, report) else { return };
    let errors = report.errors();
    let domain = fields.text("namespace", report).filter(|domain| !domain.is_empty());
    if domain.is_none() {
        report.error(item.span.clone(), "the limit has no `namespace`");
    }
    let max = number(&fields, "max_value", 0..=u32::MAX.into(), item, report);
    let seconds = number(&fields, "seconds", 1..=MOST_SECONDS, item, report);
    let conditions = texts(&fields, "conditions", report);
    let tests: Vec<_> = conditions.iter().filter_map(|it| tests(it, report)).flatten().collect();
    let mut key = Key::default();
    let mut indexes: Vec<_> = tests.iter().map(|(test, _)| test.descriptor).collect();
    for (variable, span) in texts(&fields, "variables", report) {
        let added = cel::variable(&variable).and_then(|(name, index)| {
            indexes.push(index);
            add_text(&mut key, &name)
        });
        if let Err(error) = added {
            report.error(span, error.message).hint = error.hint;
        }
    }
    let index = indexes.first().copied().unwrap_or(0);
    if indexes.iter().any(|other| *other != index) {
        let message = "the limit refers to several descriptors of a call";
        report.error(item.span.clone(), message).hint =
            Some("put what it needs into one descriptor".into());
    }
    let given = fields.text("name", report).or_else(|| fields.text("id", report));
    let (Some(domain), Some(max), Some(seconds)) = (domain, max, seconds) else { return };
    if report.errors() > errors {
        return;
    }
    let made = || default_name(item, max, seconds);
    let given = given.filter(|name| !name.trim().is_empty()).unwrap_or_else(made);
    let name = names.reserve(&domain, &given, "");
    let window = Window::try_new(max.max(1), Duration::from_secs(seconds));
    let Ok(window) = window else {
        report.error(item.span.clone(), "the limit is too large");
        return;
    };
    let Some(set) = ConditionSet::of(&tests, &item.span, report) else { return };
    let mut group = Vec::new();
    if index == 0 {
        group.push(rule_names::later_descriptor());
    }
    group.extend(set.not.iter().map(|(name, pattern)| condition(name, pattern.clone())));
    for (number, conditions) in (1..).zip(group) {
        let name_of_rule = names.reserve(&domain, &format!("{name}, not {number}"), "");
        let mut rule = Rule::new(&name_of_rule, Limit::Window(window));
        rule.conditions = vec![conditions];
        rule.key = rule_names::placeholder_key();
        rule.missing = Missing::Skip;
        rule.id.domain = (&*domain).into();
        rule.group = Some((&*name).into());
        found.push(ImportedRule { rule, span: item.span.clone() });
    }
    let mut rule = Rule::new(&name, Limit::Window(window));
    rule.missing = Missing::Skip;
    rule.conditions = set.conditions;
    if index > 0 {
        rule.conditions.push(rule_names::descriptor(index));
    }
    rule.key = key;
    if max == 0 {
        // A cost above the whole window is never allowed.
        rule.cost = Some(CostTable::fixed(2));
    }
    rule.id.domain = (&*domain).into();
    rule.group = Some((&*name).into());
    found.push(ImportedRule { rule, span: item.span.clone() });
}

/// Adds a variable to a key. It counts as text, whatever its name.
fn add_text(key: &mut Key, name: &str) -> Result<(), TextError> {
    attribute_name(name)?;
    if name == "ip4" || name.starts_with("ip/") || name.starts_with("ip4/") {
        return Err(TextError::new(format!("a variable cannot be named {}", quoted(name)))
            .hint("in the key of a rule it stands for a part of an address; use another name"));
    }
    // A repeated variable distinguishes no more requests.
    if !key.parts.iter().any(|part| part.attribute() == name) {
        key.parts.push(KeyPart::Text(name.into()));
    }
    Ok(())
}

/// A name for a limit without one.
fn default_name(item: &Node, max: u64, seconds: u64) -> String {
    let condition = item.get("conditions").and_then(|it| match &*it.value {
        NodeValue::List(items) => items.first().and_then(Node::text),
        _ => None,
    });
    let per = format!("{max} per {seconds}s");
    condition.map_or_else(|| per.clone(), |condition| format!("{per} if {condition}"))
}

/// The conditions of a limit, combined by attribute.
#[derive(Default)]
struct ConditionSet {
    conditions: Vec<Condition>,
    not: Vec<(String, Pattern)>,
}

impl ConditionSet {
    fn of(
        tests: &[(Test, Range<usize>)],
        span: &Range<usize>,
        report: &mut DiagnosticSink,
    ) -> Option<Self> {
        let mut set = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for (test, _) in tests {
            if seen.contains(&&*test.attribute) {
                continue;
            }
            seen.push(&test.attribute);
            let same: Vec<_> =
                tests.iter().filter(|(it, _)| it.attribute == test.attribute).collect();
            let excluded = same.iter().filter(|(it, _)| it.is_excluded);
            set.not.extend(excluded.map(|(it, _)| (it.attribute.clone(), it.pattern.clone())));
            let wanted = same.iter().filter(|(it, _)| !it.is_excluded).map(|(it, _)| &it.pattern);
            let Some(pattern) = all_of(wanted) else {
                let message = format!("the conditions on `{}` never hold", test.attribute);
                report.error(span.clone(), message);
                return None;
            };
            set.conditions.push(condition(&test.attribute, pattern));
        }
        Some(set)
    }
}

/// One pattern for all of them; `None` if no value matches them all.
fn all_of<'p>(patterns: impl Iterator<Item = &'p Pattern>) -> Option<Pattern> {
    let mut whole = Pattern::Glob("*".into());
    for pattern in patterns {
        whole = match (whole, pattern) {
            (Pattern::Range(a, b), Pattern::Range(c, d)) => {
                let (first, last) = (a.max(*c), b.min(*d));
                (first <= last).then_some(Pattern::Range(first, last))?
            }
            (whole @ Pattern::Equals(_), other) => match &whole {
                Pattern::Equals(text) if other.matches(text) => whole,
                _ => return None,
            },
            (other, Pattern::Equals(text)) if other.matches(text) => Pattern::Equals(text.clone()),
            (_, Pattern::Equals(_)) => return None,
            (_, pattern) => pattern.clone(),
        };
    }
    Some(whole)
}

/// The tests of a condition, with its span.
fn tests(
    (text, span): &(String, Range<usize>),
    report: &mut DiagnosticSink,
) -> Option<Vec<(Test, Range<usize>)>> {
    let checked = cel::condition(text).and_then(|tests| {
        tests.iter().try_for_each(|test| attribute_name(&test.attribute)).map(|()| tests)
    });
    match checked {
        Ok(tests) => Some(tests.into_iter().map(|test| (test, span.clone())).collect()),
        Err(error) => {
            report.error(span.clone(), error.message).hint = error.hint;
            None
        }
    }
}

/// The texts of a list.
fn texts(
    fields: &Fields<'_>,
    name: &str,
    report: &mut DiagnosticSink,
) -> Vec<(String, Range<usize>)> {
    let Some(list) = fields.get(name).filter(|list| !list.is_nothing()) else { return Vec::new() };
    let NodeValue::List(items) = &*list.value else {
        report.error(list.span.clone(), format!("`{name}` is a list, not {}", list.kind()));
        return Vec::new();
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        match item.text().filter(|_| !item.is_nothing()) {
            Some(text) => texts.push((text.to_owned(), item.span.clone())),
            None => {
                let message = format!("each of `{name}` is a text, not {}", item.kind());
                report.error(item.span.clone(), message).hint =
                    Some("put quotes around it, and one dash before it".into());
            }
        }
    }
    texts
}

fn number(
    fields: &Fields<'_>,
    name: &str,
    range: RangeInclusive<u64>,
    item: &Node,
    report: &mut DiagnosticSink,
) -> Option<u64> {
    let Some(node) = fields.get(name).filter(|node| !node.is_nothing()) else {
        report.error(item.span.clone(), format!("the limit has no `{name}`"));
        return None;
    };
    let number = node.text().and_then(|text| text.parse().ok());
    let number = number.filter(|number| range.contains(number));
    if number.is_none() {
        let (min, max) = (range.start(), range.end());
        let message = format!("`{name}` is a whole number from {min} to {max}");
        report.error(node.span.clone(), message);
    }
    number
}

const FIELDS: [&str; 7] =
    ["namespace", "max_value", "seconds", "conditions", "variables", "name", "id"];
/// About 292 years.
const MOST_SECONDS: u64 = i64::MAX as u64 / 1_000_000_000;
