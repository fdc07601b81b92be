//! The in-memory table: states of one limit, by the hash of a key.
//!
//! The hash is the key here: 64 bits, of which two different keys agree with a probability of 2^-64
//! under the default hash. It picks a home line (`directory`); the state is there or in one of
//! the next few lines (`probe_chain`).
//!
//! A decision reads the line without a lock. A denial checks that the line's header has not
//! changed meanwhile and writes nothing at all. An admission takes the line's lock by swapping the
//! header that it read, which proves that nothing has changed since, and stores the new state.
//! A key that is not found is looked up again under the lock of its home line, and inserted there.
//!
//! A slot is reused only when its state is idle, and the latest time at which that was so is the
//! *watermark*: a key without a slot is never decided at an earlier time than that, so a slow
//! thread cannot revive what a reused slot has dropped.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use tidegate_core::{Decision, Timestamp};

pub use capacity::WhenFull;

pub use capacity::Capacity;
use line::glance;
pub use line::{
    Line, LineHeader, Locked, Narrow, NarrowLine, Tagged, TaggedLine, WIDE_WORDS, Wide, WideLine,
    find, is_unchanged, read_header,
};
pub use slot_table::{Fetched, KeyLocation, SlotPolicy, SlotTable};

use keyed::KeyedLimit;
use limits::LimitPair;
use probe_chain::{Position, ProbeChain};
use sketch::Sketch;
use sync::RwLock;
pub use sync::give_way;

mod arena;
mod capacity;
mod directory;
mod grow;
pub mod keyed;
mod limits;
mod line;
#[cfg(not(loom))]
mod pages;
mod probe_chain;
mod sketch;
mod slot_table;
mod sync;

#[derive(Debug)]
pub struct Table<A: KeyedLimit> {
    table: SlotTable<A::Line>,
    limits: LimitPair<A>,
    overrides: RwLock<HashMap<u64, A>>,
    /// The counters that new keys share while the table is full; created when first needed.
    sketch: OnceLock<Option<Sketch<A>>>,
    /// How long keys stay once they are idle; as long as their slots are not needed if absent.
    evict_after: Option<Duration>,
}

/// The limit for a call.
#[derive(Clone, Copy, Debug)]
pub enum LimitSource<A> {
    /// The key's own, or else the table's.
    Kept,
    /// The one that came with the call. States must mean the same under every such limit, and
    /// under the table's.
    Given(A),
}

impl<A: Copy> LimitSource<A> {
    /// The limit that came with the call, or else `kept`.
    #[inline(always)]
    fn or(self, kept: impl FnOnce() -> A) -> A {
        match self {
            Self::Kept => kept(),
            Self::Given(limit) => limit,
        }
    }
}

/// There is no slot for a key that must have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

impl<A: KeyedLimit> Table<A> {
    /// An empty table; `None` if there is no memory for it.
    pub fn new(limit: A, capacity: Capacity, capacity_hint: Option<usize>) -> Option<Self> {
        Some(Self {
            table: SlotTable::new(capacity, capacity_hint)?,
            limits: LimitPair::new(limit),
            overrides: RwLock::new(HashMap::new()),
            sketch: OnceLock::new(),
            evict_after: None,
        })
    }

    /// The same table, in which every new key evicts some that have been idle for this long.
    pub fn evicting_after(self, idle: Option<Duration>) -> Self {
        Self { evict_after: idle, ..self }
    }

    /// The shared counters, once there are any.
    fn sketch(&self) -> Option<&Sketch<A>> {
        self.sketch.get().and_then(Option::as_ref)
    }

