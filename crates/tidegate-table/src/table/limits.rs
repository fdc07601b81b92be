//! The limit in force and the one before it, readable without a lock.

use tidegate_core::Timestamp;

use super::keyed::KeyedLimit;
use super::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence, lock};

/// Two limits as words. Every line has the index of the one that its states count under.
///
/// An edit writes the words that no line uses, makes them current, and then migrates every line.
/// A reader of half-written words has read a line that has been migrated since, so the
/// check of that line's header discards its decision.
#[derive(Debug)]
pub(crate) struct LimitPair<A> {
    words: [LimitWords; 2],
    current: AtomicUsize,
    /// When the current limit took effect.
    edited_at_ns: AtomicU64,
    in_force: Mutex<A>,
    /// Held by an edit until every line has been migrated.
    edit: Mutex<()>,
}

/// One limit as words, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct LimitWords {
    whole: [AtomicU64; 4],
    /// What it takes to charge one unit.
    unit: [AtomicU64; 4],
}

impl<A: KeyedLimit> LimitPair<A> {
    pub(crate) fn new(limit: A) -> Self {
        let words = || LimitWords {
            whole: limit.to_words().map(AtomicU64::new),
            unit: limit.unit_words().map(AtomicU64::new),
        };
        Self {
            words: [words(), words()],
            current: AtomicUsize::new(0),
            edited_at_ns: AtomicU64::new(0),
            in_force: Mutex::new(limit),
            edit: Mutex::new(()),
        }
    }

    /// One of the two limits.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> A {
        let words = &self.words[index].whole;
        A::from_words(std::array::from_fn(|word| words[word].load(Ordering::Relaxed)))
    }

    /// Reads the words of one of the two limits that it takes to charge one unit.
    #[inline(always)]
    pub(crate) fn unit_words(&self, index: usize) -> impl Fn(usize) -> u64 {
        let words = &self.words[index].unit;
        |word| words[word].load(Ordering::Relaxed)
    }

    /// The index of the limit in force. Read it under the lock of a line to compare with the
    /// line's.
    pub(crate) fn current_index(&self) -> usize {
        self.current.load(Ordering::Acquire)
    }

    /// The limit in force, as it was set.
    pub(crate) fn in_force(&self) -> A {
        *lock(&self.in_force)
    }

    /// A state that counts under the limit that is not `to`, migrated to `to` at `now`, or at the
    /// time of the edit if that is later.
    pub(crate) fn carry_over(&self, state: &A::State, to: usize, now: Timestamp) -> A::State {
        let edited_at = Timestamp::from_nanos(self.edited_at_ns.load(Ordering::Relaxed));
        self.get(to).carry_over(&self.get(1 - to), state, now.max(edited_at))
    }

    /// Puts a limit into force at `now`, and runs `move_lines` before the next edit can begin.
    pub(crate) fn edit(&self, limit: A, now: Timestamp, move_lines: impl FnOnce()) {
        let _one_at_a_time = lock(&self.edit);
        *lock(&self.in_force) = limit;
        let old = self.current_index();
        let limit = limit.succeeding(&self.get(old));
        // A reader of one of these words also sees what the edit before has done to the lines.
        fence(Ordering::Release);
        let LimitWords { whole, unit } = &self.words[1 - old];
        let words = whole.iter().zip(limit.to_words()).chain(unit.iter().zip(limit.unit_words()));
        words.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        self.edited_at_ns.store(now.as_nanos(), Ordering::Relaxed);
        self.current.store(1 - old, Ordering::Release);
        move_lines();
    }
}
