//! Overflow counters, which new keys share while the table is full.
//!
//! Each rule has its own, in two rows, and each key one cell in each row. A cell is at least as
//! restrictive as every key that uses it, so the better of a key's two cells is a safe estimate of
//! what the key was charged.

use std::collections::HashMap;

use tidegate_core::Timestamp;

use super::limits::LimitRegistry;
use crate::any_limit::{AnyState, LimitRequest};
use crate::store::Charge;

#[derive(Debug, Default)]
pub(crate) struct Overflow {
    by_family: HashMap<u64, Vec<OverflowCell>>,
}

/// A state with the number of the limit that it counts under; `None` where it is unused.
type OverflowCell = Option<(u32, AnyState)>;

impl Overflow {
    /// An upper bound of what the key was charged.
    pub(crate) fn estimate(
        &self,
        charge: &Charge<'_>,
        limits: &LimitRegistry,
        now: Timestamp,
    ) -> AnyState {
        let fresh = charge.limit.fresh(charge.period);
        let Some(cells) = self.by_family.get(&charge.family) else { return fresh };
        let [first, second] = cell_indexes(charge.hash, cells.len())
            .map(|index| state_in(&cells[index], charge, limits, now).unwrap_or(fresh));
        let rank = |state: &AnyState| {
            let look = charge.limit.peek(state, 1, charge.limit_request(now).decided_at);
            (look.is_allowed(), look.remaining(), std::cmp::Reverse(look.reset()))
        };
        if rank(&first) >= rank(&second) { first } else { second }
    }

    /// Counts a charge that changed the key's estimate to `after`.
    pub(crate) fn charge(
        &mut self,
        (charge, after): (&Charge<'_>, AnyState),
        limits: &LimitRegistry,
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
            let joined = match state_in(&cells[index], charge, limits, now) {
                Some(state) => limit.join(&state, &charged),
                None => charged,
            };
            cells[index] = Some((charge.tag, joined));
        }
    }

    /// The limits that the cells count under.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        self.by_family.values().flatten().flatten().map(|(tag, _)| *tag)
    }
}

/// A cell's state under the charge's limit; `None` if it is as good as fresh.
fn state_in(
    cell: &OverflowCell,
    charge: &Charge<'_>,
    limits: &LimitRegistry,
    now: Timestamp,
) -> Option<AnyState> {
    let (tag, state) = (*cell)?;
    let state = if tag == charge.tag { state } else { limits.carry(tag, state, charge, now).state };
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
