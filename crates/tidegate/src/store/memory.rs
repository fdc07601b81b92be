//! States in memory: one table per width of state, keyed by rule and key.
//!
//! A decision about keys that have nothing on hold and whose limits have not changed reads their
//! lines without a lock. A refusal then checks that nothing has changed and writes nothing; an
//! admission locks the lines in the order of their addresses by swapping the headers that it read.
//! Everything else goes the slow way, which locks first and looks then. Whatever concerns holds,
//! names or shared counters happens under one mutex, taken before any line.

use std::cmp;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use smallvec::SmallVec;
use tidegate_core::{Carry, Timestamp};

#[cfg(feature = "durable")]
pub(crate) use images::{Image, Undo};
#[cfg(feature = "durable")]
pub(crate) use journal::Journal;
pub(crate) use journal::{Act as Happened, ActKind, Booking, Entry, Sink};
#[cfg(feature = "durable")]
pub(crate) use limits::KnownImage;
pub(crate) use limits::{ExceptionId, Limits, NewLimit, Restored, Succession, Successor};
#[cfg(feature = "durable")]
pub(crate) use side::Remembered;
pub(crate) use side::{Answered, Hold, Item, Side};

use super::{
    Adoption, Answer, Charge, Decided, Deciding, Held, HoldId, Lines, Outage, Plan, Settled,
    Settlement, Undecided, Unrefunded, Unsettled, sealed,
};
use crate::cycle::Times;
use crate::hash::KeyedHash;
use crate::locks::{lock, read};
use crate::policy::Durability;
use crate::table::{Ceiling, Header, Keeper, Locked, Shelf, TaggedLine, WhenFull, WideLine};
use crate::terms::{Act, Decisions, INLINE, Moment, State, Terms};
use journal::SideGuard;
use limits::Carried;
use side::OtherBody;
use slot::{AnyLocked, Slots};

mod edits;
mod fast;
mod holds;
#[cfg(feature = "durable")]
mod images;
mod journal;
mod limits;
mod locked;
mod shared;
mod side;
mod slot;
mod snapshot;
mod unlocked;

pub use snapshot::SnapshotError;

/// Keeps states in memory, within a ceiling.
///
/// Every answer is given at once.
#[derive(Debug)]
pub struct MemoryStore {
    narrow: Shelf<TaggedLine>,
    wide: Shelf<WideLine>,
    limits: RwLock<Limits>,
    side: Mutex<Side>,
    /// Whether some key may be in shared counters. Read under the lock of a key's home line.
    is_sharing: AtomicBool,
    /// The newest rule set that anybody decides by.
    version: AtomicU64,
    /// Rounds that were closed, by domain.
    rounds: Mutex<HashMap<Box<str>, Arc<AtomicU64>>>,
    hash: KeyedHash,
    /// Makes names of holds. They are told to everybody, so the hash of the keys must not.
    ids: RandomState,
    /// Writes changes down, where they are to outlive the process.
    sink: Option<Arc<dyn Sink>>,
    /// What rules that want less get all the same.
    least_durability: Durability,
}

/// Why a decision cannot be made this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// It concerns holds or shared counters.
    NeedsSide,
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
    fn of(terms: &Terms) -> Self {
        match terms {
            Terms::Bucket(_) | Terms::Window(_) | Terms::Cooldown(_) => Self::Narrow,
            Terms::Sliding(_) | Terms::Quota(_) => Self::Wide,
            Terms::Slots(_) => Self::None,
        }
    }
}

type Several<T> = SmallVec<[T; INLINE]>;

