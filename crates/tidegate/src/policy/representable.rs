//! What a rule that was built in code can have and a policy file cannot say.
//!
//! It is refused, so that every policy can be written down and read again.

use super::fields::MOST_QUEUE;
use super::{Condition, CostTable, Grant, KeyPart, Limit, Override, Pattern, Rule};

/// What is wrong with a rule that the parser would not have let through.
pub(crate) fn problem(rule: &Rule) -> Option<&'static str> {
    let is_blank_part =
        |part: &KeyPart| matches!(part, KeyPart::Text(name) if name.trim().is_empty());
    let is_blank = |text: &Option<Box<str>>| text.as_ref().is_some_and(|it| it.trim().is_empty());
    if rule.name.trim().is_empty() || rule.domain.trim().is_empty() {
        Some("the name or the domain is empty")
    } else if is_blank(&rule.deny) || is_blank(&rule.group) {
        Some("the reason or the group is empty")
    } else if rule.key.parts.iter().any(is_blank_part) {
        Some("the name of an attribute in the key is empty")
    } else if !can_be_something(&rule.conditions) {
        Some("an attribute can be nothing")
    } else {
        let cost = rule.cost.as_ref().and_then(of_cost);
        let limit = || of_limit(&rule.limit);
        let overrides = || rule.overrides.iter().find_map(of_override);
        cost.or_else(limit).or_else(overrides)
    }
}

fn of_override(given: &Override) -> Option<&'static str> {
    let is_known =
        |at: usize| given.key[..at].iter().any(|other| other.attribute == given.key[at].attribute);
    if !can_be_something(&given.key) {
        return Some("an attribute can be nothing");
    }
    if (0..given.key.len()).any(is_known) {
        return Some("an override names an attribute of its key twice");
    }
    match &given.grant {
        Grant::Limit(limit) => of_limit(limit),
        Grant::Unlimited => None,
    }
}

fn of_limit(limit: &Limit) -> Option<&'static str> {
    match limit {
        Limit::Slots(slots) if u64::try_from(slots.queue).is_ok_and(|it| it > MOST_QUEUE) => {
            Some("`queue` is above 4294967295")
        }
        Limit::Slots(slots) => {
            let priority = slots.priority.as_ref().filter(|name| name.trim().is_empty());
            priority.map(|_| "the name of the attribute for `priority` is empty")
        }
        Limit::Cooldown(cooldown) if *cooldown == cooldown.extended_by_refusals() => {
            Some("a refused attempt extends a cooldown where the rule has `charge_refused`")
        }
        // Their numbers are in bounds by themselves.
        _ => None,
    }
}

fn of_cost(costs: &CostTable) -> Option<&'static str> {
    // Without `by` it is one number, and a row for the value `by` would say which attribute.
    let is_number = || matches!(&*costs.rows, [(Pattern::Glob(all), _)] if &**all == "*");
    let is_sayable = |pattern: &Pattern| {
        let text = pattern.to_string();
        text != "by" && Pattern::read(&text).is_ok_and(|read| read == *pattern)
    };
    if costs.by.is_empty() && !is_number() {
        Some("a cost table does not say by which attribute")
    } else if !costs.rows.iter().all(|(pattern, _)| is_sayable(pattern)) {
        Some("a cost table has a pattern that cannot be written")
    } else {
        None
    }
}

fn can_be_something(conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| !condition.any_of.is_empty())
}
