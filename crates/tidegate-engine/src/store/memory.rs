//! The in-memory store: one table per width of state, keyed by rule and key.
//!
//! A decision takes the [locked path](locked): it locks the lines of its keys, in the order of their
//! addresses, before it reads them. Holds, idempotency keys and overflow counters are under one mutex,
//! locked before any line. A few charges of plain keys are first tried on the [fast path](fast).

use std::cmp;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;
use tidegate_policy::policy::Durability;
use tidegate_table::hash::KeyedHash;
use tidegate_table::locks::{lock, read};
use tidegate_table::table::{
    Capacity, Locked, SlotPolicy, SlotTable, TaggedLine, WhenFull, WideLine,
};

#[cfg(feature = "durable")]
pub(crate) use durable::Undo;
pub(crate) use hold_tables::{
    CachedResponse, CachedResult, Hold, HoldEnd, HoldTables, REMEMBERED_FOR,
};
pub(crate) use journal::{Author, JournalBooking, JournalEntry, LimitsChange, Sink};
pub(crate) use overflow::{OverflowCell, SharingKey};
#[cfg(feature = "durable")]
pub(crate) use state_image::{NoSlotForState, StateImage};

use super::actions::{EntryKind, Transfer};
use super::settlement::EndKind;
use super::{Adoption, Decided, Failure, ForgetScope, HoldId, NewHold, Settled};
use crate::any_limit::AnyLimit;
use crate::decision::{Decisions, INLINE, Operation};
use crate::history::{History, StoredState};
use crate::periods::Times;
use crate::plan::{Charge, Plan, PlanTime};
use crate::store::settlement::{SettleCall, Settlement};
use crate::transition::HoldItem;
use hold_tables::BodyMismatch;
use overflow::Overflow;
pub(crate) use slot::Width;
use slot::{AnyLocked, SlotLine};

#[cfg(feature = "durable")]
mod durable;
mod edits;
mod fast;
mod forget_all;
mod hold_tables;
mod holds;
mod journal;
mod locked;
mod overflow;
mod slot;
#[cfg(feature = "durable")]
mod state_image;

/// Stores states in memory, up to a capacity.
///
/// Every result is ready at once.
#[derive(Debug)]
pub struct MemoryStore {
    narrow: SlotTable<TaggedLine>,
    wide: SlotTable<WideLine>,
    history: RwLock<Arc<History>>,
    tables: Mutex<HoldTables>,
    /// Whether some key may be in overflow counters. Read under the lock of a key's home line.
    is_sharing: AtomicBool,
    /// The newest rule set in use.
    version: AtomicU64,
    /// How many superseded versions of limits were still in use when they were last counted.
    superseded_left: AtomicUsize,
    /// Rounds that were closed, by domain.
    rounds: Mutex<HashMap<Box<str>, Arc<AtomicU64>>>,
    hash: KeyedHash,
    /// Makes ids of holds. Clients see them, so the hash of the keys cannot be used.
    ids: RandomState,
    /// Records changes, where they have to survive the process.
    sink: Option<Arc<dyn Sink>>,
    /// The least durability of every rule.
    least_durability: Durability,
}

/// Why a decision cannot be made on this path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    /// It needs holds or overflow counters.
    NeedsHoldTables,
    Superseded,
}

type Several<T> = SmallVec<[T; INLINE]>;

impl MemoryStore {
    /// A store for up to `max_keys` keys, in total over all rules; `None` if there is no memory.
    #[must_use]
    pub fn new(max_keys: usize, when_full: WhenFull) -> Option<Self> {
        Self::with_bounds(StoreBounds::new(max_keys, when_full))
    }

