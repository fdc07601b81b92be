//! A line: a few slots behind one header word, read without a lock, written under it.
//!
//! The types are public only because the sealed trait of limits refers to them.

#![allow(unreachable_pub, missing_docs, reason = "public for a sealed trait, not for callers")]
#![allow(unsafe_code, reason = "reads plainly under the lock")]

use std::hint::select_unpredictable;

use super::sync::{AtomicU32, AtomicU64, Backoff, Ordering, fence, give_way, is_u32, is_u64};

/// The header of a line.
///
/// The lowest bit is the lock. The bits above it are facts about the line. The rest counts
/// writes: a header that has not changed between two reads means that nothing else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineHeader(u32);

impl LineHeader {
    /// The header of an empty line.
    pub const EMPTY: Self = Self(0);

    const LOCKED: u32 = 1;
    /// One bit per slot: its key has a hold, an override, or is being inserted.
    const PINNED: u32 = 1 << 1;
    const ANY_PINNED: u32 = ((1 << MAX_SLOTS) - 1) * Self::PINNED;
    /// The index of the limit that the states in this line count under. It is the bit that makes the
    /// offset of the limit's words: they take 64 bytes.
    const LIMIT: u32 = 1 << 6;
    /// Some key that belongs to this line, or passed it, is in a later one.
    const OVERFLOWED: u32 = 1 << 7;
    const WRITES: u32 = 1 << 8;

    #[inline(always)]
    pub fn is_overflowed(self) -> bool {
        self.0 & Self::OVERFLOWED != 0
    }

    #[inline(always)]
    pub(crate) fn limit_index(self) -> usize {
        usize::from(self.0 & Self::LIMIT != 0)
    }

    #[inline(always)]
    pub fn is_pinned(self, slot: usize) -> bool {
        self.0 & (Self::PINNED << slot) != 0
    }

    #[inline(always)]
    fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    /// Whether the line is unlocked, and all of its keys are under the table's limit.
    #[inline(always)]
    pub(crate) fn is_uniform(self) -> bool {
        self.0 & (Self::LOCKED | Self::ANY_PINNED) == 0
    }

    pub(crate) fn set_overflowed(&mut self, overflowed: bool) {
        self.set(Self::OVERFLOWED, overflowed);
    }

    pub(crate) fn set_limit_index(&mut self, index: usize) {
        self.set(Self::LIMIT, index == 1);
    }

    pub fn set_pinned(&mut self, slot: usize, pinned: bool) {
        self.set(Self::PINNED << slot, pinned);
    }

    fn set(&mut self, bit: u32, on: bool) {
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }
}

/// Storage for the states of a few keys, in whole cache lines.
///
/// All-zero memory is a valid empty line whose slots hold fresh states.
pub trait Line: Send + Sync + Sized + 'static {
    /// Slots in a line, at most `MAX_SLOTS`.
    const SLOTS: usize;

    /// A state as it lies in a slot.
    type Packed: Copy + PartialEq + Default + std::fmt::Debug + Send + Sync;

    /// An empty line. Equal to all-zero memory, which is how lines are made outside of loom.
    fn empty() -> Self;

    /// The header word.
    fn header(&self) -> &AtomicU32;

    /// The fingerprints; 0 where a slot is free.
    fn fingerprints(&self) -> &[AtomicU64];

    /// Reads a slot. Torn unless validated by the header or read under the lock.
    fn load(&self, slot: usize) -> Self::Packed;

    /// Writes a slot. Only under the lock.
    fn store(&self, slot: usize, packed: Self::Packed);

    /// Whether a slot has this key and state.
    ///
    /// # Safety
    ///
    /// Only under the lock.
    unsafe fn holds(&self, slot: usize, fingerprint: u64, packed: Self::Packed) -> bool {
        self.fingerprints()[slot].load(Ordering::Relaxed) == fingerprint
            && self.load(slot) == packed
    }
}

