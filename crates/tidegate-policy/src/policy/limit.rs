//! Limits: an algorithm and its numbers. Each algorithm has a file, with its fields, and how it is read,
//! written and described.

use std::mem::discriminant;

use tidegate_core::{Bucket, Carry, Cooldown, Debt, LimitError, Quota, Sliding, Window};
use toml::de::DeValue;

use super::Charging;
use super::fields::{Field, ValueKind};
use super::parse::reader::{TableReader, whole};
use written::WrittenNumber;

pub use quota::Periods;
pub use slots::Slots;

pub(super) mod bucket;
pub(super) mod cooldown;
pub(super) mod quota;
pub(super) mod sliding;
pub(super) mod slots;
pub(super) mod window;
pub mod written;

/// One constraint: an algorithm and its numbers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// A token bucket.
    Bucket(Bucket),
    /// A fixed window.
    Window(Window),
    /// A sliding window.
    Sliding(Sliding),
    /// A minimum gap between allowed requests.
    Cooldown(Cooldown),
    /// An amount per calendar period, or per round that the host closes.
    Quota(Quota, Periods),
    /// A maximum in flight at once.
    Slots(Slots),
}

impl From<Bucket> for Limit {
    fn from(limit: Bucket) -> Self {
        Self::Bucket(limit)
    }
}

impl From<Window> for Limit {
    fn from(limit: Window) -> Self {
        Self::Window(limit)
    }
}

impl From<Sliding> for Limit {
    fn from(limit: Sliding) -> Self {
        Self::Sliding(limit)
    }
}

impl From<Cooldown> for Limit {
    fn from(limit: Cooldown) -> Self {
        Self::Cooldown(limit)
    }
}

impl From<Slots> for Limit {
    fn from(limit: Slots) -> Self {
        Self::Slots(limit)
    }
}

