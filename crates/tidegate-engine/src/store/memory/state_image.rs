//! States as they are in their slots: to be written, and to be restored.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tidegate_core::Timestamp;
use tidegate_table::hash::KeyedHash;
use tidegate_table::locks::{lock, read};
use tidegate_table::table::{KeyLocation, Narrow, SlotPolicy, SlotTable, Tagged, WIDE_WORDS};

use super::slot::SlotLine;
use super::{
    CachedResult, Hold, HoldId, Locked, MemoryStore, Several, TaggedLine, WideLine, Width,
};
use crate::any_limit::AnyLimit;
use crate::history::{History, StoredState};

/// A state as it is in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateImage {
    Narrow(Tagged<Narrow>),
    Wide(Tagged<[u64; WIDE_WORDS]>),
}

/// There is no slot for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSlotForState;

impl MemoryStore {
    /// Sets the key hash.
    pub(crate) fn set_hash(&mut self, hash: KeyedHash) {
        self.hash = hash;
    }

    pub(crate) fn history_mut(&mut self) -> &mut History {
        Arc::make_mut(self.history.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Restores a state while it is not known which keys have holds: no other one makes room for it.
    pub(crate) fn restore_beside(
        &self,
        hash: u64,
        image: StateImage,
    ) -> Result<(), NoSlotForState> {
        let now = Timestamp::ZERO;
        match image {
            StateImage::Narrow(packed) => {
                store_at(self.narrow.enter(hash, now, &NothingIsIdle), hash, packed, false)
            }
            StateImage::Wide(packed) => {
                store_at(self.wide.enter(hash, now, &NothingIsIdle), hash, packed, false)
            }
        }
    }

    /// Begins to load the line where a state will be restored.
    pub(crate) fn prefetch(&self, hash: u64, image: &StateImage) {
        match image {
            StateImage::Narrow(_) => {
                let _ = self.narrow.fetch(hash);
            }
            StateImage::Wide(_) => {
                let _ = self.wide.fetch(hash);
            }
        }
    }

    /// Removes the state of a key of this width, if there is one.
    pub(crate) fn remove_image(&self, hash: u64, width: Width) {
        match width {
            Width::Narrow => remove_key(&self.narrow, hash),
            Width::Wide => remove_key(&self.wide, hash),
            Width::None => {}
        }
    }

    /// Pins the states of keys with holds.
    pub(crate) fn pin_all(&self, held: &HashSet<u64>) {
        for hash in held {
            pin(&self.narrow, *hash);
            pin(&self.wide, *hash);
        }
    }

    /// Restores a state, as of some time; one with a hold is pinned.
    pub(crate) fn restore_image(
        &self,
        hash: u64,
        image: StateImage,
        now: Timestamp,
        is_held: bool,
    ) -> Result<(), NoSlotForState> {
        match image {
            StateImage::Narrow(packed) => {
                self.restore_into(&self.narrow, hash, packed, now, is_held)
            }
            StateImage::Wide(packed) => self.restore_into(&self.wide, hash, packed, now, is_held),
        }
    }

    fn restore_into<L: SlotLine>(
        &self,
        table: &SlotTable<L>,
        hash: u64,
        packed: L::Packed,
        now: Timestamp,
        is_held: bool,
    ) -> Result<(), NoSlotForState> {
        let mut location = table.enter(hash, now, self);
        if let KeyLocation::Full(chain) = location {
            drop(chain);
            // During recovery idle keys need not stay.
            self.sweep(now);
            location = table.enter(hash, now, self);
        }
        store_at(location, hash, packed, is_held)
    }

    /// Restores holds and cached results, after all states.
    pub(crate) fn restore_hold_tables(
        &self,
        holds: Vec<(HoldId, Hold)>,
        names: Vec<([u64; 2], CachedResult)>,
        last_fence: u64,
    ) {
        let (open, settled) = holds.into_iter().partition(|(_, hold)| hold.end.is_none());
        self.restore_holds(open, last_fence);
        let mut tables = lock(&self.tables);
        tables.restore_settled(settled);
        tables.restore_names(names);
    }

    fn restore_holds(&self, holds: Vec<(HoldId, Hold)>, last_fence: u64) {
        let mut tables = lock(&self.tables);
        for (id, hold) in holds {
            for item in &hold.items {
                let units = tables.held(item.hash).saturating_add(item.units);
                let limit = read(&self.history).rule_of(item.tag).map(|rule| *rule.common());
                let is_held = match limit {
                    Some(AnyLimit::Slots(_)) => true,
                    // A cooldown holds nothing.
                    Some(limit) if !limit.counts_units() => false,
                    None => false,
                    // The hold of a period that has closed is not among the held units.
                    Some(limit) => self
                        .with_slot(&limit, item.hash, |line, slot| {
                            let (tag, state) = (line.tag(slot), line.load_state(slot, &limit));
                            item.is_held_in(&read(&self.history), StoredState { tag, state })
                        })
                        .unwrap_or(false),
                };
                if is_held {
                    tables.set_held(item.hash, units);
                }
                if let Some(limit) = limit {
                    let is_pinned = tables.held(item.hash) > 0;
                    self.with_slot(&limit, item.hash, |line, slot| {
                        line.set_pinned(slot, is_pinned);
                    });
                }
            }
            tables.restore_hold(id, hold);
        }
        tables.set_last_fence(last_fence);
    }

    /// The latest times at which slots were reused.
    pub(crate) fn reuse(&self) -> [Timestamp; 2] {
        let zero = Timestamp::ZERO;
        [self.narrow.no_earlier_than_reuse(zero), self.wide.no_earlier_than_reuse(zero)]
    }

    pub(crate) fn note_reuse(&self, [narrow, wide]: [Timestamp; 2]) {
        self.narrow.note_reuse(narrow);
        self.wide.note_reuse(wide);
    }

    /// Calls a function with every state.
    ///
    /// Decisions may continue; each state is as of some time during the call.
    pub(crate) fn for_each_image(&self, mut then: impl FnMut(u64, StateImage)) {
        let mut found: Several<(u64, StateImage)> = Several::new();
        let of_narrow = |line: &Locked<'_, TaggedLine>, slot| {
            (line.fingerprint(slot), StateImage::Narrow(line.load(slot)))
        };
        let of_wide = |line: &Locked<'_, WideLine>, slot| {
            (line.fingerprint(slot), StateImage::Wide(line.load(slot)))
        };
        self.narrow.for_each_line(|line| {
            found.extend(line.occupied().map(|slot| of_narrow(line, slot)));
            found.drain(..).for_each(|(hash, image)| then(hash, image));
        });
        self.wide.for_each_line(|line| {
            found.extend(line.occupied().map(|slot| of_wide(line, slot)));
            found.drain(..).for_each(|(hash, image)| then(hash, image));
        });
    }

