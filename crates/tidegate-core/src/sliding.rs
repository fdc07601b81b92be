use core::time::Duration;

use crate::decision::{Outcome, Span};
use crate::error::{LimitError, at_most, constant, nonzero, valid};
use crate::time::{duration, period_ns};
use crate::{Algorithm, Decision, Timestamp};

mod record;

pub use record::SlidingRecord;

/// A sliding window: at most `max` units in *every* window of length `per`.
///
/// While a key has at most [`LOG_UNITS`](Self::LOG_UNITS) units in the window, each one is stored
/// with its time and decisions are exact to the nanosecond. Above that, units are counted in
/// `parts` sub-windows, and the oldest is counted whole until it has left entirely: still never
/// more than `max` in any window, and traffic of at most `max` per `(1 + 1/parts) · per` is always
/// allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    max: u64,
    per_ns: u64,
    parts: u64,
}

/// The state of a [`Sliding`] window for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingState {
    /// What was charged, and when.
    pub record: SlidingRecord,
    /// Units on hold.
    pub held: u64,
}

impl Sliding {
    /// How many units are logged one by one.
    pub const LOG_UNITS: usize = 8;

    /// The largest number of sub-windows.
    pub const MAX_PARTS: u32 = 15;

    /// The default number of sub-windows.
    pub const DEFAULT_PARTS: u32 = 10;

    /// At most `max` units in every window of length `per`, counted in `parts` sub-windows.
    ///
    /// `max` has to be below 2^32, `parts` from 1 to 15 and at most one per nanosecond.
    ///
    /// Wrong numbers do not compile in a constant, and panic elsewhere; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(max: u64, per: Duration, parts: u32) -> Self {
        constant(Self::try_new(max, per, parts))
    }

    /// The same of numbers from outside, which may be wrong.
    pub const fn try_new(max: u64, per: Duration, parts: u32) -> Result<Self, LimitError> {
        let max = valid!(at_most("max", valid!(nonzero("max", max)), u32::MAX as u64));
        let per_ns = valid!(period_ns("per", per));
        let most_parts = Self::MAX_PARTS as u64;
        let most_parts = if per_ns < most_parts { per_ns } else { most_parts };
        let parts = valid!(at_most("parts", valid!(nonzero("parts", parts as u64)), most_parts));
        Ok(Self { max, per_ns, parts })
    }

    /// Units per window.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Length of the window.
    #[must_use]
    pub fn per(&self) -> Duration {
        duration(self.per_ns)
    }

    /// Number of sub-windows.
    #[must_use]
    pub fn parts(&self) -> u32 {
        u32::try_from(self.parts).unwrap_or(Self::MAX_PARTS)
    }

    /// The state without the units that have left the window.
    #[must_use]
    pub fn current(&self, state: &SlidingState, now: Timestamp) -> SlidingState {
        SlidingState { record: state.record.current(self, now), held: state.held }
    }

    /// The one decision, on a record that is current.
    fn decide(&self, record: &SlidingRecord, held: u64, cost: u64, now: Timestamp) -> Decision {
        let taken = record.units().saturating_add(held);
        let outcome = match taken.checked_add(cost) {
            Some(total) if total <= self.max => Outcome::Allow,
            _ if cost > self.max => Outcome::DenyForEver,
            _ if cost.saturating_add(held) > self.max => Outcome::DenyUnknown,
            _ => Outcome::DenyForNow,
        };
        let (mut charged, mut free_at_ns) = (0, now.as_nanos());
        match outcome {
            Outcome::Allow => charged = cost,
            Outcome::DenyForNow => free_at_ns = record.falls_to_ns(self, self.max - cost - held),
            Outcome::DenyForEver | Outcome::DenyUnknown => {}
        }
        let mut after = *record;
        after.add(self, charged, now);
        let empty_at_ns = match after.units() {
            // When units on hold are charged or released is unknown.
            _ if held > 0 => u64::MAX,
            0 => 0,
            _ => after.falls_to_ns(self, 0),
        };
        let until = |at_ns: u64| u128::from(at_ns.saturating_sub(now.as_nanos()));
        Decision {
            outcome,
            limit: self.max,
            now,
            room_ticks: u128::from(self.max.saturating_sub(taken.saturating_add(charged))),
            lack_ticks: until(free_at_ns),
            spent_ticks: until(empty_at_ns),
            ticks_per_unit: 1,
            ticks_per_ns: 1,
            span: Span(self.per_ns),
        }
    }
}

