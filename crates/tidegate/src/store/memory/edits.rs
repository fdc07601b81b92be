//! Changes of the rules in the store.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use tidegate_core::Timestamp;

use super::limits::MigratedState;
use super::slot::SlotLine;
use super::{Adoption, MemoryStore, Several, SlotTable};
use crate::cycle::Times;
use crate::locks::{lock, read, write};

impl MemoryStore {
    /// Adopts a new set of rules. The first call for a set of rules does it.
    ///
    /// The time of the change is read after the new version is visible, so no charge under the old
    /// rules is later than it.
    pub(super) fn adopt_now(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        let mut limits = write(&self.limits);
        if self.version.load(Ordering::SeqCst) >= adoption.version {
            return;
        }
        self.version.store(adoption.version, Ordering::SeqCst);
        let changed = limits.adopt(adoption, times());
        if let Some(sink) = &self.sink {
            // No decision uses the new limits before they are recorded.
            sink.adopted(&limits, &changed);
        }
        let is_crowded = limits.superseded() > MOST_SUPERSEDED;
        drop(limits);
        if is_crowded {
            self.forget_superseded();
        }
    }

    /// Moves every state to the limit in force, and forgets the others.
    pub(super) fn forget_superseded(&self) {
        let used = Mutex::new(HashSet::new());
        self.migrate(&self.narrow, &used);
        self.migrate(&self.wide, &used);
        let tables = lock(&self.tables);
        let mut used = used.into_inner().unwrap_or_else(PoisonError::into_inner);
        used.extend(tables.tags().chain(tables.shared.tags()));
        let mut limits = write(&self.limits);
        limits.retain(|tag| used.contains(&tag));
    }

    pub(super) fn migrate<L: SlotLine>(&self, table: &SlotTable<L>, used: &Mutex<HashSet<u32>>) {
        table.for_each_line(|line| {
            let limits = read(&self.limits);
            let occupied: Several<usize> = line.occupied().collect();
            for slot in occupied {
                let tag = line.line().tag(slot);
                let Some(limit) = limits.limit(tag) else { continue };
                let state = line.line().load_state(slot, &limit);
                let carried =
                    limits.current(MigratedState { tag, limit, state }, Timestamp::ZERO, None);
                let packed = L::pack(carried.tag, &carried.state, line.line().decided_at(slot));
                line.store(slot, packed);
                lock(used).insert(carried.tag);
            }
        });
    }
}

/// How many superseded limits are kept before states are moved away from them.
const MOST_SUPERSEDED: usize = 4_096;
