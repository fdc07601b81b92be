//! The locked path: inserts missing keys, locks everything, and then decides.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_policy::policy::{Condition, Durability};
use tidegate_table::locks::read;
use tidegate_table::table::{KeyLocation, WhenFull, find, read_header};

use super::Transfer;
use super::hold_tables::HoldTables;
use super::journal::{JournalBooking, JournalEntry};
use super::overflow::SharingKey;
use super::slot::{AnyLine, AnyLocked, SlotLine};
use super::{
    Charge, Decisions, Failure, Fallback, MemoryStore, Operation, Plan, Several, SlotTable, Width,
};
use crate::any_limit::AnyState;
use crate::decision::Booking;
use crate::history::{History, KeyRef, StoredState};
use crate::periods::Times;
use crate::transition::{self, EndingHold, KeyState, Outcome, View};

/// The position of a charge's state, with all lines locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateLocation {
    /// In a slot of one of the lines.
    Slot { line: usize, slot: usize },
    /// Only in the hold tables.
    HoldTables,
    /// Nowhere; it is decided as a new key, and not stored.
    Unkept,
    /// Nowhere any more: another thread has moved it.
    Lost,
    /// In overflow counters.
    Shared,
    /// Nowhere, and the charge is denied for that.
    NoRoom,
}

pub(super) enum Located<'a> {
    Line(AnyLine<'a>),
    Spot(StateLocation),
}

/// What the states of a plan's keys are read from, all of it locked.
#[derive(Clone, Copy)]
struct FoundStates<'a, 'l> {
    lines: &'a [AnyLocked<'l>],
    /// `None` where nothing has needed them yet.
    tables: Option<&'a HoldTables>,
    history: &'a History,
}

/// What is locked besides lines, where a decision needs it.
pub(super) type WithTables<'a> = Option<(&'a mut HoldTables, &'a mut JournalEntry)>;

