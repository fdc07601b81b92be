//! Any limit and any state: all that the engine knows of an algorithm, but for how a table packs it
//! (`store/memory/slot.rs`).
//!
//! A match on the algorithm names all of them, so that the compiler asks about a new one.

use smallvec::{SmallVec, smallvec};
use tidegate_core::{
    Algorithm, Bucket, BucketState, Carry, Committed, Cooldown, CooldownState, Debt, Decision,
    HeldUnits, Period, Quota, QuotaCharge, QuotaState, Sliding, SlidingState, Timestamp, Window,
    WindowState,
};
use tidegate_policy::internal::LimitKind;
use tidegate_policy::policy::{Charging, Limit, Periods, Rule};
use tidegate_table::table::WIDE_WORDS;
use tidegate_table::table::keyed::{pack_sliding, unpack_sliding};

/// A limit as a decision needs it: an algorithm and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AnyLimit {
    // Those with small states come first: then one comparison tells.
    Bucket(Bucket),
    Window(Window),
    Cooldown(Cooldown),
    Sliding(Sliding),
    Quota(Quota),
    /// A maximum in flight: units are held, never charged.
    Slots(u64),
}

/// The state of one key under a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AnyState {
    Bucket(BucketState),
    Window(WindowState),
    Sliding(SlidingState),
    Cooldown(CooldownState),
    Quota(QuotaState),
    Slots { held: u64 },
}

/// One commit's charge, for refunds of it and of no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyCharge {
    /// The state as the commit left it, less refunds.
    pub(crate) state: AnyState,
    /// What of it was not refunded yet.
    pub(crate) units: u64,
    /// What of that is owed.
    pub(crate) debt: u64,
}

/// The time of a decision, and the period that a quota is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTime {
    pub(crate) now: Timestamp,
    pub(crate) period: Period,
}

/// A period for limits that have none.
pub(crate) const NO_PERIOD: Period = Period { index: 0, ends: None };

/// Dispatches on the algorithm of both the limit and its states, of which there are one or two.
///
/// A state never has another algorithm than its limit: the algorithm is part of a state's
/// identity.
macro_rules! dispatch {
    (
        ($any_limit:expr $(, $any_state:expr)+), $limit:ident $(, $state:ident)+ => $any:expr,
        quota => $quota:expr,
        slots($max:ident $(, $held:ident)+) => $slots:expr $(,)?
    ) => {
        match ($any_limit $(, $any_state)+) {
            (AnyLimit::Bucket($limit) $(, AnyState::Bucket($state))+) => $any,
            (AnyLimit::Window($limit) $(, AnyState::Window($state))+) => $any,
            (AnyLimit::Sliding($limit) $(, AnyState::Sliding($state))+) => $any,
            (AnyLimit::Cooldown($limit) $(, AnyState::Cooldown($state))+) => $any,
            (AnyLimit::Quota($limit) $(, AnyState::Quota($state))+) => $quota,
            (AnyLimit::Slots($max) $(, AnyState::Slots { held: $held })+) => $slots,
            mixed => unreachable!("states of other algorithms: {mixed:?}"),
        }
    };
}

/// Makes any state of one of an algorithm.
macro_rules! any_state_of {
    ($($variant:ident($state:ident)),+) => {
        $(impl From<$state> for AnyState {
            #[inline(always)]
            fn from(state: $state) -> Self {
                Self::$variant(state)
            }
        })+
    };
}

any_state_of!(
    Bucket(BucketState),
    Window(WindowState),
    Sliding(SlidingState),
    Cooldown(CooldownState),
    Quota(QuotaState)
);

/// A number for the algorithm of a limit. It is part of the identity of a rule's states.
pub(crate) fn algorithm_of(limit: &Limit) -> u8 {
    match limit.kind() {
        LimitKind::Bucket(_) => 1,
        LimitKind::Window(_) => 2,
        LimitKind::Sliding(_) => 3,
        LimitKind::Cooldown(_) => 4,
        LimitKind::Quota(_, Periods::Calendar(_)) => 5,
        LimitKind::Quota(_, Periods::Round) => 6,
        LimitKind::Slots(_) => 7,
    }
}

