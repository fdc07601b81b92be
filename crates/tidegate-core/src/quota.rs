use std::time::Duration;

use crate::decision::{Outcome, Span};
use crate::error::{LimitError, nonzero};
use crate::{Decision, Timestamp};

/// An amount per period, where the periods come from outside: calendar months, or rounds that the
/// host closes.
///
/// The arithmetic knows only that periods are numbered upwards. Unused units lapse when a period
/// closes, or carry over according to [`Carry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    max: u64,
    carry: Carry,
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
    /// Units on hold, whatever period they were held in.
    pub held: u64,
}

impl Quota {
    /// `max` units per period.
    pub fn new(max: u64, carry: Carry) -> Result<Self, LimitError> {
        if let Carry::UpTo(bound) = carry {
            nonzero("carry", bound)?;
        }
        Ok(Self { max: nonzero("max", max)?, carry })
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

    /// The state of a key that is new in `period`.
    #[must_use]
    pub const fn fresh(&self, period: Period) -> QuotaState {
        QuotaState { period: period.index, used: 0, carried: 0, held: 0 }
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

    /// Refunds up to `units` that were charged in the open period, and returns how many.
    ///
    /// A closed period returns nothing.
    pub fn refund(&self, state: &mut QuotaState, units: u64, period: Period) -> u64 {
        let mut current = self.current(state, period);
        let given = units.min(current.used);
        if given > 0 {
            current.used -= given;
            *state = current;
        }
        given
    }

    /// Refunds up to `units` of one charge, and returns how many. `charge` is the state as that
    /// charge left it; the refund is taken from it as well.
    pub fn refund_charge(
        &self,
        state: &mut QuotaState,
        charge: &mut QuotaState,
        units: u64,
        period: Period,
    ) -> u64 {
        let outstanding = self.refund(&mut { *charge }, units, period);
        let refunded = self.refund(state, units.min(outstanding), period);
        self.refund(charge, refunded, period);
        refunded
    }

    /// Holds `units` if they fit.
    pub fn hold(
        &self,
        state: &mut QuotaState,
        units: u64,
        period: Period,
        now: Timestamp,
    ) -> Decision {
        let current = self.current(state, period);
        let decision = self.decide(&current, units, period, now);
        if decision.is_allowed() && units > 0 {
            *state = QuotaState { held: current.held + units, ..current };
        }
        decision
    }

    /// Turns a hold of `units` into a charge of `actual` in the open period, and returns how much
    /// of it was charged: what was held, and what else there is room for.
    pub fn commit(&self, state: &mut QuotaState, units: u64, actual: u64, period: Period) -> u64 {
        let mut current = self.current(state, period);
        let units = units.min(current.held);
        current.held -= units;
        let charged = actual.min(self.available(&current).max(units));
        current.used = current.used.saturating_add(charged);
        *state = current;
        charged
    }

    /// Releases a hold of `units`.
    pub fn cancel(&self, state: &mut QuotaState, units: u64, period: Period) {
        self.commit(state, units, 0, period);
    }

    /// The state as of `period`: closed periods have carried over or lapsed.
    ///
    /// A period that is numbered lower than the state's is an old one read late: the state stays.
    #[must_use]
    pub fn current(&self, state: &QuotaState, period: Period) -> QuotaState {
        let closed = period.index.saturating_sub(state.period);
        if closed == 0 {
            return *state;
        }
        let unused = self.max.saturating_add(state.carried).saturating_sub(state.used);
        let unused = unused.saturating_add(self.max.saturating_mul(closed - 1));
        let carried = match self.carry {
            Carry::Nothing => 0,
            Carry::UpTo(bound) => unused.min(bound),
            Carry::All => unused,
        };
        QuotaState { period: period.index, used: 0, carried, held: state.held }
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
        }
    }

    fn available(&self, current: &QuotaState) -> u64 {
        let taken = current.used.saturating_add(current.held);
        self.max.saturating_add(current.carried).saturating_sub(taken)
    }

    fn decide(&self, current: &QuotaState, cost: u64, period: Period, now: Timestamp) -> Decision {
        let available = self.available(current);
        // The end of a period that is over, or older than the state, says nothing about a retry.
        let is_open = period.index == current.period;
        let ends = period.ends.filter(|&ends| is_open && ends > now);
        let outcome = if cost <= available {
            Outcome::Allow
        } else if cost > self.most_ever() {
            Outcome::DenyForEver
        } else if ends.is_some() && cost <= self.available(&self.next(current)) {
            Outcome::DenyForNow
        } else {
            // A round that the host closes, a hold, or more periods than this one.
            Outcome::DenyUnknown
        };
        let charged = if outcome == Outcome::Allow { cost } else { 0 };
        let ends_ns = ends.map(|ends| ends.as_nanos() - now.as_nanos());
        let is_touched = current.used.saturating_add(current.held).saturating_add(charged) > 0;
        Decision {
            outcome,
            limit: self.max,
            now,
            room_ticks: u128::from(available - charged),
            lack_ticks: u128::from(ends_ns.unwrap_or(u64::MAX)),
            spent_ticks: if is_touched { u128::from(ends_ns.unwrap_or(u64::MAX)) } else { 0 },
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

impl Period {
    /// The time until it ends, if that is known.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let ends = self.ends?;
        Some(Duration::from_nanos(ends.as_nanos().saturating_sub(now.as_nanos())))
    }
}

#[cfg(test)]
mod tests;
