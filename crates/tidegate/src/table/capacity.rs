//! How much a table may hold, and what happens then.

/// What happens to a new key when the table is full of live ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It shares counters with other new keys, and may be refused for what they have spent, never
    /// allowed more than its limit. When a slot becomes free it goes on there with what the shared
    /// counters say. Keys that the table knows are not affected.
    #[default]
    Share,
    /// It is refused; nobody can know for how long.
    Deny,
    /// It is allowed without being counted. For callers to whom availability is worth more than
    /// the limit: anybody who can fill the table passes.
    Allow,
}

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
}

impl Capacity {
    /// How many lines of so many slots the keys may take: 48 bytes per key in narrow lines.
    pub(super) fn max_lines(&self, slots: usize) -> usize {
        self.max_keys / 4 * 9 / slots + 2048
    }
}
