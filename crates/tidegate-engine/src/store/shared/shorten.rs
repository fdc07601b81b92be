//! Shortens the history of the limits by what no state counts under any more.

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::smallvec;
use tidegate_core::Timestamp;

use super::cell::CellRecord;
use super::control::Control;
use super::records::{Changes, Flow, Kind, RecordKey, RecordStore, Records, Transaction};
use super::state::StateRecord;
use super::{SharedStore, edit};
use crate::store::Outage;
use crate::store::answer::{BoxFuture, promise};

impl SharedStore {
    /// Forgets the versions of limits that were superseded before a time and that no state counts
    /// under. The result has what is in force then.
    ///
    /// It reads all states. One that is written meanwhile counts under newer versions.
    pub(crate) fn shorten(&self, before: Timestamp) -> BoxFuture<Result<Arc<Control>, Outage>> {
        let (records, seen) = (Arc::clone(&self.records), self.seen.clone());
        Box::pin(async move {
            let used = used_versions(&*records).await?;
            let edit = edit::<_, Outage>(&*records, &seen, move |control| {
                let mut history = control.history.without_unused(&used, before);
                if history.superseded() == control.history.superseded() {
                    return Ok((None, ()));
                }
                history.mark_forgotten();
                Ok((Some(control.with_history(history)), ()))
            });
            edit.await.map(|(control, ())| control)
        })
    }
}

/// The numbers of all versions that some state, or some units on hold, count under.
async fn used_versions(records: &dyn RecordStore) -> Result<HashSet<u32>, Outage> {
    let (mut used, mut from) = (HashSet::new(), 0);
    loop {
        let (keys, next) = records.states(from).await?;
        // All are submitted before the first is waited for.
        let reading: Vec<_> = (keys.into_iter())
            .map(|key| {
                let (promise, future) = promise();
                let function =
                    move |read: &Records| Flow::End(Changes::NONE, versions_of(read, key));
                records.run(Transaction::new(smallvec![key], function, promise));
                future
            })
            .collect();
        for versions in reading {
            used.extend(versions.await??);
        }
        if next == 0 {
            return Ok(used);
        }
        from = next;
    }
}

/// The versions that a record counts under.
fn versions_of(records: &Records, key: RecordKey) -> Result<Vec<u32>, Outage> {
    let Some(Some(bytes)) = records.get(&key) else { return Ok(Vec::new()) };
    let corrupt = |_| Outage::Corrupt(key);
    match key.0 {
        Kind::State(_) => {}
        Kind::Cell(_) => {
            return Ok(CellRecord::from_bytes(bytes).map_err(corrupt)?.tags().collect());
        }
        _ => return Ok(Vec::new()),
    }
    let record = StateRecord::from_bytes(bytes).map_err(corrupt)?;
    let charged = record.held.iter().filter_map(|entry| entry.item.charged.as_deref());
    let states = record.stored.iter().chain(charged).map(|stored| stored.tag);
    Ok(states.chain(record.held.iter().map(|entry| entry.item.tag)).collect())
}
