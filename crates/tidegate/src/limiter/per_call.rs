//! Limits that come with each call.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use tidegate_core::{Algorithm, Bucket, BucketState, Decision, LimitError, Rate, Timestamp};
use tidegate_table::clock::Clock;
use tidegate_table::table::keyed::{pack_bucket, sealed::Pack, unpack_bucket};
use tidegate_table::table::{LimitSource, Narrow, NarrowLine};

use super::{BATCH, Limiter, LimiterBuilder};

/// The limit that comes with one call: a rate and a burst.
///
/// Such a bucket counts in the same units of time as every other, so a unit may come up to 1/256 ns
/// late, never early.
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
        self.0.capacity()
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

/// Limits that come with each call.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::CallLimit;
/// use tidegate::{Limiter, Rate};
///
/// let limiter = Limiter::<[u8], CallLimit>::per_call().build()?;
/// // 30 per minute, 16 at once.
/// let limit = CallLimit::new(Rate::new(30, Duration::from_secs(60)), 16)?;
/// let decision = limiter.check_with(b"user 17".as_slice(), limit, 1);
/// assert!(decision.is_allowed());
/// assert_eq!((decision.limit(), decision.remaining()), (16, 15));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// For servers whose clients choose the limits. The state of a key is the time at which its bucket
/// is full again, and nothing else; a call with other numbers continues from there. So what was
/// charged stays charged, as time: a charge of one unit that takes two seconds to refill is
/// four units to a call whose units take half a second.
impl<K: ?Sized> Limiter<K, CallLimit> {
    /// A limiter whose calls bring their limits. Calls without one have one per second.
    pub fn per_call() -> LimiterBuilder<K, CallLimit> {
        let limit = CallLimit::new(Rate::per_second(1), 1);
        Self::builder(limit.expect("one per second is a valid limit"))
    }
}

impl<K: ?Sized, C: Clock, S: BuildHasher> Limiter<K, CallLimit, C, S> {
    /// Charges `cost` units to the key under `limit`, if they are free: all of them or none.
    ///
    /// A cost of 0 is a peek and changes nothing; it is denied where calls with a larger burst have
    /// charged more than this limit allows at all.
    #[inline]
    pub fn check_with<Q>(&self, key: &Q, limit: CallLimit, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let table = &self.shared.table;
        let fetched = table.fetch(self.hash(key));
        let under = LimitSource::Given(limit);
        table.check_under(fetched, under, cost, self.clock.now(), |decision| decision)
    }

    /// Decides many calls, independently, one after the other, at the same time.
    ///
    /// `on_decision` gets the decisions, in the order of the calls. Memory is fetched for several
    /// calls at once, and nothing is allocated.
    pub fn check_many_with<'k, Q>(
        &self,
        calls: impl IntoIterator<Item = Call<'k, Q>>,
        mut on_decision: impl FnMut(Decision),
    ) where
        K: Borrow<Q>,
        Q: Hash + ?Sized + 'k,
    {
        let (table, now) = (&self.shared.table, self.clock.now());
        let mut calls = calls.into_iter();
        loop {
            let mut batch = [None; BATCH];
            let mut taken = 0;
            for (entry, Call { key, limit, cost }) in batch.iter_mut().zip(calls.by_ref()) {
                *entry = Some((table.fetch(self.hash(key)), limit, cost));
                taken += 1;
            }
            for (fetched, limit, cost) in batch[..taken].iter().flatten() {
                let under = LimitSource::Given(*limit);
                on_decision(table.check_under(*fetched, under, *cost, now, |it| it));
            }
            if taken < BATCH {
                return;
            }
        }
    }

    /// What [`check_with`](Self::check_with) would decide. Charges nothing, so
    /// [`remaining`](Decision::remaining) does not include the cost.
    pub fn peek_with<Q>(&self, key: &Q, limit: CallLimit, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        let under = LimitSource::Given(limit);
        self.shared.table.peek_under(self.hash(key), under, cost, self.clock.now())
    }
}

/// As its bucket does; states mean the same under every such limit, so none is converted.
impl Algorithm for CallLimit {
    type State = BucketState;

    #[inline(always)]
    fn fresh(&self) -> BucketState {
        self.0.fresh()
    }

    #[inline(always)]
    fn is_idle(&self, state: &BucketState, now: Timestamp) -> bool {
        self.0.is_idle(state, now)
    }

    #[inline(always)]
    fn check(&self, state: &mut BucketState, cost: u64, now: Timestamp) -> Decision {
        self.0.check(state, cost, now)
    }

    fn used(&self, state: &BucketState, now: Timestamp) -> u64 {
        self.0.used(state, now)
    }

    fn refund(&self, state: &mut BucketState, units: u64, now: Timestamp) -> u64 {
        self.0.refund(state, units, now)
    }

    fn hold(&self, state: &mut BucketState, units: u64, now: Timestamp) -> Decision {
        self.0.hold(state, units, now)
    }

    fn commit(&self, state: &mut BucketState, units: u64, actual: u64, now: Timestamp) -> u64 {
        self.0.commit(state, units, actual, now)
    }

    fn cancel(&self, state: &mut BucketState, units: u64, now: Timestamp) {
        self.0.cancel(state, units, now);
    }

    fn carry_over(&self, _: &Self, state: &BucketState, _: Timestamp) -> BucketState {
        *state
    }

    fn join(&self, a: &BucketState, b: &BucketState) -> BucketState {
        self.0.join(a, b)
    }

    #[inline(always)]
    fn to_words(&self) -> [u64; 4] {
        self.0.to_words()
    }

    #[inline(always)]
    fn from_words(words: [u64; 4]) -> Self {
        Self(Bucket::from_words(words))
    }
}

impl Pack for CallLimit {
    type Line = NarrowLine;

    #[inline(always)]
    fn pack(state: &BucketState) -> Narrow {
        pack_bucket(state)
    }

    #[inline(always)]
    fn unpack(packed: Narrow) -> BucketState {
        unpack_bucket(packed)
    }

    #[inline(always)]
    fn unit_words(&self) -> [u64; 4] {
        Pack::unit_words(&self.0)
    }

    #[inline(always)]
    fn charge_unit(word: impl Fn(usize) -> u64, packed: Narrow, now: Timestamp) -> Option<Narrow> {
        Bucket::charge_unit(word, packed, now)
    }
}