    /// Keys that have a slot.
    #[allow(clippy::len_without_is_empty, reason = "no sibling crate needs it")]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn capacity(&self) -> Capacity {
        self.table.capacity()
    }

    pub fn limit(&self) -> A {
        self.limits.in_force()
    }

    /// Prefetches the home line of a hash.
    #[inline(always)]
    pub fn fetch(&self, hash: u64) -> Fetched<'_, A::Line> {
        self.table.fetch(hash)
    }

    /// Whether one unit is free for a key. It is charged if so.
    ///
    /// In the usual case, which is all of this function: the key is in its home line, it has no limit
    /// of its own, and no other thread is writing there.
    #[inline(always)]
    pub fn allow(&self, key: Fetched<'_, A::Line>, now: Timestamp) -> bool {
        let Fetched { hash, home: line } = key;
        let header = glance(line);
        if !header.is_uniform() {
            return self.allow_elsewhere(key, now);
        }
        let Some(slot) = find(line, hash) else {
            return self.allow_absent(key, header, now);
        };
        let before = line.load(slot);
        match A::charge_unit(self.limits.unit_words(header.limit_index()), before, now) {
            None if is_unchanged(line, header) => return false,
            None => {}
            Some(after) => {
                let Some(mut locked) = Locked::if_unchanged(line, header) else {
                    return self.allow_locked(key, now);
                };
                // The count of writes in a header wraps; the slot itself has the last word.
                if locked.holds(slot, hash, before) {
                    locked.store(slot, after);
                    return true;
                }
            }
        }
        self.allow_elsewhere(key, now)
    }

    /// [`allow`](Self::allow) where the key was not in its home line when that had this header.
    #[cold]
    #[inline(never)]
    fn allow_absent(&self, key: Fetched<'_, A::Line>, header: LineHeader, now: Timestamp) -> bool {
        let first_charge = |limit_index, now| {
            let fresh = Default::default();
            A::charge_unit(self.limits.unit_words(limit_index), fresh, now).map(|it| (it, ()))
        };
        match self.insert_at_home(key, header, now, first_charge) {
            Some(()) => true,
            None => self.check_elsewhere(key, &LimitSource::Kept, 1, now).is_allowed(),
        }
    }

    /// [`allow`](Self::allow) where a unit is free, but another thread is writing to the line.
    ///
    /// It leaves the line to that thread for a moment. Then it locks the line before it reads it,
    /// so that nothing it has read is outdated by the time it writes.
    #[cold]
    #[inline(never)]
    fn allow_locked(&self, key: Fetched<'_, A::Line>, now: Timestamp) -> bool {
        let Fetched { hash, home: line } = key;
        let mut locked = Locked::after_loss(line);
        let Some(slot) = locked.find(hash).filter(|&slot| !locked.header.is_pinned(slot)) else {
            drop(locked);
            return self.allow_elsewhere(key, now);
        };
        let words = self.limits.unit_words(locked.header.limit_index());
        let after = A::charge_unit(words, locked.load(slot), now);
        if let Some(after) = after {
            locked.store(slot, after);
        }
        after.is_some()
    }

    #[cold]
    #[inline(never)]
    fn allow_elsewhere(&self, key: Fetched<'_, A::Line>, now: Timestamp) -> bool {
        self.check(key, 1, now, |decision| decision.is_allowed())
    }

    /// Charges `cost` to a key, if it fits, and returns the result of `report` for the decision.
    ///
    /// A whole decision is larger than the work of making it, so only what is used of it is
    /// computed.
    #[inline(always)]
    pub fn check<R>(
        &self,
        key: Fetched<'_, A::Line>,
        cost: u64,
        now: Timestamp,
        report: impl Fn(Decision) -> R,
    ) -> R {
        self.check_under(key, LimitSource::Kept, cost, now, report)
    }

    /// [`check`](Self::check) under a limit that may come with the call.
    #[inline(always)]
    pub fn check_under<R>(
        &self,
        key: Fetched<'_, A::Line>,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
        report: impl Fn(Decision) -> R,
    ) -> R {
        match self.check_in(key, under, cost, now, &report) {
            Some(reported) => reported,
            None => report(self.check_absent(key, &under, cost, now)),
        }
    }

    /// Decides in this line, if the key is here and has no limit of its own.
    #[inline(always)]
    fn check_in<R>(
        &self,
        Fetched { hash, home: line }: Fetched<'_, A::Line>,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
        report: impl Fn(Decision) -> R,
    ) -> Option<R> {
        let mut losses = 0;
        loop {
            let header = read_header(line);
            let slot = find(line, hash)?;
            if header.is_pinned(slot) {
                return None;
            }
            let limit = under.or(|| self.limits.get(header.limit_index()));
            let before = line.load(slot);
            let mut state = A::unpack(before);
            let decision = limit.check(&mut state, cost, now);
            let after = A::pack(&state);
            if after == before {
                if is_unchanged(line, header) {
                    return Some(report(decision));
                }
            } else if let Some(mut locked) = Locked::if_unchanged(line, header) {
                // The count of writes in a header wraps; the slot itself has the last word.
                if locked.holds(slot, hash, before) {
                    locked.store(slot, after);
                    return Some(report(decision));
                }
            } else {
                give_way(losses);
                losses += 1;
            }
        }
    }

    /// [`check`](Self::check) where the key is not in its home line, or has its own limit.
    #[cold]
    #[inline(never)]
    fn check_absent(
        &self,
        key: Fetched<'_, A::Line>,
        under: &LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let header = read_header(key.home);
        if cost > 0 && find(key.home, key.hash).is_none() {
            let first_charge = |limit_index, now| {
                let limit = under.or(|| self.limits.get(limit_index));
                let mut state = limit.fresh();
                let decision = limit.check(&mut state, cost, now);
                decision.is_allowed().then(|| (A::pack(&state), decision))
            };
            let decision = self.insert_at_home(key, header, now, first_charge);
            if let Some(decision) = decision {
                return decision;
            }
        }
        self.check_elsewhere(key, under, cost, now)
    }

    /// Inserts a key into a free slot of its home line, in the usual case: the line had this header
    /// before the key was not found there, no key of it is elsewhere, and there are no shared counters.
    ///
    /// `first_charge` returns the state of a fresh key that was charged, as of a time, under one of the
    /// two limits, and what to return with it; nothing if the charge is denied.
    #[inline(always)]
    fn insert_at_home<R>(
        &self,
        Fetched { hash, home: line }: Fetched<'_, A::Line>,
        header: LineHeader,
        now: Timestamp,
        first_charge: impl FnOnce(usize, Timestamp) -> Option<(<A::Line as Line>::Packed, R)>,
    ) -> Option<R> {
        if header.is_overflowed() || self.sketch.get().is_some() {
            return None;
        }
        self.table.prepare_growth();
        let mut locked = Locked::if_unchanged(line, header)?;
        let slot = locked.free_slot()?;
        // The count of writes in a header wraps, so the key is looked for again.
        if locked.find(hash).is_some() || !self.table.is_home(hash, line) {
            return None;
        }
        let now = self.table.no_earlier_than_reuse(now);
        let (packed, result) = first_charge(header.limit_index(), now)?;
        if packed == Default::default() || !self.table.count_key() {
            return None;
        }
        locked.set_fingerprint(slot, hash);
        locked.store(slot, packed);
        drop(locked);
        self.after_insertion(now);
        Some(result)
    }

    /// What every new key does for the table.
    #[inline(always)]
    fn after_insertion(&self, now: Timestamp) {
        if let Some(idle) = self.evict_after {
            self.table.sweep_lines(EVICTING_LINES, now.saturating_sub(idle), self);
        }
    }

    #[inline(never)]
    fn check_elsewhere(
        &self,
        Fetched { hash, .. }: Fetched<'_, A::Line>,
        under: &LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let under = *under;
        let chain = self.table.chain(hash);
        for (line, next) in chain.iter().zip(&chain[1..]) {
            // Locked or not: a key that is not found is looked up again under the lock of its home.
            if !glance(line).is_overflowed() {
                break;
            }
            if find(next, hash).is_none() {
                continue;
            }
            let key = Fetched { hash, home: next };
            let decision = self.check_in(key, under, cost, now, |decision| decision);
            if let Some(decision) = decision {
                return decision;
            }
        }
        if cost == 0 {
            self.peek_under(hash, under, cost, now)
        } else {
            self.check_locked(hash, under, cost, now)
        }
    }

    /// What [`check`](Self::check) would decide. Changes nothing.
    pub fn peek(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        self.peek_under(hash, LimitSource::Kept, cost, now)
    }

    /// [`peek`](Self::peek) under a limit that may come with the call.
    pub fn peek_under(
        &self,
        hash: u64,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let (_, mut chain) = self.table.lock_chain(hash);
        if let Some(at) = chain.find(hash) {
            let line = chain.line(at.line);
            let state = A::unpack(line.load(at.slot));
            let limit = under.or(|| self.limit_of(line.header, at.slot, hash));
            return limit.peek(&state, cost, now);
        }
        let home = chain.line(0);
        let now = self.table.no_earlier_than_reuse(now);
        match self.sketch() {
            Some(sketch) => sketch.estimate(self, hash, now).peek(under, cost, now),
            None => {
                let limit = under.or(|| self.limits.get(home.header.limit_index()));
                limit.peek(&limit.fresh(), cost, now)
            }
        }
    }

    /// Refunds up to `units` to a key that has a slot, and returns how many.
    pub fn refund(&self, hash: u64, units: u64, now: Timestamp) -> u64 {
        let (_, mut chain) = self.table.lock_chain(hash);
        let Some(at) = chain.find(hash) else { return 0 };
        let line = chain.line(at.line);
        let limit = self.limit_of(line.header, at.slot, hash);
        let mut state = A::unpack(line.load(at.slot));
        let refunded = limit.refund(&mut state, units, now);
        line.store(at.slot, A::pack(&state));
        refunded
    }

    /// Drops the state of a key; true if there was one. Its own limit stays.
    pub fn forget(&self, hash: u64) -> bool {
        let (_, mut chain) = self.table.lock_chain(hash);
        let Some(at) = chain.find(hash) else { return false };
        let line = chain.line(at.line);
        if line.header.is_pinned(at.slot) {
            line.store(at.slot, Default::default());
        } else {
            line.clear(at.slot);
            self.table.uncount_keys(1);
        }
        true
    }

    /// Drops the states of all keys, and returns how many had one. Their own limits stay.
    pub fn forget_all(&self) -> usize {
        // First the shared counters: a key that gets a slot from now on starts without them.
        if let Some(sketch) = self.sketch() {
            sketch.for_each_line(|line| {
                (0..A::Line::SLOTS).for_each(|slot| line.store(slot, Default::default()));
            });
        }
        let mut forgotten = 0;
        self.table.for_each_line(|line| {
            for slot in 0..A::Line::SLOTS {
                if line.fingerprint(slot) == 0 {
                    continue;
                }
                if line.header.is_pinned(slot) {
                    forgotten += usize::from(line.load(slot) != Default::default());
                    line.store(slot, Default::default());
                } else {
                    line.clear(slot);
                    self.table.uncount_keys(1);
                    forgotten += 1;
                }
            }
        });
        forgotten
    }

    /// Puts another limit into force. Charges stay.
    ///
    /// When this returns every key is under the new limit; until then each is under one of both.
    ///
    /// The time is read again for each line, under its lock: what was charged before the line was
    /// migrated was charged before that time, and is not refilled at a later rate.
    pub fn set_limit(&self, limit: A, now: impl Fn() -> Timestamp) {
        let migrate_line = |line: &mut Locked<'_, A::Line>| {
            self.migrate(line, self.limits.current_index(), now());
        };
        self.limits.edit(limit, now(), || {
            for line in self.table.lines() {
                migrate_line(&mut Locked::new(line));
            }
            if let Some(sketch) = self.sketch() {
                sketch.for_each_line(migrate_line);
            }
        });
    }

    /// Gives a key its own limit. Its charges stay.
    pub fn set_override(&self, hash: u64, limit: A, now: Timestamp) -> Result<(), TableFull> {
        let (mut chain, at) = self.lock_slot(hash, now)?;
        let line = chain.line(at.line);
        let old = self.limit_of(line.header, at.slot, hash);
        self.move_slot(line, at.slot, old, limit.succeeding(&old), now);
        line.header.set_pinned(at.slot, true);
        let mut overrides = self.overrides.write().unwrap_or_else(|poison| poison.into_inner());
        overrides.insert(hash, limit.succeeding(&old));
        Ok(())
    }

    /// Moves a key back to the common limit; true if it had its own.
    pub fn remove_override(&self, hash: u64, now: Timestamp) -> bool {
        let (_, mut chain) = self.table.lock_chain(hash);
        let Some(at) = chain.find(hash) else { return false };
        let line = chain.line(at.line);
        if !line.header.is_pinned(at.slot) {
            return false;
        }
        let old = self.limit_of(line.header, at.slot, hash);
        let limit = self.limits.get(line.header.limit_index());
        self.move_slot(line, at.slot, old, limit, now);
        line.header.set_pinned(at.slot, false);
        if line.load(at.slot) == Default::default() {
            line.clear(at.slot);
            self.table.uncount_keys(1);
        }
        let mut overrides = self.overrides.write().unwrap_or_else(|poison| poison.into_inner());
        overrides.remove(&hash);
        true
    }

    /// Frees the slots of all keys that are idle at `now`.
    pub fn sweep(&self, now: Timestamp) {
        self.table.sweep(now, self);
    }
}

