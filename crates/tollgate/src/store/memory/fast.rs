//! The fast way: known keys in their home lines, with nothing special about them, all allowed.
//!
//! States stay packed, and answers are written where they are to be. Whatever is not that simple is
//! left to the other ways, with nothing changed.

use smallvec::SmallVec;
use tollgate_core::{Decision, Timestamp};

use super::{Charge, MemoryStore, Plan, Several};
use crate::keyed::sealed::Pack;
use crate::table::{
    Header, Line, Locked, Narrow, NarrowLine, Tagged, TaggedLine, find, is_unchanged, read_header,
};
use crate::terms::{Decisions, Terms, Weight};

/// A key's slot, and what becomes of its state.
#[derive(Clone, Copy)]
struct Step<'a> {
    line: &'a TaggedLine,
    header: Header,
    slot: usize,
    hash: u64,
    before: Tagged<Narrow>,
    after: Narrow,
}

impl MemoryStore {
    /// Decides about a plan of a few plain charges; `None` if it has to be done another way.
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
            let is_allowed = decision.is_allowed() || charge.weight == Weight::Advisory;
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
        let mut homes: Several<&TaggedLine> = SmallVec::new();
        for charge in &plan.charges {
            homes.push(self.narrow.fetch(charge.hash).home);
        }
        let mut steps: Several<Step<'_>> = SmallVec::new();
        for (charge, line) in plan.charges.iter().zip(homes) {
            let (step, decision) = step(line, charge, now)?;
            if !decision.is_allowed() && charge.weight == Weight::Binding {
                // A refusal has to say what everybody has left.
                return None;
            }
            decisions.push(decision);
            steps.push(step);
        }
        steps.sort_unstable_by_key(|step| std::ptr::from_ref(step.line).addr());
        let mut locked: Several<Locked<'_, TaggedLine>> = SmallVec::new();
        for (index, step) in steps.iter().enumerate() {
            match index.checked_sub(1).map(|before| &steps[before]) {
                Some(before) if std::ptr::eq(before.line, step.line) => {
                    // Both are in one line. Should it have changed between the two looks, the lock
                    // was not to be had; the headers say whether.
                    if before.header != step.header {
                        return None;
                    }
                }
                _ => locked.push(Locked::if_unchanged(step.line, step.header)?),
            }
        }
        let is_true = |step: &Step<'_>| locked.iter().any(|line| step.is_still_true(line));
        if self.in_force(plan).is_err() || !steps.iter().all(is_true) {
            return None;
        }
        for step in &steps {
            let line = locked.iter_mut().find(|line| std::ptr::eq(line.line(), step.line))?;
            step.store(line);
        }
        Some(true)
    }
}

/// What a charge makes of the state in its line; `None` if the key is not there, or not alone.
#[inline(always)]
fn step<'a>(
    line: &'a TaggedLine,
    charge: &Charge<'_>,
    now: Timestamp,
) -> Option<(Step<'a>, Decision)> {
    let header = read_header(line);
    let slot = find(line, charge.hash)?;
    let before = line.load(slot);
    if header.is_pinned(slot) || before.tag != charge.tag || charge.charge_refused {
        return None;
    }
    let (decision, after) = match charge.terms {
        Terms::Bucket(limit) => check(limit, before.packed, charge.cost, now),
        Terms::Window(limit) => check(limit, before.packed, charge.cost, now),
        Terms::Cooldown(limit) => check(limit, before.packed, charge.cost, now),
        Terms::Sliding(_) | Terms::Quota(_) | Terms::Slots(_) => return None,
    };
    Some((Step { line, header, slot, hash: charge.hash, before, after }, decision))
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

impl Step<'_> {
    /// Whether the slot is as it was. The count of writes in a header wraps, so the slot itself has
    /// the last word.
    #[inline(always)]
    fn is_still_true(&self, line: &Locked<'_, TaggedLine>) -> bool {
        std::ptr::eq(line.line(), self.line)
            && line.fingerprint(self.slot) == self.hash
            && line.load(self.slot) == self.before
    }

    #[inline(always)]
    fn store(&self, line: &mut Locked<'_, TaggedLine>) {
        line.store(self.slot, Tagged { tag: self.before.tag, packed: self.after });
    }
}

/// The most charges that are decided this way.
const MOST: usize = crate::terms::INLINE;
