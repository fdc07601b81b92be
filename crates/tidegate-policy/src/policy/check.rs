//! The errors of rules, whether they come from a file or from code.

use std::collections::HashMap;
use std::mem::discriminant;

use super::diagnostic::Severity;
use super::text::quoted;
use super::{Charging, Condition, CostTable, Grant, Limit, Mode, OnError, Pattern, Rule};

/// A finding about a rule: in which field, and what.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// `None`: about the whole policy.
    pub(crate) rule: Option<usize>,
    /// The field of the rule that it is about.
    pub(crate) field: &'static str,
    /// Which element, where the field is a list.
    pub(crate) element: Option<usize>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) other: Option<RelatedKey>,
}

/// Another position that a finding refers to; the same field of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelatedKey {
    pub(crate) rule: usize,
    pub(crate) element: Option<usize>,
    pub(crate) text: &'static str,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        rule: usize,
        field: &'static str,
        message: String,
    ) -> Self {
        let (rule, element, hint, other) = (Some(rule), None, None, None);
        Self { severity, rule, field, element, message, hint, other }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn element(self, element: usize) -> Self {
        Self { element: Some(element), ..self }
    }

    pub(crate) fn other(self, other: RelatedKey) -> Self {
        Self { other: Some(other), ..self }
    }
}

/// All errors of the rules that do not need their text.
pub(crate) fn check(rules: &[Rule]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if rules.is_empty() {
        let message = "the policy has no rule, so nothing would be limited".into();
        let hint = Some("begin one with `[[rule]]`".into());
        findings.push(Finding {
            rule: None,
            hint,
            ..Finding::new(Severity::Error, 0, "rule", message)
        });
    }
    let mut names = HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        check_name(index, rule, &mut findings);
        if let Some(first) = names.insert((&rule.id.domain, &rule.id.name), index)
            && !rule.id.name.is_empty()
        {
            names.insert((&rule.id.domain, &rule.id.name), first);
            let (name, domain) = (quoted(&rule.id.name), quoted(&rule.id.domain));
            let other = RelatedKey { rule: first, element: None, text: "it is first used" };
            findings.push(
                error(index, "name", format!("the name {name} is already used in domain {domain}"))
                    .hint("give one of them another name, or another domain")
                    .other(other),
            );
        }
        check_rule(index, rule, &mut findings);
    }
    findings
}

fn error(rule: usize, field: &'static str, message: String) -> Finding {
    Finding::new(Severity::Error, rule, field, message)
}

fn check_name(index: usize, rule: &Rule, findings: &mut Vec<Finding>) {
    for (field, text) in [("name", &rule.id.name), ("domain", &rule.id.domain)] {
        let why = if text.is_empty() {
            // In a file it has been reported, as absent or empty.
            continue;
        } else if text.len() > LONGEST_NAME {
            format!("is longer than {LONGEST_NAME} bytes")
        } else if text.chars().any(char::is_control) {
            "has a control character".into()
        } else {
            continue;
        };
        findings.push(error(index, field, format!("the {field} {} {why}", quoted(text))));
    }
}

fn check_rule(index: usize, rule: &Rule, findings: &mut Vec<Finding>) {
    for (at, condition) in rule.conditions.iter().enumerate() {
        if rule.conditions[..at].iter().any(|other| other.attribute == condition.attribute) {
            let attribute = quoted(&condition.attribute);
            findings.push(error(index, "match", format!("{attribute} is matched twice")));
        }
    }
    if let Some(cost) = &rule.cost {
        check_cost(index, rule, cost, findings);
    }
    findings.extend(check_slots(index, "slots", &rule.limit));
    if rule.reserve_for.is_zero() {
        findings.push(error(index, "reserve_for", "`reserve_for` must be above zero".into()));
    }
    if rule.charging == Charging::Postpaid && !rule.limit.can_be_postpaid() {
        let message = format!("a `{}` has nothing to book afterwards", rule.limit.algorithm());
        let hint = "only `bucket`, `window`, `sliding` and `quota` can be postpaid";
        findings.push(error(index, "postpaid", message).hint(hint));
    }
    if rule.quota_mode && rule.mode == Mode::Enforce {
        let message = "a rule in quota mode cannot be enforced".into();
        findings.push(error(index, "quota_mode", message).hint("add `mode = \"shadow\"`"));
    }
    if matches!(rule.on_error, Some(OnError::Local(_))) && !rule.limit.can_be_divided() {
        let message = format!("a `{}` has no local share", rule.limit.algorithm());
        let hint = "use `on_error = \"allow\"` or `\"deny\"`; only `bucket`, `window` and `sliding` can \
                    be divided";
        findings.push(error(index, "on_error", message).hint(hint));
    }
    if rule.replaces.contains(&rule.id.name) {
        findings.push(error(index, "replaces", "the rule replaces itself".into()));
    }
    check_overrides(index, rule, findings);
}