impl MemoryStore {
    /// A store for up to `max_keys` keys of each width of state; `None` if there is no memory.
    #[must_use]
    pub fn new(max_keys: usize, when_full: WhenFull) -> Option<Self> {
        let ceiling = Ceiling { max_keys, when_full };
        Some(Self {
            narrow: Shelf::new(ceiling, None)?,
            wide: Shelf::new(ceiling, None)?,
            limits: RwLock::new(Limits::default()),
            side: Mutex::new(Side::default()),
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
    ) -> Result<Decided, Undecided> {
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
    fn in_force(&self, plan: &Plan<'_>) -> Result<(), Undecided> {
        match self.version.load(Ordering::SeqCst).cmp(&plan.version) {
            cmp::Ordering::Equal => Ok(()),
            cmp::Ordering::Greater => Err(Undecided::Superseded),
            cmp::Ordering::Less => Err(Undecided::NotAdopted),
        }
    }

    #[inline(never)]
    fn decide_any(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, Undecided> {
        let is_plain = plan.is_plain() || (plan.act == Act::Look && plan.name.is_none());
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
                Err(Blocked::Superseded) => return Err(self.undecided(plan)),
                Err(Blocked::NeedsSide) => {}
            }
        }
        self.decide_aside(plan, times, decisions)
    }

    /// Makes one whole decision with the side tables locked.
    pub(crate) fn decide_aside(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, Undecided> {
        self.in_force(plan)?;
        let mut side = self.side();
        self.expire_holds(&mut side, times);
        if let Some(named) = plan.name {
            match side.recall(named, times.now) {
                Ok(Some(answered)) => {
                    // The rules may be others by now; each is told what it said itself.
                    decisions.clear();
                    decisions.extend(plan.charges.iter().map(|charge| {
                        let place = answered.hashes.iter().position(|hash| *hash == charge.hash);
                        let said = place.and_then(|place| answered.decisions.get(place));
                        said.copied().unwrap_or_else(|| charge.fresh_look(times.now))
                    }));
                    return Ok(Decided { is_repeat: true, ..answered.decided });
                }
                Ok(None) => {}
                Err(OtherBody) => return Err(Undecided::OtherBody),
            }
        }
        if plan.hold.is_some() && side.open_holds() >= self.narrow.ceiling().max_keys {
            return Err(Undecided::TooManyHolds);
        }
        self.name_keys(&mut side, plan);
        let locked = self.decide_locked(plan, times.now, Some(&mut side), decisions);
        let (is_allowed, items) = match locked {
            Ok(decided) => decided,
            Err(_) => return Err(self.undecided(plan)),
        };
        let mut decided = Decided { is_allowed, hold: None, is_repeat: false };
        let kind = if plan.act == Act::Hold { ActKind::Reserve } else { ActKind::Check };
        let mut happened = Happened::new(kind, times.now);
        if is_allowed {
            if let Some(hold) = plan.hold {
                let name = plan.name.map(|named| named.name);
                decided.hold =
                    Some(self.write_hold(&mut side, items, (hold.length, name), times.now));
            }
            if let Some(named) = plan.name {
                let hashes = plan.charges.iter().map(|charge| charge.hash).collect();
                let answer =
                    Answered { decided, decisions: decisions.clone(), hashes, refunded: None };
                side.remember(named, answer, times.now);
            }
            happened.note = plan.note.map(Into::into);
        }
        happened.hold = decided.hold.map(|hold| hold.id);
        side.end_act(happened);
        Ok(decided)
    }

    /// The side tables, locked.
    fn side(&self) -> SideGuard<'_> {
        SideGuard::new(self, lock(&self.side))
    }

    /// Tells whoever writes it down whose states the charges of a plan are about.
    fn name_keys(&self, side: &mut Side, plan: &Plan<'_>) {
        let (Some(sink), Some(names)) = (&self.sink, plan.key_names) else { return };
        let Some(journal) = &mut side.journal else { return };
        for charge in &plan.charges {
            if self.durability(charge) > Durability::Memory && !sink.knows(charge.hash) {
                journal.keys.push((charge.hash, names.key_name(charge)));
            }
        }
    }

    fn no_earlier_than_reuse(&self, terms: &Terms, now: Timestamp) -> Timestamp {
        match Width::of(terms) {
            Width::Narrow => self.narrow.no_earlier_than_reuse(now),
            Width::Wide => self.wide.no_earlier_than_reuse(now),
            Width::None => now,
        }
    }
}

/// What all ways have in common.
impl MemoryStore {
    fn uncount(&self, terms: &Terms) {
        match Width::of(terms) {
            Width::Narrow => self.narrow.uncount_keys(1),
            Width::Wide => self.wide.uncount_keys(1),
            Width::None => {}
        }
    }

    /// Does something with a key's slot, under its lock, if it has one.
    fn with_slot<R>(
        &self,
        terms: &Terms,
        hash: u64,
        then: impl FnOnce(&mut AnyLocked<'_>, usize) -> R,
    ) -> Option<R> {
        match Width::of(terms) {
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

    /// How many shared counters a rule may have.
    fn shared_cells(&self) -> usize {
        self.narrow.ceiling().max_keys / 8
    }
}

impl<L: Slots> Keeper<L> for MemoryStore {
    fn is_idle(&self, line: &Locked<'_, L>, slot: usize, since: Timestamp) -> bool {
        let tag = line.line().tag(slot);
        let limits = read(&self.limits);
        let Some(terms) = limits.terms(tag).filter(|_| !limits.is_removed(tag)) else {
            return true;
        };
        let state = line.line().load_state(slot, &terms);
        match (terms, state) {
            (Terms::Quota(quota), State::Quota(state)) => {
                let is_over = line.line().ends_ns(slot) <= since.as_nanos()
                    || limits.is_round_over(tag, state.period);
                let is_spent = state.used > 0 && !is_over;
                quota.carry() == Carry::Nothing && !is_spent
            }
            _ => limits.is_idle(Carried { tag, terms, state }, since),
        }
    }

    /// Every slot says which limit it counts under.
    fn level(&self, _lines: &mut [Locked<'_, L>], _now: Timestamp) {}
}

impl sealed::Store for MemoryStore {
    const ANSWERS_AT_ONCE: bool = true;

    #[inline(always)]
    fn decide(&self, plan: &Plan<'_>, times: Times, decisions: &mut Decisions) -> Deciding<'_> {
        Deciding::Now(self.decide_now(plan, times, decisions))
    }

    fn settle(
        &self,
        id: HoldId,
        settlement: (Settlement, Option<&str>),
        times: Times,
    ) -> Answer<'_, Result<Settled, Unsettled>> {
        Answer::Now(self.settle_now(id, settlement, times))
    }

    fn refund(&self, plan: &Plan<'_>, times: Times) -> Answer<'_, Result<u64, Unrefunded>> {
        Answer::Now(self.refund_now(plan, times).map_err(|OtherBody| Unrefunded::OtherBody))
    }

    fn forget(&self, plan: &Plan<'_>, times: Times) -> Answer<'_, Result<bool, Outage>> {
        Answer::Now(Ok(self.forget_now(plan, times.now)))
    }

    fn settle_in(&self, charge: &Charge<'_>, times: Times) {
        let mut side = self.side();
        let held = side.held(charge.hash);
        let carried = self.with_slot(charge.terms, charge.hash, |line, slot| {
            let limits = read(&self.limits);
            let tag = line.tag(slot);
            if tag != 0 && tag != charge.tag {
                let state = line.load_state(slot, charge.terms).with_held(held);
                let carried = limits.carry(tag, state, charge, times.now);
                line.store(slot, carried.tag, &carried.state, charge.ask(times.now).moment);
            }
        });
        if carried.is_some() {
            side.note_state(self.durability(charge), (charge.terms, charge.hash));
            side.end_act(Happened::new(ActKind::Carry, times.now));
        }
    }

    fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        self.adopt_now(adoption, times);
    }

    fn expire(&self, times: Times) -> bool {
        self.expire_holds(&mut self.side(), times)
    }

    fn next_due(&self) -> Option<Timestamp> {
        lock(&self.side).next_due()
    }

    fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        Arc::clone(lock(&self.rounds).entry(domain.into()).or_default())
    }

    fn close_round(
        &self,
        domain: &str,
        _note: Option<&str>,
        _times: Times,
    ) -> Answer<'_, Result<u64, Outage>> {
        Answer::Now(Ok(self.rounds(domain).fetch_add(1, Ordering::AcqRel) + 1))
    }

    fn hash(&self) -> &KeyedHash {
        &self.hash
    }

    fn known_limits(&self) -> Vec<Restored> {
        read(&self.limits).restorable()
    }

    fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    fn bytes(&self) -> usize {
        self.narrow.bytes() + self.wide.bytes()
    }
}

/// How often decisions are tried on lines that are not locked.
const UNLOCKED_TRIES: usize = 2;

#[cfg(test)]
mod tests;
