//! Any limit and any state, and the one pure decision over several of them.

use smallvec::SmallVec;
use tidegate_core::{
    Algorithm, Bucket, BucketState, Carry, Cooldown, CooldownState, Decision, Period, Quota,
    QuotaState, Sliding, SlidingState, Timestamp, Window, WindowState,
};

use crate::policy::Mode;

/// A limit as a decision needs it: an algorithm and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Terms {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Cooldown(Cooldown),
    Quota(Quota),
    /// So many in flight: everything is held, nothing is ever charged.
    Slots(u64),
}

/// What is kept for one key under a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    Bucket(BucketState),
    Window(WindowState),
    Sliding(SlidingState),
    Cooldown(CooldownState),
    Quota(QuotaState),
    Slots { held: u64 },
}

/// When something is decided: the time, and the period that a quota is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    pub(crate) period: Period,
}

impl Moment {
    /// The same time in another period.
    pub(crate) const fn in_period(mut self, index: u64) -> Self {
        self.period.index = index;
        self
    }

    /// The same time and period, unless the other ones are later.
    pub(crate) fn no_earlier_than(self, other: Self) -> Self {
        let index = self.period.index.max(other.period.index);
        Self { now: self.now.max(other.now), ..self.in_period(index) }
    }
}

/// A period for limits that have none.
pub(crate) const NO_PERIOD: Period = Period { index: 0, ends: None };

/// What is done with a cost that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is charged.
    Charge,
    /// It is set aside until it is committed or cancelled.
    Hold,
    /// Nothing.
    Look,
}

/// Whether a limit's own answer counts for the whole decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A refusal refuses everything.
    Binding,
    /// It is decided and charged along, but refuses nothing.
    Advisory,
}

impl Weight {
    /// As it is told to callers.
    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::Binding => Mode::Enforce,
            Self::Advisory => Mode::Shadow,
        }
    }
}

/// What one limit is asked to give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) terms: &'a Terms,
    pub(crate) cost: u64,
    pub(crate) weight: Weight,
    /// Whether a refused request is charged as well; see [`Terms::charge_refused`].
    pub(crate) charge_refused: bool,
    /// Whether the state can be kept at all; what cannot is refused.
    pub(crate) has_room: bool,
    pub(crate) moment: Moment,
}

/// The answers of all limits that were asked, in the same order.
pub(crate) type Decisions = SmallVec<[Decision; INLINE]>;

/// How many limits one decision can be about before it needs memory of its own.
pub(crate) const INLINE: usize = 3;

