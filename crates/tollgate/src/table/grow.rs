//! How the table grows: one segment at a time, where a new key found its chain full.
//!
//! The keys of a segment are taken out, the idle ones dropped, and the rest laid out again: in the
//! same lines if dropping made room, else in those and a new segment that takes the upper half of
//! the hashes. Segments differ in size, so that they do not all split at the same time, which
//! would let the bytes per key swing by a factor of two.

use tollgate_core::Timestamp;

use super::directory::{Entry, Half, MAX_HOMES, NewSegment, PROBE, home_of};
use super::line::{Line, Locked, SLOTS};
use super::sync::Ordering;
use super::{KeyedLimit, Table};

/// A key on its way from one line to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Key<P> {
    pub(super) hash: u64,
    pub(super) packed: P,
    pub(super) is_pinned: bool,
}

/// What a line is to hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Image<P> {
    pub(super) keys: [Key<P>; SLOTS],
    pub(super) len: usize,
    pub(super) is_overflowed: bool,
}

impl<A: KeyedLimit> Table<A> {
    /// Makes room in the segment of a hash; false when the table may not have more lines.
    pub(super) fn grow(&self, hash: u64, entry: Entry<A::Line>, idle_since: Timestamp) -> bool {
        let mut lines: Vec<_> = self.directory.lines(entry).iter().map(Locked::new).collect();
        if self.directory.entry(hash) != entry {
            // Somebody else has made room.
            return true;
        }
        let dropped = self.drop_idle(&mut lines, idle_since);
        let keys = gather(&lines);
        if dropped > keys.len() / 8
            && let Some(images) = arrange(keys.iter(), entry.homes())
        {
            write(&mut lines, &images);
            return true;
        }
        // Only a freak distribution of hashes does not fit into two halves: then it is spread out.
        let rooms = if entry.depth() == 0 && entry.homes() < MIN_HOMES {
            [Room::whole((entry.homes() * 4).min(MIN_HOMES)), Room::whole(MIN_HOMES)]
        } else {
            let number = self.counters.segments.fetch_add(1, Ordering::Relaxed);
            let least = keys.len() * 100 / (2 * SLOTS * SPLIT_LOAD_PERCENT);
            [Room::upper(staggered_homes(number).max(least)), Room::whole(entry.homes() * 2)]
        };
        let grown =
            rooms.into_iter().any(|room| self.split(hash, entry, &mut lines, (&keys, room)));
        grown || dropped > 0
    }