/// The slow path: under the lock of the key's home line.
impl<A: KeyedLimit> Table<A> {
    fn check_locked(
        &self,
        hash: u64,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        match self.table.enter(hash, now, self) {
            KeyLocation::Known(mut chain, at) => {
                let line = chain.line(at.line);
                let limit = under.or(|| self.limit_of(line.header, at.slot, hash));
                // A key may have got its slot with its own limit, after it was forgotten.
                let is_pinned = line.header.is_pinned(at.slot);
                let now = if is_pinned { self.table.no_earlier_than_reuse(now) } else { now };
                let mut state = A::unpack(line.load(at.slot));
                let decision = limit.check(&mut state, cost, now);
                line.store(at.slot, A::pack(&state));
                decision
            }
            KeyLocation::Claimed(mut chain, at) => {
                let decision = self.insert(&mut chain, at, hash, under, cost, now);
                drop(chain);
                self.after_insertion(now);
                decision
            }
            KeyLocation::Full(mut chain) => {
                self.check_without_slot(&mut chain, hash, under, cost, now)
            }
        }
    }

    /// The slot of a key that needs one, inserted if missing.
    fn lock_slot(
        &self,
        hash: u64,
        now: Timestamp,
    ) -> Result<(ProbeChain<'_, A::Line>, Position), TableFull> {
        match self.table.enter(hash, now, self) {
            KeyLocation::Known(chain, at) => Ok((chain, at)),
            KeyLocation::Claimed(mut chain, at) => {
                let state = self.first_state(chain.line(at.line), hash, now);
                let line = chain.line(at.line);
                line.set_fingerprint(at.slot, hash);
                line.store(at.slot, A::pack(&state));
                Ok((chain, at))
            }
            KeyLocation::Full(_) => Err(TableFull),
        }
    }

