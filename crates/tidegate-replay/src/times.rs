//! Times in logs: of the Common Log Format, RFC 3339 and its relatives, numbers since 1970.

/// The time of a text, in nanoseconds since 1970; `None` if it is none, or is not between 1970 and 2262. Without a zone it is
/// in UTC.
#[must_use]
pub fn time_from_text(text: &str) -> Option<u64> {
    let text = text.trim();
    let bytes = text.as_bytes();
    if bytes.len() >= 12 && bytes[2] == b'/' && bytes[6] == b'/' {
        return clf(bytes);
    }
    if bytes.len() >= 10 && matches!(bytes[4], b'-' | b'/') && bytes[7] == bytes[4] {
        return calendar(bytes);
    }
    number(text)
}

/// A time of the Common Log Format: `12/May/2024:00:00:17 +0000`.
pub(crate) fn clf(text: &[u8]) -> Option<u64> {
    let [d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':', rest @ ..] = text else {
        return None;
    };
    let date = Date {
        year: two(*y1, *y2)? * 100 + two(*y3, *y4)?,
        month: month_by_name([*m1, *m2, *m3])?,
        day: two(*d1, *d2)?,
    };
    let [h1, h2, b':', min1, min2, b':', s1, s2, rest @ ..] = rest else { return None };
    let clock = Clock {
        hour: two(*h1, *h2)?,
        minute: two(*min1, *min2)?,
        second: two(*s1, *s2)?,
        fraction_ns: 0,
    };
    let offset_s = offset(rest.strip_prefix(b" ").unwrap_or(rest))?;
    unix_ns(date, clock, offset_s)
}

/// A date with dashes or slashes, and a time of day: `2024-05-12T00:00:17.25Z`.
fn calendar(text: &[u8]) -> Option<u64> {
    let [y1, y2, y3, y4, _, m1, m2, _, d1, d2, rest @ ..] = text else { return None };
    let date = Date {
        year: two(*y1, *y2)? * 100 + two(*y3, *y4)?,
        month: two(*m1, *m2)?,
        day: two(*d1, *d2)?,
    };
    let (clock, rest) = match rest {
        [] => (Clock::default(), rest),
        [b'T' | b't' | b' ' | b'_', rest @ ..] => clock_of(rest)?,
        _ => return None,
    };
    unix_ns(date, clock, offset(rest.strip_prefix(b" ").unwrap_or(rest))?)
}

/// A day of the calendar, if it exists.
#[derive(Clone, Copy)]
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

/// A time of day.
#[derive(Clone, Copy, Default)]
struct Clock {
    hour: u64,
    minute: u64,
    second: u64,
    fraction_ns: u64,
}

fn clock_of(text: &[u8]) -> Option<(Clock, &[u8])> {
    let [h1, h2, b':', m1, m2, rest @ ..] = text else { return None };
    let (hour, minute) = (two(*h1, *h2)?, two(*m1, *m2)?);
    let [b':', s1, s2, rest @ ..] = rest else {
        return Some((Clock { hour, minute, ..Clock::default() }, rest));
    };
    let second = two(*s1, *s2)?;
    let (fraction_ns, rest) = match rest {
        [b'.' | b',', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            (fraction(&rest[..digits]), &rest[digits..])
        }
        rest => (0, rest),
    };
    Some((Clock { hour, minute, second, fraction_ns }, rest))
}

/// The nanoseconds of decimal digits behind a point; what is finer is cut off.
fn fraction(digits: &[u8]) -> u64 {
    let mut ns = 0;
    for index in 0..9 {
        ns = ns * 10 + digits.get(index).map_or(0, |digit| u64::from(digit - b'0'));
    }
    ns
}

/// Seconds east of UTC. Nothing is UTC.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [] | [b'Z' | b'z'] => return Some(0),
        b"UTC" | b"GMT" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h1, h2] => (two(*h1, *h2)?, 0),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => (two(*h1, *h2)?, two(*m1, *m2)?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some(sign * i64::try_from(hours * 3_600 + minutes * 60).ok()?)
}

fn two(high: u8, low: u8) -> Option<u64> {
    let is_number = high.is_ascii_digit() && low.is_ascii_digit();
    is_number.then(|| u64::from(high - b'0') * 10 + u64::from(low - b'0'))
}

fn month_by_name(name: [u8; 3]) -> Option<u64> {
    let name = name.map(|byte| byte.to_ascii_lowercase());
    let index = MONTHS.iter().position(|month| **month == name)?;
    u64::try_from(index + 1).ok()
}

/// The time of a date and a time of day, if there is such a date. A leap second is the next one.
fn unix_ns(Date { year, month, day }: Date, clock: Clock, offset_s: i64) -> Option<u64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if day == 0 || day > days || clock.hour > 23 || clock.minute > 59 || clock.second > 60 {
        return None;
    }
    let seconds = days_since_1970(year, month, day)? * 86_400
        + i64::try_from(clock.hour * 3_600 + clock.minute * 60 + clock.second).ok()?
        - offset_s;
    let seconds = u64::try_from(seconds).ok()?;
    in_range(seconds.checked_mul(1_000_000_000)?.checked_add(clock.fraction_ns)?)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar: years begin in March here, so that the
/// leap day is the last of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<i64> {
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    Some(i64::try_from(days).ok()? - 719_468)
}

/// A number since 1970: its unit follows from its magnitude.
fn number(text: &str) -> Option<u64> {
    let (whole, rest) = match text.split_once('.') {
        Some((whole, rest)) => (whole, rest),
        None => (text, ""),
    };
    let is_number = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(rest) {
        return scientific(text);
    }
    let whole: u64 = whole.parse().ok()?;
    let unit_ns: u64 = match whole {
        0..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    let part_ns = fraction(rest.as_bytes()) / (1_000_000_000 / unit_ns);
    in_range(whole.checked_mul(unit_ns)?.checked_add(part_ns)?)
}

/// A number with an exponent, as some programs print large ones: `1.7e9` is written out.
fn scientific(text: &str) -> Option<u64> {
    let (digits, exponent) = text.split_once(['e', 'E'])?;
    let exponent: usize = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    if exponent > 20 || whole.is_empty() {
        return None;
    }
    let mut written = String::from(whole);
    written.extend(rest.chars().chain(std::iter::repeat('0')).take(exponent));
    if let Some(fraction) = rest.get(exponent..).filter(|it| !it.is_empty()) {
        written.push('.');
        written.push_str(fraction);
    }
    if written.contains(['e', 'E']) { None } else { number(&written) }
}

/// The engine's times are 63 bits.
fn in_range(ns: u64) -> Option<u64> {
    (ns <= u64::MAX >> 1).then_some(ns)
}

const MONTHS: [&[u8; 3]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

#[cfg(test)]
mod tests;
