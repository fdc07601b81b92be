//! Limits over keys: building a limiter, waiting for units, and limits that come with each call.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_core::{Bucket, Decision, Timestamp};
use tidegate_table::clock::{Clock, MonotonicClock};
use tidegate_table::hash::{KeyedHash, spread};
use tidegate_table::table::{Fetched, Table, TableFull};
use tidegate_table::waiting::WaitQueues;

mod builder;
mod direct;
mod per_call;
mod ready;

pub use builder::{BuildError, LimiterBuilder};
pub use direct::DirectLimiter;
pub use per_call::{Call, CallLimit};
pub use ready::{UntilReady, WaitError};
pub use tidegate_core::{Algorithm, Debt, LimitErrorKind};
pub use tidegate_table::KeyedLimit;

/// One limit over many keys, in memory: what replaces a map behind a lock.
///
/// ```
/// use tidegate::{Bucket, Limiter};
///
/// // Ten requests per second and client, twenty at once.
/// let limiter: Limiter<String> = Limiter::new(Bucket::per_second(10).burst(20));
///
/// if limiter.allow("198.51.100.7") {
///     // serve the request
/// }
/// # assert_eq!(limiter.peek("198.51.100.7").remaining(), 19);
/// ```
///
/// The key type can be looked up by anything it [borrows](Borrow) as, so a `Limiter<String>` takes
/// `&str`. Keys are not stored, only their hashes: no call allocates for a key.
///
/// All methods take `&self` and may be called from any number of threads. Decisions about known
/// keys hold locks for a few instructions at most; a denial writes nothing to shared memory.
///
/// **Memory** is bounded by [`max_keys`](LimiterBuilder::max_keys) and grows with the live keys:
/// those whose state differs from a fresh one. A key takes about 39 bytes in a growing table
/// (35 with a [capacity hint](LimiterBuilder::capacity_hint), 48 at most at the capacity), four
/// times as much for [`Sliding`](crate::Sliding).
///
/// A clone is another handle to the same limiter, and so is [`at`](Self::at), at a given time.
pub struct Limiter<K: ?Sized, A: KeyedLimit = Bucket, C = MonotonicClock, S = KeyedHash> {
    shared: Arc<Shared<A, S>>,
    clock: C,
    key: PhantomData<fn(&K)>,
}

/// What all handles to a limiter have in common.
struct Shared<A: KeyedLimit, S> {
    table: Table<A>,
    hasher: S,
    eviction: Option<Eviction>,
    /// The waiters, once there was one; `None` inside if the limiter was closed before.
    queues: OnceLock<Option<WaitQueues>>,
}

/// The clock of a handle [at a given time](Limiter::at), which stands still.
#[derive(Debug)]
pub struct StoppedClock(Timestamp);

impl Clock for StoppedClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// The eviction of idle keys.
#[derive(Debug)]
struct Eviction {
    every: Duration,
    last_ns: AtomicU64,
}

/// There is no slot for a key that needs one: the table is full of live keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FullError;

impl fmt::Display for FullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limiter is full: it has max_keys live keys")
    }
}

tidegate_core::debug_as_displayed!(FullError);

impl std::error::Error for FullError {}

impl<K: ?Sized, A: KeyedLimit> Limiter<K, A> {
    /// A limiter with the defaults: grows as keys come, up to 2^24 of them.
    #[must_use]
    pub fn new(limit: A) -> Self {
        Self::builder(limit).finish().expect("an empty limiter takes a few kilobytes")
    }

    /// A limiter with other bounds, another clock or another hash.
    pub fn builder(limit: A) -> LimiterBuilder<K, A> {
        LimiterBuilder::new(limit)
    }
}

impl<K: ?Sized, A: KeyedLimit, C, S> Limiter<K, A, C, S> {
    /// The limiter at a given time: a handle whose clock stands still.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Timestamp, Window};
    ///
    /// let limiter: Limiter<str, _> = Limiter::new(Window::new(1, Duration::from_secs(10)));
    /// assert!(limiter.at(Timestamp::from_secs(100)).allow("ada"));
    /// assert!(!limiter.at(Timestamp::from_secs(109)).allow("ada"));
    /// assert!(limiter.at(Timestamp::from_secs(110)).allow("ada"));
    /// ```
    ///
    /// Handles with other clocks may be used at the same time, if their times are those of one clock.
    pub fn at(&self, now: Timestamp) -> Limiter<K, A, StoppedClock, S> {
        Limiter { shared: Arc::clone(&self.shared), clock: StoppedClock(now), key: PhantomData }
    }
}

