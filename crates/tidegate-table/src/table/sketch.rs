//! The counters that new keys share while the table is full.
//!
//! Each key has two cells, one in each row. A cell is at least as restrictive as every key that
//! uses it, so the better of a key's two cells is a safe estimate of what the key was charged.

use std::cmp::Reverse;
use std::time::Duration;

use tidegate_core::{Decision, Timestamp};

use super::directory::{Directory, home_of};
use super::grow::presized;
use super::line::{Line, Locked};
use super::{KeyedLimit, LimitSource, Table};

#[derive(Debug)]
pub(crate) struct Sketch<A: KeyedLimit> {
    rows: [Directory<A::Line>; 2],
}

/// The estimate of the shared counters for one key.
pub(crate) struct Estimate<A: KeyedLimit> {
    pub(crate) state: A::State,
    pub(crate) limit_index: usize,
    limit: A,
}

impl<A: KeyedLimit> Estimate<A> {
    pub(crate) fn peek(&self, under: LimitSource<A>, cost: u64, now: Timestamp) -> Decision {
        under.or(|| self.limit).peek(&self.state, cost, now)
    }
}

/// The two cells of a key, locked.
struct Cells<'a, L: Line> {
    lines: [Locked<'a, L>; 2],
    slots: [usize; 2],
}

impl<A: KeyedLimit> Sketch<A> {
    /// Counters for a table: one cell for every eight keys of its capacity, within bounds.
    ///
    /// `None` if there is no memory for them.
    pub(crate) fn new(table: &Table<A>) -> Option<Self> {
        let cells = (table.capacity().max_keys / 8).clamp(MIN_CELLS, MAX_CELLS);
        let (bits, homes) = presized::<A::Line>(cells / 2);
        Some(Self { rows: [Directory::new(bits, homes)?, Directory::new(bits, homes)?] })
    }

    /// An upper bound of what the key was charged.
    pub(crate) fn estimate(&self, table: &Table<A>, hash: u64, now: Timestamp) -> Estimate<A> {
        self.best(table, &mut self.cells(table, hash, now), now)
    }

    /// Charges `cost` to the key's cells, if it fits.
    ///
    /// The caller holds the lock of the key's home line, so the key does not get a slot meanwhile.
    pub(crate) fn check(
        &self,
        table: &Table<A>,
        hash: u64,
        under: LimitSource<A>,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let mut cells = self.cells(table, hash, now);
        let Estimate { mut state, limit, .. } = self.best(table, &mut cells, now);
        let (before, limit) = (state, under.or(|| limit));
        let decision = limit.check(&mut state, cost, now);
        if state != before {
            // A window that a neighbour opened ends earlier than the key's own would.
            let mut alone = limit.fresh();
            let _ = limit.check(&mut alone, cost, now);
            let charged = limit.join(&state, &alone);
            for (line, slot) in cells.lines.iter_mut().zip(cells.slots) {
                let cell = A::unpack(line.load(slot));
                let joined = limit.join(&cell, &charged);
                line.store(slot, A::pack(&joined));
            }
        }
        decision
    }

    pub(crate) fn for_each_line(&self, mut visit: impl FnMut(&mut Locked<'_, A::Line>)) {
        for row in &self.rows {
            for line in row.segments().flat_map(|segment| row.lines(segment)) {
                visit(&mut Locked::new(line));
            }
        }
    }

    /// Locks the key's two cells, counted under the same limit.
    fn cells(&self, table: &Table<A>, hash: u64, now: Timestamp) -> Cells<'_, A::Line> {
        // Other bits than those that chose the key's own segment and line, different for each row.
        let spread = |hash: u64| (hash ^ (hash >> 29)).wrapping_mul(SPREAD);
        let hashes = [spread(hash), spread(spread(hash).rotate_left(32))];
        let line = |row: usize| {
            let (row, hash) = (&self.rows[row], hashes[row]);
            Locked::new(&row.chain(row.entry(hash), hash)[0])
        };
        let mut lines = [line(0), line(1)];
        let current = table.limits.current_index();
        lines.iter_mut().for_each(|line| table.migrate(line, current, now));
        Cells { lines, slots: hashes.map(|hash| home_of(spread(hash), A::Line::SLOTS)) }
    }

    /// The better of the two cells.
    fn best(
        &self,
        table: &Table<A>,
        cells: &mut Cells<'_, A::Line>,
        now: Timestamp,
    ) -> Estimate<A> {
        let limit_index = cells.lines[0].header.limit_index();
        let limit = table.limits.get(limit_index);
        for (line, slot) in cells.lines.iter_mut().zip(cells.slots) {
            // An idle cell is cleared, like an idle slot.
            if limit.is_idle(&A::unpack(line.load(slot)), now) {
                table.table.note_reuse(now);
                line.store(slot, Default::default());
            }
        }
        let states = [0, 1].map(|row| A::unpack(cells.lines[row].load(cells.slots[row])));
        let [first, second] = states.map(|state| {
            let decision = limit.peek(&state, 1, now);
            let reset = decision.reset().unwrap_or(Duration::MAX);
            (decision.is_allowed(), decision.remaining(), Reverse(reset))
        });
        let state = if first >= second { states[0] } else { states[1] };
        Estimate { state, limit_index, limit }
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const MIN_CELLS: usize = if cfg!(loom) { 2 } else { 256 };
const MAX_CELLS: usize = 1 << 19;
