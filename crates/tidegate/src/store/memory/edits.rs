//! Changes of the rules in the store.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use super::slot::SlotLine;
use super::{Adoption, LimitsChange, MemoryStore, Several, SlotTable};
use crate::cycle::Times;
use crate::history::{RuleHistory, StoredState};
use crate::locks::{lock, read, write};
use crate::store::sealed::Store as _;

impl MemoryStore {
    /// Adopts a new set of rules. The first call for a set of rules does it.
    ///
    /// The time of the change is read after the new version is visible, so no charge under the old
    /// rules is later than it.
    pub(super) fn adopt_now(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        let mut history = write(&self.history);
        if self.version.load(Ordering::SeqCst) >= adoption.version {
            return;
        }
        self.version.store(adoption.version, Ordering::SeqCst);
        let times = times();
        let in_force = |rule: &Arc<RuleHistory>| Arc::new((**rule).clone().in_force_at(times));
        let changed: Vec<LimitsChange> = (adoption.rules.iter())
            .map(|rule| (history.rule(rule.family).cloned(), in_force(rule)))
            .collect();
        let known = Arc::make_mut(&mut history);
        changed.iter().for_each(|(_, rule)| known.insert(Arc::clone(rule)));
        if let Some(sink) = &self.sink {
            // No decision uses the new limits before they are recorded.
            sink.write_limits(&changed);
        }
        let is_crowded = history.superseded() > MOST_SUPERSEDED;
        drop(history);
        if is_crowded {
            self.forget_superseded(times);
        }
    }

    /// Closes a round of a domain, and returns how many were closed.
    pub(crate) fn close_round_now(&self, domain: &str, times: Times) -> u64 {
        let mut history = write(&self.history);
        let changed = Arc::make_mut(&mut history).close_round(domain, times);
        let closed = self.rounds(domain).fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(sink) = &self.sink {
            sink.write_limits(&changed);
        }
        closed
    }

    /// Brings states up to date, and forgets versions that no state was written under.
    pub(super) fn forget_superseded(&self, times: Times) {
        let used = Mutex::new(HashSet::new());
        self.bring_up_to_date(&self.narrow, times, &used);
        self.bring_up_to_date(&self.wide, times, &used);
        let mut tables = lock(&self.tables);
        tables.shared.drop_idle(&read(&self.history), times);
        let mut used = used.into_inner().unwrap_or_else(PoisonError::into_inner);
        used.extend(tables.tags().chain(tables.shared.tags()));
        let mut history = write(&self.history);
        Arc::make_mut(&mut history).forget_before(&used);
    }

    fn bring_up_to_date<L: SlotLine>(
        &self,
        table: &SlotTable<L>,
        times: Times,
        used: &Mutex<HashSet<u32>>,
    ) {
        table.for_each_line(|line| {
            let history = read(&self.history);
            let occupied: Several<usize> = line.occupied().collect();
            for slot in occupied {
                let tag = line.line().tag(slot);
                let Some(rule) = history.rule_of(tag) else { continue };
                let state = line.line().load_state(slot, rule.common());
                // A key with units on hold, and one that a pattern may match, need more than this.
                let is_known = !line.header.is_pinned(slot);
                let stored = StoredState { tag, state };
                let hash = line.fingerprint(slot);
                let current = rule.advance_by_hash(stored, hash, times).filter(|_| is_known);
                let Some(StoredState { tag, state }) = current else {
                    lock(used).insert(tag);
                    continue;
                };
                line.store(slot, L::pack(tag, &state, line.line().decided_at(slot)));
                lock(used).insert(tag);
            }
        });
    }
}

/// How many superseded versions are kept before states are brought up to date.
const MOST_SUPERSEDED: usize = 4_096;
