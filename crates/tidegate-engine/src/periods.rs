//! The period that a quota is in.

#![allow(unreachable_pub, reason = "public for a sealed trait, not for callers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{Period, Timestamp};
use tidegate_policy::internal::CachedCalendar;
use tidegate_policy::policy::Periods;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The clock that limits count by.
    pub(crate) now: Timestamp,
    /// The time of day, since 1970 in UTC: what calendars follow.
    pub(crate) wall: Timestamp,
}

impl Times {
    /// Another time of the clock, with the time of day that belongs to it.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        let later_ns = now.as_nanos().saturating_sub(self.now.as_nanos());
        let earlier_ns = self.now.as_nanos().saturating_sub(now.as_nanos());
        let wall_ns = self.wall.as_nanos().saturating_add(later_ns).saturating_sub(earlier_ns);
        Self { now, wall: Timestamp::from_nanos(wall_ns) }
    }

    /// When the clock will show, or has shown, a time of day, as far as is known now.
    pub(crate) fn by_the_clock(self, wall: Timestamp) -> Timestamp {
        let (wall_ns, now_ns) = (self.wall.as_nanos(), self.now.as_nanos());
        let ahead_ns = wall.as_nanos().saturating_sub(wall_ns);
        let ago_ns = wall_ns.saturating_sub(wall.as_nanos());
        Timestamp::from_nanos(now_ns.saturating_add(ahead_ns).saturating_sub(ago_ns))
    }
}

/// The source of a quota's periods.
#[derive(Debug)]
pub(crate) enum PeriodClock {
    Calendar(CachedCalendar),
    /// Rounds that the host has closed in a domain.
    Round {
        domain: Box<str>,
        closed: Arc<AtomicU64>,
    },
}

impl PeriodClock {
    /// Its periods, and the domain whose rounds it counts, if any.
    pub(crate) fn describe(&self) -> (Periods, Box<str>) {
        match self {
            Self::Calendar(calendar) => (Periods::Calendar(calendar.calendar().clone()), "".into()),
            Self::Round { domain, .. } => (Periods::Round, domain.clone()),
        }
    }

    pub(crate) fn is_calendar(&self) -> bool {
        matches!(self, Self::Calendar(_))
    }

    /// The number of the round, where the host closes them.
    pub(crate) fn round(&self) -> Option<u64> {
        match self {
            Self::Calendar(_) => None,
            Self::Round { closed, .. } => Some(closed.load(Ordering::Acquire)),
        }
    }

    pub(crate) fn period(&self, times: Times) -> Period {
        match self {
            Self::Calendar(calendar) => {
                let period = calendar.period_at(times.wall.as_nanos());
                let left_ns = period.ends_ns.saturating_sub(times.wall.as_nanos());
                let ends = Timestamp::from_nanos(times.now.as_nanos().saturating_add(left_ns));
                Period { index: period.index, ends: Some(ends) }
            }
            Self::Round { closed, .. } => {
                Period { index: closed.load(Ordering::Acquire), ends: None }
            }
        }
    }
}

/// The clocks of periods, each once.
#[derive(Debug, Default)]
pub(crate) struct PeriodClocks(Vec<(Periods, Box<str>, Arc<PeriodClock>)>);

impl PeriodClocks {
    /// The clock of a rule's periods. `rounds` has the number of rounds that were closed in a domain.
    pub(crate) fn of(
        &mut self,
        periods: Periods,
        domain: Box<str>,
        rounds: impl FnOnce(&str) -> Arc<AtomicU64>,
    ) -> Arc<PeriodClock> {
        let is_same = |it: &&(Periods, Box<str>, _)| (&it.0, &it.1) == (&periods, &domain);
        if let Some((_, _, clock)) = self.0.iter().find(is_same) {
            return Arc::clone(clock);
        }
        let clock = Arc::new(match &periods {
            Periods::Calendar(calendar) => {
                PeriodClock::Calendar(CachedCalendar::new(calendar.clone()))
            }
            Periods::Round => {
                PeriodClock::Round { domain: domain.clone(), closed: rounds(&domain) }
            }
        });
        self.0.push((periods, domain, Arc::clone(&clock)));
        clock
    }
}
