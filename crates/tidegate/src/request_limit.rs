//! A limit that a request brings.

use std::time::Duration;

use tidegate_core::{Algorithm, Window};

use crate::any_limit::AnyLimit;

/// A limit that a request brings, in place of the rules of its domain: a maximum of units in each
/// window of a length, aligned to the epoch.
///
/// Its state belongs to the domain, all attributes of the request and the length: the same
/// request with another maximum has the same count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLimit {
    pub(crate) limit: AnyLimit,
    pub(crate) unit: WindowUnit,
}

/// How long a window of a [`RequestLimit`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowUnit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl RequestLimit {
    /// At most `max` units in each window; 0 allows nothing.
    #[must_use]
    pub fn new(max: u32, unit: WindowUnit) -> Self {
        let per_ns = u64::try_from(unit.length().as_nanos()).unwrap_or(u64::MAX);
        // A policy rejects a maximum of 0 as a mistake; in a request it is meant.
        let window = Window::from_words([max.into(), per_ns, 1, 0]);
        Self { limit: AnyLimit::Window(window), unit }
    }

    /// How long its windows are.
    #[must_use]
    pub const fn unit(&self) -> WindowUnit {
        self.unit
    }
}

impl WindowUnit {
    /// All of them, from the shortest to the longest.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// How long it is.
    #[must_use]
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        })
    }

    /// The unit of this length, if there is one.
    #[must_use]
    pub fn of_length(length: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.length() == length)
    }

    /// Its name: `second` to `year`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}
