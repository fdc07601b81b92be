//! Charges of which some are of wide slots.

use tidegate_core::Timestamp;
use tidegate_policy::policy::Mode;
use tidegate_table::table::{Line, LineHeader, Locked, Tagged, Wide, WideLine, find, read_header};

use super::super::slot::{AnyLine, AnyLocked, SlotLine, unpack_wide};
use super::super::{MemoryStore, Width};
use super::narrow::NarrowCharge;
use super::{Fit, Undecided};
use crate::any_limit::{AnyState, DecisionTime, Decisions};
use crate::plan::FastCharge;

/// A charge of a wide slot that was read without a lock.
#[derive(Clone, Copy)]
pub(super) struct WideCharge {
    pub(super) header: LineHeader,
    slot: usize,
    hash: u64,
    before: Tagged<Wide>,
    after: Tagged<Wide>,
}

/// A charge of a slot of either width. Wide ones are large.
#[allow(clippy::large_enum_variant, reason = "a few, on the stack, filled in place")]
enum AnyCharge<'a> {
    Narrow(NarrowCharge<'a>),
    Wide(&'a WideLine, WideCharge),
}

impl WideCharge {
    /// Decides on a charge and adds the decision; `None` if its state is not plain.
    #[inline(always)]
    pub(super) fn evaluate(
        line: &WideLine,
        charge: &FastCharge<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<(Self, Fit)> {
        let (header, hash) = (read_header(line), charge.hash);
        let slot = find(line, hash)?;
        let before = line.load(slot);
        if header.is_pinned(slot) || before.tag != charge.tag {
            return None;
        }
        let mut state = unpack_wide(&before.packed, charge.limit);
        let at = DecisionTime { now, period: charge.period };
        let decision = charge.limit.check(&mut state, charge.cost, at);
        decisions.push(decision);
        if !decision.is_allowed() {
            return Some((Self { header, slot, hash, before, after: before }, Fit::Denied));
        }
        match &state {
            // The request came late, and the slot has the end of a later period.
            AnyState::Quota(state) if state.period != charge.period.index => None,
            state => {
                let after = WideLine::pack(before.tag, state, at);
                Some((Self { header, slot, hash, before, after }, Fit::Fits))
            }
        }
    }

    /// Whether the state is another one afterwards.
    #[inline(always)]
    pub(super) fn changes(&self) -> bool {
        self.after != self.before
    }

    /// Whether the slot is as it was, as with narrow ones.
    #[inline(always)]
    pub(super) fn is_still_true(&self, line: &Locked<'_, WideLine>) -> bool {
        line.fingerprint(self.slot) == self.hash && line.load(self.slot) == self.before
    }

    /// Stores the state afterwards.
    #[inline(always)]
    pub(super) fn store(&self, line: &mut Locked<'_, WideLine>) {
        line.store(self.slot, self.after);
    }
}

impl MemoryStore {
    /// Decides several charges, of which some are of wide slots.
    #[inline(never)]
    pub(super) fn charge_mixed<const N: usize>(
        &self,
        list: [&FastCharge<'_>; N],
        (version, now): (u64, Timestamp),
        decisions: &mut Decisions,
    ) -> Result<bool, Undecided> {
        // Not a constant: its bytes would be copied.
        let mut charged = std::array::from_fn::<_, N, _>(|_| None);
        let mut is_denied = false;
        for (charged, charge) in charged.iter_mut().zip(list) {
            let fit = self.evaluate_any(charge, now, decisions, charged);
            is_denied |= fit == Fit::Denied && charge.mode == Mode::Enforce;
            if matches!(fit, Fit::Elsewhere | Fit::NotPlain) {
                return Err(Undecided::OtherPath);
            }
        }
        if is_denied {
            return deny(&charged, list, now, decisions);
        }
        let sorted = by_address(&charged).ok_or(Undecided::OtherPath)?;
        let mut locked = [const { None::<AnyLocked<'_>> }; N];
        for (index, charge) in sorted.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| sorted[before]);
            match before.filter(|before| before.line().address() == charge.line().address()) {
                // Both are in one line, and were found there under the same header.
                Some(before) if before.header() == charge.header() => {}
                Some(_) => return Err(Undecided::Lost),
                None => {
                    let line = charge.line().lock_if_unchanged(charge.header());
                    locked[index] = Some(line.ok_or(Undecided::Lost)?);
                }
            }
        }
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

    #[inline(always)]
    fn evaluate_any<'a>(
        &'a self,
        charge: &FastCharge<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
        charged: &mut Option<AnyCharge<'a>>,
    ) -> Fit {
        if Width::of(charge.limit) == Width::Wide {
            let line = self.wide.fetch(charge.hash).home;
            let Some((wide, fit)) = WideCharge::evaluate(line, charge, now, decisions) else {
                return Fit::NotPlain;
            };
            *charged = Some(AnyCharge::Wide(line, wide));
            return fit;
        }
        let mut narrow = None;
        let fit = self.evaluate_narrow(charge, now, decisions, &mut narrow);
        *charged = narrow.map(AnyCharge::Narrow);
        fit
    }
}

impl<'a> AnyCharge<'a> {
    const fn line(&self) -> AnyLine<'a> {
        match self {
            Self::Narrow(charge) => AnyLine::Narrow(charge.line),
            Self::Wide(line, _) => AnyLine::Wide(line),
        }
    }

    const fn header(&self) -> LineHeader {
        match self {
            Self::Narrow(charge) => charge.header,
            Self::Wide(_, charge) => charge.header,
        }
    }

    fn changes(&self) -> bool {
        match self {
            Self::Narrow(charge) => charge.changes(),
            Self::Wide(_, charge) => charge.changes(),
        }
    }

    const fn slot(&self) -> usize {
        match self {
            Self::Narrow(charge) => charge.slot,
            Self::Wide(_, charge) => charge.slot,
        }
    }

    #[inline(always)]
    fn is_still_true(&self, locked: &AnyLocked<'_>) -> bool {
        match (self, locked) {
            (Self::Narrow(charge), AnyLocked::Narrow(line)) => charge.is_still_true(line),
            (Self::Wide(_, charge), AnyLocked::Wide(line)) => charge.is_still_true(line),
            _ => false,
        }
    }

    #[inline(always)]
    fn store(&self, locked: &mut AnyLocked<'_>) {
        match (self, locked) {
            (Self::Narrow(charge), AnyLocked::Narrow(line)) => charge.store(line),
            (Self::Wide(_, charge), AnyLocked::Wide(line)) => charge.store(line),
            _ => unreachable!("a charge is of its own line"),
        }
    }
}

/// Charges in the order in which their lines are locked; `None` if one is missing.
#[inline(always)]
fn by_address<'c, 'a, const N: usize>(
    charged: &'c [Option<AnyCharge<'a>>; N],
) -> Option<[&'c AnyCharge<'a>; N]> {
    let mut sorted = [charged.first()?.as_ref()?; N];
    for (sorted, charged) in sorted.iter_mut().zip(charged) {
        *sorted = charged.as_ref()?;
    }
    sorted.sort_unstable_by_key(|charge| charge.line().address());
    Some(sorted)
}

/// The denial of several charges: nothing is charged, and every limit reports what remains.
#[inline(never)]
fn deny<const N: usize>(
    charged: &[Option<AnyCharge<'_>>; N],
    list: [&FastCharge<'_>; N],
    now: Timestamp,
    decisions: &mut Decisions,
) -> Result<bool, Undecided> {
    for ((charge, decision), charged) in list.into_iter().zip(decisions.iter_mut()).zip(charged) {
        let charged = charged.as_ref().ok_or(Undecided::OtherPath)?;
        if decision.is_allowed() || charged.changes() {
            let state = charged.line().load_state(charged.slot(), charge.limit);
            let at = DecisionTime { now, period: charge.period };
            *decision = charge.limit.peek(&state, charge.cost, at);
        }
    }
    let is_unchanged = |it: &AnyCharge<'_>| it.line().is_unchanged(it.header());
    charged.iter().flatten().all(is_unchanged).then_some(false).ok_or(Undecided::OtherPath)
}
