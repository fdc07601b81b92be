//! What new keys share while the store is full: cells, which are records of their own.
//!
//! A cell has one state for each rule whose keys share it, at least as restrictive as each of these
//! keys. Once the store was full, every key without a record reads its cell: while the store is
//! full it is charged there, and later its own record begins with what the cell has. Both records
//! are compared when either is written, so no charge is lost between them.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tidegate_policy::policy::{Condition, Durability};
use tidegate_table::table::WhenFull;

use super::records::{Kind, RecordKey, Write};
use super::state::StateRecord;
use super::view::{RecordView, Stop, corrupt};
use crate::any_limit::{AnyLimit, AnyState};
use crate::decision::{INLINE, Operation};
use crate::history::{KeyRef, StoredState};
use crate::plan::{Charge, Plan};
use crate::store::Outage;
use crate::store::memory::{OverflowCell, SharingKey};
use crate::store::record::{
    ByteReader, ByteWriter, Malformed, read_any_limit, read_state, write_any_limit, write_state,
};
use crate::transition::KeyState;

/// Whether there is room for new records, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) is_full: bool,
    pub(super) when_full: WhenFull,
    pub(super) max_records: usize,
}

impl Room {
    /// Records without a bound.
    pub(super) const UNBOUNDED: Self =
        Self { is_full: false, when_full: WhenFull::Share, max_records: usize::MAX };
}

/// Where the state of a charge's key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    /// In its own record, which is there.
    Own,
    /// In its own record, which is new.
    New,
    /// Nowhere: it is decided as a new key, and not stored.
    Unkept,
    /// Nowhere, and the charge is denied for that.
    NoRoom,
    /// In a cell.
    Shared,
}

/// Where the states of a plan's keys are, with the cells of those that are new.
#[derive(Debug)]
pub(super) struct Spots {
    spots: SmallVec<[Spot; INLINE]>,
    /// How many cells there are; `None` if no key ever shared one.
    count: Option<u64>,
    cells: BTreeMap<u64, CellRecord>,
}

impl Spots {
    pub(super) fn of<E: From<Outage>>(
        view: &RecordView<'_>,
        plan: &Plan<'_>,
    ) -> Result<Self, Stop<E>> {
        let count = view.control.cells;
        let spots = plan.charges.iter().map(|charge| view.spot(plan.act, charge)).collect();
        let mut all = Self { spots, count, cells: BTreeMap::new() };
        let mut missing = Vec::new();
        for (charge, spot) in plan.charges.iter().zip(&all.spots) {
            let Some(number) = all.cell_of(*spot, charge) else { continue };
            let kind = Kind::Cell(number);
            match view.records.get(&RecordKey(kind)) {
                None => missing.push(RecordKey(kind)),
                Some(None) => drop(all.cells.entry(number).or_default()),
                Some(Some(bytes)) => {
                    let cell = CellRecord::from_bytes(bytes).map_err(|it| corrupt(it, kind))?;
                    all.cells.insert(number, cell);
                }
            }
        }
        if missing.is_empty() { Ok(all) } else { Err(Stop::Read(missing)) }
    }

    /// The cell that a key shares, or did before it had a record; `None` if there is none.
    fn cell_of(&self, spot: Spot, charge: &Charge) -> Option<u64> {
        let spread = (charge.hash ^ (charge.hash >> 29)).wrapping_mul(SPREAD) >> 16;
        self.count.filter(|_| spot != Spot::Own).map(|count| spread % count)
    }

    /// Whether a key has no room.
    pub(super) fn has_no_room(&self) -> bool {
        self.spots.contains(&Spot::NoRoom)
    }

    /// Whether the state of a charge is in a record of its own.
    pub(super) fn is_own(&self, index: usize) -> bool {
        matches!(self.spots[index], Spot::Own | Spot::New)
    }

    /// The states as the limits find them.
    pub(super) fn key_states(
        &self,
        view: &RecordView<'_>,
        plan: &Plan<'_>,
        states: &[StateRecord],
    ) -> Vec<KeyState> {
        let of_charge = |(index, charge): (usize, &Charge)| {
            let spot = self.spots[index];
            let ahead = states[index].ahead(plan, charge);
            let mut key = states[index].key_state_behind(ahead, Some(&charge.limit));
            key.has_room = spot != Spot::NoRoom;
            let cell = self.cell_of(spot, charge).and_then(|number| self.cells.get(&number));
            if let Some(cell) = cell.and_then(|cell| cell.of(charge.family)) {
                let estimate = with_key(view, plan, charge, |key| cell.estimate(key));
                key.stored = estimate.map(|state| StoredState { tag: charge.tag, state });
            }
            key
        };
        plan.charges.iter().enumerate().map(of_charge).collect()
    }

