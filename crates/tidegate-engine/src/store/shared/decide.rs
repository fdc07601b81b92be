//! Decisions, refunds and enrolments as functions over records.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::Timestamp;

use super::cell::{Room, Spots};
use super::control::Control;
use super::hold::{hold_write, name_write};
use super::queue::attend;
use super::records::{Changes, DurabilityNeed, Records, Write};
use super::state::{HeldEntry, StateRecord};
use super::view::{OtherBody, RecordView, Seen, Stop, control_of};
use crate::any_limit::AnyLimit;
use crate::decision::{Decisions, INLINE, Operation};
use crate::periods::Times;
use crate::plan::{Charge, IdempotencyKey, Plan, PlanTime};
use crate::store::memory::{CachedResponse, CachedResult, Hold};
use crate::store::{Decided, DecidedElsewhere, Failure, HoldBound, HoldId, NewHold, TicketOutcome};
use crate::transition::{self, HoldItem, KeyState, Outcome, View};
use tidegate_policy::policy::Durability;

/// The records of a plan, if it was made from the rules in force and its time is not over.
pub(super) fn view_of<'r>(
    records: &'r Records,
    plan: &Plan<'_>,
    times: Times,
    seen: &Seen,
    room: Room,
) -> Result<RecordView<'r>, Stop<Failure>> {
    let control = control_in_force(records, plan.version, seen)?;
    if let PlanTime::Clock { until: Some(until) } = plan.time
        && until <= times.now
    {
        return Err(Stop::With(Failure::Superseded));
    }
    Ok(RecordView { records, control, times, room })
}

/// The control, if it has this version.
pub(super) fn control_in_force(
    records: &Records,
    version: u64,
    seen: &Seen,
) -> Result<Arc<Control>, Stop<Failure>> {
    match control_of(records, seen)? {
        Some(control) if control.version == version => Ok(control),
        Some(control) => {
            seen.set(&control);
            Err(Stop::With(Failure::Superseded))
        }
        None => Err(Stop::With(Failure::Superseded)),
    }
}

/// Makes one whole decision.
pub(super) fn decide(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    new_id: HoldId,
) -> Result<(Changes, Decided), Stop<Failure>> {
    if let Some(named) = plan.name {
        match view.recall(named)? {
            Ok(Some(response)) => return repeated(view, plan, &response),
            Ok(None) => {}
            Err(OtherBody) => return Err(Stop::With(Failure::OtherBody)),
        }
    }
    let mut states = view.states(plan.hashes())?;
    if let Some(granted) = granted_before(view, plan, &states) {
        let changes = Changes { writes: Vec::new(), need: need_of_all(plan) };
        return Ok((changes, granted));
    }
    if plan.hold.is_some() {
        let is_full = |(charge, state): (&Charge, &StateRecord)| {
            !matches!(charge.limit, AnyLimit::Slots(_)) && state.held.len() >= MOST_HOLDS_OF_KEY
        };
        if plan.charges.iter().zip(&states).any(is_full) {
            let bound = HoldBound::Key { most: MOST_HOLDS_OF_KEY };
            return Err(Stop::With(Failure::TooManyHolds(bound)));
        }
        if view.room.is_full {
            let bound = HoldBound::Records { most: view.room.max_records };
            return Err(Stop::With(Failure::TooManyHolds(bound)));
        }
    }
    let mut spots = Spots::of(view, plan)?;
    let mut keys = spots.key_states(view, plan, &states);
    let (history, times) = (view.history(), view.times);
    let (outcome, mut elsewhere) = decided(view, plan, &states, &mut keys);
    let (is_allowed, has_charged) = (outcome.is_allowed, outcome.has_charged);
    if plan.act.is_look() {
        return Ok((Changes::NONE, Decided::elsewhere(is_allowed, elsewhere)));
    }
    let ticket = attend(plan, is_allowed, &elsewhere.decisions, &mut states, times.now);
    elsewhere.ticket = plan.ticket.map(|_| ticket.outcome);
    let (mut writes, mut need) = (Vec::new(), DurabilityNeed::NONE);
    if !ticket.waits() {
        writes = spots.charge(view, plan, &mut keys);
    }
    let held = add_hold(view, plan, outcome, new_id, &mut states, &mut writes);
    for (index, charge) in plan.charges.iter().enumerate() {
        if !spots.is_own(index) {
            continue;
        }
        // Nothing is charged while a request waits.
        let is_changed = !ticket.waits() && states[index].take(&keys[index], Some(&charge.limit));
        let is_held = held.is_some_and(|new| states[index].fence == new.fence);
        if is_changed || is_held {
            need = need.and(need_of(charge));
        }
        if is_changed || is_held || ticket.changed == Some(index) {
            writes.push(states[index].write(charge.hash, history, times));
        }
    }
    // Without room it is not remembered, and a repeat is charged again.
    let is_remembered = (is_allowed || has_charged) && !view.room.is_full;
    if let Some(named) = plan.name.filter(|_| is_remembered) {
        let hashes = plan.hashes();
        let decisions = hashes.zip(elsewhere.decisions.iter().copied()).collect();
        let response = CachedResponse::Charged { is_allowed, hold: held, decisions };
        writes.push(cached(named, response, times.now));
    }
    let decided = Decided { hold: held, ..Decided::elsewhere(is_allowed, elsewhere) };
    Ok((Changes { writes, need }, decided))
}