    /// How many rounds were closed, by domain.
    pub(crate) fn all_rounds(&self) -> Vec<(Box<str>, u64)> {
        let rounds = lock(&self.rounds);
        let rounds = rounds.iter();
        rounds.map(|(domain, closed)| (domain.clone(), closed.load(Ordering::Acquire))).collect()
    }
}

impl StateImage {
    pub(crate) const fn is_narrow(&self) -> bool {
        matches!(self, Self::Narrow(_))
    }
}

/// Stores a state in the slot that was found for it.
fn store_at<L: SlotLine>(
    location: KeyLocation<'_, L>,
    hash: u64,
    packed: L::Packed,
    is_pinned: bool,
) -> Result<(), NoSlotForState> {
    match location {
        KeyLocation::Claimed(mut chain, at) | KeyLocation::Known(mut chain, at) => {
            let line = chain.line(at.line);
            line.set_fingerprint(at.slot, hash);
            line.store(at.slot, packed);
            line.header.set_pinned(at.slot, is_pinned);
            Ok(())
        }
        KeyLocation::Full(_) => Err(NoSlotForState),
    }
}

/// Drops the state of a key, if there is one.
pub(super) fn remove_key<L: SlotLine>(table: &SlotTable<L>, hash: u64) {
    let (_, mut chain) = table.lock_chain(hash);
    if let Some(at) = chain.find(hash) {
        chain.line(at.line).clear(at.slot);
        table.uncount_keys(1);
    }
}

fn pin<L: SlotLine>(table: &SlotTable<L>, hash: u64) {
    let (_, mut chain) = table.lock_chain(hash);
    if let Some(at) = chain.find(hash) {
        chain.line(at.line).header.set_pinned(at.slot, true);
    }
}

/// Keeps every state, also one that looks idle: its key may have a hold.
struct NothingIsIdle;

impl<L: SlotLine> SlotPolicy<L> for NothingIsIdle {
    fn is_idle(&self, _line: &Locked<'_, L>, _slot: usize, _since: Timestamp) -> bool {
        false
    }

    fn level(&self, _lines: &mut [Locked<'_, L>], _now: Timestamp) {}

    fn sweep_others(&self, _now: Timestamp) -> bool {
        false
    }
}
