use tidegate_core::Timestamp;

use super::{Clock, MonotonicClock, monotonic};

/// A clock that shows the time since 1970, and never jumps.
///
/// It begins at the system's time of day when it is created, and continues as [`MonotonicClock`]
/// does. Setting the system's clock does not affect it; only [`wall`](Clock::wall), which calendars
/// follow, is always the system's time of day. Clones show the same time. For states that survive
/// the process.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: Timestamp,
    /// The monotonic clock's time at that moment.
    origin: Timestamp,
}

impl SystemClock {
    /// A clock that begins at the system's time of day.
    #[must_use]
    pub fn new() -> Self {
        Self::beginning_at(monotonic::wall())
    }

    /// A clock that begins at the system's time of day, or at `earliest` if that is later: for
    /// stored states, should the system's clock have been set back meanwhile.
    #[must_use]
    pub fn no_earlier_than(earliest: Timestamp) -> Self {
        Self::beginning_at(monotonic::wall().max(earliest))
    }

    /// This clock's time when the monotonic clock shows `now`.
    #[inline(always)]
    fn at(&self, now: Timestamp) -> Timestamp {
        let since_ns = now.as_nanos().saturating_sub(self.origin.as_nanos());
        Timestamp::from_nanos(self.began.as_nanos().saturating_add(since_ns))
    }

    fn beginning_at(began: Timestamp) -> Self {
        Self { began, origin: MonotonicClock.now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        self.at(MonotonicClock.now())
    }

    #[inline(always)]
    fn quick(&self) -> Option<Timestamp> {
        MonotonicClock.quick().map(|now| self.at(now))
    }

    fn wall(&self) -> Timestamp {
        monotonic::wall()
    }
}

#[cfg(test)]
mod tests;