    /// A store with these bounds; `None` if there is no memory.
    #[must_use]
    pub fn with_bounds(bounds: StoreBounds) -> Option<Self> {
        let StoreBounds { max_keys, when_full, .. } = bounds;
        let narrow = SlotTable::<TaggedLine>::new(Capacity { max_keys, when_full }, None)?;
        Some(Self {
            wide: narrow.beside()?,
            narrow,
            history: RwLock::new(Arc::default()),
            tables: Mutex::new(HoldTables::new(bounds)),
            is_sharing: AtomicBool::new(false),
            version: AtomicU64::new(0),
            superseded_left: AtomicUsize::new(0),
            rounds: Mutex::new(HashMap::new()),
            hash: KeyedHash::stored(),
            ids: RandomState::new(),
            sink: None,
            least_durability: Durability::Memory,
        })
    }

    /// Whether the plan was made from the rules that are in force.
    #[inline(always)]
    fn in_force(&self, plan: &Plan<'_>) -> Result<(), Failure> {
        self.is_in_force(plan.version)
    }

    /// Whether rules of this version are in force.
    #[inline(always)]
    fn is_in_force(&self, version: u64) -> Result<(), Failure> {
        match self.version.load(Ordering::SeqCst).cmp(&version) {
            cmp::Ordering::Equal => Ok(()),
            cmp::Ordering::Greater => Err(Failure::Superseded),
            cmp::Ordering::Less => Err(Failure::NotAdopted),
        }
    }

