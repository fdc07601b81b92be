//! The fast path: a few charges of keys without holds or older limits, known or new.
//!
//! An optimisation of the [locked path](super::locked), and nothing else: lines are read without a lock,
//! and their headers prove that the reads belong together. A denial writes nothing. An admission locks the
//! lines in the order of their addresses, by swapping the headers that were read. All that is not plain is
//! left to the locked path, with nothing changed. Built with `--cfg tidegate_locked` there is no fast path.
//!
//! States of narrow slots stay packed, and decisions are written into the caller's buffer. Each step is a
//! function of its own: in one large function most values would be moved to the stack and back.

use std::sync::atomic::Ordering;

use tidegate_core::{Decision, Timestamp};
use tidegate_policy::policy::Mode;
use tidegate_table::table::keyed::sealed::Pack;
use tidegate_table::table::{
    Line, LineHeader, Locked, Narrow, NarrowLine, Tagged, TaggedLine, WideLine, find, give_way,
    is_unchanged, read_header,
};

use super::{MemoryStore, Width};

use super::slot::{AnyLocked, SlotLine, narrow, unpack_wide};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime};
use crate::decision::Decisions;
use crate::plan::{Charge, ChargeList};

/// What a limit decides on a charge, if its state is plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    Denied,
    /// The key is not in the line.
    Elsewhere,
    /// The key has a hold, counts under an older limit, or has no free slot in its home line.
    NotPlain,
}

/// Why charges were not decided. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    /// They need the locked path, or a state by which they are denied has changed.
    NeedsLocks,
    /// Another thread has written to a line that they change.
    Lost,
}

/// The version of the rules that charges are of, and the time of the decision.
#[derive(Clone, Copy, Debug)]
struct DecidedBy {
    version: u64,
    now: Timestamp,
}

/// A charge of a slot that was read without a lock.
#[derive(Clone, Copy)]
struct SlotCharge<'a, L: SlotLine> {
    line: &'a L,
    header: LineHeader,
    slot: usize,
    hash: u64,
    /// The limit that the state counts under, afterwards.
    tag: u32,
    /// Whether the key is new, and the slot is free.
    is_new: bool,
    before: L::Words,
    after: L::Words,
}

/// A charge of a slot of either width. Wide ones are large.
#[allow(clippy::large_enum_variant, reason = "a few, on the stack, filled in place")]
enum AnyCharge<'a> {
    Narrow(SlotCharge<'a, TaggedLine>),
    Wide(SlotCharge<'a, WideLine>),
}

/// A charge with its line, of one width or of either.
trait Seen<'a> {
    type Locked;

    fn address(&self) -> usize;
    fn header(&self) -> LineHeader;
    fn is_new(&self) -> bool;
    /// Whether the state is another one afterwards.
    fn changes(&self) -> bool;
    /// The decision with nothing charged.
    fn peek(&self, store: &MemoryStore, charge: &Charge, now: Timestamp) -> Decision;
    /// Whether all that was read of the line is still so.
    fn is_unchanged(&self, store: &MemoryStore) -> bool;
    fn lock(&self) -> Option<Self::Locked>;
    /// Whether the slot is as it was. The count of writes in a header wraps, so the slot itself is compared.
    fn is_still_true(&self, locked: &Self::Locked) -> bool;
    /// Claims the slot for a new key, under the lock of its line; false if the key cannot have it.
    fn claim(&self, store: &MemoryStore) -> bool;
    fn unclaim(&self, store: &MemoryStore);
    /// Stores the state afterwards.
    fn store(&self, locked: &mut Self::Locked);
}

impl MemoryStore {
    /// Decides a few charges; `None` if they need the locked path. The decisions are in the caller's
    /// buffer.
    #[inline(always)]
    pub(crate) fn decide_fast(
        &self,
        version: u64,
        now: Timestamp,
        charges: &ChargeList,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        if cfg!(tidegate_locked) {
            return None;
        }
        self.is_in_force(version).ok()?;
        let by = DecidedBy { version, now };
        for losses in 0..MOST_LOSSES {
            decisions.clear();
            let decided = match charges {
                [Some(charge), None, _] => match Width::of(&charge.limit) {
                    Width::Narrow => self.decide_one(charge, by, decisions),
                    Width::Wide => self.decide_any_widths([charge], by, decisions),
                    Width::None => Err(Undecided::NeedsLocks),
                },
                [Some(a), Some(b), None] => self.decide_all([a, b], by, decisions),
                [Some(a), Some(b), Some(c)] => self.decide_all([a, b, c], by, decisions),
                [None, ..] => Err(Undecided::NeedsLocks),
            };
            match decided {
                Ok(is_allowed) => return Some(is_allowed),
                Err(Undecided::NeedsLocks) => return None,
                Err(Undecided::Lost) => give_way(losses),
            }
        }
        None
    }

