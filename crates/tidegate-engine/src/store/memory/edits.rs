//! Changes of the rules in the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_policy::policy::Condition;
use tidegate_table::locks::{lock, read, write};

use super::slot::SlotLine;
use super::{
    Adoption, HoldItem, HoldTables, LimitsChange, Locked, MemoryStore, Several, SlotTable,
};
use crate::history::{Current, History, KeyRef, RuleHistory, StoredState};
use crate::periods::Times;

impl MemoryStore {
    /// Adopts a new set of rules. The first call for a set of rules does it.
    ///
    /// The time of the change is read after the new version is visible, so no charge under the old
    /// rules is later than it.
    pub(in crate::store) fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        let mut history = write(&self.history);
        if self.version.load(Ordering::SeqCst) >= adoption.version {
            return;
        }
        self.version.store(adoption.version, Ordering::SeqCst);
        let times = times();
        let in_force =
            |rule: &Arc<RuleHistory>| Arc::new(history.without_forgotten(rule).in_force_at(times));
        let changed: Vec<LimitsChange> = (adoption.rules.iter())
            .map(|rule| (history.rule(rule.family).cloned(), in_force(rule)))
            .collect();
        let known = Arc::make_mut(&mut history);
        changed.iter().for_each(|(_, rule)| known.insert(Arc::clone(rule)));
        if let Some(sink) = &self.sink {
            // No decision uses the new limits before they are recorded.
            sink.write_limits(&changed);
        }
        let is_crowded = self.is_crowded(&history);
        drop(history);
        if is_crowded {
            self.forget_superseded(times);
        }
    }

    /// Closes a round of a domain, and returns how many were closed.
    pub(crate) fn close_round(&self, domain: &str, times: Times) -> u64 {
        let mut history = write(&self.history);
        let changed = Arc::make_mut(&mut history).close_round(domain, times);
        let closed = self.rounds(domain).fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(sink) = &self.sink {
            sink.write_limits(&changed);
        }
        closed
    }

    /// Brings states and holds up to date, and forgets versions that nothing refers to.
    ///
    /// A key that overrides by pattern may match is known only while it has a hold; its state may
    /// refer to old versions for ever. So a rule has a maximum of versions, and a state that refers
    /// to an older one counts as fully used when the oldest one began.
    pub(super) fn forget_superseded(&self, times: Times) {
        let mut tables = lock(&self.tables);
        let mut holds: HashMap<u64, HoldItem> = HashMap::new();
        {
            let history = read(&self.history);
            tables.shared.drop_idle(&history, times);
            for item in tables.items_mut() {
                item.bring_up_to_date(&history, times);
                holds.insert(item.hash, item.clone());
            }
        }
        let mut used = HashSet::new();
        self.bring_up_to_date(&self.narrow, &mut tables, &holds, times, &mut used);
        self.bring_up_to_date(&self.wide, &mut tables, &holds, times, &mut used);
        used.extend(tables.tags().chain(tables.shared.tags()));
        let mut history = write(&self.history);
        let known = Arc::make_mut(&mut history);
        known.forget_before(&used);
        let is_cut = known.cut(2 * MOST_SUPERSEDED);
        self.superseded_left.store(known.superseded(), Ordering::Relaxed);
        drop(history);
        if is_cut {
            self.leave_cut_versions(&self.narrow);
            self.leave_cut_versions(&self.wide);
            Arc::make_mut(&mut write(&self.history)).renumber();
        }
    }

    /// Whether it is worth looking for versions that nothing refers to.
    fn is_crowded(&self, history: &History) -> bool {
        let left = self.superseded_left.load(Ordering::Relaxed);
        history.superseded() > left + MOST_SUPERSEDED
            || history.has_more_versions_than(2 * MOST_SUPERSEDED)
    }

    fn bring_up_to_date<L: SlotLine>(
        &self,
        table: &SlotTable<L>,
        tables: &mut HoldTables,
        holds: &HashMap<u64, HoldItem>,
        times: Times,
        used: &mut HashSet<u32>,
    ) {
        self.for_each_state(table, |line, slot, (tag, rule)| {
            let (hash, is_pinned) = (line.fingerprint(slot), line.header.is_pinned(slot));
            let held = if is_pinned { tables.held(hash) } else { 0 };
            let hold = holds.get(&hash);
            let state = line.line().load_state(slot, rule.common()).with_held(held);
            let meets = |conditions: &[Condition]| hold.is_some_and(|it| it.meets(conditions));
            let key = KeyRef { hash, meets: &meets };
            let newest = rule.tag_at(times);
            let current = rule.advance(StoredState { tag, state }, key, newest, times.now);
            let is_known = is_pinned == (held > 0) && (hold.is_some() || !rule.has_patterns());
            if !is_known || current.stuck.is_some() {
                used.insert(tag);
                return;
            }
            let Current { tag, state, .. } = current;
            line.store(slot, L::pack(tag, &state, line.line().decided_at(slot)));
            if is_pinned {
                line.header.set_pinned(slot, state.held() > 0);
                tables.set_held(hash, state.held());
            }
            used.insert(tag);
        });
    }

    /// Gives states that refer to dropped versions the number of the oldest one.
    fn leave_cut_versions<L: SlotLine>(&self, table: &SlotTable<L>) {
        self.for_each_state(table, |line, slot, (tag, rule)| {
            if let Some(cut) = rule.cut_tag(tag).filter(|cut| tag < *cut) {
                let state = line.line().load_state(slot, rule.common());
                line.store(slot, L::pack(cut, &state, line.line().decided_at(slot)));
            }
        });
    }

    /// Calls a function for every state of a known rule: its line, its slot, and the number that it
    /// was written under with the history of its rule.
    fn for_each_state<L: SlotLine>(
        &self,
        table: &SlotTable<L>,
        mut then: impl FnMut(&mut Locked<'_, L>, usize, (u32, &RuleHistory)),
    ) {
        table.for_each_line(|line| {
            let history = read(&self.history);
            let occupied: Several<usize> = line.occupied().collect();
            for slot in occupied {
                let tag = line.line().tag(slot);
                if let Some(rule) = history.rule_of(tag) {
                    then(line, slot, (tag, rule));
                }
            }
        });
    }
}

/// How many superseded versions come before states are brought up to date. A rule has at most twice
/// as many versions.
pub(super) const MOST_SUPERSEDED: usize = 4_096;
