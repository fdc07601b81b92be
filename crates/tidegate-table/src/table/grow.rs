//! How the table grows: one segment at a time, where a new key found its chain full.
//!
//! The idle keys of the segment are dropped. If that made room, the others are compacted in
//! the same lines. Else a new segment takes the keys whose next hash bit is set. Segments differ in
//! size, so that they do not all split at the same time, which would let the bytes per key swing by
//! a factor of two.

use tidegate_core::Timestamp;

use super::arena::prefetch;
use super::directory::{DirectoryEntry, MAX_HOMES, NewSegment, PROBE, SplitHalf, home_of};
use super::line::{Line, Locked};
use super::slot_table::{KEPT_IDLE, SlotPolicy, SlotTable};
use super::sync::Ordering;

impl<L: Line> SlotTable<L> {
    /// Makes room in the segment of a hash; false when the table cannot have more lines.
    pub(super) fn grow(
        &self,
        policy: &impl SlotPolicy<L>,
        hash: u64,
        entry: DirectoryEntry<L>,
        now: Timestamp,
    ) -> bool {
        let idle_since = now.saturating_sub(KEPT_IDLE);
        let mut lines = lock_all(self.directory.lines(entry));
        if self.directory.entry(hash) != entry {
            // Another thread has made room.
            return true;
        }
        policy.level(&mut lines, now);
        let (mut dropped, mut keys) = (0, 0);
        for line in &mut lines {
            dropped += self.free_idle(line, idle_since, policy);
            keys += line.occupied().count();
        }
        if dropped > keys / 8 {
            compact(&mut lines, entry.homes(), |_| true);
            return true;
        }
        let rooms = if entry.depth() == 0 && entry.homes() < MIN_HOMES {
            [
                SegmentDraft::whole((entry.homes() * 4).min(MIN_HOMES)),
                SegmentDraft::whole(MIN_HOMES),
            ]
        } else {
            // Only a very uneven distribution of hashes does not fit into two halves: it is spread
            // out.
            let number = self.counters.segments.fetch_add(1, Ordering::Relaxed);
            let least = keys * 100 / (2 * L::SLOTS * SPLIT_LOAD_PERCENT);
            [
                SegmentDraft::upper(staggered_homes(number).max(least)),
                SegmentDraft::whole(entry.homes() * 2),
            ]
        };
        let grown = rooms.into_iter().any(|room| self.split(hash, entry, &mut lines, room));
        grown || dropped > 0
    }

