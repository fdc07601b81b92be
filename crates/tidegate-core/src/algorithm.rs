use core::fmt;

use crate::{Decision, Timestamp};

/// The operations of every limit over a clock, on the state of one key.
///
/// States are plain values; the caller stores them and passes the time. A cost of 0 is a peek: it
/// changes nothing, and is denied only by a limit that is overdrawn or cooling down.
///
/// Time may stand still, jump, or run backwards between calls. A backward step never refills
/// anything: the state has the latest time that mattered.
pub trait Algorithm: Copy + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The state of one key.
    type State: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;

    /// The state of a new key.
    fn fresh(&self) -> Self::State;

    /// Whether the state is as good as fresh, at `now` or any later time.
    fn is_idle(&self, state: &Self::State, now: Timestamp) -> bool;

    /// Charges `cost` if it fits, else charges nothing.
    fn check(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Decision;

    /// Whether [`check`](Self::check) would allow `cost`, and else how long to wait. Charges
    /// nothing, so `remaining` does not include the cost.
    fn peek(&self, state: &Self::State, cost: u64, now: Timestamp) -> Decision {
        let decision = self.check(&mut { *state }, cost, now);
        decision.uncharged(&self.check(&mut { *state }, 0, now))
    }

    /// Charges `cost` in full, whatever is left, and allows it if a whole unit was left before: for
    /// costs that are known only afterwards. A cost of 0 is allowed if one is left now.
    ///
    /// A denial is charged as well, so its wait is the time until a unit is left again.
    fn check_postpaid(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Decision {
        let before = self.peek(state, 1, now);
        self.count(state, cost, now);
        if before.is_allowed() {
            before.uncharged(&self.peek(state, 0, now))
        } else {
            self.peek(state, 1, now)
        }
    }

    /// Charges `cost` whether or not it fits, and returns how much of it was charged: as much as the
    /// state can count and the limit's debt allows.
    fn count(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> u64 {
        let mut counting = *state;
        let counted = self.commit(&mut counting, 0, cost, now);
        if counted > 0 {
            *state = counting;
        }
        counted
    }

    /// Units that were charged and still count, rounded up, without those on hold.
    fn used(&self, state: &Self::State, now: Timestamp) -> u64;

    /// Refunds up to `units` that were charged, and returns how many were still outstanding.
    ///
    /// Never more than was charged; what has been refilled already is not refunded.
    fn refund(&self, state: &mut Self::State, units: u64, now: Timestamp) -> u64;

    /// Refunds up to `units` of one charge, and returns how many.
    ///
    /// `charge` is the state as that charge left it, so it knows how much of the charge time has
    /// already returned. The refund is taken from it as well: parts never add up to more than was
    /// outstanding.
    fn refund_charge(
        &self,
        state: &mut Self::State,
        charge: &mut Self::State,
        units: u64,
        now: Timestamp,
    ) -> u64 {
        let outstanding = self.refund(&mut { *charge }, units, now);
        let refunded = self.refund(state, units.min(outstanding), now);
        self.refund(charge, refunded, now);
        refunded
    }

    /// Holds `units` if they fit. Until they are committed or cancelled, they shrink the
    /// capacity: it refills to what is not held and no further.
    fn hold(&self, state: &mut Self::State, units: u64, now: Timestamp) -> Decision;

    /// Turns a hold of `units` into a charge of `actual`, and returns how much of it was charged.
    ///
    /// Less than was held releases the rest. More than was held is charged as far as the limit
    /// has room for it.
    fn commit(&self, state: &mut Self::State, units: u64, actual: u64, now: Timestamp) -> u64;

    /// Releases a hold of `units`.
    fn cancel(&self, state: &mut Self::State, units: u64, now: Timestamp);

    /// This limit, prepared to take over states of `old` without losing precision.
    fn succeeding(self, old: &Self) -> Self {
        let _ = old;
        self
    }

    /// The state migrated to this limit after the edit from `old` at time `at`.
    ///
    /// Charges stay: an edit never refills.
    fn carry_over(&self, old: &Self, state: &Self::State, at: Timestamp) -> Self::State;

    /// A state at least as restrictive as both: the state of two keys that share one counter.
    fn join(&self, a: &Self::State, b: &Self::State) -> Self::State;

    /// The limit as four words, for stores that publish limits without a lock.
    fn to_words(&self) -> [u64; 4];

    /// The limit with these words, from [`to_words`](Self::to_words).
    ///
    /// Other words give a limit with arbitrary decisions, but nothing worse.
    fn from_words(words: [u64; 4]) -> Self;
}
