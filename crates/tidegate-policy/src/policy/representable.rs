//! Rules built in code that a policy file cannot express.
//!
//! They are rejected, so that every policy can be written and parsed again.

use super::{Condition, CostTable, Grant, KeyPart, Override, Pattern, Rule};

/// The error of a rule that the parser would have rejected.
pub(crate) fn problem(rule: &Rule) -> Option<&'static str> {
    let is_blank_part =
        |part: &KeyPart| matches!(part, KeyPart::Text(name) if name.trim().is_empty());
    let is_blank = |text: &Option<Box<str>>| text.as_ref().is_some_and(|it| it.trim().is_empty());
    if rule.id.name.trim().is_empty() || rule.id.domain.trim().is_empty() {
        Some("the name or the domain is empty")
    } else if is_blank(&rule.deny) || is_blank(&rule.group) {
        Some("the reason or the group is empty")
    } else if rule.key.parts.iter().any(is_blank_part) {
        Some("the name of an attribute in the key is empty")
    } else if !have_values(&rule.conditions) {
        Some("a condition has no patterns")
    } else if rule.replaces.iter().any(|name| name.trim().is_empty()) {
        Some("the name of a replaced rule is empty")
    } else {
        let cost = rule.cost.as_ref().and_then(of_cost);
        let limit = || rule.limit.unwritable();
        let overrides = || rule.overrides.iter().find_map(of_override);
        cost.or_else(limit).or_else(overrides)
    }
}

fn of_override(given: &Override) -> Option<&'static str> {
    let is_known =
        |at: usize| given.key[..at].iter().any(|other| other.attribute == given.key[at].attribute);
    if !have_values(&given.key) {
        return Some("a condition has no patterns");
    }
    if (0..given.key.len()).any(is_known) {
        return Some("an override names an attribute of its key twice");
    }
    match &given.grant {
        Grant::Limit(limit) => limit.unwritable(),
        Grant::Unlimited => None,
    }
}

fn of_cost(costs: &CostTable) -> Option<&'static str> {
    // Without `by` it is one number; a row for the value `by` would be read as the attribute.
    let is_number = || matches!(&*costs.rows, [(Pattern::Glob(all), _)] if &**all == "*");
    let is_writable = |pattern: &Pattern| {
        let text = pattern.to_string();
        text != "by" && Pattern::read(&text).is_ok_and(|read| read == *pattern)
    };
    if costs.by.is_empty() && !is_number() {
        Some("a cost table does not say by which attribute")
    } else if !costs.rows.iter().all(|(pattern, _)| is_writable(pattern)) {
        Some("a cost table has a pattern that cannot be written")
    } else {
        None
    }
}

fn have_values(conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| !condition.any_of.is_empty())
}