    /// Prefetches the home line of a charge's key.
    #[inline(always)]
    pub(crate) fn fetch_line(&self, charge: &Charge) {
        match Width::of(&charge.limit) {
            Width::Narrow => {
                self.narrow.fetch(charge.hash);
            }
            Width::Wide => {
                self.wide.fetch(charge.hash);
            }
            Width::None => {}
        }
    }

    /// The usual case: one charge of a narrow slot.
    #[inline(always)]
    fn decide_one(
        &self,
        charge: &Charge,
        by: DecidedBy,
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        let mut seen = None;
        let fit = self.evaluate_narrow(charge, by.now, decisions, &mut seen);
        let seen = seen.as_ref().ok_or(Undecided::NeedsLocks)?;
        if seen.changes() {
            let mut locked = seen.lock().ok_or(Undecided::Lost)?;
            let is_true = self.is_in_force(by.version).is_ok() && seen.is_still_true(&locked);
            if !is_true || (seen.is_new() && !seen.claim(self)) {
                return Err(Undecided::NeedsLocks);
            }
            seen.store(&mut locked);
        } else if !seen.is_unchanged(self) {
            return Err(Undecided::NeedsLocks);
        }
        Ok(fit == Fit::Fits || charge.mode == Mode::Shadow)
    }

    #[inline(always)]
    fn decide_all<const N: usize>(
        &self,
        list: [&Charge; N],
        by: DecidedBy,
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        if list.iter().all(|charge| Width::of(&charge.limit) == Width::Narrow) {
            self.decide_narrow(list, by, decisions)
        } else {
            self.decide_any_widths(list, by, decisions)
        }
    }

    #[inline(never)]
    fn decide_narrow<const N: usize>(
        &self,
        list: [&Charge; N],
        by: DecidedBy,
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        // Not a constant: its bytes would be copied.
        let mut seen = std::array::from_fn::<_, N, _>(|_| None);
        let mut is_denied = false;
        for (seen, charge) in seen.iter_mut().zip(list) {
            let fit = self.evaluate_narrow(charge, by.now, decisions, seen);
            is_denied |= fit.denies(charge)?;
        }
        self.complete(&seen, list, is_denied, by, decisions)
    }

    #[inline(never)]
    fn decide_any_widths<const N: usize>(
        &self,
        list: [&Charge; N],
        by: DecidedBy,
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        let mut seen = std::array::from_fn::<_, N, _>(|_| None);
        let mut is_denied = false;
        for (seen, charge) in seen.iter_mut().zip(list) {
            let fit = if Width::of(&charge.limit) == Width::Wide {
                self.evaluate_wide(charge, by.now, decisions, seen)
            } else {
                let mut narrow = None;
                let fit = self.evaluate_narrow(charge, by.now, decisions, &mut narrow);
                *seen = narrow.map(AnyCharge::Narrow);
                fit
            };
            is_denied |= fit.denies(charge)?;
        }
        self.complete(&seen, list, is_denied, by, decisions)
    }

    /// Charges all, or denies, once every charge is evaluated.
    #[inline(always)]
    fn complete<'a, S: Seen<'a>, const N: usize>(
        &self,
        seen: &[Option<S>; N],
        list: [&Charge; N],
        is_denied: bool,
        by: DecidedBy,
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        if is_denied {
            return self.deny(seen, list, by.now, decisions);
        }
        let sorted = by_address(seen).ok_or(Undecided::NeedsLocks)?;
        let mut locked = lock_all(&sorted)?;
        if self.is_in_force(by.version).is_err() {
            return Err(Undecided::NeedsLocks);
        }
        let mut holder = 0;
        for (index, charge) in sorted.iter().enumerate() {
            holder = if locked[index].is_some() { index } else { holder };
            if !locked[holder].as_ref().is_some_and(|line| charge.is_still_true(line)) {
                return Err(Undecided::NeedsLocks);
            }
        }
        if sorted.iter().any(|charge| charge.is_new()) {
            self.claim_all(&sorted, &locked)?;
        }
        for (index, charge) in sorted.iter().enumerate() {
            holder = if locked[index].is_some() { index } else { holder };
            match locked[holder].as_mut() {
                Some(line) => charge.store(line),
                None => unreachable!("its line was locked above"),
            }
        }
        Ok(true)
    }