/// A [`Limit`] of any kind there is: [`Limit`] may get more kinds, and the engine has to know them all.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum LimitKind<'a> {
    Bucket(&'a Bucket),
    Window(&'a Window),
    Sliding(&'a Sliding),
    Cooldown(&'a Cooldown),
    Quota(&'a Quota, &'a Periods),
    Slots(&'a Slots),
}

/// An algorithm as policy files have it.
#[derive(Debug)]
pub(crate) struct Algorithm {
    /// The field of a rule: a table of numbers, or one number.
    pub(crate) field: Field,
    /// The numbers that an override may change.
    pub(crate) overridable: &'static [&'static str],
    /// The limit of its numbers.
    read: fn(&mut TableReader<'_, '_>, Charging) -> LimitRead,
}

/// A limit of numbers that are valid one by one, or why they do not fit together; `None`: one is absent
/// or invalid.
type LimitRead = Option<Result<Limit, LimitError>>;

/// All algorithms: a rule has exactly one of these fields.
pub(crate) const ALGORITHMS: [&Algorithm; 6] = [
    &bucket::ALGORITHM,
    &window::ALGORITHM,
    &sliding::ALGORITHM,
    &cooldown::ALGORITHM,
    &quota::ALGORITHM,
    &slots::ALGORITHM,
];

/// Their fields.
pub(crate) const ALGORITHM_FIELDS: [Field; ALGORITHMS.len()] = {
    let mut fields = [ALGORITHMS[0].field; ALGORITHMS.len()];
    let mut index = 1;
    while index < fields.len() {
        fields[index] = ALGORITHMS[index].field;
        index += 1;
    }
    fields
};

impl Limit {
    /// The name of the algorithm, as it is written in a policy file.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        self.spec().field.name
    }

    /// Whether this is the name of an algorithm in a policy file: a rule has exactly one of these fields.
    #[must_use]
    pub fn is_algorithm(name: &str) -> bool {
        ALGORITHMS.iter().any(|it| it.field.name == name)
    }

    pub(crate) const fn spec(&self) -> &'static Algorithm {
        match self {
            Self::Bucket(_) => &bucket::ALGORITHM,
            Self::Window(_) => &window::ALGORITHM,
            Self::Sliding(_) => &sliding::ALGORITHM,
            Self::Cooldown(_) => &cooldown::ALGORITHM,
            Self::Quota(..) => &quota::ALGORITHM,
            Self::Slots(_) => &slots::ALGORITHM,
        }
    }

    /// Its kind, for matches that have to name them all.
    #[doc(hidden)]
    #[must_use]
    pub const fn kind(&self) -> LimitKind<'_> {
        match self {
            Self::Bucket(bucket) => LimitKind::Bucket(bucket),
            Self::Window(window) => LimitKind::Window(window),
            Self::Sliding(sliding) => LimitKind::Sliding(sliding),
            Self::Cooldown(cooldown) => LimitKind::Cooldown(cooldown),
            Self::Quota(quota, periods) => LimitKind::Quota(quota, periods),
            Self::Slots(slots) => LimitKind::Slots(slots),
        }
    }

    /// Its values as a file has them.
    fn numbers(&self, charging: Charging) -> Vec<WrittenNumber> {
        match self {
            Self::Bucket(bucket) => bucket::numbers(bucket, charging),
            Self::Window(window) => window::numbers(window),
            Self::Sliding(sliding) => sliding::numbers(sliding),
            Self::Cooldown(cooldown) => cooldown::numbers(cooldown),
            Self::Quota(quota, periods) => quota::numbers(quota, periods),
            Self::Slots(slots) => slots::numbers(slots),
        }
    }

    /// A description of the algorithm and its numbers.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Bucket(bucket) => bucket::describe(bucket),
            Self::Window(window) => window::describe(window),
            Self::Sliding(sliding) => sliding::describe(sliding),
            Self::Cooldown(cooldown) => cooldown::describe(cooldown),
            Self::Quota(quota, periods) => quota::describe(quota, periods),
            Self::Slots(slots) => slots::describe(slots),
        }
    }

    /// Why no file can have it, if it was built in code.
    pub(crate) fn unwritable(&self) -> Option<&'static str> {
        match self {
            Self::Cooldown(cooldown) => cooldown::unwritable(cooldown),
            Self::Slots(slots) => slots::unwritable(slots),
            // Their types bound their numbers.
            Self::Bucket(_) | Self::Window(_) | Self::Sliding(_) | Self::Quota(..) => None,
        }
    }

    /// Whether one can override the other: the same algorithm, differing in numbers only.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Window(a), Self::Window(b)) => a.is_aligned() == b.is_aligned(),
            (Self::Quota(_, a), Self::Quota(_, b)) => a == b,
            (Self::Slots(a), Self::Slots(b)) => a.priority == b.priority,
            (a, b) => discriminant(a) == discriminant(b),
        }
    }

    /// Whether states of one are states of the other: the same algorithm, and the same that ends a
    /// quota's period.
    pub(crate) fn has_states_of(&self, other: &Self) -> bool {
        let is_round = |limit: &Self| matches!(limit, Self::Quota(_, Periods::Round));
        discriminant(self) == discriminant(other) && is_round(self) == is_round(other)
    }

    /// Whether it can book costs that are known only afterwards.
    pub(crate) const fn can_be_postpaid(&self) -> bool {
        !matches!(self, Self::Cooldown(_) | Self::Slots(_))
    }

    /// Whether each process can have a share of it.
    pub(crate) const fn can_be_divided(&self) -> bool {
        matches!(self, Self::Bucket(_) | Self::Window(_) | Self::Sliding(_))
    }

    /// Whether there is a next window or period, with which an edit can take effect.
    pub(crate) const fn has_windows(&self) -> bool {
        matches!(self, Self::Window(_) | Self::Quota(..))
    }

    /// The most that can ever be allowed at once, where there is such a bound.
    pub(crate) fn capacity(&self) -> Option<u64> {
        match self {
            Self::Bucket(bucket) => Some(bucket.capacity()),
            Self::Window(window) => Some(window.max()),
            Self::Sliding(sliding) => Some(sliding.max()),
            Self::Quota(quota, _) if quota.carry() == Carry::Nothing => Some(quota.max()),
            Self::Quota(..) | Self::Cooldown(_) | Self::Slots(_) => None,
        }
    }

    /// Whether it allows less than another one, as far as the two can be compared.
    pub(crate) fn is_below(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Slots(one), Self::Slots(other)) => one.max < other.max,
            (Self::Quota(one, periods), Self::Quota(other, other_periods)) => {
                periods == other_periods && one.max() < other.max()
            }
            (Self::Bucket(one), Self::Bucket(other)) if one.capacity() < other.capacity() => true,
            _ => match (self.pace(), other.pace()) {
                // Both sides are below 2^127.
                (Some(one), Some(other)) => {
                    one.count * other.period_ns < other.count * one.period_ns
                }
                _ => false,
            },
        }
    }

    fn pace(&self) -> Option<Pace> {
        let (count, period) = match self {
            Self::Bucket(bucket) => (bucket.rate().count(), bucket.rate().period()),
            Self::Window(window) => (window.max(), window.per()),
            Self::Sliding(sliding) => (sliding.max(), sliding.per()),
            Self::Cooldown(cooldown) => (1, cooldown.gap()),
            Self::Quota(..) | Self::Slots(_) => return None,
        };
        Some(Pace { count: count.into(), period_ns: period.as_nanos() })
    }

    /// A stand-in for a limit that could not be read, in a policy that will not be used.
    pub(crate) fn placeholder() -> Self {
        Self::Cooldown(cooldown::placeholder())
    }
}

