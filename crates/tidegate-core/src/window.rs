use core::time::Duration;

use crate::decision::{Outcome, Span};
use crate::error::{LimitError, at_most, constant, nonzero, valid};
use crate::time::{duration, period_ns};
use crate::{Algorithm, Decision, Timestamp};

/// A fixed window: at most `max` units in each window of length `per`.
///
/// A window opens with the key's first charge, or, when [aligned](Self::aligned), on the grid of
/// multiples of `per` since the clock's origin. A window in which nothing is used is not open; a
/// hold alone does not open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    max: u64,
    per_ns: u64,
    aligned: bool,
}

/// The state of a [`Window`] for one key.
///
/// It has the end of the open window, not its start, so that changing the length does not affect
/// the open window and can never refill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// When the open window ends; it may run past the end of the clock.
    pub ends_ns: u64,
    /// Units charged in the open window.
    pub used: u64,
    /// Units on hold. They stay on hold when the window ends.
    pub held: u64,
}

impl Window {
    /// At most `max` units per window of length `per`, which opens with the key's first charge.
    ///
    /// `max` has to be below 2^32, so that a state fits into a slot of a table. Larger amounts are
    /// for a [`Bucket`](crate::Bucket) or a [`Quota`](crate::Quota).
    ///
    /// Wrong numbers do not compile in a constant, and panic elsewhere; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(max: u64, per: Duration) -> Self {
        constant(Self::try_new(max, per))
    }

    /// The same of numbers from outside, which may be wrong.
    pub const fn try_new(max: u64, per: Duration) -> Result<Self, LimitError> {
        let max = valid!(at_most("max", valid!(nonzero("max", max)), u32::MAX as u64));
        Ok(Self { max, per_ns: valid!(period_ns("per", per)), aligned: false })
    }

    /// The same window, but on the grid of multiples of `per` since the clock's origin.
    #[must_use]
    pub const fn aligned(self) -> Self {
        Self { aligned: true, ..self }
    }

    /// Units per window.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Length of a window.
    #[must_use]
    pub fn per(&self) -> Duration {
        duration(self.per_ns)
    }

    /// Whether windows lie on the grid of the clock.
    #[must_use]
    pub const fn is_aligned(&self) -> bool {
        self.aligned
    }

    /// When a window ends that opens at `now`, in nanoseconds.
    #[must_use]
    pub fn end_of_window_at(&self, now: Timestamp) -> u64 {
        self.current(&self.fresh(), now).ends_ns
    }

    /// The state as of `now`: an ended window is replaced by one that `now` would open.
    #[inline(always)]
    fn current(&self, state: &WindowState, now: Timestamp) -> WindowState {
        if state.used > 0 && now.as_nanos() < state.ends_ns {
            return *state;
        }
        let start_ns = if self.aligned {
            now.as_nanos() - now.as_nanos() % self.per_ns
        } else {
            now.as_nanos()
        };
        // Both are at most 2^63 − 1: no overflow. The end that a hold left behind matters only to a
        // clock that has stepped back behind the hold.
        let ends_ns = (start_ns + self.per_ns).max(state.ends_ns);
        WindowState { ends_ns, used: 0, held: state.held }
    }

    /// The one decision, on a state that is current.
    #[inline(always)]
    fn decide(&self, current: &WindowState, cost: u64, now: Timestamp) -> Decision {
        let taken = current.used.saturating_add(current.held);
        let outcome = match taken.checked_add(cost) {
            Some(total) if total <= self.max => Outcome::Allow,
            _ if cost > self.max => Outcome::DenyForEver,
            _ if cost.checked_add(current.held).is_none_or(|taken| taken > self.max) => {
                Outcome::DenyUnknown
            }
            _ => Outcome::DenyForNow,
        };
        let charged = if outcome == Outcome::Allow { cost } else { 0 };
        let taken_after = taken.saturating_add(charged);
        let until_end_ns = u128::from(current.ends_ns.saturating_sub(now.as_nanos()));
        Decision {
            outcome,
            limit: self.max,
            now,
            room_ticks: u128::from(self.max.saturating_sub(taken_after)),
            lack_ticks: until_end_ns,
            spent_ticks: if taken_after > 0 { until_end_ns } else { 0 },
            ticks_per_unit: 1,
            ticks_per_ns: 1,
            span: Span(self.per_ns),
        }
    }

    /// An empty window becomes the fresh state.
    fn settle(&self, state: &mut WindowState) {
        if (state.used, state.held) == (0, 0) {
            *state = self.fresh();
        }
    }
}

