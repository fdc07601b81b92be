//! Clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::Timestamp;

mod monotonic;
mod system;

pub use monotonic::MonotonicClock;
pub use system::SystemClock;

/// A source of time for a limiter.
///
/// It should not run backwards. If it does, limiters admit less for a while, never more.
pub trait Clock {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// The time now, if that takes a few instructions: for callers that handle everything else out of
    /// line.
    #[doc(hidden)]
    #[inline(always)]
    fn quick(&self) -> Option<Timestamp> {
        Some(self.now())
    }

    /// The time of day, as time since 1970 in UTC: what calendars follow. By default the clock's
    /// own time.
    ///
    /// It may jump, because the system's clock can be set.
    #[inline]
    fn wall(&self) -> Timestamp {
        self.now()
    }

    /// The latest time that it may be. A clock that follows another one, over a network, knows only
    /// bounds: [`now`](Self::now) is the earliest time, which limits count by, and this is what the
    /// holder of a lease counts by. By default the clock's own time.
    #[inline]
    fn latest(&self) -> Timestamp {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    #[inline(always)]
    fn quick(&self) -> Option<Timestamp> {
        (**self).quick()
    }

    #[inline]
    fn wall(&self) -> Timestamp {
        (**self).wall()
    }

    #[inline]
    fn latest(&self) -> Timestamp {
        (**self).latest()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    #[inline(always)]
    fn quick(&self) -> Option<Timestamp> {
        (**self).quick()
    }

    #[inline]
    fn wall(&self) -> Timestamp {
        (**self).wall()
    }

    #[inline]
    fn latest(&self) -> Timestamp {
        (**self).latest()
    }
}

/// A clock that stands still until it is moved. For tests that do not sleep.
///
/// Clones show the same time.
///
/// ```
/// use std::time::Duration;
/// use tidegate::clock::{Clock, ManualClock};
/// use tidegate::Timestamp;
///
/// let clock = ManualClock::default();
/// let copy = clock.clone();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(copy.now(), Timestamp::from_secs(5));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self { nanos: Arc::new(AtomicU64::new(start.as_nanos())) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let later = |nanos| Some(Timestamp::from_nanos(nanos).saturating_add(by).as_nanos());
        // The closure never returns `None`.
        let _ = self.nanos.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Shows another time, which may be earlier.
    pub fn set(&self, now: Timestamp) {
        self.nanos.store(now.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}

/// A clock that shows the time of its last refresh: the cheapest to read.
///
/// The program has to call [`refresh`](Self::refresh), say once per turn of an event loop. Until
/// then no time passes for limiters, so they refill late, never early. It never runs
/// backwards; its [`wall`](Clock::wall) follows the source's.
#[derive(Debug)]
pub struct CachedClock<C = MonotonicClock> {
    source: C,
    nanos: AtomicU64,
    wall_nanos: AtomicU64,
}

impl<C: Clock> CachedClock<C> {
    /// A clock that shows the time of `source`, as of now.
    pub fn new(source: C) -> Self {
        let nanos = AtomicU64::new(source.now().as_nanos());
        let wall_nanos = AtomicU64::new(source.wall().as_nanos());
        Self { source, nanos, wall_nanos }
    }

    /// Reads the source again, and returns the time.
    pub fn refresh(&self) -> Timestamp {
        let now = self.source.now();
        self.nanos.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.wall_nanos.store(self.source.wall().as_nanos(), Ordering::Relaxed);
        self.now()
    }
}

impl<C: Clock> Clock for CachedClock<C> {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    #[inline]
    fn wall(&self) -> Timestamp {
        Timestamp::from_nanos(self.wall_nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