    /// Counts what was charged to new keys: in their cells, whose changes it returns, or in their own
    /// state, which may have begun with that of a cell.
    pub(super) fn charge(
        &mut self,
        view: &RecordView<'_>,
        plan: &Plan<'_>,
        keys: &mut [KeyState],
    ) -> Vec<Write> {
        let mut changed: SmallVec<[u64; INLINE]> = SmallVec::new();
        for (index, charge) in plan.charges.iter().enumerate() {
            let spot = self.spots[index];
            let Some(number) = self.cell_of(spot, charge) else { continue };
            let Some(stored) = keys[index].stored.filter(|_| keys[index].is_changed) else {
                continue;
            };
            match (spot, keys[index].decided_at) {
                (Spot::New, Some(decided_at)) if plan.act == Operation::Charge => {
                    let state = charge.with_own_window(&stored.state, decided_at.now);
                    keys[index].stored = Some(StoredState { state, ..stored });
                }
                (Spot::Shared, _) => {
                    let cell = self.cells.entry(number).or_default();
                    cell.charge(view, plan, charge, stored.state);
                    changed.push(number);
                }
                _ => {}
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
            .iter()
            .filter_map(|number| self.cells.get_mut(number)?.write(view, *number))
            .collect()
    }
}

impl RecordView<'_> {
    fn spot(&self, act: Operation, charge: &Charge) -> Spot {
        let key = RecordKey(Kind::State(charge.hash));
        let is_absent = matches!(self.records.get(&key), Some(None));
        // Slots are all held, and holds have a bound of their own.
        if !is_absent || matches!(charge.limit, AnyLimit::Slots(_)) {
            return Spot::Own;
        }
        match (self.room.when_full, act) {
            _ if act.is_look() => Spot::Unkept,
            _ if !self.room.is_full => Spot::New,
            (WhenFull::Deny, _) | (_, Operation::Enrol) | (WhenFull::Share, Operation::Hold) => {
                Spot::NoRoom
            }
            // A durable state cannot be shared.
            (WhenFull::Share, _) if charge.terms.durability > Durability::Memory => Spot::NoRoom,
            // Not all engines know of the cells yet.
            (WhenFull::Share, _) if self.control.cells.is_none() => Spot::New,
            (WhenFull::Share, _) => Spot::Shared,
        }
    }
}

/// Calls a function with a key that has no record.
fn with_key<R>(
    view: &RecordView<'_>,
    plan: &Plan<'_>,
    charge: &Charge,
    then: impl FnOnce(SharingKey<'_>) -> R,
) -> R {
    let meets = |conditions: &[Condition]| plan.meets(charge, conditions);
    let key = KeyRef { hash: charge.hash, meets: &meets };
    then(SharingKey { charge, key, history: view.history(), times: view.times })
}

/// The record of a cell: a state for each rule.
#[derive(Debug, Default)]
pub(super) struct CellRecord(Vec<OverflowCell>);

impl CellRecord {
    fn of(&self, family: u64) -> Option<&OverflowCell> {
        self.0.iter().find(|cell| cell.family == family)
    }

    fn charge(&mut self, view: &RecordView<'_>, plan: &Plan<'_>, charge: &Charge, after: AnyState) {
        let charged = with_key(view, plan, charge, |key| {
            OverflowCell::charged(self.of(charge.family), key, after)
        });
        self.0.retain(|cell| cell.family != charge.family);
        self.0.push(charged);
    }

    /// The versions of limits that it counts under.
    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|cell| cell.stored.tag)
    }

    /// Drops the states of rules; true if there were any.
    pub(super) fn forget(&mut self, is_meant: impl Fn(u64) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|cell| !is_meant(cell.family));
        self.0.len() < before
    }

    /// The change that writes it, without states that are as good as none.
    pub(super) fn write(&mut self, view: &RecordView<'_>, number: u64) -> Option<Write> {
        let (history, times) = (view.history(), view.times);
        self.0.retain(|cell| !cell.is_idle(history, times));
        let needed = self.0.iter().map(|cell| cell.needed_for(history, times));
        // `None` is the longest.
        let keep_for = needed.reduce(|a, b| Some(a?.max(b?))).flatten();
        let value = (!self.0.is_empty()).then(|| self.to_bytes());
        Some(Write { keep_for, ..Write::new(Kind::Cell(number), value) })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = ByteWriter::default();
        out.bytes(CELL_MAGIC);
        out.list(self.0.iter(), |out, cell| {
            out.word(cell.family);
            out.number(cell.stored.tag.into());
            write_state(out, &cell.stored.state);
            write_any_limit(out, &cell.limit);
        });
        out.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = ByteReader(bytes);
        if from.bytes()? != CELL_MAGIC {
            return Err(Malformed);
        }
        let cells = from.list(|from| {
            let (family, tag) = (from.word()?, from.small()?);
            let (state, limit) = (read_state(from)?, read_any_limit(from)?);
            Ok(OverflowCell::new(family, StoredState { tag, state }, limit))
        })?;
        if from.is_empty() { Ok(Self(cells)) } else { Err(Malformed) }
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What every cell begins with: what it is, and the version of the format.
const CELL_MAGIC: &[u8] = b"tgo1";