    /// Decides a new key in the slot that was claimed for it.
    fn insert(
        &self,
        chain: &mut ProbeChain<'_, A::Line>,
        at: Position,
        hash: u64,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let line = chain.line(at.line);
        let mut state = self.first_state(line, hash, now);
        let limit = under.or(|| self.limits.get(line.header.limit_index()));
        let now = self.table.no_earlier_than_reuse(now);
        let decision = limit.check(&mut state, cost, now);
        if state == limit.fresh() {
            // Nothing to store: a cost that can never be allowed takes no slot.
            self.table.uncount_keys(1);
        } else {
            if self.sketch().is_some() {
                // A window that another key opened in the shared counters ends earlier than its own.
                let mut alone = limit.fresh();
                let _ = limit.check(&mut alone, cost, now);
                state = limit.join(&state, &alone);
            }
            line.set_fingerprint(at.slot, hash);
            line.store(at.slot, A::pack(&state));
        }
        decision
    }

    /// The first state of a new key in this line: fresh, or the estimate of the shared counters.
    fn first_state(&self, line: &mut Locked<'_, A::Line>, hash: u64, now: Timestamp) -> A::State {
        let Some(sketch) = self.sketch() else {
            return self.limits.get(line.header.limit_index()).fresh();
        };
        let estimate = sketch.estimate(self, hash, now);
        let current = self.limits.current_index();
        self.migrate(line, current, now);
        if estimate.limit_index == current {
            estimate.state
        } else {
            self.limits.carry_over(&estimate.state, current, now)
        }
    }

