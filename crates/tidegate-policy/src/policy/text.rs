//! Durations and rates as text: `1h30m`, `15 min`, `100 per 15m`, `5/day`.

use std::time::Duration;

use tidegate_core::Rate;

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

/// The duration in a text: numbers with units, the largest unit first.
///
/// Decimals are fine where the result is a whole number of nanoseconds. Zero is not a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, TextError> {
    let bad = |why: &str| {
        TextError::new(format!("{} is not a duration: {why}", quoted(text)))
            .hint("write a number and a unit: \"500ms\", \"10s\", \"15 min\", \"1h30m\", \"2d\"")
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad("it is empty"));
    }
    if rest.starts_with('-') {
        return Err(bad("it is negative"));
    }
    let (mut total_ns, mut smallest_ns) = (0_u64, u64::MAX);
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !is_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let after = after.trim_start();
        let unit_len = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        if number.is_empty() {
            return Err(bad("a number is missing"));
        }
        if unit.is_empty() {
            let plain = quoted(number.trim_end_matches('.'));
            let hint =
                format!("add a unit: \"{0}s\", \"{0}m\", \"{0}ms\"", plain.trim_matches('`'));
            return Err(bad("a unit is missing").hint(hint));
        }
        let unit_ns = unit_ns(unit).ok_or_else(|| unknown_unit(text, unit))?;
        if unit_ns >= smallest_ns {
            return Err(bad("the larger unit comes first, and each one once"));
        }
        smallest_ns = unit_ns;
        let part_ns = times(number, unit_ns).map_err(bad)?;
        total_ns = total_ns.checked_add(part_ns).ok_or_else(|| bad("it is too long"))?;
        rest = after.trim_start();
    }
    if total_ns == 0 {
        return Err(bad("it is zero, and zero does not mean unlimited"));
    }
    Ok(Duration::from_nanos(total_ns))
}

/// The rate in a text: a count, `/` or `per`, and a duration or just its unit.
pub(crate) fn rate(text: &str) -> Result<Rate, TextError> {
    let bad = |why: &str| {
        TextError::new(format!("{} is not a rate: {why}", quoted(text)))
            .hint("write a count per time: \"10/s\", \"100 per 15m\", \"5/day\"")
    };
    let split = text.split_once('/').or_else(|| text.split_once(" per "));
    let (count, period) = split.ok_or_else(|| bad("it has no period"))?;
    let (count, period) = (count.trim(), period.trim());
    let digits = digits(count).ok_or_else(|| match count.contains(['.', ',']) {
        true => bad("the count is not a whole number")
            .hint("use a longer time: \"1 per 2s\" instead of \"0.5/s\""),
        false if count.starts_with('-') => bad("the count is negative"),
        false => bad("the count is not a whole number"),
    })?;
    let count: u64 = digits.parse().map_err(|_| bad("the count is too large"))?;
    if count == 0 {
        return Err(bad("the count is zero, and zero does not mean unlimited"));
    }
    let period = match unit_ns(period) {
        Some(ns) => Duration::from_nanos(ns),
        None if period.chars().all(char::is_alphabetic) && !period.is_empty() => {
            return Err(unknown_unit(text, period));
        }
        None => duration(period)?,
    };
    Rate::new(count, period).map_err(|error| bad(&error.to_string()))
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

/// The digits of a whole number; `_` may stand between two of them.
fn digits(text: &str) -> Option<String> {
    let is_fine = text
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    is_fine.then(|| text.replace('_', ""))
}

/// A decimal number times a unit, in whole nanoseconds.
fn times(number: &str, unit_ns: u64) -> Result<u64, &'static str> {
    const TOO_LONG: &str = "it is too long";
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Some(whole), Some(fraction)) = (digits(whole), digits(fraction)) else {
        return Err("that is not a number");
    };
    let whole: u64 = whole.parse().map_err(|_| TOO_LONG)?;
    let whole_ns = whole.checked_mul(unit_ns).ok_or(TOO_LONG)?;
    let fraction = fraction.trim_end_matches('0');
    let Ok(decimals) = u32::try_from(fraction.len()) else { return Err(TOO_LONG) };
    if decimals == 0 {
        return Ok(whole_ns);
    }
    // 18 decimals fit 64 bits; no unit has a whole number of nanoseconds with more.
    let (Ok(numerator), Some(denominator)) =
        (fraction.parse::<u64>(), 10_u64.checked_pow(decimals))
    else {
        return Err("it is not a whole number of nanoseconds");
    };
    let scaled = u128::from(numerator) * u128::from(unit_ns);
    if scaled % u128::from(denominator) != 0 {
        return Err("it is not a whole number of nanoseconds");
    }
    let fraction_ns = u64::try_from(scaled / u128::from(denominator)).map_err(|_| TOO_LONG)?;
    whole_ns.checked_add(fraction_ns).ok_or(TOO_LONG)
}

fn is_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.' || c == '_'
}

fn unknown_unit(text: &str, unit: &str) -> TextError {
    let error = TextError::new(format!("{} has an unknown unit", quoted(text)));
    match unit {
        "M" | "mo" | "month" | "months" | "y" | "year" | "years" => error
            .hint("months and years differ in length: use `quota = { max = …, per = \"month\" }`"),
        _ => error.hint("the units are ns, us, ms, s, m, h, d and w"),
    }
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
