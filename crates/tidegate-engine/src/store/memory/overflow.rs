//! Overflow counters, which new keys share while the table is full.
//!
//! One array for all rules. It has two rows of buckets with a few cells each, and each key one bucket
//! in each row. A cell belongs to one rule and to a class of its keys, and is at least as restrictive
//! as each of them. A rule has as many classes in a bucket as leave a cell for every other rule that
//! overflows; it gives cells back by joining two of its classes. Where it finds no cell, its keys
//! share the rule's spare cell. A cell for more keys than before starts with the spare one's state, so
//! that in each row
//!
//! > the cells that cover a key, or else the spare cell, are at least as restrictive as the key,
//!
//! and the better of the two rows is a safe estimate of what the key was charged. A state is dropped
//! only when it is idle.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::Timestamp;

use crate::any_limit::{AnyLimit, AnyState, DecisionTime, NO_PERIOD};
use crate::history::{History, KeyRef, RuleHistory, StoredState};
use crate::periods::Times;
use crate::plan::Charge;

#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// The cells, in blocks that are allocated when first needed.
    blocks: Vec<Vec<Option<OverflowCell>>>,
    /// Cells in a block.
    block_cells: usize,
    families: HashMap<u64, FamilyOverflow>,
    /// How many classes of keys a rule has in a bucket.
    classes: u8,
    /// Counts charges, to look for rules that no longer overflow.
    charges: u32,
    /// The latest time at which a state was dropped because it was idle.
    dropped_at: Timestamp,
}

/// A rule with keys in the array.
#[derive(Debug)]
struct FamilyOverflow {
    last_charge: Timestamp,
    spare: Option<OverflowCell>,
}

/// A state of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverflowCell {
    pub(crate) family: u64,
    class: Class,
    pub(crate) stored: StoredState,
    /// The limit that the state counts under: the slowest of the keys that it was charged for.
    pub(crate) limit: AnyLimit,
}

/// The keys whose number is congruent to `number` modulo `of`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    number: u8,
    of: u8,
}

/// A key without a slot, and what is needed to read its cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharingKey<'a> {
    pub(crate) charge: &'a Charge,
    pub(crate) key: KeyRef<'a>,
    pub(crate) history: &'a History,
    pub(crate) times: Times,
}

/// A key's bucket in a row, and its number there.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    block: usize,
    first: usize,
    number: u8,
}

impl Overflow {
    /// How many cells fit into so many bytes.
    pub(crate) const fn cells_in(bytes: usize) -> usize {
        bytes / size_of::<Option<OverflowCell>>()
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let cells: usize = self.blocks.iter().map(Vec::capacity).sum();
        cells * size_of::<Option<OverflowCell>>()
            + self.blocks.capacity() * size_of::<Vec<Option<OverflowCell>>>()
            + self.families.capacity() * size_of::<(u64, FamilyOverflow)>()
    }

    /// An upper bound of what the key was charged; `None` if it was charged nothing.
    pub(crate) fn estimate(&self, key: SharingKey<'_>) -> Option<AnyState> {
        if self.blocks.is_empty() {
            return None;
        }
        let limit = key.charge.limit;
        let fresh = limit.fresh(key.charge.period);
        let [first, second] =
            self.buckets(key.charge.hash).map(|at| self.state_in(at, key).unwrap_or(fresh));
        let decided_at = key.charge.limit_request(key.times.now).decided_at;
        let rank = |state: &AnyState| {
            let look = limit.peek(state, 1, decided_at);
            (look.is_allowed(), look.remaining(), Reverse(look.reset().unwrap_or(Duration::MAX)))
        };
        let best = if rank(&first) >= rank(&second) { first } else { second };
        (best != fresh).then_some(best)
    }

