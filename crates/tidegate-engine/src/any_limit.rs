//! Any limit and any state, and the one pure decision over several of them.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use tidegate_core::{
    Algorithm, Bucket, BucketState, Carry, Committed, Cooldown, CooldownState, Debt, Decision,
    HeldUnits, Period, Quota, QuotaCharge, QuotaState, Sliding, SlidingState, Timestamp, Window,
    WindowState,
};
use tidegate_policy::policy::{Charging, Mode};

/// A limit as a decision needs it: an algorithm and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AnyLimit {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Cooldown(Cooldown),
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

/// What to do with a cost that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Charge it.
    Charge,
    /// Hold it until it is committed or cancelled.
    Hold,
    /// Nothing.
    Look,
    /// Nothing, and report what is used and held instead of deciding.
    Measure,
    /// Nothing, but keys whose unused units carry over are known afterwards.
    Enrol,
}

impl Operation {
    /// Whether it changes nothing, and makes no key known.
    #[inline(always)]
    pub(crate) const fn is_look(self) -> bool {
        matches!(self, Self::Look | Self::Measure)
    }
}

/// One limit's part in a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitRequest<'a> {
    pub(crate) limit: &'a AnyLimit,
    pub(crate) cost: u64,
    /// In shadow mode its denial is not enforced.
    pub(crate) mode: Mode,
    pub(crate) charging: Charging,
    /// Whether the state can be stored at all; if not, the request is denied.
    pub(crate) has_room: bool,
    pub(crate) decided_at: DecisionTime,
}

/// The decisions of all limits, in their order, and what postpaid ones booked. They are large, and
/// their buffer is used again.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    each: Vec<Decision>,
    pub(crate) bookings: Vec<Booking>,
}

/// What a postpaid limit did with a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    /// The index of the limit's decision.
    pub(crate) index: usize,
    /// Units that were charged.
    pub(crate) units: u64,
    /// Of these, units beyond what was left.
    pub(crate) overdrawn: u64,
    /// Units beyond what the state can count or the debt allows.
    pub(crate) forgiven: u64,
    /// Units that were not booked: a prepaid limit denied the request, or the state has no room.
    pub(crate) unbooked: u64,
}

impl Decisions {
    pub(crate) const fn new() -> Self {
        Self { each: Vec::new(), bookings: Vec::new() }
    }

    pub(crate) fn with_capacity(limits: usize) -> Self {
        Self { each: Vec::with_capacity(limits), bookings: Vec::new() }
    }

    /// Empties it, bookings included.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.each.clear();
        self.bookings.clear();
    }

    /// Forgives what the limit with this index booked: its state could not take it.
    pub(crate) fn forgive_booking_of(&mut self, index: usize) {
        for booking in self.bookings.iter_mut().filter(|booking| booking.index == index) {
            let Booking { units, forgiven, .. } = *booking;
            *booking = Booking { units: 0, overdrawn: 0, forgiven: units + forgiven, ..*booking };
        }
    }

    /// What the limit with this index booked, if it is postpaid and was charged.
    pub(crate) fn booking_of(&self, index: usize) -> Option<&Booking> {
        self.bookings.iter().find(|booking| booking.index == index)
    }
}

impl Deref for Decisions {
    type Target = Vec<Decision>;

    #[inline(always)]
    fn deref(&self) -> &Vec<Decision> {
        &self.each
    }
}

impl DerefMut for Decisions {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<Decision> {
        &mut self.each
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        Self { each: decisions.into_iter().collect(), bookings: Vec::new() }
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Decision;
    type IntoIter = std::slice::Iter<'a, Decision>;

