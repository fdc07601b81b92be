//! Turns changes in memory into records in the log.

use std::sync::Mutex;

use tidegate_core::Timestamp;
use tidegate_log::{Level, Log};
use tidegate_policy::policy::Durability;
use tidegate_table::locks::lock;

use super::keys::{Keys, logged_name};
use crate::store::memory::{
    CachedResult, Hold, HoldTables, JournalEntry, LimitsChange, MemoryStore, Sink, Width,
};
use crate::store::record::{ActionsRecord, ByteWriter, KeyRecord, KeyedAction, Record, RuleImage};

/// Writes changes in memory to the log.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) log: Log,
    pub(super) keys: Mutex<Keys>,
    /// The latest time in the log.
    pub(super) last: Mutex<Timestamp>,
    /// The least durability of everything, whatever rules demand.
    pub(super) least_durability: Durability,
}

impl Recorder {
    /// Writes one record.
    pub(super) fn append(&self, record: &Record, durability: Durability) {
        self.log.append(&record.to_bytes(), level(durability));
    }

    /// A hold as it is written: with numbers for keys, and only the items of durable rules.
    pub(super) fn hold_image(&self, hold: &Hold, keys: &Keys) -> Option<Hold> {
        let mut image = hold.clone();
        image.items.retain(|item| {
            let number = keys.number(item.hash);
            item.hash = number.unwrap_or(0);
            let durability = item.durability.max(self.least_durability);
            durability > Durability::Memory && number.is_some()
        });
        // A hold that no rule limits has no items; it is written where everything is durable.
        let is_unlimited = hold.items.is_empty() && self.least_durability > Durability::Memory;
        (is_unlimited || !image.items.is_empty()).then_some(image)
    }

    /// A cached result, with numbers for keys; keys of rules that are not durable have none.
    pub(super) fn name_image(&self, known: &CachedResult, keys: &Keys) -> CachedResult {
        let mut image = known.clone();
        for hash in image.response.hashes_mut() {
            *hash = keys.number(*hash).unwrap_or(0);
        }
        image
    }
}

impl Sink for Recorder {
    fn needs_name(&self, hash: u64, is_held: bool) -> bool {
        let keys = lock(&self.keys);
        // A start needs the names of keys with holds, and reads the log only from the snapshot on.
        keys.number(hash).is_none_or(|number| is_held && keys.is_before_snapshot(number))
    }

    fn write(&self, store: &MemoryStore, tables: &HoldTables, entry: JournalEntry) -> u64 {
        let mut out = ByteWriter::default();
        let mut keys = lock(&self.keys);
        for (hash, name) in &entry.keys {
            let number = keys.number(*hash).unwrap_or_else(|| keys.add(*hash, name));
            let name = logged_name(name);
            Record::Key(KeyRecord { number, hash: *hash, name, is_erased: false }).write(&mut out);
        }
        let mut acts = ActionsRecord { fence: tables.last_fence(), ..ActionsRecord::default() };
        let mut last = lock(&self.last);
        *last = last.max(entry.at);
        drop(last);
        acts.acts.push(KeyedAction::new(&entry, |hash| keys.number(hash)));
        for (hash, width) in &entry.states {
            if let (Some(number), true) = (keys.number(*hash), *width != Width::None) {
                acts.states.push((number, store.image(*hash, *width)));
            }
        }
        for id in &entry.holds {
            match tables.hold(*id) {
                None => acts.holds.push((*id, None)),
                Some(hold) => {
                    acts.holds.extend(self.hold_image(hold, &keys).map(|hold| (*id, Some(hold))));
                }
            }
        }
        for name in &entry.names {
            let known = tables.name(name).map(|known| self.name_image(known, &keys));
            acts.names.push((*name, known));
        }
        Record::Acts(Box::new(acts)).write(&mut out);
        entry.erased.iter().for_each(|hash| keys.remove(*hash));
        // Numbers of keys are in the log before anything that uses them.
        self.log.append(&out.0, entry.durability.map_or(Level::Accepted, level))
    }

    fn write_limits(&self, changed: &[LimitsChange]) {
        let mut out = ByteWriter::default();
        for (before, after) in changed {
            let image = RuleImage::of_change(before.as_deref(), after);
            Record::Rule(Box::new(image)).write(&mut out);
        }
        if !out.0.is_empty() {
            self.log.append(&out.0, Level::Written);
        }
    }
}

/// How far a record has to be on its way to the disk.
pub(super) const fn level(durability: Durability) -> Level {
    match durability {
        Durability::Memory => Level::Accepted,
        Durability::Flush => Level::Written,
        Durability::Fsync => Level::Synced,
    }
}
