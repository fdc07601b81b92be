//! The fast path: known keys in their home lines, without holds or old limits, all allowed.
//!
//! States stay packed, and decisions are written into the caller's buffer. Everything else is left
//! to the other paths, with nothing changed.

use tidegate_core::{Decision, Timestamp};
use tidegate_policy::policy::Mode;
use tidegate_table::table::keyed::sealed::Pack;
use tidegate_table::table::{
    Line, LineHeader, Locked, Narrow, NarrowLine, Tagged, TaggedLine, find, is_unchanged,
    read_header,
};

use super::{Charge, MemoryStore, Plan};
use crate::any_limit::{AnyLimit, Decisions};

/// A key's slot, and its state before and after.
#[derive(Clone, Copy)]
struct FastStep<'a> {
    line: &'a TaggedLine,
    header: LineHeader,
    slot: usize,
    hash: u64,
    before: Tagged<Narrow>,
    after: Narrow,
}

impl MemoryStore {
    /// Decides a plan of a few plain charges; `None` if it needs another path.
    #[inline(always)]
    pub(super) fn decide_fast(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        decisions.clear();
        match plan.charges.as_slice() {
            [charge] => self.charge_one(plan, charge, now, decisions),
            charges if charges.len() <= MOST => self.charge_several(plan, now, decisions),
            _ => None,
        }
    }

    #[inline(always)]
    fn charge_one(
        &self,
        plan: &Plan<'_>,
        charge: &Charge<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        let line = self.narrow.fetch(charge.hash).home;
        loop {
            let (step, decision) = step(line, charge, now)?;
            if step.after == step.before.packed {
                if !is_unchanged(line, step.header) {
                    continue;
                }
            } else {
                let mut locked = Locked::if_unchanged(line, step.header)?;
                if self.in_force(plan).is_err() || !step.is_still_true(&locked) {
                    return None;
                }
                step.store(&mut locked);
            }
            let is_allowed = decision.is_allowed() || charge.mode == Mode::Shadow;
            decisions.push(decision);
            return Some(is_allowed);
        }
    }

    #[inline(never)]
    fn charge_several(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Option<bool> {
        let mut homes = [None; MOST];
        for (home, charge) in homes.iter_mut().zip(&plan.charges) {
            *home = Some(self.narrow.fetch(charge.hash).home);
        }
        let mut steps = [None; MOST];
        for ((entry, home), charge) in steps.iter_mut().zip(homes).zip(&plan.charges) {
            let (step, decision) = step(home?, charge, now)?;
            if !decision.is_allowed() && charge.mode == Mode::Enforce {
                // A denial has to report what remains at every limit.
                return None;
            }
            decisions.push(decision);
            *entry = Some(step);
        }
        let steps = &mut steps[..plan.charges.len()];
        steps.sort_unstable_by_key(|step| step.map(|step| std::ptr::from_ref(step.line).addr()));
        let mut locked = [const { None::<Locked<'_, TaggedLine>> }; MOST];
        let mut owners = [0; MOST];
        for (index, step) in steps.iter().enumerate() {
            let step = (*step)?;
            let before = index.checked_sub(1).and_then(|before| steps[before]);
            match before.filter(|before| std::ptr::eq(before.line, step.line)) {
                // Both are in one line, and were found there under the same header.
                Some(before) if before.header == step.header => owners[index] = owners[index - 1],
                Some(_) => return None,
                None => {
                    locked[index] = Some(Locked::if_unchanged(step.line, step.header)?);
                    owners[index] = index;
                }
            }
        }
        if self.in_force(plan).is_err() {
            return None;
        }
        for (step, owner) in steps.iter().zip(owners) {
            if !(*step)?.is_still_true(locked[owner].as_ref()?) {
                return None;
            }
        }
        for (step, owner) in steps.iter().zip(owners) {
            (*step)?.store(locked[owner].as_mut()?);
        }
        Some(true)
    }
}

/// The state after a charge; `None` if the key is not in this line, or its state is not plain.
#[inline(always)]
fn step<'a>(
    line: &'a TaggedLine,
    charge: &Charge<'_>,
    now: Timestamp,
) -> Option<(FastStep<'a>, Decision)> {
    let header = read_header(line);
    let slot = find(line, charge.hash)?;
    let before = line.load(slot);
    if header.is_pinned(slot) || before.tag != charge.tag || charge.charge_refused {
        return None;
    }
    let (decision, after) = match charge.limit {
        AnyLimit::Bucket(limit) => check(limit, before.packed, charge.cost, now),
        AnyLimit::Window(limit) => check(limit, before.packed, charge.cost, now),
        AnyLimit::Cooldown(limit) => check(limit, before.packed, charge.cost, now),
        AnyLimit::Sliding(_) | AnyLimit::Quota(_) | AnyLimit::Slots(_) => return None,
    };
    Some((FastStep { line, header, slot, hash: charge.hash, before, after }, decision))
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

impl FastStep<'_> {
    /// Whether the slot is as it was. The count of writes in a header wraps, so the slot itself is
    /// compared.
    #[inline(always)]
    fn is_still_true(&self, line: &Locked<'_, TaggedLine>) -> bool {
        line.fingerprint(self.slot) == self.hash && line.load(self.slot) == self.before
    }

    #[inline(always)]
    fn store(&self, line: &mut Locked<'_, TaggedLine>) {
        line.store(self.slot, Tagged { tag: self.before.tag, packed: self.after });
    }
}

/// The most charges on this path.
const MOST: usize = crate::any_limit::INLINE;
