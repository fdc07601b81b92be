//! The unlocked path: lines are read without a lock, and their headers prove that the reads are
//! consistent.

use std::sync::atomic::Ordering;

use tidegate_core::Timestamp;
use tidegate_table::table::{find, read_header};

use super::slot::{AnyLine, AnyLocked, SlotLine};
use super::{
    Charge, DecideError, Decisions, LineHeader, MemoryStore, Plan, Several, SlotTable, Width,
};
use crate::any_limit::decide;

/// The position of a charge's state, while its line is not locked.
pub(super) struct ObservedState<'a> {
    pub(super) line: AnyLine<'a>,
    pub(super) header: LineHeader,
    pub(super) slot: Option<usize>,
}

/// What came of a decision on lines that were not locked.
pub(super) enum Unlocked {
    Decided(bool),
    /// A line was changed meanwhile.
    Changed,
    /// A key has to be inserted, has a hold, or counts under an older limit: another try would not
    /// help.
    NeedsLocks,
}

impl MemoryStore {
    /// Decides on lines that are read without a lock.
    pub(super) fn decide_unlocked(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) -> Result<Unlocked, DecideError> {
        let (mut seen, mut requests) = (Several::new(), Several::new());
        let mut states = Several::new();
        for charge in &plan.charges {
            let Some(found) = self.look_up(charge) else { return Ok(Unlocked::NeedsLocks) };
            let mut request = charge.limit_request(now);
            states.push(match found.slot {
                Some(slot) if found.line.tag(slot) == charge.tag => {
                    found.line.load_state(slot, charge.limit)
                }
                Some(_) => return Ok(Unlocked::NeedsLocks),
                // Its wait is not that of a key that is known: see `transition::decide`.
                None if plan.act.is_look() && charge.limit.knows_from_first_request() => {
                    return Ok(Unlocked::NeedsLocks);
                }
                None => {
                    request.decided_at.now = self.no_earlier_than_reuse(charge.limit, now);
                    charge.limit.fresh(charge.period)
                }
            });
            requests.push(request);
            seen.push(found);
        }
        let before = states.clone();
        let is_allowed = decide(plan.act, &requests, &mut states, decisions);
        let is_stored = |(seen, charge): (&ObservedState<'_>, &Charge<'_>)| {
            seen.slot.is_none() && !plan.act.is_look() && charge.limit.knows_from_first_request()
        };
        if states == before && !seen.iter().zip(&plan.charges).any(is_stored) {
            let is_sound = seen.iter().zip(&plan.charges).all(|(seen, charge)| {
                // A key that was not found may have moved before; its home is compared again.
                let is_home = seen.slot.is_some() || self.home(charge) == Some(seen.line.address());
                seen.line.is_unchanged(seen.header) && is_home
            });
            let decided = Unlocked::Decided(is_allowed);
            return Ok(if is_sound { decided } else { Unlocked::Changed });
        }
        if seen.iter().any(|seen| seen.slot.is_none()) {
            return Ok(Unlocked::NeedsLocks);
        }
        let Some(mut lines) = lock_unchanged(&seen) else { return Ok(Unlocked::Changed) };
        self.in_force(plan)?;
        let spots = || {
            seen.iter().zip(&plan.charges).map(|(seen, charge)| {
                let line = lines.iter().position(|line| line.address() == seen.line.address());
                (line, seen.slot, charge)
            })
        };
        // The count of writes in a header wraps; the slots themselves are compared.
        let is_sound = spots().zip(&before).all(|((line, slot, charge), before)| {
            line.zip(slot).is_some_and(|(line, slot)| {
                lines[line].find(charge.hash) == Some(slot)
                    && lines[line].load_state(slot, charge.limit) == *before
            })
        });
        if !is_sound {
            return Ok(Unlocked::Changed);
        }
        let positions: Several<_> = spots().map(|(line, slot, _)| line.zip(slot)).collect();
        for (index, charge) in plan.charges.iter().enumerate() {
            if let Some((line, slot)) = positions[index]
                && states[index] != before[index]
            {
                lines[line].store(slot, charge.tag, &states[index], requests[index].decided_at);
            }
        }
        Ok(Unlocked::Decided(is_allowed))
    }

    /// The position of a charge's state, without a lock; `None` if that needs the hold tables.
    pub(super) fn look_up(&self, charge: &Charge<'_>) -> Option<ObservedState<'_>> {
        match Width::of(charge.limit) {
            Width::Narrow => look_up_in(&self.narrow, charge.hash, AnyLine::Narrow),
            Width::Wide => look_up_in(&self.wide, charge.hash, AnyLine::Wide),
            Width::None => None,
        }
        .filter(|seen| match seen.slot {
            Some(slot) => !seen.header.is_pinned(slot),
            None => !self.is_sharing.load(Ordering::Acquire),
        })
    }

    /// The address of the home line of a charge's key.
    pub(super) fn home(&self, charge: &Charge<'_>) -> Option<usize> {
        match Width::of(charge.limit) {
            Width::Narrow => Some(AnyLine::Narrow(&self.narrow.chain(charge.hash)[0]).address()),
            Width::Wide => Some(AnyLine::Wide(&self.wide.chain(charge.hash)[0]).address()),
            Width::None => None,
        }
    }
}

/// A key's line and slot, or its home line if it has no slot.
///
/// A key that is not found cannot be inserted while the header of its home is unchanged.
pub(super) fn look_up_in<'a, L: SlotLine>(
    table: &'a SlotTable<L>,
    hash: u64,
    any: impl Fn(&'a L) -> AnyLine<'a>,
) -> Option<ObservedState<'a>> {
    let chain = table.chain(hash);
    let mut home = None;
    for line in chain {
        let header = read_header(line);
        home.get_or_insert(header);
        if let Some(slot) = find(line, hash) {
            return Some(ObservedState { line: any(line), header, slot: Some(slot) });
        }
        if !header.is_overflowed() {
            break;
        }
    }
    Some(ObservedState { line: any(&chain[0]), header: home?, slot: None })
}

/// Locks lines in the order of their addresses, if none has changed since it was seen.
pub(super) fn lock_unchanged<'a>(
    seen: &Several<ObservedState<'a>>,
) -> Option<Several<AnyLocked<'a>>> {
    let mut order: Several<&ObservedState<'a>> = seen.iter().collect();
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
