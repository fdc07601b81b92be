//! Descriptions of rules as text.

use std::fmt::Write;

mod descriptor;

use super::{Charging, Condition, CostTable, Grant, Mode, Override, Pattern, Rule};

impl Rule {
    /// A description of the rule: what it applies to, how much it allows, what happens beyond.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.reads_descriptors() {
            return descriptor::describe(self);
        }
        let mut text = format!("`{}` applies to {}.", self.id.name, requests(self));
        let _ = write!(text, " {}.", keys(self));
        let _ = write!(text, " {}", self.limit.describe());
        if let Some(table) = &self.cost {
            let _ = write!(text, " {}.", cost(table));
        }
        text += charging(self.charging);
        for override_rule in self.overrides.iter().take(MOST_OVERRIDES) {
            let _ = write!(text, " {}", override_text(override_rule));
        }
        match self.overrides.len().saturating_sub(MOST_OVERRIDES) {
            0 => {}
            more => {
                let _ = write!(text, " And {more} more overrides.");
            }
        }
        // An imported limit has a group of its own, which says nothing.
        if let Some(group) = self.group.as_ref().filter(|group| **group != self.id.name) {
            let _ = write!(text, " It applies only if no earlier rule of group `{group}` does.");
        }
        if !self.replaces.is_empty() {
            let _ = write!(text, " It replaces `{}`.", self.replaces.join("`, `"));
        }
        text + mode(self)
    }
}

fn charging(charging: Charging) -> &'static str {
    match charging {
        Charging::Allowed => "",
        Charging::Refused => " Denied requests are charged as well.",
        Charging::Postpaid => {
            " It is postpaid: costs are booked in full, whatever is left, and a request is allowed if at \
             least one unit was left before."
        }
    }
}

fn mode(rule: &Rule) -> &'static str {
    if rule.quota_mode {
        " It is in quota mode: of the descriptors of a call with such rules all have to be denied."
    } else if rule.mode == Mode::Shadow {
        " It is in shadow mode: a denial is counted, and the request is allowed."
    } else {
        ""
    }
}

fn requests(rule: &Rule) -> String {
    let domain = &rule.id.domain;
    if rule.conditions.is_empty() {
        return format!("all requests of domain `{domain}`");
    }
    let conditions: Vec<_> = rule.conditions.iter().map(condition).collect();
    format!("requests of domain `{domain}` with {}", conditions.join(", "))
}

fn condition(condition: &Condition) -> String {
    const MOST: usize = 5;
    let mut patterns: Vec<_> = condition.any_of.iter().take(MOST).map(pattern).collect();
    match condition.any_of.len().saturating_sub(MOST) {
        0 => {}
        more => patterns.push(format!("{more} more")),
    }
    format!("{} {}", condition.attribute, patterns.join(" or "))
}

fn pattern(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Equals(_) => format!("= {pattern}"),
        Pattern::Glob(_) => format!("like {pattern}"),
        Pattern::Range(i64::MIN, last) => format!("up to {last}"),
        Pattern::Range(first, i64::MAX) => format!("from {first}"),
        Pattern::Range(first, last) => format!("from {first} to {last}"),
        Pattern::Network(..) => format!("in {pattern}"),
    }
}

fn keys(rule: &Rule) -> String {
    if rule.key.parts.is_empty() {
        return "All of them share one limit".into();
    }
    let parts: Vec<_> = rule.key.parts.iter().map(ToString::to_string).collect();
    format!("Each {} has its own limit", parts.join(" and "))
}

fn cost(table: &CostTable) -> String {
    let Some(attribute) = table.attribute() else {
        let cost = table.rows.first().map_or(1, |(_, cost)| *cost);
        return format!("Each request costs {cost}");
    };
    const MOST: usize = 8;
    let rows = table.rows.iter().take(MOST);
    let mut rows: Vec<_> =
        rows.map(|(row, cost)| format!("{cost} with {attribute} {}", pattern(row))).collect();
    if table.rows.len() > MOST {
        rows.push("…".into());
    }
    format!("A request costs {}; others are rejected as invalid", rows.join(", "))
}

fn override_text(override_rule: &Override) -> String {
    let keys: Vec<_> = override_rule.key.iter().map(condition).collect();
    let until = override_rule.until_ns.and_then(|until_ns| {
        jiff::Timestamp::from_nanosecond(until_ns.into())
            .ok()
            .map(|time| format!(" (until {time})"))
    });
    let text = match &override_rule.grant {
        Grant::Unlimited => "No limit.".into(),
        Grant::Limit(other) => other.describe(),
    };
    format!("For {}{}: {text}", keys.join(", "), until.unwrap_or_default())
}

const MOST_OVERRIDES: usize = 3;