    /// Counts a charge that changed the key's estimate to `after`. There are up to `most_cells`.
    pub(crate) fn charge(&mut self, key: SharingKey<'_>, after: AnyState, most_cells: usize) {
        if self.blocks.is_empty() {
            let cells = most_cells.max(MIN_CELLS) / MIN_CELLS * MIN_CELLS;
            self.block_cells = cells.min(BLOCK_CELLS);
            self.blocks = vec![Vec::new(); cells / self.block_cells];
        }
        self.note_family(key);
        let charge = key.charge;
        let charged = charge.with_own_window(&after, key.times.now);
        let mut has_all = true;
        for at in self.buckets(charge.hash) {
            has_all &= self.charge_row(at, key, charged);
        }
        if let Some(family) = self.families.get_mut(&charge.family).filter(|_| !has_all) {
            let joined = key.joined(charged, family.spare.iter());
            self.dropped_at = self.dropped_at.max(joined.dropped_at);
            family.spare = Some(joined.into_cell(Class { number: 0, of: 1 }, key));
        }
    }

    /// Counts a charge in a bucket; false if the rule has no cell there, and gets none.
    fn charge_row(&mut self, at: Bucket, key: SharingKey<'_>, charged: AnyState) -> bool {
        let family = key.charge.family;
        let block = &mut self.blocks[at.block];
        if block.is_empty() {
            *block = vec![None; self.block_cells];
        }
        let cells = &mut block[at.first..at.first + WAYS];
        let is_own = |cell: &OverflowCell| cell.family == family;
        let covering = |cell: &&OverflowCell| is_own(cell) && cell.class.has(at.number);
        let before = cells.iter().flatten().filter(covering).map(|cell| cell.class.of).min();
        let class = Class::of(at.number, before.map_or(self.classes, |of| of.min(self.classes)));
        // A wider class than before has keys that were in the spare cell.
        let is_part = |cell: &OverflowCell| is_own(cell) && class.includes(cell.class);
        let spare = self.families.get(&family).and_then(|family| family.spare.as_ref());
        let spare = spare.filter(|_| before != Some(class.of));
        let parts = cells.iter().flatten().filter(|cell| is_part(cell)).chain(spare);
        let joined = key.joined(charged, parts);
        let is_free = |cell: &Option<OverflowCell>| cell.as_ref().is_none_or(is_part);
        let mut found = cells.iter().position(is_free);
        if found.is_none() {
            let is_idle = |cell: &OverflowCell| cell.is_idle(key.history, key.times);
            found = cells.iter().position(|cell| cell.as_ref().is_none_or(is_idle));
            self.dropped_at = self.dropped_at.max(found.map_or(Timestamp::ZERO, |_| key.times.now));
        }
        let found = found.or_else(|| join_classes(cells, &self.families, self.classes));
        let Some(found) = found else { return false };
        for cell in cells.iter_mut() {
            *cell = cell.filter(|cell| !is_part(cell));
        }
        self.dropped_at = self.dropped_at.max(joined.dropped_at);
        cells[found] = Some(joined.into_cell(class, key));
        true
    }

    /// A row's state for a key; `None` if it is as good as fresh.
    fn state_in(&self, at: Bucket, key: SharingKey<'_>) -> Option<AnyState> {
        let family = key.charge.family;
        let block = &self.blocks[at.block];
        let cells = block.get(at.first..at.first + WAYS).unwrap_or_default();
        let covering = |cell: &&OverflowCell| cell.family == family && cell.class.has(at.number);
        let mut covering = cells.iter().flatten().filter(covering).peekable();
        if covering.peek().is_none() {
            return key.state_in(self.families.get(&family)?.spare.as_ref()?);
        }
        let join = |a: AnyState, b: AnyState| key.charge.limit.join(&a, &b);
        covering.filter_map(|cell| key.state_in(cell)).reduce(join)
    }