/// The most slots that a line has.
pub(crate) const MAX_SLOTS: usize = 5;
const SLOTS: usize = 3;
const TAGGED_SLOTS: usize = 5;
const _: () = assert!(LineHeader::ANY_PINNED < LineHeader::LIMIT);

/// A line of 64 bytes: states of 96 bits.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct NarrowLine {
    header: AtomicU32,
    high: [AtomicU32; SLOTS],
    fingerprints: [AtomicU64; SLOTS],
    low: [AtomicU64; SLOTS],
}

/// A state of 96 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Narrow {
    pub high: u32,
    pub low: u64,
}

impl Line for NarrowLine {
    const SLOTS: usize = SLOTS;

    type Packed = Narrow;

    fn empty() -> Self {
        Self {
            header: AtomicU32::new(0),
            high: [0; SLOTS].map(AtomicU32::new),
            fingerprints: [0; SLOTS].map(AtomicU64::new),
            low: [0; SLOTS].map(AtomicU64::new),
        }
    }

    #[inline(always)]
    fn header(&self) -> &AtomicU32 {
        &self.header
    }

    #[inline(always)]
    fn fingerprints(&self) -> &[AtomicU64] {
        &self.fingerprints
    }

    #[inline(always)]
    fn load(&self, slot: usize) -> Narrow {
        Narrow {
            high: self.high[slot].load(Ordering::Relaxed),
            low: self.low[slot].load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn store(&self, slot: usize, packed: Narrow) {
        self.high[slot].store(packed.high, Ordering::Relaxed);
        self.low[slot].store(packed.low, Ordering::Relaxed);
    }

    #[inline(always)]
    unsafe fn holds(&self, slot: usize, fingerprint: u64, packed: Narrow) -> bool {
        // SAFETY: all writes are made under the lock, which the caller holds.
        unsafe {
            is_u64(&self.fingerprints[slot], fingerprint)
                && is_u64(&self.low[slot], packed.low)
                && is_u32(&self.high[slot], packed.high)
        }
    }
}

/// A line of 128 bytes: states of 96 bits, each with the number of the limit that it counts under.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TaggedLine {
    header: AtomicU32,
    tags: [AtomicU32; TAGGED_SLOTS],
    fingerprints: [AtomicU64; TAGGED_SLOTS],
    low: [AtomicU64; TAGGED_SLOTS],
    high: [AtomicU32; TAGGED_SLOTS],
}

/// A state with the number of the limit that it counts under; 0 for a state that is fresh under
/// any limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tagged<P> {
    pub tag: u32,
    pub packed: P,
}

impl Line for TaggedLine {
    const SLOTS: usize = TAGGED_SLOTS;

    type Packed = Tagged<Narrow>;

    fn empty() -> Self {
        Self {
            header: AtomicU32::new(0),
            tags: [0; TAGGED_SLOTS].map(AtomicU32::new),
            fingerprints: [0; TAGGED_SLOTS].map(AtomicU64::new),
            low: [0; TAGGED_SLOTS].map(AtomicU64::new),
            high: [0; TAGGED_SLOTS].map(AtomicU32::new),
        }
    }

    #[inline(always)]
    fn header(&self) -> &AtomicU32 {
        &self.header
    }

    #[inline(always)]
    fn fingerprints(&self) -> &[AtomicU64] {
        &self.fingerprints
    }

    #[inline(always)]
    fn load(&self, slot: usize) -> Tagged<Narrow> {
        let tag = self.tags[slot].load(Ordering::Relaxed);
        let high = self.high[slot].load(Ordering::Relaxed);
        Tagged { tag, packed: Narrow { high, low: self.low[slot].load(Ordering::Relaxed) } }
    }

