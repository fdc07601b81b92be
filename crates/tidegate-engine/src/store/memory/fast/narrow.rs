//! Charges of narrow slots.

use tidegate_core::Timestamp;
use tidegate_policy::policy::Mode;
use tidegate_table::table::keyed::sealed::Pack;
use tidegate_table::table::{
    Line, LineHeader, Locked, Narrow, NarrowLine, Tagged, TaggedLine, find, is_unchanged,
    read_header,
};

use super::super::MemoryStore;
use super::super::slot::SlotLine;
use super::{Fit, Undecided};
use crate::any_limit::{AnyLimit, DecisionTime, Decisions};
use crate::plan::FastCharge;

/// A charge of a slot that was read without a lock.
#[derive(Clone, Copy)]
pub(super) struct NarrowCharge<'a> {
    pub(super) line: &'a TaggedLine,
    pub(super) header: LineHeader,
    tag: u32,
    pub(super) slot: usize,
    hash: u64,
    before: Narrow,
    after: Narrow,
}

impl<'a> NarrowCharge<'a> {
    /// Decides on a charge and adds the decision. What becomes of the slot is returned in place.
    #[inline(never)]
    pub(super) fn evaluate(
        line: &'a TaggedLine,
        charge: &FastCharge<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
        charged: &mut Option<Self>,
    ) -> Fit {
        // Each algorithm has the whole path for itself, so that nothing is copied where they meet.
        match charge.limit {
            AnyLimit::Bucket(limit) => Self::of(line, (limit, charge, now), decisions, charged),
            AnyLimit::Window(limit) => Self::of(line, (limit, charge, now), decisions, charged),
            AnyLimit::Cooldown(limit) => Self::of(line, (limit, charge, now), decisions, charged),
            AnyLimit::Sliding(_) | AnyLimit::Quota(_) | AnyLimit::Slots(_) => Fit::NotPlain,
        }
    }

    #[inline(always)]
    fn of<A: Pack<Line = NarrowLine>>(
        line: &'a TaggedLine,
        (limit, charge, now): (&A, &FastCharge<'_>, Timestamp),
        decisions: &mut Decisions,
        charged: &mut Option<Self>,
    ) -> Fit {
        let header = read_header(line);
        let Some(slot) = find(line, charge.hash) else { return Fit::Elsewhere };
        let Tagged { tag, packed: before } = line.load(slot);
        if header.is_pinned(slot) || tag != charge.tag {
            return Fit::NotPlain;
        }
        let mut state = A::unpack(before);
        let decision = limit.check(&mut state, charge.cost, now);
        decisions.push(decision);
        let (hash, after) = (charge.hash, A::pack(&state));
        *charged = Some(Self { line, header, tag, slot, hash, before, after });
        if decision.is_allowed() { Fit::Fits } else { Fit::Denied }
    }

    /// Whether the state is another one afterwards.
    #[inline(always)]
    pub(super) fn changes(&self) -> bool {
        self.after != self.before
    }

    /// Whether the slot is as it was. The count of writes in a header wraps, so the slot itself is
    /// compared.
    #[inline(always)]
    pub(super) fn is_still_true(&self, line: &Locked<'_, TaggedLine>) -> bool {
        line.fingerprint(self.slot) == self.hash
            && line.load(self.slot) == Tagged { tag: self.tag, packed: self.before }
    }

    /// Stores the state afterwards.
    #[inline(always)]
    pub(super) fn store(&self, line: &mut Locked<'_, TaggedLine>) {
        line.store(self.slot, Tagged { tag: self.tag, packed: self.after });
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self.line).addr()
    }
}

