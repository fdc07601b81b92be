//! Overflow counters, which new keys share while the table is full.
//!
//! Each rule has its own, in two rows, and each key one cell in each row. A cell is at least as
//! restrictive as every key that uses it, so the better of a key's two cells is a safe estimate of
//! what the key was charged.

use std::collections::HashMap;

use tidegate_core::Timestamp;

use crate::any_limit::{AnyLimit, AnyState, DecisionTime, LimitRequest, NO_PERIOD};
use crate::history::{History, KeyRef, StoredState};
use crate::store::Charge;

#[derive(Debug, Default)]
pub(crate) struct Overflow {
    by_family: HashMap<u64, Vec<OverflowCell>>,
}

/// A state with the limit that it counts under; `None` where it is unused.
type OverflowCell = Option<(StoredState, AnyLimit)>;

impl Overflow {
    /// An upper bound of what the key was charged; `None` if it was charged nothing.
    pub(crate) fn estimate(
        &self,
        (charge, key): (&Charge<'_>, KeyRef<'_>),
        history: &History,
        now: Timestamp,
    ) -> Option<AnyState> {
        let cells = self.by_family.get(&charge.family)?;
        let fresh = charge.limit.fresh(charge.period);
        let [first, second] = cell_indexes(charge.hash, cells.len())
            .map(|index| state_in(&cells[index], (charge, key), history, now).unwrap_or(fresh));
        let rank = |state: &AnyState| {
            let look = charge.limit.peek(state, 1, charge.limit_request(now).decided_at);
            (look.is_allowed(), look.remaining(), std::cmp::Reverse(look.reset()))
        };
        let best = if rank(&first) >= rank(&second) { first } else { second };
        (best != fresh).then_some(best)
    }

    /// Counts a charge that changed the key's estimate to `after`.
    pub(crate) fn charge(
        &mut self,
        (charge, key, after): (&Charge<'_>, KeyRef<'_>, AnyState),
        history: &History,
        now: Timestamp,
        most_cells: usize,
    ) {
        let LimitRequest { limit, decided_at, .. } = charge.limit_request(now);
        // A window that a neighbour opened ends earlier than the key's own would.
        let mut alone = limit.fresh(charge.period);
        let _ = limit.check(&mut alone, charge.cost, decided_at);
        let charged = limit.join(&after, &alone);
        let cells = (self.by_family.entry(charge.family))
            .or_insert_with(|| vec![None; most_cells.clamp(MIN_CELLS, MAX_CELLS)]);
        for index in cell_indexes(charge.hash, cells.len()) {
            let state = match state_in(&cells[index], (charge, key), history, now) {
                Some(state) => limit.join(&state, &charged),
                None => charged,
            };
            cells[index] = Some((StoredState { tag: charge.tag, state }, *limit));
        }
    }

    /// The limits that the cells count under.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        self.by_family.values().flatten().flatten().map(|(stored, _)| stored.tag)
    }
}

/// A cell's state under the charge's limit; `None` if it is as good as fresh.
///
/// Keys with different overrides may share a cell, so it knows its limit.
fn state_in(
    cell: &OverflowCell,
    (charge, key): (&Charge<'_>, KeyRef<'_>),
    history: &History,
    now: Timestamp,
) -> Option<AnyState> {
    let (stored, limit) = (*cell)?;
    let state = if stored.tag == charge.tag && limit == *charge.limit {
        stored.state
    } else if stored.tag == charge.tag {
        let at = DecisionTime { now, period: NO_PERIOD };
        charge.limit.carry_over(&limit, &stored.state, at)
    } else {
        history.current_of_charge(stored, charge, key, now).state
    };
    (!charge.limit.is_idle(&state, now)).then_some(state)
}

/// The key's cell in each of the two rows.
fn cell_indexes(hash: u64, cells: usize) -> [usize; 2] {
    let row = (cells / 2) as u64;
    let spread = |hash: u64| (hash ^ (hash >> 29)).wrapping_mul(SPREAD);
    let first = spread(hash);
    let second = spread(first.rotate_left(32));
    #[allow(clippy::cast_possible_truncation, reason = "below the number of cells")]
    [first, second]
        .map(|hash| ((u128::from(hash) * u128::from(row)) >> 64) as usize)
        .into_iter()
        .enumerate()
        .fold([0; 2], |mut indexes, (row, index)| {
            indexes[row] = index + row * (cells / 2);
            indexes
        })
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const MIN_CELLS: usize = 64;
const MAX_CELLS: usize = 1 << 16;