    /// Notes that a rule overflows, and looks now and then for rules that no longer do.
    fn note_family(&mut self, SharingKey { charge, history, times, .. }: SharingKey<'_>) {
        let now = times.now;
        let fresh = FamilyOverflow { last_charge: now, spare: None };
        let known = self.families.len();
        let family = self.families.entry(charge.family).or_insert(fresh);
        family.last_charge = family.last_charge.max(now);
        self.charges = self.charges.wrapping_add(1);
        if self.families.len() == known && !self.charges.is_multiple_of(CHARGES_PER_LOOK) {
            return;
        }
        let is_recent =
            |family: &FamilyOverflow| family.last_charge.saturating_add(OVERFLOWS_FOR) >= now;
        self.families.retain(|_, family| {
            if family.spare.is_some_and(|spare| spare.is_idle(history, times)) {
                family.spare = None;
                self.dropped_at = self.dropped_at.max(now);
            }
            family.spare.is_some() || is_recent(family)
        });
        let families = self.families.values().filter(|family| is_recent(family)).count();
        let shares = WAYS / families.next_power_of_two().min(WAYS);
        self.classes = u8::try_from(shares).unwrap_or(1);
    }

    /// Drops the cells that are idle.
    pub(crate) fn drop_idle(&mut self, history: &History, times: Times) {
        let spares = self.families.values_mut().map(|family| &mut family.spare);
        for cell in self.blocks.iter_mut().flatten().chain(spares) {
            if cell.is_some_and(|cell| cell.is_idle(history, times)) {
                *cell = None;
                self.dropped_at = self.dropped_at.max(times.now);
            }
        }
    }

    /// Drops the cells of rules.
    pub(crate) fn forget(&mut self, is_meant: impl Fn(u64) -> bool) {
        for cell in self.blocks.iter_mut().flatten() {
            if cell.is_some_and(|cell| is_meant(cell.family)) {
                *cell = None;
            }
        }
        self.families.retain(|family, _| !is_meant(*family));
    }

    /// The time for a decision about a key without a slot is not earlier than this: its state may
    /// have been dropped as idle.
    pub(crate) fn dropped_at(&self) -> Timestamp {
        self.dropped_at
    }

    /// The limits that the cells count under.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        let spares = self.families.values().map(|family| &family.spare);
        self.blocks.iter().flatten().chain(spares).flatten().map(|cell| cell.stored.tag)
    }

    /// The key's bucket in each of the two rows.
    fn buckets(&self, hash: u64) -> [Bucket; 2] {
        let spread = |hash: u64| (hash ^ (hash >> 29)).wrapping_mul(SPREAD);
        let first = spread(hash);
        let hashes = [first, spread(first.rotate_left(32))];
        let per_block = self.block_cells / WAYS;
        let per_row = self.blocks.len() * per_block / 2;
        #[allow(clippy::cast_possible_truncation, reason = "below the number of buckets")]
        let scaled = |hash: u64| ((u128::from(hash) * per_row as u128) >> 64) as usize;
        [0, 1].map(|row| {
            let bucket = row * per_row + scaled(hashes[row]);
            let number = u8::try_from(hashes[row] % WAYS as u64).unwrap_or(0);
            Bucket { block: bucket / per_block, first: bucket % per_block * WAYS, number }
        })
    }
}

impl Class {
    fn of(number: u8, of: u8) -> Self {
        Self { number: number % of, of }
    }

    fn has(self, number: u8) -> bool {
        number % self.of == self.number
    }

    /// The smallest class that has the keys of both.
    fn joining(self, other: Self) -> Self {
        let mut of = self.of.min(other.of);
        while self.number % of != other.number % of {
            of /= 2;
        }
        Self::of(self.number, of)
    }

    /// Whether it has all keys of another one.
    fn includes(self, other: Self) -> bool {
        other.of >= self.of && self.has(other.number)
    }
}

/// A state as of a charge, with the limit that it counts under.
#[derive(Clone, Copy)]
struct Counted {
    limit: AnyLimit,
    state: AnyState,
}

impl Counted {
    /// The same under another limit, from a time on.
    fn under(self, limit: &AnyLimit, from: Timestamp) -> AnyState {
        if is_same(&self.limit, limit) {
            return self.state;
        }
        limit.carry_over(&self.limit, &self.state, DecisionTime { now: from, period: NO_PERIOD })
    }