impl MemoryStore {
    /// Decides on a charge, wherever its slot is, and adds the decision.
    #[inline(always)]
    pub(super) fn evaluate_narrow<'a>(
        &'a self,
        charge: &FastCharge<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
        charged: &mut Option<NarrowCharge<'a>>,
    ) -> Fit {
        let home = self.narrow.fetch(charge.hash).home;
        match NarrowCharge::evaluate(home, charge, now, decisions, charged) {
            Fit::Elsewhere => self.evaluate_elsewhere(charge, now, decisions, charged),
            fit => fit,
        }
    }

    /// Decides on a charge of a slot that is not in its home line.
    #[cold]
    #[inline(never)]
    fn evaluate_elsewhere<'a>(
        &'a self,
        charge: &FastCharge<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
        charged: &mut Option<NarrowCharge<'a>>,
    ) -> Fit {
        let chain = self.narrow.chain(charge.hash);
        for pair in chain.windows(2) {
            let [line, next] = pair else { break };
            if !read_header(line).is_overflowed() {
                break;
            }
            match NarrowCharge::evaluate(next, charge, now, decisions, charged) {
                Fit::Elsewhere => {}
                fit => return fit,
            }
        }
        Fit::NotPlain
    }

    /// Decides several charges of narrow slots.
    #[inline(never)]
    pub(super) fn charge_narrow<const N: usize>(
        &self,
        list: [&FastCharge<'_>; N],
        (version, now): (u64, Timestamp),
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        // Not a constant: its bytes would be copied.
        let mut charged = std::array::from_fn::<_, N, _>(|_| None);
        let mut is_denied = false;
        for (charged, charge) in charged.iter_mut().zip(list) {
            match self.evaluate_narrow(charge, now, decisions, charged) {
                Fit::Fits => {}
                Fit::Denied => is_denied |= charge.mode == Mode::Enforce,
                Fit::Elsewhere | Fit::NotPlain => return Err(Undecided::OtherPath),
            }
        }
        if is_denied {
            return deny(&charged, list, now, decisions);
        }
        let sorted = by_address(&charged).ok_or(Undecided::OtherPath)?;
        let mut locked = lock_all(&sorted)?;
        if self.is_in_force(version).is_err() {
            return Err(Undecided::OtherPath);
        }
        let mut holder = 0;
        for (index, charge) in sorted.iter().enumerate() {
            holder = if locked[index].is_some() { index } else { holder };
            if !locked[holder].as_ref().is_some_and(|line| charge.is_still_true(line)) {
                return Err(Undecided::OtherPath);
            }
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
}

/// Locks the lines of charges, which are in the order of their addresses, if none has changed since
/// it was read. Of charges in one line the first has the lock.
#[inline(always)]
fn lock_all<'a, const N: usize>(
    sorted: &[&NarrowCharge<'a>; N],
) -> Result<[Option<Locked<'a, TaggedLine>>; N], Undecided> {
    let mut locked = [const { None }; N];
    for (index, charge) in sorted.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| sorted[before]);
        match before.filter(|before| before.address() == charge.address()) {
            // Both were found there under the same header.
            Some(before) if before.header == charge.header => {}
            Some(_) => return Err(Undecided::Lost),
            None => {
                let line = Locked::if_unchanged(charge.line, charge.header);
                locked[index] = Some(line.ok_or(Undecided::Lost)?);
            }
        }
    }
    Ok(locked)
}

/// Charges in the order in which their lines are locked; `None` if one is missing.
#[inline(always)]
fn by_address<'c, 'a, const N: usize>(
    charged: &'c [Option<NarrowCharge<'a>>; N],
) -> Option<[&'c NarrowCharge<'a>; N]> {
    let mut sorted = [charged.first()?.as_ref()?; N];
    for (sorted, charged) in sorted.iter_mut().zip(charged) {
        *sorted = charged.as_ref()?;
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

/// The denial of several charges: nothing is charged, and every limit reports what remains.
#[inline(never)]
fn deny<const N: usize>(
    charged: &[Option<NarrowCharge<'_>>; N],
    list: [&FastCharge<'_>; N],
    now: Timestamp,
    decisions: &mut Decisions,
) -> Result<bool, Undecided> {
    for ((charge, decision), charged) in list.into_iter().zip(decisions.iter_mut()).zip(charged) {
        let charged = charged.as_ref().ok_or(Undecided::OtherPath)?;
        if decision.is_allowed() || charged.changes() {
            let state = charged.line.load_state(charged.slot, charge.limit);
            let at = DecisionTime { now, period: charge.period };
            *decision = charge.limit.peek(&state, charge.cost, at);
        }
    }
    let is_unchanged = |it: &NarrowCharge<'_>| is_unchanged(it.line, it.header);
    charged.iter().flatten().all(is_unchanged).then_some(false).ok_or(Undecided::OtherPath)
}
