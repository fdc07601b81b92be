//! Holds, and changes to single keys.

use std::hash::BuildHasher;

use tidegate_core::Timestamp;
use tidegate_policy::policy::Durability;
use tidegate_table::locks::read;
use tidegate_table::table::{KeyLocation, WideLine};

use super::locked::line_of_key;
use super::slot::{AnyLine, AnyLocked, SlotLine};
use super::{
    Author, BodyMismatch, CachedResponse, Charge, EndKind, EntryKind, Failure, Hold, HoldId,
    HoldItem, HoldTables, JournalBooking, JournalEntry, MemoryStore, NewHold, Plan, Settled,
    Settlement, Several, Transfer, Width,
};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime};
use crate::history::{History, StoredState};
use crate::periods::Times;
use crate::plan::{HoldFor, IdempotencyKey};
use crate::store::settlement::{self, HoldAfter, SettledUnits};
use crate::transition::{self, KeyState, View};

/// A key whose state is to be changed.
#[derive(Clone, Copy, Debug)]
struct KeyToChange {
    hash: u64,
    width: Width,
    durability: Durability,
}

impl MemoryStore {
    pub(super) fn write_hold(
        &self,
        tables: &mut HoldTables,
        items: Several<HoldItem>,
        hold: HoldFor,
        name: Option<[u64; 2]>,
        entry: &mut JournalEntry,
    ) -> NewHold {
        let now = entry.at;
        let HoldFor { length, domain, owner } = hold;
        let fence = tables.next_fence(now);
        let expires = now.saturating_add(length);
        if items.is_empty() && name.is_none() && entry.kind == EntryKind::Reserve {
            // No rule limits it: its id is all there is to know. A lease can be renewed.
            return NewHold { id: HoldId::unlimited(fence, expires), expires, fence };
        }
        let id = [self.ids.hash_one((fence, 1)), self.ids.hash_one((fence, 2))];
        let id = HoldId::stored(id, owner);
        self.note_hold(entry, id, &items);
        let end = None;
        tables.insert_hold(id, Hold { items, length, expires, fence, end, name, domain });
        NewHold { id, expires, fence }
    }

    /// Notes that a hold has changed.
    fn note_hold(&self, entry: &mut JournalEntry, id: HoldId, items: &[HoldItem]) {
        // One that no rule limits has no items.
        entry.note(self.durable(Durability::Memory));
        for item in items {
            entry.note(self.durable(item.durability));
        }
        entry.hold = Some(id);
        entry.holds.push(id);
    }

    /// Settles a hold, with a note of the caller or of the engine.
    pub(super) fn settle_as(
        &self,
        id: HoldId,
        settlement: Settlement,
        author: Author,
        note: Option<&str>,
        times: Times,
    ) -> Result<Settled, Failure> {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        let refunded = refunded_before(&mut tables, settlement.name(), times.now)?;
        if let Some(known) = settlement::known(id, settlement, refunded, times.now) {
            return known;
        }
        let mut hold = tables.hold(id).ok_or(Failure::Gone)?.clone();
        if let Some(before) = settlement::settled_before(&hold, settlement, times.now)? {
            return Ok(before);
        }
        let mut entry = JournalEntry::new(settlement.kind(), times.now);
        (entry.author, entry.note) = (author, note.map(Into::into));
        self.note_hold(&mut entry, id, &hold.items);
        let keys = self.keys_of(&hold.items);
        let done = self.with_states(&mut tables, &keys, times, &mut entry, |view, _| {
            settlement::settle(view, &mut hold, settlement)
        });
        for booking in done.bookings {
            let HoldItem { hash, durability, .. } = hold.items[booking.item];
            let SettledUnits { transfer: entry_of, units, .. } = booking;
            let booking = JournalBooking { hash, entry: entry_of, units };
            entry.book(self.durable(durability), booking);
        }
        match done.after {
            HoldAfter::Renewed => tables.renew(id, hold.expires),
            HoldAfter::Refunded => {
                let hashes = hold.items.iter().map(|item| item.hash);
                cache_refund(
                    &mut tables,
                    settlement.name(),
                    hashes,
                    done.settled.units,
                    &mut entry,
                );
                tables.set_items(id, hold.items);
            }
            HoldAfter::Released => {
                entry.names.extend(hold.name);
                tables.drop_hold(id);
            }
            HoldAfter::Ended(end) => {
                if end.settlement == EndKind::Cancel {
                    entry.names.extend(hold.name);
                    tables.drop_name(id, hold.name);
                }
                tables.settle(id, hold.items, end);
            }
        }
        self.record(&tables, entry);
        Ok(done.settled)
    }