    /// A state at least as restrictive as both, under the slower limit: under the other one it would
    /// be idle too early.
    fn join(self, other: Self, now: Timestamp) -> Self {
        let limit = if other.limit.is_slower_than(&self.limit) { other.limit } else { self.limit };
        let state = limit.join(&self.under(&limit, now), &other.under(&limit, now));
        Self { limit, state }
    }
}

/// What goes into a cell.
struct Joined {
    counted: Counted,
    tag: u32,
    /// When a part was left out because it was idle.
    dropped_at: Timestamp,
}

impl Joined {
    fn into_cell(self, class: Class, key: SharingKey<'_>) -> OverflowCell {
        let Counted { limit, state } = self.counted;
        let stored = StoredState { tag: self.tag, state };
        OverflowCell { family: key.charge.family, class, stored, limit }
    }
}

impl SharingKey<'_> {
    /// A state at least as restrictive as `charged` and all cells.
    fn joined<'c>(
        &self,
        charged: AnyState,
        cells: impl Iterator<Item = &'c OverflowCell>,
    ) -> Joined {
        let Charge { limit, tag, .. } = *self.charge;
        let counted = Counted { limit, state: charged };
        let mut joined = Joined { counted, tag, dropped_at: Timestamp::ZERO };
        for cell in cells {
            if cell.is_idle(self.history, self.times) {
                joined.dropped_at = self.times.now;
                continue;
            }
            joined.counted = joined.counted.join(self.counted(cell), self.times.now);
            joined.tag = joined.tag.max(cell.stored.tag);
        }
        joined
    }

    /// A cell's state for this key, under its limit; `None` if it is as good as fresh.
    fn state_in(&self, cell: &OverflowCell) -> Option<AnyState> {
        let (limit, now) = (&self.charge.limit, self.times.now);
        let state = self.counted(cell).under(limit, now);
        let is_over = match state {
            // What it had left is not carried over: a key without a slot is as good as new.
            AnyState::Quota(state) => state.period < self.charge.period.index,
            _ => limit.is_idle(&state, now),
        };
        (!is_over).then_some(state)
    }

    /// A cell as of the charge's version of the limits.
    fn counted(&self, cell: &OverflowCell) -> Counted {
        let Self { charge, key, history, times } = *self;
        let OverflowCell { stored, limit, .. } = *cell;
        let counted = Counted { limit, state: stored.state };
        let edited = history.rule(charge.family).filter(|_| stored.tag < charge.tag);
        let Some(rule) = edited else { return counted };
        let is_quota = matches!(stored.state, AnyState::Quota(_));
        if is_quota || is_same(rule.limit_at(stored.tag, key).limit, &limit) {
            let current = rule.advance(stored, key, charge.tag, times.now);
            return Counted { limit: current.limit_in_force(), state: current.decided_state() };
        }
        // Keys with other overrides have been charged there. It counts under the slowest limit.
        if !charge.limit.is_slower_than(&limit) {
            return counted;
        }
        let edited = rule.first_change(stored.tag, charge.tag).unwrap_or(times.now);
        Counted { limit: charge.limit, state: counted.under(&charge.limit, edited) }
    }
}

impl OverflowCell {
    /// A cell for all keys of a rule that share it.
    pub(crate) const fn new(family: u64, stored: StoredState, limit: AnyLimit) -> Self {
        Self { family, class: Class { number: 0, of: 1 }, stored, limit }
    }

    /// The cell after a charge that changed the key's estimate to `after`.
    pub(crate) fn charged(before: Option<&Self>, key: SharingKey<'_>, after: AnyState) -> Self {
        let charged = key.charge.with_own_window(&after, key.times.now);
        key.joined(charged, before.into_iter()).into_cell(Class { number: 0, of: 1 }, key)
    }

    /// An upper bound of what a key was charged that shares it; `None` if that is nothing.
    pub(crate) fn estimate(&self, key: SharingKey<'_>) -> Option<AnyState> {
        let fresh = key.charge.limit.fresh(key.charge.period);
        key.state_in(self).filter(|state| *state != fresh)
    }

