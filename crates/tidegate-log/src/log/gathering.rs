//! When the next batch waits a little for callers that come back at once.
//!
//! Callers that were just acknowledged often have another request. If the next batch is closed
//! before it comes, there are two groups of callers that take turns, and each waits for the fsync of
//! the other one, too.

use std::time::Duration;

use tidegate_core::Timestamp;

/// Decides whether, and until when, a batch waits for callers.
#[derive(Debug)]
pub(super) struct Gathering {
    /// How long a write and its fsync usually take.
    usual_ns: u64,
    /// When the last one ended.
    ended: Timestamp,
    /// A batch never waits longer.
    longest_ns: u64,
    /// Whether waiting has paid the last time.
    pays: bool,
    /// How many batches have not waited since.
    skipped: u32,
}

/// What has come while a batch waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    /// Records that waited meanwhile.
    pub(super) early: u64,
    /// Records that have come.
    pub(super) late: u64,
    pub(super) waited: Duration,
}

impl Gathering {
    /// With this for the usual time of a write, until some are measured, and for the longest wait.
    pub(super) const fn new(usual: Duration, longest: Duration) -> Self {
        let (usual_ns, longest_ns) = (nanoseconds(usual), nanoseconds(longest));
        Self { usual_ns, ended: Timestamp::ZERO, longest_ns, pays: true, skipped: 0 }
    }

    /// Notes a write that was synced.
    pub(super) fn note_sync(&mut self, began: Timestamp, ended: Timestamp) {
        let took_ns = ended.as_nanos().saturating_sub(began.as_nanos());
        // A disk is sometimes much slower than usual, for a moment.
        let took_ns = took_ns.min(self.usual_ns.saturating_mul(4).max(SHORTEST_NS));
        self.usual_ns = self.usual_ns - self.usual_ns / WEIGHT + took_ns / WEIGHT;
        self.ended = ended;
    }

    /// Until when the next batch waits for callers that were woken; `None` if it does not.
    ///
    /// It is half of an fsync after the last one. If the records that wait are as many as those
    /// that come, all together have waited less so.
    pub(super) fn until(&mut self) -> Option<Timestamp> {
        let most_ns = (self.usual_ns / 2).min(self.longest_ns);
        if most_ns < SHORTEST_NS {
            return None;
        }
        if !self.pays && self.skipped < RETRY_AFTER {
            self.skipped += 1;
            return None;
        }
        Some(self.ended.saturating_add(Duration::from_nanos(most_ns)))
    }

    /// Notes what waiting has brought: each record that came has saved the wait for another fsync,
    /// and each that was there has waited longer.
    pub(super) fn note(&mut self, gathered: Gathered) {
        let waited_ns = nanoseconds(gathered.waited);
        let saved_ns = self.usual_ns.saturating_sub(waited_ns);
        let gain_ns = u128::from(gathered.late) * u128::from(saved_ns);
        self.pays = gain_ns > u128::from(gathered.early) * u128::from(waited_ns);
        self.skipped = 0;
    }
}

#[allow(clippy::cast_possible_truncation, reason = "584 years")]
const fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// A measured time counts one part of so many.
const WEIGHT: u64 = 8;

/// A shorter wait is not worth the sleep.
const SHORTEST_NS: u64 = 20_000;

/// The longest wait: half of an fsync of a slow disk.
pub(super) const LONGEST: Duration = Duration::from_millis(5);

/// After so many batches that have not waited it is tried again.
const RETRY_AFTER: u32 = 64;

#[cfg(test)]
mod tests;
