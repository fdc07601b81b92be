use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_table::clock::{Clock, MonotonicClock};
use tidegate_table::hash::KeyedHash;
use tidegate_table::table::keyed::KeyedLimit;
use tidegate_table::table::{Capacity, Table, WhenFull};

use super::{Eviction, Limiter, Shared};

/// Builds a [`Limiter`]. Every setting has a default.
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tidegate::clock::ManualClock;
/// use tidegate::{Bucket, Limiter, WhenFull};
///
/// let clock = ManualClock::default();
/// let limiter = Limiter::<IpAddr>::builder(Bucket::per_minute(10).burst(20))
///     .max_keys(100_000)
///     .when_full(WhenFull::Deny)
///     .evict_every(Duration::from_secs(300))
///     .clock(clock.clone())
///     .build()?;
/// assert_eq!(limiter.capacity(), 100_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct LimiterBuilder<K: ?Sized, A, C = MonotonicClock, S = KeyedHash> {
    limit: A,
    capacity: Capacity,
    capacity_hint: Option<usize>,
    evict_every: Option<Duration>,
    clock: C,
    hasher: S,
    key: PhantomData<fn(&K)>,
}

/// Why a limiter could not be built.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// `max_keys` is zero or above [`LimiterBuilder::MOST_KEYS`].
    MaxKeys {
        /// The invalid value.
        given: usize,
    },
    /// `evict_every` is zero.
    EvictEveryZero,
    /// There is no memory for `capacity_hint` keys.
    CapacityHint,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxKeys { given } => {
                write!(f, "max_keys must be from 1 to {MOST_KEYS}, not {given}")
            }
            Self::EvictEveryZero => f.write_str("evict_every must be longer than zero"),
            Self::CapacityHint => {
                f.write_str("capacity_hint is for more keys than memory can hold")
            }
        }
    }
}

tidegate_core::debug_as_displayed!(BuildError);

impl std::error::Error for BuildError {}

impl<K: ?Sized, A: KeyedLimit> LimiterBuilder<K, A> {
    /// The largest `max_keys`: 2^32.
    pub const MOST_KEYS: usize = MOST_KEYS;

    pub(super) fn new(limit: A) -> Self {
        Self {
            limit,
            capacity: DEFAULT_CAPACITY,
            capacity_hint: None,
            evict_every: None,
            clock: MonotonicClock,
            hasher: KeyedHash::new(),
            key: PhantomData,
        }
    }
}

impl<K: ?Sized, A: KeyedLimit, C, S> LimiterBuilder<K, A, C, S> {
    /// The most keys that are stored at a time. Default: 2^24.
    ///
    /// Memory is at most 48 bytes times this, 192 for [`Sliding`](crate::Sliding), and 128 KiB, or
    /// four times that; shared counters may add an eighth.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.capacity.max_keys = keys;
        self
    }

    /// What happens to new keys when all stored keys are live. Default: [`Share`](WhenFull::Share).
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.capacity.when_full = when_full;
        self
    }

    /// Allocates room for this many keys at once, instead of growing as they come.
    ///
    /// Faster to fill and to read, on huge pages where the system has them; the memory, about 35
    /// bytes per key, is resident at once.
    pub fn capacity_hint(mut self, keys: usize) -> Self {
        self.capacity_hint = Some(keys);
        self
    }

    /// Evicts keys once they have been idle for this long: some with each new key, all of them when
    /// [`len`](Limiter::len) is called.
    ///
    /// Without it they leave when their slots are needed. No decision waits for a sweep of the
    /// table: a new key searches two lines for idle ones. Zero is an error.
    pub fn evict_every(mut self, interval: Duration) -> Self {
        self.evict_every = Some(interval);
        self
    }

    /// Uses another clock.
    pub fn clock<D: Clock>(self, clock: D) -> LimiterBuilder<K, A, D, S> {
        LimiterBuilder {
            limit: self.limit,
            capacity: self.capacity,
            capacity_hint: self.capacity_hint,
            evict_every: self.evict_every,
            clock,
            hasher: self.hasher,
            key: PhantomData,
        }
    }

    /// Uses another hash.
    ///
    /// Two keys with the same hash share one state. A client that can choose keys and make hashes
    /// collide can use up another client's limit, so this is for keys that clients cannot choose.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> LimiterBuilder<K, A, C, T> {
        LimiterBuilder {
            limit: self.limit,
            capacity: self.capacity,
            capacity_hint: self.capacity_hint,
            evict_every: self.evict_every,
            clock: self.clock,
            hasher,
            key: PhantomData,
        }
    }

    /// The limiter, or the setting that is invalid.
    pub fn build(self) -> Result<Limiter<K, A, C, S>, BuildError> {
        check(&self.capacity)?;
        if self.evict_every == Some(Duration::ZERO) {
            return Err(BuildError::EvictEveryZero);
        }
        self.finish().ok_or(BuildError::CapacityHint)
    }

    /// The limiter, from valid settings; `None` if there is no memory for it.
    pub(super) fn finish(self) -> Option<Limiter<K, A, C, S>> {
        let eviction = self.evict_every.map(|every| Eviction { every, last_ns: AtomicU64::new(0) });
        let table = Table::new(self.limit, self.capacity, self.capacity_hint)?;
        let shared = Shared {
            table: table.evicting_after(self.evict_every),
            hasher: self.hasher,
            eviction,
            queues: OnceLock::new(),
        };
        Some(Limiter { shared: Arc::new(shared), clock: self.clock, key: PhantomData })
    }
}

impl<K: ?Sized, A: fmt::Debug, C, S> fmt::Debug for LimiterBuilder<K, A, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("limit", &self.limit)
            .field("capacity", &self.capacity)
            .field("capacity_hint", &self.capacity_hint)
            .field("evict_every", &self.evict_every)
            .finish_non_exhaustive()
    }
}

/// The capacity of a limiter without a setting.
const DEFAULT_CAPACITY: Capacity =
    Capacity { max_keys: DEFAULT_MAX_KEYS, when_full: WhenFull::Share };

/// Checks the bounds of a table.
const fn check(capacity: &Capacity) -> Result<(), BuildError> {
    match capacity.max_keys {
        1..=MOST_KEYS => Ok(()),
        given => Err(BuildError::MaxKeys { given }),
    }
}

const DEFAULT_MAX_KEYS: usize = 1 << 24;
const MOST_KEYS: usize = 1 << 32;
