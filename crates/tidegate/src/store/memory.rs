//! The in-memory store: one table per width of state, keyed by rule and key.
//!
//! A decision about keys without holds whose limits have not changed reads their lines without a
//! lock. A denial then checks that nothing has changed and writes nothing; an admission locks the
//! lines in the order of their addresses by swapping the headers that it read. Everything else
//! takes the slow path, which locks before it reads. Holds, idempotency keys and overflow counters
//! are under one mutex, locked before any line.

use std::cmp;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use smallvec::SmallVec;
use tidegate_core::Timestamp;

#[cfg(feature = "durable")]
pub(crate) use hold_tables::CachedResult;
pub(crate) use hold_tables::{CachedDecisions, Hold, HoldItem, HoldTables};
#[cfg(feature = "durable")]
pub(crate) use journal::Journal;
pub(crate) use journal::{
    ActionKind, JournalAction as Happened, JournalBooking, JournalTransfer, Sink,
};
#[cfg(feature = "durable")]
pub(crate) use limits::LimitImage;
pub(crate) use limits::{
    LimitRegistry, NewLimit, OverrideId, RestoredLimit, Succession, Successor,
};
#[cfg(feature = "durable")]
pub(crate) use state_image::{StateImage, Undo};

use super::{
    Adoption, Charge, DecideError, Decided, Deciding, FreedQueues, HoldId, NewHold, NowOrLater,
    Outage, Plan, RefundFailure, SettleFailure, Settled, Settlement, sealed,
};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime, Decisions, INLINE, Operation};
use crate::cycle::Times;
use crate::hash::KeyedHash;
use crate::locks::{lock, read};
use crate::policy::Durability;
use crate::table::{
    Capacity, LineHeader, Locked, SlotPolicy, SlotTable, TaggedLine, WhenFull, WideLine,
};
use hold_tables::BodyMismatch;
use journal::HoldTablesGuard;
use limits::MigratedState;
use slot::{AnyLocked, SlotLine};

mod edits;
mod fast;
mod hold_tables;
mod holds;
mod journal;
mod limits;
mod locked;
mod overflow;
mod slot;
mod snapshot;
#[cfg(feature = "durable")]
mod state_image;
mod unlocked;

pub use snapshot::SnapshotError;

/// Stores states in memory, up to a capacity.
///
/// Every result is ready at once.
#[derive(Debug)]
pub struct MemoryStore {
    narrow: SlotTable<TaggedLine>,
    wide: SlotTable<WideLine>,
    limits: RwLock<LimitRegistry>,
    tables: Mutex<HoldTables>,
    /// Whether some key may be in overflow counters. Read under the lock of a key's home line.
    is_sharing: AtomicBool,
    /// The newest rule set in use.
    version: AtomicU64,
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

/// Which table a state is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Narrow,
    Wide,
    None,
}

impl Width {
    #[inline(always)]
    fn of(limit: &AnyLimit) -> Self {
        match limit {
            AnyLimit::Bucket(_) | AnyLimit::Window(_) | AnyLimit::Cooldown(_) => Self::Narrow,
            AnyLimit::Sliding(_) | AnyLimit::Quota(_) => Self::Wide,
            AnyLimit::Slots(_) => Self::None,
        }
    }
}

type Several<T> = SmallVec<[T; INLINE]>;

impl MemoryStore {
    /// A store for up to `max_keys` keys of each width of state; `None` if there is no memory.
    #[must_use]
    pub fn new(max_keys: usize, when_full: WhenFull) -> Option<Self> {
        let capacity = Capacity { max_keys, when_full };
        Some(Self {
            narrow: SlotTable::new(capacity, None)?,
            wide: SlotTable::new(capacity, None)?,
            limits: RwLock::new(LimitRegistry::default()),
            tables: Mutex::new(HoldTables::default()),
            is_sharing: AtomicBool::new(false),
            version: AtomicU64::new(0),
            rounds: Mutex::new(HashMap::new()),
            hash: KeyedHash::new(),
            ids: RandomState::new(),
            sink: None,
            least_durability: Durability::Memory,
        })
    }

