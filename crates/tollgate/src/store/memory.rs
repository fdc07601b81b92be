//! States in memory: one table per width of state, keyed by rule and key.
//!
//! A decision about keys that have nothing on hold and whose limits have not changed reads their
//! lines without a lock. A refusal then checks that nothing has changed and writes nothing; an
//! admission locks the lines in the order of their addresses by swapping the headers that it read.
//! Everything else goes the slow way, which locks first and looks then. Whatever concerns holds,
//! names or shared counters happens under one mutex, taken before any line.

use std::cmp;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Carry, Timestamp};

pub(crate) use limits::{NewLimit, Restored, Succession};

use super::{
    Adoption, Answer, Charge, Decided, Deciding, Gone, Held, HoldId, Lines, Plan, Settled,
    Settlement, Undecided, sealed,
};
use crate::cycle::Times;
use crate::hash::KeyedHash;
use crate::locks::{lock, read, write};
use crate::table::{
    Ceiling, Header, Keeper, Locked, Place, Shelf, TaggedLine, WhenFull, WideLine, find,
    read_header,
};
use crate::terms::{Act, Ask, Decisions, INLINE, Moment, State, Terms, decide};
use limits::{Carried, Limits};
use side::{Answered, Hold, Item, OtherBody, Side};
use slot::{AnyLine, AnyLocked, Slots};

mod fast;
mod limits;
mod shared;
mod side;
mod slot;
mod snapshot;

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
}

/// Why a decision cannot be made this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// It concerns holds or shared counters.
    NeedsSide,
    Superseded,
}

/// Where the state of a charge is, while its line is not locked.
struct Seen<'a> {
    line: AnyLine<'a>,
    header: Header,
    slot: Option<usize>,
}

/// Where the state of a charge is, with all lines locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
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

