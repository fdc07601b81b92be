//! Limits as text: in full for a rule, and for an override what differs from its rule.

use tidegate_core::{Carry, Debt, Sliding};

use super::values::{duration, table, text};
use crate::policy::text::format_rate;
use crate::policy::{Charging, Cycle, Limit, Rule, Slots};

/// A number of a limit that an override can change.
struct OverridableNumber {
    name: &'static str,
    value: String,
    /// The value where nothing is written; `None`: it is required.
    default: Option<String>,
}

/// The name of the algorithm and its value, without the defaults that a rule has.
pub fn in_full(limit: &Limit, charging: Charging) -> (&'static str, String) {
    let algorithm = limit.algorithm();
    if let Limit::Cooldown(cooldown) = limit {
        return (algorithm, duration(cooldown.gap()));
    }
    let written =
        numbers(limit, charging).into_iter().filter(|it| it.default.as_ref() != Some(&it.value));
    let mut entries: Vec<_> = written.map(|it| (it.name, it.value)).collect();
    match limit {
        Limit::Window(window) if window.is_aligned() => entries.push(("align", text("epoch"))),
        Limit::Quota(_, cycle) => entries.insert(1, ("per", per(cycle))),
        Limit::Slots(slots) => {
            entries.extend(slots.priority.as_ref().map(|it| ("priority", text(it))));
        }
        _ => {}
    }
    (algorithm, table(entries))
}

/// The numbers of an override that differ from its rule's; at least one, because an override
/// without any is invalid.
pub(crate) fn over(rule: &Rule, given: &Limit) -> Vec<(&'static str, String)> {
    let own = numbers(&rule.limit, rule.charging);
    let is_inherited = |number: &OverridableNumber| {
        let own = own.iter().find(|own| own.name == number.name);
        own.is_some_and(|own| {
            // Where the rule has the default, the override has its own default: a burst follows its
            // own rate.
            let is_written = own.default.as_ref() != Some(&own.value);
            let inherited = if is_written { Some(&own.value) } else { number.default.as_ref() };
            inherited == Some(&number.value)
        })
    };
    let (inherited, mut written): (Vec<_>, Vec<_>) =
        numbers(given, rule.charging).into_iter().partition(is_inherited);
    if written.is_empty() {
        written.extend(inherited.into_iter().next());
    }
    written.into_iter().map(|number| (number.name, number.value)).collect()
}

fn numbers(limit: &Limit, charging: Charging) -> Vec<OverridableNumber> {
    match limit {
        Limit::Bucket(bucket) => vec![
            required("rate", text(&format_rate(bucket.rate()))),
            optional("burst", bucket.burst().to_string(), bucket.rate().count().to_string()),
            optional("debt", debt(bucket.debt()), debt(charging.default_debt_of_buckets())),
        ],
        Limit::Window(window) => {
            vec![required("max", window.max().to_string()), required("per", duration(window.per()))]
        }
        Limit::Sliding(sliding) => vec![
            required("max", sliding.max().to_string()),
            required("per", duration(sliding.per())),
            optional("parts", sliding.parts().to_string(), Sliding::DEFAULT_PARTS.to_string()),
        ],
        Limit::Cooldown(cooldown) => vec![required("cooldown", duration(cooldown.gap()))],
        Limit::Quota(quota, _) => vec![
            required("max", quota.max().to_string()),
            optional("carry", carry(quota.carry()), carry(Carry::Nothing)),
            optional("debt", debt(quota.debt()), debt(Debt::All)),
        ],
        Limit::Slots(slots) => vec![
            required("max", slots.max.to_string()),
            optional("queue", slots.queue.to_string(), Slots::DEFAULT_QUEUE.to_string()),
            optional("wait", slots.wait.map_or_else(none, duration), none()),
            optional("expires", duration(slots.expires), duration(Slots::DEFAULT_EXPIRES)),
        ],
    }
}

const fn required(name: &'static str, value: String) -> OverridableNumber {
    OverridableNumber { name, value, default: None }
}

const fn optional(name: &'static str, value: String, default: String) -> OverridableNumber {
    OverridableNumber { name, value, default: Some(default) }
}

fn carry(carry: Carry) -> String {
    match carry {
        Carry::Nothing => none(),
        Carry::UpTo(most) => most.to_string(),
        Carry::All => text("all"),
    }
}

fn debt(debt: Debt) -> String {
    match debt {
        Debt::All => text("all"),
        Debt::UpTo(most) => most.to_string(),
        Debt::Nothing => none(),
    }
}

fn per(cycle: &Cycle) -> String {
    match cycle {
        Cycle::Calendar(calendar) => text(&calendar.to_string()),
        Cycle::Round => text("round"),
    }
}

fn none() -> String {
    text("none")
}
