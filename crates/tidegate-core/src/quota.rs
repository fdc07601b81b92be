use core::time::Duration;

use crate::decision::{Outcome, Span};
use crate::error::{LimitError, constant, nonzero, valid};
use crate::{Decision, Timestamp};

mod settle;

pub use settle::{Committed, HeldUnits, QuotaCharge};

/// An amount per period, where the periods come from outside: calendar months, or rounds that the
/// host closes.
///
/// The arithmetic knows only that periods are numbered upwards. Unused units lapse when a period
/// closes, or carry over according to [`Carry`]. Checks and holds never overdraw; a commit of more
/// than was held may, according to [`Debt`], and the next periods pay for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    max: u64,
    carry: Carry,
    debt: Debt,
}

/// What happens to unused units when a period closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// They lapse.
    Nothing,
    /// They are added to the next period, up to this many.
    UpTo(u64),
    /// They are added to the next period, all of them.
    All,
}

/// How far commits may overdraw, for costs that are known only afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    /// As far as they cost: nothing is forgiven.
    All,
    /// Until this many units are owed; what is beyond that is forgiven.
    UpTo(u64),
    /// Not at all: what is beyond the quota is forgiven.
    Nothing,
}

impl Debt {
    /// Up to this many units; 0 is [`Debt::Nothing`].
    #[must_use]
    pub const fn up_to(units: u64) -> Self {
        match units {
            0 => Self::Nothing,
            units => Self::UpTo(units),
        }
    }
}

/// The open period: its number, and when it ends if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its number. Periods are numbered upwards; gaps are periods in which nothing happened.
    pub index: u64,
    /// When it ends; `None` for a round that the host closes.
    pub ends: Option<Timestamp>,
}

/// The state of a [`Quota`] for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaState {
    /// The period that `used` and `carried` belong to.
    pub period: u64,
    /// Units charged in that period.
    pub used: u64,
    /// Units carried over from earlier periods.
    pub carried: u64,
    /// Units on hold.
    pub held: u64,
    /// The earliest period whose holds are in `held`: without carry, a hold ends with its period.
    pub held_from: u64,
    /// Units owed by this period and the next ones.
    pub debt: u64,
}