/// Decides over all limits together: everything is charged, or nothing. Reports whether it is
/// allowed.
///
/// `states` are as they stand on entry, and as they have to be kept on return. The answers are
/// written where they are to be, because they are larger than the work of making them.
pub(crate) fn decide(
    act: Act,
    asks: &[Ask<'_>],
    states: &mut [State],
    decisions: &mut Decisions,
) -> bool {
    let (mut is_allowed, mut all_fit) = (true, true);
    decisions.clear();
    let mut after: SmallVec<[State; INLINE]> = SmallVec::from_slice(states);
    for (ask, state) in asks.iter().zip(&mut after) {
        let mut decision = ask.terms.act(act, state, ask.cost, ask.moment);
        if !ask.has_room {
            decision = decision.refused_for_unknown_time();
        }
        all_fit &= decision.is_allowed();
        is_allowed &= decision.is_allowed() || ask.weight == Weight::Advisory;
        decisions.push(decision);
    }
    if all_fit {
        states.copy_from_slice(&after);
        return true;
    }
    for (index, ask) in asks.iter().enumerate() {
        let fits = decisions[index].is_allowed();
        let is_charged_anyway = ask.charge_refused && act == Act::Charge && ask.has_room;
        if is_allowed || is_charged_anyway {
            states[index] = after[index];
        }
        if is_charged_anyway && !fits {
            ask.terms.charge_refused(&mut states[index], ask.cost, ask.moment);
        } else if is_allowed || is_charged_anyway || !fits {
            continue;
        }
        // What is left is not what was left when it was decided.
        decisions[index] = ask.terms.look(&states[index], ask.cost, ask.moment);
    }
    is_allowed
}

/// Does something with whichever algorithm both the limit and the state are of.
///
/// A state of another algorithm than its limit's cannot come about: the algorithm is part of a
/// key's name.
macro_rules! dispatch {
    (
        ($terms:expr, $given:expr), $limit:ident, $state:ident => $any:expr,
        quota => $quota:expr,
        slots($max:ident, $held:ident) => $slots:expr $(,)?
    ) => {
        match ($terms, $given) {
            (Terms::Bucket($limit), State::Bucket($state)) => $any,
            (Terms::Window($limit), State::Window($state)) => $any,
            (Terms::Sliding($limit), State::Sliding($state)) => $any,
            (Terms::Cooldown($limit), State::Cooldown($state)) => $any,
            (Terms::Quota($limit), State::Quota($state)) => $quota,
            (Terms::Slots($max), State::Slots { held: $held }) => $slots,
            (terms, state) => unreachable!("{terms:?} with {state:?}"),
        }
    };
}

/// How terms are kept beyond the process.
impl Terms {
    /// A number for the algorithm, and its numbers.
    pub(crate) fn to_words(self) -> (u8, [u64; 4]) {
        match self {
            Self::Bucket(limit) => (1, limit.to_words()),
            Self::Window(limit) => (2, limit.to_words()),
            Self::Sliding(limit) => (3, limit.to_words()),
            Self::Cooldown(limit) => (4, limit.to_words()),
            Self::Quota(limit) => {
                let (carry, bound) = match limit.carry() {
                    Carry::Nothing => (0, 0),
                    Carry::UpTo(bound) => (1, bound),
                    Carry::All => (2, 0),
                };
                (5, [limit.max(), carry, bound, 0])
            }
            Self::Slots(max) => (6, [max, 0, 0, 0]),
        }
    }

    /// The terms that these are the words of; `None` if there are none.
    pub(crate) fn from_words(algorithm: u8, words: [u64; 4]) -> Option<Self> {
        // Limits divide by these; no limit has a zero there.
        let divisors = match algorithm {
            1 | 3 => &words[..3],
            2 => &words[..2],
            4..=6 => &words[..1],
            _ => return None,
        };
        let has_parts = algorithm != 3 || words[2] <= u64::from(Sliding::MAX_PARTS);
        if divisors.contains(&0) || !has_parts {
            return None;
        }
        Some(match algorithm {
            1 => Self::Bucket(Bucket::from_words(words)),
            2 => Self::Window(Window::from_words(words)),
            3 => Self::Sliding(Sliding::from_words(words)),
            4 => Self::Cooldown(Cooldown::from_words(words)),
            5 => {
                let carry = match words[1] {
                    0 => Carry::Nothing,
                    1 => Carry::UpTo(words[2]),
                    _ => Carry::All,
                };
                Self::Quota(Quota::new(words[0], carry).ok()?)
            }
            _ => Self::Slots(words[0]),
        })
    }
}

impl Terms {
    /// The state of a key that was never seen.
    #[inline(always)]
    pub(crate) fn fresh(&self, period: Period) -> State {
        match self {
            Self::Bucket(limit) => State::Bucket(limit.fresh()),
            Self::Window(limit) => State::Window(limit.fresh()),
            Self::Sliding(limit) => State::Sliding(limit.fresh()),
            Self::Cooldown(limit) => State::Cooldown(limit.fresh()),
            Self::Quota(limit) => State::Quota(limit.fresh(period)),
            Self::Slots(_) => State::Slots { held: 0 },
        }
    }

    #[inline(always)]
    fn act(&self, act: Act, state: &mut State, cost: u64, moment: Moment) -> Decision {
        match act {
            Act::Charge => self.check(state, cost, moment),
            Act::Hold => self.hold(state, cost, moment),
            Act::Look => self.look(state, cost, moment),
        }
    }

    /// Charges `cost` if it fits.
    #[inline(always)]
    pub(crate) fn check(&self, state: &mut State, cost: u64, at: Moment) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.check(state, cost, at.now),
            quota => limit.check(state, cost, at.period, at.now),
            slots(max, held) => take_slots(*max, held, cost, at.now),
        )
    }

    /// Whether `cost` would fit.
    pub(crate) fn look(&self, state: &State, cost: u64, at: Moment) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.peek(state, cost, at.now),
            quota => limit.peek(state, cost, at.period, at.now),
            slots(max, held) => {
                let look = Decision::of_slots(*max, *held, 0, at.now);
                Decision::of_slots(*max, *held, cost, at.now).uncharged(&look)
            }
        )
    }

    fn hold(&self, state: &mut State, cost: u64, at: Moment) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.hold(state, cost, at.now),
            quota => limit.hold(state, cost, at.period, at.now),
            slots(max, held) => take_slots(*max, held, cost, at.now),
        )
    }

    /// Charges a cost that does not fit, and reports how much: a window counts all of it, any other
    /// limit whatever is left.
    pub(crate) fn charge_refused(&self, state: &mut State, cost: u64, at: Moment) -> u64 {
        if let (Self::Window(limit), State::Window(state)) = (self, &mut *state) {
            return limit.count(state, cost, at.now);
        }
        let left = self.look(state, 0, at).remaining();
        let _ = self.check(state, left, at);
        left
    }

    /// Gives back up to `units`, and reports how many.
    pub(crate) fn refund(&self, state: &mut State, units: u64, at: Moment) -> u64 {
        dispatch!(
            (self, state), limit, state => limit.refund(state, units, at.now),
            quota => limit.refund(state, units, at.period),
            slots(_max, _held) => 0,
        )
    }

    /// Turns a hold into a charge of `actual`, and reports how much of it was charged.
    pub(crate) fn commit(&self, state: &mut State, units: u64, actual: u64, at: Moment) -> u64 {
        dispatch!(
            (self, state), limit, state => limit.commit(state, units, actual, at.now),
            quota => limit.commit(state, units, actual, at.period),
            slots(_max, held) => {
                *held = held.saturating_sub(units);
                actual
            }
        )
    }

    /// Gives a hold back.
    pub(crate) fn cancel(&self, state: &mut State, units: u64, at: Moment) {
        dispatch!(
            (self, state), limit, state => limit.cancel(state, units, at.now),
            quota => limit.cancel(state, units, at.period),
            slots(_max, held) => *held = held.saturating_sub(units),
        );
    }

    /// Whether the state can no longer be told from a fresh one, at `now` or later.
    pub(crate) fn is_idle(&self, state: &State, now: Timestamp) -> bool {
        match (self, state) {
            (Self::Bucket(limit), State::Bucket(state)) => limit.is_idle(state, now),
            (Self::Window(limit), State::Window(state)) => limit.is_idle(state, now),
            (Self::Sliding(limit), State::Sliding(state)) => limit.is_idle(state, now),
            (Self::Cooldown(limit), State::Cooldown(state)) => limit.is_idle(state, now),
            // A quota is told its period, and that is not known here.
            (Self::Quota(_), _) => false,
            (Self::Slots(_), State::Slots { held }) => *held == 0,
            (terms, state) => unreachable!("{terms:?} with {state:?}"),
        }
    }

    /// Whether a key is known from its first request on, be it allowed or not.
    ///
    /// What is carried over counts from then; where nothing is, it makes no difference.
    pub(crate) fn knows_from_first_request(&self) -> bool {
        matches!(self, Self::Quota(quota) if quota.carry() != Carry::Nothing)
    }

    /// These terms, ready to take over states of `old` without losing precision.
    pub(crate) fn succeeding(self, old: &Self) -> Self {
        match (self, old) {
            (Self::Bucket(limit), Self::Bucket(old)) => Self::Bucket(limit.succeeding(old)),
            (terms, _) => terms,
        }
    }

    /// The state that goes on under these terms after an edit from `old`.
    pub(crate) fn carry_over(&self, old: &Self, state: &State, edited: Moment) -> State {
        match (self, old, state) {
            (Self::Bucket(limit), Self::Bucket(old), State::Bucket(state)) => {
                State::Bucket(limit.carry_over(old, state, edited.now))
            }
            (Self::Window(limit), Self::Window(old), State::Window(state)) => {
                State::Window(limit.carry_over(old, state, edited.now))
            }
            (Self::Sliding(limit), Self::Sliding(old), State::Sliding(state)) => {
                State::Sliding(limit.carry_over(old, state, edited.now))
            }
            (Self::Quota(_), Self::Quota(old), State::Quota(state)) => {
                State::Quota(old.current(state, edited.period))
            }
            (Self::Cooldown(_), _, State::Cooldown(_))
            | (Self::Slots(_), _, State::Slots { .. }) => *state,
            // Another algorithm has another name for its states, so this does not come about; if it
            // did, one would know nothing about the key.
            _ => self.fresh(edited.period),
        }
    }

    /// A state at least as restrictive as both.
    pub(crate) fn join(&self, a: &State, b: &State) -> State {
        match (self, a, b) {
            (Self::Bucket(limit), State::Bucket(a), State::Bucket(b)) => {
                State::Bucket(limit.join(a, b))
            }
            (Self::Window(limit), State::Window(a), State::Window(b)) => {
                State::Window(limit.join(a, b))
            }
            (Self::Sliding(limit), State::Sliding(a), State::Sliding(b)) => {
                State::Sliding(limit.join(a, b))
            }
            (Self::Cooldown(limit), State::Cooldown(a), State::Cooldown(b)) => {
                State::Cooldown(limit.join(a, b))
            }
            (Self::Quota(limit), State::Quota(a), State::Quota(b)) => {
                State::Quota(limit.join(a, b))
            }
            (_, a, _) => *a,
        }
    }
}

fn take_slots(max: u64, held: &mut u64, cost: u64, now: Timestamp) -> Decision {
    let decision = Decision::of_slots(max, *held, cost, now);
    if decision.is_allowed() {
        *held += cost;
    }
    decision
}

impl State {
    /// The units that are set aside.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Self::Bucket(state) => state.held,
            Self::Window(state) => state.held,
            Self::Sliding(state) => state.held,
            Self::Cooldown(_) => 0,
            Self::Quota(state) => state.held,
            Self::Slots { held } => *held,
        }
    }

    /// Whether it counts units, and not acts or places.
    pub(crate) fn counts_units(&self) -> bool {
        !matches!(self, Self::Cooldown(_) | Self::Slots { .. })
    }

    /// The same state with so many units set aside.
    pub(crate) fn with_held(mut self, units: u64) -> Self {
        match &mut self {
            Self::Bucket(state) => state.held = units,
            Self::Window(state) => state.held = units,
            Self::Sliding(state) => state.held = units,
            Self::Cooldown(_) => {}
            Self::Quota(state) => state.held = units,
            Self::Slots { held } => *held = units,
        }
        self
    }
}

#[cfg(test)]
mod tests;