    /// Moves keys to a new segment and publishes it; false when they do not fit or there is no
    /// memory.
    fn split(
        &self,
        hash: u64,
        entry: DirectoryEntry<L>,
        old: &mut [Locked<'_, L>],
        SegmentDraft { homes, instead_of }: SegmentDraft,
    ) -> bool {
        // The bits that are set in the hashes of the keys that move.
        let moving_bits = match instead_of {
            SplitHalf::Whole => 0,
            SplitHalf::Upper => 1 << entry.depth(),
        };
        let moves = |hash: u64| hash & moving_bits == moving_bits;
        if !self.count_lines(homes + PROBE - 1) {
            return false;
        }
        let Some(lines) = self.directory.allocate(homes) else { return false };
        let mut new: Vec<_> = lines.iter().map(Locked::unreachable).collect();
        let limit_index = old[0].header.limit_index();
        new.iter_mut().for_each(|line| line.header.set_limit_index(limit_index));
        let mut moved = 0;
        for line in old.iter() {
            for slot in 0..L::SLOTS {
                let hash = line.fingerprint(slot);
                if hash == 0 || !moves(hash) {
                    continue;
                }
                if !insert_moved(&mut new, homes, MovingKey::of(line, slot)) {
                    // Nothing has been removed yet. The new lines are unreachable, but count as lines.
                    return false;
                }
                moved += 1;
            }
        }
        if moved == 0 {
            return false;
        }
        compact(old, entry.homes(), |hash| !moves(hash));
        drop(new);
        self.directory.publish(hash, entry, NewSegment { lines, homes, instead_of });
        true
    }

    /// Counts more lines, unless that exceeds the capacity.
    fn count_lines(&self, more: usize) -> bool {
        let max_lines = self.capacity().max_lines(L::SLOTS);
        let fits = |lines| (lines + more <= max_lines).then_some(lines + more);
        let lines = &self.counters.lines;
        lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// The plan of a new segment.
#[derive(Clone, Copy, Debug)]
struct SegmentDraft {
    homes: usize,
    instead_of: SplitHalf,
}

impl SegmentDraft {
    fn whole(homes: usize) -> Self {
        Self { homes: homes.min(MAX_HOMES), instead_of: SplitHalf::Whole }
    }

    fn upper(homes: usize) -> Self {
        Self { homes: homes.min(MAX_HOMES), instead_of: SplitHalf::Upper }
    }
}

/// A key on its way from one line to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MovingKey<P> {
    pub(super) hash: u64,
    pub(super) packed: P,
    pub(super) is_pinned: bool,
}

impl<P> MovingKey<P> {
    /// The key of a slot.
    pub(super) fn of<L: Line<Packed = P>>(line: &Locked<'_, L>, slot: usize) -> Self {
        let (hash, packed) = (line.fingerprint(slot), line.load(slot));
        Self { hash, packed, is_pinned: line.header.is_pinned(slot) }
    }
}

/// Locks lines in ascending order.
pub(super) fn lock_all<L: Line>(lines: &[L]) -> Vec<Locked<'_, L>> {
    let lock = |(index, line)| {
        // Locking waits for the line: the processor does not go on to the next ones by itself.
        if let Some(ahead) = lines.get(index + PREFETCHED_LINES) {
            prefetch(ahead);
        }
        Locked::new(line)
    };
    lines.iter().enumerate().map(lock).collect()
}

/// Inserts a key into the first line of its chain that has a free slot; false if none has.
pub(super) fn insert_moved<L: Line>(
    lines: &mut [Locked<'_, L>],
    homes: usize,
    key: MovingKey<L::Packed>,
) -> bool {
    let home = home_of(key.hash, homes);
    for line in &mut lines[home..home + PROBE] {
        if let Some(slot) = line.free_slot() {
            line.set_fingerprint(slot, key.hash);
            line.store(slot, key.packed);
            line.header.set_pinned(slot, key.is_pinned);
            return true;
        }
        line.header.set_overflowed(true);
    }
    false
}

/// Drops the keys that are not kept, and moves the others as near to their homes as they fit.
///
/// Line by line, in ascending order: no key moves away from its home, because whatever is before it
/// has come from there or from further on. So each one finds a slot. Keys in their home lines, which
/// most are, stay where they are.
pub(super) fn compact<L: Line>(
    lines: &mut [Locked<'_, L>],
    homes: usize,
    keeps: impl Fn(u64) -> bool,
) {
    for index in 0..lines.len() {
        lines[index].header.set_overflowed(false);
        for slot in 0..L::SLOTS {
            let line = &mut lines[index];
            let hash = line.fingerprint(slot);
            if hash == 0 {
                continue;
            }
            let is_kept = keeps(hash);
            if is_kept && home_of(hash, homes) == index {
                // Already as near as can be.
                continue;
            }
            let key = MovingKey::of(line, slot);
            line.clear(slot);
            if is_kept {
                let placed = insert_moved(lines, homes, key);
                assert!(placed, "a key fits into its old line");
            }
        }
    }
}

/// The directory bits and home lines of a table for `keys` keys without growth.
pub(super) fn presized<L: Line>(keys: usize) -> (u32, usize) {
    let homes =
        keys.saturating_mul(100).div_ceil(L::SLOTS * PRESIZED_LOAD_PERCENT).max(FIRST_HOMES);
    let segments = homes.div_ceil(PRESIZED_HOMES).next_power_of_two();
    (segments.trailing_zeros(), homes.div_ceil(segments))
}

/// Sizes from `MIN_HOMES` to twice as many, spread evenly on a logarithmic scale however many
/// segments there will be.
pub(super) fn staggered_homes(number: usize) -> usize {
    // The fractional part of number · golden ratio, in 1/2^16.
    let fraction = (number.wrapping_mul(GOLDEN) >> 16) & 0xffff;
    // 2^x is 1 + x − 0.34·x·(1 − x) for x from 0 to 1, to within a percent.
    let bend = fraction * (0x1_0000 - fraction) / 0x1_0000 * 34 / 100;
    (MIN_HOMES + MIN_HOMES * (fraction - bend) / 0x1_0000).min(MAX_HOMES)
}

/// How many lines ahead of the one that is locked are on their way from memory.
const PREFETCHED_LINES: usize = 16;

const GOLDEN: usize = 0x9e37_79b9;

/// Home lines of the first segment of a table that grows.
pub(super) const FIRST_HOMES: usize = if cfg!(loom) { 1 } else { 16 };

/// Home lines of the smallest segment after the first ones.
const MIN_HOMES: usize = if cfg!(loom) { 1 } else { 768 };

/// The highest load of a new segment.
const SPLIT_LOAD_PERCENT: usize = 70;

/// The most home lines of a segment in a presized table.
const PRESIZED_HOMES: usize = 4096;

/// The load of a presized table that has all of its keys.
const PRESIZED_LOAD_PERCENT: usize = 62;