impl MemoryStore {
    /// Decides with all lines locked.
    pub(super) fn decide_locked(
        &self,
        plan: &Plan<'_>,
        times: Times,
        mut with: WithTables<'_>,
        decisions: &mut Decisions,
    ) -> Result<Outcome, Fallback> {
        loop {
            let mut lines: Several<(AnyLine<'_>, usize)> = Several::new();
            let mut spots: Several<StateLocation> =
                SmallVec::from_elem(StateLocation::Lost, plan.charges.len());
            for (index, charge) in plan.charges.iter().enumerate() {
                match self.locate(plan.act, charge, times.now, with.is_some())? {
                    Located::Line(line) => lines.push((line, index)),
                    Located::Spot(spot) => spots[index] = spot,
                }
            }
            lines.sort_unstable_by_key(|(line, _)| line.address());
            let mut locked: Several<AnyLocked<'_>> = Several::new();
            for (line, index) in lines {
                if locked.last().is_none_or(|last| last.address() != line.address()) {
                    locked.push(line.lock());
                }
                let last = locked.len() - 1;
                if let Some(slot) = locked[last].find(plan.charges[index].hash) {
                    spots[index] = StateLocation::Slot { line: last, slot };
                }
            }
            if !spots.contains(&StateLocation::Lost) {
                return self.decide_in(plan, times, &mut locked, &spots, &mut with, decisions);
            }
        }
    }

    /// Decides on locked lines: fetches the states, and writes back what has changed.
    pub(super) fn decide_in(
        &self,
        plan: &Plan<'_>,
        times: Times,
        lines: &mut [AnyLocked<'_>],
        spots: &[StateLocation],
        with: &mut WithTables<'_>,
        decisions: &mut Decisions,
    ) -> Result<Outcome, Fallback> {
        if self.in_force(plan).is_err() {
            return Err(Fallback::Superseded);
        }
        let history = read(&self.history);
        let tables = with.as_ref().map(|(tables, _)| &**tables);
        let mut keys: Several<KeyState> = Several::new();
        let found = FoundStates { lines, tables, history: &history };
        for (charge, spot) in plan.charges.iter().zip(spots) {
            keys.push(self.key_state(plan, charge, *spot, times, &found)?);
        }
        let mut view = View { history: &history, times, keys: &mut keys };
        let holds = |index: usize| {
            let hash = plan.charges[index].hash;
            let open = tables.into_iter().flat_map(move |tables| tables.open_items(hash));
            open.map(|(expires, item)| EndingHold { expires, item })
                .filter(move |hold| hold.expires > times.now)
        };
        let outcome = match plan.act {
            Operation::Enrol => transition::enrol(&mut view, plan),
            _ => transition::decide(&mut view, plan, holds, decisions),
        };
        for (index, (charge, key)) in plan.charges.iter().zip(&keys).enumerate() {
            self.write_back(plan, charge, lines, spots[index], key, with);
            if let (StateLocation::Shared, Some(stored), Some((tables, _))) =
                (spots[index], key.stored.filter(|_| key.is_changed), with.as_mut())
            {
                let meets = |conditions: &[Condition]| plan.meets(charge, conditions);
                let key = KeyRef { hash: charge.hash, meets: &meets };
                let key = SharingKey { charge, key, history: &history, times };
                tables.shared.charge(key, stored.state, self.overflow_cells());
            }
            if let (Some((_, entry)), StateLocation::Slot { .. }) = (with.as_mut(), spots[index]) {
                self.book(entry, plan.act, charge, outcome.units[index]);
                if let Some(Booking { forgiven, .. }) = decisions.booking_of(index) {
                    let transfer = Transfer::Forgiven;
                    let booking =
                        JournalBooking { hash: charge.hash, entry: transfer, units: *forgiven };
                    entry.book(self.durability(charge), booking);
                }
            }
        }
        Ok(outcome)
    }

    /// Writes a decided state to its slot, or frees the slot of a key that stays unknown.
    fn write_back(
        &self,
        plan: &Plan<'_>,
        charge: &Charge,
        lines: &mut [AnyLocked<'_>],
        spot: StateLocation,
        key: &KeyState,
        with: &mut WithTables<'_>,
    ) {
        let width = Width::of(&charge.limit);
        if let StateLocation::Slot { line, slot } = spot {
            match (key.stored.filter(|_| key.is_changed), key.decided_at) {
                (Some(StoredState { tag, mut state }), Some(decided_at)) => {
                    let is_new = lines[line].tag(slot) == 0 && plan.act == Operation::Charge;
                    if is_new && self.is_sharing.load(Ordering::Relaxed) {
                        // It may have begun with the estimate of the overflow counters.
                        state = charge.with_own_window(&state, decided_at.now);
                    }
                    lines[line].store(slot, tag, &state, decided_at);
                    if let Some((_, entry)) = with {
                        entry.note_state(self.durability(charge), charge.hash, width);
                    }
                }
                _ if lines[line].tag(slot) == 0 && !plan.act.is_look() => {
                    lines[line].clear(slot);
                    self.uncount(width);
                }
                _ => {}
            }
        }
        if let (Some((tables, _)), Some(stored), true) = (with, key.stored, key.is_changed)
            && matches!(spot, StateLocation::Slot { .. } | StateLocation::HoldTables)
        {
            tables.set_held(charge.hash, stored.state.held());
        }
    }

    /// Records a booking, if the limit counts units.
    fn book(&self, entry: &mut JournalEntry, act: Operation, charge: &Charge, units: u64) {
        let transfer = match act {
            Operation::Charge => Transfer::Charged,
            Operation::Hold => Transfer::Held,
            Operation::Look | Operation::Measure | Operation::Enrol => return,
        };
        if charge.limit.counts_units() {
            let booking = JournalBooking { hash: charge.hash, entry: transfer, units };
            entry.book(self.durability(charge), booking);
        }
    }

    /// The state of a charge's key.
    fn key_state(
        &self,
        plan: &Plan<'_>,
        charge: &Charge,
        spot: StateLocation,
        times: Times,
        found: &FoundStates<'_, '_>,
    ) -> Result<KeyState, Fallback> {
        let FoundStates { lines, tables, history } = *found;
        if let StateLocation::HoldTables = spot {
            let tables = tables.ok_or(Fallback::NeedsHoldTables)?;
            let state = AnyState::Slots { held: tables.held(charge.hash) };
            let key = KeyState::new(Some(StoredState { tag: charge.tag, state }));
            return Ok(as_looked_at(plan, charge, key, times, tables, history));
        }
        if let StateLocation::Slot { line, slot } = spot
            && lines[line].tag(slot) != 0
        {
            let line = &lines[line];
            let (tag, state) = (line.tag(slot), line.load_state(slot, &charge.limit));
            if !line.is_pinned(slot) {
                return Ok(KeyState::new(Some(StoredState { tag, state })));
            }
            let tables = tables.ok_or(Fallback::NeedsHoldTables)?;
            let state = state.with_held(tables.held(charge.hash));
            let key = KeyState::new(Some(StoredState { tag, state }));
            return Ok(as_looked_at(plan, charge, key, times, tables, history));
        }
        let mut forgotten = self.no_earlier_than_reuse(&charge.limit, Timestamp::ZERO);
        let estimate = match tables {
            Some(tables) => {
                let meets = |conditions: &[Condition]| plan.meets(charge, conditions);
                let key = KeyRef { hash: charge.hash, meets: &meets };
                forgotten = forgotten.max(tables.shared.dropped_at());
                let times = Times { now: times.now.max(forgotten), ..times };
                tables.shared.estimate(SharingKey { charge, key, history, times })
            }
            // A thread with the overflow counters may have claimed it.
            None if self.is_sharing.load(Ordering::SeqCst) => {
                return Err(Fallback::NeedsHoldTables);
            }
            None => None,
        };
        let stored = estimate.map(|state| StoredState { tag: charge.tag, state });
        let has_room = spot != StateLocation::NoRoom;
        Ok(KeyState { forgotten, has_room, ..KeyState::new(stored) })
    }

    /// Finds the line of a charge's state, or inserts the key.
    pub(super) fn locate(
        &self,
        act: Operation,
        charge: &Charge,
        now: Timestamp,
        has_tables: bool,
    ) -> Result<Located<'_>, Fallback> {
        match Width::of(&charge.limit) {
            Width::Narrow => {
                self.locate_in(&self.narrow, AnyLine::Narrow, act, charge, now, has_tables)
            }
            Width::Wide => self.locate_in(&self.wide, AnyLine::Wide, act, charge, now, has_tables),
            Width::None => Ok(Located::Spot(StateLocation::HoldTables)),
        }
    }

    pub(super) fn locate_in<'a, L: SlotLine>(
        &'a self,
        table: &'a SlotTable<L>,
        any: impl Fn(&'a L) -> AnyLine<'a>,
        act: Operation,
        charge: &Charge,
        now: Timestamp,
        has_tables: bool,
    ) -> Result<Located<'a>, Fallback> {
        let hash = charge.hash;
        loop {
            if let Some(line) = line_of_key(table, hash) {
                return Ok(Located::Line(any(line)));
            }
            if act.is_look() {
                // A peek inserts no key.
                let (_, mut chain) = table.lock_chain(hash);
                return Ok(match chain.find(hash) {
                    Some(at) => Located::Line(any(chain.line(at.line).line())),
                    None => Located::Spot(StateLocation::Unkept),
                });
            }
            match table.enter(hash, now, self) {
                KeyLocation::Known(mut chain, at) => {
                    return Ok(Located::Line(any(chain.line(at.line).line())));
                }
                KeyLocation::Claimed(..)
                    if self.is_sharing.load(Ordering::SeqCst) && !has_tables =>
                {
                    table.uncount_keys(1);
                    return Err(Fallback::NeedsHoldTables);
                }
                KeyLocation::Claimed(mut chain, at) => {
                    let line = chain.line(at.line);
                    line.set_fingerprint(at.slot, hash);
                    // The slot must not be reused before the decision is made.
                    line.header.set_pinned(at.slot, true);
                    return Ok(Located::Line(any(line.line())));
                }
                KeyLocation::Full(_) => match (table.capacity().when_full, act) {
                    (WhenFull::Deny, _)
                    | (_, Operation::Enrol)
                    | (WhenFull::Share, Operation::Hold) => {
                        return Ok(Located::Spot(StateLocation::NoRoom));
                    }
                    // A durable state cannot share counters.
                    (WhenFull::Share, _) if self.durability(charge) > Durability::Memory => {
                        return Ok(Located::Spot(StateLocation::NoRoom));
                    }
                    (WhenFull::Share, _) if !has_tables => {
                        return Err(Fallback::NeedsHoldTables);
                    }
                    (WhenFull::Share, _) if self.is_sharing.load(Ordering::SeqCst) => {
                        return Ok(Located::Spot(StateLocation::Shared));
                    }
                    // From now on a slot for this key starts with the overflow counters' estimate.
                    (WhenFull::Share, _) => self.is_sharing.store(true, Ordering::SeqCst),
                },
            }
        }
    }

    /// Frees slots that were claimed for the keys of a plan that was not decided. The next plan may
    /// have other keys.
    pub(super) fn release_claims(&self, plan: &Plan<'_>) {
        for charge in &plan.charges {
            self.with_slot(&charge.limit, charge.hash, |line, slot| {
                if line.tag(slot) == 0 {
                    line.clear(slot);
                    self.uncount(Width::of(&charge.limit));
                }
            });
        }
    }

    /// The error of a plan that was not decided, with nothing left of it.
    pub(super) fn undecided(&self, plan: &Plan<'_>) -> Failure {
        self.release_claims(plan);
        Failure::Superseded
    }
}

/// The line that a key is in, found without a lock: it may be another one by the time that it is locked.
pub(super) fn line_of_key<L: SlotLine>(table: &SlotTable<L>, hash: u64) -> Option<&L> {
    for line in table.chain(hash) {
        let header = read_header(line);
        if find(line, hash).is_some() {
            return Some(line);
        }
        if !header.is_overflowed() {
            break;
        }
    }
    None
}

/// A state as a look finds it: what has expired by the time of the look is released, and stays on hold in
/// the tables. Before any other operation it was released there.
fn as_looked_at(
    plan: &Plan<'_>,
    charge: &Charge,
    key: KeyState,
    times: Times,
    tables: &HoldTables,
    history: &History,
) -> KeyState {
    if !plan.act.is_look() {
        return key;
    }
    transition::released(history, times, key, tables.open_items(charge.hash))
}
