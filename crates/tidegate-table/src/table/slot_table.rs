//! Lines and the keys in them, independent of what states mean.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::arena::{PAGE, prefetch};
use super::capacity::{Capacity, KeyBudget};
use super::directory::{Directory, DirectoryEntry, PROBE};
use super::grow;
use super::line::{Line, Locked};
use super::probe_chain::{Position, ProbeChain};
use super::sync::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug)]
pub struct SlotTable<L: Line> {
    pub(super) directory: Directory<L>,
    capacity: Capacity,
    /// The keys of this table, and of the tables that share its capacity.
    keys: Arc<KeyBudget>,
    pub(super) counters: Counters,
}

/// What changes with insertions, on a cache line that decisions about known keys do not touch.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) lines: AtomicUsize,
    /// The latest time for which a slot was reused.
    watermark_ns: AtomicU64,
    /// Where the next sweep of some lines begins.
    sweep_position: AtomicU64,
    pub(super) segments: AtomicUsize,
}

/// Knows what the states in a table mean.
pub trait SlotPolicy<L: Line> {
    /// Whether the key in a slot was idle at `since`, so that it can be dropped.
    fn is_idle(&self, line: &Locked<'_, L>, slot: usize, since: Timestamp) -> bool;

    /// The first slot whose key was idle at `since` and can be dropped.
    fn idle_slot(&self, line: &Locked<'_, L>, since: Timestamp) -> Option<usize> {
        line.droppable().find(|&slot| self.is_idle(line, slot, since))
    }

    /// Migrates locked lines to one limit, before keys move between them.
    fn level(&self, lines: &mut [Locked<'_, L>], now: Timestamp);

    /// Frees the slots of some idle keys of the tables that share this one's capacity; true if
    /// there were any.
    fn sweep_others(&self, _now: Timestamp) -> bool {
        false
    }
}

/// A key whose home line is being prefetched.
#[derive(Debug)]
pub struct Fetched<'a, L> {
    pub(crate) hash: u64,
    pub home: &'a L,
}

impl<L> Clone for Fetched<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Fetched<'_, L> {}

/// The location of a key, with its home line locked.
#[derive(Debug)]
pub enum KeyLocation<'a, L: Line> {
    /// In a slot.
    Known(ProbeChain<'a, L>, Position),
    /// Nowhere; this slot was claimed for it, and it is counted as a key.
    Claimed(ProbeChain<'a, L>, Position),
    /// Nowhere, and there is no slot for it.
    Full(ProbeChain<'a, L>),
}

/// Why there is no slot for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoSlot {
    /// The lines where it could be are full of live keys.
    ChainFull,
    /// The table is at its capacity.
    AtCeiling,
}

impl<L: Line> SlotTable<L> {
    /// An empty table; `None` if there is no memory for it.
    pub fn new(capacity: Capacity, capacity_hint: Option<usize>) -> Option<Self> {
        let (bits, homes) = match capacity_hint {
            Some(keys) => grow::presized::<L>(keys.min(capacity.max_keys)),
            None => (0, grow::FIRST_HOMES),
        };
        Self::with_keys(Arc::new(KeyBudget::new(capacity.max_keys)), capacity, bits, homes)
    }

    /// An empty table whose keys count against the capacity of this one; `None` if there is no
    /// memory for it.
    pub fn beside<M: Line>(&self) -> Option<SlotTable<M>> {
        SlotTable::with_keys(Arc::clone(&self.keys), self.capacity, 0, grow::FIRST_HOMES)
    }

    fn with_keys(
        keys: Arc<KeyBudget>,
        capacity: Capacity,
        bits: u32,
        homes: usize,
    ) -> Option<Self> {
        Some(Self {
            directory: Directory::new(bits, homes)?,
            capacity,
            keys,
            counters: Counters {
                lines: AtomicUsize::new((homes + PROBE - 1) << bits),
                watermark_ns: AtomicU64::new(0),
                sweep_position: AtomicU64::new(0),
                segments: AtomicUsize::new(0),
            },
        })
    }

    /// Keys that have a slot, here or in a table that shares the capacity.
    #[allow(clippy::len_without_is_empty, reason = "no sibling crate needs it")]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes of memory in its lines.
    pub fn bytes(&self) -> usize {
        self.counters.lines.load(Ordering::Relaxed) * size_of::<L>()
    }

    /// The most bytes that its lines may take.
    pub fn max_bytes(&self) -> usize {
        self.capacity.max_lines(L::SLOTS).saturating_mul(size_of::<L>())
    }

    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Prefetches the home line of a hash.
    ///
    /// On some processors reading a clock waits for earlier reads of memory, so this comes first.
    #[inline(always)]
    pub fn fetch(&self, hash: u64) -> Fetched<'_, L> {
        let home = &self.directory.chain(self.directory.entry(hash), hash)[0];
        prefetch(home);
        Fetched { hash, home }
    }

    /// Whether this is the home line of a hash. It stays so while the line is locked.
    #[inline(always)]
    pub fn is_home(&self, hash: u64, line: &L) -> bool {
        std::ptr::eq(&self.chain(hash)[0], line)
    }

    /// The lines where a hash can be, at the moment.
    pub fn chain(&self, hash: u64) -> &[L; PROBE] {
        self.directory.chain(self.directory.entry(hash), hash)
    }

    /// Every line. Lines that are added meanwhile may be missing; keys move there only from
    /// locked lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &L> {
        self.directory.segments().flat_map(|entry| self.directory.lines(entry))
    }

    /// Visits every line, with all lines of its segment locked: no key that is present when this
    /// begins is missed, even if it moves meanwhile.
    pub fn for_each_line(&self, mut visit: impl FnMut(&mut Locked<'_, L>)) {
        for entry in self.directory.segments() {
            grow::lock_all(self.directory.lines(entry)).iter_mut().for_each(&mut visit);
        }
    }

    /// Locks the home of a key, in the segment that it belongs to while the lock is held.
    pub fn lock_chain(&self, hash: u64) -> (DirectoryEntry<L>, ProbeChain<'_, L>) {
        loop {
            let entry = self.directory.entry(hash);
            let chain = ProbeChain::lock(self.directory.chain(entry, hash));
            if self.directory.entry(hash) == entry {
                return (entry, chain);
            }
        }
    }

    /// Finds a key, or claims a slot for it.
    pub fn enter(
        &self,
        hash: u64,
        now: Timestamp,
        policy: &impl SlotPolicy<L>,
    ) -> KeyLocation<'_, L> {
        self.prepare_growth();
        let mut may_make_room = true;
        loop {
            let (entry, mut chain) = self.lock_chain(hash);
            if let Some(at) = chain.find(hash) {
                return KeyLocation::Known(chain, at);
            }
            match self.claim(&mut chain, now, may_make_room, policy) {
                Ok(at) => return KeyLocation::Claimed(chain, at),
                Err(why) if may_make_room => {
                    drop(chain);
                    may_make_room = match why {
                        NoSlot::ChainFull => self.grow(policy, hash, entry, now),
                        NoSlot::AtCeiling => {
                            self.sweep_some(now, policy) || policy.sweep_others(now)
                        }
                    };
                }
                Err(_) => return KeyLocation::Full(chain),
            }
        }
    }

    /// A slot for a new key, which counts as a key from now on: a free one, or that of an idle key.
    ///
    /// While the table has room, an idle key keeps its slot for a while, and only those of the home
    /// line are considered: a segment that is full drops its idle keys before it grows. When the
    /// table is full, an idle key in the same line makes room for the new one.
    fn claim(
        &self,
        chain: &mut ProbeChain<'_, L>,
        now: Timestamp,
        may_make_room: bool,
        policy: &impl SlotPolicy<L>,
    ) -> Result<Position, NoSlot> {
        let keeps_idle = may_make_room && !self.keys.is_nearly_full();
        let idle_since = if keeps_idle { now.saturating_sub(KEPT_IDLE) } else { now };
        let idle = |line: &Locked<'_, L>| policy.idle_slot(line, idle_since);
        let is_full = self.keys.is_full();
        let free_or_idle = |line: &Locked<'_, L>| match is_full {
            true => idle(line).or_else(|| line.free_slot()),
            false => line.free_slot().or_else(|| idle(line)),
        };
        let at = match keeps_idle {
            true => chain.first_slot(0..1, free_or_idle).or_else(|| chain.first_free_slot()),
            false => chain.first_slot(0..PROBE, free_or_idle),
        };
        let at = at.ok_or(NoSlot::ChainFull)?;
        if chain.line(at.line).fingerprint(at.slot) == 0 {
            return if self.count_key() { Ok(at) } else { Err(NoSlot::AtCeiling) };
        }
        self.note_reuse(idle_since);
        chain.line(at.line).clear(at.slot);
        Ok(at)
    }

