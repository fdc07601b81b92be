//! The directory: which segment a hash belongs to.
//!
//! The low bits of a hash pick an entry, the entry points to a segment, the high bits pick the home
//! line in it. All entries that agree in their lowest `d` bits point to a segment of depth `d`.
//! Segments and old directories are kept until the table is dropped, so a reader may follow a
//! stale entry without harm: what it does not find there, it looks up again under a lock.

#![allow(unsafe_code, reason = "follows pointers to segments that live as long as the table")]

use super::arena::Arena;
use super::line::Line;
use super::sync::{AtomicPtr, Mutex, Ordering, lock};

#[derive(Debug)]
#[allow(clippy::vec_box, reason = "readers point into the boxes, which do not move")]
pub(crate) struct Directory<L: Line> {
    /// The entries in force.
    entries: AtomicPtr<Entries<L>>,
    /// All entries that ever were. Its lock also orders changes of the current ones.
    owned: Mutex<Vec<Box<Entries<L>>>>,
    pub(super) arena: Arena<L>,
}

/// As many entries as some number of bits has values.
#[derive(Debug)]
struct Entries<L> {
    /// One less than there are.
    mask: usize,
    all: Box<[AtomicPtr<L>]>,
}

impl<L> Entries<L> {
    fn new(all: Box<[AtomicPtr<L>]>) -> Box<Self> {
        assert!(all.len().is_power_of_two(), "a mask keeps an index within bounds");
        Box::new(Self { mask: all.len() - 1, all })
    }

    /// The entry that the lowest bits of a hash pick.
    #[inline(always)]
    fn of(&self, hash: u64) -> &AtomicPtr<L> {
        #[allow(clippy::cast_possible_truncation, reason = "the index is masked anyway")]
        let index = hash as usize & self.mask;
        // SAFETY: at most one less than there are, by `new`.
        unsafe { self.all.get_unchecked(index) }
    }
}

/// A pointer to a segment: where its lines are, how many of them are homes, and its depth, in one
/// word.
#[derive(Debug)]
pub struct DirectoryEntry<L>(*mut L);

impl<L> Clone for DirectoryEntry<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for DirectoryEntry<L> {}

impl<L> PartialEq for DirectoryEntry<L> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<L: Line> DirectoryEntry<L> {
    fn new(lines: &[L], homes: usize, depth: u32) -> Self {
        assert!(homes <= MAX_HOMES && lines.len() == homes + PROBE - 1 && depth < 1 << DEPTH_BITS);
        let first = lines.as_ptr().cast_mut();
        let is_whole =
            first.addr() & !ADDRESS == 0 && first.addr() >> (usize::BITS - TAG_BITS) == 0;
        assert!(is_whole, "addresses have 48 bits and lines are aligned");
        Self(first.map_addr(|address| ((address | depth as usize) << TAG_BITS) | homes))
    }

    /// Where its lines begin.
    #[inline(always)]
    fn first(self) -> *mut L {
        self.0.map_addr(|entry| (entry >> TAG_BITS) & ADDRESS)
    }

    pub(crate) fn depth(self) -> u32 {
        u32::try_from((self.0.addr() >> TAG_BITS) & !ADDRESS).unwrap_or(0)
    }

    fn at_depth(self, depth: u32) -> Self {
        assert!(depth < 1 << DEPTH_BITS);
        let depth_bits = !ADDRESS << TAG_BITS;
        Self(self.0.map_addr(|entry| (entry & !depth_bits) | ((depth as usize) << TAG_BITS)))
    }

    /// How many lines are the home of some hash. The few lines after them only take overflow.
    #[inline(always)]
    pub(crate) fn homes(self) -> usize {
        self.0.addr() & MAX_HOMES
    }

    /// The number of the home line of a hash.
    #[inline(always)]
    pub(crate) fn home(self, hash: u64) -> usize {
        home_of(hash, self.homes())
    }
}

/// The home line of a hash among `homes` lines: the hash, scaled.
#[inline(always)]
pub(crate) fn home_of(hash: u64, homes: usize) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "it is below `homes`")]
    let home = ((u128::from(hash) * homes as u128) >> 64) as usize;
    home
}

impl<L: Line> Directory<L> {
    /// A directory of `2^bits` segments with `homes` home lines each; `None` if there is no memory.
    pub(crate) fn new(bits: u32, homes: usize) -> Option<Self> {
        let lines = homes + PROBE - 1;
        let arena = Arena::new(lines << bits)?;
        let segment =
            |_| Some(AtomicPtr::new(DirectoryEntry::new(arena.allocate(lines)?, homes, bits).0));
        let entries: Box<[_]> = (0..1_usize << bits).map(segment).collect::<Option<_>>()?;
        let owned = vec![Entries::new(entries)];
        let current = AtomicPtr::new(std::ptr::from_ref(&*owned[0]).cast_mut());
        Some(Self { entries: current, owned: Mutex::new(owned), arena })
    }

    /// Lines for a new segment; `None` if there is no memory.
    pub(crate) fn allocate(&self, homes: usize) -> Option<&[L]> {
        self.arena.allocate(homes + PROBE - 1)
    }

    /// Touches some of the memory of the next segments, before it is needed.
    pub(crate) fn prepare(&self) {
        #[cfg(not(loom))]
        self.arena.touch_page();
    }

    #[inline(always)]
    fn current(&self) -> &Entries<L> {
        // SAFETY: made from a box in `owned`, which keeps it until `self` is dropped.
        unsafe { &*self.entries.load(Ordering::Acquire) }
    }

