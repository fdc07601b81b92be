use core::time::Duration;

use crate::decision::{Outcome, Span};
use crate::error::{constant, valid};
use crate::time::{duration, period_ns};
use crate::{Algorithm, Decision, LimitError, Timestamp};

/// A minimum gap between admissions. The cost does not matter.
///
/// A cooldown counts admissions, not units: a cancelled hold or a refund does not undo the
/// admission, so it returns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown {
    gap_ns: u64,
    extended_by_refusals: bool,
}

/// The state of a [`Cooldown`] for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CooldownState {
    /// One more than the time in nanoseconds from which the gap counts; 0 when there is none.
    pub since_ns_plus_1: u64,
}

impl Cooldown {
    /// At least `gap` between two admissions.
    ///
    /// A wrong gap does not compile in a constant, and panics elsewhere; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(gap: Duration) -> Self {
        constant(Self::try_new(gap))
    }

    /// The same of a gap from outside, which may be wrong.
    pub const fn try_new(gap: Duration) -> Result<Self, LimitError> {
        Ok(Self { gap_ns: valid!(period_ns("cooldown", gap)), extended_by_refusals: false })
    }

    /// The same cooldown, but a denied attempt restarts the gap.
    #[must_use]
    pub const fn extended_by_refusals(self) -> Self {
        Self { extended_by_refusals: true, ..self }
    }

    /// The gap.
    #[must_use]
    pub fn gap(&self) -> Duration {
        duration(self.gap_ns)
    }

    /// When the gap is over. At most 2^64 − 2: no overflow.
    /// Ends the cooldown whose request left the state `begun`, as if that had never been allowed.
    /// A later one stays.
    pub fn void(&self, state: &mut CooldownState, begun: &CooldownState) {
        if state == begun {
            *state = self.fresh();
        }
    }

    #[inline(always)]
    fn over_at_ns(&self, state: &CooldownState) -> u64 {
        match state.since_ns_plus_1.checked_sub(1) {
            Some(since_ns) => since_ns + self.gap_ns,
            None => 0,
        }
    }
}

impl Algorithm for Cooldown {
    type State = CooldownState;

    #[inline(always)]
    fn fresh(&self) -> CooldownState {
        CooldownState { since_ns_plus_1: 0 }
    }

    #[inline(always)]
    fn is_idle(&self, state: &CooldownState, now: Timestamp) -> bool {
        self.over_at_ns(state) <= now.as_nanos()
    }

    #[inline(always)]
    fn check(&self, state: &mut CooldownState, cost: u64, now: Timestamp) -> Decision {
        let is_over = self.is_idle(state, now);
        if cost > 0 && (is_over || self.extended_by_refusals) {
            state.since_ns_plus_1 = state.since_ns_plus_1.max(now.as_nanos() + 1);
        }
        let left_ns = u128::from(self.over_at_ns(state).saturating_sub(now.as_nanos()));
        Decision {
            outcome: if is_over { Outcome::Allow } else { Outcome::DenyForNow },
            limit: 1,
            now,
            room_ticks: u128::from(is_over && cost == 0),
            lack_ticks: left_ns,
            spent_ticks: left_ns,
            ticks_per_unit: 1,
            ticks_per_ns: 1,
            span: Span(self.gap_ns),
        }
    }

    fn peek(&self, state: &CooldownState, cost: u64, now: Timestamp) -> Decision {
        // A peek must not extend the gap that it reports.
        let plain = Self { extended_by_refusals: false, ..*self };
        plain.check(&mut { *state }, cost, now).uncharged(&plain.check(&mut { *state }, 0, now))
    }

    /// One while the gap lasts.
    fn used(&self, state: &CooldownState, now: Timestamp) -> u64 {
        u64::from(!self.is_idle(state, now))
    }

    fn refund(&self, _state: &mut CooldownState, _units: u64, _now: Timestamp) -> u64 {
        0
    }

    fn hold(&self, state: &mut CooldownState, units: u64, now: Timestamp) -> Decision {
        self.check(state, units, now)
    }

    fn commit(&self, _state: &mut CooldownState, _units: u64, actual: u64, _now: Timestamp) -> u64 {
        actual
    }

    fn cancel(&self, _state: &mut CooldownState, _units: u64, _now: Timestamp) {}

    /// The gap is counted from the same moment; only its length changes.
    fn carry_over(&self, _old: &Self, state: &CooldownState, _at: Timestamp) -> CooldownState {
        *state
    }

    #[inline(always)]
    fn to_words(&self) -> [u64; 4] {
        [self.gap_ns, u64::from(self.extended_by_refusals), 0, 0]
    }

    #[inline(always)]
    fn from_words([gap_ns, extended_by_refusals, _, _]: [u64; 4]) -> Self {
        Self { gap_ns, extended_by_refusals: extended_by_refusals == 1 }
    }

    fn join(&self, a: &CooldownState, b: &CooldownState) -> CooldownState {
        CooldownState { since_ns_plus_1: a.since_ns_plus_1.max(b.since_ns_plus_1) }
    }
}

#[cfg(test)]
mod tests;
