//! Forgets the keys of some rules, or of all.

use std::collections::HashMap;
use std::slice;

use tidegate_policy::policy::Durability;
use tidegate_table::locks::read;
use tidegate_table::table::SlotTable;

use super::slot::SlotLine;
use super::{
    EntryKind, ForgetScope, HoldItem, HoldTables, JournalEntry, MemoryStore, Several, Width,
};
use crate::any_limit::AnyLimit;
use crate::periods::Times;
use crate::transition;

/// Keys whose states were dropped.
type Dropped = Vec<(u64, Width)>;

impl MemoryStore {
    /// Drops the states of all keys within the scope, and returns how many there were. Holds stay.
    ///
    /// The hold tables are locked meanwhile, so no decision that is recorded comes in between. The
    /// records are several: after a crash before the last one is durable, some states may be back.
    pub(in crate::store) fn forget_all(&self, scope: ForgetScope<'_>, times: Times) -> u64 {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        tables.shared.forget(|family| scope.has(family));
        let mut count = self.forget_held(&mut tables, scope, times);
        let mut dropped = Dropped::new();
        count += self.drop_states(&self.narrow, &tables, scope, &mut dropped);
        count += self.drop_states(&self.wide, &tables, scope, &mut dropped);
        let Some(sink) = &self.sink else { return count };
        // Not while a line is locked: see the order of locks.
        dropped.retain(|(hash, _)| !sink.needs_name(*hash, false));
        for states in dropped.chunks(KEYS_PER_RECORD) {
            let mut entry = journal_entry(scope, times);
            entry.note(Durability::Fsync);
            entry.states.extend_from_slice(states);
            self.record(&tables, entry);
        }
        count
    }

    /// Drops the states of keys without units on hold.
    fn drop_states<L: SlotLine>(
        &self,
        table: &SlotTable<L>,
        tables: &HoldTables,
        scope: ForgetScope<'_>,
        dropped: &mut Dropped,
    ) -> u64 {
        let mut count = 0;
        table.for_each_line(|line| {
            let history = read(&self.history);
            let occupied: Several<usize> = line.occupied().collect();
            for slot in occupied {
                let hash = line.fingerprint(slot);
                let family = history.rule_of(line.line().tag(slot)).map(|rule| rule.family);
                // Without a rule it is of one that is long gone.
                let is_meant = family.map_or(scope.families.is_none(), |it| scope.has(it));
                if is_meant && tables.held(hash) == 0 {
                    line.clear(slot);
                    table.uncount_keys(1);
                    count += 1;
                    if self.sink.is_some() {
                        dropped.push((hash, L::WIDTH));
                    }
                }
            }
        });
        count
    }

    /// Makes keys with units on hold fresh, but for those units.
    fn forget_held(&self, tables: &mut HoldTables, scope: ForgetScope<'_>, times: Times) -> u64 {
        let mut items: HashMap<u64, HoldItem> = HashMap::new();
        {
            let history = read(&self.history);
            let open = tables.holds().filter(|(_, hold)| hold.end.is_none());
            for item in open.flat_map(|(_, hold)| &hold.items) {
                let Some(rule) = history.rule_of(item.tag) else { continue };
                let counts = !matches!(rule.common(), AnyLimit::Slots(_));
                if counts && scope.has(rule.family) && !items.contains_key(&item.hash) {
                    items.insert(item.hash, item.clone());
                }
            }
        }
        let items: Vec<HoldItem> = items.into_values().collect();
        let mut count = 0;
        for items in items.chunks(HOLDS_PER_RECORD) {
            let mut entry = journal_entry(scope, times);
            for item in items {
                let of_item = slice::from_ref(item);
                let is_known = self.change(tables, of_item, times, &mut entry, |view, _| {
                    transition::forget_item(view, 0, item)
                });
                count += u64::from(is_known);
            }
            self.record(tables, entry);
        }
        count
    }
}

fn journal_entry(scope: ForgetScope<'_>, times: Times) -> JournalEntry {
    let mut entry = JournalEntry::new(EntryKind::Forget, times.now);
    entry.note = scope.note.map(Into::into);
    entry
}

/// How many states a record has. It is encoded in memory, and read as a whole.
const KEYS_PER_RECORD: usize = 4_096;

/// The same for states with units on hold, which are changed one by one.
const HOLDS_PER_RECORD: usize = 256;