impl AnyLimit {
    /// A limit of a rule as decisions need it.
    pub(crate) fn of(limit: &Limit, rule: &Rule) -> Self {
        match limit.kind() {
            LimitKind::Bucket(bucket) => Self::Bucket(*bucket),
            LimitKind::Window(window) => Self::Window(*window),
            LimitKind::Sliding(sliding) => Self::Sliding(*sliding),
            LimitKind::Cooldown(cooldown) if rule.charging() == Charging::Refused => {
                Self::Cooldown(cooldown.extended_by_refusals())
            }
            LimitKind::Cooldown(cooldown) => Self::Cooldown(*cooldown),
            LimitKind::Quota(quota, _) => Self::Quota(*quota),
            LimitKind::Slots(slots) => Self::Slots(slots.max()),
        }
    }
}

/// The encoding of limits in files.
impl AnyLimit {
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
                let (debt, most) = match limit.debt() {
                    Debt::All => (0, 0),
                    Debt::UpTo(most) => (1, most),
                    Debt::Nothing => (2, 0),
                };
                (5, [limit.max(), carry | (debt << 8), bound, most])
            }
            Self::Slots(max) => (6, [max, 0, 0, 0]),
        }
    }

    /// The limit with these words; `None` if they are invalid.
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
                let carry = match words[1] & 0xff {
                    0 => Carry::Nothing,
                    1 => Carry::UpTo(words[2]),
                    _ => Carry::All,
                };
                let debt = match words[1] >> 8 {
                    0 => Debt::All,
                    1 => Debt::UpTo(words[3]),
                    _ => Debt::Nothing,
                };
                Self::Quota(Quota::try_new(words[0], carry).and_then(|it| it.with_debt(debt)).ok()?)
            }
            _ => Self::Slots(words[0]),
        })
    }
}

/// The encoding of states in files.
impl AnyState {
    /// A number for the algorithm, and the words of the state.
    pub(crate) fn to_words(self) -> (u8, SmallVec<[u64; STATE_WORDS]>) {
        match self {
            #[allow(clippy::cast_possible_truncation, reason = "each half is kept")]
            Self::Bucket(BucketState { full_at_ticks, held }) => {
                (1, smallvec![full_at_ticks as u64, (full_at_ticks >> 64) as u64, held])
            }
            Self::Window(WindowState { ends_ns, used, held }) => {
                (2, smallvec![ends_ns, used, held])
            }
            Self::Sliding(state) => {
                let held = state.held;
                (3, pack_sliding(&state).into_iter().chain([held]).collect())
            }
            Self::Cooldown(state) => (4, smallvec![state.since_ns_plus_1]),
            Self::Quota(QuotaState { period, used, carried, held, held_from, debt }) => {
                (5, smallvec![period, used, carried, held, held_from, debt])
            }
            Self::Slots { held } => (6, smallvec![held]),
        }
    }

    /// The state with these words, which come one by one; `None` if there is no such algorithm.
    pub(crate) fn from_words<E>(
        algorithm: u8,
        mut next: impl FnMut() -> Result<u64, E>,
    ) -> Result<Option<Self>, E> {
        Ok(Some(match algorithm {
            1 => {
                let [low, high] = [next()?, next()?];
                let full_at_ticks = u128::from(low) | (u128::from(high) << 64);
                Self::Bucket(BucketState { full_at_ticks, held: next()? })
            }
            2 => Self::Window(WindowState { ends_ns: next()?, used: next()?, held: next()? }),
            3 => {
                let mut words = [0; WIDE_WORDS];
                for word in &mut words {
                    *word = next()?;
                }
                Self::Sliding(SlidingState { held: next()?, ..unpack_sliding(words) })
            }
            4 => Self::Cooldown(CooldownState { since_ns_plus_1: next()? }),
            5 => Self::Quota(QuotaState {
                period: next()?,
                used: next()?,
                carried: next()?,
                held: next()?,
                held_from: next()?,
                debt: next()?,
            }),
            6 => Self::Slots { held: next()? },
            _ => return Ok(None),
        }))
    }
}

/// The most words that a state has in files: those of a sliding window.
const STATE_WORDS: usize = WIDE_WORDS + 1;

impl AnyLimit {
    /// How many units a quota has at most after the end of a period; `None` if there is no maximum.
    pub(crate) fn most_kept_units(&self) -> Option<u64> {
        let Self::Quota(quota) = self else { return None };
        match quota.carry() {
            Carry::Nothing => Some(quota.max()),
            Carry::UpTo(bound) => Some(quota.max().saturating_add(bound)),
            Carry::All => None,
        }
    }

