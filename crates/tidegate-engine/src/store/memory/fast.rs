//! The fast path: known keys in their home lines, without holds or old limits.
//!
//! States stay packed, and decisions are written into the caller's buffer. Everything else is left
//! to the other paths, with nothing changed.

use tidegate_core::{Decision, Timestamp};
use tidegate_policy::policy::Mode;
use tidegate_table::table::keyed::sealed::Pack;
use tidegate_table::table::{
    Line, LineHeader, Locked, Narrow, NarrowLine, SlotTable, Tagged, TaggedLine, Wide, WideLine,
    find, is_unchanged, read_header,
};

use super::slot::{AnyLine, AnyLocked, SlotLine, unpack_wide};
use super::{Charge, MemoryStore, Width};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime, Decisions};
use crate::plan::FastCharges;

/// A charge of a slot that was read without a lock.
#[derive(Clone, Copy)]
struct SlotCharge<P> {
    header: LineHeader,
    slot: usize,
    hash: u64,
    before: P,
    after: P,
}

/// A charge in a line of either width.
#[derive(Clone, Copy)]
struct LineCharge<'a> {
    line: AnyLine<'a>,
    /// The header and the slot of either, and the states of a narrow one.
    at: SlotCharge<Tagged<Narrow>>,
}

/// The charges of wide slots, which are large, beside their [`LineCharge`]s: as many, or none where
/// all slots are narrow.
type WideCharges<const W: usize> = [Option<SlotCharge<Tagged<Wide>>>; W];

/// A line whose slots are charged as they lie there.
trait FastLine: SlotLine {
    /// The decision on a charge, and the slot afterwards; `None` if its state is not plain.
    fn charge(
        before: &Self::Packed,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<(Decision, Self::Packed)>;

    /// The number of the limit that a slot counts under.
    fn tag_of(packed: &Self::Packed) -> u32;
}

impl MemoryStore {
    /// Decides a few plain charges; `None` if they need another path.
    #[inline(always)]
    pub(super) fn charge_fast(
        &self,
        FastCharges { version, list }: FastCharges<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        decisions.clear();
        match list {
            [charge] => match Width::of(charge.limit) {
                Width::Narrow => self.charge_one(&self.narrow, (version, charge), now, decisions),
                Width::Wide => self.charge_one_wide((version, charge), now, decisions),
                Width::None => None,
            },
            [a, b] if is_narrow(list) => {
                self.charge_several::<2, 0>((version, [a, b]), now, decisions)
            }
            [a, b] => self.charge_several::<2, 2>((version, [a, b]), now, decisions),
            [a, b, c] if is_narrow(list) => {
                self.charge_several::<3, 0>((version, [a, b, c]), now, decisions)
            }
            [a, b, c] => self.charge_several::<3, 3>((version, [a, b, c]), now, decisions),
            _ => None,
        }
    }

