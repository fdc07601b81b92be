//! The capacity of a table, and what happens beyond it.

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
    /// It is allowed without being counted. For callers to whom availability is worth more than
    /// the limit: a client that can fill the table is not limited.
    Allow,
}

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
}

impl Capacity {
    /// How many lines of this many slots the keys may take: 48 bytes per key in narrow lines.
    pub(super) fn max_lines(&self, slots: usize) -> usize {
        self.max_keys / 4 * 9 / slots + 2048
    }
}