/// What the limits decide.
fn decided(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    states: &[StateRecord],
    keys: &mut [KeyState],
) -> (Outcome, DecidedElsewhere) {
    let mut decisions = Decisions::new();
    let mut transition_view = View { history: view.history(), times: view.times, keys };
    let holds = |index: usize| states[index].ending_holds();
    let outcome = transition::decide(&mut transition_view, plan, holds, &mut decisions);
    let next_expiry = states.iter().filter_map(StateRecord::next_expiry).min();
    (outcome, DecidedElsewhere { next_expiry, ..DecidedElsewhere::new(view.times, decisions) })
}

/// The lease that a waiter has got already, by an attempt whose answer was lost.
fn granted_before(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    states: &[StateRecord],
) -> Option<Decided> {
    let id = HoldId(plan.ticket?.turn.hold);
    let entry = states.iter().flat_map(|state| &state.held).find(|entry| entry.id == id)?;
    let hold = Some(NewHold { id, expires: entry.expires, fence: entry.fence });
    let look = Plan { act: Operation::Look, ticket: None, ..plan.clone() };
    let (_, mut elsewhere) = decided(view, &look, states, &mut key_states(&look, states));
    elsewhere.ticket = Some(TicketOutcome::Gone);
    Some(Decided { hold, ..Decided::elsewhere(true, elsewhere) })
}

/// The result that the same request got before.
fn repeated(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    response: &CachedResponse,
) -> Result<(Changes, Decided), Stop<Failure>> {
    let CachedResponse::Charged { is_allowed, hold, decisions: earlier } = response else {
        return Err(Stop::With(Failure::OtherBody));
    };
    // The rules may have changed; each gets its own earlier decision.
    let decision = |charge: &Charge| {
        let decision = earlier.iter().find(|(hash, _)| *hash == charge.hash);
        decision.map_or_else(|| charge.peek_fresh(view.times.now), |(_, it)| *it)
    };
    let decisions = plan.charges.iter().map(decision).collect();
    // The first one may not be durable yet.
    let changes = Changes { writes: Vec::new(), need: need_of_all(plan) };
    let elsewhere = DecidedElsewhere::new(view.times, decisions);
    let decided = Decided::elsewhere(*is_allowed, elsewhere);
    Ok((changes, Decided { hold: *hold, is_repeat: true, ..decided }))
}

/// Writes the hold of a decision, if it has one.
fn add_hold(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    outcome: Outcome,
    id: HoldId,
    states: &mut [StateRecord],
    writes: &mut Vec<Write>,
) -> Option<NewHold> {
    let hold = plan.hold.filter(|_| outcome.is_allowed)?;
    let now = view.times.now;
    let last = states.iter().map(|state| state.fence).max().unwrap_or(0);
    let fence = (last + 1).max(now.as_nanos() / 1_000);
    let expires = now.saturating_add(hold.length);
    if outcome.items.is_empty() && plan.name.is_none() && plan.act == Operation::Hold {
        // No rule limits it: its id is all there is to know. A lease can be renewed.
        return Some(NewHold { id: HoldId::unlimited(fence, expires), expires, fence });
    }
    for item in &outcome.items {
        let index = plan.charges.iter().position(|charge| charge.hash == item.hash);
        if let Some(state) = index.and_then(|index| states.get_mut(index)) {
            state.held.push(HeldEntry { id, expires, fence, item: item.clone() });
            state.fence = fence;
        }
    }
    let name = plan.name.map(|named| named.name);
    let (length, domain, end) = (hold.length, hold.domain, None);
    let hold = Hold { items: outcome.items, length, expires, fence, end, name, domain };
    writes.push(hold_write(id, Some(&hold), now));
    Some(NewHold { id, expires, fence })
}