    /// How durable a settlement of a hold has to be.
    pub(crate) fn durability_of_hold(&self, id: HoldId) -> Option<Durability> {
        let tables = self.tables();
        let most = tables.hold(id)?.items.iter().map(|item| self.durable(item.durability)).max();
        most.max(Some(self.least_durability))
    }

    /// Releases expired holds, each at its own time, whenever this is called.
    pub(super) fn expire_holds(&self, tables: &mut HoldTables, times: Times) -> bool {
        let mut expired = false;
        while let Some((id, hold)) = tables.next_expired(times.now) {
            let at = times.at(hold.expires);
            let mut entry = JournalEntry::new(EntryKind::Expire, at.now);
            self.note_hold(&mut entry, id, &hold.items);
            entry.names.extend(hold.name);
            self.change(tables, &hold.items, at, &mut entry, |view, entry| {
                for (index, item) in hold.items.iter().enumerate() {
                    transition::expire_item(view, index, item);
                    let units = if view.history.counts_units(item) { item.units } else { 0 };
                    let booking =
                        JournalBooking { hash: item.hash, entry: Transfer::Expired, units };
                    entry.book(self.durable(item.durability), booking);
                }
            });
            self.record(tables, entry);
            expired = true;
        }
        expired
    }

    /// Changes the states of a hold's items, with all of them locked.
    pub(super) fn change<R>(
        &self,
        tables: &mut HoldTables,
        items: &[HoldItem],
        times: Times,
        entry: &mut JournalEntry,
        change: impl FnOnce(&mut View<'_>, &mut JournalEntry) -> R,
    ) -> R {
        let keys = self.keys_of(items);
        self.with_states(tables, &keys, times, entry, change)
    }

    /// The keys of a hold's items. Limits are locked after lines, never before: see the order of locks.
    fn keys_of(&self, items: &[HoldItem]) -> Several<KeyToChange> {
        let history = read(&self.history);
        let key = |item: &HoldItem| KeyToChange {
            hash: item.hash,
            width: history.width_of(item),
            durability: self.durable(item.durability),
        };
        items.iter().map(key).collect()
    }

    /// Locks the states of keys, calls a function with them, and writes back what it has changed.
    fn with_states<R>(
        &self,
        tables: &mut HoldTables,
        keys: &[KeyToChange],
        times: Times,
        entry: &mut JournalEntry,
        change: impl FnOnce(&mut View<'_>, &mut JournalEntry) -> R,
    ) -> R {
        let (mut lines, slots) = self.lock_keys(keys);
        // Limits are read after lines are locked, never before: see the order of locks.
        let history = read(&self.history);
        let mut states: Several<KeyState> = (keys.iter().zip(&slots))
            .map(|(key, slot)| KeyState::new(load(&history, &lines, key, *slot, tables)))
            .collect();
        let result = change(&mut View { history: &history, times, keys: &mut states }, entry);
        let mut new: Several<(u64, StoredState, DecisionTime)> = Several::new();
        for (index, (key, state)) in keys.iter().zip(&states).enumerate() {
            if !state.is_changed {
                continue;
            }
            tables.set_held(key.hash, state.stored.map_or(0, |stored| stored.state.held()));
            match (slots[index], state.stored, state.decided_at) {
                (Some((line, slot)), Some(StoredState { tag, state }), Some(decided_at)) => {
                    lines[line].store(slot, tag, &state, decided_at);
                }
                (Some((line, slot)), ..) => {
                    lines[line].clear(slot);
                    self.uncount(key.width);
                }
                (None, Some(stored), Some(decided_at)) if key.width == Width::Wide => {
                    new.push((key.hash, stored, decided_at));
                }
                (None, ..) => {}
            }
            entry.note_state(key.durability, key.hash, key.width);
        }
        drop((history, lines));
        for (hash, stored, decided_at) in new {
            self.add_key(hash, stored, decided_at);
        }
        result
    }

    /// Gives a key a slot for what it was charged, if there is one: a full table drops what cannot
    /// be denied any more.
    fn add_key(&self, hash: u64, stored: StoredState, decided_at: DecisionTime) {
        let mut location = self.wide.enter(hash, decided_at.now, self);
        if let KeyLocation::Full(chain) = location {
            drop(chain);
            self.sweep(decided_at.now);
            location = self.wide.enter(hash, decided_at.now, self);
        }
        if let KeyLocation::Claimed(mut chain, at) | KeyLocation::Known(mut chain, at) = location {
            let line = chain.line(at.line);
            line.set_fingerprint(at.slot, hash);
            line.store(at.slot, WideLine::pack(stored.tag, &stored.state, decided_at));
        }
    }

    /// Locks the lines of keys in the order of their addresses. Unknown keys have none.
    fn lock_keys(
        &self,
        keys: &[KeyToChange],
    ) -> (Several<AnyLocked<'_>>, Several<Option<(usize, usize)>>) {
        'again: loop {
            let mut found: Several<(AnyLine<'_>, usize)> = Several::new();
            for (index, key) in keys.iter().enumerate() {
                found.extend(self.line_of(key).map(|line| (line, index)));
            }
            found.sort_unstable_by_key(|(line, _)| line.address());
            let mut lines: Several<AnyLocked<'_>> = Several::new();
            let mut slots: Several<Option<(usize, usize)>> = Several::from_elem(None, keys.len());
            for (line, index) in found {
                if lines.last().is_none_or(|last| last.address() != line.address()) {
                    lines.push(line.lock());
                }
                let last = lines.len() - 1;
                // Another thread may have moved it.
                let Some(slot) = lines[last].find(keys[index].hash) else { continue 'again };
                slots[index] = Some((last, slot));
            }
            return (lines, slots);
        }
    }

    /// The line of a known key.
    fn line_of(&self, key: &KeyToChange) -> Option<AnyLine<'_>> {
        match key.width {
            Width::Narrow => {
                if let Some(line) = line_of_key(&self.narrow, key.hash) {
                    return Some(AnyLine::Narrow(line));
                }
                let (_, mut chain) = self.narrow.lock_chain(key.hash);
                let at = chain.find(key.hash)?;
                Some(AnyLine::Narrow(chain.line(at.line).line()))
            }
            Width::Wide => {
                if let Some(line) = line_of_key(&self.wide, key.hash) {
                    return Some(AnyLine::Wide(line));
                }
                let (_, mut chain) = self.wide.lock_chain(key.hash);
                let at = chain.find(key.hash)?;
                Some(AnyLine::Wide(chain.line(at.line).line()))
            }
            Width::None => None,
        }
    }

    /// Refunds the cost of a plan at every limit, and returns the most that any refunded.
    pub(super) fn refund_now(&self, plan: &Plan<'_>, times: Times) -> Result<u64, BodyMismatch> {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        if let Some(units) = refunded_before(&mut tables, plan.name, times.now)? {
            return Ok(units);
        }
        let items: Several<HoldItem> =
            plan.charges.iter().map(|charge| HoldItem::new(plan, charge, charge.tag)).collect();
        let mut entry = JournalEntry::new(EntryKind::Refund, times.now);
        entry.note = plan.note.map(Into::into);
        let units = self.refund_items(&mut tables, &items, times, &mut entry);
        let hashes = plan.charges.iter().map(|charge| charge.hash);
        cache_refund(&mut tables, plan.name, hashes, units, &mut entry);
        self.record(&tables, entry);
        Ok(units)
    }

    /// Refunds the units of items to their keys, and returns the most that any refunded.
    pub(super) fn refund_items(
        &self,
        tables: &mut HoldTables,
        items: &[HoldItem],
        times: Times,
        entry: &mut JournalEntry,
    ) -> u64 {
        let most = self.change(tables, items, times, entry, |view, entry| {
            let refund = |(index, item): (usize, &HoldItem)| {
                let units = transition::refund(view, index, item);
                let transfer = Transfer::Refunded;
                let booking = JournalBooking { hash: item.hash, entry: transfer, units };
                entry.book(self.durable(item.durability), booking);
                units
            };
            items.iter().enumerate().map(refund).max()
        });
        most.unwrap_or(0)
    }

    /// Drops the states of a plan's keys; true if there were any. Holds stay.
    pub(in crate::store) fn forget(&self, plan: &Plan<'_>, times: Times) -> bool {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        let key = |charge: &Charge| KeyToChange {
            hash: charge.hash,
            width: Width::of(&charge.limit),
            durability: self.durability(charge),
        };
        let keys: Several<KeyToChange> = plan.charges.iter().map(key).collect();
        let mut entry = JournalEntry::new(EntryKind::Forget, times.now);
        entry.note = plan.note.map(Into::into);
        let forget = |view: &mut View<'_>, _: &mut JournalEntry| {
            let forget = |(index, charge): (usize, &Charge)| {
                !matches!(charge.limit, AnyLimit::Slots(_)) && transition::forget(view, index, plan)
            };
            plan.charges.iter().enumerate().map(forget).filter(|is_known| *is_known).count()
        };
        let count = self.with_states(&mut tables, &keys, times, &mut entry, forget);
        self.record(&tables, entry);
        count > 0
    }
}