    /// Decides a new key without a slot, under the lock of its home line.
    fn check_without_slot(
        &self,
        chain: &mut ProbeChain<'_, A::Line>,
        hash: u64,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let limit = under.or(|| self.limits.get(chain.line(0).header.limit_index()));
        let now = self.table.no_earlier_than_reuse(now);
        match self.capacity().when_full {
            WhenFull::Deny => limit.peek(&limit.fresh(), cost, now).denied_for_unknown_time(),
            WhenFull::Share => match self.sketch.get_or_init(|| Sketch::new(self)) {
                Some(sketch) => sketch.check(self, hash, under, cost, now),
                None => limit.peek(&limit.fresh(), cost, now).denied_for_unknown_time(),
            },
        }
    }

    /// The limit that a slot's state counts under.
    fn limit_of(&self, header: LineHeader, slot: usize, hash: u64) -> A {
        if header.is_pinned(slot) {
            let overrides = self.overrides.read().unwrap_or_else(|poison| poison.into_inner());
            if let Some(limit) = overrides.get(&hash) {
                return *limit;
            }
        }
        self.limits.get(header.limit_index())
    }

    /// Migrates the states of a line to the limit in force, as read under the line's lock.
    fn migrate(&self, line: &mut Locked<'_, A::Line>, current: usize, now: Timestamp) {
        if line.header.limit_index() == current {
            return;
        }
        for slot in 0..A::Line::SLOTS {
            let before = line.load(slot);
            if before != Default::default() && !line.header.is_pinned(slot) {
                let state = self.limits.carry_over(&A::unpack(before), current, now);
                line.store(slot, A::pack(&state));
            }
        }
        line.header.set_limit_index(current);
    }

