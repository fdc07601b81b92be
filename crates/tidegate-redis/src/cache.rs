//! The values that were last seen on the server.

use tidegate_engine::shared::RecordKey;

use crate::frame::Cell;
use crate::key_map::KeyMap;

/// The last values seen, of those keys that were used last.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Used since the last change of generations.
    young: KeyMap<Seen>,
    /// Used before that, and not since.
    old: KeyMap<Seen>,
}

/// A value, and when it was on the server: not before that time of the local clock.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) cell: Cell,
    pub(crate) at_ns: u64,
}

impl Cache {
    /// The value of a key, as it was last seen.
    pub(crate) fn get(&mut self, key: &RecordKey) -> Option<&Seen> {
        if !self.old.is_empty()
            && let Some(seen) = self.old.remove(key)
        {
            self.insert(*key, seen);
        }
        self.young.get(key)
    }

    pub(crate) fn insert(&mut self, key: RecordKey, seen: Seen) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        if !self.old.is_empty() {
            self.old.remove(&key);
        }
        self.young.insert(key, seen);
    }

    pub(crate) fn remove(&mut self, key: &RecordKey) {
        self.young.remove(key);
        self.old.remove(key);
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// How many states it has.
    pub(crate) fn states(&self) -> usize {
        let is_state =
            |(key, seen): &(&RecordKey, &Seen)| key.is_state() && seen.cell.record.is_some();
        self.young.iter().chain(&self.old).filter(is_state).count()
    }
}

/// How many values a generation has; there are two.
const GENERATION: usize = 1 << 16;
