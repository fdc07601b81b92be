//! A calendar that caches its last period.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{Calendar, CalendarPeriod};

/// A [`Calendar`] that caches the last period, and returns it while the time stays inside.
///
/// It never waits: a caller that meets a writer computes the period, which takes about a
/// microsecond.
#[derive(Debug)]
pub struct CachedCalendar {
    calendar: Calendar,
    /// Odd during a write; changed by every write.
    version: AtomicU64,
    index: AtomicU64,
    starts_ns: AtomicU64,
    /// Zero before the first write, so that no time is inside.
    ends_ns: AtomicU64,
}

impl CachedCalendar {
    /// A calendar that no period is known of yet.
    pub fn new(calendar: Calendar) -> Self {
        let zero = || AtomicU64::new(0);
        Self { calendar, version: zero(), index: zero(), starts_ns: zero(), ends_ns: zero() }
    }

    /// The calendar.
    pub fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// What [`Calendar::period_at`] returns.
    #[inline]
    pub fn period_at(&self, unix_ns: u64) -> CalendarPeriod {
        match self.cached() {
            Some(period) if (period.starts_ns..period.ends_ns).contains(&unix_ns) => period,
            _ => self.renew(unix_ns),
        }
    }

    /// The cached period, unless it is being written.
    #[inline]
    fn cached(&self) -> Option<CalendarPeriod> {
        let before = self.version.load(Ordering::Acquire);
        let period = CalendarPeriod {
            index: self.index.load(Ordering::Relaxed),
            starts_ns: self.starts_ns.load(Ordering::Relaxed),
            ends_ns: self.ends_ns.load(Ordering::Relaxed),
        };
        // A reader of a newer writer's word sees that writer's version below.
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(period)
    }

    #[cold]
    fn renew(&self, unix_ns: u64) -> CalendarPeriod {
        let period = self.calendar.period_at(unix_ns);
        let version = self.version.load(Ordering::Relaxed);
        let is_mine = version.is_multiple_of(2)
            && self
                .version
                .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            // The odd version comes before the words.
            fence(Ordering::Release);
            self.index.store(period.index, Ordering::Relaxed);
            self.starts_ns.store(period.starts_ns, Ordering::Relaxed);
            self.ends_ns.store(period.ends_ns, Ordering::Relaxed);
            self.version.store(version + 2, Ordering::Release);
        }
        period
    }
}