    fn move_slot(
        &self,
        line: &mut Locked<'_, A::Line>,
        slot: usize,
        from: A,
        to: A,
        at: Timestamp,
    ) {
        let state = to.carry_over(&from, &A::unpack(line.load(slot)), at);
        line.store(slot, A::pack(&state));
    }
}

impl<A: KeyedLimit> SlotPolicy<A::Line> for Table<A> {
    fn is_idle(&self, line: &Locked<'_, A::Line>, slot: usize, since: Timestamp) -> bool {
        let limit = self.limits.get(line.header.limit_index());
        limit.is_idle(&A::unpack(line.load(slot)), since)
    }

    #[inline(always)]
    fn idle_slot(&self, line: &Locked<'_, A::Line>, since: Timestamp) -> Option<usize> {
        let limit = self.limits.get(line.header.limit_index());
        line.droppable().find(|&slot| limit.is_idle(&A::unpack(line.load(slot)), since))
    }

    fn level(&self, lines: &mut [Locked<'_, A::Line>], now: Timestamp) {
        // Read once, with all lines locked: an edit that comes now finds them all under one limit.
        let current = self.limits.current_index();
        lines.iter_mut().for_each(|line| self.migrate(line, current, now));
    }
}

/// How many lines a new key searches for keys to evict. Each has up to three of them, so they leave
/// faster than new ones come.
const EVICTING_LINES: usize = 2;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
