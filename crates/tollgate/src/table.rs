//! The in-memory table: states of one limit, by the hash of a key.
//!
//! A hash is the key here: 64 bits, of which two different keys agree with a probability of 2^-64
//! under the default hash. It picks a home line ([`directory`]); the state lies there or in one of
//! the next few lines ([`chain`]).
//!
//! A decision reads the line without a lock. A refusal checks that the line's header has not
//! changed meanwhile and writes nothing at all. An admission takes the line's lock by swapping the
//! header that it read, which proves that nothing has changed since, and stores the new state.
//! A key that is not found is looked up again under the lock of its home line, and inserted there.
//!
//! A slot is reused only when its state is idle, and the time at which it was is remembered in
//! the *watermark*: a key without a slot is never decided at an earlier time than that, so a slow
//! thread cannot revive what a reused slot has forgotten.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use tollgate_core::{Decision, Timestamp};

pub use ceiling::WhenFull;

pub(crate) use ceiling::Ceiling;
pub(crate) use line::{Line, Narrow, NarrowLine, WIDE_WORDS, WideLine};

use crate::keyed::KeyedLimit;
use arena::prefetch;
use chain::{Chain, Position};
use directory::{Directory, Entry, PROBE};
use limits::Limits;
use line::{Header, Locked, SLOTS, find, is_unchanged, read_header};
use sketch::Sketch;
use sync::{AtomicU64, AtomicUsize, Ordering, RwLock};

mod arena;
mod ceiling;
mod chain;
mod directory;
mod grow;
mod limits;
mod line;
mod sketch;
mod sync;

#[derive(Debug)]
pub(crate) struct Table<A: KeyedLimit> {
    directory: Directory<A::Line>,
    limits: Limits<A>,
    ceiling: Ceiling,
    counters: Counters,
    overrides: RwLock<HashMap<u64, A>>,
    /// The counters that new keys share while the table is full; made when first needed.
    sketch: OnceLock<Option<Sketch<A>>>,
}

/// What changes with insertions, on a cache line that decisions about known keys do not touch.
#[derive(Debug)]
#[repr(align(128))]
struct Counters {
    keys: AtomicUsize,
    lines: AtomicUsize,
    /// No slot was reused on account of a later time than this.
    watermark_ns: AtomicU64,
    sweeps: AtomicUsize,
    segments: AtomicUsize,
}

/// A key whose home line is on its way from memory.
#[derive(Debug)]
pub(crate) struct Fetched<'a, A: KeyedLimit> {
    hash: u64,
    home: &'a A::Line,
}

impl<A: KeyedLimit> Clone for Fetched<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: KeyedLimit> Copy for Fetched<'_, A> {}

/// Why there is no slot for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoSlot {
    /// The lines where it could be are full of live keys.
    ChainFull,
    /// The table has as many keys as it may.
    AtCeiling,
}

/// There is no slot for a key that must have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull;

impl<A: KeyedLimit> Table<A> {
    /// An empty table; `None` if there is no memory for it.
    pub(crate) fn new(limit: A, ceiling: Ceiling, capacity_hint: Option<usize>) -> Option<Self> {
        let (bits, homes) = match capacity_hint {
            Some(keys) => grow::presized(keys.min(ceiling.max_keys)),
            None => (0, grow::FIRST_HOMES),
        };
        Some(Self {
            directory: Directory::new(bits, homes)?,
            limits: Limits::new(limit),
            ceiling,
            counters: Counters {
                keys: AtomicUsize::new(0),
                lines: AtomicUsize::new((homes + PROBE - 1) << bits),
                watermark_ns: AtomicU64::new(0),
                sweeps: AtomicUsize::new(0),
                segments: AtomicUsize::new(0),
            },
            overrides: RwLock::new(HashMap::new()),
            sketch: OnceLock::new(),
        })
    }

    /// The shared counters, once there are any.
    fn sketch(&self) -> Option<&Sketch<A>> {
        self.sketch.get().and_then(Option::as_ref)
    }