fn check_slots(index: usize, field: &'static str, limit: &Limit) -> Option<Finding> {
    let Limit::Slots(slots) = limit else { return None };
    if slots.max == 0 || slots.expires.is_zero() {
        let message = "slots need a `max` of at least 1, and `expires` above zero".into();
        return Some(error(index, field, message));
    }
    let is_zero = slots.wait.is_some_and(|wait| wait.is_zero());
    is_zero.then(|| {
        error(index, field, "`wait` must be above zero".into()).hint("use `queue = 0` for no queue")
    })
}

fn check_overrides(index: usize, rule: &Rule, findings: &mut Vec<Finding>) {
    for (at, override_rule) in rule.overrides.iter().enumerate() {
        if rule.key.parts.is_empty() {
            let message =
                "the rule has one key for all requests, so there is nothing to override".into();
            let hint = "give the rule a `key`, or write a rule with `match`";
            findings.push(error(index, "override", message).element(at).hint(hint));
            continue;
        }
        if override_rule.key.is_empty() {
            let message = "the override does not say for which keys".into();
            let hint = "name attributes of the rule's key: `key = { ip = \"192.0.2.7\" }`";
            findings.push(error(index, "override", message).element(at).hint(hint));
        }
        for Condition { attribute, .. } in &override_rule.key {
            if !rule.key.parts.iter().any(|part| part.attribute() == &**attribute) {
                let known: Vec<_> = rule.key.parts.iter().map(|part| part.attribute()).collect();
                let message = format!("{} is not in the key of the rule", quoted(attribute));
                let hint = format!("the key has `{}`", known.join("`, `"));
                findings.push(error(index, "override", message).element(at).hint(hint));
            }
        }
        let Grant::Limit(limit) = &override_rule.grant else { continue };
        findings.extend(check_slots(index, "override", limit).map(|it| it.element(at)));
        if discriminant(limit) != discriminant(&rule.limit) {
            let (own, other) = (rule.limit.algorithm(), limit.algorithm());
            let message = format!("a `{own}` cannot be overridden by a `{other}`");
            findings.push(error(index, "override", message).element(at));
        } else if !limit.is_like(&rule.limit) {
            let message = "an override cannot change `align`, a quota's `per` or `priority`".into();
            let hint = "use the rule's value";
            findings.push(error(index, "override", message).element(at).hint(hint));
        } else if rule.loses_debt_to(limit) {
            let message = "an override cannot take the debt of a postpaid rule away".into();
            let hint = "give it a `debt` of at least 1, or leave it out";
            findings.push(error(index, "override", message).element(at).hint(hint));
        }
    }
}

fn check_cost(index: usize, rule: &Rule, cost: &CostTable, findings: &mut Vec<Finding>) {
    if matches!(rule.limit, Limit::Slots(_)) {
        let message = "a request takes one slot, whatever it costs".into();
        findings.push(error(index, "cost", message).hint("remove `cost` from a slots rule"));
    }
    if cost.rows.is_empty() {
        findings.push(error(index, "cost", "the cost table has no rows".into()));
    }
    if cost.rows.iter().any(|(_, cost)| *cost == 0) {
        findings.push(error(index, "cost", "a cost is at least 1".into()));
    }
    for (first, second) in overlaps(&cost.rows) {
        let message = format!("{} and {} overlap", quoted(&first), quoted(&second));
        findings.push(error(index, "cost", message).hint("each value needs exactly one cost"));
    }
}

/// Rows that match the same value: equal ones, and ranges that overlap.
fn overlaps(rows: &[(Pattern, u64)]) -> Vec<(String, String)> {
    let mut ranges: Vec<(i64, i64)> = rows.iter().filter_map(|(row, _)| as_range(row)).collect();
    ranges.sort_unstable();
    let ranges = ranges
        .windows(2)
        .filter(|pair| pair[1].0 <= pair[0].1)
        .map(|pair| (Pattern::Range(pair[0].0, pair[0].1), Pattern::Range(pair[1].0, pair[1].1)));
    let mut seen = HashMap::new();
    let equal = rows
        .iter()
        .filter(|(row, _)| as_range(row).is_none() && seen.insert(row, ()).is_some())
        .map(|(row, _)| (row.clone(), row.clone()));
    ranges.chain(equal).map(|(first, second)| (first.to_string(), second.to_string())).collect()
}

/// The range of a row; a number is a range of one.
fn as_range(row: &Pattern) -> Option<(i64, i64)> {
    match row {
        Pattern::Range(first, last) => Some((*first, *last)),
        Pattern::Equals(text) => super::pattern::integer(text).map(|number| (number, number)),
        Pattern::Glob(_) | Pattern::Network(..) => None,
    }
}

const LONGEST_NAME: usize = 128;