    /// For how long it may be needed: the first of 1, 2, 4, … s after which it is idle.
    pub(crate) fn needed_for(&self, history: &History, times: Times) -> Option<Duration> {
        let is_idle_after =
            |after: &Duration| self.is_idle(history, times.at(times.now.saturating_add(*after)));
        (0..40).map(|power| Duration::from_secs(1 << power)).find(is_idle_after)
    }

    /// Whether every key that was charged in it is as good as fresh.
    pub(crate) fn is_idle(&self, history: &History, times: Times) -> bool {
        let Some(rule) = history.rule(self.family) else { return true };
        rule.is_gone_at(times.now) || self.is_idle_under(rule, times)
    }

    fn is_idle_under(&self, rule: &RuleHistory, times: Times) -> bool {
        let StoredState { tag, state } = self.stored;
        let newest = rule.tag_at(times);
        match state {
            AnyState::Quota(state) => {
                let open = rule.newest().decided_at(times).period.index;
                rule.renumbered(tag, state.period, rule.newest().tag) < open
            }
            _ if tag >= newest => self.limit.is_idle(&state, times.now),
            // It may have counted under any limit since; the slowest one is the last to be idle.
            _ => {
                let counted = Counted { limit: self.limit, state };
                let edited = rule.first_change(tag, newest).unwrap_or(times.now);
                let is_idle =
                    |limit: &AnyLimit| limit.is_idle(&counted.under(limit, edited), times.now);
                rule.limits().chain([&self.limit]).all(is_idle)
            }
        }
    }
}

/// Joins two classes of a rule that has more in a bucket than its share, and returns the index of the
/// cell that is free then. Only states that count alike can be joined without a key.
fn join_classes(
    cells: &mut [Option<OverflowCell>],
    families: &HashMap<u64, FamilyOverflow>,
    share: u8,
) -> Option<usize> {
    let is_alike = |a: &OverflowCell, b: &OverflowCell| {
        (a.family, a.stored.tag) == (b.family, b.stored.tag) && is_same(&a.limit, &b.limit)
    };
    let joined = |a: &OverflowCell, b: &OverflowCell, class: Class| {
        let state = a.limit.join(&a.stored.state, &b.stored.state);
        OverflowCell { class, stored: StoredState { state, ..a.stored }, ..*a }
    };
    let mut best: Option<(usize, usize, OverflowCell)> = None;
    for (first, a) in cells.iter().enumerate() {
        let Some(a) = a else { continue };
        let count = cells.iter().flatten().filter(|cell| cell.family == a.family).count();
        let spare = families.get(&a.family).and_then(|family| family.spare.as_ref());
        if count <= usize::from(share) || spare.is_some_and(|spare| !is_alike(spare, a)) {
            continue;
        }
        for (second, b) in cells.iter().enumerate().skip(first + 1) {
            let Some(b) = b.as_ref().filter(|b| is_alike(a, b)) else { continue };
            let class = a.class.joining(b.class);
            if best.is_none_or(|(_, _, best)| class.of > best.class.of) {
                let both = joined(a, b, class);
                best = Some((first, second, spare.map_or(both, |it| joined(&both, it, class))));
            }
        }
    }
    let (first, second, both) = best?;
    cells[first] = Some(both);
    cells[second] = None;
    Some(second)
}

/// Whether states mean the same under both. Equal buckets may count in different ticks.
fn is_same(a: &AnyLimit, b: &AnyLimit) -> bool {
    a.to_words() == b.to_words()
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Cells in a bucket: so many rules can overflow without touching each other.
const WAYS: usize = 16;
const MIN_CELLS: usize = 64;
const BLOCK_CELLS: usize = 1_024;
/// How long a rule counts as overflowing after a charge there.
const OVERFLOWS_FOR: Duration = Duration::from_secs(60);
const CHARGES_PER_LOOK: u32 = 256;

#[cfg(test)]
mod tests;
