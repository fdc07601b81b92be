use crate::decision::{Outcome, Span};
use crate::error::{LimitError, LimitErrorKind, constant, nonzero, valid};
use crate::rate::gcd;
use crate::{Algorithm, Debt, Decision, Rate, Timestamp};

mod unit;

pub use unit::charge_unit;

/// A token bucket: `burst` units of capacity, refilled continuously at a rate.
///
/// In any interval of length T it admits at most `burst + floor(rate · T)` units, exactly.
///
/// ```
/// use tidegate_core::{Bucket, Rate};
///
/// const CALLS: Bucket = Bucket::per_second(10).burst(20);
/// assert_eq!((CALLS.rate(), CALLS.capacity()), (Rate::per_second(10), 20));
///
/// // Numbers from outside may be wrong.
/// assert!(Bucket::try_new("10/s".parse()?, 0).is_err());
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
///
/// The state is the *theoretical arrival time*: when the bucket will be full again. It is counted
/// in ticks so small that both a nanosecond and a unit of cost are whole numbers of them, so no
/// rate is ever rounded: the generic cell rate algorithm in integers that cannot overflow. Time
/// takes 63 bits, a nanosecond at most 2^32 ticks, the capacity less than 2^95.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    burst: u64,
    /// Units that commits may overdraw, or [`ALL_DEBT`].
    debt: u64,
    ticks: Ticks,
    /// `burst` in ticks.
    capacity_ticks: u128,
}

/// The state of a [`Bucket`] for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// When the bucket is full again, in ticks since the clock's origin; below 2^96.
    pub full_at_ticks: u128,
    /// Units on hold.
    pub held: u64,
}

/// How many ticks make a nanosecond, and how many a unit of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    per_ns: u64,
    per_unit: u64,
}