    /// Touches memory for the segments to come, a page for half as many new keys as a page has lines:
    /// three times as much as keys take on average, because segments split in bursts.
    ///
    /// Call it before a key is inserted, without a lock: the system may take its time.
    #[inline(always)]
    pub fn prepare_growth(&self) {
        if self.keys.len().is_multiple_of(const { PAGE.div_ceil(2 * size_of::<L>()) }) {
            self.directory.prepare();
        }
    }

    /// Counts a new key; false if there are as many as there may be.
    #[inline(always)]
    #[must_use]
    pub fn count_key(&self) -> bool {
        self.keys.claim()
    }

    /// Counts fewer keys: their slots were cleared, or not used.
    pub fn uncount_keys(&self, keys: usize) {
        self.keys.release(keys);
    }

    /// Frees the slots of all keys that are idle at `now`.
    pub fn sweep(&self, now: Timestamp, policy: &impl SlotPolicy<L>) {
        for line in self.lines() {
            self.free_idle(&mut Locked::new(line), now, policy);
        }
    }

    /// Frees the slots of idle keys in the next few lines that have keys; true if there were any.
    pub fn sweep_some(&self, now: Timestamp, policy: &impl SlotPolicy<L>) -> bool {
        self.sweep_lines(SWEPT_LINES, now, policy) > 0
    }

