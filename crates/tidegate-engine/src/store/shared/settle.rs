//! Settlements as functions over records.

use super::decide::cached;
use super::hold::{hold_write, name_write};
use super::records::{Changes, DurabilityNeed, Write};
use super::state::StateRecord;
use super::view::{OtherBody, RecordView, Stop};
use crate::any_limit::AnyLimit;
use crate::store::memory::{
    CachedResponse, EndKind, Hold, HoldEnd, least_and_most, settled_before,
};
use crate::store::{FreedQueues, HoldId, SettleFailure, Settled, Settlement};
use crate::transition::{self, HoldItem, KeyState, View};

/// Ends a hold, extends it, or refunds what it charged.
pub(super) fn settle(
    view: &RecordView<'_>,
    id: HoldId,
    settlement: Settlement,
) -> Result<(Changes, Settled), Stop<SettleFailure>> {
    let now = view.times.now;
    if let Some(named) = settlement.name() {
        match view.recall::<SettleFailure>(named)? {
            Ok(Some(CachedResponse::Refunded { units, .. })) => {
                let settled = Settled { units, is_repeat: true, ..Settled::NOTHING };
                let need = view.hold(id)?.map_or(DurabilityNeed::NONE, |hold| need_of(&hold));
                return Ok((Changes { writes: Vec::new(), need }, settled));
            }
            Ok(Some(CachedResponse::Charged { .. })) | Err(OtherBody) => {
                return Err(Stop::With(SettleFailure::OtherBody));
            }
            Ok(None) => {}
        }
    }
    if let Some(expires) = id.expiry_of_unlimited() {
        let is_refund = matches!(settlement, Settlement::Refund { .. });
        let is_open = now < expires && !is_refund;
        let settled = Settled { expires, ..Settled::NOTHING };
        return if is_open { Ok((Changes::NONE, settled)) } else { Err(gone()) };
    }
    let mut hold = view.hold(id)?.ok_or_else(gone)?;
    if let Some(before) = settled_before(&hold, settlement, now).map_err(Stop::With)? {
        // The first one may not be durable yet.
        return Ok((Changes { writes: Vec::new(), need: need_of(&hold) }, before));
    }
    let need = need_of(&hold);
    let mut states = match hold.end {
        None => view.states_of_open((id, &hold))?.ok_or_else(gone)?,
        Some(_) => view.states(hold.items.iter().map(|item| item.hash))?,
    };
    let queues = freed_queues(view, &hold);
    let settled = Settled { fence: hold.fence, queues, ..Settled::NOTHING };
    let mut writes = Vec::new();
    if settlement == Settlement::Renew {
        hold.expires = now.saturating_add(hold.length);
        for (item, state) in hold.items.iter().zip(&mut states) {
            for entry in state.held.iter_mut().filter(|entry| entry.id == id) {
                entry.expires = hold.expires;
            }
            writes.push(state.write(item.hash, view.history(), view.times));
        }
        writes.push(hold_write(id, Some(&hold), now));
        return Ok((Changes { writes, need }, Settled { expires: hold.expires, ..settled }));
    }
    let settled = settle_items(view, (&mut hold, id), &mut states, (settlement, settled));
    for (item, state) in hold.items.iter().zip(&states) {
        writes.push(state.write(item.hash, view.history(), view.times));
    }
    end_hold(view, (id, &mut hold), (settlement, settled), &mut writes)?;
    Ok((Changes { writes, need }, Settled { expires: hold.expires, ..settled }))
}

/// How durable the settlement of a hold has to be. It is not refused where the server cannot do
/// that: what was used would be released.
fn need_of(hold: &Hold) -> DurabilityNeed {
    let of_item = |item: &HoldItem| DurabilityNeed {
        wanted: item.durability,
        required: DurabilityNeed::NONE.required,
    };
    hold.items.iter().map(of_item).fold(DurabilityNeed::NONE, DurabilityNeed::and)
}

/// Settles all items of a hold.
fn settle_items(
    view: &RecordView<'_>,
    (hold, id): (&mut Hold, HoldId),
    states: &mut [StateRecord],
    (settlement, mut settled): (Settlement, Settled),
) -> Settled {
    let limit = |item: &HoldItem| view.history().rule_of(item.tag).map(|rule| *rule.common());
    let limits: Vec<Option<AnyLimit>> = hold.items.iter().map(limit).collect();
    let of_item = limits.iter().zip(&*states);
    let mut keys: Vec<KeyState> =
        of_item.map(|(limit, state)| state.key_state(limit.as_ref())).collect();
    let mut transition_view = View { history: view.history(), times: view.times, keys: &mut keys };
    let mut least = None;
    for (index, item) in hold.items.iter_mut().enumerate() {
        let outcome = transition::settle_item(&mut transition_view, index, item, settlement);
        least_and_most(&mut settled, &mut least, (item, outcome));
    }
    for ((limit, state), key) in limits.iter().zip(states).zip(&keys) {
        state.take(key, limit.as_ref());
        state.held.retain(|entry| entry.id != id);
    }
    // The host has to account for what a limit did not charge.
    let is_commit = matches!(settlement, Settlement::Commit { .. });
    let units = least.filter(|_| is_commit).unwrap_or(settled.units);
    Settled { units, ..settled }
}

/// Keeps what is needed of a hold that was settled.
fn end_hold(
    view: &RecordView<'_>,
    (id, hold): (HoldId, &mut Hold),
    (settlement, settled): (Settlement, Settled),
    writes: &mut Vec<Write>,
) -> Result<(), Stop<SettleFailure>> {
    let (now, Settled { units, debt, forgiven, .. }) = (view.times.now, settled);
    let settlement = match settlement {
        Settlement::Refund { name, .. } => {
            if let Some(named) = name.filter(|_| units > 0) {
                let hashes = hold.items.iter().map(|item| item.hash).collect();
                let response = CachedResponse::Refunded { units, hashes };
                writes.push(cached(named, response, now));
            }
            writes.push(hold_write(id, Some(hold), now));
            return Ok(());
        }
        Settlement::Renew => return Ok(()),
        Settlement::Commit { actual } => EndKind::Commit { actual },
        Settlement::Cancel | Settlement::Void => EndKind::Cancel,
    };
    if settlement == EndKind::Cancel {
        if let Some(name) = hold.name
            && view.is_name_of(name, id)?
        {
            writes.push(name_write(name, None));
        }
        // A lease that was released is gone.
        if hold.items.iter().any(|item| view.history().is_of_slots(item.tag)) {
            writes.push(hold_write(id, None, now));
            return Ok(());
        }
    }
    hold.end = Some(HoldEnd { at: now, settlement, units, debt, forgiven });
    writes.push(hold_write(id, Some(hold), now));
    Ok(())
}

/// The queues that wait for what a hold releases.
fn freed_queues(view: &RecordView<'_>, hold: &Hold) -> FreedQueues {
    let is_slots = |item: &&HoldItem| view.history().is_of_slots(item.tag);
    let mut slots = hold.items.iter().filter(is_slots);
    match (slots.next(), slots.next()) {
        (Some(only), None) => FreedQueues::One(only.hash),
        _ => FreedQueues::All,
    }
}

fn gone() -> Stop<SettleFailure> {
    Stop::With(SettleFailure::Gone)
}