    /// Keys that have a slot.
    pub(crate) fn len(&self) -> usize {
        self.counters.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn ceiling(&self) -> Ceiling {
        self.ceiling
    }

    pub(crate) fn limit(&self) -> A {
        self.limits.in_force()
    }

    /// Asks the processor for the home line of a hash, to be there when it is decided about.
    ///
    /// Reading a clock waits for earlier reads of memory on some processors, so this comes first.
    #[inline(always)]
    pub(crate) fn fetch(&self, hash: u64) -> Fetched<'_, A> {
        let home = &self.directory.chain(self.directory.entry(hash), hash)[0];
        prefetch(home);
        Fetched { hash, home }
    }

    /// Charges `cost` to a key, if it fits, and reports what `report` makes of the decision.
    ///
    /// A whole decision is larger than the work of making it, so nothing of it is written down but
    /// what is asked for.
    #[inline(always)]
    pub(crate) fn check<R>(
        &self,
        key: Fetched<'_, A>,
        cost: u64,
        now: Timestamp,
        report: impl Fn(Decision) -> R,
    ) -> R {
        match self.check_in(key.home, (key.hash, cost), now, &report) {
            Some(reported) => reported,
            None => report(self.check_elsewhere(key.hash, cost, now)),
        }
    }

    /// Decides in this line, if the key is here and has no limit of its own.
    #[inline(always)]
    fn check_in<R>(
        &self,
        line: &A::Line,
        (hash, cost): (u64, u64),
        now: Timestamp,
        report: impl Fn(Decision) -> R,
    ) -> Option<R> {
        loop {
            let header = read_header(line);
            let slot = find(line, hash)?;
            if header.is_pinned(slot) {
                return None;
            }
            let limit = self.limits.get(header.limit_index());
            let before = line.load(slot);
            let mut state = A::unpack(before);
            let decision = limit.check(&mut state, cost, now);
            let after = A::pack(&state);
            if after == before {
                if is_unchanged(line, header) {
                    return Some(report(decision));
                }
            } else if let Some(mut locked) = Locked::if_unchanged(line, header) {
                // The count of writes in a header wraps; the slot itself has the last word.
                if locked.fingerprint(slot) == hash && locked.load(slot) == before {
                    locked.store(slot, after);
                    return Some(report(decision));
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn check_elsewhere(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let chain = self.directory.chain(self.directory.entry(hash), hash);
        for (line, next) in chain.iter().zip(&chain[1..]) {
            if !read_header(line).is_overflowed() {
                break;
            }
            if let Some(decision) = self.check_in(next, (hash, cost), now, |decision| decision) {
                return decision;
            }
        }
        if cost == 0 { self.peek(hash, cost, now) } else { self.check_locked(hash, cost, now) }
    }

    /// What [`check`](Self::check) would answer. Changes nothing.
    pub(crate) fn peek(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let (_, mut chain) = self.lock_chain(hash);
        if let Some(at) = chain.find(hash) {
            let line = chain.line(at.line);
            let state = A::unpack(line.load(at.slot));
            return self.limit_of(line.header, at.slot, hash).peek(&state, cost, now);
        }
        let home = chain.line(0);
        let now = self.no_earlier_than_reuse(now);
        match self.sketch() {
            Some(sketch) => sketch.estimate(self, hash, now).peek(cost, now),
            None => {
                let limit = self.limits.get(home.header.limit_index());
                limit.peek(&limit.fresh(), cost, now)
            }
        }
    }

    /// Gives back up to `units` to a key that has a slot, and reports how many.
    pub(crate) fn refund(&self, hash: u64, units: u64, now: Timestamp) -> u64 {
        let (_, mut chain) = self.lock_chain(hash);
        let Some(at) = chain.find(hash) else { return 0 };
        let line = chain.line(at.line);
        let limit = self.limit_of(line.header, at.slot, hash);
        let mut state = A::unpack(line.load(at.slot));
        let given = limit.refund(&mut state, units, now);
        line.store(at.slot, A::pack(&state));
        given
    }

    /// Drops what a key has spent; true if there was anything. Its own limit stays.
    pub(crate) fn forget(&self, hash: u64) -> bool {
        let (_, mut chain) = self.lock_chain(hash);
        let Some(at) = chain.find(hash) else { return false };
        let line = chain.line(at.line);
        if line.header.is_pinned(at.slot) {
            line.store(at.slot, Default::default());
        } else {
            line.clear(at.slot);
            self.counters.keys.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }

    /// Puts another limit into force. What was spent stays spent.
    ///
    /// When this returns every key is under the new limit; until then each is under one of both.
    ///
    /// The time is read again for each line, under its lock: what was charged before the line was
    /// moved was charged before that time, and is not given back at a rate that came later.
    pub(crate) fn set_limit(&self, limit: A, now: impl Fn() -> Timestamp) {
        let modernise = |line: &mut Locked<'_, A::Line>| {
            self.modernise(line, self.limits.current_index(), now());
        };
        self.limits.edit(limit, now(), || {
            for entry in self.directory.segments() {
                for line in self.directory.lines(entry) {
                    modernise(&mut Locked::new(line));
                }
            }
            if let Some(sketch) = self.sketch() {
                sketch.for_each_line(modernise);
            }
        });
    }

    /// Gives a key a limit of its own. What it has spent stays spent.
    pub(crate) fn set_override(
        &self,
        hash: u64,
        limit: A,
        now: Timestamp,
    ) -> Result<(), TableFull> {
        let (mut chain, at) = self.lock_slot(hash, now)?;
        let line = chain.line(at.line);
        let old = self.limit_of(line.header, at.slot, hash);
        self.move_slot(line, at.slot, (old, limit.succeeding(&old)), now);
        line.header.set_pinned(at.slot, true);
        let mut overrides = self.overrides.write().unwrap_or_else(|poison| poison.into_inner());
        overrides.insert(hash, limit.succeeding(&old));
        Ok(())
    }

    /// Puts a key back under the common limit; true if it had one of its own.
    pub(crate) fn remove_override(&self, hash: u64, now: Timestamp) -> bool {
        let (_, mut chain) = self.lock_chain(hash);
        let Some(at) = chain.find(hash) else { return false };
        let line = chain.line(at.line);
        if !line.header.is_pinned(at.slot) {
            return false;
        }
        let old = self.limit_of(line.header, at.slot, hash);
        let limit = self.limits.get(line.header.limit_index());
        self.move_slot(line, at.slot, (old, limit), now);
        line.header.set_pinned(at.slot, false);
        if line.load(at.slot) == Default::default() {
            line.clear(at.slot);
            self.counters.keys.fetch_sub(1, Ordering::Relaxed);
        }
        let mut overrides = self.overrides.write().unwrap_or_else(|poison| poison.into_inner());
        overrides.remove(&hash);
        true
    }

    /// Frees the slots of all keys that are idle at `now`.
    pub(crate) fn sweep(&self, now: Timestamp) {
        for entry in self.directory.segments() {
            for line in self.directory.lines(entry) {
                self.sweep_line(line, now);
            }
        }
    }
}

/// The slow way: under the lock of the key's home line.
impl<A: KeyedLimit> Table<A> {
    /// Locks the home of a key, in the segment that it belongs to for as long as the lock is held.
    fn lock_chain(&self, hash: u64) -> (Entry<A::Line>, Chain<'_, A::Line>) {
        loop {
            let entry = self.directory.entry(hash);
            let chain = Chain::lock(self.directory.chain(entry, hash));
            if self.directory.entry(hash) == entry {
                return (entry, chain);
            }
        }
    }

    fn check_locked(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let (mut may_make_room, mut idle_since) = (true, now.saturating_sub(KEPT_IDLE));
        loop {
            let (entry, mut chain) = self.lock_chain(hash);
            if let Some(at) = chain.find(hash) {
                let line = chain.line(at.line);
                let limit = self.limit_of(line.header, at.slot, hash);
                // A key may have been given its slot with its own limit, after it was forgotten.
                let is_pinned = line.header.is_pinned(at.slot);
                let now = if is_pinned { self.no_earlier_than_reuse(now) } else { now };
                let mut state = A::unpack(line.load(at.slot));
                let decision = limit.check(&mut state, cost, now);
                line.store(at.slot, A::pack(&state));
                return decision;
            }
            match self.claim(&mut chain, idle_since) {
                Ok(at) => return self.insert(&mut chain, at, (hash, cost), now),
                Err(why) if may_make_room => {
                    drop(chain);
                    may_make_room = self.make_room(why, hash, entry, now);
                    idle_since = if may_make_room { idle_since } else { now };
                }
                Err(_) => return self.check_without_slot(&mut chain, hash, cost, now),
            }
        }
    }

    /// The slot of a key that must have one, inserted if need be.
    fn lock_slot(
        &self,
        hash: u64,
        now: Timestamp,
    ) -> Result<(Chain<'_, A::Line>, Position), TableFull> {
        let (mut may_make_room, mut idle_since) = (true, now.saturating_sub(KEPT_IDLE));
        loop {
            let (entry, mut chain) = self.lock_chain(hash);
            if let Some(at) = chain.find(hash) {
                return Ok((chain, at));
            }
            match self.claim(&mut chain, idle_since) {
                Ok(at) => {
                    let state = self.first_state(chain.line(at.line), hash, now);
                    let line = chain.line(at.line);
                    line.set_fingerprint(at.slot, hash);
                    line.store(at.slot, A::pack(&state));
                    return Ok((chain, at));
                }
                Err(why) if may_make_room => {
                    drop(chain);
                    may_make_room = self.make_room(why, hash, entry, now);
                    idle_since = if may_make_room { idle_since } else { now };
                }
                Err(_) => return Err(TableFull),
            }
        }
    }

    /// A slot for a new key, which counts as a key from now on: a free one, or one whose key has
    /// been idle since `idle_since`.
    fn claim(
        &self,
        chain: &mut Chain<'_, A::Line>,
        idle_since: Timestamp,
    ) -> Result<Position, NoSlot> {
        let free_or_idle = |line: &Locked<'_, A::Line>| {
            line.free_slot().or_else(|| self.idle_slot(line, idle_since))
        };
        let at = chain.first_slot(free_or_idle);
        let at = at.ok_or(NoSlot::ChainFull)?;
        if chain.line(at.line).fingerprint(at.slot) == 0 {
            return if self.count_key() { Ok(at) } else { Err(NoSlot::AtCeiling) };
        }
        self.note_reuse(idle_since);
        chain.line(at.line).clear(at.slot);
        Ok(at)
    }

    /// Counts one more key, unless there are as many as there may be.
    fn count_key(&self) -> bool {
        let keys = &self.counters.keys;
        let fits = |keys| (keys < self.ceiling.max_keys).then_some(keys + 1);
        keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Decides about a new key in the slot that was claimed for it.
    fn insert(
        &self,
        chain: &mut Chain<'_, A::Line>,
        at: Position,
        (hash, cost): (u64, u64),
        now: Timestamp,
    ) -> Decision {
        let line = chain.line(at.line);
        let mut state = self.first_state(line, hash, now);
        let limit = self.limits.get(line.header.limit_index());
        let now = self.no_earlier_than_reuse(now);
        let decision = limit.check(&mut state, cost, now);
        if state == limit.fresh() {
            // Nothing to remember: a cost that can never pass takes no slot.
            self.counters.keys.fetch_sub(1, Ordering::Relaxed);
        } else {
            line.set_fingerprint(at.slot, hash);
            line.store(at.slot, A::pack(&state));
        }
        decision
    }

    /// The state that a new key starts with in this line: fresh, or what the shared counters say.
    fn first_state(&self, line: &mut Locked<'_, A::Line>, hash: u64, now: Timestamp) -> A::State {
        let Some(sketch) = self.sketch() else {
            return self.limits.get(line.header.limit_index()).fresh();
        };
        let estimate = sketch.estimate(self, hash, now);
        let current = self.limits.current_index();
        self.modernise(line, current, now);
        if estimate.limit_index == current {
            estimate.state
        } else {
            self.limits.carry_over(&estimate.state, current, now)
        }
    }

    /// Tries to make room for a new key; false when there is no way to.
    fn make_room(&self, why: NoSlot, hash: u64, entry: Entry<A::Line>, now: Timestamp) -> bool {
        match why {
            NoSlot::ChainFull => self.grow(hash, entry, now),
            NoSlot::AtCeiling => {
                let first = self.counters.sweeps.fetch_add(SWEPT_LINES, Ordering::Relaxed);
                (first..first + SWEPT_LINES)
                    .map(|number| self.sweep_line(self.directory.some_line(number), now))
                    .fold(false, |swept_any, swept| swept_any | swept)
            }
        }
    }

    /// Decides about a new key for which there is no slot, under the lock of its home line.
    fn check_without_slot(
        &self,
        chain: &mut Chain<'_, A::Line>,
        hash: u64,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let limit = self.limits.get(chain.line(0).header.limit_index());
        let now = self.no_earlier_than_reuse(now);
        match self.ceiling.when_full {
            WhenFull::Allow => limit.peek(&limit.fresh(), cost, now),
            WhenFull::Deny => limit.peek(&limit.fresh(), cost, now).refused_for_unknown_time(),
            WhenFull::Share => match self.sketch.get_or_init(|| Sketch::new(self)) {
                Some(sketch) => sketch.check(self, hash, cost, now),
                None => limit.peek(&limit.fresh(), cost, now).refused_for_unknown_time(),
            },
        }
    }

    /// Frees the slots of a line whose keys are idle; true if there were any.
    fn sweep_line(&self, line: &A::Line, now: Timestamp) -> bool {
        self.free_idle(&mut Locked::new(line), now) > 0
    }

    /// Frees the slots of a line whose keys have been idle, and reports how many.
    fn free_idle(&self, line: &mut Locked<'_, A::Line>, idle_since: Timestamp) -> usize {
        let mut freed = 0;
        while let Some(slot) = self.idle_slot(line, idle_since) {
            self.note_reuse(idle_since);
            line.clear(slot);
            freed += 1;
        }
        if freed > 0 {
            self.counters.keys.fetch_sub(freed, Ordering::Relaxed);
        }
        freed
    }

    /// The first slot whose key has been idle: nothing is lost with it.
    fn idle_slot(&self, line: &Locked<'_, A::Line>, idle_since: Timestamp) -> Option<usize> {
        let limit = self.limits.get(line.header.limit_index());
        line.occupied().find(|&slot| {
            let is_idle = limit.is_idle(&A::unpack(line.load(slot)), idle_since);
            is_idle && !line.header.is_pinned(slot)
        })
    }

    /// The time at which to decide about a key without a slot. It may have had one: that was
    /// reused because the key was idle at the watermark, so it is not decided at an earlier time.
    ///
    /// Read under the lock of the key's home line, after the key was not found.
    fn no_earlier_than_reuse(&self, now: Timestamp) -> Timestamp {
        now.max(Timestamp::from_nanos(self.counters.watermark_ns.load(Ordering::Relaxed)))
    }

    /// Remembers that a state was forgotten because it was idle at this time.
    ///
    /// Before the state is overwritten, under its lock.
    fn note_reuse(&self, idle_at: Timestamp) {
        self.counters.watermark_ns.fetch_max(idle_at.as_nanos(), Ordering::Relaxed);
    }

    /// The limit that a slot's state is counted under.
    fn limit_of(&self, header: Header, slot: usize, hash: u64) -> A {
        if header.is_pinned(slot) {
            let overrides = self.overrides.read().unwrap_or_else(|poison| poison.into_inner());
            if let Some(limit) = overrides.get(&hash) {
                return *limit;
            }
        }
        self.limits.get(header.limit_index())
    }

    /// Moves the states of a line to the limit that is in force, as read under the line's lock.
    fn modernise(&self, line: &mut Locked<'_, A::Line>, current: usize, now: Timestamp) {
        if line.header.limit_index() == current {
            return;
        }
        for slot in 0..SLOTS {
            let before = line.load(slot);
            if before != Default::default() && !line.header.is_pinned(slot) {
                let state = self.limits.carry_over(&A::unpack(before), current, now);
                line.store(slot, A::pack(&state));
            }
        }
        line.header.set_limit_index(current);
    }

    fn move_slot(
        &self,
        line: &mut Locked<'_, A::Line>,
        slot: usize,
        (from, to): (A, A),
        at: Timestamp,
    ) {
        let state = to.carry_over(&from, &A::unpack(line.load(slot)), at);
        line.store(slot, A::pack(&state));
    }
}

/// How long an idle key is left alone while the table may still grow: it may well come back.
const KEPT_IDLE: Duration = Duration::from_secs(10);

/// How many lines an insertion looks at for idle keys when the table is at its ceiling.
const SWEPT_LINES: usize = if cfg!(loom) { 2 } else { 8 };

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
