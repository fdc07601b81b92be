//! The server's clock, as far as it can be known here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_table::{Clock, MonotonicClock, SystemClock};

use crate::locks::lock;

/// The clock of a Redis or Valkey server, for the engine that uses its store.
///
/// It shows the earliest time that the server's clock can have, so no limit refills too soon. Before
/// that is known it shows the system's time, which nothing is decided by. From then on it never runs
/// backwards: where the server's clock is set back, it stands still until that time
/// comes again, and nothing refills. A step forward counts as time.
///
/// Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bounds: RwLock<Option<Bounds>>,
    /// The last step of the server's clock.
    last_step: Mutex<Option<ClockStep>>,
    /// The latest time that was shown, in nanoseconds.
    shown_ns: AtomicU64,
    /// The system's clock, until the server's is known.
    system: SystemClock,
}

/// By how much the server's clock is ahead of the local one, at least and at most.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    least_ns: i128,
    most_ns: i128,
    /// When that was known, by the local clock.
    at_ns: u64,
}

impl Bounds {
    /// The bounds at a later time: clocks differ in speed, by 0.1 % at most.
    fn at(self, local_ns: u64) -> Self {
        let drift_ns = i128::from(local_ns.saturating_sub(self.at_ns)) / DRIFT;
        Self {
            least_ns: self.least_ns - drift_ns,
            most_ns: self.most_ns + drift_ns,
            at_ns: local_ns,
        }
    }
}

/// A step of the server's clock by more than 5 s: it was set, or another server has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStep {
    /// It counts as time.
    Forward(Duration),
    /// Nothing refills until the time before comes again.
    Back(Duration),
}

/// When a command was sent and its response had come, by the local clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(crate) sent_ns: u64,
    pub(crate) back_ns: u64,
}

impl ServerClock {
    /// Takes the server's time into account, as of a round trip. Returns a step that is to be reported:
    /// clocks that are adjusted step by less.
    pub(crate) fn observe(&self, server_us: u64, trip: RoundTrip) -> Option<ClockStep> {
        let server_ns = i128::from(server_us) * 1_000;
        let sample = Bounds {
            least_ns: server_ns - i128::from(trip.back_ns),
            // The server cuts to whole microseconds.
            most_ns: server_ns + 1_000 - i128::from(trip.sent_ns),
            at_ns: trip.back_ns,
        };
        let mut bounds = self.0.bounds.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = bounds.map(|known| known.at(trip.back_ns)) else {
            *bounds = Some(sample);
            return None;
        };
        let both = Bounds {
            least_ns: known.least_ns.max(sample.least_ns),
            most_ns: known.most_ns.min(sample.most_ns),
            at_ns: trip.back_ns,
        };
        if both.least_ns <= both.most_ns {
            *bounds = Some(both);
            return None;
        }
        *bounds = Some(sample);
        let length = |ns: i128| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let (by, step): (_, fn(Duration) -> ClockStep) = if sample.least_ns > known.most_ns {
            (length(sample.least_ns - known.most_ns), ClockStep::Forward)
        } else {
            (length(known.least_ns - sample.most_ns), ClockStep::Back)
        };
        let step = (by > REPORTED_STEP).then(|| step(by))?;
        *lock(&self.0.last_step) = Some(step);
        Some(step)
    }

    /// The last step of the server's clock that this process has seen.
    #[must_use]
    pub fn last_step(&self) -> Option<ClockStep> {
        *lock(&self.0.last_step)
    }

    /// How much later the server's clock may be than [`now`](Clock::now).
    #[must_use]
    pub fn uncertainty(&self) -> Duration {
        let ahead_ns = self.latest().as_nanos().saturating_sub(self.now().as_nanos());
        Duration::from_nanos(ahead_ns)
    }

    /// How far [`now`](Clock::now) is ahead of the server's clock, at most: where that was set back, the
    /// time stands still until it comes again.
    pub(crate) fn ahead(&self) -> Duration {
        let local_ns = MonotonicClock.now().as_nanos();
        let Some(bounds) = self.bounds_at(local_ns) else { return Duration::ZERO };
        let earliest_ns = later(local_ns, bounds.least_ns).as_nanos();
        Duration::from_nanos(self.now().as_nanos().saturating_sub(earliest_ns))
    }

    /// The earliest time that the server's clock can have, in milliseconds since 1970; `None` before
    /// it is known. Unlike [`now`](Clock::now) it follows a clock that is set back.
    pub(crate) fn server_ms(&self) -> Option<u64> {
        let local_ns = MonotonicClock.now().as_nanos();
        let bounds = self.bounds_at(local_ns)?;
        Some(later(local_ns, bounds.least_ns).as_nanos() / 1_000_000)
    }

    fn bounds_at(&self, local_ns: u64) -> Option<Bounds> {
        let bounds = *self.0.bounds.read().unwrap_or_else(PoisonError::into_inner);
        bounds.map(|bounds| bounds.at(local_ns))
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let local_ns = MonotonicClock.now().as_nanos();
        // Where the system's clock is ahead of the server's, it must not hold that up.
        let Some(bounds) = self.bounds_at(local_ns) else { return self.0.system.now() };
        let earliest = later(local_ns, bounds.least_ns);
        let shown_ns = self.0.shown_ns.fetch_max(earliest.as_nanos(), Ordering::Relaxed);
        earliest.max(Timestamp::from_nanos(shown_ns))
    }

    fn latest(&self) -> Timestamp {
        let local_ns = MonotonicClock.now().as_nanos();
        match self.bounds_at(local_ns) {
            Some(bounds) => later(local_ns, bounds.most_ns).max(self.now()),
            None => self.now(),
        }
    }
}

fn later(local_ns: u64, offset_ns: i128) -> Timestamp {
    let ns = (i128::from(local_ns) + offset_ns).clamp(0, i128::from(u64::MAX));
    Timestamp::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Longer steps of the server's clock are reported.
const REPORTED_STEP: Duration = Duration::from_secs(5);

/// Clocks differ in speed by one part in so many, at most.
const DRIFT: i128 = 1_000;

#[cfg(test)]
mod tests;
