//! Descriptions of rules that come from a file of envoyproxy/ratelimit, in the words of that file.

use std::fmt::Write;

use super::mode;
use crate::policy::descriptors::key_by_position;
use crate::policy::{Condition, Grant, Pattern, Rule};

/// Which descriptors it limits, and how.
pub(super) fn describe(rule: &Rule) -> String {
    let entries: Vec<_> = rule.conditions.iter().filter_map(entry).collect();
    let (name, domain) = (&rule.id.name, &rule.id.domain);
    let mut text = format!("`{name}` applies to descriptors of domain `{domain}`");
    match &*entries {
        [] => {}
        [only] => {
            let _ = write!(text, " whose only entry is {only}");
        }
        entries => {
            let _ = write!(text, " with the entries {}, in this order", entries.join(", "));
        }
    }
    text += ".";
    let is_unlimited = |it: &crate::policy::Override| {
        it.grant == Grant::Unlimited && it.until_ns.is_none() && it.key.iter().all(is_any)
    };
    if rule.overrides.iter().any(is_unlimited) {
        return text + " They are not limited." + mode(rule);
    }
    let varies = |name: &&str| {
        let condition = rule.conditions.iter().find(|it| &*it.attribute == *name);
        condition.is_none_or(|it| !matches!(&*it.any_of, [Pattern::Equals(_)]))
    };
    let parts = rule.key.parts.iter().map(|part| part.attribute());
    let keys: Vec<_> =
        parts.filter(varies).map(|name| key_by_position(name).unwrap_or(name)).collect();
    let _ = match keys.is_empty() {
        true => write!(text, " All of them share one limit."),
        false => write!(text, " Each value of {} has its own limit.", keys.join(" and ")),
    };
    let _ = write!(text, " {}", rule.limit.describe());
    if !rule.replaces.is_empty() {
        let _ = write!(text, " It replaces `{}`.", rule.replaces.join("`, `"));
    }
    text + mode(rule)
}

/// An entry of the descriptor; `None` for a condition that is not about one.
fn entry(condition: &Condition) -> Option<String> {
    let key = key_by_position(&condition.attribute)?;
    Some(match &*condition.any_of {
        _ if is_any(condition) => format!("{key} (any value)"),
        [Pattern::Equals(value)] => format!("{key} = {value}"),
        patterns => {
            let patterns: Vec<_> = patterns.iter().map(super::pattern).collect();
            format!("{key} {}", patterns.join(" or "))
        }
    })
}

fn is_any(condition: &Condition) -> bool {
    matches!(&*condition.any_of, [Pattern::Glob(glob)] if &**glob == "*")
}