    #[inline(always)]
    fn store(&self, slot: usize, Tagged { tag, packed }: Tagged<Narrow>) {
        self.tags[slot].store(tag, Ordering::Relaxed);
        self.high[slot].store(packed.high, Ordering::Relaxed);
        self.low[slot].store(packed.low, Ordering::Relaxed);
    }
}

/// A line of 256 bytes: states of nine words, each with the number of the limit that it counts
/// under where there is more than one.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct WideLine {
    header: AtomicU32,
    tags: [AtomicU32; SLOTS],
    fingerprints: [AtomicU64; SLOTS],
    words: [[AtomicU64; WIDE_WORDS]; SLOTS],
}

/// Words in a wide state.
pub const WIDE_WORDS: usize = 9;

/// A state of nine words.
pub type Wide = [u64; WIDE_WORDS];

impl Line for WideLine {
    const SLOTS: usize = SLOTS;

    type Packed = Tagged<Wide>;

    fn empty() -> Self {
        Self {
            header: AtomicU32::new(0),
            tags: [0; SLOTS].map(AtomicU32::new),
            fingerprints: [0; SLOTS].map(AtomicU64::new),
            words: [[0; WIDE_WORDS]; SLOTS].map(|words| words.map(AtomicU64::new)),
        }
    }

    fn header(&self) -> &AtomicU32 {
        &self.header
    }

    fn fingerprints(&self) -> &[AtomicU64] {
        &self.fingerprints
    }

    fn load(&self, slot: usize) -> Self::Packed {
        let words = std::array::from_fn(|word| self.words[slot][word].load(Ordering::Relaxed));
        Tagged { tag: self.tags[slot].load(Ordering::Relaxed), packed: words }
    }

    fn store(&self, slot: usize, Tagged { tag, packed }: Self::Packed) {
        self.tags[slot].store(tag, Ordering::Relaxed);
        for (word, value) in self.words[slot].iter().zip(packed) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// The header as it is, locked or not.
#[inline(always)]
pub(crate) fn glance<L: Line>(line: &L) -> LineHeader {
    LineHeader(line.header().load(Ordering::Acquire))
}

/// The header once the line is unlocked. What is read afterwards is valid only if
/// [`is_unchanged`] returns true.
#[inline(always)]
pub fn read_header<L: Line>(line: &L) -> LineHeader {
    let header = LineHeader(line.header().load(Ordering::Acquire));
    if header.is_locked() { wait_unlocked(line) } else { header }
}

#[cold]
fn wait_unlocked<L: Line>(line: &L) -> LineHeader {
    let mut backoff = Backoff::default();
    loop {
        let header = LineHeader(line.header().load(Ordering::Acquire));
        if !header.is_locked() {
            return header;
        }
        backoff.wait();
    }
}

/// Whether everything read since `header` was read is consistent.
#[inline(always)]
pub fn is_unchanged<L: Line>(line: &L, header: LineHeader) -> bool {
    fence(Ordering::Acquire);
    line.header().load(Ordering::Relaxed) == header.0
}

/// The slot that holds the fingerprint.
///
/// Without a branch per slot: the slot cannot be predicted, and a wrong guess would be
/// noticed only when the line has come from memory, with nothing useful fetched meanwhile.
#[inline(always)]
pub fn find<L: Line>(line: &L, fingerprint: u64) -> Option<usize> {
    let at = |slot: usize| line.fingerprints()[slot].load(Ordering::Relaxed);
    let pick = |found, slot| select_unpredictable(at(slot) == fingerprint, slot, found);
    let slot = (1..L::SLOTS).fold(0, pick);
    // Two slots have it only while the key is moved; then either will do, since what is read there
    // is discarded.
    (at(slot) == fingerprint).then_some(slot)
}

/// Whether no slot is free, at the moment.
#[inline(always)]
pub(crate) fn is_full<L: Line>(line: &L) -> bool {
    line.fingerprints().iter().all(|it| it.load(Ordering::Relaxed) != 0)
}

/// A line that this thread has locked: the only way to write one.
///
/// Dropping it publishes what was written and unlocks.
#[derive(Debug)]
pub struct Locked<'a, L: Line> {
    line: &'a L,
    pub header: LineHeader,
}

impl<'a, L: Line> Locked<'a, L> {
    /// Locks the line; waits for the current holder.
    pub fn new(line: &'a L) -> Self {
        loop {
            if let Some(locked) = Self::if_unchanged(line, read_header(line)) {
                return locked;
            }
        }
    }

