//! Holds on a quota, commits and refunds.

use super::{Debt, Period, Quota, QuotaState};
use crate::{Decision, Timestamp};

/// Units on hold, and the period of the state that the hold left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldUnits {
    /// How many.
    pub units: u64,
    /// [`QuotaState::period`] after the hold.
    pub period: u64,
}

/// What a commit came to.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Units charged, `debt` and `closed` among them.
    pub charged: u64,
    /// The part that overdrew the quota.
    pub debt: u64,
    /// The part that was booked to the closed period of the hold: no open period has paid for it,
    /// and none gets it back.
    pub closed: u64,
    /// Units of the cost that were not charged.
    pub forgiven: u64,
}

/// One commit's charge, for refunds of it and of no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaCharge {
    /// The state as the commit left it, less refunds. In a later period nothing of it is `used`.
    pub state: QuotaState,
    /// Units that the commit charged to the open period, less refunds.
    pub units: u64,
    /// What of those units is owed by later periods.
    pub debt: u64,
}

impl Quota {
    /// Holds `units` if they fit. Without carry, the hold ends with its period.
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

    /// Turns a hold into a charge of `actual`.
    ///
    /// The open period is charged what was held, or what there is room for if that is more. The
    /// rest overdraws it as far as [`Debt`] allows, and beyond that is forgiven. A hold whose
    /// period has ended charges its units to that period.
    pub fn commit(
        &self,
        state: &mut QuotaState,
        held: HeldUnits,
        actual: u64,
        period: Period,
    ) -> Committed {
        let mut current = self.current(state, period);
        let is_closed = held.period < current.held_from;
        let units = current.release(held);
        let closed = if is_closed { actual.min(held.units) } else { 0 };
        let open = actual - closed;
        let used = open.min(self.available(&current).max(units));
        let debt = (open - used).min(self.credit(&current));
        current.used = current.used.saturating_add(used);
        current.debt += debt;
        *state = current;
        let charged = closed + used + debt;
        Committed { charged, debt, closed, forgiven: actual - charged }
    }

    /// Charges `cost` whether or not it fits, as far as [`Debt`] allows.
    pub fn count(&self, state: &mut QuotaState, cost: u64, period: Period) -> Committed {
        if cost == 0 {
            return Committed::default();
        }
        self.commit(
            state,
            HeldUnits { units: 0, period: period.index.max(state.period) },
            cost,
            period,
        )
    }

    /// Releases a hold.
    pub fn cancel(&self, state: &mut QuotaState, held: HeldUnits, period: Period) {
        let mut current = self.current(state, period);
        current.release(held);
        *state = current;
    }

    /// Refunds up to `units` that were charged in the open period or are owed, debt first, and
    /// returns how many.
    ///
    /// What a closed period has paid for is not refunded.
    pub fn refund(&self, state: &mut QuotaState, units: u64, period: Period) -> u64 {
        let mut current = self.current(state, period);
        let from_debt = units.min(current.debt);
        let from_used = (units - from_debt).min(current.used);
        if from_debt + from_used > 0 {
            current.debt -= from_debt;
            current.used -= from_used;
            *state = current;
        }
        from_debt + from_used
    }

    /// Refunds up to `units` of one charge, and returns how many: what was charged to the open
    /// period, or is owed in a later one. The refund is taken from `charge` as well.
    ///
    /// No more is available afterwards than if there had been no such charge.
    pub fn refund_charge(
        &self,
        state: &mut QuotaState,
        charge: &mut QuotaCharge,
        units: u64,
        period: Period,
    ) -> u64 {
        let index = period.index.max(charge.state.period);
        let mut current = self.current(state, Period { index, ends: None });
        let mut left = self.outstanding(charge, current.period);
        let units = units.min(left.units);
        let refunded = if left.state.used > 0 {
            let refunded = self.give_back(&mut current, units);
            self.give_back(&mut left.state, refunded)
        } else {
            // What is used in the open period belongs to other charges.
            let refunded = units.min(current.debt).min(left.state.debt);
            current.debt -= refunded;
            left.state.debt -= refunded;
            refunded
        };
        left.units -= refunded;
        left.debt = left.debt.min(left.units).min(left.state.debt);
        *charge = left;
        if refunded > 0 {
            *state = current;
        }
        refunded
    }

    /// A charge as of a period that is not before its own.
    fn outstanding(&self, charge: &QuotaCharge, index: u64) -> QuotaCharge {
        if index <= charge.state.period {
            return *charge;
        }
        // Of the used units beyond the period's, those of this charge are gone.
        let used = charge.units.saturating_sub(charge.debt);
        let beyond = self.beyond(&charge.state).min(used);
        let state = self.current(&charge.state, Period { index, ends: None });
        let units = charge.units.saturating_sub(beyond).min(state.debt);
        QuotaCharge { state, units, debt: charge.debt.min(units) }
    }

    /// Takes up to `units` off a state, and returns how many: used units that the period does not
    /// have, as no later period pays for them, then debt, then used units.
    fn give_back(&self, current: &mut QuotaState, units: u64) -> u64 {
        let from_beyond = units.min(self.beyond(current));
        current.used -= from_beyond;
        let from_debt = (units - from_beyond).min(current.debt);
        current.debt -= from_debt;
        let from_used = (units - from_beyond - from_debt).min(current.used);
        current.used -= from_used;
        from_beyond + from_debt + from_used
    }

    /// Used units that the period does not have, once everything on hold is used as well: its limit
    /// was lowered, or debt took what was to be carried over to a hold.
    fn beyond(&self, current: &QuotaState) -> u64 {
        let taken = current.used.saturating_add(current.held);
        taken.saturating_sub(self.capacity(current)).min(current.used)
    }

    /// How much more a commit may overdraw.
    fn credit(&self, current: &QuotaState) -> u64 {
        let most = match self.debt {
            Debt::All => u64::MAX,
            Debt::UpTo(bound) => bound,
            Debt::Nothing => 0,
        };
        most.saturating_sub(current.debt)
    }
}

impl QuotaCharge {
    /// The charge of a commit that left this state.
    #[must_use]
    pub const fn new(state: QuotaState, committed: &Committed) -> Self {
        let units = committed.charged - committed.closed;
        Self { state, units, debt: committed.debt }
    }
}

impl QuotaState {
    /// Takes a hold off the held units, and returns how many it had among them.
    fn release(&mut self, held: HeldUnits) -> u64 {
        let is_closed = held.period < self.held_from;
        let units = if is_closed { 0 } else { held.units.min(self.held) };
        self.held -= units;
        units
    }
}