    fn into_iter(self) -> Self::IntoIter {
        self.each.iter()
    }
}

/// How many limits a decision can have without an allocation.
pub(crate) const INLINE: usize = 3;

/// Decides over several limits: all are charged, or none. Returns whether it is allowed.
///
/// Postpaid limits are charged unless a prepaid one denies. `states` are the current ones on entry,
/// and the new ones on return. Decisions are written into the caller's buffer, because they are
/// larger than the work of making them.
pub(crate) fn decide(
    act: Operation,
    requests: &[LimitRequest<'_>],
    states: &mut [AnyState],
    decisions: &mut Decisions,
) -> bool {
    let (mut is_allowed, mut is_payable, mut all_fit) = (true, true, true);
    decisions.clear();
    let mut after: SmallVec<[AnyState; INLINE]> = SmallVec::from_slice(states);
    for (request, state) in requests.iter().zip(&mut after) {
        let mut decision = request.act(act, state);
        if !request.has_room {
            decision = decision.denied_for_unknown_time();
        }
        let is_permitted = decision.is_allowed() || request.mode == Mode::Shadow;
        is_allowed &= is_permitted;
        is_payable &= is_permitted || request.books(act);
        // A booking is noted below.
        all_fit &= decision.is_allowed() && !request.books(act);
        decisions.push(decision);
    }
    if all_fit {
        states.copy_from_slice(&after);
        return true;
    }
    for (index, request) in requests.iter().enumerate() {
        let (before, after) = (&mut states[index], after[index]);
        if request.books(act) {
            let is_booked = is_payable && request.has_room;
            decisions.bookings.push(request.booking(index, before, is_booked));
            if is_booked {
                *before = after;
            } else if request.has_room {
                decisions[index] = request.act(Operation::Look, before);
            }
            continue;
        }
        let fits = decisions[index].is_allowed();
        let is_charged_anyway =
            request.charging == Charging::Refused && act == Operation::Charge && request.has_room;
        if is_allowed || is_charged_anyway {
            *before = after;
        }
        if is_charged_anyway && !fits {
            request.limit.charge_refused(before, request.cost, request.decided_at);
        } else if is_allowed || is_charged_anyway || (!fits && after == *before) {
            continue;
        }
        // What remains differs from what remained when it was decided.
        decisions[index] = request.act(Operation::Look, before);
    }
    is_allowed
}

impl LimitRequest<'_> {
    /// Whether its cost is booked whatever is left.
    #[inline(always)]
    fn books(&self, act: Operation) -> bool {
        self.charging == Charging::Postpaid && act == Operation::Charge && self.cost > 0
    }

    /// Decides alone. Reservations of a postpaid limit have to fit, as those of any other.
    #[inline(always)]
    pub(crate) fn act(&self, act: Operation, state: &mut AnyState) -> Decision {
        match (self.charging, act) {
            (Charging::Postpaid, Operation::Charge) => {
                self.limit.check_postpaid(state, self.cost, self.decided_at)
            }
            (Charging::Postpaid, Operation::Look | Operation::Enrol) => {
                self.limit.check_postpaid(state, 0, self.decided_at)
            }
            _ => self.limit.act(act, state, self.cost, self.decided_at),
        }
    }

    /// The cost that a denied request waits for: any unit will do for a postpaid limit.
    pub(crate) fn awaited_cost(&self, act: Operation) -> u64 {
        match (self.charging, act) {
            (Charging::Postpaid, Operation::Charge | Operation::Look) => 1,
            _ => self.cost,
        }
    }

    fn booking(&self, index: usize, before: &AnyState, is_booked: bool) -> Booking {
        if !is_booked {
            return Booking { index, units: 0, overdrawn: 0, forgiven: 0, unbooked: self.cost };
        }
        let done = self.limit.count(&mut before.clone(), self.cost, self.decided_at);
        let Committed { charged: units, debt: overdrawn, forgiven, .. } = done;
        Booking { index, units, overdrawn, forgiven, unbooked: 0 }
    }
}

/// Dispatches on the algorithm of both the limit and the state.
///
/// A state never has another algorithm than its limit: the algorithm is part of a state's
/// identity.
macro_rules! dispatch {
    (
        ($any_limit:expr, $any_state:expr), $limit:ident, $state:ident => $any:expr,
        quota => $quota:expr,
        slots($max:ident, $held:ident) => $slots:expr $(,)?
    ) => {
        match ($any_limit, $any_state) {
            (AnyLimit::Bucket($limit), AnyState::Bucket($state)) => $any,
            (AnyLimit::Window($limit), AnyState::Window($state)) => $any,
            (AnyLimit::Sliding($limit), AnyState::Sliding($state)) => $any,
            (AnyLimit::Cooldown($limit), AnyState::Cooldown($state)) => $any,
            (AnyLimit::Quota($limit), AnyState::Quota($state)) => $quota,
            (AnyLimit::Slots($max), AnyState::Slots { held: $held }) => $slots,
            (limit, state) => unreachable!("{limit:?} with {state:?}"),
        }
    };
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
                Self::Quota(Quota::new(words[0], carry).and_then(|it| it.with_debt(debt)).ok()?)
            }
            _ => Self::Slots(words[0]),
        })
    }
}

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

    #[inline(always)]
    fn act(
        &self,
        act: Operation,
        state: &mut AnyState,
        cost: u64,
        decided_at: DecisionTime,
    ) -> Decision {
        match act {
            Operation::Charge => self.check(state, cost, decided_at),
            Operation::Hold => self.hold(state, cost, decided_at),
            Operation::Look | Operation::Enrol => self.peek(state, cost, decided_at),
            Operation::Measure => self.measure(state, decided_at),
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
    fn measure(&self, state: &AnyState, at: DecisionTime) -> Decision {
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
    fn check_postpaid(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> Decision {
        dispatch!(
            (self, state), limit, state => limit.check_postpaid(state, cost, at.now),
            quota => limit.check_postpaid(state, cost, at.period, at.now),
            // No policy has postpaid slots.
            slots(max, held) => take_slots(*max, held, cost, at.now),
        )
    }

    /// Charges `cost` whether or not it fits.
    fn count(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> Committed {
        let overdrawn = self.overdrawn(state, at.now);
        let charged = dispatch!(
            (self, &mut *state), limit, state => limit.count(state, cost, at.now),
            quota => return limit.count(state, cost, at.period),
            slots(_max, _held) => 0,
        );
        let debt = self.overdrawn(state, at.now).saturating_sub(overdrawn).min(charged);
        Committed { charged, debt, closed: 0, forgiven: cost - charged }
    }

    fn hold(&self, state: &mut AnyState, cost: u64, at: DecisionTime) -> Decision {
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
        match (self, state, charge) {
            (Self::Bucket(limit), AnyState::Bucket(state), AnyState::Bucket(charge)) => {
                limit.refund_charge(state, charge, units, at.now)
            }
            (Self::Window(limit), AnyState::Window(state), AnyState::Window(charge)) => {
                limit.refund_charge(state, charge, units, at.now)
            }
            (Self::Sliding(limit), AnyState::Sliding(state), AnyState::Sliding(charge)) => {
                limit.refund_charge(state, charge, units, at.now)
            }
            // A cooldown and slots give nothing back.
            _ => 0,
        }
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
            _ => 0,
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
                    Debt::All => limit.burst(),
                };
                let most = limit.burst().saturating_add(debt);
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
            _ => return *state,
        }
        used.with_held(state.held())
    }

    /// Whether the state is as good as fresh, at `now` or later.
    pub(crate) fn is_idle(&self, state: &AnyState, now: Timestamp) -> bool {
        match (self, state) {
            (Self::Bucket(limit), AnyState::Bucket(state)) => limit.is_idle(state, now),
            (Self::Window(limit), AnyState::Window(state)) => limit.is_idle(state, now),
            (Self::Sliding(limit), AnyState::Sliding(state)) => limit.is_idle(state, now),
            (Self::Cooldown(limit), AnyState::Cooldown(state)) => limit.is_idle(state, now),
            // That depends on the period, which is not known here.
            (Self::Quota(_), _) => false,
            (Self::Slots(_), AnyState::Slots { held }) => *held == 0,
            (limit, state) => unreachable!("{limit:?} with {state:?}"),
        }
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

    /// A state at least as restrictive as both.
    pub(crate) fn join(&self, a: &AnyState, b: &AnyState) -> AnyState {
        match (self, a, b) {
            (Self::Bucket(limit), AnyState::Bucket(a), AnyState::Bucket(b)) => {
                AnyState::Bucket(limit.join(a, b))
            }
            (Self::Window(limit), AnyState::Window(a), AnyState::Window(b)) => {
                AnyState::Window(limit.join(a, b))
            }
            (Self::Sliding(limit), AnyState::Sliding(a), AnyState::Sliding(b)) => {
                AnyState::Sliding(limit.join(a, b))
            }
            (Self::Cooldown(limit), AnyState::Cooldown(a), AnyState::Cooldown(b)) => {
                AnyState::Cooldown(limit.join(a, b))
            }
            (Self::Quota(limit), AnyState::Quota(a), AnyState::Quota(b)) => {
                AnyState::Quota(limit.join(a, b))
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

impl AnyState {
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