    /// The state of a new key.
    #[inline(always)]
    pub(crate) fn fresh(&self, period: Period) -> AnyState {
        match self {
            Self::Bucket(limit) => AnyState::Bucket(limit.fresh()),
            Self::Window(limit) => AnyState::Window(limit.fresh()),
            Self::Sliding(limit) => AnyState::Sliding(limit.fresh()),
            Self::Cooldown(limit) => AnyState::Cooldown(limit.fresh()),
            Self::Quota(limit) => AnyState::Quota(limit.fresh(period)),
            Self::Slots(_) => AnyState::Slots { held: 0 },
        }
    }

    /// Charges `cost` if it fits.
    #[inline(always)]
    pub(crate) fn check(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.check(state, cost, at.now),
            quota => limit.check(state, cost, at.period, at.now),
            slots(max, held) => take_slots(*max, held, cost, at.now),
        )
    }

    /// Whether `cost` would fit.
    pub(crate) fn peek(&self, state: &AnyState, cost: u64, at: DecisionTime) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.peek(state, cost, at.now),
            quota => limit.peek(state, cost, at.period, at.now),
            slots(max, held) => {
                let look = Decision::of_slots(*max, *held, 0, at.now);
                Decision::of_slots(*max, *held, cost, at.now).uncharged(&look)
            }
        )
    }

    /// What is used and held, with what remains.
    pub(crate) fn measure(&self, state: &AnyState, at: DecisionTime) -> Decision {
        let mut held = state.held();
        let used = dispatch!(
            (self, state), limit, state => limit.used(state, at.now),
            quota => {
                // Without carry, a hold ends with its period.
                held = limit.current(state, at.period).held;
                limit.used(state, at.period)
            },
            slots(_max, _held) => 0,
        );
        self.peek(state, 0, at).measured(used, held)
    }

    /// Charges `cost` whatever is left; see [`Algorithm::check_postpaid`].
    pub(crate) fn check_postpaid(
        &self,
        state: &mut AnyState,
        cost: u64,
        at: DecisionTime,
    ) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.check_postpaid(state, cost, at.now),
            quota => limit.check_postpaid(state, cost, at.period, at.now),
            // No policy has postpaid slots.
            slots(max, held) => take_slots(*max, held, cost, at.now),
        )
    }

    /// Charges `cost` whether or not it fits.
    pub(crate) fn count(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> Committed {
        let overdrawn = self.overdrawn(state, at.now);
        let charged = dispatch!(
            (self, &mut *state), limit, state => limit.count(state, cost, at.now),
            quota => return limit.count(state, cost, at.period),
            slots(_max, _held) => 0,
        );
        let debt = self.overdrawn(state, at.now).saturating_sub(overdrawn).min(charged);
        Committed { charged, debt, closed: 0, forgiven: cost - charged }
    }

    pub(crate) fn hold(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.hold(state, cost, at.now),
            quota => limit.hold(state, cost, at.period, at.now),
            slots(max, held) => take_slots(*max, held, cost, at.now),
        )
    }

    /// Charges a cost that does not fit, and returns how much: a window counts all of it, any other
    /// limit what remains.
    pub(crate) fn charge_refused(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> u64 {
        if let Self::Window(_) = self {
            return self.count(state, cost, at).charged;
        }
        let left = self.peek(state, 0, at).remaining();
        let _ = self.check(state, left, at);
        left
    }

    /// Refunds up to `units`, and returns how many.
    pub(crate) fn refund(&self, state: &mut AnyState, units: u64, at: DecisionTime) -> u64 {
        dispatch!(
            (self, state), limit, state => limit.refund(state, units, at.now),
            quota => limit.refund(state, units, at.period),
            slots(_max, _held) => 0,
        )
    }

    /// Refunds up to `units` of one charge, and returns how many. The refund is taken from `charge`
    /// as well.
    pub(crate) fn refund_charge(
        &self,
        state: &mut AnyState,
        charge: &mut AnyCharge,
        units: u64,
        at: DecisionTime,
    ) -> u64 {
        let AnyCharge { state: left, units: outstanding, debt } = charge;
        if let (Self::Quota(limit), AnyState::Quota(state), AnyState::Quota(left)) =
            (self, &mut *state, &mut *left)
        {
            let mut charge = QuotaCharge { state: *left, units: *outstanding, debt: *debt };
            let refunded = limit.refund_charge(state, &mut charge, units, at.period);
            (*left, *outstanding, *debt) = (charge.state, charge.units, charge.debt);
            return refunded;
        }
        let units = units.min(*outstanding);
        let refunded = self.refund_left(state, left, units, at);
        *outstanding -= refunded.min(*outstanding);
        refunded
    }

    /// Refunds up to `units` of a charge that left this state, of a limit that is no quota.
    fn refund_left(
        &self,
        state: &mut AnyState,
        charge: &mut AnyState,
        units: u64,
        at: DecisionTime,
    ) -> u64 {
        dispatch!(
            (self, state, charge), limit, state, charge =>
                limit.refund_charge(state, charge, units, at.now),
            quota => unreachable!("{limit:?} is a quota, of {state:?} and {charge:?}"),
            slots(_max, _held, _charge) => 0,
        )
    }

    /// Turns a hold into a charge of `actual`.
    pub(crate) fn commit(
        &self,
        state: &mut AnyState,
        held: HeldUnits,
        actual: u64,
        at: DecisionTime,
    ) -> Committed {
        let (units, overdrawn) = (held.units, self.overdrawn(state, at.now));
        let charged = dispatch!(
            (self, &mut *state), limit, state => limit.commit(state, units, actual, at.now),
            quota => return limit.commit(state, held, actual, at.period),
            slots(_max, held) => {
                *held = held.saturating_sub(units);
                actual
            }
        );
        let debt = self.overdrawn(state, at.now).saturating_sub(overdrawn).min(charged);
        Committed { charged, debt, closed: 0, forgiven: actual.saturating_sub(charged) }
    }

    /// Turns a hold into a charge of `actual`, and books what was not on hold whatever is left.
    pub(crate) fn commit_postpaid(
        &self,
        state: &mut AnyState,
        held: HeldUnits,
        actual: u64,
        at: DecisionTime,
    ) -> Committed {
        let within = actual.min(held.units);
        let held = self.commit(state, held, within, at);
        let beyond = self.count(state, actual - within, at);
        Committed {
            charged: held.charged + beyond.charged,
            debt: held.debt + beyond.debt,
            closed: held.closed,
            forgiven: held.forgiven + beyond.forgiven,
        }
    }

    /// Units by which a limit is overdrawn that is no quota.
    fn overdrawn(&self, state: &AnyState, now: Timestamp) -> u64 {
        let beyond = |used: u64, held: u64, max: u64| used.saturating_add(held).saturating_sub(max);
        match (self, state) {
            (Self::Bucket(limit), AnyState::Bucket(state)) => limit.overdrawn(state, now),
            (Self::Window(limit), AnyState::Window(state)) => {
                beyond(limit.used(state, now), state.held, limit.max())
            }
            (Self::Sliding(limit), AnyState::Sliding(state)) => {
                beyond(limit.used(state, now), state.held, limit.max())
            }
            (Self::Cooldown(_) | Self::Quota(_) | Self::Slots(_), _) => 0,
            (Self::Bucket(_) | Self::Window(_) | Self::Sliding(_), _) => {
                unreachable!("a state of another algorithm: {state:?}")
            }
        }
    }

    /// Releases a hold.
    pub(crate) fn cancel(&self, state: &mut AnyState, held: HeldUnits, at: DecisionTime) {
        let units = held.units;
        dispatch!(
            (self, state), limit, state => limit.cancel(state, units, at.now),
            quota => limit.cancel(state, held, at.period),
            slots(_max, held) => *held = held.saturating_sub(units),
        );
    }

    /// Releases a hold as if it had never been made: a cooldown that it began is over as well.
    pub(crate) fn void(
        &self,
        state: &mut AnyState,
        held: HeldUnits,
        begun: Option<&AnyState>,
        at: DecisionTime,
    ) {
        if let (Self::Cooldown(limit), AnyState::Cooldown(state), Some(AnyState::Cooldown(begun))) =
            (self, &mut *state, begun)
        {
            limit.void(state, begun);
        }
        self.cancel(state, held, at);
    }

    /// A fresh state with the holds of `state`.
    pub(crate) fn forgotten(&self, state: &AnyState, period: Period) -> AnyState {
        match (self, state, self.fresh(period)) {
            (Self::Quota(limit), AnyState::Quota(state), AnyState::Quota(fresh)) => {
                let QuotaState { held, held_from, .. } = limit.current(state, period);
                AnyState::Quota(QuotaState { held, held_from, ..fresh })
            }
            (_, state, fresh) => fresh.with_held(state.held()),
        }
    }

    /// The most restrictive state at a time and in a period that a state may have become, under
    /// limits that are not known any more.
    pub(crate) fn fully_used(&self, state: &AnyState, now: Timestamp, period: u64) -> AnyState {
        let at = DecisionTime { now, period: Period { index: period, ends: None } };
        let mut used = self.fresh(at.period);
        match (self, state) {
            (Self::Bucket(limit), AnyState::Bucket(_)) => {
                let debt = match limit.debt() {
                    Debt::Nothing => 0,
                    Debt::UpTo(units) => units,
                    // More is possible; a key without debt must not be denied for ever.
                    Debt::All => limit.capacity(),
                };
                let most = limit.capacity().saturating_add(debt);
                let _ = self.commit(&mut used, HeldUnits { units: 0, period }, most, at);
            }
            (Self::Sliding(limit), AnyState::Sliding(_)) => {
                let _ = self.check(&mut used, limit.max(), at);
            }
            // Nothing is carried over, and no debt was paid.
            (Self::Quota(_), AnyState::Quota(state)) => {
                let used = if state.period < period { 0 } else { state.used };
                let held_from = state.held_from.min(period);
                return AnyState::Quota(QuotaState {
                    period,
                    used,
                    carried: 0,
                    held_from,
                    ..*state
                });
            }
            // It may have kept its limit to its end.
            (Self::Window(_), AnyState::Window(state)) if state.ends_ns > now.as_nanos() => {
                let used = if state.used > 0 { u64::from(u32::MAX) } else { 0 };
                return AnyState::Window(WindowState { used, ..*state });
            }
            // The same under every limit.
            (Self::Window(_) | Self::Cooldown(_) | Self::Slots(_), _) => return *state,
            (Self::Bucket(_) | Self::Sliding(_) | Self::Quota(_), _) => {
                unreachable!("a state of another algorithm: {state:?}")
            }
        }
        used.with_held(state.held())
    }

    /// Whether the state is as good as fresh, at `now` or later.
    pub(crate) fn is_idle(&self, state: &AnyState, now: Timestamp) -> bool {
        dispatch!(
            (self, state), limit, state => limit.is_idle(state, now),
            // That depends on the period, which is not known here.
            quota => {
                let _unknown = (limit, state);
                false
            },
            slots(_max, held) => *held == 0,
        )
    }

    /// Whether a key is stored from its first request on, allowed or not.
    ///
    /// Carried units count from then; without carry it makes no difference.
    pub(crate) fn knows_from_first_request(&self) -> bool {
        matches!(self, Self::Quota(quota) if quota.carry() != Carry::Nothing)
    }

    /// This limit, prepared to take over states of `old` without losing precision.
    pub(crate) fn succeeding(self, old: &Self) -> Self {
        match (self, old) {
            (Self::Bucket(limit), Self::Bucket(old)) => Self::Bucket(limit.succeeding(old)),
            (limit, _) => limit,
        }
    }

    /// Whether a state of `old` can be expressed under this limit.
    pub(crate) fn can_take_over(&self, old: &Self, state: &AnyState, at: Timestamp) -> bool {
        match (self, old, state) {
            (Self::Bucket(limit), Self::Bucket(old), AnyState::Bucket(state)) => {
                limit.can_take_over(old, state, at)
            }
            _ => true,
        }
    }

    /// The state without what no longer counts at a time.
    pub(crate) fn current(&self, state: &AnyState, now: Timestamp) -> AnyState {
        match (self, state) {
            (Self::Sliding(limit), AnyState::Sliding(state)) => {
                AnyState::Sliding(limit.current(state, now))
            }
            _ => *state,
        }
    }

    /// A state of this limit, after another one was in force from `since` to `until`.
    pub(crate) fn refilled_by(
        &self,
        other: &Self,
        state: &AnyState,
        since: Timestamp,
        until: Timestamp,
    ) -> AnyState {
        match (self, other, state) {
            (Self::Bucket(limit), Self::Bucket(other), AnyState::Bucket(state)) => {
                AnyState::Bucket(limit.refilled_by(other, state, since, until))
            }
            _ => *state,
        }
    }

    /// The state migrated to this limit after an edit from `old`.
    pub(crate) fn carry_over(
        &self,
        old: &Self,
        state: &AnyState,
        edited: DecisionTime,
    ) -> AnyState {
        match (self, old, state) {
            (Self::Bucket(limit), Self::Bucket(old), AnyState::Bucket(state)) => {
                AnyState::Bucket(limit.carry_over(old, state, edited.now))
            }
            (Self::Window(limit), Self::Window(old), AnyState::Window(state)) => {
                AnyState::Window(limit.carry_over(old, state, edited.now))
            }
            (Self::Sliding(limit), Self::Sliding(old), AnyState::Sliding(state)) => {
                AnyState::Sliding(limit.carry_over(old, state, edited.now))
            }
            (Self::Quota(_), Self::Quota(old), AnyState::Quota(state)) => {
                AnyState::Quota(old.current(state, edited.period))
            }
            (Self::Cooldown(_), _, AnyState::Cooldown(_))
            | (Self::Slots(_), _, AnyState::Slots { .. }) => *state,
            // Another algorithm has other states, so this does not happen; if it did, the key would
            // be new.
            _ => self.fresh(edited.period),
        }
    }

    /// Whether a charge counts for longer under this limit than under another one.
    pub(crate) fn is_slower_than(&self, other: &Self) -> bool {
        match self {
            Self::Bucket(it) => {
                let Self::Bucket(other) = other else { return false };
                let (it, other) = (it.rate(), other.rate());
                let per = |count: u64, ns: u128| u128::from(count).saturating_mul(ns);
                per(it.count(), other.period().as_nanos())
                    < per(other.count(), it.period().as_nanos())
            }
            Self::Sliding(it) => matches!(other, Self::Sliding(other) if it.per() > other.per()),
            Self::Cooldown(it) => matches!(other, Self::Cooldown(other) if it.gap() > other.gap()),
            // A charge counts until the window or period ends, and a slot until it is released.
            Self::Window(_) | Self::Quota(_) | Self::Slots(_) => false,
        }
    }

    /// Whether it counts units, unlike cooldowns and slots.
    pub(crate) fn counts_units(&self) -> bool {
        !matches!(self, Self::Cooldown(_) | Self::Slots(_))
    }

    /// A state at least as restrictive as both.
    pub(crate) fn join(&self, a: &AnyState, b: &AnyState) -> AnyState {
        dispatch!(
            (self, a, b), limit, a, b => limit.join(a, b).into(),
            quota => limit.join(a, b).into(),
            slots(_max, a, b) => AnyState::Slots { held: *a.max(b) },
        )
    }
}

