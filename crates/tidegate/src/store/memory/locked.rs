//! The slow way: keys get the slots that they lack, everything is locked, and then it is looked at.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tidegate_core::{Decision, Timestamp};

use super::journal::{Booking, Entry};
use super::limits::{Carried, Limits};
use super::side::{Item, Side};
use super::slot::{AnyLine, AnyLocked, Slots};
use super::unlocked::{Seen, look_up_in};
use super::{
    Act, Blocked, Charge, Decisions, MemoryStore, Moment, Plan, Several, Shelf, Undecided, Width,
};
use crate::locks::read;
use crate::policy::Durability;
use crate::table::{Place, WhenFull};
use crate::terms::{Ask, State, Terms, decide};

/// Where the state of a charge is, with all lines locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In a slot of one of the lines.
    Slot { line: usize, slot: usize },
    /// Among the units on hold, and nowhere else.
    Side,
    /// Nowhere; it is decided as a new key, and not kept.
    Unkept,
    /// Nowhere any more: it was in a slot until somebody else moved it.
    Lost,
    /// In counters that it shares.
    Shared,
    /// Nowhere, and it is refused for that.
    NoRoom,
}

pub(super) enum Placed<'a> {
    Line(AnyLine<'a>),
    Spot(Spot),
}

impl MemoryStore {
    /// Decides with all lines locked, and reports what was set aside.
    pub(super) fn decide_locked(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        mut side: Option<&mut Side>,
        decisions: &mut Decisions,
    ) -> Result<(bool, Several<Item>), Blocked> {
        loop {
            let mut lines: Several<(AnyLine<'_>, usize)> = Several::new();
            let mut spots: Several<Spot> = SmallVec::from_elem(Spot::Lost, plan.charges.len());
            for (index, charge) in plan.charges.iter().enumerate() {
                match self.place(plan.act, charge, now, side.as_deref_mut())? {
                    Placed::Line(line) => lines.push((line, index)),
                    Placed::Spot(spot) => spots[index] = spot,
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
                    spots[index] = Spot::Slot { line: last, slot };
                }
            }
            if !spots.contains(&Spot::Lost) {
                let at = (&mut *locked, &*spots);
                return self.decide_in((plan, now), at, side, decisions);
            }
        }
    }

    /// Decides on locked lines.
    pub(super) fn decide_in(
        &self,
        (plan, now): (&Plan<'_>, Timestamp),
        (lines, spots): (&mut [AnyLocked<'_>], &[Spot]),
        mut side: Option<&mut Side>,
        decisions: &mut Decisions,
    ) -> Result<(bool, Several<Item>), Blocked> {
        if self.in_force(plan).is_err() {
            return Err(Blocked::Superseded);
        }
        let limits = read(&self.limits);
        let mut carried: Several<Carried> = Several::new();
        let mut moments: Several<Moment> = Several::new();
        for (charge, spot) in plan.charges.iter().zip(spots) {
            let (state, at) =
                self.state_at(charge, *spot, now, (lines, side.as_deref(), &limits))?;
            carried.push(state);
            moments.push(Moment { now: at, period: charge.period });
        }
        let mut states: Several<State> = carried.iter().map(|carried| carried.state).collect();
        let asks: Several<Ask<'_>> = (plan.charges.iter().zip(&carried).zip(&moments).zip(spots))
            .map(|(((charge, carried), moment), spot)| Ask {
                terms: &carried.terms,
                has_room: *spot != Spot::NoRoom,
                moment: *moment,
                ..charge.ask(now)
            })
            .collect();
        let is_allowed = decide(plan.act, &asks, &mut states, decisions);
        let mut items = Several::new();
        for (index, charge) in plan.charges.iter().enumerate() {
            let (before, after) = (&carried[index], states[index]);
            match spots[index] {
                Spot::Slot { line, slot } => {
                    let line = &mut lines[line];
                    let is_remembered = charge.terms.knows_from_first_request();
                    if line.tag(slot) == 0 && after == before.state && !is_remembered {
                        line.clear(slot);
                        self.uncount(charge.terms);
                    } else if after != before.state || line.tag(slot) != before.tag {
                        line.store(slot, before.tag, &after, moments[index]);
                        if let Some(side) = side.as_deref_mut() {
                            let state = (charge.terms, charge.hash);
                            side.note_state(self.durability(charge), state);
                        }
                    }
                }
                Spot::Shared if after != before.state => {
                    if let Some(side) = side.as_deref_mut() {
                        let most = self.shared_cells();
                        side.shared.charge((charge, after), &limits, now, most);
                    }
                }
                Spot::Side | Spot::Shared | Spot::Unkept | Spot::NoRoom | Spot::Lost => {}
            }
            if let Some(side) = side.as_deref_mut()
                && matches!(spots[index], Spot::Slot { .. } | Spot::Side)
                && after.held() != before.state.held()
            {
                side.set_held(charge.hash, after.held());
            }
            let is_held = match spots[index] {
                Spot::Slot { .. } => plan.act == Act::Hold,
                spot => spot == Spot::Side,
            };
            if is_held && decisions[index].is_allowed() {
                let Charge { hash, cost: units, is_by_request, .. } = *charge;
                let (charged, durability) = (None, self.durability(charge));
                let tag = before.tag;
                items.push(Item { tag, hash, units, is_by_request, durability, charged });
            }
            if let (Some(side), Spot::Slot { .. }) = (side.as_deref_mut(), spots[index]) {
                let units = taken(&asks[index], &before.state, (&decisions[index], is_allowed));
                self.book(side, plan.act, charge, units);
            }
        }
        Ok((is_allowed, items))
    }

    /// Writes down that a charge has taken units, if it counts any.
    fn book(&self, side: &mut Side, act: Act, charge: &Charge<'_>, units: u64) {
        let entry = match act {
            Act::Charge => Entry::Charged,
            Act::Hold => Entry::Held,
            Act::Look => return,
        };
        if !matches!(charge.terms, Terms::Cooldown(_) | Terms::Slots(_)) {
            side.book(self.durability(charge), Booking { hash: charge.hash, entry, units });
        }
    }

    /// The state of a charge as it stands, and the time at which to decide about it.
    pub(super) fn state_at(
        &self,
        charge: &Charge<'_>,
        spot: Spot,
        now: Timestamp,
        (lines, side, limits): (&[AnyLocked<'_>], Option<&Side>, &Limits),
    ) -> Result<(Carried, Timestamp), Blocked> {
        let (mut tag, mut terms, mut now) = (charge.tag, *charge.terms, now);
        let state = match spot {
            Spot::Slot { line, slot } => {
                let line = &lines[line];
                let mut state = match line.tag(slot) {
                    0 => {
                        now = self.no_earlier_than_reuse(charge.terms, now);
                        match side {
                            Some(side) => side.shared.estimate(charge, limits, now),
                            // Somebody who knows the shared counters may have claimed it.
                            None if self.is_sharing.load(Ordering::SeqCst) => {
                                return Err(Blocked::NeedsSide);
                            }
                            None => terms.fresh(charge.period),
                        }
                    }
                    known if known == tag => line.load_state(slot, charge.terms),
                    older => {
                        let state = line.load_state(slot, charge.terms);
                        let carried = limits.carry(older, state, charge, now);
                        (tag, terms) = (carried.tag, carried.terms);
                        carried.state
                    }
                };
                if line.is_pinned(slot) {
                    match side {
                        Some(side) => state = state.with_held(side.held(charge.hash)),
                        // Whoever gives a key its slot pins it until the decision is made.
                        None if line.tag(slot) == 0 => {}
                        None => return Err(Blocked::NeedsSide),
                    }
                }
                state
            }
            Spot::Side => {
                let side = side.ok_or(Blocked::NeedsSide)?;
                State::Slots { held: side.held(charge.hash) }
            }
            Spot::Unkept | Spot::NoRoom | Spot::Shared | Spot::Lost => {
                now = self.no_earlier_than_reuse(charge.terms, now);
                match side {
                    Some(side) => side.shared.estimate(charge, limits, now),
                    None if self.is_sharing.load(Ordering::SeqCst) => {
                        return Err(Blocked::NeedsSide);
                    }
                    None => terms.fresh(charge.period),
                }
            }
        };
        Ok((Carried { tag, terms, state }, now))
    }

    /// Finds the line of a charge's state, or gives the key a slot.
    pub(super) fn place(
        &self,
        act: Act,
        charge: &Charge<'_>,
        now: Timestamp,
        side: Option<&mut Side>,
    ) -> Result<Placed<'_>, Blocked> {
        match Width::of(charge.terms) {
            Width::Narrow => self.place_in(&self.narrow, AnyLine::Narrow, (act, charge, now), side),
            Width::Wide => self.place_in(&self.wide, AnyLine::Wide, (act, charge, now), side),
            Width::None => Ok(Placed::Spot(Spot::Side)),
        }
    }

    pub(super) fn place_in<'a, L: Slots>(
        &'a self,
        shelf: &'a Shelf<L>,
        any: impl Fn(&'a L) -> AnyLine<'a>,
        (act, charge, now): (Act, &Charge<'_>, Timestamp),
        side: Option<&mut Side>,
    ) -> Result<Placed<'a>, Blocked> {
        let hash = charge.hash;
        loop {
            if let Some(Seen { line, slot: Some(_), .. }) = look_up_in(shelf, hash, &any) {
                return Ok(Placed::Line(line));
            }
            if act == Act::Look {
                // A look takes no slot.
                let (_, mut chain) = shelf.lock_chain(hash);
                return Ok(match chain.find(hash) {
                    Some(at) => Placed::Line(any(chain.line(at.line).line())),
                    None => Placed::Spot(Spot::Unkept),
                });
            }
            match shelf.enter(hash, now, self) {
                Place::Known(mut chain, at) => {
                    return Ok(Placed::Line(any(chain.line(at.line).line())));
                }
                Place::Claimed(..) if self.is_sharing.load(Ordering::SeqCst) && side.is_none() => {
                    shelf.uncount_keys(1);
                    return Err(Blocked::NeedsSide);
                }
                Place::Claimed(mut chain, at) => {
                    let line = chain.line(at.line);
                    line.set_fingerprint(at.slot, hash);
                    // Nobody takes the slot away before the decision is made.
                    line.header.set_pinned(at.slot, true);
                    return Ok(Placed::Line(any(line.line())));
                }
                Place::Full(_) => match (shelf.ceiling().when_full, act) {
                    (WhenFull::Allow, _) => return Ok(Placed::Spot(Spot::Unkept)),
                    (WhenFull::Deny, _) | (WhenFull::Share, Act::Hold) => {
                        return Ok(Placed::Spot(Spot::NoRoom));
                    }
                    // What has to survive cannot be counted together with others.
                    (WhenFull::Share, _) if self.durability(charge) > Durability::Memory => {
                        return Ok(Placed::Spot(Spot::NoRoom));
                    }
                    (WhenFull::Share, _) if side.is_none() => return Err(Blocked::NeedsSide),
                    (WhenFull::Share, _) if self.is_sharing.load(Ordering::SeqCst) => {
                        return Ok(Placed::Spot(Spot::Shared));
                    }
                    // Whoever finds a slot for this key from now on asks the shared counters.
                    (WhenFull::Share, _) => self.is_sharing.store(true, Ordering::SeqCst),
                },
            }
        }
    }

    /// Takes back slots that were given to the keys of a plan that was not decided.
    pub(super) fn undecided(&self, plan: &Plan<'_>) -> Undecided {
        for charge in &plan.charges {
            self.with_slot(charge.terms, charge.hash, |line, slot| {
                if line.tag(slot) == 0 {
                    line.clear(slot);
                    self.uncount(charge.terms);
                }
            });
        }
        Undecided::Superseded
    }
}

/// How many units a limit gave, to a request that it or another one may have refused.
fn taken(ask: &Ask<'_>, before: &State, (decision, is_allowed): (&Decision, bool)) -> u64 {
    match (decision.is_allowed(), is_allowed) {
        (true, true) => ask.cost,
        (true, false) if ask.charge_refused => ask.cost,
        (false, _) if ask.charge_refused => {
            ask.terms.charge_refused(&mut before.clone(), ask.cost, ask.moment)
        }
        _ => 0,
    }
}
