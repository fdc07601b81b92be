//! Holds, and changes to single keys.

use std::hash::BuildHasher;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::limits::Carried;
use super::side::REMEMBERED_FOR;
use super::{
    ActKind, Answered, Booking, Charge, Decided, Entry, Happened, Held, Hold, HoldId, Item, Lines,
    MemoryStore, Moment, OtherBody, Plan, Settled, Settlement, Several, Side, Unsettled, Width,
};
use crate::cycle::Times;
use crate::locks::read;
#[cfg(feature = "durable")]
use crate::policy::Durability;
use crate::store::Named;
use crate::terms::{Decisions, State, Terms};

impl MemoryStore {
    pub(super) fn write_hold(
        &self,
        side: &mut Side,
        items: Several<Item>,
        (length, name): (Duration, Option<[u64; 2]>),
        now: Timestamp,
    ) -> Held {
        let fence = side.next_fence(now);
        let id = HoldId([self.ids.hash_one((fence, 1)), self.ids.hash_one((fence, 2))]);
        let expires = now.saturating_add(length);
        items.iter().for_each(|item| side.note(item.durability));
        // A reservation that no rule limits has no items.
        side.note(self.least_durability);
        side.insert_hold(id, Hold { items, length, expires, fence, settled: None, name });
        Held { id, expires, fence }
    }

    /// Ends a hold, or makes it longer.
    pub(super) fn settle_now(
        &self,
        id: HoldId,
        (settlement, note): (Settlement, Option<&str>),
        times: Times,
    ) -> Result<Settled, Unsettled> {
        let mut side = self.side();
        self.expire_holds(&mut side, times);
        let name = settlement.name();
        if let Some(units) = refunded_before(&mut side, name, times.now)? {
            let expires = Timestamp::ZERO;
            return Ok(Settled { units, expires, fence: 0, lines: Lines::All });
        }
        let mut hold = side.hold(id).ok_or(Unsettled::Gone)?.clone();
        let oldest = times.now.saturating_sub(REMEMBERED_FOR);
        let is_too_old = hold.settled.is_some_and(|settled| settled < oldest);
        if is_too_old || hold.settled.is_none() == matches!(settlement, Settlement::Refund { .. }) {
            return Err(Unsettled::Gone);
        }
        let (mut most, mut least, lines) = (0, None, self.lines_of(&hold));
        hold.items.iter().for_each(|item| side.note(item.durability));
        side.note(self.least_durability);
        if settlement == Settlement::Renew {
            hold.expires = times.now.saturating_add(hold.length);
            side.renew(id, hold.expires);
        } else {
            for item in &mut hold.items {
                let (held, outstanding) = (item.units, self.outstanding(item, times));
                let Item { is_by_request, durability, hash, .. } = *item;
                let (units, charged) =
                    self.update(&mut side, item, times, |terms, state, moment| match settlement {
                        Settlement::Commit { actual } => {
                            let actual = actual.filter(|_| is_by_request).unwrap_or(held);
                            terms.commit(state, held, actual, moment)
                        }
                        Settlement::Refund { units, .. } => {
                            terms.refund(state, units.min(outstanding), moment)
                        }
                        Settlement::Cancel | Settlement::Renew => {
                            terms.cancel(state, held, moment);
                            0
                        }
                    });
                if self.counts_units(item) {
                    for (entry, units) in booked(settlement, held, units) {
                        side.book(durability, Booking { hash, entry, units });
                    }
                }
                most = most.max(units);
                if is_by_request && charged.is_some_and(|(_, state)| state.counts_units()) {
                    least = Some(least.map_or(units, |least: u64| least.min(units)));
                }
                match settlement {
                    Settlement::Refund { .. } => item.units = held - units.min(held),
                    _ => (item.units, item.charged) = (units, charged.map(Box::new)),
                }
            }
            let hashes = hold.items.iter().map(|item| item.hash);
            remember_refund(&mut side, name, hashes, most, times.now);
            if settlement == Settlement::Cancel {
                side.drop_hold(id);
            } else {
                side.settle(id, hold.items, times.now);
            }
        }
        let note = note.map(Into::into);
        let happened = Happened::new(ActKind::of(settlement), times.now);
        side.end_act(Happened { hold: Some(id), note, ..happened });
        // What was not charged somewhere is for the host to book.
        let is_commit = matches!(settlement, Settlement::Commit { .. });
        let units = least.filter(|_| is_commit).unwrap_or(most);
        Ok(Settled { units, expires: hold.expires, fence: hold.fence, lines })
    }

