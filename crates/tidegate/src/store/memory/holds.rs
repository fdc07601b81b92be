//! Holds, and changes to single keys.

use std::hash::BuildHasher;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::hold_tables::REMEMBERED_FOR;
use super::limits::MigratedState;
use super::slot::SlotLine;
use super::{
    ActionKind, BodyMismatch, CachedDecisions, Charge, Decided, DecisionTime, FreedQueues,
    Happened, Hold, HoldId, HoldItem, HoldTables, JournalBooking, JournalTransfer, MemoryStore,
    NewHold, Plan, SettleFailure, Settled, Settlement, Several, Width,
};
use crate::any_limit::{AnyLimit, AnyState, Decisions};
use crate::cycle::Times;
use crate::locks::read;
#[cfg(feature = "durable")]
use crate::policy::Durability;
use crate::store::IdempotencyKey;
use crate::table::{KeyLocation, WideLine};

impl MemoryStore {
    pub(super) fn write_hold(
        &self,
        tables: &mut HoldTables,
        items: Several<HoldItem>,
        (length, name): (Duration, Option<[u64; 2]>),
        now: Timestamp,
    ) -> NewHold {
        let fence = tables.next_fence(now);
        let id = HoldId([self.ids.hash_one((fence, 1)), self.ids.hash_one((fence, 2))]);
        let expires = now.saturating_add(length);
        items.iter().for_each(|item| tables.note(item.durability));
        // A reservation that no rule limits has no items.
        tables.note(self.least_durability);
        tables.insert_hold(id, Hold { items, length, expires, fence, settled: None, name });
        NewHold { id, expires, fence }
    }

    /// Ends a hold, or extends it.
    pub(super) fn settle_now(
        &self,
        id: HoldId,
        (settlement, note): (Settlement, Option<&str>),
        times: Times,
    ) -> Result<Settled, SettleFailure> {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        let name = settlement.name();
        if let Some(units) = refunded_before(&mut tables, name, times.now)? {
            let expires = Timestamp::ZERO;
            return Ok(Settled { units, expires, fence: 0, queues: FreedQueues::All });
        }
        let mut hold = tables.hold(id).ok_or(SettleFailure::Gone)?.clone();
        let oldest = times.now.saturating_sub(REMEMBERED_FOR);
        let is_too_old = hold.settled.is_some_and(|settled| settled < oldest);
        if is_too_old || hold.settled.is_none() == matches!(settlement, Settlement::Refund { .. }) {
            return Err(SettleFailure::Gone);
        }
        let (mut most, mut least, queues) = (0, None, self.freed_queues(&hold));
        hold.items.iter().for_each(|item| tables.note(item.durability));
        tables.note(self.least_durability);
        if settlement == Settlement::Renew {
            hold.expires = times.now.saturating_add(hold.length);
            tables.renew(id, hold.expires);
        } else {
            for item in &mut hold.items {
                let (units, counts_units) = self.settle_item(&mut tables, item, settlement, times);
                most = most.max(units);
                if item.is_by_request && counts_units {
                    least = Some(least.map_or(units, |least: u64| least.min(units)));
                }
            }
            let hashes = hold.items.iter().map(|item| item.hash);
            cache_refund(&mut tables, name, hashes, most, times.now);
            if settlement == Settlement::Cancel {
                tables.drop_hold(id);
            } else {
                tables.settle(id, hold.items, times.now);
            }
        }
        let note = note.map(Into::into);
        let happened = Happened::new(ActionKind::of(settlement), times.now);
        tables.end_act(Happened { hold: Some(id), note, ..happened });
        // The host has to account for what a limit did not charge.
        let is_commit = matches!(settlement, Settlement::Commit { .. });
        let units = least.filter(|_| is_commit).unwrap_or(most);
        Ok(Settled { units, expires: hold.expires, fence: hold.fence, queues })
    }