/// Which table a state is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
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
            return Ok(Decided { is_allowed, hold: None });
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
                    return Ok(Decided { is_allowed, hold: None });
                }
            }
            match self.decide_locked(plan, times.now, None, decisions) {
                Ok((is_allowed, _)) => return Ok(Decided { is_allowed, hold: None }),
                Err(Blocked::Superseded) => return Err(self.undecided(plan)),
                Err(Blocked::NeedsSide) => {}
            }
        }
        let mut side = lock(&self.side);
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
                    return Ok(answered.decided);
                }
                Ok(None) => {}
                Err(OtherBody) => return Err(Undecided::OtherBody),
            }
        }
        if plan.hold.is_some() && side.open_holds() >= self.narrow.ceiling().max_keys {
            return Err(Undecided::TooManyHolds);
        }
        let locked = self.decide_locked(plan, times.now, Some(&mut side), decisions);
        let (is_allowed, items) = match locked {
            Ok(decided) => decided,
            Err(_) => return Err(self.undecided(plan)),
        };
        let mut decided = Decided { is_allowed, hold: None };
        if is_allowed {
            if let Some(hold) = plan.hold {
                let name = plan.name.map(|named| named.name);
                decided.hold =
                    Some(self.write_hold(&mut side, items, (hold.length, name), times.now));
            }
            if let Some(named) = plan.name {
                let hashes = plan.charges.iter().map(|charge| charge.hash).collect();
                let answer = Answered { decided, decisions: decisions.clone(), hashes };
                side.remember(named, answer, times.now);
            }
        }
        Ok(decided)
    }

    fn write_hold(
        &self,
        side: &mut Side,
        items: Several<Item>,
        (length, name): (Duration, Option<[u64; 2]>),
        now: Timestamp,
    ) -> Held {
        let fence = side.next_fence(now);
        let id = HoldId([self.ids.hash_one((fence, 1)), self.ids.hash_one((fence, 2))]);
        let expires = now.saturating_add(length);
        side.insert_hold(id, Hold { items, length, expires, fence, is_open: true, name });
        Held { id, expires, fence }
    }

    /// Decides on lines that are read without a lock; `None` if it has to be done another way, or
    /// again.
    fn decide_unlocked(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Result<Option<bool>, Undecided> {
        let (mut seen, mut asks) = (Several::new(), Several::new());
        let mut states = Several::new();
        for charge in &plan.charges {
            let Some(found) = self.look_up(charge) else { return Ok(None) };
            let mut ask = charge.ask(now);
            states.push(match found.slot {
                Some(slot) if found.line.tag(slot) == charge.tag => {
                    found.line.load_state(slot, charge.terms)
                }
                Some(_) => return Ok(None),
                None => {
                    ask.moment.now = self.no_earlier_than_reuse(charge.terms, now);
                    charge.terms.fresh(charge.period)
                }
            });
            asks.push(ask);
            seen.push(found);
        }
        let before = states.clone();
        let is_allowed = decide(plan.act, &asks, &mut states, decisions);
        let is_remembered = |(seen, charge): (&Seen<'_>, &Charge<'_>)| {
            seen.slot.is_none() && plan.act != Act::Look && charge.terms.knows_from_first_request()
        };
        if states == before && !seen.iter().zip(&plan.charges).any(is_remembered) {
            let is_sound = seen.iter().zip(&plan.charges).all(|(seen, charge)| {
                // A key that was not found is looked for again, should it have moved before.
                let is_home = seen.slot.is_some() || self.home(charge) == Some(seen.line.address());
                seen.line.is_unchanged(seen.header) && is_home
            });
            return Ok(is_sound.then_some(is_allowed));
        }
        if seen.iter().any(|seen| seen.slot.is_none()) {
            return Ok(None);
        }
        let Some(mut lines) = lock_unchanged(&seen) else { return Ok(None) };
        self.in_force(plan)?;
        let spots = || {
            seen.iter().zip(&plan.charges).map(|(seen, charge)| {
                let line = lines.iter().position(|line| line.address() == seen.line.address());
                (line, seen.slot, charge)
            })
        };
        // The count of writes in a header wraps; the slots themselves have the last word.
        let is_sound = spots().zip(&before).all(|((line, slot, charge), before)| {
            line.zip(slot).is_some_and(|(line, slot)| {
                lines[line].find(charge.hash) == Some(slot)
                    && lines[line].load_state(slot, charge.terms) == *before
            })
        });
        if !is_sound {
            return Ok(None);
        }
        let places: Several<_> = spots().map(|(line, slot, _)| line.zip(slot)).collect();
        for (index, charge) in plan.charges.iter().enumerate() {
            if let Some((line, slot)) = places[index]
                && states[index] != before[index]
            {
                lines[line].store(slot, charge.tag, &states[index], asks[index].moment);
            }
        }
        Ok(Some(is_allowed))
    }

    /// Where a charge's state is, without a lock; `None` if that cannot be told so.
    fn look_up(&self, charge: &Charge<'_>) -> Option<Seen<'_>> {
        match Width::of(charge.terms) {
            Width::Narrow => look_up_in(&self.narrow, charge.hash, AnyLine::Narrow),
            Width::Wide => look_up_in(&self.wide, charge.hash, AnyLine::Wide),
            Width::None => None,
        }
        .filter(|seen| match seen.slot {
            Some(slot) => !seen.header.is_pinned(slot),
            None => !self.is_sharing.load(Ordering::Acquire),
        })
    }

    /// Where the home line of a charge's key is.
    fn home(&self, charge: &Charge<'_>) -> Option<usize> {
        match Width::of(charge.terms) {
            Width::Narrow => Some(AnyLine::Narrow(&self.narrow.chain(charge.hash)[0]).address()),
            Width::Wide => Some(AnyLine::Wide(&self.wide.chain(charge.hash)[0]).address()),
            Width::None => None,
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

/// A key's line and slot, or its home line if it has no slot.
///
/// A key that is not found cannot come while the header of its home stays as it is.
fn look_up_in<'a, L: Slots>(
    shelf: &'a Shelf<L>,
    hash: u64,
    any: impl Fn(&'a L) -> AnyLine<'a>,
) -> Option<Seen<'a>> {
    let chain = shelf.chain(hash);
    let mut home = None;
    for line in chain {
        let header = read_header(line);
        home.get_or_insert(header);
        if let Some(slot) = find(line, hash) {
            return Some(Seen { line: any(line), header, slot: Some(slot) });
        }
        if !header.is_overflowed() {
            break;
        }
    }
    Some(Seen { line: any(&chain[0]), header: home?, slot: None })
}

/// Locks lines in the order of their addresses, if none has changed since it was seen.
fn lock_unchanged<'a>(seen: &Several<Seen<'a>>) -> Option<Several<AnyLocked<'a>>> {
    let mut order: Several<&Seen<'a>> = seen.iter().collect();
    order.sort_unstable_by_key(|seen| seen.line.address());
    let mut lines: Several<AnyLocked<'a>> = Several::new();
    for (index, seen) in order.iter().enumerate() {
        match index.checked_sub(1).map(|before| order[before]) {
            Some(before) if before.line.address() == seen.line.address() => {
                if before.header != seen.header {
                    return None;
                }
            }
            _ => lines.push(seen.line.lock_if_unchanged(seen.header)?),
        }
    }
    Some(lines)
}

/// The slow way: everything locked, then looked at.
impl MemoryStore {
    /// Decides with all lines locked, and reports what was set aside.
    fn decide_locked(
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
    fn decide_in(
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
                let charged = None;
                items.push(Item { tag: before.tag, hash, units, is_by_request, charged });
            }
        }
        Ok((is_allowed, items))
    }

    /// The state of a charge as it stands, and the time at which to decide about it.
    fn state_at(
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
    fn place(
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

    fn place_in<'a, L: Slots>(
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
    fn undecided(&self, plan: &Plan<'_>) -> Undecided {
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

enum Placed<'a> {
    Line(AnyLine<'a>),
    Spot(Spot),
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

/// Holds, and changes to single keys.
impl MemoryStore {
    /// Ends a hold, or makes it longer.
    fn settle_now(
        &self,
        id: HoldId,
        settlement: Settlement,
        times: Times,
    ) -> Result<Settled, Gone> {
        let mut side = lock(&self.side);
        self.expire_holds(&mut side, times);
        let mut hold = side.hold(id).ok_or(Gone)?.clone();
        if hold.is_open == matches!(settlement, Settlement::Refund { .. }) {
            return Err(Gone);
        }
        let (mut most, mut least, lines) = (0, None, self.lines_of(&hold));
        if settlement == Settlement::Renew {
            hold.expires = times.now.saturating_add(hold.length);
            side.renew(id, hold.expires);
        } else {
            for item in &mut hold.items {
                let (held, outstanding) = (item.units, self.outstanding(item, times));
                let is_by_request = item.is_by_request;
                let (units, charged) =
                    self.update(&mut side, item, times, |terms, state, moment| match settlement {
                        Settlement::Commit { actual } => {
                            let actual = actual.filter(|_| is_by_request).unwrap_or(held);
                            terms.commit(state, held, actual, moment)
                        }
                        Settlement::Refund { units } => {
                            terms.refund(state, units.min(outstanding), moment)
                        }
                        Settlement::Cancel | Settlement::Renew => {
                            terms.cancel(state, held, moment);
                            0
                        }
                    });
                most = most.max(units);
                if is_by_request && charged.is_some_and(|(_, state)| state.counts_units()) {
                    least = Some(least.map_or(units, |least: u64| least.min(units)));
                }
                match settlement {
                    Settlement::Refund { .. } => item.units = held - units.min(held),
                    _ => (item.units, item.charged) = (units, charged.map(Box::new)),
                }
            }
            if settlement == Settlement::Cancel {
                side.drop_hold(id);
            } else {
                side.settle(id, hold.items, times.now);
            }
        }
        // What was not charged somewhere is for the host to book.
        let is_commit = matches!(settlement, Settlement::Commit { .. });
        let units = least.filter(|_| is_commit).unwrap_or(most);
        Ok(Settled { units, expires: hold.expires, fence: hold.fence, lines })
    }

    /// How much of what an item has charged still counts: a closed window gives nothing back.
    fn outstanding(&self, item: &Item, times: Times) -> u64 {
        let limits = read(&self.limits);
        let Some((tag, state)) = item.charged.as_deref().copied() else { return 0 };
        let Some((terms, moment)) = limits.get(tag, times) else { return 0 };
        let carried = Carried { tag, terms, state };
        let mut carried = limits.current(carried, times.now, Some(moment.period.index));
        let moment = limits.get(carried.tag, times).map_or(moment, |(_, moment)| moment);
        carried.terms.refund(&mut carried.state, item.units, moment)
    }

    /// Who has to hear when a hold is given back.
    fn lines_of(&self, hold: &Hold) -> Lines {
        let limits = read(&self.limits);
        let is_slots = |item: &&Item| matches!(limits.terms(item.tag), Some(Terms::Slots(_)));
        let mut slots = hold.items.iter().filter(is_slots);
        match (slots.next(), slots.next()) {
            (Some(only), None) => Lines::One(only.hash),
            _ => Lines::All,
        }
    }

    /// Each at its own time, so that what it gives back comes back then and not when somebody looks.
    fn expire_holds(&self, side: &mut Side, times: Times) -> bool {
        let mut expired = false;
        while let Some(hold) = side.next_expired(times.now) {
            let at = Times { now: hold.expires, ..times };
            for item in &hold.items {
                self.update(side, item, at, |terms, state, moment| {
                    terms.cancel(state, item.units, moment);
                    0
                });
            }
            expired = true;
        }
        expired
    }

    /// Changes the state that an item of a hold belongs to, and reports it with its limit.
    fn update(
        &self,
        side: &mut Side,
        item: &Item,
        times: Times,
        change: impl Fn(&Terms, &mut State, Moment) -> u64,
    ) -> (u64, Option<(u32, State)>) {
        let limits = read(&self.limits);
        let Some((terms, moment)) = limits.get(item.tag, times) else { return (0, None) };
        let held = side.held(item.hash);
        if Width::of(&terms) == Width::None {
            let mut state = State::Slots { held };
            let units = change(&terms, &mut state, moment);
            side.set_held(item.hash, state.held());
            return (units, None);
        }
        let changed = self.with_slot(&terms, item.hash, |line, slot| {
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
        (units, Some(left))
    }

    /// Gives back up to `units` to every limit of a plan, and reports the most that any gave.
    fn refund_now(&self, plan: &Plan<'_>, times: Times) -> u64 {
        let mut side = lock(&self.side);
        self.expire_holds(&mut side, times);
        let refund = |charge: &Charge<'_>| {
            let Charge { tag, hash, cost: units, is_by_request, .. } = *charge;
            let item = Item { tag, hash, units, is_by_request, charged: None };
            let refund =
                |terms: &Terms, state: &mut State, moment| terms.refund(state, units, moment);
            self.update(&mut side, &item, times, refund).0
        };
        plan.charges.iter().map(refund).max().unwrap_or(0)
    }

    /// Drops what the keys of a plan have spent; true if there was anything. Holds stay.
    fn forget_now(&self, plan: &Plan<'_>) -> bool {
        let side = lock(&self.side);
        let forget = |charge: &Charge<'_>| {
            self.with_slot(charge.terms, charge.hash, |line, slot| {
                let held = side.held(charge.hash);
                if held == 0 {
                    line.clear(slot);
                    self.uncount(charge.terms);
                } else {
                    let moment = Moment { now: Timestamp::ZERO, period: charge.period };
                    let fresh = charge.terms.fresh(charge.period).with_held(held);
                    line.store(slot, charge.tag, &fresh, moment);
                }
            })
        };
        plan.charges.iter().filter_map(forget).count() > 0
    }
}

impl sealed::Store for MemoryStore {
    #[inline(always)]
    fn decide(&self, plan: &Plan<'_>, times: Times, decisions: &mut Decisions) -> Deciding<'_> {
        Deciding::Now(self.decide_now(plan, times, decisions))
    }

    fn settle(
        &self,
        id: HoldId,
        settlement: Settlement,
        times: Times,
    ) -> Answer<'_, Result<Settled, Gone>> {
        Answer::Now(self.settle_now(id, settlement, times))
    }

    fn refund(&self, plan: &Plan<'_>, times: Times) -> Answer<'_, u64> {
        Answer::Now(self.refund_now(plan, times))
    }

    fn forget(&self, plan: &Plan<'_>) -> Answer<'_, bool> {
        Answer::Now(self.forget_now(plan))
    }

    fn settle_in(&self, charge: &Charge<'_>, times: Times) {
        let side = lock(&self.side);
        let limits = read(&self.limits);
        self.with_slot(charge.terms, charge.hash, |line, slot| {
            let tag = line.tag(slot);
            if tag != 0 && tag != charge.tag {
                let held = side.held(charge.hash);
                let state = line.load_state(slot, charge.terms).with_held(held);
                let carried = limits.carry(tag, state, charge, times.now);
                line.store(slot, carried.tag, &carried.state, charge.ask(times.now).moment);
            }
        });
    }

    fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        self.adopt_now(adoption, times);
    }

    fn expire(&self, times: Times) -> bool {
        self.expire_holds(&mut lock(&self.side), times)
    }

    fn next_due(&self) -> Option<Timestamp> {
        lock(&self.side).next_due()
    }

    fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        Arc::clone(lock(&self.rounds).entry(domain.into()).or_default())
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

/// Changes of the rules.
impl MemoryStore {
    /// Takes note of a new set of rules. The first one to call this for a set of rules does it.
    ///
    /// The time of the change is read after the new number is there to be seen, so no charge under
    /// the old rules is later than it.
    fn adopt_now(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        let mut limits = write(&self.limits);
        if self.version.load(Ordering::SeqCst) >= adoption.version {
            return;
        }
        self.version.store(adoption.version, Ordering::SeqCst);
        limits.adopt(adoption, times());
        let is_crowded = limits.superseded() > MOST_SUPERSEDED;
        drop(limits);
        if is_crowded {
            self.forget_superseded();
        }
    }

    /// Moves every state to the limit that is in force, and forgets the others.
    fn forget_superseded(&self) {
        let used = Mutex::new(HashSet::new());
        self.modernise(&self.narrow, &used);
        self.modernise(&self.wide, &used);
        let side = lock(&self.side);
        let mut used = used.into_inner().unwrap_or_else(PoisonError::into_inner);
        used.extend(side.tags().chain(side.shared.tags()));
        let mut limits = write(&self.limits);
        limits.retain(|tag| used.contains(&tag));
    }

    fn modernise<L: Slots>(&self, shelf: &Shelf<L>, used: &Mutex<HashSet<u32>>) {
        shelf.for_each_line(|line| {
            let limits = read(&self.limits);
            let occupied: Several<usize> = line.occupied().collect();
            for slot in occupied {
                let tag = line.line().tag(slot);
                let Some(terms) = limits.terms(tag) else { continue };
                let state = line.line().load_state(slot, &terms);
                let carried = limits.current(Carried { tag, terms, state }, Timestamp::ZERO, None);
                let packed = L::pack(carried.tag, &carried.state, line.line().moment(slot));
                line.store(slot, packed);
                lock(used).insert(carried.tag);
            }
        });
    }
}

/// How often decisions are tried on lines that are not locked.
const UNLOCKED_TRIES: usize = 2;

/// How many limits that are no longer in force are kept before states are moved away from them.
const MOST_SUPERSEDED: usize = 4_096;

#[cfg(test)]
mod tests;