    /// How safe an end of a hold has to be.
    #[cfg(feature = "durable")]
    pub(crate) fn durability_of_hold(&self, id: HoldId) -> Option<Durability> {
        let side = self.side();
        let most = side.hold(id)?.items.iter().map(|item| item.durability).max();
        most.max(Some(self.least_durability))
    }

    /// How much of what an item has charged still counts: a closed window gives nothing back.
    pub(super) fn outstanding(&self, item: &Item, times: Times) -> u64 {
        let limits = read(&self.limits);
        let Some((tag, state)) = item.charged.as_deref().copied() else { return 0 };
        let Some((terms, moment)) = limits.get(tag, times) else { return 0 };
        let carried = Carried { tag, terms, state };
        let mut carried = limits.current(carried, times.now, Some(moment.period.index));
        let moment = limits.get(carried.tag, times).map_or(moment, |(_, moment)| moment);
        carried.terms.refund(&mut carried.state, item.units, moment)
    }

    /// Whether an item is about units, and not acts or places.
    fn counts_units(&self, item: &Item) -> bool {
        let terms = read(&self.limits).terms(item.tag);
        !matches!(terms, None | Some(Terms::Cooldown(_) | Terms::Slots(_)))
    }

    /// Who has to hear when a hold is given back.
    pub(super) fn lines_of(&self, hold: &Hold) -> Lines {
        let limits = read(&self.limits);
        let is_slots = |item: &&Item| matches!(limits.terms(item.tag), Some(Terms::Slots(_)));
        let mut slots = hold.items.iter().filter(is_slots);
        match (slots.next(), slots.next()) {
            (Some(only), None) => Lines::One(only.hash),
            _ => Lines::All,
        }
    }

    /// Each at its own time, so that what it gives back comes back then and not when somebody looks.
    pub(super) fn expire_holds(&self, side: &mut Side, times: Times) -> bool {
        let mut expired = false;
        while let Some((id, hold)) = side.next_expired(times.now) {
            let at = Times { now: hold.expires, ..times };
            for item in &hold.items {
                self.update(side, item, at, |terms, state, moment| {
                    terms.cancel(state, item.units, moment);
                    0
                });
                let units = if self.counts_units(item) { item.units } else { 0 };
                let booking = Booking { hash: item.hash, entry: Entry::Expired, units };
                side.book(item.durability, booking);
            }
            side.end_act(Happened { hold: Some(id), ..Happened::new(ActKind::Expire, at.now) });
            expired = true;
        }
        expired
    }

    /// Changes the state that an item of a hold belongs to, and reports it with its limit.
    pub(super) fn update(
        &self,
        side: &mut Side,
        item: &Item,
        times: Times,
        change: impl Fn(&Terms, &mut State, Moment) -> u64,
    ) -> (u64, Option<(u32, State)>) {
        // Limits are looked up after a line is locked, never before: see the order of locks.
        let known = read(&self.limits).get(item.tag, times);
        let Some((terms, moment)) = known else { return (0, None) };
        let held = side.held(item.hash);
        if Width::of(&terms) == Width::None {
            let mut state = State::Slots { held };
            let units = change(&terms, &mut state, moment);
            side.set_held(item.hash, state.held());
            return (units, None);
        }
        let changed = self.with_slot(&terms, item.hash, |line, slot| {
            let limits = read(&self.limits);
            let tag = line.tag(slot);
            let counted = limits.terms(tag).unwrap_or(terms);
            let state = line.load_state(slot, &counted);
            let carried = Carried { tag, terms: counted, state: state.with_held(held) };
            let Carried { tag, terms, mut state } =
                limits.current(carried, times.now, Some(moment.period.index));
            // The limit that it has come to may count other periods.
            let moment = limits.get(tag, times).map_or(moment, |(_, moment)| moment);
            let units = change(&terms, &mut state, moment);
            line.store(slot, tag, &state, moment);
            (units, (tag, state))
        });
        let Some((units, left)) = changed else {
            // Only a key without anything on hold can have lost its slot.
            side.set_held(item.hash, 0);
            return (change(&terms, &mut terms.fresh(moment.period), moment), None);
        };
        side.set_held(item.hash, left.1.held());
        side.note_state(item.durability, (&terms, item.hash));
        (units, Some(left))
    }