    /// Settles one item of a hold. Returns the units charged or refunded, and whether a state that
    /// counts units took them.
    fn settle_item(
        &self,
        tables: &mut HoldTables,
        item: &mut HoldItem,
        settlement: Settlement,
        times: Times,
    ) -> (u64, bool) {
        let (held, mut committed) = (item.units, self.committed(item, times));
        let HoldItem { is_by_request, durability, hash, .. } = *item;
        // What can be refunded afterwards, and what was not charged.
        let (mut left, mut forgiven) = (held, 0);
        let change = |limit: &AnyLimit, state: &mut AnyState, decided_at| match settlement {
            Settlement::Commit { actual } => {
                let actual = actual.filter(|_| is_by_request).unwrap_or(held);
                let done = limit.commit(state, item.on_hold(), actual, decided_at);
                (left, forgiven) = (done.charged - done.closed, done.forgiven);
                done.charged
            }
            Settlement::Refund { units, .. } => committed
                .as_mut()
                .map_or(0, |charge| charge.refund(limit, state, (units, &mut left), decided_at)),
            Settlement::Cancel | Settlement::Renew => {
                limit.cancel(state, item.on_hold(), decided_at);
                0
            }
        };
        let (units, charged) = self.update(tables, item, times, change);
        if self.counts_units(item) {
            let forgiven = (JournalTransfer::Forgiven, forgiven);
            for (entry, units) in booked(settlement, held, units).chain([forgiven]) {
                tables.book(durability, JournalBooking { hash, entry, units });
            }
        }
        let counts_units = charged.is_some_and(|(_, state)| state.counts_units());
        let of_refund = committed.map(|charge| (charge.tag, charge.state));
        let is_refund = matches!(settlement, Settlement::Refund { .. });
        item.charged = if is_refund { of_refund } else { charged }.map(Box::new);
        item.units = left;
        (units, counts_units)
    }

    /// How durable a settlement of a hold has to be.
    #[cfg(feature = "durable")]
    pub(crate) fn durability_of_hold(&self, id: HoldId) -> Option<Durability> {
        let tables = self.tables();
        let most = tables.hold(id)?.items.iter().map(|item| item.durability).max();
        most.max(Some(self.least_durability))
    }

    /// The state that the commit of an item left, under the limit that counts now: it knows how much
    /// of the charge is outstanding.
    fn committed(&self, item: &HoldItem, times: Times) -> Option<MigratedState> {
        let limits = read(&self.limits);
        let (tag, state) = item.charged.as_deref().copied()?;
        let (limit, decided_at) = limits.get(tag, times)?;
        let carried = MigratedState { tag, limit, state };
        Some(limits.current(carried, times.now, Some(decided_at.period.index)))
    }

    /// Whether an item counts units, unlike cooldowns and slots.
    fn counts_units(&self, item: &HoldItem) -> bool {
        let limit = read(&self.limits).limit(item.tag);
        !matches!(limit, None | Some(AnyLimit::Cooldown(_) | AnyLimit::Slots(_)))
    }

    /// The queues that wait for what a hold releases.
    pub(super) fn freed_queues(&self, hold: &Hold) -> FreedQueues {
        let limits = read(&self.limits);
        let is_slots =
            |item: &&HoldItem| matches!(limits.limit(item.tag), Some(AnyLimit::Slots(_)));
        let mut slots = hold.items.iter().filter(is_slots);
        match (slots.next(), slots.next()) {
            (Some(only), None) => FreedQueues::One(only.hash),
            _ => FreedQueues::All,
        }
    }

    /// Releases expired holds, each at its own time, whenever this is called.
    pub(super) fn expire_holds(&self, tables: &mut HoldTables, times: Times) -> bool {
        let mut expired = false;
        while let Some((id, hold)) = tables.next_expired(times.now) {
            let at = Times { now: hold.expires, ..times };
            for item in &hold.items {
                self.update(tables, item, at, |limit, state, decided_at| {
                    limit.cancel(state, item.on_hold(), decided_at);
                    0
                });
                let units = if self.counts_units(item) { item.units } else { 0 };
                let booking =
                    JournalBooking { hash: item.hash, entry: JournalTransfer::Expired, units };
                tables.book(item.durability, booking);
            }
            tables
                .end_act(Happened { hold: Some(id), ..Happened::new(ActionKind::Expire, at.now) });
            expired = true;
        }
        expired
    }

