//! States as they lie in their slots: to be written down, and to be put back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tidegate_core::Timestamp;

use super::slot::Slots;
use super::{
    ActKind, Happened, Hold, HoldId, Item, Limits, Locked, MemoryStore, Remembered, Several, Side,
    Sink, TaggedLine, WideLine, Width,
};
use crate::cycle::Times;
use crate::hash::KeyedHash;
use crate::locks::{lock, read};
use crate::policy::Durability;
use crate::store::Settlement;
use crate::table::{Narrow, Place, Shelf, Tagged, WIDE_WORDS};
use crate::terms::{State, Terms};

/// A state as it lies in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    Narrow(Tagged<Narrow>),
    Wide(Tagged<[u64; WIDE_WORDS]>),
}

/// A state that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl MemoryStore {
    /// Writes changes down from here on, and gives every rule at least this durability.
    pub(crate) fn write_down(&mut self, sink: Arc<dyn Sink>, least: Durability) {
        let side = self.side.get_mut().unwrap_or_else(PoisonError::into_inner);
        side.journal = Some(Default::default());
        (self.sink, self.least_durability) = (Some(sink), least);
    }

    /// Names states by this hash.
    pub(crate) fn set_hash(&mut self, hash: KeyedHash) {
        self.hash = hash;
    }

    pub(crate) fn limits_mut(&mut self) -> &mut Limits {
        self.limits.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the limits; nobody edits meanwhile.
    pub(crate) fn with_limits<R>(&self, then: impl FnOnce(&Limits) -> R) -> R {
        then(&read(&self.limits))
    }

    /// The state of a key.
    pub(crate) fn image(&self, hash: u64, width: Width) -> Option<Image> {
        match width {
            Width::Narrow => {
                let (_, mut chain) = self.narrow.lock_chain(hash);
                let at = chain.find(hash)?;
                Some(Image::Narrow(chain.line(at.line).load(at.slot)))
            }
            Width::Wide => {
                let (_, mut chain) = self.wide.lock_chain(hash);
                let at = chain.find(hash)?;
                Some(Image::Wide(chain.line(at.line).load(at.slot)))
            }
            Width::None => None,
        }
    }

    /// Puts a state back, as it was at some time; one with something on hold is not taken away again.
    pub(crate) fn put_back(
        &self,
        (hash, image): (u64, Image),
        now: Timestamp,
        is_held: bool,
    ) -> Result<(), NoRoom> {
        match image {
            Image::Narrow(packed) => self.put_into(&self.narrow, (hash, packed), now, is_held),
            Image::Wide(packed) => self.put_into(&self.wide, (hash, packed), now, is_held),
        }
    }

    fn put_into<L: Slots>(
        &self,
        shelf: &Shelf<L>,
        (hash, packed): (u64, L::Packed),
        now: Timestamp,
        is_held: bool,
    ) -> Result<(), NoRoom> {
        let mut place = shelf.enter(hash, now, self);
        if let Place::Full(chain) = place {
            drop(chain);
            // While nobody decides, nothing has to stay that is idle.
            shelf.sweep(now, self);
            place = shelf.enter(hash, now, self);
        }
        match place {
            Place::Claimed(mut chain, at) | Place::Known(mut chain, at) => {
                let line = chain.line(at.line);
                line.set_fingerprint(at.slot, hash);
                line.store(at.slot, packed);
                line.header.set_pinned(at.slot, is_held);
                Ok(())
            }
            Place::Full(_) => Err(NoRoom),
        }
    }

    /// Puts holds and names of requests back, after all states.
    pub(crate) fn put_back_side(
        &self,
        holds: Vec<(HoldId, Hold)>,
        names: Vec<([u64; 2], Remembered)>,
        last_fence: u64,
    ) {
        let (open, settled) = holds.into_iter().partition(|(_, hold)| hold.settled.is_none());
        self.restore_holds(open, last_fence);
        let mut side = lock(&self.side);
        side.restore_settled(settled);
        side.restore_names(names);
    }

    /// How late slots were given to other keys.
    pub(crate) fn reuse(&self) -> [Timestamp; 2] {
        let zero = Timestamp::ZERO;
        [self.narrow.no_earlier_than_reuse(zero), self.wide.no_earlier_than_reuse(zero)]
    }

    pub(crate) fn note_reuse(&self, [narrow, wide]: [Timestamp; 2]) {
        self.narrow.note_reuse(narrow);
        self.wide.note_reuse(wide);
    }

    /// Calls a function with the states of some lines at a time, all of them in the end.
    ///
    /// Decisions may go on; each state is as it was at some moment during the call.
    pub(crate) fn for_each_image(&self, mut then: impl FnMut(u64, Image)) {
        let mut found: Several<(u64, Image)> = Several::new();
        let of_narrow = |line: &Locked<'_, TaggedLine>, slot| {
            (line.fingerprint(slot), Image::Narrow(line.load(slot)))
        };
        let of_wide = |line: &Locked<'_, WideLine>, slot| {
            (line.fingerprint(slot), Image::Wide(line.load(slot)))
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

    /// Does something with the side tables, locked.
    pub(crate) fn with_side<R>(&self, then: impl FnOnce(&mut Side) -> R) -> R {
        then(&mut self.side())
    }

    /// Gives back what was taken by a decision that could not be kept.
    pub(crate) fn undo(&self, undo: &Undo, times: Times) {
        if let Some(hold) = undo.hold {
            // What expired meanwhile is back already.
            let _ = self.settle_now(hold, (Settlement::Cancel, Some(UNDONE)), times);
        }
        let mut side = self.side();
        for item in &undo.items {
            let refund =
                |terms: &Terms, state: &mut State, moment| terms.refund(state, item.units, moment);
            let (units, left) = self.update(&mut side, item, times, refund);
            if left.is_some() {
                side.book_refund(item, units);
            }
        }
        if let Some(name) = undo.name {
            side.forget_answer(name);
        }
        let note = Some(UNDONE.into());
        side.end_act(Happened { note, ..Happened::new(ActKind::Refund, times.now) });
    }

    /// Forgets everything about a key: what it has spent, set aside and asked.
    pub(crate) fn erase(&self, hash: u64, times: Times) {
        let holds: Vec<HoldId> = self.with_side(|side| {
            let is_its = |hold: &Hold| hold.items.iter().any(|item| item.hash == hash);
            let open = side.holds().filter(|(_, hold)| hold.settled.is_none() && is_its(hold));
            open.map(|(id, _)| *id).collect()
        });
        for hold in holds {
            // What expired meanwhile is back already.
            let _ = self.settle_now(hold, (Settlement::Cancel, None), times);
        }
        let mut side = self.side();
        side.forget_state(hash);
        take_out(&self.narrow, hash);
        take_out(&self.wide, hash);
        side.note_erased(hash);
        side.end_act(Happened::new(ActKind::Forget, times.now));
    }
}

/// What has to be given back if a decision cannot be kept.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub(crate) hold: Option<HoldId>,
    pub(crate) items: Several<Item>,
    pub(crate) name: Option<[u64; 2]>,
}

const UNDONE: &str = "the disk did not take it";

fn take_out<L: Slots>(shelf: &Shelf<L>, hash: u64) {
    let (_, mut chain) = shelf.lock_chain(hash);
    if let Some(at) = chain.find(hash) {
        chain.line(at.line).clear(at.slot);
        shelf.uncount_keys(1);
    }
}