    /// Claims the slots of new keys, all or none. Each needs a line of its own: two in one line have seen
    /// the same free slot.
    #[inline(never)]
    fn claim_all<'a, S: Seen<'a>, const N: usize>(
        &self,
        sorted: &[&S; N],
        locked: &[Option<S::Locked>; N],
    ) -> Result<(), Undecided> {
        let new = || sorted.iter().zip(locked).filter(|(charge, _)| charge.is_new());
        for (claimed, (charge, line)) in new().enumerate() {
            if line.is_none() || !charge.claim(self) {
                new().take(claimed).for_each(|(charge, _)| charge.unclaim(self));
                return Err(Undecided::NeedsLocks);
            }
        }
        Ok(())
    }

    /// The denial of several charges: nothing is charged, and every limit reports what remains.
    #[inline(never)]
    fn deny<'a, S: Seen<'a>, const N: usize>(
        &self,
        seen: &[Option<S>; N],
        list: [&Charge; N],
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        for ((charge, decision), seen) in list.into_iter().zip(decisions.iter_mut()).zip(seen) {
            let seen = seen.as_ref().ok_or(Undecided::NeedsLocks)?;
            if decision.is_allowed() || seen.changes() {
                *decision = seen.peek(self, charge, now);
            }
        }
        let are_unchanged = seen.iter().flatten().all(|seen| seen.is_unchanged(self));
        are_unchanged.then_some(false).ok_or(Undecided::NeedsLocks)
    }

    /// Decides on a charge of a narrow slot, wherever it is, and adds the decision. What becomes of the
    /// slot is returned in place.
    #[inline(always)]
    fn evaluate_narrow<'a>(
        &'a self,
        charge: &Charge,
        now: Timestamp,
        decisions: &mut Decisions,
        seen: &mut Option<SlotCharge<'a, TaggedLine>>,
    ) -> Fit {
        let home = self.narrow.fetch(charge.hash).home;
        match evaluate_narrow_in::<false>(home, charge, now, decisions, seen) {
            Fit::Elsewhere => self.evaluate_elsewhere(charge, now, decisions, seen),
            fit => fit,
        }
    }

    /// Decides on a charge of a key that is not in its home line: it is in the next lines, or new.
    #[cold]
    #[inline(never)]
    fn evaluate_elsewhere<'a>(
        &'a self,
        charge: &Charge,
        now: Timestamp,
        decisions: &mut Decisions,
        seen: &mut Option<SlotCharge<'a, TaggedLine>>,
    ) -> Fit {
        let chain = self.narrow.chain(charge.hash);
        for pair in chain.windows(2) {
            let [line, next] = pair else { break };
            if !read_header(line).is_overflowed() {
                break;
            }
            match evaluate_narrow_in::<false>(next, charge, now, decisions, seen) {
                Fit::Elsewhere => {}
                fit => return fit,
            }
        }
        let home = &chain[0];
        if read_header(home).is_overflowed() || find(home, FREE).is_none() {
            return Fit::NotPlain;
        }
        self.narrow.prepare_growth();
        // A key that lost its slot is not decided before it did.
        let now = self.narrow.no_earlier_than_reuse(now);
        match evaluate_narrow_in::<true>(home, charge, now, decisions, seen) {
            Fit::Elsewhere => Fit::NotPlain,
            fit => fit,
        }
    }

    /// Decides on a charge of a wide slot in its home line, and adds the decision.
    #[inline(never)]
    fn evaluate_wide<'a>(
        &'a self,
        charge: &Charge,
        now: Timestamp,
        decisions: &mut Decisions,
        seen: &mut Option<AnyCharge<'a>>,
    ) -> Fit {
        let (line, hash) = (self.wide.fetch(charge.hash).home, charge.hash);
        let header = read_header(line);
        let Some(slot) = find(line, hash) else { return Fit::NotPlain };
        let Tagged { tag, packed: before } = line.load(slot);
        if header.is_pinned(slot) || tag != charge.tag {
            return Fit::NotPlain;
        }
        let mut state = unpack_wide(&before, &charge.limit);
        let at = DecisionTime { now, period: charge.period };
        let decision = charge.limit.check(&mut state, charge.cost, at);
        decisions.push(decision);
        let after = match &state {
            _ if !decision.is_allowed() => before,
            // The request came late, and the slot has the end of a later period.
            AnyState::Quota(state) if state.period != charge.period.index => return Fit::NotPlain,
            state => WideLine::pack(tag, state, at).packed,
        };
        let charge = SlotCharge { line, header, slot, hash, tag, is_new: false, before, after };
        *seen = Some(AnyCharge::Wide(charge));
        if decision.is_allowed() { Fit::Fits } else { Fit::Denied }
    }
}

