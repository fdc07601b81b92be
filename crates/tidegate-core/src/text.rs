//! Durations and rates as people write them: `1h30m`, `15 min`, `100 per 15m`, `5/day`.

use core::str::FromStr;
use core::time::Duration;

use crate::{LimitError, LimitErrorKind, Rate};

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextProblem<'t> {
    /// A duration is expected, and there is nothing.
    Empty,
    /// A duration begins with a minus sign.
    Negative,
    /// A unit stands where a number has to.
    NoNumber,
    /// This number has no unit.
    NoUnit(&'t str),
    /// There is no such unit.
    UnknownUnit(&'t str),
    /// A larger unit follows a smaller one, or the same one.
    UnitOrder,
    /// The digits are none.
    NotNumber,
    /// A duration has a part of a nanosecond.
    NotWholeNanoseconds,
    /// A duration has more than 64 bits of nanoseconds.
    TooLong,
    /// A duration is zero.
    Zero,
    /// A rate is a count alone.
    NoPeriod,
    /// This is no count of a rate.
    NotCount(&'t str),
    /// The count of a rate has more than 64 bits.
    CountTooLarge,
    /// The count of a rate is zero.
    ZeroCount,
    /// There is no such rate.
    Rate(LimitError),
}

/// As in a policy file: `10/s`, `100 per 15m`, `5/day`.
impl FromStr for Rate {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        rate(text).map_err(|problem| match problem {
            TextProblem::Rate(error) => error,
            _ => LimitError::new("rate", LimitErrorKind::NotRate),
        })
    }
}

/// The duration in a text: numbers with units, the largest unit first.
///
/// Decimals are fine where the result is a whole number of nanoseconds. Zero is not a duration.
pub fn duration(text: &str) -> Result<Duration, TextProblem<'_>> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(TextProblem::Empty);
    }
    if rest.starts_with('-') {
        return Err(TextProblem::Negative);
    }
    let (mut total_ns, mut smallest_ns) = (0_u64, u64::MAX);
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !is_of_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let after = after.trim_start();
        let unit_len = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        if number.is_empty() {
            return Err(TextProblem::NoNumber);
        }
        if unit.is_empty() {
            return Err(TextProblem::NoUnit(number));
        }
        let unit_ns = unit_ns(unit).ok_or(TextProblem::UnknownUnit(unit))?;
        if unit_ns >= smallest_ns {
            return Err(TextProblem::UnitOrder);
        }
        smallest_ns = unit_ns;
        let part_ns = times(number, unit_ns)?;
        total_ns = total_ns.checked_add(part_ns).ok_or(TextProblem::TooLong)?;
        rest = after.trim_start();
    }
    match total_ns {
        0 => Err(TextProblem::Zero),
        _ => Ok(Duration::from_nanos(total_ns)),
    }
}

/// The rate in a text: a count, `/` or `per`, and a duration or just its unit.
pub fn rate(text: &str) -> Result<Rate, TextProblem<'_>> {
    let split = text.split_once('/').or_else(|| text.split_once(" per "));
    let (count, period) = split.ok_or(TextProblem::NoPeriod)?;
    let (count, period) = (count.trim(), period.trim());
    let count = match whole(count) {
        Some(Some(0)) => return Err(TextProblem::ZeroCount),
        Some(Some(count)) => count,
        Some(None) => return Err(TextProblem::CountTooLarge),
        None => return Err(TextProblem::NotCount(count)),
    };
    let period = match unit_ns(period) {
        Some(ns) => Duration::from_nanos(ns),
        None if period.chars().all(char::is_alphabetic) && !period.is_empty() => {
            return Err(TextProblem::UnknownUnit(period));
        }
        None => duration(period)?,
    };
    Rate::try_new(count, period).map_err(TextProblem::Rate)
}

/// The value of digits, between two of which `_` may stand; `None` inside if it does not fit.
#[allow(clippy::option_option, reason = "the two are different errors")]
fn whole(text: &str) -> Option<Option<u64>> {
    let mut groups = text.split('_');
    let is_fine = |group: &str| !group.is_empty() && group.bytes().all(|it| it.is_ascii_digit());
    groups.clone().all(is_fine).then(|| {
        groups.try_fold(0_u64, |value, group| {
            group.bytes().try_fold(value, |value, digit| {
                value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })
        })
    })
}

/// A decimal number times a unit, in whole nanoseconds.
fn times(number: &str, unit_ns: u64) -> Result<u64, TextProblem<'static>> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Some(integer), Some(_)) = (whole(integer), whole(fraction)) else {
        return Err(TextProblem::NotNumber);
    };
    let integer_ns = integer.and_then(|it| it.checked_mul(unit_ns)).ok_or(TextProblem::TooLong)?;
    let digits = || fraction.bytes().filter(u8::is_ascii_digit);
    let trailing = digits().rev().take_while(|it| *it == b'0').count();
    let (mut fraction_ns, mut denominator) = (0_u128, 1_u128);
    for digit in digits().take(digits().count() - trailing) {
        // No unit has a whole number of nanoseconds with more than 18 decimals.
        if denominator == 10_u128.pow(18) {
            return Err(TextProblem::NotWholeNanoseconds);
        }
        fraction_ns = fraction_ns * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    fraction_ns *= u128::from(unit_ns);
    if fraction_ns % denominator != 0 {
        return Err(TextProblem::NotWholeNanoseconds);
    }
    // Less than a unit.
    let fraction_ns = u64::try_from(fraction_ns / denominator).map_err(|_| TextProblem::TooLong)?;
    integer_ns.checked_add(fraction_ns).ok_or(TextProblem::TooLong)
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.' || c == '_'
}

fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" | "nanosecond" | "nanoseconds" => 1,
        "us" | "µs" | "μs" | "microsecond" | "microseconds" => 1_000,
        "ms" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
        "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        _ => return None,
    })
}

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