    /// Makes one whole decision on the locked path.
    #[inline(never)]
    pub(crate) fn decide_with_locks(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, Failure> {
        let needs_no_tables = plan.only_charges() || (plan.act.is_look() && plan.name.is_none());
        if needs_no_tables {
            match self.decide_locked(plan, times, None, decisions) {
                Ok(outcome) => {
                    return Ok(Decided::new(outcome.is_allowed));
                }
                Err(Fallback::Superseded) => return Err(self.undecided(plan)),
                Err(Fallback::NeedsHoldTables) => {}
            }
        }
        self.decide_with_holds(plan, times, decisions)
    }

    /// Makes one whole decision with the hold tables locked.
    pub(crate) fn decide_with_holds(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, Failure> {
        if let Err(why) = self.in_force(plan) {
            // Another path may have claimed slots for it.
            self.release_claims(plan);
            return Err(why);
        }
        let mut tables = self.tables();
        // A look at another time changes nothing; it finds what has expired by then released.
        if !plan.act.is_look() || matches!(plan.time, PlanTime::Clock { .. }) {
            self.expire_holds(&mut tables, times);
        }
        if let Some(named) = plan.name {
            match tables.recall(named, times.now) {
                Ok(Some(CachedResponse::Charged { is_allowed, hold, decisions: earlier })) => {
                    // The rules may have changed; each gets its own earlier decision.
                    decisions.clear();
                    decisions.extend(plan.charges.iter().map(|charge| {
                        let decision = earlier.iter().find(|(hash, _)| *hash == charge.hash);
                        decision.map_or_else(|| charge.peek_fresh(times.now), |(_, it)| *it)
                    }));
                    let (is_allowed, hold) = (*is_allowed, *hold);
                    return Ok(Decided { hold, is_repeat: true, ..Decided::new(is_allowed) });
                }
                Ok(Some(CachedResponse::Refunded { .. })) => return Err(Failure::OtherBody),
                Ok(None) => {}
                Err(BodyMismatch) => return Err(Failure::OtherBody),
            }
        }
        if let Some(hold) = plan.hold {
            // Slots have a maximum of their own.
            let counted = |it: &&Charge| !matches!(it.limit, AnyLimit::Slots(_));
            let keys = plan.charges.iter().filter(counted).map(|charge| charge.hash);
            if let Some(bound) = tables.bound_of_holds(hold.domain, keys) {
                return Err(Failure::TooManyHolds(bound));
            }
        }
        let kind = if plan.act == Operation::Hold { EntryKind::Reserve } else { EntryKind::Check };
        let mut entry = JournalEntry::new(kind, times.now);
        self.name_keys(&mut entry, plan);
        let with = Some((&mut *tables, &mut entry));
        let outcome = match self.decide_locked(plan, times, with, decisions) {
            Ok(outcome) => outcome,
            Err(_) => return Err(self.undecided(plan)),
        };
        let (is_allowed, has_charged) = (outcome.is_allowed, outcome.has_charged);
        let mut decided = Decided::new(is_allowed);
        if is_allowed && let Some(hold) = plan.hold {
            let name = plan.name.map(|named| named.name);
            let new = self.write_hold(&mut tables, outcome.items, hold, name, &mut entry);
            decided.hold = Some(new);
        }
        if is_allowed || has_charged {
            entry.note = plan.note.map(Into::into);
        }
        if let Some(named) = plan.name.filter(|_| is_allowed || has_charged) {
            let hashes = plan.charges.iter().map(|charge| charge.hash);
            let decisions = hashes.zip(decisions.iter().copied()).collect();
            let response = CachedResponse::Charged { is_allowed, hold: decided.hold, decisions };
            entry.names.push(named.name);
            entry.note(self.durable(Durability::Memory));
            for charge in &plan.charges {
                entry.note(self.durability(charge));
            }
            tables.cache_result(named, response, times.now);
        }
        decided.record = self.record(&tables, entry);
        Ok(decided)
    }

    /// Makes the keys of a plan known, and returns how many were not.
    pub(super) fn enrol(&self, plan: &Plan<'_>, times: Times) -> Result<u64, Failure> {
        if self.in_force(plan).is_err() {
            return Err(Failure::Superseded);
        }
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        let mut entry = JournalEntry::new(EntryKind::Enrol, times.now);
        self.name_keys(&mut entry, plan);
        let with = Some((&mut *tables, &mut entry));
        let Ok(outcome) = self.decide_locked(plan, times, with, &mut Decisions::new()) else {
            self.release_claims(plan);
            return Err(Failure::Superseded);
        };
        if !outcome.is_allowed {
            return Err(Failure::NoRoom);
        }
        entry.note = plan.note.map(Into::into);
        self.record(&tables, entry);
        Ok(outcome.units.iter().sum())
    }

    /// The hold tables, locked.
    fn tables(&self) -> MutexGuard<'_, HoldTables> {
        lock(&self.tables)
    }

    /// Adds the names of a plan's new keys to the journal.
    fn name_keys(&self, entry: &mut JournalEntry, plan: &Plan<'_>) {
        let (Some(sink), Some(names)) = (&self.sink, plan.names) else { return };
        for charge in &plan.charges {
            let is_held = plan.hold.is_some();
            if self.durability(charge) > Durability::Memory && sink.needs_name(charge.hash, is_held)
            {
                entry.keys.push((charge.hash, names.key_name(charge)));
            }
        }
    }

    /// The denial that a plan would get, without changing anything; `None` if it would be allowed, or
    /// repeats a request that was.
    #[cfg(feature = "durable")]
    pub(crate) fn known_denial(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Option<Decided> {
        if let Some(named) = plan.name
            && !matches!(lock(&self.tables).recall(named, times.now), Ok(None))
        {
            return None;
        }
        let peek = Plan { act: Operation::Look, hold: None, name: None, ..plan.clone() };
        self.decide(&peek, times, decisions).ok().filter(|decided| !decided.is_allowed)
    }

    fn no_earlier_than_reuse(&self, limit: &AnyLimit, now: Timestamp) -> Timestamp {
        match Width::of(limit) {
            Width::Narrow => self.narrow.no_earlier_than_reuse(now),
            Width::Wide => self.wide.no_earlier_than_reuse(now),
            Width::None => now,
        }
    }
}

/// Shared by all paths.
impl MemoryStore {
    fn uncount(&self, width: Width) {
        match width {
            Width::Narrow => self.narrow.uncount_keys(1),
            Width::Wide => self.wide.uncount_keys(1),
            Width::None => {}
        }
    }

    /// Frees the slots of all keys that are idle at `now`.
    fn sweep(&self, now: Timestamp) {
        self.narrow.sweep(now, self);
        self.wide.sweep(now, self);
    }

    /// Calls a function with a key's slot, under its lock, if it has one.
    fn with_slot<R>(
        &self,
        limit: &AnyLimit,
        hash: u64,
        then: impl FnOnce(&mut AnyLocked<'_>, usize) -> R,
    ) -> Option<R> {
        match Width::of(limit) {
            Width::Narrow => {
                let (_, mut chain) = self.narrow.lock_chain(hash);
                let at = chain.find(hash)?;
                Some(then(&mut AnyLocked::Narrow(chain.take_line(at.line)), at.slot))
            }
            Width::Wide => {
                let (_, mut chain) = self.wide.lock_chain(hash);
                let at = chain.find(hash)?;
                Some(then(&mut AnyLocked::Wide(chain.take_line(at.line)), at.slot))
            }
            Width::None => None,
        }
    }

    /// How many overflow counters there may be, for all rules: an eighth of the smaller table.
    fn overflow_cells(&self) -> usize {
        Overflow::cells_in(self.narrow.max_bytes() / 8)
    }
}

impl<L: SlotLine> SlotPolicy<L> for MemoryStore {
    fn is_idle(&self, line: &Locked<'_, L>, slot: usize, since: Timestamp) -> bool {
        let tag = line.line().tag(slot);
        let history = read(&self.history);
        let Some(limit) = history.rule_of(tag).map(|rule| rule.common()) else { return true };
        let stored = StoredState { tag, state: line.line().load_state(slot, limit) };
        let ends = Timestamp::from_nanos(line.line().ends_ns(slot));
        history.is_idle(stored, line.fingerprint(slot), since, ends)
    }

    /// Every slot has the number of its limit.
    fn level(&self, _lines: &mut [Locked<'_, L>], _now: Timestamp) {}

    fn sweep_others(&self, now: Timestamp) -> bool {
        match L::WIDTH {
            Width::Narrow => self.wide.sweep_some(now, self),
            Width::Wide => self.narrow.sweep_some(now, self),
            Width::None => false,
        }
    }
}

/// The verbs of a store. Every result is known at once.
impl MemoryStore {
    /// Makes one whole decision.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, Failure> {
        self.in_force(plan)?;
        if plan.only_charges()
            && let Some(charges) = plan.charge_list()
        {
            charges.iter().flatten().for_each(|charge| self.fetch_line(charge));
            if let Some(is_allowed) = self.decide_fast(plan.version, times.now, &charges, decisions)
            {
                return Ok(Decided::new(is_allowed));
            }
        }
        self.decide_with_locks(plan, times, decisions)
    }

    pub(super) fn settle(
        &self,
        id: HoldId,
        SettleCall { settlement, note, .. }: SettleCall<'_>,
        times: Times,
    ) -> Result<Settled, Failure> {
        self.settle_as(id, settlement, Author::Host, note, times)
    }

    pub(super) fn refund(&self, plan: &Plan<'_>, times: Times) -> Result<u64, Failure> {
        self.refund_now(plan, times).map_err(|BodyMismatch| Failure::OtherBody)
    }

    pub(super) fn expire(&self, times: Times) -> bool {
        self.expire_holds(&mut self.tables(), times)
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        lock(&self.tables).next_due()
    }

    pub(super) fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        Arc::clone(lock(&self.rounds).entry(domain.into()).or_default())
    }

    #[inline(always)]
    pub(crate) fn hash(&self) -> &KeyedHash {
        &self.hash
    }

    pub(super) fn history(&self) -> Arc<History> {
        Arc::clone(&read(&self.history))
    }

    pub(super) fn len(&self) -> usize {
        // Both tables count into one total.
        self.narrow.len()
    }

    pub(super) fn evicted_idempotency_keys(&self) -> u64 {
        lock(&self.tables).evicted_names()
    }

    pub(super) fn bytes(&self) -> usize {
        let tables = lock(&self.tables).bytes();
        let history = read(&self.history).bytes();
        self.narrow.bytes() + self.wide.bytes() + tables + history
    }
}

#[cfg(test)]
mod tests;