    /// The same by a thread that has just lost the line to another, and has locked no other line,
    /// for which threads would wait meanwhile.
    pub(crate) fn after_loss(line: &'a L) -> Self {
        let mut losses = 0;
        loop {
            give_way(losses);
            if let Some(locked) = Self::if_unchanged(line, read_header(line)) {
                return locked;
            }
            losses += 1;
        }
    }

    /// A line that no other thread can reach yet, as if it were locked: nothing is written to its
    /// header before it is dropped.
    pub(crate) fn unreachable(line: &'a L) -> Self {
        Self { line, header: LineHeader(line.header().load(Ordering::Relaxed)) }
    }

    /// Locks the line if its header still is `header`: then nothing read since has changed.
    #[inline(always)]
    pub fn if_unchanged(line: &'a L, header: LineHeader) -> Option<Self> {
        let locked = header.0 | LineHeader::LOCKED;
        line.header()
            .compare_exchange(header.0, locked, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // Readers that see a store made below also see the lock.
        fence(Ordering::Release);
        Some(Self { line, header })
    }

    /// The line itself.
    pub fn line(&self) -> &'a L {
        self.line
    }

    pub fn address(&self) -> usize {
        std::ptr::from_ref(self.line).addr()
    }

    #[inline(always)]
    pub fn fingerprint(&self, slot: usize) -> u64 {
        self.line.fingerprints()[slot].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn set_fingerprint(&mut self, slot: usize, fingerprint: u64) {
        self.line.fingerprints()[slot].store(fingerprint, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn find(&self, fingerprint: u64) -> Option<usize> {
        find(self.line, fingerprint)
    }

    /// The first slot that has no key.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        (0..L::SLOTS).find(|&slot| self.fingerprint(slot) == 0)
    }

    /// The slots that have a key.
    pub fn occupied(&self) -> impl Iterator<Item = usize> {
        (0..L::SLOTS).filter(|&slot| self.fingerprint(slot) != 0)
    }

    /// The slots that have a key, and no other reason to keep it than its state.
    #[inline(always)]
    pub(crate) fn droppable(&self) -> impl Iterator<Item = usize> {
        self.occupied().filter(|&slot| !self.header.is_pinned(slot))
    }

    #[inline(always)]
    pub fn load(&self, slot: usize) -> L::Packed {
        self.line.load(slot)
    }

    #[inline(always)]
    pub fn store(&mut self, slot: usize, packed: L::Packed) {
        self.line.store(slot, packed);
    }

    /// Whether a slot has this key and state.
    #[inline(always)]
    pub(crate) fn holds(&self, slot: usize, fingerprint: u64, packed: L::Packed) -> bool {
        // SAFETY: the line is locked as long as this value lives.
        unsafe { self.line.holds(slot, fingerprint, packed) }
    }

    /// Empties a slot.
    pub fn clear(&mut self, slot: usize) {
        self.set_fingerprint(slot, 0);
        self.store(slot, L::Packed::default());
        self.header.set_pinned(slot, false);
    }
}

impl<L: Line> Drop for Locked<'_, L> {
    #[inline(always)]
    fn drop(&mut self) {
        let header = self.header.0.wrapping_add(LineHeader::WRITES);
        self.line.header().store(header, Ordering::Release);
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<NarrowLine>() == 64);
    assert!(size_of::<TaggedLine>() == 128);
    assert!(size_of::<WideLine>() == 256);
};