/// Decides on a charge of a slot in a narrow line, and adds the decision: the key's, or where it is new a free
/// one.
#[inline(never)]
fn evaluate_narrow_in<'a, const IS_NEW: bool>(
    line: &'a TaggedLine,
    charge: &Charge,
    now: Timestamp,
    decisions: &mut Decisions,
    seen: &mut Option<SlotCharge<'a, TaggedLine>>,
) -> Fit {
    // Each algorithm has the whole path for itself, so that nothing is copied where they meet.
    narrow!(
        &charge.limit,
        limit => evaluate::<_, IS_NEW>(line, limit, charge, now, decisions, seen),
        Fit::NotPlain
    )
}

#[inline(always)]
fn evaluate<'a, A: Pack<Line = NarrowLine>, const IS_NEW: bool>(
    line: &'a TaggedLine,
    limit: &A,
    charge: &Charge,
    now: Timestamp,
    decisions: &mut Decisions,
    seen: &mut Option<SlotCharge<'a, TaggedLine>>,
) -> Fit {
    let (header, hash) = (read_header(line), charge.hash);
    let Some(slot) = find(line, if IS_NEW { FREE } else { hash }) else { return Fit::Elsewhere };
    let Tagged { tag, packed: before } = line.load(slot);
    let is_as_planned = match IS_NEW {
        // A free slot is a fresh state.
        true => tag == 0 && before == Narrow::default() && is_new_in(line, header, hash),
        false => tag == charge.tag,
    };
    if header.is_pinned(slot) || !is_as_planned {
        return Fit::NotPlain;
    }
    let mut state = A::unpack(before);
    let decision = limit.check(&mut state, charge.cost, now);
    let after = A::pack(&state);
    if IS_NEW && after == before {
        return Fit::NotPlain;
    }
    decisions.push(decision);
    let tag = charge.tag;
    *seen = Some(SlotCharge { line, header, slot, hash, tag, is_new: IS_NEW, before, after });
    if decision.is_allowed() { Fit::Fits } else { Fit::Denied }
}

/// Whether a key is neither in its home line, nor in one of the next.
#[inline(always)]
fn is_new_in(home: &TaggedLine, header: LineHeader, hash: u64) -> bool {
    !header.is_overflowed() && find(home, hash).is_none()
}

impl Fit {
    /// Whether it denies the request.
    #[inline(always)]
    fn denies(self, charge: &Charge) -> Result<bool, Undecided> {
        match self {
            Self::Fits => Ok(false),
            Self::Denied => Ok(charge.mode == Mode::Enforce),
            Self::Elsewhere | Self::NotPlain => Err(Undecided::NeedsLocks),
        }
    }
}

impl<'a, L: SlotLine> SlotCharge<'a, L> {
    #[cold]
    #[inline(never)]
    fn is_still_free(&self, locked: &Locked<'a, L>) -> bool {
        locked.fingerprint(self.slot) == FREE && locked.find(self.hash).is_none()
    }
}

impl<'a, L: SlotLine> Seen<'a> for SlotCharge<'a, L> {
    type Locked = Locked<'a, L>;

    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self.line).addr()
    }

    #[inline(always)]
    fn header(&self) -> LineHeader {
        self.header
    }

    #[inline(always)]
    fn is_new(&self) -> bool {
        self.is_new
    }

    #[inline(always)]
    fn changes(&self) -> bool {
        self.after != self.before
    }

    fn peek(&self, store: &MemoryStore, charge: &Charge, now: Timestamp) -> Decision {
        let now = if self.is_new { L::table(store).no_earlier_than_reuse(now) } else { now };
        let state = self.line.load_state(self.slot, &charge.limit);
        charge.limit.peek(&state, charge.cost, DecisionTime { now, period: charge.period })
    }

    #[inline(always)]
    fn is_unchanged(&self, store: &MemoryStore) -> bool {
        // A key that was not found may have moved before; its home is compared again.
        is_unchanged(self.line, self.header)
            && (!self.is_new || L::table(store).is_home(self.hash, self.line))
    }

    #[inline(always)]
    fn lock(&self) -> Option<Self::Locked> {
        Locked::if_unchanged(self.line, self.header)
    }

    #[inline(always)]
    fn is_still_true(&self, locked: &Self::Locked) -> bool {
        if self.is_new {
            return self.is_still_free(locked);
        }
        locked.fingerprint(self.slot) == self.hash
            && locked.load(self.slot) == Tagged { tag: self.tag, packed: self.before }
    }

    #[cold]
    #[inline(never)]
    fn claim(&self, store: &MemoryStore) -> bool {
        let table = L::table(store);
        !store.is_sharing.load(Ordering::SeqCst)
            && table.is_home(self.hash, self.line)
            && table.count_key()
    }

    fn unclaim(&self, store: &MemoryStore) {
        L::table(store).uncount_keys(1);
    }

    #[inline(always)]
    fn store(&self, locked: &mut Self::Locked) {
        if self.is_new {
            locked.set_fingerprint(self.slot, self.hash);
        }
        locked.store(self.slot, Tagged { tag: self.tag, packed: self.after });
    }
}