    #[inline(never)]
    fn charge_one_wide(
        &self,
        charge: (u64, &Charge<'_>),
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        self.charge_one(&self.wide, charge, now, decisions)
    }

    #[inline(always)]
    fn charge_one<L: FastLine>(
        &self,
        table: &SlotTable<L>,
        (version, charge): (u64, &Charge<'_>),
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        let line = table.fetch(charge.hash).home;
        loop {
            let (charged, decision) = charge_slot(line, charge, now)?;
            if charged.after == charged.before {
                if !is_unchanged(line, charged.header) {
                    continue;
                }
            } else {
                let mut locked = Locked::if_unchanged(line, charged.header)?;
                if self.is_in_force(version).is_err() || !charged.is_still_true(&locked) {
                    return None;
                }
                locked.store(charged.slot, charged.after);
            }
            let is_allowed = decision.is_allowed() || charge.mode == Mode::Shadow;
            decisions.push(decision);
            return Some(is_allowed);
        }
    }

    /// Decides several charges, with room for as many in wide slots, or for none.
    #[inline(never)]
    fn charge_several<const N: usize, const W: usize>(
        &self,
        (version, list): (u64, [&Charge<'_>; N]),
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        let homes = list.map(|charge| match Width::of(charge.limit) {
            Width::Wide => AnyLine::Wide(self.wide.fetch(charge.hash).home),
            Width::Narrow | Width::None => AnyLine::Narrow(self.narrow.fetch(charge.hash).home),
        });
        let mut charged = homes.map(|line| LineCharge { line, at: SlotCharge::NOTHING });
        let mut wide: WideCharges<W> = [const { None }; W];
        let mut is_denied = false;
        for (index, charge) in list.into_iter().enumerate() {
            let decision = charged[index].charge(wide.get_mut(index), charge, now)?;
            is_denied |= !decision.is_allowed() && charge.mode == Mode::Enforce;
            decisions.push(decision);
        }
        if is_denied {
            return deny((&charged, &wide), list, now, decisions);
        }
        let order = by_address(&charged);
        let mut locked = [const { None::<AnyLocked<'_>> }; N];
        // The index of the charge that has the lock of each one's line.
        let mut owners = order;
        for (at, &index) in order.iter().enumerate() {
            let LineCharge { line, at: slot } = &charged[index];
            let before = at.checked_sub(1).map(|before| order[before]);
            match before.filter(|it| charged[*it].line.address() == line.address()) {
                // Both are in one line, and were found there under the same header.
                Some(before) if charged[before].at.header == slot.header => {
                    owners[index] = owners[before];
                }
                Some(_) => return None,
                None => {
                    locked[index] = Some(line.lock_if_unchanged(slot.header)?);
                    owners[index] = index;
                }
            }
        }
        if self.is_in_force(version).is_err() {
            return None;
        }
        for (index, owner) in owners.into_iter().enumerate() {
            if !charged[index].is_still_true(wide_at(&wide, index), locked[owner].as_ref()?) {
                return None;
            }
        }
        for (index, owner) in owners.into_iter().enumerate() {
            charged[index].store(wide_at(&wide, index), locked[owner].as_mut()?);
        }
        Some(true)
    }
}

/// Whether no charge is of a wide slot.
#[inline(always)]
fn is_narrow(list: &[Charge<'_>]) -> bool {
    list.iter().all(|charge| Width::of(charge.limit) != Width::Wide)
}

/// The charge of a wide slot, if it is one.
#[inline(always)]
fn wide_at<const W: usize>(
    wide: &WideCharges<W>,
    index: usize,
) -> Option<&SlotCharge<Tagged<Wide>>> {
    wide.get(index).and_then(Option::as_ref)
}

/// The denial of several charges: nothing is charged, and every limit reports what remains. `None`
/// if a state has changed meanwhile.
#[inline(never)]
fn deny<const N: usize, const W: usize>(
    (charged, wide): (&[LineCharge<'_>; N], &WideCharges<W>),
    list: [&Charge<'_>; N],
    now: Timestamp,
    decisions: &mut Decisions,
) -> Option<bool> {
    for (index, (charge, decision)) in list.into_iter().zip(&mut *decisions).enumerate() {
        let LineCharge { line, at } = &charged[index];
        if decision.is_allowed() || charged[index].changes(wide_at(wide, index)) {
            let state = line.load_state(at.slot, charge.limit);
            let at = DecisionTime { now, period: charge.period };
            *decision = charge.limit.peek(&state, charge.cost, at);
        }
    }
    charged.iter().all(|it| it.line.is_unchanged(it.at.header)).then_some(false)
}

/// The indexes of charges in the order in which their lines are locked.
#[inline(always)]
fn by_address<const N: usize>(charged: &[LineCharge<'_>; N]) -> [usize; N] {
    let mut order = std::array::from_fn(|index| index);
    // Two or three: neighbours are swapped until they are in order.
    for end in (1..N).rev() {
        for at in 0..end {
            let address = |at: usize| charged[order[at]].line.address();
            if address(at) > address(at + 1) {
                order.swap(at, at + 1);
            }
        }
    }
    order
}

/// A slot after a charge; `None` if the key is not in this line, or its state is not plain.
#[inline(always)]
fn charge_slot<L: FastLine>(
    line: &L,
    charge: &Charge<'_>,
    now: Timestamp,
) -> Option<(SlotCharge<L::Packed>, Decision)> {
    let header = read_header(line);
    let slot = find(line, charge.hash)?;
    let before = line.load(slot);
    if header.is_pinned(slot) || L::tag_of(&before) != charge.tag || charge.charge_refused {
        return None;
    }
    let (decision, after) = L::charge(&before, charge, now)?;
    Some((SlotCharge { header, slot, hash: charge.hash, before, after }, decision))
}

impl FastLine for TaggedLine {
    #[inline(always)]
    fn charge(
        before: &Tagged<Narrow>,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<(Decision, Tagged<Narrow>)> {
        let Tagged { tag, packed } = *before;
        let (decision, packed) = match charge.limit {
            AnyLimit::Bucket(limit) => check(limit, packed, charge.cost, now),
            AnyLimit::Window(limit) => check(limit, packed, charge.cost, now),
            AnyLimit::Cooldown(limit) => check(limit, packed, charge.cost, now),
            AnyLimit::Sliding(_) | AnyLimit::Quota(_) | AnyLimit::Slots(_) => return None,
        };
        Some((decision, Tagged { tag, packed }))
    }

    #[inline(always)]
    fn tag_of(packed: &Tagged<Narrow>) -> u32 {
        packed.tag
    }
}

impl FastLine for WideLine {
    #[inline(always)]
    fn charge(
        before: &Tagged<Wide>,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<(Decision, Tagged<Wide>)> {
        let mut state = unpack_wide(&before.packed, charge.limit);
        let at = DecisionTime { now, period: charge.period };
        let decision = charge.limit.check(&mut state, charge.cost, at);
        if !decision.is_allowed() {
            return Some((decision, *before));
        }
        match &state {
            // The request came late, and the slot has the end of a later period.
            AnyState::Quota(state) if state.period != charge.period.index => None,
            state => Some((decision, Self::pack(before.tag, state, at))),
        }
    }

    #[inline(always)]
    fn tag_of(packed: &Tagged<Wide>) -> u32 {
        packed.tag
    }
}

#[inline(always)]
fn check<A: Pack<Line = NarrowLine>>(
    limit: &A,
    packed: Narrow,
    cost: u64,
    now: Timestamp,
) -> (Decision, Narrow) {
    let mut state = A::unpack(packed);
    let decision = limit.check(&mut state, cost, now);
    (decision, A::pack(&state))
}

impl<P: Copy + PartialEq> SlotCharge<P> {
    /// Whether the slot is as it was. The count of writes in a header wraps, so the slot itself is
    /// compared.
    #[inline(always)]
    fn is_still_true<L: Line<Packed = P>>(&self, line: &Locked<'_, L>) -> bool {
        line.fingerprint(self.slot) == self.hash && line.load(self.slot) == self.before
    }
}

impl SlotCharge<Tagged<Narrow>> {
    /// Of a slot that was not read yet.
    const NOTHING: Self = {
        let nothing = Tagged { tag: 0, packed: Narrow { high: 0, low: 0 } };
        Self { header: LineHeader::EMPTY, slot: 0, hash: 0, before: nothing, after: nothing }
    };
}

impl LineCharge<'_> {
    /// Charges a slot of the line; `None` if the key is not there, or its state is not plain.
    #[inline(always)]
    fn charge(
        &mut self,
        wide: Option<&mut Option<SlotCharge<Tagged<Wide>>>>,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<Decision> {
        match self.line {
            AnyLine::Narrow(line) => {
                let (charged, decision) = charge_slot(line, charge, now)?;
                self.at = charged;
                Some(decision)
            }
            AnyLine::Wide(line) => {
                let (charged, decision) = charge_slot(line, charge, now)?;
                (self.at.header, self.at.slot) = (charged.header, charged.slot);
                *wide? = Some(charged);
                Some(decision)
            }
        }
    }

    /// Whether the state is another one afterwards.
    fn changes(&self, wide: Option<&SlotCharge<Tagged<Wide>>>) -> bool {
        match wide {
            Some(wide) => wide.after != wide.before,
            None => self.at.after != self.at.before,
        }
    }

    /// Whether the slot is as it was.
    #[inline(always)]
    fn is_still_true(
        &self,
        wide: Option<&SlotCharge<Tagged<Wide>>>,
        locked: &AnyLocked<'_>,
    ) -> bool {
        match (locked, wide) {
            (AnyLocked::Narrow(line), None) => self.at.is_still_true(line),
            (AnyLocked::Wide(line), Some(wide)) => wide.is_still_true(line),
            _ => false,
        }
    }

    /// Stores the state afterwards.
    #[inline(always)]
    fn store(&self, wide: Option<&SlotCharge<Tagged<Wide>>>, locked: &mut AnyLocked<'_>) {
        match (locked, wide) {
            (AnyLocked::Narrow(line), _) => line.store(self.at.slot, self.at.after),
            (AnyLocked::Wide(line), Some(wide)) => line.store(wide.slot, wide.after),
            (AnyLocked::Wide(_), None) => unreachable!("a charge of a wide line is a wide one"),
        }
    }
}
