//! Limits as text: in full for a rule, and for an override what differs from its rule.

use tidegate_core::Debt;

use super::Limit;
use crate::policy::fields::ValueKind;
use crate::policy::write::values::{table, text};
use crate::policy::{Charging, Rule};

/// A number of a limit, or another value.
#[derive(Debug)]
pub(crate) struct WrittenNumber {
    name: &'static str,
    value: String,
    /// The value where nothing is written; `None`: it is required.
    default: Option<String>,
    /// Whether an override can change it.
    is_overridable: bool,
}

impl WrittenNumber {
    fn is_default(&self) -> bool {
        self.default.as_ref() == Some(&self.value)
    }
}

pub(super) const fn required_number(name: &'static str, value: String) -> WrittenNumber {
    WrittenNumber { name, value, default: None, is_overridable: true }
}

pub(super) const fn optional_number(
    name: &'static str,
    value: String,
    default: String,
) -> WrittenNumber {
    WrittenNumber { name, value, default: Some(default), is_overridable: true }
}

/// A value that an override cannot change.
pub(super) const fn fixed_value(name: &'static str, value: String) -> WrittenNumber {
    WrittenNumber { name, value, default: None, is_overridable: false }
}

pub(super) fn debt(debt: Debt) -> String {
    match debt {
        Debt::All => text("all"),
        Debt::UpTo(most) => most.to_string(),
        Debt::Nothing => none(),
    }
}

pub(super) fn none() -> String {
    text("none")
}

/// The name of the algorithm and its value, without the defaults that a rule has.
pub fn in_full(limit: &Limit, charging: Charging) -> (&'static str, String) {
    let numbers = limit.numbers(charging).into_iter().filter(|it| !it.is_default());
    let mut entries = numbers.map(|it| (it.name, it.value));
    let field = &limit.spec().field;
    let value = match field.kind {
        ValueKind::Table(_) => table(entries),
        _ => entries.next().map(|(_, value)| value).unwrap_or_default(),
    };
    (field.name, value)
}

/// The numbers of an override that differ from its rule's; at least one, because an override
/// without any is invalid.
pub(crate) fn over(rule: &Rule, given: &Limit) -> Vec<(&'static str, String)> {
    let own = rule.limit.numbers(rule.charging);
    let is_inherited = |number: &WrittenNumber| {
        let own = own.iter().find(|own| own.name == number.name);
        own.is_some_and(|own| {
            // Where the rule has the default, the override has its own default: a burst follows its
            // own rate.
            let inherited =
                if own.is_default() { number.default.as_ref() } else { Some(&own.value) };
            inherited == Some(&number.value)
        })
    };
    let numbers = given.numbers(rule.charging).into_iter().filter(|it| it.is_overridable);
    let (inherited, mut written): (Vec<_>, Vec<_>) = numbers.partition(is_inherited);
    if written.is_empty() {
        written.extend(inherited.into_iter().next());
    }
    written.into_iter().map(|number| (number.name, number.value)).collect()
}