    /// Makes one whole decision.
    #[inline]
    fn decide_now(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, DecideError> {
        self.in_force(plan)?;
        if plan.is_plain()
            && let Some(is_allowed) = self.decide_fast(plan, times.now, decisions)
        {
            return Ok(Decided { is_allowed, hold: None, is_repeat: false });
        }
        self.decide_any(plan, times, decisions)
    }

    /// Whether the plan was made from the rules that are in force.
    #[inline(always)]
    fn in_force(&self, plan: &Plan<'_>) -> Result<(), DecideError> {
        match self.version.load(Ordering::SeqCst).cmp(&plan.version) {
            cmp::Ordering::Equal => Ok(()),
            cmp::Ordering::Greater => Err(DecideError::Superseded),
            cmp::Ordering::Less => Err(DecideError::NotAdopted),
        }
    }

    #[inline(never)]
    fn decide_any(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, DecideError> {
        let is_plain = plan.is_plain() || (plan.act == Operation::Look && plan.name.is_none());
        if is_plain {
            for _ in 0..UNLOCKED_TRIES {
                if let Some(is_allowed) = self.decide_unlocked(plan, times.now, decisions)? {
                    return Ok(Decided { is_allowed, hold: None, is_repeat: false });
                }
            }
            match self.decide_locked(plan, times.now, None, decisions) {
                Ok((is_allowed, _)) => {
                    return Ok(Decided { is_allowed, hold: None, is_repeat: false });
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
    ) -> Result<Decided, DecideError> {
        self.in_force(plan)?;
        let mut tables = self.tables();
        self.expire_holds(&mut tables, times);
        if let Some(named) = plan.name {
            match tables.recall(named, times.now) {
                Ok(Some(cached)) => {
                    // The rules may have changed; each gets its own earlier decision.
                    decisions.clear();
                    decisions.extend(plan.charges.iter().map(|charge| {
                        let index = cached.hashes.iter().position(|hash| *hash == charge.hash);
                        let decision = index.and_then(|index| cached.decisions.get(index));
                        decision.copied().unwrap_or_else(|| charge.peek_fresh(times.now))
                    }));
                    return Ok(Decided { is_repeat: true, ..cached.decided });
                }
                Ok(None) => {}
                Err(BodyMismatch) => return Err(DecideError::OtherBody),
            }
        }
        if plan.hold.is_some() && tables.open_holds() >= self.narrow.capacity().max_keys {
            return Err(DecideError::TooManyHolds);
        }
        self.name_keys(&mut tables, plan);
        let locked = self.decide_locked(plan, times.now, Some(&mut tables), decisions);
        let (is_allowed, items) = match locked {
            Ok(decided) => decided,
            Err(_) => return Err(self.undecided(plan)),
        };
        let mut decided = Decided { is_allowed, hold: None, is_repeat: false };
        let kind =
            if plan.act == Operation::Hold { ActionKind::Reserve } else { ActionKind::Check };
        let mut happened = Happened::new(kind, times.now);
        if is_allowed {
            if let Some(hold) = plan.hold {
                let name = plan.name.map(|named| named.name);
                decided.hold =
                    Some(self.write_hold(&mut tables, items, (hold.length, name), times.now));
            }
            if let Some(named) = plan.name {
                let hashes = plan.charges.iter().map(|charge| charge.hash).collect();
                let result = CachedDecisions {
                    decided,
                    decisions: decisions.clone(),
                    hashes,
                    refunded: None,
                };
                tables.cache_result(named, result, times.now);
            }
            happened.note = plan.note.map(Into::into);
        }
        happened.hold = decided.hold.map(|hold| hold.id);
        tables.end_act(happened);
        Ok(decided)
    }

    /// The hold tables, locked.
    fn tables(&self) -> HoldTablesGuard<'_> {
        HoldTablesGuard::new(self, lock(&self.tables))
    }

    /// Adds the names of a plan's new keys to the journal.
    fn name_keys(&self, tables: &mut HoldTables, plan: &Plan<'_>) {
        let (Some(sink), Some(names)) = (&self.sink, plan.key_names) else { return };
        let Some(journal) = &mut tables.journal else { return };
        for charge in &plan.charges {
            if self.durability(charge) > Durability::Memory && !sink.knows(charge.hash) {
                journal.keys.push((charge.hash, names.key_name(charge)));
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
        self.decide_now(&peek, times, decisions).ok().filter(|decided| !decided.is_allowed)
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
    fn uncount(&self, limit: &AnyLimit) {
        match Width::of(limit) {
            Width::Narrow => self.narrow.uncount_keys(1),
            Width::Wide => self.wide.uncount_keys(1),
            Width::None => {}
        }
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

    /// How many overflow counters a rule may have.
    fn shared_cells(&self) -> usize {
        self.narrow.capacity().max_keys / 8
    }
}

impl<L: SlotLine> SlotPolicy<L> for MemoryStore {
    fn is_idle(&self, line: &Locked<'_, L>, slot: usize, since: Timestamp) -> bool {
        let tag = line.line().tag(slot);
        let limits = read(&self.limits);
        let Some(limit) = limits.limit(tag).filter(|_| !limits.is_removed(tag)) else {
            return true;
        };
        let state = line.line().load_state(slot, &limit);
        match (limit, state) {
            (AnyLimit::Quota(_), AnyState::Quota(state)) => {
                let is_over = line.line().ends_ns(slot) <= since.as_nanos()
                    || limits.is_round_over(tag, state.period);
                let carried = MigratedState { tag, limit, state: AnyState::Quota(state) };
                let is_spent = (state.used > 0 && !is_over)
                    || (state.debt > 0 && limits.owes(carried, since, is_over));
                !limits.carries(tag) && !is_spent
            }
            _ => limits.is_idle(MigratedState { tag, limit, state }, since),
        }
    }

    /// Every slot has the number of its limit.
    fn level(&self, _lines: &mut [Locked<'_, L>], _now: Timestamp) {}
}

impl sealed::Store for MemoryStore {
    const IS_IMMEDIATE: bool = true;

    #[inline(always)]
    fn decide(&self, plan: &Plan<'_>, times: Times, decisions: &mut Decisions) -> Deciding<'_> {
        Deciding::Now(self.decide_now(plan, times, decisions))
    }

    fn settle(
        &self,
        id: HoldId,
        settlement: (Settlement, Option<&str>),
        times: Times,
    ) -> NowOrLater<'_, Result<Settled, SettleFailure>> {
        NowOrLater::Now(self.settle_now(id, settlement, times))
    }

    fn refund(&self, plan: &Plan<'_>, times: Times) -> NowOrLater<'_, Result<u64, RefundFailure>> {
        NowOrLater::Now(
            self.refund_now(plan, times).map_err(|BodyMismatch| RefundFailure::OtherBody),
        )
    }

    fn forget(&self, plan: &Plan<'_>, times: Times) -> NowOrLater<'_, Result<bool, Outage>> {
        NowOrLater::Now(Ok(self.forget_now(plan, times)))
    }

    fn settle_in(&self, charge: &Charge<'_>, times: Times) {
        let mut tables = self.tables();
        let held = tables.held(charge.hash);
        let carried = self.with_slot(charge.limit, charge.hash, |line, slot| {
            let limits = read(&self.limits);
            let tag = line.tag(slot);
            let mut left = held;
            if tag != 0 && tag != charge.tag {
                let state = line.load_state(slot, charge.limit).with_held(held);
                let carried = limits.carry(tag, state, charge, times.now);
                line.store(
                    slot,
                    carried.tag,
                    &carried.state,
                    charge.limit_request(times.now).decided_at,
                );
                left = carried.state.held();
            }
            left
        });
        if let Some(held) = carried {
            tables.set_held(charge.hash, held);
            tables.note_state(self.durability(charge), (charge.limit, charge.hash));
            tables.end_act(Happened::new(ActionKind::Carry, times.now));
        }
    }

    fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        self.adopt_now(adoption, times);
    }

    fn expire(&self, times: Times) -> bool {
        self.expire_holds(&mut self.tables(), times)
    }

    fn next_due(&self) -> Option<Timestamp> {
        lock(&self.tables).next_due()
    }

    fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        Arc::clone(lock(&self.rounds).entry(domain.into()).or_default())
    }

    fn close_round(
        &self,
        domain: &str,
        _note: Option<&str>,
        _times: Times,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        NowOrLater::Now(Ok(self.rounds(domain).fetch_add(1, Ordering::AcqRel) + 1))
    }

    fn hash(&self) -> &KeyedHash {
        &self.hash
    }

    fn known_limits(&self) -> Vec<RestoredLimit> {
        read(&self.limits).restorable()
    }

    fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    fn bytes(&self) -> usize {
        self.narrow.bytes() + self.wide.bytes()
    }
}

/// How often decisions are tried on unlocked lines.
const UNLOCKED_TRIES: usize = 2;

#[cfg(test)]
mod tests;
