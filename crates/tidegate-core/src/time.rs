use core::fmt;
use core::time::Duration;

use crate::error::{LimitError, LimitErrorKind, nonzero};

/// A point in time: nanoseconds since the origin that its clock chose.
///
/// It ends at 2^63 − 1 nanoseconds (292 years) and stays there: arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The last point in time.
    pub const MAX: Self = Self(u64::MAX >> 1);

    /// The point `nanos` nanoseconds after the origin.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// The point of a clock that does not pass [`MAX`](Self::MAX): it is not compared with it.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn from_valid_nanos(nanos: u64) -> Self {
        debug_assert!(nanos <= Self::MAX.0);
        Self(nanos)
    }

    /// The point `micros` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self::from_nanos(micros.saturating_mul(1_000))
    }

    /// The point `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_nanos(millis.saturating_mul(1_000_000))
    }

    /// The point `secs` seconds after the origin.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_nanos(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This point moved later by `duration`.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.0.saturating_add(nanos))
    }

    /// This point moved earlier by `duration`.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// How much later this is than another time; zero if it is not.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The length of a period in nanoseconds; an error when it is zero or longer than the clock.
#[allow(clippy::cast_possible_truncation, reason = "it is not above the largest time")]
pub(crate) const fn period_ns(field: &'static str, period: Duration) -> Result<u64, LimitError> {
    let max = Timestamp::MAX.0 as u128;
    if period.as_nanos() > max {
        return Err(LimitError::new(field, LimitErrorKind::AboveMax { max }));
    }
    nonzero(field, period.as_nanos() as u64)
}

/// A span of nanoseconds as a `Duration`.
pub(crate) fn duration(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}