    fn entries(&self) -> &[AtomicPtr<L>] {
        &self.current().all
    }

    /// The segment that a hash belongs to.
    #[inline(always)]
    pub(crate) fn entry(&self, hash: u64) -> DirectoryEntry<L> {
        DirectoryEntry(self.current().of(hash).load(Ordering::Acquire))
    }

    /// The lines of a segment, homes and the overflow lines after them.
    #[inline(always)]
    pub(crate) fn lines(&self, entry: DirectoryEntry<L>) -> &[L] {
        let first = entry.first();
        // SAFETY: made by `DirectoryEntry::new` from that many lines of `arena`, which neither
        // moves nor frees them before `self` is dropped.
        unsafe { std::slice::from_raw_parts(first, entry.homes() + PROBE - 1) }
    }

    /// The lines where a hash can be: its home and the ones it may overflow to.
    #[inline(always)]
    pub(crate) fn chain(&self, entry: DirectoryEntry<L>, hash: u64) -> &[L; PROBE] {
        let home = entry.home(hash);
        let first = entry.first();
        // SAFETY: as in `lines`; `home` is below `homes`, and PROBE − 1 lines follow the homes.
        unsafe { &*first.add(home).cast::<[L; PROBE]>() }
    }

    /// Every segment once. Segments that are split off meanwhile come after the one they were
    /// split from.
    pub(crate) fn segments(&self) -> impl Iterator<Item = DirectoryEntry<L>> + '_ {
        let (mut index, mut last) = (0_usize, None);
        std::iter::from_fn(move || {
            loop {
                let entry = DirectoryEntry(self.entries().get(index)?.load(Ordering::Acquire));
                let is_first = index >> entry.depth() == 0;
                // A segment that was replaced while it was visited is visited again.
                if is_first && last != Some(entry.first()) {
                    last = Some(entry.first());
                    return Some(entry);
                }
                index += 1;
            }
        })
    }

    /// The line at a position in an order that visits all of them, each once, and the position
    /// after it.
    pub(crate) fn line_at(&self, position: u64) -> (&L, u64) {
        let entries = self.entries();
        let (mut index, mut number) = split_position(position);
        loop {
            index %= entries.len();
            let entry = DirectoryEntry(entries[index].load(Ordering::Acquire));
            // A segment that several entries point to is visited through the first of them.
            let is_first = index < 1 << entry.depth();
            if let Some(line) = self.lines(entry).get(number).filter(|_| is_first) {
                return (line, (index as u64) << 32 | (number as u64 + 1));
            }
            (index, number) = (index + 1, 0);
        }
    }

    /// Points the entries of `old`, or of its upper half, to a new segment.
    ///
    /// The caller holds the locks of all lines of `old`, so no other thread changes its entries.
    pub(crate) fn publish(&self, hash: u64, old: DirectoryEntry<L>, new: NewSegment<'_, L>) {
        let mut owned = lock(&self.owned);
        let depth = old.depth();
        let depth_after = match new.instead_of {
            SplitHalf::Whole => depth,
            SplitHalf::Upper => depth + 1,
        };
        if 1 << depth_after > self.entries().len() {
            self.double(&mut owned);
        }
        let new_entry = DirectoryEntry::new(new.lines, new.homes, depth_after);
        let entries = self.entries();
        #[allow(clippy::cast_possible_truncation, reason = "the index is masked anyway")]
        let first = hash as usize & ((1 << depth) - 1);
        for index in (first..entries.len()).step_by(1 << depth) {
            let takes_new = new.instead_of == SplitHalf::Whole || (index >> depth) & 1 == 1;
            let entry = if takes_new { new_entry } else { old.at_depth(depth_after) };
            entries[index].store(entry.0, Ordering::Release);
        }
    }

    #[allow(clippy::vec_box, reason = "as in the type")]
    fn double(&self, owned: &mut Vec<Box<Entries<L>>>) {
        let copy = |entry: &AtomicPtr<L>| AtomicPtr::new(entry.load(Ordering::Relaxed));
        let entries = self.entries();
        let doubled = Entries::new(entries.iter().chain(entries).map(copy).collect());
        let current = std::ptr::from_ref(&*doubled).cast_mut();
        owned.push(doubled);
        self.entries.store(current, Ordering::Release);
    }
}

/// A segment that is ready to be published.
pub(crate) struct NewSegment<'a, L: Line> {
    pub(crate) lines: &'a [L],
    pub(crate) homes: usize,
    pub(crate) instead_of: SplitHalf,
}

/// The part of an old segment that a new one takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitHalf {
    /// Everything.
    Whole,
    /// The hashes whose next bit is set.
    Upper,
}

/// The entry and the line of a position in the order of [`Directory::line_at`].
#[allow(clippy::cast_possible_truncation, reason = "each half is one number of 32 bits")]
fn split_position(position: u64) -> (usize, usize) {
    ((position >> 32) as usize, position as u32 as usize)
}

/// How many lines a key may be in: its home and the following ones.
#[cfg(not(loom))]
pub(crate) const PROBE: usize = 64;
#[cfg(loom)]
pub(crate) const PROBE: usize = 2;

/// An entry is the address of its lines and in the six bits that are zero there its depth, shifted
/// up, and the number of homes below.
const TAG_BITS: u32 = 16;
pub(crate) const MAX_HOMES: usize = (1 << TAG_BITS) - 1;
const DEPTH_BITS: u32 = 6;
const ADDRESS: usize = usize::MAX << DEPTH_BITS;