fn take_slots(max: u64, held: &mut u64, cost: u64, now: Timestamp) -> Decision {
    let decision = Decision::of_slots(max, *held, cost, now);
    if decision.is_allowed() {
        *held += cost;
    }
    decision
}

impl AnyState {
    /// Whether what was charged falls bit by bit, by the numbers of the limit in force meanwhile.
    pub(crate) fn falls_gradually(&self) -> bool {
        match self {
            Self::Bucket(_) | Self::Sliding(_) => true,
            Self::Window(_) | Self::Cooldown(_) | Self::Quota(_) | Self::Slots { .. } => false,
        }
    }

    /// The units on hold.
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

    /// The period that a hold is made in, where the limit has periods.
    pub(crate) fn period(&self) -> u64 {
        match self {
            Self::Quota(state) => state.period,
            _ => 0,
        }
    }

    /// Whether it counts units, unlike cooldowns and slots.
    pub(crate) fn counts_units(&self) -> bool {
        !matches!(self, Self::Cooldown(_) | Self::Slots { .. })
    }

    /// Whether a hold that leaves this state began something that [voiding](AnyLimit::void) it ends.
    pub(crate) fn is_ended_by_void(&self) -> bool {
        matches!(self, Self::Cooldown(_))
    }

    /// The same state with this many units on hold.
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