impl Bucket {
    /// A bucket that is refilled at this rate, and whose capacity is the rate's count, unless
    /// [`burst`](Self::burst) says another one: "100 per minute" allows 100 at once.
    ///
    /// Wrong numbers do not compile in a constant, and panic elsewhere; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn of(rate: Rate) -> Self {
        constant(Self::try_new(rate, rate.count()))
    }

    /// A bucket [of](Self::of) so many units per second.
    #[must_use]
    #[track_caller]
    pub const fn per_second(count: u64) -> Self {
        Self::of(Rate::per_second(count))
    }

    /// A bucket [of](Self::of) so many units per minute.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(count: u64) -> Self {
        Self::of(Rate::per_minute(count))
    }

    /// A bucket [of](Self::of) so many units per hour.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(count: u64) -> Self {
        Self::of(Rate::per_hour(count))
    }

    /// A bucket [of](Self::of) so many units per 24 hours.
    #[must_use]
    #[track_caller]
    pub const fn per_day(count: u64) -> Self {
        Self::of(Rate::per_day(count))
    }

    /// The same bucket with this capacity, the first request included.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        let burst = constant(nonzero("burst", burst));
        constant(Self::with_ticks(self.rate, burst, self.debt, self.ticks))
    }

    /// A bucket of `burst` units (the whole capacity, first request included), refilled at `rate`.
    ///
    /// An error when the burst is zero, or when the numbers cannot be represented exactly: the
    /// reduced rate has to be below 2^32 per nanosecond, and an empty bucket has to fill within
    /// 2^95 ticks. One per day with a burst of a million fits, and so does 10^12 per second.
    pub const fn try_new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        let (count, period_ns) = rate.reduced();
        let ticks = Ticks { per_ns: count, per_unit: period_ns };
        Self::with_ticks(rate, valid!(nonzero("burst", burst)), 0, ticks)
    }

    /// A bucket that counts in the same ticks as every other one made by this function, so that
    /// they can alternate on one state: for limits that come with each call.
    ///
    /// Such buckets share the time at which they are full again. Each charges its own time
    /// per unit to it, and keeps what the others have charged.
    ///
    /// There are 256 ticks in a nanosecond, and the time per unit is rounded up to whole ticks:
    /// never too much is admitted, and a unit comes at most 1/256 ns late. An error when the burst
    /// is zero, when a unit takes less than a nanosecond or more than 2^55 of them (417 days), and
    /// when an empty bucket does not fill within 2^95 ticks.
    #[doc(hidden)]
    pub fn in_common_ticks(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        let (count, period_ns) = (rate.count(), rate.period_ns());
        if count > period_ns {
            let hint = "a unit must take at least a nanosecond; use at most 10^9 per second";
            return Err(LimitError::new("rate", LimitErrorKind::NotExact { hint }));
        }
        let per_unit = match period_ns.checked_mul(COMMON_TICKS_PER_NS) {
            Some(ticks) => ticks.div_ceil(count),
            None => {
                let ticks = u128::from(period_ns) * u128::from(COMMON_TICKS_PER_NS);
                // What does not fit is rejected below.
                u64::try_from(ticks.div_ceil(u128::from(count))).unwrap_or(u64::MAX)
            }
        };
        let ticks = Ticks { per_ns: COMMON_TICKS_PER_NS, per_unit };
        Self::with_ticks(rate, nonzero("burst", burst)?, 0, ticks)
    }

    /// The same bucket, whose commits may overdraw it this far; [`Debt::Nothing`] unless set.
    ///
    /// Checks and holds never overdraw; debt is for costs that are known only afterwards.
    pub const fn with_debt(self, debt: Debt) -> Result<Self, LimitError> {
        let units = match debt {
            Debt::All => ALL_DEBT,
            Debt::UpTo(units) => valid!(nonzero("debt", units)),
            Debt::Nothing => 0,
        };
        Self::with_ticks(self.rate, self.burst, units, self.ticks)
    }

    const fn with_ticks(
        rate: Rate,
        burst: u64,
        debt: u64,
        ticks: Ticks,
    ) -> Result<Self, LimitError> {
        if ticks.per_ns > MAX_TICKS_PER_NS {
            let hint = "its reduced count must be below 2^32; use a rounder count or period";
            return Err(LimitError::new("rate", LimitErrorKind::NotExact { hint }));
        }
        if ticks.per_unit > MAX_TICKS_PER_UNIT {
            let hint = "its period must be at most 2^63 ticks; use a rounder count or period";
            return Err(LimitError::new("rate", LimitErrorKind::NotExact { hint }));
        }
        // What is owed without a bound is cut to what a state can express.
        let bounded = if debt == ALL_DEBT { 0 } else { debt };
        // At most 2^65 · 2^63: no overflow.
        let (capacity_ticks, overdrawn_ticks) = (
            burst as u128 * ticks.per_unit as u128,
            (burst as u128 + bounded as u128) * ticks.per_unit as u128,
        );
        if overdrawn_ticks >= MAX_CAPACITY_TICKS {
            let field = if capacity_ticks >= MAX_CAPACITY_TICKS { "burst" } else { "debt" };
            let hint = "it takes too long to refill at this rate; use a smaller one";
            return Err(LimitError::new(field, LimitErrorKind::NotExact { hint }));
        }
        Ok(Self { rate, burst, debt, ticks, capacity_ticks })
    }

    /// The rate of refill.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The whole capacity.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
    }

    /// How far commits may overdraw.
    #[must_use]
    pub const fn debt(&self) -> Debt {
        match self.debt {
            0 => Debt::Nothing,
            ALL_DEBT => Debt::All,
            units => Debt::UpTo(units),
        }
    }

    /// Whether a state of `old` can be expressed in this bucket's ticks, so that
    /// [`carry_over`](Algorithm::carry_over) keeps its level.
    #[must_use]
    pub fn can_take_over(&self, old: &Self, state: &BucketState, at: Timestamp) -> bool {
        let level_ticks = old.level_ticks(state, at);
        let level_ticks = scale_up(level_ticks, self.ticks.per_unit, old.ticks.per_unit);
        self.ticks == old.ticks
            || self.now_ticks(at).saturating_add(level_ticks) <= MAX_FULL_AT_TICKS
    }

    /// A state of this bucket, after another one has refilled it from one time to another.
    #[must_use]
    pub fn refilled_by(
        &self,
        other: &Self,
        state: &BucketState,
        from: Timestamp,
        to: Timestamp,
    ) -> BucketState {
        let other_ticks = other.now_ticks(to).saturating_sub(other.now_ticks(from));
        let refilled_ticks = scale_down(other_ticks, self.ticks.per_unit, other.ticks.per_unit);
        let level_ticks = self.level_ticks(state, from).saturating_sub(refilled_ticks);
        BucketState { full_at_ticks: self.full_at_ticks(level_ticks, to), held: state.held }
    }

    /// Units by which a bucket is overdrawn, rounded up.
    #[must_use]
    pub fn overdrawn(&self, state: &BucketState, now: Timestamp) -> u64 {
        let ticks = self.level_ticks(state, now).saturating_sub(self.capacity_ticks);
        self.units_up(ticks, u64::MAX)
    }

    /// How far the bucket is from full, in ticks, never less than what is held.
    #[inline(always)]
    fn level_ticks(&self, state: &BucketState, now: Timestamp) -> u128 {
        let level = state.full_at_ticks.saturating_sub(self.now_ticks(now));
        level.max(self.cost_ticks(state.held))
    }

    #[inline(always)]
    fn now_ticks(&self, now: Timestamp) -> u128 {
        u128::from(now.as_nanos()) * u128::from(self.ticks.per_ns)
    }

    #[inline(always)]
    fn cost_ticks(&self, cost: u64) -> u128 {
        u128::from(cost) * u128::from(self.ticks.per_unit)
    }

    /// The one decision: does `cost` fit above `level_ticks`, and what remains then?
    #[inline(always)]
    fn decide(&self, state: &BucketState, cost: u64, now: Timestamp) -> (Decision, u128) {
        let level_ticks = self.level_ticks(state, now);
        // The level is below 2^96, or what is held, below 2^127. The cost is below 2^127 too: no
        // overflow whatever it is.
        let wanted_ticks = level_ticks + self.cost_ticks(cost);
        let outcome = if wanted_ticks <= self.capacity_ticks {
            Outcome::Allow
        } else if cost > self.burst {
            Outcome::DenyForEver
        } else if cost.checked_add(state.held).is_none_or(|taken| taken > self.burst) {
            Outcome::DenyUnknown
        } else {
            Outcome::DenyForNow
        };
        let level_after = match outcome {
            Outcome::Allow => wanted_ticks,
            _ => level_ticks,
        };
        let decision = Decision {
            outcome,
            limit: self.burst,
            now,
            room_ticks: self.capacity_ticks.saturating_sub(level_after),
            lack_ticks: wanted_ticks.saturating_sub(self.capacity_ticks),
            spent_ticks: level_after,
            ticks_per_unit: self.ticks.per_unit,
            ticks_per_ns: self.ticks.per_ns,
            span: Span::BY_TICKS,
        };
        (decision, level_after)
    }

    #[inline(always)]
    fn set_level(&self, state: &mut BucketState, level_ticks: u128, now: Timestamp) {
        state.full_at_ticks = self.now_ticks(now) + level_ticks;
    }

    /// What was charged and has not been refilled.
    fn outstanding_ticks(&self, state: &BucketState, now: Timestamp) -> u128 {
        self.level_ticks(state, now) - self.cost_ticks(state.held)
    }

    fn refund_ticks(&self, state: &mut BucketState, ticks: u128, now: Timestamp) {
        if ticks > 0 {
            let level_ticks = self.level_ticks(state, now);
            state.full_at_ticks = self.full_at_ticks(level_ticks - ticks, now);
        }
    }

    /// Ticks of at most `most` units, as units, rounded up.
    fn units_up(&self, ticks: u128, most: u64) -> u64 {
        u64::try_from(ticks.div_ceil(u128::from(self.ticks.per_unit))).unwrap_or(most)
    }

    /// When a bucket of this level is full again. An edit may have left a level beyond any
    /// capacity; it is cut to what the state can hold, which takes longer than the clock to drain.
    fn full_at_ticks(&self, level_ticks: u128, now: Timestamp) -> u128 {
        self.now_ticks(now).saturating_add(level_ticks).min(MAX_FULL_AT_TICKS)
    }
}