/// The state of a key, with its units on hold.
fn load(
    history: &History,
    lines: &[AnyLocked<'_>],
    key: &KeyToChange,
    slot: Option<(usize, usize)>,
    tables: &HoldTables,
) -> Option<StoredState> {
    let held = tables.held(key.hash);
    if key.width == Width::None {
        return Some(StoredState { tag: 0, state: AnyState::Slots { held } });
    }
    let (line, slot) = slot?;
    let tag = lines[line].tag(slot);
    let limit = history.rule_of(tag)?.common();
    Some(StoredState { tag, state: lines[line].load_state(slot, limit).with_held(held) })
}

impl History {
    /// The width of the states of an item's rule.
    pub(super) fn width_of(&self, item: &HoldItem) -> Width {
        self.rule_of(item.tag).map_or(Width::None, |rule| Width::of(rule.common()))
    }
}

/// The cached result of a refund under an idempotency key, if there is one.
fn refunded_before(
    tables: &mut HoldTables,
    name: Option<IdempotencyKey>,
    now: Timestamp,
) -> Result<Option<u64>, BodyMismatch> {
    let Some(named) = name else { return Ok(None) };
    Ok(match tables.recall(named, now)? {
        Some(CachedResponse::Refunded { units, .. }) => Some(*units),
        Some(CachedResponse::Charged { .. }) => return Err(BodyMismatch),
        None => None,
    })
}

/// Caches the result of a refund, so that it is not refunded twice.
fn cache_refund(
    tables: &mut HoldTables,
    name: Option<IdempotencyKey>,
    hashes: impl Iterator<Item = u64>,
    units: u64,
    entry: &mut JournalEntry,
) {
    if let Some(named) = name.filter(|_| units > 0) {
        entry.names.push(named.name);
        let response = CachedResponse::Refunded { units, hashes: hashes.collect() };
        tables.cache_result(named, response, entry.at);
    }
}
