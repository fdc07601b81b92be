use std::fmt;

use crate::{Decision, Timestamp};

/// What every limit over a clock can do with the state of one key.
///
/// States are plain values; the caller keeps them and brings the time. A cost of 0 is a look: it
/// changes nothing, and is refused only by a limit that is overdrawn or cooling down.
///
/// Time may stand still, jump, or run backwards between calls. A backward step never gives
/// anything back: the state remembers the latest time that mattered.
pub trait Algorithm: Copy + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// What is kept for one key.
    type State: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;

    /// The state of a key that was never seen.
    fn fresh(&self) -> Self::State;

    /// Whether the state can no longer be told from a fresh one, at `now` or any later time.
    fn is_idle(&self, state: &Self::State, now: Timestamp) -> bool;

    /// Charges `cost` if it fits, else charges nothing.
    fn check(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Decision;

    /// Whether [`check`](Self::check) would allow `cost`, and else how long to wait. Changes nothing,
    /// so what remains is what is there now.
    fn peek(&self, state: &Self::State, cost: u64, now: Timestamp) -> Decision {
        let answer = self.check(&mut { *state }, cost, now);
        answer.uncharged(&self.check(&mut { *state }, 0, now))
    }

    /// Gives back up to `units` that were charged, and reports how many were still outstanding.
    ///
    /// Never more than was taken; what time has already given back is not given twice.
    fn refund(&self, state: &mut Self::State, units: u64, now: Timestamp) -> u64;

    /// Sets `units` aside if they fit. Until they are committed or cancelled, they shrink the
    /// capacity: it refills to what is not held and no further.
    fn hold(&self, state: &mut Self::State, units: u64, now: Timestamp) -> Decision;

    /// Turns a hold of `units` into a charge of `actual`, and reports how much of it was charged.
    ///
    /// Less than was held gives the rest back. More than was held is charged as far as the limit
    /// has room for it.
    fn commit(&self, state: &mut Self::State, units: u64, actual: u64, now: Timestamp) -> u64;

    /// Gives a hold of `units` back.
    fn cancel(&self, state: &mut Self::State, units: u64, now: Timestamp);

    /// This limit, ready to take over states of `old` without losing precision.
    fn succeeding(self, old: &Self) -> Self {
        let _ = old;
        self
    }

    /// The state that goes on under this limit after the edit from `old` at time `at`.
    ///
    /// Consumption is kept: an edit never refills.
    fn carry_over(&self, old: &Self, state: &Self::State, at: Timestamp) -> Self::State;

    /// A state at least as restrictive as both: what two keys that share one counter get.
    fn join(&self, a: &Self::State, b: &Self::State) -> Self::State;

    /// The limit as four words, for stores that publish limits without a lock.
    fn to_words(&self) -> [u64; 4];

    /// The limit that [`to_words`](Self::to_words) made these words of.
    ///
    /// Words that were not made so give a limit that decides nonsense, but nothing worse.
    fn from_words(words: [u64; 4]) -> Self;
}
