//! The capacity of a table, and what happens beyond it.

use super::sync::{AtomicUsize, Ordering};

/// What happens to a new key when the table is full of live ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It shares counters with other new keys, and may be denied for what they were charged, never
    /// allowed more than its limit. When a slot becomes free it moves there with the estimate of
    /// the shared counters. Keys that have a slot are not affected.
    #[default]
    Share,
    /// It is denied; the wait is unknown.
    Deny,
}

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub max_keys: usize,
    pub when_full: WhenFull,
}

impl Capacity {
    /// How many lines of this many slots the keys may take: 48 bytes per key in narrow lines.
    pub(super) fn max_lines(&self, slots: usize) -> usize {
        self.max_keys / 4 * 9 / slots + 2048
    }
}

/// How many keys there are, in all tables that share a capacity.
///
/// A key is counted before its slot is written and uncounted after its slot is cleared, so there
/// are never more keys than counted. On a cache line of its own: decisions about known keys do not
/// touch it.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct KeyBudget {
    keys: AtomicUsize,
    max_keys: usize,
}

impl KeyBudget {
    pub(super) fn new(max_keys: usize) -> Self {
        Self { keys: AtomicUsize::new(0), max_keys }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Whether there are as many keys as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.max_keys
    }

    /// Whether seven eighths of the keys that there may be are there.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.len() >= self.max_keys - self.max_keys / 8
    }

    /// Counts one more key; false if there are as many as there may be.
    #[must_use]
    pub(super) fn claim(&self) -> bool {
        let fits = |keys| (keys < self.max_keys).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Counts fewer keys.
    pub(super) fn release(&self, keys: usize) {
        self.keys.fetch_sub(keys, Ordering::Relaxed);
    }
}
