//! Settlements as functions over records.

use super::decide::cached;
use super::hold::{hold_write, name_write};
use super::records::{Changes, DurabilityNeed};
use super::view::{OtherBody, RecordView, Stop};
use crate::any_limit::AnyLimit;
use crate::store::memory::{CachedResponse, Hold};
use crate::store::settlement::EndKind;
use crate::store::settlement::{self, HoldAfter, Settlement};
use crate::store::{Failure, HoldId, Settled};
use crate::transition::{HoldItem, KeyState, View};

/// Ends a hold, extends it, or refunds what it charged.
pub(super) fn settle(
    view: &RecordView<'_>,
    id: HoldId,
    settlement: Settlement,
) -> Result<(Changes, Settled), Stop<Failure>> {
    let now = view.times.now;
    let refunded = refunded_before(view, settlement)?;
    if let Some(known) = settlement::known(id, settlement, refunded, now) {
        // The first one may not be durable yet.
        let hold = if refunded.is_some() { view.hold(id)? } else { None };
        let need = hold.map_or(DurabilityNeed::NONE, |hold| need_of(&hold));
        return Ok((Changes { writes: Vec::new(), need }, known.map_err(Stop::With)?));
    }
    let mut hold = view.hold(id)?.ok_or_else(gone)?;
    let need = need_of(&hold);
    if let Some(before) = settlement::settled_before(&hold, settlement, now).map_err(Stop::With)? {
        return Ok((Changes { writes: Vec::new(), need }, before));
    }
    let mut states = match hold.end {
        None => view.states_of_open(id, &hold)?.ok_or_else(gone)?,
        Some(_) => view.states(hold.items.iter().map(|item| item.hash))?,
    };
    let limit = |item: &HoldItem| view.history().rule_of(item.tag).map(|rule| *rule.common());
    let limits: Vec<Option<AnyLimit>> = hold.items.iter().map(limit).collect();
    let of_item = limits.iter().zip(&states);
    let mut keys: Vec<KeyState> =
        of_item.map(|(limit, state)| state.key_state(limit.as_ref())).collect();
    let mut states_view = View { history: view.history(), times: view.times, keys: &mut keys };
    let done = settlement::settle(&mut states_view, &mut hold, settlement);
    let mut writes = Vec::new();
    for (index, (item, state)) in hold.items.iter().zip(&mut states).enumerate() {
        state.take(&keys[index], limits[index].as_ref());
        match done.after {
            HoldAfter::Renewed => {
                let its = state.held.iter_mut().filter(|entry| entry.id == id);
                its.for_each(|entry| entry.expires = hold.expires);
            }
            _ => state.held.retain(|entry| entry.id != id),
        }
        writes.push(state.write(item.hash, view.history(), view.times));
    }
    let mut kept = true;
    match done.after {
        HoldAfter::Renewed => {}
        HoldAfter::Refunded => {
            let units = done.settled.units;
            if let Some(named) = settlement.name().filter(|_| units > 0) {
                let hashes = hold.items.iter().map(|item| item.hash).collect();
                let response = CachedResponse::Refunded { units, hashes };
                writes.push(cached(named, response, now));
            }
        }
        HoldAfter::Released => kept = false,
        HoldAfter::Ended(end) => hold.end = Some(end),
    }
    let is_undone = !kept || hold.end.is_some_and(|end| end.settlement == EndKind::Cancel);
    if is_undone
        && !settlement.is_refund()
        && let Some(name) = hold.name
        && view.is_name_of(name, id)?
    {
        writes.push(name_write(name, None));
    }
    writes.push(hold_write(id, kept.then_some(&hold), now));
    Ok((Changes { writes, need }, done.settled))
}

/// The units that the same refund returned before.
fn refunded_before(
    view: &RecordView<'_>,
    settlement: Settlement,
) -> Result<Option<u64>, Stop<Failure>> {
    let Some(named) = settlement.name() else { return Ok(None) };
    match view.recall(named)? {
        Ok(Some(CachedResponse::Refunded { units, .. })) => Ok(Some(units)),
        Ok(Some(CachedResponse::Charged { .. })) | Err(OtherBody) => {
            Err(Stop::With(Failure::OtherBody))
        }
        Ok(None) => Ok(None),
    }
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

fn gone() -> Stop<Failure> {
    Stop::With(Failure::Gone)
}