impl Algorithm for Window {
    type State = WindowState;

    #[inline(always)]
    fn fresh(&self) -> WindowState {
        WindowState { ends_ns: 0, used: 0, held: 0 }
    }

    #[inline(always)]
    fn is_idle(&self, state: &WindowState, now: Timestamp) -> bool {
        state.held == 0 && (state.used == 0 || state.ends_ns <= now.as_nanos())
    }

    #[inline(always)]
    fn check(&self, state: &mut WindowState, cost: u64, now: Timestamp) -> Decision {
        let current = self.current(state, now);
        let decision = self.decide(&current, cost, now);
        if decision.is_allowed() && cost > 0 {
            *state = WindowState { used: current.used + cost, ..current };
        }
        decision
    }

    /// A count stays below 2^32. Nothing fits any more once it is past the maximum, not even a cost
    /// of 0.
    fn count(&self, state: &mut WindowState, cost: u64, now: Timestamp) -> u64 {
        let current = self.current(state, now);
        let counted = cost.min(countable(current.used));
        if counted > 0 {
            *state = WindowState { used: current.used + counted, ..current };
        }
        counted
    }

    fn used(&self, state: &WindowState, now: Timestamp) -> u64 {
        self.current(state, now).used
    }

    fn refund(&self, state: &mut WindowState, units: u64, now: Timestamp) -> u64 {
        let mut current = self.current(state, now);
        let given = units.min(current.used);
        if given > 0 {
            current.used -= given;
            self.settle(&mut current);
            *state = current;
        }
        given
    }

    fn hold(&self, state: &mut WindowState, units: u64, now: Timestamp) -> Decision {
        let current = self.current(state, now);
        let decision = self.decide(&current, units, now);
        if decision.is_allowed() && units > 0 {
            *state = WindowState { held: current.held + units, ..current };
        }
        decision
    }

    fn commit(&self, state: &mut WindowState, units: u64, actual: u64, now: Timestamp) -> u64 {
        let mut current = self.current(state, now);
        let units = units.min(current.held);
        current.held -= units;
        let room = self.max.saturating_sub(current.used.saturating_add(current.held));
        let charged = actual.min(room.max(units)).min(countable(current.used));
        if charged > 0 {
            current.used += charged;
            *state = current;
        }
        state.held = current.held;
        self.settle(state);
        charged
    }

    fn cancel(&self, state: &mut WindowState, units: u64, now: Timestamp) {
        self.commit(state, units, 0, now);
    }

    /// An open window keeps its end and what was used in it; a new length applies to the next one.
    fn carry_over(&self, _old: &Self, state: &WindowState, _at: Timestamp) -> WindowState {
        *state
    }

    #[inline(always)]
    fn to_words(&self) -> [u64; 4] {
        [self.max, self.per_ns, u64::from(self.aligned), 0]
    }

    #[inline(always)]
    fn from_words([max, per_ns, aligned, _]: [u64; 4]) -> Self {
        Self { max, per_ns, aligned: aligned == 1 }
    }

    fn join(&self, a: &WindowState, b: &WindowState) -> WindowState {
        WindowState {
            ends_ns: a.ends_ns.max(b.ends_ns),
            used: a.used.max(b.used),
            held: a.held.max(b.held),
        }
    }
}

/// Units that can be counted beside those in a window: a slot of a table has 32 bits for them.
const fn countable(used: u64) -> u64 {
    (u32::MAX as u64).saturating_sub(used)
}

#[cfg(test)]
mod tests;
