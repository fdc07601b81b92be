//! Descriptions of rules as text.

use std::fmt::Write;
use std::time::Duration;

use tidegate_core::{Bucket, Carry, Debt, Quota};

mod descriptor;

use super::text::format_duration;
use super::{
    Charging, Condition, CostTable, Cycle, Grant, Limit, Mode, Override, Pattern, Rule, Slots,
};

impl Rule {
    /// A description of the rule: what it applies to, how much it allows, what happens beyond.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.reads_descriptors() {
            return descriptor::describe(self);
        }
        let mut text = format!("`{}` applies to {}.", self.id.name, requests(self));
        let _ = write!(text, " {}.", keys(self));
        let _ = write!(text, " {}", limit(&self.limit));
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

/// The description of an algorithm and its numbers.
fn limit(limit: &Limit) -> String {
    match limit {
        Limit::Bucket(of) => bucket(of),
        Limit::Window(window) => {
            let (max, per) = (window.max(), format_duration(window.per()));
            let opens = if window.is_aligned() {
                format!("windows begin at whole multiples of {per}")
            } else {
                "a window opens with the first request".into()
            };
            let twice = u128::from(max) * 2;
            format!(
                "At most {max} in each window of {per}; {opens}. \
                 Around the end of a window up to {twice} can be allowed within {per}. \
                 It is full again when the window ends, {per} after it opened at most."
            )
        }
        Limit::Sliding(sliding) => {
            let (max, per, parts) = (sliding.max(), sliding.per(), sliding.parts());
            let steady = per.saturating_add(per / parts);
            format!(
                "At most {max} in any {}. A steady {max} per {} is always allowed \
                 (it is counted in {parts} parts). From empty it is full again after {} at most.",
                format_duration(per),
                format_duration(steady),
                format_duration(steady),
            )
        }
        Limit::Cooldown(cooldown) => {
            format!("At most one every {}.", format_duration(cooldown.gap()))
        }
        Limit::Quota(of, cycle) => quota(*of, cycle),
        Limit::Slots(of) => slots(of),
    }
}

fn bucket(bucket: &Bucket) -> String {
    let (rate, burst) = (bucket.rate(), bucket.burst());
    let (count, period_ns) = (u128::from(rate.count()), rate.period().as_nanos());
    let pace = match period_ns % count {
        0 => format!("One every {}", format_duration(nanos(period_ns / count))),
        _ => format!("{count} per {}", format_duration(rate.period())),
    };
    let window = rate.period().max(Duration::from_secs(60));
    let in_window = u128::from(burst) + count * window.as_nanos() / period_ns;
    let full_ns = (u128::from(burst) * period_ns).div_ceil(count);
    let mut text = format!(
        "{pace}; at most {burst} at once and {in_window} in any {}. \
         From empty it is full again after {}.",
        format_duration(window),
        format_duration(nanos(full_ns)),
    );
    let _ = match bucket.debt() {
        Debt::Nothing => Ok(()),
        Debt::UpTo(most) => write!(text, " Commits may overdraw it by {most}."),
        Debt::All => write!(text, " Commits may overdraw it; refilling pays."),
    };
    text
}

fn quota(quota: Quota, cycle: &Cycle) -> String {
    let per = match cycle {
        Cycle::Calendar(calendar) => calendar.to_string(),
        Cycle::Round => "round that the host closes".into(),
    };
    let max = quota.max();
    let edge =
        |most: u128| format!("up to {most} can be allowed in a row around the end of a period");
    let carry = match quota.carry() {
        Carry::Nothing => format!("unused units lapse. So {}", edge(u128::from(max) * 2)),
        Carry::UpTo(most) => format!(
            "up to {most} unused units are added to the next. So {}",
            edge(u128::from(max) * 2 + u128::from(most))
        ),
        Carry::All => {
            "unused units are added to the next, without a bound, from a key's first request on"
                .into()
        }
    };
    let full = match cycle {
        Cycle::Calendar(_) => "It is full again when the period ends",
        Cycle::Round => "It is full again when the round is closed",
    };
    let debt = match quota.debt() {
        Debt::All => "Commits may overdraw it; the next periods pay".into(),
        Debt::UpTo(most) => format!("Commits may overdraw it by {most}; the next periods pay"),
        Debt::Nothing => "Commits charge no more than it has".into(),
    };
    format!("At most {max} per {per}; {carry}. {full}. {debt}.")
}

fn slots(slots: &Slots) -> String {
    let mut text = format!("At most {} in flight at once.", slots.max);
    if slots.queue == 0 {
        text += " There is no queue.";
    } else {
        let order = match &slots.priority {
            Some(attribute) => format!("the higher `{attribute}` first, then in order of arrival"),
            None => "in order of arrival".into(),
        };
        let wait = match slots.wait {
            Some(wait) => format!("for at most {}", format_duration(wait)),
            None => "without a deadline".into(),
        };
        let _ = write!(text, " Up to {} wait in the queue, {order}, {wait}.", slots.queue);
    }
    let _ =
        write!(text, " A slot that is not renewed for {} expires.", format_duration(slots.expires));
    text
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
        Grant::Limit(other) => limit(other),
    };
    format!("For {}{}: {text}", keys.join(", "), until.unwrap_or_default())
}

/// A duration of this many nanoseconds, saturating.
fn nanos(ns: u128) -> Duration {
    let secs = u64::try_from(ns / 1_000_000_000).unwrap_or(u64::MAX);
    let rest = u32::try_from(ns % 1_000_000_000).unwrap_or(0);
    Duration::new(secs, rest)
}

const MOST_OVERRIDES: usize = 3;
