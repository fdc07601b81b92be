//! The locked path: inserts missing keys, locks everything, and then decides.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tidegate_core::{Decision, Timestamp};

use super::hold_tables::{HoldItem, HoldTables};
use super::journal::{JournalBooking, JournalTransfer};
use super::limits::{LimitRegistry, MigratedState};
use super::slot::{AnyLine, AnyLocked, SlotLine};
use super::unlocked::{ObservedState, look_up_in};
use super::{
    Charge, DecideError, DecisionTime, Decisions, Fallback, MemoryStore, Operation, Plan, Several,
    SlotTable, Width,
};
use crate::any_limit::{AnyLimit, AnyState, LimitRequest, decide};
use crate::locks::read;
use crate::policy::Durability;
use crate::table::{KeyLocation, WhenFull};

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

impl MemoryStore {
    /// Decides with all lines locked, and returns the items of a hold.
    pub(super) fn decide_locked(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        mut tables: Option<&mut HoldTables>,
        decisions: &mut Decisions,
    ) -> Result<(bool, Several<HoldItem>), Fallback> {
        loop {
            let mut lines: Several<(AnyLine<'_>, usize)> = Several::new();
            let mut spots: Several<StateLocation> =
                SmallVec::from_elem(StateLocation::Lost, plan.charges.len());
            for (index, charge) in plan.charges.iter().enumerate() {
                match self.locate(plan.act, charge, now, tables.as_deref_mut())? {
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
                let at = (&mut *locked, &*spots);
                return self.decide_in((plan, now), at, tables, decisions);
            }
        }
    }

    /// Decides on locked lines.
    pub(super) fn decide_in(
        &self,
        (plan, now): (&Plan<'_>, Timestamp),
        (lines, spots): (&mut [AnyLocked<'_>], &[StateLocation]),
        mut tables: Option<&mut HoldTables>,
        decisions: &mut Decisions,
    ) -> Result<(bool, Several<HoldItem>), Fallback> {
        if self.in_force(plan).is_err() {
            return Err(Fallback::Superseded);
        }
        let limits = read(&self.limits);
        let mut carried: Several<MigratedState> = Several::new();
        let mut decision_times: Several<DecisionTime> = Several::new();
        for (charge, spot) in plan.charges.iter().zip(spots) {
            let (state, at) =
                self.state_at(charge, *spot, now, (lines, tables.as_deref(), &limits))?;
            carried.push(state);
            decision_times.push(DecisionTime { now: at, period: charge.period });
        }
        let mut states: Several<AnyState> = carried.iter().map(|carried| carried.state).collect();
        let requests: Several<LimitRequest<'_>> =
            (plan.charges.iter().zip(&carried).zip(&decision_times).zip(spots))
                .map(|(((charge, carried), decided_at), spot)| LimitRequest {
                    limit: &carried.limit,
                    has_room: *spot != StateLocation::NoRoom,
                    decided_at: *decided_at,
                    ..charge.limit_request(now)
                })
                .collect();
        let is_allowed = decide(plan.act, &requests, &mut states, decisions);
        let mut items = Several::new();
        for (index, charge) in plan.charges.iter().enumerate() {
            let (before, after) = (&carried[index], states[index]);
            let mut is_stored = false;
            match spots[index] {
                StateLocation::Slot { line, slot } => {
                    let at = (&mut lines[line], slot);
                    is_stored =
                        self.store_in_slot(at, charge, (before, &after), decision_times[index]);
                    if let (true, Some(tables)) = (is_stored, tables.as_deref_mut()) {
                        let state = (charge.limit, charge.hash);
                        tables.note_state(self.durability(charge), state);
                    }
                }
                StateLocation::Shared if after != before.state => {
                    if let Some(tables) = tables.as_deref_mut() {
                        let most = self.shared_cells();
                        tables.shared.charge((charge, after), &limits, now, most);
                    }
                }
                StateLocation::HoldTables
                | StateLocation::Shared
                | StateLocation::Unkept
                | StateLocation::NoRoom
                | StateLocation::Lost => {}
            }
            if let Some(tables) = tables.as_deref_mut()
                && (is_stored || spots[index] == StateLocation::HoldTables)
            {
                tables.set_held(charge.hash, after.held());
            }
            let is_held = match spots[index] {
                StateLocation::Slot { .. } => plan.act == Operation::Hold,
                spot => spot == StateLocation::HoldTables,
            };
            if is_held && decisions[index].is_allowed() {
                items.push(self.hold_item(before.tag, charge, after.period()));
            }
            if let (Some(tables), StateLocation::Slot { .. }) =
                (tables.as_deref_mut(), spots[index])
            {
                let units =
                    charged_units(&requests[index], &before.state, (&decisions[index], is_allowed));
                self.book(tables, plan.act, charge, units);
            }
        }
        Ok((is_allowed, items))
    }

    /// A charge's part of a hold.
    pub(crate) fn hold_item(&self, tag: u32, charge: &Charge<'_>, period: u64) -> HoldItem {
        let Charge { hash, cost: units, is_by_request, .. } = *charge;
        let durability = self.durability(charge);
        HoldItem { tag, hash, units, period, is_by_request, durability, charged: None }
    }

    /// Writes a decided state to its slot, or frees the slot of a key that stays unknown. Reports
    /// whether the slot changed.
    fn store_in_slot(
        &self,
        (line, slot): (&mut AnyLocked<'_>, usize),
        charge: &Charge<'_>,
        (before, after): (&MigratedState, &AnyState),
        decided_at: DecisionTime,
    ) -> bool {
        let is_known = charge.limit.knows_from_first_request();
        if line.tag(slot) == 0 && *after == before.state && !is_known {
            line.clear(slot);
            self.uncount(charge.limit);
            return false;
        }
        let is_changed = *after != before.state || line.tag(slot) != before.tag;
        if is_changed {
            line.store(slot, before.tag, after, decided_at);
        }
        is_changed
    }

    /// Records a booking, if the limit counts units.
    fn book(&self, tables: &mut HoldTables, act: Operation, charge: &Charge<'_>, units: u64) {
        let entry = match act {
            Operation::Charge => JournalTransfer::Charged,
            Operation::Hold => JournalTransfer::Held,
            Operation::Look => return,
        };
        if !matches!(charge.limit, AnyLimit::Cooldown(_) | AnyLimit::Slots(_)) {
            tables
                .book(self.durability(charge), JournalBooking { hash: charge.hash, entry, units });
        }
    }

    /// The state of a charge as it stands, and the time for the decision.
    pub(super) fn state_at(
        &self,
        charge: &Charge<'_>,
        spot: StateLocation,
        now: Timestamp,
        (lines, tables, limits): (&[AnyLocked<'_>], Option<&HoldTables>, &LimitRegistry),
    ) -> Result<(MigratedState, Timestamp), Fallback> {
        let (mut tag, mut limit, mut now) = (charge.tag, *charge.limit, now);
        let state = match spot {
            StateLocation::Slot { line, slot } => {
                let line = &lines[line];
                // A new slot is pinned until the decision is made.
                let held = match tables {
                    Some(tables) if line.is_pinned(slot) => Some(tables.held(charge.hash)),
                    None if line.is_pinned(slot) && line.tag(slot) != 0 => {
                        return Err(Fallback::NeedsHoldTables);
                    }
                    _ => None,
                };
                let with_held = |state: AnyState| match held {
                    Some(held) => state.with_held(held),
                    None => state,
                };
                match line.tag(slot) {
                    0 => {
                        now = self.no_earlier_than_reuse(charge.limit, now);
                        with_held(match tables {
                            Some(tables) => tables.shared.estimate(charge, limits, now),
                            // A thread with the overflow counters may have claimed it.
                            None if self.is_sharing.load(Ordering::SeqCst) => {
                                return Err(Fallback::NeedsHoldTables);
                            }
                            None => limit.fresh(charge.period),
                        })
                    }
                    known if known == tag => with_held(line.load_state(slot, charge.limit)),
                    older => {
                        // Some holds end with the periods that close on the way.
                        let state = with_held(line.load_state(slot, charge.limit));
                        let carried = limits.carry(older, state, charge, now);
                        (tag, limit) = (carried.tag, carried.limit);
                        carried.state
                    }
                }
            }
            StateLocation::HoldTables => {
                let tables = tables.ok_or(Fallback::NeedsHoldTables)?;
                AnyState::Slots { held: tables.held(charge.hash) }
            }
            StateLocation::Unkept
            | StateLocation::NoRoom
            | StateLocation::Shared
            | StateLocation::Lost => {
                now = self.no_earlier_than_reuse(charge.limit, now);
                match tables {
                    Some(tables) => tables.shared.estimate(charge, limits, now),
                    None if self.is_sharing.load(Ordering::SeqCst) => {
                        return Err(Fallback::NeedsHoldTables);
                    }
                    None => limit.fresh(charge.period),
                }
            }
        };
        Ok((MigratedState { tag, limit, state }, now))
    }

    /// Finds the line of a charge's state, or inserts the key.
    pub(super) fn locate(
        &self,
        act: Operation,
        charge: &Charge<'_>,
        now: Timestamp,
        tables: Option<&mut HoldTables>,
    ) -> Result<Located<'_>, Fallback> {
        match Width::of(charge.limit) {
            Width::Narrow => {
                self.locate_in(&self.narrow, AnyLine::Narrow, (act, charge, now), tables)
            }
            Width::Wide => self.locate_in(&self.wide, AnyLine::Wide, (act, charge, now), tables),
            Width::None => Ok(Located::Spot(StateLocation::HoldTables)),
        }
    }

    pub(super) fn locate_in<'a, L: SlotLine>(
        &'a self,
        table: &'a SlotTable<L>,
        any: impl Fn(&'a L) -> AnyLine<'a>,
        (act, charge, now): (Operation, &Charge<'_>, Timestamp),
        tables: Option<&mut HoldTables>,
    ) -> Result<Located<'a>, Fallback> {
        let hash = charge.hash;
        loop {
            if let Some(ObservedState { line, slot: Some(_), .. }) = look_up_in(table, hash, &any) {
                return Ok(Located::Line(line));
            }
            if act == Operation::Look {
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
                    if self.is_sharing.load(Ordering::SeqCst) && tables.is_none() =>
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
                    (WhenFull::Allow, _) => return Ok(Located::Spot(StateLocation::Unkept)),
                    (WhenFull::Deny, _) | (WhenFull::Share, Operation::Hold) => {
                        return Ok(Located::Spot(StateLocation::NoRoom));
                    }
                    // A durable state cannot share counters.
                    (WhenFull::Share, _) if self.durability(charge) > Durability::Memory => {
                        return Ok(Located::Spot(StateLocation::NoRoom));
                    }
                    (WhenFull::Share, _) if tables.is_none() => {
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

    /// Frees slots that were claimed for the keys of a plan that was not decided.
    pub(super) fn undecided(&self, plan: &Plan<'_>) -> DecideError {
        for charge in &plan.charges {
            self.with_slot(charge.limit, charge.hash, |line, slot| {
                if line.tag(slot) == 0 {
                    line.clear(slot);
                    self.uncount(charge.limit);
                }
            });
        }
        DecideError::Superseded
    }
}

/// How many units a limit charged, for a request that it or another one may have denied.
fn charged_units(
    request: &LimitRequest<'_>,
    before: &AnyState,
    (decision, is_allowed): (&Decision, bool),
) -> u64 {
    match (decision.is_allowed(), is_allowed) {
        (true, true) => request.cost,
        (true, false) if request.charge_refused => request.cost,
        (false, _) if request.charge_refused => {
            request.limit.charge_refused(&mut before.clone(), request.cost, request.decided_at)
        }
        _ => 0,
    }
}