impl Algorithm for Sliding {
    type State = SlidingState;

    fn fresh(&self) -> SlidingState {
        SlidingState { record: SlidingRecord::EMPTY, held: 0 }
    }

    fn is_idle(&self, state: &SlidingState, now: Timestamp) -> bool {
        state.held == 0 && state.record.current(self, now).units() == 0
    }

    fn check(&self, state: &mut SlidingState, cost: u64, now: Timestamp) -> Decision {
        let mut record = state.record.current(self, now);
        let decision = self.decide(&record, state.held, cost, now);
        if decision.is_allowed() && cost > 0 {
            record.add(self, cost, now);
            state.record = record;
        }
        decision
    }

    /// A count stays below 2^32.
    fn count(&self, state: &mut SlidingState, cost: u64, now: Timestamp) -> u64 {
        let mut record = state.record.current(self, now);
        let counted = cost.min(countable(&record));
        if counted > 0 {
            record.add(self, counted, now);
            state.record = record;
        }
        counted
    }

    fn used(&self, state: &SlidingState, now: Timestamp) -> u64 {
        state.record.current(self, now).units()
    }

    /// Removes the oldest units from the record: the others may only leave later than the
    /// refunded ones would have, never earlier.
    fn refund(&self, state: &mut SlidingState, units: u64, now: Timestamp) -> u64 {
        let mut record = state.record.current(self, now);
        let given = units.min(record.units());
        if given > 0 {
            record.remove_oldest(given);
            state.record = record;
        }
        given
    }

    fn hold(&self, state: &mut SlidingState, units: u64, now: Timestamp) -> Decision {
        let record = state.record.current(self, now);
        let decision = self.decide(&record, state.held, units, now);
        if decision.is_allowed() {
            state.held += units;
        }
        decision
    }

    fn commit(&self, state: &mut SlidingState, units: u64, actual: u64, now: Timestamp) -> u64 {
        let mut record = state.record.current(self, now);
        let units = units.min(state.held);
        let held = state.held - units;
        let room = self.max.saturating_sub(record.units().saturating_add(held));
        let charged = actual.min(room.max(units)).min(countable(&record));
        if charged > 0 {
            record.add(self, charged, now);
            state.record = record;
        }
        state.held = held;
        charged
    }

    fn cancel(&self, state: &mut SlidingState, units: u64, now: Timestamp) {
        self.commit(state, units, 0, now);
    }

    /// Charges keep their times. Where they are already merged into sub-windows and the grid
    /// changes, each moves to the last moment at which it can have happened, and no further back
    /// than the new window reaches.
    ///
    /// Charges that have left the old window come back if the new one is longer, so that an edit
    /// there and back is the identity. Take them off before with [`current`](Self::current), where
    /// time has passed.
    fn carry_over(&self, old: &Self, state: &SlidingState, at: Timestamp) -> SlidingState {
        let same_grid = (self.per_ns, self.parts) == (old.per_ns, old.parts);
        let record = if same_grid { state.record } else { state.record.regrid(old, self, at) };
        SlidingState { record, held: state.held }
    }

    fn to_words(&self) -> [u64; 4] {
        [self.max, self.per_ns, self.parts, 0]
    }

    fn from_words([max, per_ns, parts, _]: [u64; 4]) -> Self {
        Self { max, per_ns, parts }
    }

    fn join(&self, a: &SlidingState, b: &SlidingState) -> SlidingState {
        SlidingState { record: a.record.join(&b.record, self), held: a.held.max(b.held) }
    }
}

/// The grid of sub-windows: part `i` covers the times `t` with `floor(t · parts / per) = i`.
impl Sliding {
    /// The part that `now` lies in. There is at most one part per nanosecond, so it fits.
    fn part_at(&self, now_ns: u64) -> u64 {
        let part = u128::from(now_ns) * u128::from(self.parts) / u128::from(self.per_ns);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The first nanosecond of a part.
    fn part_start_ns(&self, part: u64) -> u64 {
        let scaled = u128::from(part) * u128::from(self.per_ns);
        u64::try_from(scaled.div_ceil(u128::from(self.parts))).unwrap_or(u64::MAX)
    }
}

/// Units that can be counted beside those in a record, which has 32 bits for their sum.
fn countable(record: &SlidingRecord) -> u64 {
    u64::from(u32::MAX).saturating_sub(record.units())
}

#[cfg(test)]
mod tests;
