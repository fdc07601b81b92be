use core::fmt;
use core::time::Duration;

use crate::LimitError;
use crate::error::{LimitErrorKind, constant, nonzero, valid};
use crate::time::period_ns;

mod decimal;

/// A count per period, stored as a fraction: 600 million per second, one per day.
///
/// Two rates are equal when the fractions are: 1 per second is 60 per minute.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::Rate;
///
/// const CALLS: Rate = Rate::per_minute(60);
/// assert_eq!(CALLS, "1/s".parse()?);
/// assert_eq!(Rate::new(100, Duration::from_secs(900)), "100 per 15m".parse()?);
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    count: u64,
    period_ns: u64,
}

impl Rate {
    /// `count` per `period`. Both must be above zero, the period at most 292 years.
    ///
    /// Wrong numbers do not compile in a constant, and panic elsewhere; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(count: u64, period: Duration) -> Self {
        constant(Self::try_new(count, period))
    }

    /// The same of numbers from outside, which may be wrong.
    pub const fn try_new(count: u64, period: Duration) -> Result<Self, LimitError> {
        let count = valid!(nonzero("rate", count));
        Ok(Self { count, period_ns: valid!(period_ns("period", period)) })
    }

    /// `count` per second (not one per `count` seconds); zero as in [`new`](Self::new).
    #[must_use]
    #[track_caller]
    pub const fn per_second(count: u64) -> Self {
        Self::new(count, Duration::from_secs(1))
    }

    /// A decimal number per second, exactly: `"1.5"` is 3 per 2 seconds.
    ///
    /// Digits, with an optional fraction (`0.25`, `.5`) and an optional exponent (`2e-3`). No sign,
    /// no spaces, no `inf` and no `nan`; nothing goes through a float. An error when it is zero,
    /// and when the count or the period does not fit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Rate;
    ///
    /// let rate = Rate::per_second_decimal("1.5")?;
    /// assert_eq!((rate.count(), rate.period()), (3, Duration::from_secs(2)));
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn per_second_decimal(text: &str) -> Result<Self, LimitError> {
        let fraction = decimal::fraction(text)
            .map_err(|problem| LimitError::new("rate", LimitErrorKind::from(problem)))?;
        Self::try_new(fraction.numerator, Duration::from_secs(fraction.denominator))
    }

    /// `count` per minute.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(count: u64) -> Self {
        Self::new(count, Duration::from_secs(60))
    }

    /// `count` per hour.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(count: u64) -> Self {
        Self::new(count, Duration::from_secs(3_600))
    }

    /// `count` per 24 hours.
    #[must_use]
    #[track_caller]
    pub const fn per_day(count: u64) -> Self {
        Self::new(count, Duration::from_secs(86_400))
    }

    /// One per `interval`.
    #[must_use]
    #[track_caller]
    pub const fn one_every(interval: Duration) -> Self {
        Self::new(1, interval)
    }

    /// How many per [`period`](Self::period).
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The period that [`count`](Self::count) refers to.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// The period in nanoseconds.
    pub(crate) const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The rate of a clock whose nanosecond has `per_ns` ticks and whose unit has `per_unit`.
    pub(crate) const fn from_ticks(per_ns: u64, per_unit: u64) -> Self {
        Self { count: per_ns, period_ns: per_unit }
    }

    /// The same fraction in lowest terms: (count, nanoseconds).
    pub(crate) const fn reduced(&self) -> (u64, u64) {
        let divisor = gcd(self.count, self.period_ns);
        (self.count / divisor, self.period_ns / divisor)
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.reduced() == other.reduced()
    }
}

impl Eq for Rate {}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.count, self.period())
    }
}

/// The greatest common divisor; both arguments are above zero.
pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
