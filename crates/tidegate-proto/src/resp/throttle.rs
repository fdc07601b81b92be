//! `CL.THROTTLE` of redis-cell, which carries its own limit.

use std::fmt;
use std::time::Duration;

use tidegate_core::{Decision, LimitError, Rate, Wait};

use super::request::integer;

/// The arguments of a call: `key max_burst count period [quantity]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleCall<'a> {
    /// The key of the bucket: any bytes.
    pub key: &'a [u8],
    /// The capacity of the bucket: one more than `max_burst`.
    pub burst: u64,
    /// Units per period.
    pub count: u64,
    /// The period in seconds.
    pub period_secs: u64,
    /// The cost; 0 only looks.
    pub quantity: u64,
}

/// An invalid call.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThrottleError {
    /// There are not four or five arguments.
    ArgumentCount,
    /// An argument is not an integer of 64 bits.
    NotInteger {
        /// The name of the argument.
        name: &'static str,
    },
    /// An argument is below its minimum.
    TooSmall {
        /// The name of the argument.
        name: &'static str,
        /// The minimum.
        least: i64,
    },
    /// The period is too long for its count.
    PeriodTooLong {
        /// The longest one for this count, in seconds.
        most: u64,
    },
    /// The numbers are not a valid bucket.
    Limit(LimitError),
}

impl fmt::Display for ThrottleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArgumentCount => f.write_str("expected: key max_burst count period [quantity]"),
            Self::NotInteger { name } => write!(f, "{name} is not an integer or out of range"),
            Self::TooSmall { name, least } => write!(f, "{name} must be at least {least}"),
            Self::PeriodTooLong { most } => {
                write!(f, "period must be at most {most} seconds for this count")
            }
            Self::Limit(error) => error.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(ThrottleError);

impl std::error::Error for ThrottleError {}

impl From<LimitError> for ThrottleError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl<'a> ThrottleCall<'a> {
    /// Parses the arguments after the command's name.
    #[inline]
    pub fn parse(mut arguments: impl Iterator<Item = &'a [u8]>) -> Result<Self, ThrottleError> {
        let mut next = || arguments.next().ok_or(ThrottleError::ArgumentCount);
        let key = next()?;
        let [max_burst, count, period] = [next()?, next()?, next()?];
        let quantity = arguments.next();
        if arguments.next().is_some() {
            return Err(ThrottleError::ArgumentCount);
        }
        Ok(Self {
            key,
            // Below 2^63, so adding one cannot overflow.
            burst: at_least(0, "max_burst", max_burst)? + 1,
            count: at_least(1, "count", count)?,
            period_secs: at_least(1, "period", period)?,
            quantity: match quantity {
                Some(quantity) => at_least(0, "quantity", quantity)?,
                None => 1,
            },
        })
    }

    /// The rate: count per period.
    pub fn rate(&self) -> Result<Rate, ThrottleError> {
        let most = self.count.saturating_mul(UNIT_SECS_MAX).min(PERIOD_SECS_MAX);
        if self.period_secs > most {
            return Err(ThrottleError::PeriodTooLong { most });
        }
        Ok(Rate::try_new(self.count, Duration::from_secs(self.period_secs))?)
    }
}

/// The longest period: 2^63 nanoseconds.
const PERIOD_SECS_MAX: u64 = i64::MAX as u64 / 1_000_000_000;
/// The longest time of one unit: 2^55 nanoseconds.
const UNIT_SECS_MAX: u64 = (1 << 55) / 1_000_000_000;

#[inline]
fn at_least(least: i64, name: &'static str, text: &[u8]) -> Result<u64, ThrottleError> {
    let value = integer(text).ok_or(ThrottleError::NotInteger { name })?;
    match u64::try_from(value) {
        Ok(unsigned) if value >= least => Ok(unsigned),
        _ => Err(ThrottleError::TooSmall { name, least }),
    }
}

/// The five integers of the reply: limited (0 or 1), capacity, remaining, seconds to wait (-1 when allowed, or when no wait helps),
/// seconds until the bucket is full.
#[inline]
#[must_use]
pub fn throttle_reply(decision: &Decision) -> [i64; 5] {
    let limited = i64::from(!decision.is_allowed());
    let retry_after = decision.retry_after().map_or(-1, |wait| wait_secs(wait).unwrap_or(-1));
    [limited, int(decision.limit()), int(decision.remaining()), retry_after, reset_secs(decision)]
}

/// Whole seconds, rounded up.
fn wait_secs(wait: Wait) -> Option<i64> {
    wait.whole_secs().map(int)
}

/// Whole seconds, rounded up; the most there are if it is unknown.
fn reset_secs(decision: &Decision) -> i64 {
    let secs = |it: Duration| int(it.as_secs().saturating_add(u64::from(it.subsec_nanos() > 0)));
    decision.reset().map_or(i64::MAX, secs)
}

/// Converts to a signed integer, saturating.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
