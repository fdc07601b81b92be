//! Turns changes in memory into records in the log.

use std::sync::Mutex;

use tidegate_core::Timestamp;

use super::bytes::ByteWriter;
use super::keys::Keys;
use super::log::Log;
use super::record::{ActionsRecord, KeyRecord, KeyedAction, Record};
use crate::locks::lock;
use crate::policy::Durability;
use crate::store::memory::{
    CachedResult, Hold, HoldTables, Journal, LimitRegistry, MemoryStore, Sink, Width,
};

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
        let mut out = ByteWriter::default();
        record.write(&mut out);
        self.log.append(&out.0, durability);
    }

    /// A hold as it is written: with numbers for keys, and only the items of durable rules.
    pub(super) fn hold_image(&self, hold: &Hold, keys: &Keys) -> Option<Hold> {
        let mut image = hold.clone();
        image.items.retain(|item| {
            let number = keys.number(item.hash);
            item.hash = number.unwrap_or(0);
            item.durability > Durability::Memory && number.is_some()
        });
        // A hold that no rule limits has no items; it is written where everything is durable.
        let is_unlimited = hold.items.is_empty() && self.least_durability > Durability::Memory;
        (is_unlimited || !image.items.is_empty()).then_some(image)
    }

    /// A cached result, with numbers for keys; keys of rules that are not durable have none.
    pub(super) fn name_image(&self, known: &CachedResult, keys: &Keys) -> CachedResult {
        let mut image = known.clone();
        for hash in &mut image.result.hashes {
            *hash = keys.number(*hash).unwrap_or(0);
        }
        image
    }
}

impl Sink for Recorder {
    fn knows(&self, hash: u64) -> bool {
        lock(&self.keys).knows(hash)
    }

    fn write(&self, store: &MemoryStore, tables: &HoldTables, journal: Journal) {
        let mut out = ByteWriter::default();
        let mut keys = lock(&self.keys);
        for (hash, name) in journal.keys {
            if !keys.knows(hash) {
                let number = keys.add(hash, &name);
                Record::Key(KeyRecord { number, hash, name, is_erased: false }).write(&mut out);
            }
        }
        let mut acts = ActionsRecord { fence: tables.last_fence(), ..ActionsRecord::default() };
        for act in journal.acts {
            let mut last = lock(&self.last);
            *last = last.max(act.at);
            acts.acts.push(KeyedAction::new(act, |hash| keys.number(hash)));
        }
        for (hash, width) in journal.states {
            if let (Some(number), true) = (keys.number(hash), width != Width::None) {
                acts.states.push((number, store.image(hash, width)));
            }
        }
        for id in journal.holds {
            match tables.hold(id) {
                None => acts.holds.push((id, None)),
                Some(hold) => {
                    acts.holds.extend(self.hold_image(hold, &keys).map(|hold| (id, Some(hold))));
                }
            }
        }
        for name in journal.names {
            let known = tables.name(&name).map(|known| self.name_image(known, &keys));
            acts.names.push((name, known));
        }
        Record::Acts(Box::new(acts)).write(&mut out);
        journal.erased.iter().for_each(|hash| keys.remove(*hash));
        // Numbers of keys are in the log before anything that uses them.
        self.log.append(&out.0, journal.durability.unwrap_or(Durability::Memory));
    }

    fn adopted(&self, limits: &LimitRegistry, tags: &[u32]) {
        let mut out = ByteWriter::default();
        for image in tags.iter().filter_map(|tag| limits.image(*tag)) {
            Record::Limit(Box::new(image)).write(&mut out);
        }
        if !out.0.is_empty() {
            self.log.append(&out.0, Durability::Flush);
        }
    }
}