impl Algorithm for Bucket {
    type State = BucketState;

    #[inline(always)]
    fn fresh(&self) -> BucketState {
        BucketState { full_at_ticks: 0, held: 0 }
    }

    #[inline(always)]
    fn is_idle(&self, state: &BucketState, now: Timestamp) -> bool {
        state.held == 0 && state.full_at_ticks <= self.now_ticks(now)
    }

    #[inline(always)]
    fn check(&self, state: &mut BucketState, cost: u64, now: Timestamp) -> Decision {
        let (decision, level_after) = self.decide(state, cost, now);
        if decision.is_allowed() && cost > 0 {
            self.set_level(state, level_after, now);
        }
        decision
    }

    /// More than the burst where it is overdrawn.
    fn used(&self, state: &BucketState, now: Timestamp) -> u64 {
        self.units_up(self.outstanding_ticks(state, now), u64::MAX)
    }

    fn refund(&self, state: &mut BucketState, units: u64, now: Timestamp) -> u64 {
        let ticks = self.cost_ticks(units).min(self.outstanding_ticks(state, now));
        self.refund_ticks(state, ticks, now);
        self.units_up(ticks, units)
    }

    /// In ticks: what is left of a unit is not rounded up to a whole one.
    fn refund_charge(
        &self,
        state: &mut BucketState,
        charge: &mut BucketState,
        units: u64,
        now: Timestamp,
    ) -> u64 {
        let ticks = (self.cost_ticks(units))
            .min(self.outstanding_ticks(charge, now))
            .min(self.outstanding_ticks(state, now));
        self.refund_ticks(state, ticks, now);
        self.refund_ticks(charge, ticks, now);
        self.units_up(ticks, units)
    }

    fn hold(&self, state: &mut BucketState, units: u64, now: Timestamp) -> Decision {
        let decision = self.check(state, units, now);
        if decision.is_allowed() {
            state.held += units;
        }
        decision
    }