impl<K: ?Sized, A: KeyedLimit, C: Clone, S> Clone for Limiter<K, A, C, S> {
    fn clone(&self) -> Self {
        let (shared, clock) = (Arc::clone(&self.shared), self.clock.clone());
        Self { shared, clock, key: PhantomData }
    }
}

/// Decisions.
impl<K, A, C, S> Limiter<K, A, C, S>
where
    K: ?Sized,
    A: KeyedLimit,
    C: Clock,
    S: BuildHasher,
{
    /// Whether one unit is free for the key. It is charged if so.
    // As a function of its own it would save the registers that only its rare cases need.
    #[inline(always)]
    #[must_use]
    pub fn allow<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let table = &self.shared.table;
        let fetched = table.fetch(self.hash(key));
        match self.clock.quick() {
            Some(now) => table.allow(fetched, now),
            None => self.allow_slowly(fetched),
        }
    }

    /// When the time is not known at once.
    #[cold]
    #[inline(never)]
    fn allow_slowly(&self, key: Fetched<'_, A::Line>) -> bool {
        self.shared.table.allow(key, self.clock.now())
    }

    /// Charges one unit to the key, if it is free.
    #[inline]
    pub fn check<Q>(&self, key: &Q) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.check_n(key, 1)
    }

    /// Charges `cost` units to the key, if they are free: all of them or none.
    ///
    /// A cost of 0 is a peek and changes nothing.
    #[inline]
    pub fn check_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let table = &self.shared.table;
        let fetched = table.fetch(self.hash(key));
        table.check(fetched, cost, self.clock.now(), |decision| decision)
    }

    /// Charges one unit to each of many keys, independently, at the same time.
    ///
    /// The decisions replace the contents of `decisions`, in the order of the keys. About twice as
    /// fast as one call per key when there are many keys: memory is fetched for all of them at
    /// once.
    pub fn check_many<Q>(&self, keys: &[&Q], decisions: &mut Vec<Decision>)
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let (table, now) = (&self.shared.table, self.clock.now());
        decisions.clear();
        decisions.reserve(keys.len());
        for batch in keys.chunks(BATCH) {
            let mut fetched = [None; BATCH];
            for (fetched, key) in fetched.iter_mut().zip(batch) {
                *fetched = Some(table.fetch(self.hash(key)));
            }
            let decide = |fetched| table.check(fetched, 1, now, |decision| decision);
            decisions.extend(fetched.into_iter().flatten().map(decide));
        }
    }

    /// Whether one unit is free for the key, and else how long to wait. Charges nothing, so
    /// [`remaining`](Decision::remaining) does not include the cost.
    pub fn peek<Q>(&self, key: &Q) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.shared.table.peek(self.hash(key), 1, self.clock.now())
    }

    /// Refunds up to `units` that were charged to the key, and returns how many.
    ///
    /// Never more than was charged, and nothing that has been refilled already. Keys that share
    /// counters because the table is full get no refund.
    pub fn refund<Q>(&self, key: &Q, units: u64) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.hash(key);
        let refunded = self.shared.table.refund(hash, units, self.clock.now());
        self.wake(hash);
        refunded
    }

    /// Drops the state of the key: its next request finds it as new.
    ///
    /// Returns whether there was a state. Its own limit stays.
    pub fn forget<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.hash(key);
        let was_known = self.shared.table.forget(hash);
        self.wake(hash);
        was_known
    }

    /// Drops the states of all keys: the next request of each finds it as new.
    ///
    /// Returns how many keys had a state. Limits of single keys stay. A key that is charged while
    /// this runs may be forgotten or not.
    ///
    /// ```
    /// use tidegate::{Bucket, Limiter};
    ///
    /// let limiter: Limiter<str> = Limiter::new(Bucket::per_second(1));
    /// assert!(limiter.check("ada").is_allowed());
    /// assert!(!limiter.check("ada").is_allowed());
    /// assert_eq!(limiter.forget_all(), 1);
    /// assert!(limiter.check("ada").is_allowed());
    /// ```
    pub fn forget_all(&self) -> usize {
        let forgotten = self.shared.table.forget_all();
        self.wake_all();
        forgotten
    }

    /// The hash of a key. 0 stands for a free slot.
    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        spread(self.shared.hasher.hash_one(key)).max(1)
    }
}