    /// Lays the keys of a segment out in its lines and a new segment.
    fn split(
        &self,
        hash: u64,
        entry: Entry<A::Line>,
        old: &mut [Locked<'_, A::Line>],
        (keys, room): (&[Key<Packed<A>>], Room),
    ) -> bool {
        let is_upper = |key: &&Key<Packed<A>>| (key.hash >> entry.depth()) & 1 == 1;
        let halves = match room.instead_of {
            Half::Whole => arrange([].iter(), entry.homes()).zip(arrange(keys.iter(), room.homes)),
            Half::Upper => arrange(keys.iter().filter(|key| !is_upper(key)), entry.homes())
                .zip(arrange(keys.iter().filter(is_upper), room.homes)),
        };
        let Some((kept, moved)) = halves else { return false };
        if !self.count_lines(room.lines()) {
            return false;
        }
        let lines = self.directory.allocate(room.homes);
        let limit_index = old[0].header.limit_index();
        for (line, image) in lines.iter().zip(&moved) {
            let mut line = Locked::new(line);
            line.header.set_limit_index(limit_index);
            put(&mut line, image);
        }
        write(old, &kept);
        let Room { homes, instead_of } = room;
        self.directory.publish(hash, entry, NewSegment { lines, homes, instead_of });
        true
    }

    /// Brings all lines under the limit in force and frees the slots of keys that have been idle.
    fn drop_idle(&self, lines: &mut [Locked<'_, A::Line>], idle_since: Timestamp) -> usize {
        self.counters.watermark_ns.fetch_max(idle_since.as_nanos(), Ordering::Relaxed);
        let mut dropped = 0;
        for line in lines {
            self.modernise(line);
            for slot in 0..SLOTS {
                if self.is_reusable(line, slot, idle_since) {
                    line.clear(slot);
                    dropped += 1;
                }
            }
        }
        self.counters.keys.fetch_sub(dropped, Ordering::Relaxed);
        dropped
    }

    /// Counts more lines, unless there would be more than there may be.
    fn count_lines(&self, more: usize) -> bool {
        let max_lines = self.ceiling.max_lines();
        let fits = |lines| (lines + more <= max_lines).then_some(lines + more);
        let lines = &self.counters.lines;
        lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

type Packed<A> = <<A as crate::keyed::sealed::Pack>::Line as Line>::Packed;

/// A segment to come.
#[derive(Clone, Copy, Debug)]
struct Room {
    homes: usize,
    instead_of: Half,
}

impl Room {
    fn whole(homes: usize) -> Self {
        Self { homes: homes.min(MAX_HOMES), instead_of: Half::Whole }
    }

    fn upper(homes: usize) -> Self {
        Self { homes: homes.min(MAX_HOMES), instead_of: Half::Upper }
    }

    fn lines(&self) -> usize {
        self.homes + PROBE - 1
    }
}

fn gather<L: Line>(lines: &[Locked<'_, L>]) -> Vec<Key<L::Packed>> {
    let mut keys = Vec::with_capacity(lines.len() * SLOTS);
    for line in lines {
        for slot in (0..SLOTS).filter(|&slot| line.fingerprint(slot) != 0) {
            keys.push(Key {
                hash: line.fingerprint(slot),
                packed: line.load(slot),
                is_pinned: line.header.is_pinned(slot),
            });
        }
    }
    keys
}

/// Lines that hold the keys, each in its home or in one of the next lines; `None` if some key
/// finds its chain full.
pub(super) fn arrange<'a, P: Copy + Default + 'a>(
    keys: impl Iterator<Item = &'a Key<P>>,
    homes: usize,
) -> Option<Vec<Image<P>>> {
    let mut images = vec![Image::<P>::default(); homes + PROBE - 1];
    for key in keys {
        let home = home_of(key.hash, homes);
        let chain = &mut images[home..home + PROBE];
        let line = chain.iter().position(|image| image.len < SLOTS)?;
        chain[..line].iter_mut().for_each(|image| image.is_overflowed = true);
        let image = &mut chain[line];
        image.keys[image.len] = *key;
        image.len += 1;
    }
    Some(images)
}

fn write<L: Line>(lines: &mut [Locked<'_, L>], images: &[Image<L::Packed>]) {
    for (line, image) in lines.iter_mut().zip(images) {
        put(line, image);
    }
}

fn put<L: Line>(line: &mut Locked<'_, L>, image: &Image<L::Packed>) {
    line.header.set_overflowed(image.is_overflowed);
    for (slot, key) in image.keys.iter().enumerate() {
        line.set_fingerprint(slot, key.hash);
        line.store(slot, key.packed);
        line.header.set_pinned(slot, key.is_pinned);
    }
}

/// The directory bits and home lines for a table that is to hold `keys` without growing.
pub(super) fn presized(keys: usize) -> (u32, usize) {
    let homes = keys.saturating_mul(100).div_ceil(SLOTS * PRESIZED_LOAD_PERCENT).max(FIRST_HOMES);
    let segments = homes.div_ceil(PRESIZED_HOMES).next_power_of_two();
    (segments.trailing_zeros(), homes.div_ceil(segments))
}

/// Sizes from `MIN_HOMES` to twice as many, as evenly spread on a logarithmic scale as one can
/// have them without knowing how many there will be.
pub(super) fn staggered_homes(number: usize) -> usize {
    // The fractional part of number · golden ratio, in 1/2^16.
    let fraction = (number.wrapping_mul(GOLDEN) >> 16) & 0xffff;
    // 2^x is 1 + x − 0.34·x·(1 − x) for x from 0 to 1, to within a percent.
    let bend = fraction * (0x1_0000 - fraction) / 0x1_0000 * 34 / 100;
    (MIN_HOMES + MIN_HOMES * (fraction - bend) / 0x1_0000).min(MAX_HOMES)
}

const GOLDEN: usize = 0x9e37_79b9;

/// Home lines of the first segment of a table that grows.
pub(super) const FIRST_HOMES: usize = if cfg!(loom) { 1 } else { 16 };

/// Home lines of the smallest segment after the first ones.
const MIN_HOMES: usize = if cfg!(loom) { 1 } else { 768 };

/// How full a new segment is at most.
const SPLIT_LOAD_PERCENT: usize = 70;

/// Home lines of a segment of a table that was made for a known number of keys, at most.
const PRESIZED_HOMES: usize = 4096;

/// How full a table is that was made for a known number of keys and has them.
const PRESIZED_LOAD_PERCENT: usize = 62;