    /// Frees the slots of keys that were idle at `idle_since`, in the next `lines` lines that have
    /// keys, and returns how many.
    pub(super) fn sweep_lines(
        &self,
        lines: usize,
        idle_since: Timestamp,
        policy: &impl SlotPolicy<L>,
    ) -> usize {
        let (mut swept, mut freed) = (0, 0);
        for _ in 0..lines * VISITED_PER_SWEPT {
            let line = self.next_line();
            if line.fingerprints().iter().any(|it| it.load(Ordering::Relaxed) != 0) {
                freed += self.free_idle(&mut Locked::new(line), idle_since, policy);
                swept += 1;
            }
            if swept == lines {
                break;
            }
        }
        freed
    }

    /// The line whose turn it is to be swept.
    fn next_line(&self) -> &L {
        let mut at = self.counters.sweep_position.load(Ordering::Relaxed);
        loop {
            let (line, next) = self.directory.line_at(at);
            let position = &self.counters.sweep_position;
            match position.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return line,
                Err(moved) => at = moved,
            }
        }
    }

    /// Frees the slots of idle keys in a line, and returns how many.
    pub(super) fn free_idle(
        &self,
        line: &mut Locked<'_, L>,
        idle_since: Timestamp,
        policy: &impl SlotPolicy<L>,
    ) -> usize {
        let mut freed = 0;
        while let Some(slot) = policy.idle_slot(line, idle_since) {
            self.note_reuse(idle_since);
            line.clear(slot);
            freed += 1;
        }
        if freed > 0 {
            self.uncount_keys(freed);
        }
        freed
    }

    /// The time for a decision about a key without a slot. It may have had one that was
    /// reused because the key was idle at the watermark, so it is not decided at an earlier time.
    ///
    /// Read it under the lock of the key's home line, after the key was not found.
    pub fn no_earlier_than_reuse(&self, now: Timestamp) -> Timestamp {
        now.max(Timestamp::from_nanos(self.counters.watermark_ns.load(Ordering::Relaxed)))
    }

    /// Raises the watermark: a state is dropped because it was idle at this time.
    ///
    /// Call it before the state is overwritten, under its lock.
    pub fn note_reuse(&self, idle_at: Timestamp) {
        self.counters.watermark_ns.fetch_max(idle_at.as_nanos(), Ordering::Relaxed);
    }
}

/// How long an idle key keeps its slot while the table may still grow: it may well return.
pub(super) const KEPT_IDLE: Duration = Duration::from_secs(10);

/// How many lines an insertion searches for idle keys when the table is at its capacity.
const SWEPT_LINES: usize = if cfg!(loom) { 2 } else { 8 };

/// How many lines are visited at most to find one that has keys.
const VISITED_PER_SWEPT: usize = if cfg!(loom) { 1 } else { 32 };
