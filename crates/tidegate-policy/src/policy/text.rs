//! Durations and rates as text: `1h30m`, `15 min`, `100 per 15m`, `5/day`.

use std::time::Duration;

use tidegate_core::Rate;
use tidegate_core::text::TextProblem;

/// What is wrong with a text, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextError {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl TextError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// A piece of untrusted text for a message: short, and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// The duration in a text, as [`tidegate_core::text::duration`] reads it.
pub(crate) fn duration(text: &str) -> Result<Duration, TextError> {
    tidegate_core::text::duration(text).map_err(|problem| error_of(text, problem))
}

/// The rate in a text, as [`tidegate_core::text::rate`] reads it.
pub(crate) fn rate(text: &str) -> Result<Rate, TextError> {
    tidegate_core::text::rate(text).map_err(|problem| match problem {
        TextProblem::NoPeriod
        | TextProblem::NotCount(_)
        | TextProblem::CountTooLarge
        | TextProblem::ZeroCount
        | TextProblem::UnknownUnit(_)
        | TextProblem::Rate(_) => error_of(text, problem),
        of_period => {
            let split = text.split_once('/').or_else(|| text.split_once(" per "));
            error_of(split.map_or(text, |(_, period)| period.trim()), of_period)
        }
    })
}

/// What is wrong with the text of a duration or a rate, in words.
fn error_of(text: &str, problem: TextProblem<'_>) -> TextError {
    let duration = |why: &str| {
        TextError::new(format!("{} is not a duration: {why}", quoted(text)))
            .hint("write a number and a unit: \"500ms\", \"10s\", \"15 min\", \"1h30m\", \"2d\"")
    };
    let rate = |why: &str| {
        TextError::new(format!("{} is not a rate: {why}", quoted(text)))
            .hint("write a count per time: \"10/s\", \"100 per 15m\", \"5/day\"")
    };
    match problem {
        TextProblem::Empty => duration("it is empty"),
        TextProblem::Negative => duration("it is negative"),
        TextProblem::NoNumber => duration("a number is missing"),
        TextProblem::NoUnit(number) => {
            let plain = quoted(number.trim_end_matches('.'));
            let hint =
                format!("add a unit: \"{0}s\", \"{0}m\", \"{0}ms\"", plain.trim_matches('`'));
            duration("a unit is missing").hint(hint)
        }
        TextProblem::UnknownUnit(unit) => unknown_unit(text, unit),
        TextProblem::UnitOrder => duration("the larger unit comes first, and each one once"),
        TextProblem::NotNumber => duration("that is not a number"),
        TextProblem::NotWholeNanoseconds => duration("it is not a whole number of nanoseconds"),
        TextProblem::TooLong => duration("it is too long"),
        TextProblem::Zero => duration("it is zero, and zero does not mean unlimited"),
        TextProblem::NoPeriod => rate("it has no period"),
        TextProblem::NotCount(count) if count.contains(['.', ',']) => {
            rate("the count is not a whole number")
                .hint("use a longer time: \"1 per 2s\" instead of \"0.5/s\"")
        }
        TextProblem::NotCount(count) if count.starts_with('-') => rate("the count is negative"),
        TextProblem::NotCount(_) => rate("the count is not a whole number"),
        TextProblem::CountTooLarge => rate("the count is too large"),
        TextProblem::ZeroCount => rate("the count is zero, and zero does not mean unlimited"),
        TextProblem::Rate(error) => rate(&error.to_string()),
    }
}

/// A duration as in the policy file, exact: `1h30m`, `250ms`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let mut rest_ns = duration.as_nanos();
    if rest_ns == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, ns) in [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1_000_000)] {
        let whole = rest_ns / u128::from(ns);
        if whole > 0 {
            text += &format!("{whole}{unit}");
            rest_ns %= u128::from(ns);
        }
    }
    for (unit, ns) in [("us", 1_000), ("ns", 1)] {
        if rest_ns / ns > 0 {
            text += &format!("{}{unit}", rest_ns / ns);
            rest_ns %= ns;
        }
    }
    text
}

/// A rate as in the policy file, exact: `10/s`, `100 per 15m`.
pub(crate) fn format_rate(rate: Rate) -> String {
    let period = format_duration(rate.period());
    match period.strip_prefix('1') {
        Some(unit) if unit.chars().all(char::is_alphabetic) => format!("{}/{unit}", rate.count()),
        _ => format!("{} per {period}", rate.count()),
    }
}

fn unknown_unit(text: &str, unit: &str) -> TextError {
    let error = TextError::new(format!("{} has an unknown unit", quoted(text)));
    match unit {
        "M" | "mo" | "month" | "months" | "y" | "year" | "years" => error
            .hint("months and years differ in length: use `quota = { max = …, per = \"month\" }`"),
        _ => error.hint("the units are ns, us, ms, s, m, h, d and w"),
    }
}

/// The last start of a character at or before a byte; the end of the text for bytes after it.
pub(crate) fn char_start(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The longest duration in a policy file.
pub(crate) const LONGEST: Duration = Duration::from_nanos(u64::MAX);
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

#[cfg(test)]
mod tests;