/// Makes the keys of a plan known, and returns how many were not.
pub(super) fn enrol(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
) -> Result<(Changes, u64), Stop<Failure>> {
    let mut states = view.states(plan.hashes())?;
    let mut spots = Spots::of(view, plan)?;
    if spots.has_no_room() {
        return Err(Stop::With(Failure::NoRoom));
    }
    let mut keys = spots.key_states(view, plan, &states);
    let mut transition_view = View { history: view.history(), times: view.times, keys: &mut keys };
    let outcome = transition::enrol(&mut transition_view, plan);
    let _ = spots.charge(view, plan, &mut keys);
    // Also what was known before may not be durable yet.
    let changes =
        Changes { writes: changed(view, plan, &mut states, &keys), need: need_of_all(plan) };
    Ok((changes, outcome.units.iter().sum()))
}

/// Refunds the cost of a plan at every limit, and returns the most that any refunded.
pub(super) fn refund(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
) -> Result<(Changes, u64), Stop<Failure>> {
    if let Some(named) = plan.name {
        match view.recall(named)? {
            Ok(Some(CachedResponse::Refunded { units, .. })) => {
                let changes = Changes { writes: Vec::new(), need: need_of_all(plan) };
                return Ok((changes, units));
            }
            Ok(Some(CachedResponse::Charged { .. })) | Err(OtherBody) => {
                return Err(Stop::With(Failure::OtherBody));
            }
            Ok(None) => {}
        }
    }
    let mut states = view.states(plan.hashes())?;
    let mut keys = key_states(plan, &states);
    let mut transition_view = View { history: view.history(), times: view.times, keys: &mut keys };
    let refund = |(index, charge): (usize, &Charge)| {
        let item = HoldItem::new(plan, charge, charge.tag);
        transition::refund(&mut transition_view, index, &item)
    };
    let units = plan.charges.iter().enumerate().map(refund).max().unwrap_or(0);
    let mut writes = changed(view, plan, &mut states, &keys);
    if let Some(named) = plan.name.filter(|_| units > 0) {
        let hashes = plan.hashes().collect();
        let response = CachedResponse::Refunded { units, hashes };
        writes.push(cached(named, response, view.times.now));
    }
    Ok((Changes { writes, need: need_of_all(plan) }, units))
}

/// Drops the states of a plan's keys; true if there were any. Holds stay.
pub(super) fn forget(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
) -> Result<(Changes, bool), Stop<Failure>> {
    let mut states = view.states(plan.hashes())?;
    let mut keys = key_states(plan, &states);
    let mut transition_view = View { history: view.history(), times: view.times, keys: &mut keys };
    let mut is_known = false;
    for (index, charge) in plan.charges.iter().enumerate() {
        let is_slots = matches!(charge.limit, AnyLimit::Slots(_));
        is_known |= !is_slots && transition::forget(&mut transition_view, index, plan);
    }
    let writes = changed(view, plan, &mut states, &keys);
    Ok((Changes { writes, need: need_of_all(plan) }, is_known))
}

/// How durable a charge has to be.
fn need_of(charge: &Charge) -> DurabilityNeed {
    let wanted = charge.terms.durability;
    let required = if charge.terms.sets_durability { wanted } else { Durability::Memory };
    DurabilityNeed { wanted, required }
}

/// How durable all charges of a plan have to be.
fn need_of_all(plan: &Plan<'_>) -> DurabilityNeed {
    let needs = plan.charges.iter().map(need_of);
    needs.fold(DurabilityNeed::NONE, DurabilityNeed::and)
}

fn key_states(plan: &Plan<'_>, states: &[StateRecord]) -> SmallVec<[KeyState; INLINE]> {
    let states = plan.charges.iter().zip(states);
    states.map(|(charge, state)| state.key_state(Some(&charge.limit))).collect()
}

/// The states that have changed.
fn changed(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    states: &mut [StateRecord],
    keys: &[KeyState],
) -> Vec<Write> {
    let mut writes = Vec::new();
    for ((charge, state), key) in plan.charges.iter().zip(states).zip(keys) {
        if state.take(key, Some(&charge.limit)) {
            writes.push(state.write(charge.hash, view.history(), view.times));
        }
    }
    writes
}

/// What a request under an idempotency key got.
pub(super) fn cached(named: IdempotencyKey, response: CachedResponse, now: Timestamp) -> Write {
    let IdempotencyKey { domain, name, body } = named;
    name_write(name, Some(&CachedResult { at: now, domain, body, response }))
}

/// How many open reservations a key may have, so that its record stays small.
const MOST_HOLDS_OF_KEY: usize = 1_024;
