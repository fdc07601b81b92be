//! One limit for everything, without keys.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use tidegate_core::{Bucket, Decision, Timestamp};

use super::{Limiter, StoppedClock, UntilReady};
use tidegate_table::KeyedLimit;
use tidegate_table::clock::{Clock, MonotonicClock};

/// One limit for everything: a [`Limiter`] without keys.
///
/// ```
/// use tidegate::{Bucket, DirectLimiter};
///
/// // A thousand calls per second, fifty at once, over all callers.
/// let calls = DirectLimiter::new(Bucket::per_second(1_000).burst(50));
/// assert!(calls.allow());
/// assert_eq!(calls.peek().remaining(), 49);
/// ```
///
/// All methods take `&self` and may be called from any number of threads. It takes a few kilobytes.
pub struct DirectLimiter<A: KeyedLimit = Bucket, C = MonotonicClock> {
    limiter: Limiter<(), A, C, OneKey>,
}

impl<A: KeyedLimit> DirectLimiter<A> {
    /// A limiter with the default clock.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn new(limit: A) -> Self {
        Self::with_clock(limit, MonotonicClock)
    }
}

impl<A: KeyedLimit, C: Clock> DirectLimiter<A, C> {
    /// A limiter with another clock.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn with_clock(limit: A, clock: C) -> Self {
        let builder = Limiter::builder(limit).max_keys(1).clock(clock).hasher(OneKey);
        Self { limiter: builder.finish().expect("an empty limiter takes a few kilobytes") }
    }

    /// The limiter at a given time: a handle whose clock stands still.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{DirectLimiter, Timestamp, Window};
    ///
    /// let calls = DirectLimiter::new(Window::new(1, Duration::from_secs(10)));
    /// assert!(calls.at(Timestamp::from_secs(100)).allow());
    /// assert!(!calls.at(Timestamp::from_secs(109)).allow());
    /// ```
    pub fn at(&self, now: Timestamp) -> DirectLimiter<A, StoppedClock> {
        DirectLimiter { limiter: self.limiter.at(now) }
    }

    /// Whether one unit is free. It is charged if so.
    #[inline]
    #[must_use]
    pub fn allow(&self) -> bool {
        self.limiter.allow(&())
    }

    /// Charges one unit, if it is free.
    #[inline]
    pub fn check(&self) -> Decision {
        self.limiter.check(&())
    }

    /// Charges `cost` units, if they are free: all of them or none. A cost of 0 is a peek.
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.limiter.check_n(&(), cost)
    }

    /// Whether one unit is free, and else how long to wait. Charges nothing, so
    /// [`remaining`](Decision::remaining) does not include the cost.
    pub fn peek(&self) -> Decision {
        self.limiter.peek(&())
    }

    /// Refunds up to `units` that were charged, and returns how many. Nothing that has been refilled
    /// already.
    pub fn refund(&self, units: u64) -> u64 {
        self.limiter.refund(&(), units)
    }

    /// Drops what was charged; true if there was anything.
    pub fn forget(&self) -> bool {
        self.limiter.forget(&())
    }

    /// Puts another limit into force. Charges stay.
    pub fn set_limit(&self, limit: A) {
        self.limiter.set_limit(limit);
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> A {
        self.limiter.limit()
    }

    /// Ends all waits, as [`Limiter::close`] does.
    pub fn close(&self) {
        self.limiter.close();
    }

    /// Wakes the waiters whose time has come, as [`Limiter::tick`] does: only needed after moving a
    /// [`ManualClock`](crate::clock::ManualClock).
    pub fn tick(&self) {
        self.limiter.tick();
    }
}

impl<A: KeyedLimit, C: Clock + Clone + Send + Sync + 'static> DirectLimiter<A, C> {
    /// Charges one unit as soon as it is free, in arrival order: see [`Limiter::ready`].
    pub fn ready(&self) -> UntilReady<'_> {
        self.limiter.ready(&())
    }

    /// [`ready`](Self::ready), or an error after this long.
    pub fn ready_within(&self, max_wait: Duration) -> UntilReady<'_> {
        self.limiter.ready_within(&(), max_wait)
    }

    /// [`ready`](Self::ready) for `cost` units, all at once.
    pub fn ready_n(&self, cost: u64) -> UntilReady<'_> {
        self.limiter.ready_n(&(), cost)
    }

    /// [`ready_n`](Self::ready_n), or an error after this long.
    pub fn ready_n_within(&self, cost: u64, max_wait: Duration) -> UntilReady<'_> {
        self.limiter.ready_n_within(&(), cost, max_wait)
    }
}

impl<A: KeyedLimit, C: Clone> Clone for DirectLimiter<A, C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone() }
    }
}

impl<A: KeyedLimit, C> fmt::Debug for DirectLimiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limiter.shared.table.limit();
        f.debug_struct("DirectLimiter").field("limit", &limit).finish_non_exhaustive()
    }
}

/// The hash of the one key: nothing has to be hashed.
#[derive(Clone, Copy, Debug)]
struct OneKey;

impl BuildHasher for OneKey {
    type Hasher = Self;

    #[inline(always)]
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for OneKey {
    #[inline(always)]
    fn finish(&self) -> u64 {
        1
    }

    #[inline(always)]
    fn write(&mut self, _: &[u8]) {}
}