/// What a limit allows in the long run. Both numbers are below 2^64.
struct Pace {
    count: u128,
    period_ns: u128,
}

impl Algorithm {
    /// Those that have a field in a rule, or in an override that has its limit in full.
    pub(crate) fn all_in(rule: &TableReader<'_, '_>) -> Vec<&'static Self> {
        ALGORITHMS.into_iter().filter(|it| rule.value(it.field.name).is_some()).collect()
    }

    /// The names of all of them, for a hint.
    pub(crate) fn names() -> String {
        ALGORITHMS.map(|it| it.field.name).join("`, `")
    }

    /// The limit in a rule, or in an override that has its limit in full. `None` if a number is absent or
    /// invalid, an error if they do not fit together; both have been reported.
    pub(crate) fn read_in(&self, rule: &mut TableReader<'_, '_>, charging: Charging) -> LimitRead {
        let errors_before = rule.report.errors();
        self.read(&mut self.numbers_in(rule)?, charging, errors_before)
    }

    /// The reader of its numbers.
    pub(crate) fn numbers_in<'s, 't>(
        &self,
        rule: &'s mut TableReader<'_, 't>,
    ) -> Option<TableReader<'s, 't>> {
        match self.field.kind {
            ValueKind::Table(_) => rule.table(self.field.name),
            _ => Some(rule.of_rule()),
        }
    }

    /// The limit of numbers, unless there are more errors than before: then `None`.
    pub(crate) fn read(
        &self,
        numbers: &mut TableReader<'_, '_>,
        charging: Charging,
        errors_before: usize,
    ) -> LimitRead {
        let limit = (self.read)(numbers, charging);
        if numbers.report.errors() > errors_before {
            return None;
        }
        if let Some(Err(error)) = &limit {
            let field = if error.field() == "period" { "rate" } else { error.field() };
            let span = numbers.span_of(field);
            numbers.report.error(span, error.to_string());
        }
        limit
    }
}

fn read_debt(numbers: &mut TableReader<'_, '_>) -> Option<Debt> {
    let hint = "write \"none\" if commits must not overdraw the quota";
    read_allowance(numbers, "debt", hint, [Debt::Nothing, Debt::All], Debt::UpTo)
}

/// What unused units or overdrafts may come to: a number, `"none"` or `"all"`, for which there are values.
/// The hint is for a zero.
fn read_allowance<T>(
    numbers: &mut TableReader<'_, '_>,
    name: &str,
    hint: &str,
    [none, all]: [T; 2],
    up_to: fn(u64) -> T,
) -> Option<T> {
    let value = numbers.value(name)?;
    let DeValue::Integer(number) = value.get_ref() else {
        return numbers.choice(name).map(|word| if word == "all" { all } else { none });
    };
    if whole(number) == Some(0) {
        numbers.refuse(name, format!("`{name}` must be at least 1"), hint);
        return None;
    }
    numbers.integer(name).map(up_to)
}
