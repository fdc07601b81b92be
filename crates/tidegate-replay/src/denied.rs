//! The keys that were denied, with their names and when.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::keys::HashIsKey;

/// Keys with denials. If there are more than fit, those with the fewest are forgotten.
#[derive(Debug)]
pub(crate) struct DeniedKeys {
    most: usize,
    keys: HashMap<u64, DeniedCounts, BuildHasherDefault<HashIsKey>>,
    cells: usize,
    /// Whether keys, or the times of their denials, were forgotten.
    is_pruned: bool,
}

/// The denials of a key.
#[derive(Clone, Debug)]
pub(crate) struct DeniedCounts {
    pub(crate) rule: u32,
    /// The hash of the key, without its rule.
    pub(crate) key: u64,
    pub(crate) values: Box<[Option<Box<str>>]>,
    pub(crate) denied: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    row: Row,
}

/// How many denials there were in each bucket of time.
#[derive(Clone, Debug, Default)]
struct Row {
    width_s: u64,
    /// The start of a bucket in seconds, and the denials in it.
    cells: Vec<(u64, u32)>,
}

/// A denial of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial {
    pub(crate) rule: u32,
    pub(crate) key: u64,
    pub(crate) time_ns: u64,
    /// The width of a bucket of the chart.
    pub(crate) width_s: u64,
}

impl DeniedKeys {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(2), keys: HashMap::default(), cells: 0, is_pruned: false }
    }

    pub(crate) const fn is_pruned(&self) -> bool {
        self.is_pruned
    }

    /// Counts a denial. `values` names a key that is new.
    pub(crate) fn add(&mut self, denial: Denial, values: impl FnOnce() -> Box<[Option<Box<str>>]>) {
        let hash = denial.key ^ u64::from(denial.rule).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if self.keys.len() >= self.most && !self.keys.contains_key(&hash) {
            self.prune();
        }
        let counts = self.keys.entry(hash).or_insert_with(|| DeniedCounts {
            rule: denial.rule,
            key: denial.key,
            values: values(),
            denied: 0,
            first_ns: denial.time_ns,
            last_ns: denial.time_ns,
            row: Row::default(),
        });
        counts.denied += 1;
        counts.last_ns = denial.time_ns;
        let before = counts.row.cells.len();
        counts.row.add(denial.time_ns / 1_000_000_000, denial.width_s);
        self.cells = (self.cells + counts.row.cells.len()).saturating_sub(before);
        if self.cells > MOST_CELLS {
            self.prune_cells();
        }
    }

    /// The median of the denials of a key.
    fn median(&self) -> u64 {
        let mut counts: Vec<u64> = self.keys.values().map(|it| it.denied).collect();
        let middle = counts.len() / 2;
        if counts.is_empty() { 0 } else { *counts.select_nth_unstable(middle).1 }
    }

    /// Forgets about half of the keys, those with the fewest denials.
    #[cold]
    fn prune(&mut self) {
        self.is_pruned = true;
        let (median, mut left) = (self.median(), self.most / 2);
        self.keys.retain(|_, counts| {
            // Of keys with as many denials as the median, as many as there is room for.
            let stays = counts.denied > median || (counts.denied == median && left > 0);
            left = left.saturating_sub(usize::from(stays));
            stays
        });
        self.cells = self.keys.values().map(|it| it.row.cells.len()).sum();
    }

    /// Forgets the times of denials of the keys with the fewest.
    #[cold]
    fn prune_cells(&mut self) {
        self.is_pruned = true;
        let median = self.median();
        for counts in self.keys.values_mut().filter(|it| it.denied <= median) {
            counts.row.cells = Vec::new();
        }
        self.cells = self.keys.values().map(|it| it.row.cells.len()).sum();
    }

    /// The keys with the most denials; of equal ones those that were denied first.
    pub(crate) fn top(&self, most: usize) -> Vec<&DeniedCounts> {
        let mut all: Vec<_> = self.keys.values().collect();
        all.sort_by(|a, b| {
            let order = |it: &DeniedCounts| (std::cmp::Reverse(it.denied), it.first_ns, it.rule);
            order(a).cmp(&order(b)).then_with(|| a.values.cmp(&b.values))
        });
        all.truncate(most);
        all
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeniedCounts> {
        self.keys.values()
    }
}

impl DeniedCounts {
    /// The denials in buckets of this width: the start of each in seconds, and how many.
    pub(crate) fn row(&self, width_s: u64) -> Vec<(u64, u32)> {
        let mut row = self.row.clone();
        row.widen(width_s);
        row.cells
    }
}

impl Row {
    fn add(&mut self, second: u64, width_s: u64) {
        if self.width_s != width_s {
            self.widen(width_s);
        }
        let start = second / width_s * width_s;
        match self.cells.last_mut() {
            Some((known, count)) if *known == start => *count = count.saturating_add(1),
            _ => self.cells.push((start, 1)),
        }
    }

    fn widen(&mut self, width_s: u64) {
        self.width_s = width_s;
        let mut wider: Vec<(u64, u32)> = Vec::new();
        for (start, count) in self.cells.drain(..) {
            let start = start / width_s * width_s;
            match wider.last_mut() {
                Some((known, sum)) if *known == start => *sum = sum.saturating_add(count),
                _ => wider.push((start, count)),
            }
        }
        self.cells = wider;
    }
}

/// The most buckets of all keys together: 32 MiB.
const MOST_CELLS: usize = 1 << 21;

#[cfg(test)]
mod tests;