    /// Changes the state of a hold's item, and returns it with its limit.
    pub(super) fn update(
        &self,
        tables: &mut HoldTables,
        item: &HoldItem,
        times: Times,
        mut change: impl FnMut(&AnyLimit, &mut AnyState, DecisionTime) -> u64,
    ) -> (u64, Option<(u32, AnyState)>) {
        // Limits are read after a line is locked, never before: see the order of locks.
        let known = read(&self.limits).get(item.tag, times);
        let Some((limit, decided_at)) = known else { return (0, None) };
        let held = tables.held(item.hash);
        if Width::of(&limit) == Width::None {
            let mut state = AnyState::Slots { held };
            let units = change(&limit, &mut state, decided_at);
            tables.set_held(item.hash, state.held());
            return (units, None);
        }
        let changed = self.with_slot(&limit, item.hash, |line, slot| {
            let limits = read(&self.limits);
            let tag = line.tag(slot);
            let counted = limits.limit(tag).unwrap_or(limit);
            let state = line.load_state(slot, &counted);
            let carried = MigratedState { tag, limit: counted, state: state.with_held(held) };
            let MigratedState { tag, limit, mut state } =
                limits.current(carried, times.now, Some(decided_at.period.index));
            // Its new limit may count other periods.
            let decided_at =
                limits.get(tag, times).map_or(decided_at, |(_, decided_at)| decided_at);
            let units = change(&limit, &mut state, decided_at);
            line.store(slot, tag, &state, decided_at);
            (units, (tag, state))
        });
        let Some((units, left)) = changed.or_else(|| {
            // Only a key without units on hold can have lost its slot.
            tables.set_held(item.hash, 0);
            self.update_lost(item, times, &mut change)
        }) else {
            return (change(&limit, &mut limit.fresh(decided_at.period), decided_at), None);
        };
        tables.set_held(item.hash, left.1.held());
        tables.note_state(item.durability, (&limit, item.hash));
        (units, Some(left))
    }

    /// Changes the state of a quota's key that has lost its slot since the period of the hold
    /// closed: what a commit charges beyond the hold is charged to a new state.
    fn update_lost(
        &self,
        item: &HoldItem,
        times: Times,
        change: &mut impl FnMut(&AnyLimit, &mut AnyState, DecisionTime) -> u64,
    ) -> Option<(u64, (u32, AnyState))> {
        let limits = read(&self.limits);
        let (limit, decided_at) = limits.get(item.tag, times)?;
        let fresh = limit.fresh(decided_at.period);
        let carried = MigratedState { tag: item.tag, limit, state: fresh };
        let MigratedState { tag, limit, .. } =
            limits.current(carried, times.now, Some(decided_at.period.index));
        drop(limits);
        if !matches!(limit, AnyLimit::Quota(_)) {
            return None;
        }
        let mut state = fresh;
        let units = change(&limit, &mut state, decided_at);
        if state != fresh {
            let mut location = self.wide.enter(item.hash, times.now, self);
            if let KeyLocation::Full(chain) = location {
                drop(chain);
                self.wide.sweep(times.now, self);
                location = self.wide.enter(item.hash, times.now, self);
            }
            // A full table drops what cannot be denied any more.
            if let KeyLocation::Claimed(mut chain, at) | KeyLocation::Known(mut chain, at) =
                location
            {
                let line = chain.line(at.line);
                line.set_fingerprint(at.slot, item.hash);
                line.store(at.slot, WideLine::pack(tag, &state, decided_at));
            }
        }
        Some((units, (tag, state)))
    }