    /// Gives back up to `units` to every limit of a plan, and reports the most that any gave.
    pub(super) fn refund_now(&self, plan: &Plan<'_>, times: Times) -> Result<u64, OtherBody> {
        let mut side = self.side();
        self.expire_holds(&mut side, times);
        if let Some(units) = refunded_before(&mut side, plan.name, times.now)? {
            return Ok(units);
        }
        let refund = |charge: &Charge<'_>| {
            let Charge { tag, hash, cost: units, is_by_request, .. } = *charge;
            let durability = self.durability(charge);
            let item = Item { tag, hash, units, is_by_request, durability, charged: None };
            let refund =
                |terms: &Terms, state: &mut State, moment| terms.refund(state, units, moment);
            let (units, left) = self.update(&mut side, &item, times, refund);
            if left.is_some() {
                side.book(durability, Booking { hash, entry: Entry::Refunded, units });
            }
            units
        };
        let units = plan.charges.iter().map(refund).max().unwrap_or(0);
        let hashes = plan.charges.iter().map(|charge| charge.hash);
        remember_refund(&mut side, plan.name, hashes, units, times.now);
        let note = plan.note.map(Into::into);
        side.end_act(Happened { note, ..Happened::new(ActKind::Refund, times.now) });
        Ok(units)
    }

    /// Drops what the keys of a plan have spent; true if there was anything. Holds stay.
    pub(super) fn forget_now(&self, plan: &Plan<'_>, now: Timestamp) -> bool {
        let mut side = self.side();
        let mut forget = |charge: &Charge<'_>| {
            let held = side.held(charge.hash);
            let forgotten = self.with_slot(charge.terms, charge.hash, |line, slot| {
                if held == 0 {
                    line.clear(slot);
                    self.uncount(charge.terms);
                } else {
                    let moment = Moment { now: Timestamp::ZERO, period: charge.period };
                    let fresh = charge.terms.fresh(charge.period).with_held(held);
                    line.store(slot, charge.tag, &fresh, moment);
                }
            });
            if forgotten.is_some() {
                side.note_state(self.durability(charge), (charge.terms, charge.hash));
            }
            forgotten
        };
        let count = plan.charges.iter().filter_map(&mut forget).count();
        let note = plan.note.map(Into::into);
        side.end_act(Happened { note, ..Happened::new(ActKind::Forget, now) });
        count > 0
    }
}

/// What was given back under a name before, if anything was.
fn refunded_before(
    side: &mut Side,
    name: Option<Named>,
    now: Timestamp,
) -> Result<Option<u64>, OtherBody> {
    let Some(named) = name else { return Ok(None) };
    Ok(side.recall(named, now)?.and_then(|answered| answered.refunded))
}

/// Remembers what was given back under a name, so that it is not given twice.
fn remember_refund(
    side: &mut Side,
    name: Option<Named>,
    hashes: impl Iterator<Item = u64>,
    units: u64,
    now: Timestamp,
) {
    if let Some(named) = name.filter(|_| units > 0) {
        let decided = Decided { is_allowed: true, hold: None, is_repeat: false };
        let (decisions, hashes) = (Decisions::new(), hashes.collect());
        let answer = Answered { decided, decisions, hashes, refunded: Some(units) };
        side.remember(named, answer, now);
    }
}

/// How units that were set aside are booked when `units` of them were charged or given back.
fn booked(settlement: Settlement, held: u64, units: u64) -> impl Iterator<Item = (Entry, u64)> {
    let entries = match settlement {
        // What was charged beyond is granted at the same time, so that nothing comes from nowhere.
        Settlement::Commit { .. } => [
            (Entry::Committed, units.min(held)),
            (Entry::Cancelled, held.saturating_sub(units)),
            (Entry::Charged, units.saturating_sub(held)),
        ],
        Settlement::Cancel => [(Entry::Cancelled, held), (Entry::Held, 0), (Entry::Held, 0)],
        Settlement::Refund { .. } => [(Entry::Refunded, units), (Entry::Held, 0), (Entry::Held, 0)],
        Settlement::Renew => [(Entry::Held, 0); 3],
    };
    entries.into_iter().filter(|(_, units)| *units > 0)
}
