//! The one pure decision over several limits.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use tidegate_core::{Committed, Decision};
use tidegate_policy::policy::{Charging, Mode};

use crate::any_limit::{AnyLimit, AnyState, DecisionTime};

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
            (_, Operation::Charge) => self.limit.check(state, self.cost, self.decided_at),
            (_, Operation::Hold) => self.limit.hold(state, self.cost, self.decided_at),
            (_, Operation::Look | Operation::Enrol) => {
                self.limit.peek(state, self.cost, self.decided_at)
            }
            (_, Operation::Measure) => self.limit.measure(state, self.decided_at),
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
