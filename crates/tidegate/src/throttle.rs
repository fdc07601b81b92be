use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use tidegate_core::{Bucket, Decision, LimitError, Rate, Timestamp};

use crate::clock::{Clock, MonotonicClock};
use crate::hash::{KeyedHash, spread};
use crate::table::{LimitSource, Table};

mod builder;

pub use builder::ThrottleBuilder;

/// Token buckets over many keys, in memory, where every call brings its own limit.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{CallLimit, Rate, Throttle};
///
/// let throttle: Throttle<[u8]> = Throttle::new();
/// // 30 per minute, 16 at once.
/// let limit = CallLimit::new(Rate::new(30, Duration::from_secs(60))?, 16)?;
/// let decision = throttle.check(b"user 17".as_slice(), limit, 1);
/// assert!(decision.is_allowed());
/// assert_eq!((decision.limit(), decision.remaining()), (16, 15));
/// # Ok::<(), tidegate::LimitError>(())
/// ```
///
/// For servers whose clients choose the limits. The state of a key is the time at which its bucket
/// is full again, and nothing else; a call with other numbers continues from there. So what was
/// charged stays charged, as time: a charge of one unit that takes two seconds to refill is
/// four units to a call whose units take half a second.
///
/// Where the limit is known beforehand, [`Limiter`](crate::Limiter) is exact to the nanosecond;
/// here a unit may come up to 1/256 ns late, never early. Everything else is as it is there: keys
/// are not stored, only their hashes; memory is bounded by
/// [`max_keys`](ThrottleBuilder::max_keys); all methods take `&self` and may be called from any
/// number of threads.
pub struct Throttle<K: ?Sized, C = MonotonicClock, S = KeyedHash> {
    table: Table<Bucket>,
    clock: C,
    hasher: S,
    key: PhantomData<fn(&K)>,
}

/// The limit that comes with one call: a rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimit(Bucket);

impl CallLimit {
    /// A bucket of `burst` units (the whole capacity), refilled at `rate`.
    ///
    /// An error when the burst is zero, when a unit takes less than a nanosecond or more than 417
    /// days, and when an empty bucket takes more than 2^87 nanoseconds to fill.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        Bucket::in_common_ticks(rate, burst).map(Self)
    }

    /// The rate of refill.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.0.rate()
    }

    /// The whole capacity.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.0.burst()
    }
}

/// One of many calls.
#[derive(Debug)]
pub struct Call<'k, Q: ?Sized> {
    /// Its key.
    pub key: &'k Q,
    /// Its limit.
    pub limit: CallLimit,
    /// How many units; 0 is a peek.
    pub cost: u64,
}

impl<K: ?Sized> Throttle<K> {
    /// A throttle with the defaults: grows as keys come, up to 2^24 of them.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().finish().expect("an empty throttle takes a few kilobytes")
    }

    /// A throttle with other bounds, another clock or another hash.
    pub fn builder() -> ThrottleBuilder<K> {
        ThrottleBuilder::new()
    }
}

impl<K: ?Sized> Default for Throttle<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Decisions.
impl<K: ?Sized, C: Clock, S: BuildHasher> Throttle<K, C, S> {
    /// Charges `cost` units to the key under `limit`, if they are free: all of them or none.
    ///
    /// A cost of 0 is a peek and changes nothing; it is denied where calls with a larger burst have
    /// charged more than this limit allows at all.
    #[inline]
    pub fn check<Q>(&self, key: &Q, limit: CallLimit, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.check_at(key, limit, cost, self.clock.now())
    }

    /// [`check`](Self::check) at a given time.
    #[inline]
    pub fn check_at<Q>(&self, key: &Q, limit: CallLimit, cost: u64, now: Timestamp) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let fetched = self.table.fetch(self.hash(key));
        let call = (LimitSource::Given(limit.0), cost);
        self.table.check_under(fetched, call, now, |decision| decision)
    }

    /// Decides many calls, independently, one after the other, at the same time.
    ///
    /// `on_decision` gets the decisions, in the order of the calls. Memory is fetched for several
    /// calls at once, and nothing is allocated.
    pub fn check_many<'k, Q>(
        &self,
        calls: impl IntoIterator<Item = Call<'k, Q>>,
        on_decision: impl FnMut(Decision),
    ) where
        K: Borrow<Q>,
        Q: Hash + ?Sized + 'k,
    {
        self.check_many_at(calls, on_decision, self.clock.now());
    }

    /// [`check_many`](Self::check_many) at a given time.
    pub fn check_many_at<'k, Q>(
        &self,
        calls: impl IntoIterator<Item = Call<'k, Q>>,
        mut on_decision: impl FnMut(Decision),
        now: Timestamp,
    ) where
        K: Borrow<Q>,
        Q: Hash + ?Sized + 'k,
    {
        let mut calls = calls.into_iter();
        loop {
            let mut batch = [None; BATCH];
            let mut taken = 0;
            for (entry, Call { key, limit, cost }) in batch.iter_mut().zip(calls.by_ref()) {
                *entry = Some((self.table.fetch(self.hash(key)), limit, cost));
                taken += 1;
            }
            for (fetched, limit, cost) in batch[..taken].iter().flatten() {
                let call = (LimitSource::Given(limit.0), *cost);
                on_decision(self.table.check_under(*fetched, call, now, |decision| decision));
            }
            if taken < BATCH {
                return;
            }
        }
    }

    /// What [`check`](Self::check) would decide. Charges nothing, so
    /// [`remaining`](Decision::remaining) does not include the cost.
    pub fn peek<Q>(&self, key: &Q, limit: CallLimit, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.peek_at(key, limit, cost, self.clock.now())
    }

    /// [`peek`](Self::peek) at a given time.
    pub fn peek_at<Q>(&self, key: &Q, limit: CallLimit, cost: u64, now: Timestamp) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.table.peek_under(self.hash(key), (LimitSource::Given(limit.0), cost), now)
    }

    /// Drops the state of the key; false if there was none.
    pub fn forget<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.table.forget(self.hash(key))
    }

    /// The hash of a key. 0 stands for a free slot.
    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        spread(self.hasher.hash_one(key)).max(1)
    }
}

/// Size and upkeep.
impl<K: ?Sized, C: Clock, S> Throttle<K, C, S> {
    /// How many keys the throttle stores. Idle ones leave when their slots are needed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the throttle stores no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most keys that the throttle can store.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity().max_keys
    }

    /// Drops all idle keys: those whose state is as good as fresh.
    ///
    /// Calling it is optional; slots of idle keys are reused as new keys come.
    pub fn evict_idle(&self) {
        self.evict_idle_at(self.clock.now());
    }

    /// [`evict_idle`](Self::evict_idle) at a given time.
    pub fn evict_idle_at(&self, now: Timestamp) {
        self.table.sweep(now);
    }
}

impl<K: ?Sized, C, S> fmt::Debug for Throttle<K, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("keys", &self.table.len())
            .field("max_keys", &self.table.capacity().max_keys)
            .finish_non_exhaustive()
    }
}

/// How many calls' keys are prefetched at once.
const BATCH: usize = 16;
