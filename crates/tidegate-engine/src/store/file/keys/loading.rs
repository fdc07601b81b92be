//! Keys while a log is read.

use super::{Keys, KnownKey, KnownKeys};
use crate::store::replay::{Background, Threads};

/// [`Keys`] that are read from a log. With many of them, the map is filled by another thread: it is
/// needed when all are there.
#[derive(Debug)]
pub(in crate::store::file) struct LoadingKeys {
    /// Everything but the map.
    keys: Keys,
    /// Keys by hash, with their numbers; without one a key is removed.
    by_hash: Background<(u64, Option<KnownKey>), KnownKeys>,
}

impl LoadingKeys {
    pub(in crate::store::file) fn new() -> Self {
        let by_hash = Background::new(Threads::ForWork, KnownKeys::default(), apply);
        Self { keys: Keys::default(), by_hash }
    }

    /// The number of a rule, for its keys.
    pub(in crate::store::file) fn rule(&mut self, domain_and_name: (&str, &str)) -> u32 {
        self.keys.rule(domain_and_name)
    }

    /// Adds a key with its number.
    pub(in crate::store::file) fn insert(&mut self, hash: u64, key: KnownKey) {
        self.keys.last = self.keys.last.max(key.number);
        self.by_hash.push((hash, Some(key)));
    }

    pub(in crate::store::file) fn remove(&mut self, hash: u64) {
        self.by_hash.push((hash, None));
    }

    /// The keys, when all are there.
    pub(in crate::store::file) fn finish(self) -> Keys {
        let mut keys = Keys { by_hash: self.by_hash.finish(), ..self.keys };
        keys.begin_snapshot();
        keys
    }
}

fn apply(by_hash: &mut KnownKeys, keys: &mut Vec<(u64, Option<KnownKey>)>) {
    for (hash, key) in keys.drain(..) {
        match key {
            Some(key) => by_hash.insert(hash, key),
            None => by_hash.remove(&hash),
        };
    }
}
