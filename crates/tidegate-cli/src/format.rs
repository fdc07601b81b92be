//! Times, durations and counts as text.

use std::fmt;
use std::time::Duration;

use tidegate::Timestamp;
use tidegate::policy::{RuleError, duration_from_text, duration_to_text};
pub(crate) use tidegate_proto::times::{time_text_rounded_up as time, whole_ms};

/// A duration in whole milliseconds, rounded up: never too short.
pub(crate) fn duration(duration: Duration) -> String {
    duration_to_text(Duration::from_millis(whole_ms(duration)))
}

/// A time since 1970 in RFC 3339, exact.
pub(crate) fn exact_time(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos()));
    time.unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// Why a text is not a time, and what to write instead.
#[derive(Clone, Debug)]
pub(crate) struct TimeError {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for TimeError {}

/// Parses a time in RFC 3339.
pub(crate) fn time_from_text(text: &str) -> Result<jiff::Timestamp, TimeError> {
    let time: jiff::Timestamp = text.trim().parse().map_err(|_| TimeError {
        message: format!("`{}` is not a time", visible(text)),
        hint: "write it with its offset: 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+02:00",
    })?;
    match since_1970(time) {
        Some(_) => Ok(time),
        None => Err(TimeError {
            message: format!("`{}` is out of range", visible(text)),
            hint: "times are between 1970 and 2262",
        }),
    }
}

/// The text with control characters replaced, safe for a terminal.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The engine's timestamp of a time; `None` before 1970 and after 2262.
pub(crate) fn since_1970(time: jiff::Timestamp) -> Option<Timestamp> {
    let ns = u64::try_from(time.as_nanosecond()).ok()?;
    (ns <= Timestamp::MAX.as_nanos()).then(|| Timestamp::from_nanos(ns))
}

/// Parses a duration, which may be zero.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, RuleError> {
    duration_from_text(text).or_else(|error| {
        // Zero in a valid unit: "1s" parses where "0s" does not.
        let rest = text.trim().trim_start_matches('0');
        let is_zero = rest.len() < text.trim().len()
            && rest.chars().all(|c| !c.is_ascii_digit() || c == '0')
            && duration_from_text(&format!("1{rest}")).is_ok();
        if is_zero { Ok(Duration::ZERO) } else { Err(error) }
    })
}

/// A count and its noun: `1 rule`, `2 rules`.
pub(crate) fn count(number: usize, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}

/// A number with its digits in groups of three: `1 234 567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests;
