//! Waits and times as response bodies have them: milliseconds, words, and RFC 3339.
//!
//! A wait is rounded up, so that a retry is not too early. What is left of a hold is rounded down,
//! so that a client stops before the hold expires.

use std::time::Duration;

use serde::Serialize;
use tidegate_core::{Timestamp, Wait};

/// How long a client should wait before it sends the request again, as two fields of a body.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::Wait;
/// use tidegate_proto::times::RetryFields;
///
/// let soon = RetryFields::new(Some(Wait::After(Duration::from_micros(1_500))));
/// assert_eq!((soon.retry_after_ms, soon.retry), (Some(2), None));
/// let never = RetryFields::new(Some(Wait::Never));
/// assert_eq!((never.retry_after_ms, never.retry), (None, Some("never")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RetryFields {
    /// Milliseconds, rounded up; 0 when allowed; `None` if the wait is unknown or none helps.
    pub retry_after_ms: Option<u64>,
    /// `never` or `unknown`, where there are no milliseconds.
    pub retry: Option<&'static str>,
}

impl RetryFields {
    /// The fields of a decision; without a wait it is allowed.
    #[must_use]
    pub fn new(wait: Option<Wait>) -> Self {
        wait.map_or(Self { retry_after_ms: Some(0), retry: None }, Self::denied)
    }

    /// The fields of a denial.
    #[must_use]
    pub fn denied(wait: Wait) -> Self {
        Self { retry_after_ms: wait.whole_ms(), retry: retry_word(wait) }
    }
}

/// `never` or `unknown`; `None` if the wait has a length.
#[must_use]
pub const fn retry_word(wait: Wait) -> Option<&'static str> {
    match wait {
        Wait::After(_) => None,
        Wait::Never => Some("never"),
        Wait::Unknown => Some("unknown"),
    }
}

/// The field `reset_after_ms`: milliseconds until a limit is full again, rounded up; `None` if
/// unknown.
#[must_use]
pub fn reset_after_ms(reset: Option<Duration>) -> Option<u64> {
    reset.map(whole_ms)
}

/// Whole milliseconds, rounded up.
#[must_use]
pub fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(u128::from(NS_PER_MS))).unwrap_or(u64::MAX)
}

/// The whole milliseconds from `now` until `at`, rounded down; 0 if it is past.
#[must_use]
pub fn ms_until(at: Timestamp, now: Timestamp) -> u64 {
    at.as_nanos().saturating_sub(now.as_nanos()) / NS_PER_MS
}

/// A time since 1970 in RFC 3339, in UTC, with three digits of the second, rounded down: when
/// something happened.
#[must_use]
pub fn time_text(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos()));
    format!("{:.3}", time.unwrap_or(jiff::Timestamp::MAX))
}

/// A time since 1970 in RFC 3339, in UTC, in whole milliseconds, rounded up: from when on something
/// is allowed. A whole second has no digits after it.
#[must_use]
pub fn time_text_rounded_up(at: Timestamp) -> String {
    let ms = i64::try_from(at.as_nanos().div_ceil(NS_PER_MS)).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX).to_string()
}

const NS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