    fn commit(&self, state: &mut BucketState, units: u64, actual: u64, now: Timestamp) -> u64 {
        let units = units.min(state.held);
        let level_ticks = self.level_ticks(state, now) - self.cost_ticks(units);
        state.held -= units;
        let overdrawn_ticks = self.capacity_ticks + self.cost_ticks(self.debt);
        let most_ticks = overdrawn_ticks.min(MAX_FULL_AT_TICKS - self.now_ticks(now));
        let room_ticks = most_ticks.saturating_sub(level_ticks);
        let room = u64::try_from(room_ticks / u128::from(self.ticks.per_unit)).unwrap_or(u64::MAX);
        // Held units can always be charged, even where an edit has lowered the burst.
        let charged = actual.min(room.max(units));
        state.full_at_ticks = self.full_at_ticks(level_ticks + self.cost_ticks(charged), now);
        charged
    }

    fn cancel(&self, state: &mut BucketState, units: u64, now: Timestamp) {
        self.commit(state, units, 0, now);
    }

    /// The same numbers counted in ticks that divide the old ones, where such ticks fit, so that
    /// charges carry over exactly, there and back.
    fn succeeding(self, old: &Self) -> Self {
        let factor = old.ticks.per_unit / gcd(old.ticks.per_unit, self.ticks.per_unit);
        let finer = (self.ticks.per_ns.checked_mul(factor))
            .zip(self.ticks.per_unit.checked_mul(factor))
            .map(|(per_ns, per_unit)| Ticks { per_ns, per_unit });
        finer
            .and_then(|ticks| Self::with_ticks(self.rate, self.burst, self.debt, ticks).ok())
            .unwrap_or(self)
    }

    fn carry_over(&self, old: &Self, state: &BucketState, at: Timestamp) -> BucketState {
        if self.ticks == old.ticks {
            return *state;
        }
        let level_ticks = old.level_ticks(state, at);
        let level_ticks = scale_up(level_ticks, self.ticks.per_unit, old.ticks.per_unit);
        BucketState { full_at_ticks: self.full_at_ticks(level_ticks, at), held: state.held }
    }

    #[inline(always)]
    fn to_words(&self) -> [u64; 4] {
        [self.ticks.per_ns, self.ticks.per_unit, self.burst, self.debt]
    }

    #[inline(always)]
    fn from_words([per_ns, per_unit, burst, debt]: [u64; 4]) -> Self {
        Self {
            rate: Rate::from_ticks(per_ns, per_unit),
            burst,
            debt,
            ticks: Ticks { per_ns, per_unit },
            capacity_ticks: u128::from(burst) * u128::from(per_unit),
        }
    }

    fn join(&self, a: &BucketState, b: &BucketState) -> BucketState {
        BucketState {
            full_at_ticks: a.full_at_ticks.max(b.full_at_ticks),
            held: a.held.max(b.held),
        }
    }
}

/// Buckets are equal when their numbers are, whatever ticks they count in.
impl PartialEq for Bucket {
    fn eq(&self, other: &Self) -> bool {
        (self.rate, self.burst, self.debt) == (other.rate, other.burst, other.debt)
    }
}

impl Eq for Bucket {}

/// `value · multiplier / divisor`, rounded up; `value` is below 2^96. Saturates.
fn scale_up(value: u128, multiplier: u64, divisor: u64) -> u128 {
    let (multiplier, divisor) = (u128::from(multiplier), u128::from(divisor));
    let (whole, rest) = (value / divisor, value % divisor);
    // rest < 2^64 and multiplier < 2^64, so only the whole part can overflow.
    whole.saturating_mul(multiplier).saturating_add((rest * multiplier).div_ceil(divisor))
}

/// `value · multiplier / divisor`, rounded down. Saturates.
fn scale_down(value: u128, multiplier: u64, divisor: u64) -> u128 {
    let (multiplier, divisor) = (u128::from(multiplier), u128::from(divisor));
    let (whole, rest) = (value / divisor, value % divisor);
    whole.saturating_mul(multiplier).saturating_add(rest * multiplier / divisor)
}

/// A power of two, as small as the rounding of common rates allows: the longest time per unit is
/// 2^63 ticks.
const COMMON_TICKS_PER_NS: u64 = 1 << 8;
/// A debt without a bound, and one of as many units as there can be.
const ALL_DEBT: u64 = u64::MAX;
const MAX_TICKS_PER_NS: u64 = (1 << 32) - 1;
const MAX_TICKS_PER_UNIT: u64 = u64::MAX >> 1;
const MAX_CAPACITY_TICKS: u128 = 1 << 95;
const MAX_FULL_AT_TICKS: u128 = (1 << 96) - 1;

#[cfg(test)]
mod tests;
