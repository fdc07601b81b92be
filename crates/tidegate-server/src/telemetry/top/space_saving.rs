//! Counts of the most frequent keys, by Metwally's "space saving".

use std::collections::HashMap;
use std::sync::Arc;

use super::{KeyCount, MOST_KEYS, TopKey};

/// Counts of the most frequent keys: if it is full, a new key replaces the rarest one and inherits its
/// count. So no frequent key is missed, and no count is too small.
#[derive(Debug, Default)]
pub(super) struct SpaceSaving {
    counts: Vec<Count>,
    /// Where the count of a key is.
    indexes: HashMap<Arc<TopKey>, usize>,
    /// Keys that were the rarest when all were last looked at, with the count that they all had. Those
    /// that still have it are the rarest still: counts only grow, but for halvings.
    rarest: Vec<usize>,
    rarest_count: u64,
}

#[derive(Debug)]
struct Count {
    key: Arc<TopKey>,
    count: u64,
    error: u64,
}

impl SpaceSaving {
    /// Counts a key `weight` times.
    pub(super) fn add(&mut self, key: &TopKey, weight: u64) {
        if let Some(&index) = self.indexes.get(key) {
            let count = &mut self.counts[index].count;
            *count = count.saturating_add(weight);
            return;
        }
        let key = Arc::new(key.clone());
        if self.counts.len() < MOST_KEYS {
            self.indexes.insert(Arc::clone(&key), self.counts.len());
            self.counts.push(Count { key, count: weight, error: 0 });
            // It may be rarer than those.
            self.rarest.clear();
            return;
        }
        let index = self.take_rarest();
        let replaced = &mut self.counts[index];
        self.indexes.remove(&replaced.key);
        self.indexes.insert(Arc::clone(&key), index);
        let inherited = replaced.count;
        *replaced = Count { key, count: inherited.saturating_add(weight), error: inherited };
    }

    /// The index of a key with the smallest count, which is about to be replaced.
    fn take_rarest(&mut self) -> usize {
        while let Some(index) = self.rarest.pop() {
            if self.counts[index].count == self.rarest_count {
                return index;
            }
        }
        let counts = self.counts.iter().map(|it| it.count);
        self.rarest_count = counts.clone().min().unwrap_or(0);
        let is_rarest = |(index, count)| (count == self.rarest_count).then_some(index);
        self.rarest.extend(counts.enumerate().filter_map(is_rarest));
        self.rarest.pop().unwrap_or(0)
    }

    /// Halves all counts so many times, and forgets those that come to nothing.
    pub(super) fn halve(&mut self, times: u32) {
        for count in &mut self.counts {
            count.count = count.count.checked_shr(times).unwrap_or(0);
            count.error = count.error.checked_shr(times).unwrap_or(0);
        }
        self.counts.retain(|it| it.count > 0);
        self.rarest.clear();
        let keys = self.counts.iter().map(|it| Arc::clone(&it.key));
        self.indexes = keys.zip(0..).collect();
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &TopKey> {
        self.counts.iter().map(|it| &*it.key)
    }

    /// The `count` most frequent keys.
    pub(super) fn first(&self, count: usize) -> Vec<KeyCount> {
        let seen =
            |it: &Count| KeyCount { key: TopKey::clone(&it.key), count: it.count, error: it.error };
        let mut all: Vec<KeyCount> = self.counts.iter().map(seen).collect();
        let order = |seen: &KeyCount| (std::cmp::Reverse(seen.count), seen.key.describe());
        all.sort_by_cached_key(order);
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests;