/// Calls the same function on a charge of either width.
macro_rules! either {
    ($any:expr, $charge:ident => $then:expr) => {
        match $any {
            Self::Narrow($charge) => $then,
            Self::Wide($charge) => $then,
        }
    };
}

impl<'a> Seen<'a> for AnyCharge<'a> {
    type Locked = AnyLocked<'a>;

    fn address(&self) -> usize {
        either!(self, charge => charge.address())
    }

    fn header(&self) -> LineHeader {
        either!(self, charge => charge.header)
    }

    fn is_new(&self) -> bool {
        either!(self, charge => charge.is_new())
    }

    fn changes(&self) -> bool {
        either!(self, charge => charge.changes())
    }

    fn peek(&self, store: &MemoryStore, charge: &Charge, now: Timestamp) -> Decision {
        either!(self, seen => seen.peek(store, charge, now))
    }

    fn is_unchanged(&self, store: &MemoryStore) -> bool {
        either!(self, charge => charge.is_unchanged(store))
    }

    fn lock(&self) -> Option<Self::Locked> {
        match self {
            Self::Narrow(charge) => charge.lock().map(AnyLocked::Narrow),
            Self::Wide(charge) => charge.lock().map(AnyLocked::Wide),
        }
    }

    #[inline(always)]
    fn is_still_true(&self, locked: &Self::Locked) -> bool {
        match (self, locked) {
            (Self::Narrow(charge), AnyLocked::Narrow(line)) => charge.is_still_true(line),
            (Self::Wide(charge), AnyLocked::Wide(line)) => charge.is_still_true(line),
            _ => false,
        }
    }

    fn claim(&self, store: &MemoryStore) -> bool {
        either!(self, charge => charge.claim(store))
    }

    fn unclaim(&self, store: &MemoryStore) {
        either!(self, charge => charge.unclaim(store));
    }

    #[inline(always)]
    fn store(&self, locked: &mut Self::Locked) {
        match (self, locked) {
            (Self::Narrow(charge), AnyLocked::Narrow(line)) => charge.store(line),
            (Self::Wide(charge), AnyLocked::Wide(line)) => charge.store(line),
            _ => unreachable!("a charge is of its own line"),
        }
    }
}

/// Locks the lines of charges, which are in the order of their addresses, if none has changed since
/// it was read. Of charges in one line the first has the lock.
#[inline(always)]
fn lock_all<'a, S: Seen<'a>, const N: usize>(
    sorted: &[&S; N],
) -> Result<[Option<S::Locked>; N], Undecided> {
    let mut locked = [const { None }; N];
    for (index, charge) in sorted.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| sorted[before]);
        match before.filter(|before| before.address() == charge.address()) {
            // Both were found there under the same header.
            Some(before) if before.header() == charge.header() => {}
            Some(_) => return Err(Undecided::Lost),
            None => locked[index] = Some(charge.lock().ok_or(Undecided::Lost)?),
        }
    }
    Ok(locked)
}

/// Charges in the order in which their lines are locked; `None` if one is missing.
#[inline(always)]
fn by_address<'c, 'a, S: Seen<'a>, const N: usize>(seen: &'c [Option<S>; N]) -> Option<[&'c S; N]> {
    let mut sorted = [seen.first()?.as_ref()?; N];
    for (sorted, seen) in sorted.iter_mut().zip(seen) {
        *sorted = seen.as_ref()?;
    }
    // Two or three: neighbours are swapped until they are in order.
    for end in (1..N).rev() {
        for at in 0..end {
            if sorted[at].address() > sorted[at + 1].address() {
                sorted.swap(at, at + 1);
            }
        }
    }
    Some(sorted)
}

/// What a slot has where a key would be, if it has none.
const FREE: u64 = 0;

/// How often charges lose their lines to other threads before they take the locked path.
const MOST_LOSSES: u32 = 4;