    /// Refunds the cost of a plan at every limit, and returns the most that any refunded.
    pub(super) fn refund_now(&self, plan: &Plan<'_>, times: Times) -> Result<u64, BodyMismatch> {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        if let Some(units) = refunded_before(&mut tables, plan.name, times.now)? {
            return Ok(units);
        }
        let refund = |charge: &Charge<'_>| {
            let item = self.hold_item(charge.tag, charge, 0);
            let HoldItem { hash, units, durability, .. } = item;
            let refund = |limit: &AnyLimit, state: &mut AnyState, decided_at| {
                limit.refund(state, units, decided_at)
            };
            let (units, left) = self.update(&mut tables, &item, times, refund);
            if left.is_some() {
                tables.book(
                    durability,
                    JournalBooking { hash, entry: JournalTransfer::Refunded, units },
                );
            }
            units
        };
        let units = plan.charges.iter().map(refund).max().unwrap_or(0);
        let hashes = plan.charges.iter().map(|charge| charge.hash);
        cache_refund(&mut tables, plan.name, hashes, units, times.now);
        let note = plan.note.map(Into::into);
        tables.end_act(Happened { note, ..Happened::new(ActionKind::Refund, times.now) });
        Ok(units)
    }

    /// Drops the states of a plan's keys; true if there were any. Holds stay.
    pub(super) fn forget_now(&self, plan: &Plan<'_>, times: Times) -> bool {
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        let mut forget = |charge: &Charge<'_>| {
            let held = tables.held(charge.hash);
            let forgotten = self.with_slot(charge.limit, charge.hash, |line, slot| {
                let state = line.load_state(slot, charge.limit).with_held(held);
                let fresh = charge.limit.forgotten(&state, charge.period);
                if fresh.held() == 0 {
                    line.clear(slot);
                    self.uncount(charge.limit);
                } else {
                    let decided_at = DecisionTime { now: Timestamp::ZERO, period: charge.period };
                    line.store(slot, charge.tag, &fresh, decided_at);
                }
                fresh.held()
            });
            if let Some(held) = forgotten {
                tables.set_held(charge.hash, held);
                tables.note_state(self.durability(charge), (charge.limit, charge.hash));
            }
            forgotten
        };
        let count = plan.charges.iter().filter_map(&mut forget).count();
        let note = plan.note.map(Into::into);
        tables.end_act(Happened { note, ..Happened::new(ActionKind::Forget, times.now) });
        count > 0
    }
}

/// The cached result of a refund under an idempotency key, if there is one.
fn refunded_before(
    tables: &mut HoldTables,
    name: Option<IdempotencyKey>,
    now: Timestamp,
) -> Result<Option<u64>, BodyMismatch> {
    let Some(named) = name else { return Ok(None) };
    Ok(tables.recall(named, now)?.and_then(|cached| cached.refunded))
}

/// Caches the result of a refund, so that it is not refunded twice.
fn cache_refund(
    tables: &mut HoldTables,
    name: Option<IdempotencyKey>,
    hashes: impl Iterator<Item = u64>,
    units: u64,
    now: Timestamp,
) {
    if let Some(named) = name.filter(|_| units > 0) {
        let decided = Decided { is_allowed: true, hold: None, is_repeat: false };
        let (decisions, hashes) = (Decisions::new(), hashes.collect());
        let result = CachedDecisions { decided, decisions, hashes, refunded: Some(units) };
        tables.cache_result(named, result, now);
    }
}

/// How units on hold are booked when `units` of them were charged or returned.
fn booked(
    settlement: Settlement,
    held: u64,
    units: u64,
) -> impl Iterator<Item = (JournalTransfer, u64)> {
    let entries = match settlement {
        // A charge beyond the hold is granted at the same time, so that the totals balance.
        Settlement::Commit { .. } => [
            (JournalTransfer::Committed, units.min(held)),
            (JournalTransfer::Cancelled, held.saturating_sub(units)),
            (JournalTransfer::Charged, units.saturating_sub(held)),
        ],
        Settlement::Cancel => [
            (JournalTransfer::Cancelled, held),
            (JournalTransfer::Held, 0),
            (JournalTransfer::Held, 0),
        ],
        Settlement::Refund { .. } => [
            (JournalTransfer::Refunded, units),
            (JournalTransfer::Held, 0),
            (JournalTransfer::Held, 0),
        ],
        Settlement::Renew => [(JournalTransfer::Held, 0); 3],
    };
    entries.into_iter().filter(|(_, units)| *units > 0)
}
