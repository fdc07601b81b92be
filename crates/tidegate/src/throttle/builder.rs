use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;

use tidegate_core::{Bucket, Rate};

use super::Throttle;
use crate::clock::{Clock, MonotonicClock};
use crate::hash::KeyedHash;
use crate::limiter::BuildError;
use crate::table::{Capacity, Table, WhenFull};

/// Builds a [`Throttle`]. Every setting has a default.
#[must_use]
pub struct ThrottleBuilder<K: ?Sized, C = MonotonicClock, S = KeyedHash> {
    capacity: Capacity,
    capacity_hint: Option<usize>,
    clock: C,
    hasher: S,
    key: PhantomData<fn(&K)>,
}

impl<K: ?Sized> ThrottleBuilder<K> {
    pub(super) fn new() -> Self {
        Self {
            capacity: Capacity::DEFAULT,
            capacity_hint: None,
            clock: MonotonicClock,
            hasher: KeyedHash::new(),
            key: PhantomData,
        }
    }
}

impl<K: ?Sized, C, S> ThrottleBuilder<K, C, S> {
    /// The most keys that are stored at a time. Default: 2^24.
    ///
    /// Memory is at most 48 bytes times this and 128 KiB; shared counters may add an eighth.
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
    pub fn capacity_hint(mut self, keys: usize) -> Self {
        self.capacity_hint = Some(keys);
        self
    }

    /// Uses another clock.
    pub fn clock<D: Clock>(self, clock: D) -> ThrottleBuilder<K, D, S> {
        let Self { capacity, capacity_hint, hasher, key, .. } = self;
        ThrottleBuilder { capacity, capacity_hint, clock, hasher, key }
    }

    /// Uses another hash. Two keys with the same hash share one bucket, so this is for keys that
    /// clients cannot choose.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> ThrottleBuilder<K, C, T> {
        let Self { capacity, capacity_hint, clock, key, .. } = self;
        ThrottleBuilder { capacity, capacity_hint, clock, hasher, key }
    }

    /// The throttle, or the setting that is invalid.
    pub fn build(self) -> Result<Throttle<K, C, S>, BuildError> {
        self.capacity.check()?;
        self.finish().ok_or(BuildError::CapacityHint)
    }

    /// The throttle, from valid settings; `None` if there is no memory for it.
    pub(super) fn finish(self) -> Option<Throttle<K, C, S>> {
        // Calls bring their limits; this one only defines what a state means, and compares two.
        let limit = Rate::per_second(1).and_then(|rate| Bucket::in_common_ticks(rate, 1)).ok()?;
        Some(Throttle {
            table: Table::new(limit, self.capacity, self.capacity_hint)?,
            clock: self.clock,
            hasher: self.hasher,
            key: PhantomData,
        })
    }
}

impl<K: ?Sized, C, S> fmt::Debug for ThrottleBuilder<K, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleBuilder")
            .field("capacity", &self.capacity)
            .field("capacity_hint", &self.capacity_hint)
            .finish_non_exhaustive()
    }
}