/// Changes while running.
impl<K, A, C, S> Limiter<K, A, C, S>
where
    K: ?Sized,
    A: KeyedLimit,
    C: Clock,
    S: BuildHasher,
{
    /// Puts another limit into force for all keys without their own.
    ///
    /// Charges stay: an edit never refills, and going back is the identity. When this
    /// returns, every key is under the new limit. It visits the whole table, without stopping
    /// decisions; concurrent edits wait for each other.
    pub fn set_limit(&self, limit: A) {
        self.shared.table.set_limit(limit, || self.clock.now());
        self.wake_all();
    }

    /// The limit in force for keys without their own.
    #[must_use]
    pub fn limit(&self) -> A {
        self.shared.table.limit()
    }

    /// Gives the key its own limit, until [`remove_override`](Self::remove_override).
    ///
    /// Its charges stay. The key keeps its slot as long as it has its own limit, idle or
    /// not; decisions about it are some 50 ns slower.
    pub fn set_override<Q>(&self, key: &Q, limit: A) -> Result<(), FullError>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.hash(key);
        let set = self.shared.table.set_override(hash, limit, self.clock.now());
        set.map_err(|TableFull| FullError)?;
        self.wake(hash);
        Ok(())
    }

    /// Moves the key back to the common limit; false if it had no limit of its own.
    pub fn remove_override<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.hash(key);
        let had_one = self.shared.table.remove_override(hash, self.clock.now());
        self.wake(hash);
        had_one
    }
}

/// Size and upkeep.
impl<K, A, C, S> Limiter<K, A, C, S>
where
    K: ?Sized,
    A: KeyedLimit,
    C: Clock,
{
    /// How many keys the limiter stores.
    ///
    /// Idle keys leave when their slots are needed. With an
    /// [eviction interval](LimiterBuilder::evict_every) new keys evict those that have been idle for
    /// that long, a few each, and this call drops the rest when it is due. It visits the whole table
    /// then, about 30 ns per key, one line at a time; decisions go on meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        let Shared { table, eviction, .. } = &*self.shared;
        if let Some(eviction) = eviction {
            let now = self.clock.now();
            if eviction.is_due(now) {
                table.sweep(now);
            }
        }
        table.len()
    }

    /// Whether the limiter stores no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most keys that the limiter can store.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.table.capacity().max_keys
    }

    /// Drops all idle keys: those whose state is as good as fresh.
    ///
    /// Calling it is optional; slots of idle keys are reused as new keys come. It visits the whole
    /// table, without stopping decisions.
    pub fn evict_idle(&self) {
        self.shared.table.sweep(self.clock.now());
    }

    /// Ends all waits, stops the thread that wakes them, and returns when it has stopped.
    ///
    /// The limiter continues to decide, but callers can no longer [wait](Self::ready). May be
    /// called any number of times. Nothing else runs in the background: idle keys leave as calls
    /// come.
    pub fn close(&self) {
        if let Some(queues) = self.shared.queues.get_or_init(|| None) {
            queues.close();
        }
    }

    /// Wakes the waiters whose time has come.
    ///
    /// Only needed after moving a [`ManualClock`](crate::clock::ManualClock): for other clocks there is a
    /// timer.
    pub fn tick(&self) {
        if let Some(Some(queues)) = self.shared.queues.get() {
            queues.tick(self.clock.now());
        }
    }
}

impl Eviction {
    /// Whether the interval has passed since this last returned true.
    fn is_due(&self, now: Timestamp) -> bool {
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let next = Timestamp::from_nanos(last_ns).saturating_add(self.every);
        let swap = |last_ns| {
            let (new, relaxed) = (now.as_nanos(), Ordering::Relaxed);
            self.last_ns.compare_exchange(last_ns, new, relaxed, relaxed)
        };
        now >= next && swap(last_ns).is_ok()
    }
}

impl<K: ?Sized, A: KeyedLimit, C, S> fmt::Debug for Limiter<K, A, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limit", &self.shared.table.limit())
            .field("keys", &self.shared.table.len())
            .field("max_keys", &self.shared.table.capacity().max_keys)
            .finish_non_exhaustive()
    }
}

/// How many keys are prefetched at once.
const BATCH: usize = 16;