impl Quota {
    /// `max` units per period.
    ///
    /// Wrong numbers do not compile in a constant, and panic elsewhere; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(max: u64, carry: Carry) -> Self {
        constant(Self::try_new(max, carry))
    }

    /// The same of numbers from outside, which may be wrong.
    pub const fn try_new(max: u64, carry: Carry) -> Result<Self, LimitError> {
        if let Carry::UpTo(bound) = carry {
            valid!(nonzero("carry", bound));
        }
        Ok(Self { max: valid!(nonzero("max", max)), carry, debt: Debt::All })
    }

    /// The same quota, whose commits may overdraw it this far; [`Debt::All`] unless set.
    pub const fn with_debt(self, debt: Debt) -> Result<Self, LimitError> {
        if let Debt::UpTo(bound) = debt {
            valid!(nonzero("debt", bound));
        }
        Ok(Self { debt, ..self })
    }

    /// Units that each period adds.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// What happens to unused units.
    #[must_use]
    pub const fn carry(&self) -> Carry {
        self.carry
    }

    /// How far commits may overdraw.
    #[must_use]
    pub const fn debt(&self) -> Debt {
        self.debt
    }

    /// The state of a key that is new in `period`.
    #[must_use]
    pub const fn fresh(&self, period: Period) -> QuotaState {
        let index = period.index;
        QuotaState { period: index, used: 0, carried: 0, held: 0, held_from: index, debt: 0 }
    }

    /// Charges `cost` if it fits, else charges nothing.
    pub fn check(
        &self,
        state: &mut QuotaState,
        cost: u64,
        period: Period,
        now: Timestamp,
    ) -> Decision {
        let current = self.current(state, period);
        let decision = self.decide(&current, cost, period, now);
        if decision.is_allowed() && cost > 0 {
            *state = QuotaState { used: current.used + cost, ..current };
        }
        decision
    }

    /// Whether [`check`](Self::check) would allow `cost`, and else how long to wait. Charges
    /// nothing, so `remaining` does not include the cost.
    pub fn peek(&self, state: &QuotaState, cost: u64, period: Period, now: Timestamp) -> Decision {
        let current = self.current(state, period);
        let decision = self.decide(&current, cost, period, now);
        decision.uncharged(&self.decide(&current, 0, period, now))
    }

    /// Charges `cost` in full, whatever is left, and allows it if a whole unit was left before: for
    /// costs that are known only afterwards. A cost of 0 is allowed if one is left now.
    ///
    /// A denial is charged as well, so its wait is the time until a unit is left again.
    pub fn check_postpaid(
        &self,
        state: &mut QuotaState,
        cost: u64,
        period: Period,
        now: Timestamp,
    ) -> Decision {
        let before = self.peek(state, 1, period, now);
        let _ = self.count(state, cost, period);
        if before.is_allowed() {
            before.uncharged(&self.peek(state, 0, period, now))
        } else {
            self.peek(state, 1, period, now)
        }
    }

    /// Units that the open period was charged or owes, without those on hold; more than it has where
    /// it is overdrawn.
    #[must_use]
    pub fn used(&self, state: &QuotaState, period: Period) -> u64 {
        let current = self.current(state, period);
        current.used.saturating_add(current.debt)
    }

    /// The state as of `period`: closed periods have paid debt, and what they had left has carried
    /// over or lapsed.
    ///
    /// A period that is numbered lower than the state's is an old one read late: the state stays.
    #[must_use]
    pub fn current(&self, state: &QuotaState, period: Period) -> QuotaState {
        let closed = period.index.saturating_sub(state.period);
        if closed == 0 {
            return *state;
        }
        let room = self.capacity(state).saturating_sub(state.used);
        // At most (2^64 - 1)^2 + 2^64 - 1: no overflow.
        let room = u128::from(room) + u128::from(self.max) * u128::from(closed - 1);
        let unused = saturated(room.saturating_sub(state.debt.into()));
        let carried = match self.carry {
            Carry::Nothing => 0,
            Carry::UpTo(bound) => unused.min(bound),
            Carry::All => unused,
        };
        let (held, held_from) = match self.carry {
            Carry::Nothing => (0, period.index),
            Carry::UpTo(_) | Carry::All => (state.held, state.held_from),
        };
        let debt = state.debt.saturating_sub(saturated(room));
        QuotaState { period: period.index, used: 0, carried, held, held_from, debt }
    }

    /// A state at least as restrictive as both: the state of two keys that share one counter.
    #[must_use]
    pub fn join(&self, a: &QuotaState, b: &QuotaState) -> QuotaState {
        let (later, earlier) = if a.period >= b.period { (a, b) } else { (b, a) };
        let earlier = self.current(earlier, Period { index: later.period, ends: None });
        QuotaState {
            period: later.period,
            used: later.used.max(earlier.used),
            carried: later.carried.min(earlier.carried),
            held: later.held.max(earlier.held),
            // Each hold of either can be released.
            held_from: later.held_from.min(earlier.held_from),
            debt: later.debt.max(earlier.debt),
        }
    }

    /// What the state's period has.
    fn capacity(&self, current: &QuotaState) -> u64 {
        self.max.saturating_add(current.carried)
    }

    fn available(&self, current: &QuotaState) -> u64 {
        saturated(u128::from(self.capacity(current)).saturating_sub(current.taken()))
    }

    /// Whether `cost` fits; no cost fits an overdrawn period, not even zero.
    fn fits(&self, current: &QuotaState, cost: u64) -> bool {
        current.taken() + u128::from(cost) <= u128::from(self.capacity(current))
    }

    fn decide(&self, current: &QuotaState, cost: u64, period: Period, now: Timestamp) -> Decision {
        // The end of a period that is over, or older than the state, says nothing about a retry.
        let is_open = period.index == current.period;
        let ends = period.ends.filter(|&ends| is_open && ends > now);
        let outcome = if self.fits(current, cost) {
            Outcome::Allow
        } else if cost > self.most_ever() {
            Outcome::DenyForEver
        } else if ends.is_some() && self.fits(&self.next(current), cost) {
            Outcome::DenyForNow
        } else {
            // A round that the host closes, a hold, or more periods than this one.
            Outcome::DenyUnknown
        };
        let charged = if outcome == Outcome::Allow { cost } else { 0 };
        let ends_ticks = u128::from(ends.map_or(u64::MAX, |ends| ends.as_nanos() - now.as_nanos()));
        let spent_ticks = match current.taken() + u128::from(charged) {
            0 => 0,
            // When the debt is paid is unknown, unless the open period pays it.
            _ if current.debt > 0 && self.next(current).debt > 0 => u128::from(u64::MAX),
            _ => ends_ticks,
        };
        Decision {
            outcome,
            limit: self.capacity(current),
            now,
            room_ticks: u128::from(self.available(current) - charged),
            lack_ticks: ends_ticks,
            spent_ticks,
            ticks_per_unit: 1,
            ticks_per_ns: 1,
            span: Span::UNKNOWN,
        }
    }

    /// The largest cost that some period could allow.
    fn most_ever(&self) -> u64 {
        match self.carry {
            Carry::Nothing => self.max,
            Carry::UpTo(bound) => self.max.saturating_add(bound),
            Carry::All => u64::MAX,
        }
    }

    /// The state after the open period has closed.
    fn next(&self, current: &QuotaState) -> QuotaState {
        let index = current.period.saturating_add(1);
        self.current(current, Period { index, ends: None })
    }
}

impl QuotaState {
    /// What is not available.
    fn taken(&self) -> u128 {
        u128::from(self.used) + u128::from(self.held) + u128::from(self.debt)
    }
}

impl Period {
    /// The time until it ends, if that is known.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let ends = self.ends?;
        Some(Duration::from_nanos(ends.as_nanos().saturating_sub(now.as_nanos())))
    }
}

fn saturated(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
