//! The limiter's verbs at a given time.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use tidegate_core::{Bucket, Decision, Timestamp};

use super::{BATCH, Call, CallLimit, FullError, Limiter};
use tidegate_table::KeyedLimit;
use tidegate_table::clock::{Clock, MonotonicClock};
use tidegate_table::hash::KeyedHash;
use tidegate_table::table::{LimitSource, TableFull};

/// The verbs of a [`Limiter`] at a given time.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, Timestamp, Window};
///
/// let limiter: Limiter<str, _> = Limiter::new(Window::new(1, Duration::from_secs(10))?);
/// assert!(limiter.at(Timestamp::from_secs(100)).allow("ada"));
/// assert!(!limiter.at(Timestamp::from_secs(109)).allow("ada"));
/// assert!(limiter.at(Timestamp::from_secs(110)).allow("ada"));
/// # Ok::<(), tidegate::LimitError>(())
/// ```
///
/// Each does what the limiter's verb of that name does. Times of both kinds may be mixed when they
/// come from the same clock.
#[must_use = "it does nothing by itself"]
pub struct LimiterAt<'l, K: ?Sized, A: KeyedLimit = Bucket, C = MonotonicClock, S = KeyedHash> {
    limiter: &'l Limiter<K, A, C, S>,
    now: Timestamp,
}

impl<K: ?Sized, A: KeyedLimit, C, S> Limiter<K, A, C, S> {
    /// The limiter's verbs at a given time.
    #[inline(always)]
    pub const fn at(&self, now: Timestamp) -> LimiterAt<'_, K, A, C, S> {
        LimiterAt { limiter: self, now }
    }
}

/// Decisions.
impl<K, A, C, S> LimiterAt<'_, K, A, C, S>
where
    K: ?Sized,
    A: KeyedLimit,
    C: Clock,
    S: BuildHasher,
{
    /// [`Limiter::allow`].
    #[inline]
    #[must_use]
    pub fn allow<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let fetched = self.limiter.table.fetch(self.limiter.hash(key));
        self.limiter.table.allow(fetched, self.now)
    }

    /// [`Limiter::check`].
    #[inline]
    pub fn check<Q>(&self, key: &Q) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.check_n(key, 1)
    }

    /// [`Limiter::check_n`].
    #[inline]
    pub fn check_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let fetched = self.limiter.table.fetch(self.limiter.hash(key));
        self.limiter.table.check(fetched, cost, self.now, |decision| decision)
    }

    /// [`Limiter::check_many`].
    pub fn check_many<Q>(&self, keys: &[&Q], decisions: &mut Vec<Decision>)
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let Self { limiter, now } = *self;
        decisions.clear();
        decisions.reserve(keys.len());
        for batch in keys.chunks(BATCH) {
            let mut fetched = [None; BATCH];
            for (fetched, key) in fetched.iter_mut().zip(batch) {
                *fetched = Some(limiter.table.fetch(limiter.hash(key)));
            }
            let decide = |fetched| limiter.table.check(fetched, 1, now, |decision| decision);
            decisions.extend(fetched.into_iter().flatten().map(decide));
        }
    }

    /// [`Limiter::peek`].
    pub fn peek<Q>(&self, key: &Q) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.limiter.table.peek(self.limiter.hash(key), 1, self.now)
    }

    /// [`Limiter::refund`].
    pub fn refund<Q>(&self, key: &Q, units: u64) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.limiter.hash(key);
        let refunded = self.limiter.table.refund(hash, units, self.now);
        self.limiter.wake(hash);
        refunded
    }
}

/// Changes while running.
impl<K, A, C, S> LimiterAt<'_, K, A, C, S>
where
    K: ?Sized,
    A: KeyedLimit,
    C: Clock,
    S: BuildHasher,
{
    /// [`Limiter::set_limit`].
    pub fn set_limit(&self, limit: A) {
        self.limiter.table.set_limit(limit, || self.now);
        self.limiter.wake_all();
    }

    /// [`Limiter::set_override`].
    pub fn set_override<Q>(&self, key: &Q, limit: A) -> Result<(), FullError>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.limiter.hash(key);
        let set = self.limiter.table.set_override(hash, limit, self.now);
        set.map_err(|TableFull| FullError)?;
        self.limiter.wake(hash);
        Ok(())
    }

    /// [`Limiter::remove_override`].
    pub fn remove_override<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let hash = self.limiter.hash(key);
        let had_one = self.limiter.table.remove_override(hash, self.now);
        self.limiter.wake(hash);
        had_one
    }
}

/// Size and upkeep.
impl<K: ?Sized, A: KeyedLimit, C: Clock, S> LimiterAt<'_, K, A, C, S> {
    /// [`Limiter::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        let Limiter { table, eviction, .. } = self.limiter;
        if eviction.as_ref().is_some_and(|eviction| eviction.is_due(self.now)) {
            table.sweep(self.now);
        }
        table.len()
    }

    /// [`Limiter::is_empty`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// [`Limiter::evict_idle`].
    pub fn evict_idle(&self) {
        self.limiter.table.sweep(self.now);
    }
}

/// Limits that come with each call.
impl<K: ?Sized, C: Clock, S: BuildHasher> LimiterAt<'_, K, CallLimit, C, S> {
    /// [`Limiter::check_with`].
    #[inline]
    pub fn check_with<Q>(&self, key: &Q, limit: CallLimit, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let fetched = self.limiter.table.fetch(self.limiter.hash(key));
        let under = LimitSource::Given(limit);
        self.limiter.table.check_under(fetched, under, cost, self.now, |decision| decision)
    }

    /// [`Limiter::check_many_with`].
    pub fn check_many_with<'k, Q>(
        &self,
        calls: impl IntoIterator<Item = Call<'k, Q>>,
        mut on_decision: impl FnMut(Decision),
    ) where
        K: Borrow<Q>,
        Q: Hash + ?Sized + 'k,
    {
        let Limiter { table, .. } = self.limiter;
        let mut calls = calls.into_iter();
        loop {
            let mut batch = [None; BATCH];
            let mut taken = 0;
            for (entry, Call { key, limit, cost }) in batch.iter_mut().zip(calls.by_ref()) {
                *entry = Some((table.fetch(self.limiter.hash(key)), limit, cost));
                taken += 1;
            }
            for (fetched, limit, cost) in batch[..taken].iter().flatten() {
                let under = LimitSource::Given(*limit);
                on_decision(table.check_under(*fetched, under, *cost, self.now, |it| it));
            }
            if taken < BATCH {
                return;
            }
        }
    }

    /// [`Limiter::peek_with`].
    pub fn peek_with<Q>(&self, key: &Q, limit: CallLimit, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let under = LimitSource::Given(limit);
        self.limiter.table.peek_under(self.limiter.hash(key), under, cost, self.now)
    }
}

impl<K: ?Sized, A: KeyedLimit, C, S> Clone for LimiterAt<'_, K, A, C, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, A: KeyedLimit, C, S> Copy for LimiterAt<'_, K, A, C, S> {}

impl<K: ?Sized, A: KeyedLimit, C, S> fmt::Debug for LimiterAt<'_, K, A, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterAt").field("now", &self.now).finish_non_exhaustive()
    }
}
