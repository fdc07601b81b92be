//! Forgets the keys of some rules, or of all: one after the other.

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::smallvec;

use super::attempts::Attempts;
use super::cell::{CellRecord, Room};
use super::control::Control;
use super::records::{Changes, DurabilityNeed, Kind, RecordKey, RecordStore, Records, Transaction};
use super::view::{RecordView, Seen, Stop, control_of, corrupt, flow};
use crate::any_limit::AnyLimit;
use crate::periods::Times;
use crate::store::Outage;
use crate::store::answer::promise;
use crate::transition::{self, View};

/// Drops the states of all keys of these rules, or of all rules, and returns how many keys had one.
pub(super) async fn forget_all(
    records: Arc<dyn RecordStore>,
    seen: Seen,
    families: Option<HashSet<u64>>,
    attempts: Attempts,
) -> Result<u64, Outage> {
    let families = Arc::new(families);
    let (mut count, mut from) = (0, 0);
    loop {
        let (keys, next) = records.states(from).await?;
        // All are submitted before the first is waited for.
        let forgetting: Vec<_> = (keys.into_iter())
            .map(|key| {
                let (seen, families) = (seen.clone(), Arc::clone(&families));
                let mut attempts = attempts.clone();
                let function = move |read: &Records| {
                    flow(forget(read, key, &families, attempts.next(), &seen))
                };
                let (promise, future) = promise();
                records.run(Transaction::new(smallvec![Control::key(), key], function, promise));
                future
            })
            .collect();
        for forgotten in forgetting {
            count += u64::from(forgotten.await??);
        }
        if next == 0 {
            return Ok(count);
        }
        from = next;
    }
}

/// Makes one key unknown, but for its units on hold; true if it was known.
fn forget(
    records: &Records,
    key: RecordKey,
    families: &Option<HashSet<u64>>,
    times: Times,
    seen: &Seen,
) -> Result<(Changes, bool), Stop<Outage>> {
    let nothing = Ok((Changes::NONE, false));
    let Some(control) = control_of::<Outage>(records, seen)? else { return nothing };
    let view = RecordView { records, control, times, room: Room::UNBOUNDED };
    let hash = match key.0 {
        Kind::State(hash) => hash,
        Kind::Cell(number) => return forget_shared(&view, number, families),
        _ => return nothing,
    };
    let mut states = view.states::<Outage>([hash].into_iter())?;
    let state = &mut states[0];
    let Some(stored) = state.stored else { return nothing };
    let rule = view.history().rule_of(stored.tag);
    // Without a rule it is of one that is long gone.
    let is_meant = match (families, rule) {
        (None, _) => true,
        (Some(families), Some(rule)) => families.contains(&rule.family),
        (Some(_), None) => false,
    };
    if !is_meant {
        return nothing;
    }
    let counts = |limit: &AnyLimit| !matches!(limit, AnyLimit::Slots(_));
    let item = state.held.first().map(|entry| entry.item.clone());
    match item.filter(|_| stored.state.held() > 0 && rule.is_some_and(|it| counts(it.common()))) {
        Some(item) => {
            let mut keys = [state.key_state(None)];
            let mut transition_view = View { history: view.history(), times, keys: &mut keys };
            let _ = transition::forget_item(&mut transition_view, 0, &item);
            state.take(&keys[0], None);
        }
        None => state.stored = None,
    }
    let writes = vec![state.write(hash, view.history(), times)];
    Ok((Changes { writes, need: DurabilityNeed::BEST }, true))
}

/// Drops what the keys of rules share in a cell. It is no key.
fn forget_shared(
    view: &RecordView<'_>,
    number: u64,
    families: &Option<HashSet<u64>>,
) -> Result<(Changes, bool), Stop<Outage>> {
    let kind = Kind::Cell(number);
    let Some(Some(bytes)) = view.records.get(&RecordKey(kind)) else {
        return Ok((Changes::NONE, false));
    };
    let mut cell = CellRecord::from_bytes(bytes).map_err(|it| corrupt::<Outage>(it, kind))?;
    let is_meant = |family| families.as_ref().is_none_or(|them| them.contains(&family));
    if !cell.forget(is_meant) {
        return Ok((Changes::NONE, false));
    }
    let writes = cell.write(view, number).into_iter().collect();
    Ok((Changes { writes, need: DurabilityNeed::BEST }, false))
}
