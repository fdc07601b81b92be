//! What only a file store needs: its journal, states one by one, undoing and erasing.

use std::sync::Arc;

use tidegate_policy::policy::Durability;

use super::state_image::remove_key;
use super::{
    Author, EntryKind, Hold, HoldId, HoldItem, HoldTables, JournalEntry, MemoryStore, Several,
    Sink, StateImage, Width,
};
use crate::periods::Times;
use crate::store::settlement::Settlement;

impl MemoryStore {
    /// Records changes from now on, and gives every rule at least this durability.
    pub(crate) fn attach_journal(&mut self, sink: Arc<dyn Sink>, least: Durability) {
        (self.sink, self.least_durability) = (Some(sink), least);
    }

    /// The state of a key.
    pub(crate) fn image(&self, hash: u64, width: Width) -> Option<StateImage> {
        match width {
            Width::Narrow => {
                let (_, mut chain) = self.narrow.lock_chain(hash);
                let at = chain.find(hash)?;
                Some(StateImage::Narrow(chain.line(at.line).load(at.slot)))
            }
            Width::Wide => {
                let (_, mut chain) = self.wide.lock_chain(hash);
                let at = chain.find(hash)?;
                Some(StateImage::Wide(chain.line(at.line).load(at.slot)))
            }
            Width::None => None,
        }
    }

    /// Calls a function with the hold tables, locked.
    pub(crate) fn with_hold_tables<R>(&self, then: impl FnOnce(&mut HoldTables) -> R) -> R {
        then(&mut self.tables())
    }

    /// Undoes a decision that could not be made durable.
    pub(crate) fn undo(&self, undo: &Undo, times: Times) {
        if let Some(hold) = undo.hold {
            // An expired hold is already released.
            let _ = self.settle_as(hold, Settlement::Void, Author::Engine, Some(UNDONE), times);
        }
        let mut tables = self.tables();
        let mut entry = JournalEntry::new(EntryKind::Refund, times.now);
        (entry.author, entry.note) = (Author::Engine, Some(UNDONE.into()));
        self.refund_items(&mut tables, &undo.items, times, &mut entry);
        if let Some(name) = undo.name {
            entry.names.push(name);
            tables.forget_result(name);
        }
        self.record(&tables, entry);
    }

    /// Drops everything about a key: its state, its holds and its cached results.
    pub(crate) fn erase(&self, hash: u64, times: Times) {
        let holds: Vec<HoldId> = self.with_hold_tables(|tables| {
            let is_its = |hold: &Hold| hold.items.iter().any(|item| item.hash == hash);
            let open = tables.holds().filter(|(_, hold)| hold.end.is_none() && is_its(hold));
            open.map(|(id, _)| *id).collect()
        });
        for hold in holds {
            // An expired hold is already released.
            let _ = self.settle_as(hold, Settlement::Cancel, Author::Host, None, times);
        }
        let mut tables = self.tables();
        let mut entry = JournalEntry::new(EntryKind::Forget, times.now);
        entry.note(Durability::Fsync);
        let (names, settled) = tables.forget_state(hash);
        entry.names.extend(names);
        entry.holds.extend(settled);
        remove_key(&self.narrow, hash);
        remove_key(&self.wide, hash);
        entry.states.extend([(hash, Width::Narrow), (hash, Width::Wide)]);
        entry.erased.push(hash);
        self.record(&tables, entry);
    }
}

/// What to undo if a decision cannot be made durable.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub(crate) hold: Option<HoldId>,
    pub(crate) items: Several<HoldItem>,
    pub(crate) name: Option<[u64; 2]>,
}

const UNDONE: &str = "undone: the disk write failed";
