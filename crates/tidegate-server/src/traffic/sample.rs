//! A sample of requests by key: of some keys of each rule all requests, so that an edit of the rule can
//! be tried on them.
//!
//! Which keys are in it depends on a hash of the key alone. At first all are; when the memory is used
//! up, large rules keep every second of their keys, again and again. So what is counted for the keys in
//! the sample, times a power of two, is an estimate for all keys of the rule.

use std::cell::Cell;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::policy::{Charging, Mode, RuleId};
use tidegate::{Report, Request, StoreEngine, Timestamp, report::KeyName};

/// Requests of some keys of every rule.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The bounds of hashes below which keys are in the sample, by a hash of the rule: the largest of
    /// the rules that share it. Most requests of busy rules are turned away here, without a lock.
    bounds: Box<[AtomicU64; BOUNDS]>,
    kept: Mutex<KeptRequests>,
}

#[derive(Debug, Default)]
struct KeptRequests {
    rules: HashMap<RuleId, RuleRequests>,
    bytes: usize,
}

/// The sampled requests of one rule.
#[derive(Debug)]
struct RuleRequests {
    /// One key of `2^halvings` is in the sample.
    halvings: u32,
    keys: HashMap<u64, NamedKey>,
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// From when on all requests of the keys are here.
    since: Timestamp,
    /// Whether each entry is one request at its own time, and none was a hold, whose units may come
    /// back.
    is_whole: bool,
}

#[derive(Debug)]
struct NamedKey {
    name: Arc<KeyName>,
    bytes: usize,
    entries: usize,
}

/// Requests of one key at about the same time.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Timestamp,
    key: u64,
    cost: u64,
    count: u32,
    /// Whether the rule itself denied, enforced or not.
    is_denied: bool,
    is_denied_by_others: bool,
}

/// The sampled requests of one rule, for a preview.
#[derive(Debug)]
pub(crate) struct RuleSample {
    /// By the hash of the key; one key of `2^halvings` is in it.
    pub(crate) keys: Vec<KeySample>,
    pub(crate) halvings: u32,
    pub(crate) since: Timestamp,
    /// Whether each of them is one request at its own time, and none was a hold.
    pub(crate) is_whole: bool,
}

/// The requests of one key, oldest first.
#[derive(Debug)]
pub(crate) struct KeySample {
    pub(crate) name: Arc<KeyName>,
    pub(crate) requests: Vec<SampledRequest>,
}

/// Requests of a key at about the same time, which other rules allowed or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampledRequest {
    pub(crate) at: Timestamp,
    pub(crate) cost: u64,
    pub(crate) count: u32,
    /// Whether the rule itself denied them, enforced or not.
    pub(crate) is_denied: bool,
    /// Whether another rule denied them, so that this one did not charge them.
    pub(crate) is_denied_by_others: bool,
}

impl Default for Sample {
    fn default() -> Self {
        let bounds = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        Self { bounds: Box::new(bounds), kept: Mutex::default() }
    }
}

impl Sample {
    /// Keeps a decided request for every rule whose key is in the sample.
    pub(crate) fn observe(&self, engine: &StoreEngine, requests: &[Request<'_>], report: &Report) {
        if report.is_outage() || report.is_repeat() {
            return;
        }
        let denying = denying_rules(report);
        engine.each_rule_key(report, requests, |key| {
            let mixed = mix(key.hash);
            // A request of cost 0 is limited by postpaid rules alone.
            let is_look = key.cost == 0 && key.charging() != Charging::Postpaid;
            if is_look || mixed > self.bound(key.rule()).load(Ordering::Relaxed) {
                return;
            }
            let now = engine.clock().now();
            let Some(weight) = weight(now) else { return };
            let is_denying = !key.decision.is_allowed() && key.mode == Mode::Enforce;
            let is_denied_by_others = match key.charging() {
                Charging::Allowed => denying.all > usize::from(is_denying),
                Charging::Refused => false,
                Charging::Postpaid => denying.prepaid > 0,
            };
            let entry = Entry {
                at: now,
                key: mixed,
                cost: key.cost,
                count: weight,
                is_denied: !key.decision.is_allowed(),
                is_denied_by_others,
            };
            let is_whole = report.hold().is_none() && weight == 1;
            self.add(key.rule(), entry, is_whole, || key.name());
        });
    }

    fn add(&self, rule: &RuleId, entry: Entry, is_whole: bool, name: impl FnOnce() -> KeyName) {
        let kept = &mut *self.lock();
        if !kept.rules.contains_key(rule) {
            kept.bytes += RULE_BYTES;
            kept.rules.insert(rule.clone(), RuleRequests::new(entry.at));
        }
        let Some(rule) = kept.rules.get_mut(rule) else { return };
        kept.bytes += rule.add(entry, is_whole, name);
        if kept.bytes > MOST_BYTES {
            kept.make_room();
            self.publish(kept);
        }
    }

    /// Forgets what is older than the window, and rules without requests.
    pub(crate) fn tidy(&self, now: Timestamp) {
        let mut kept = self.lock();
        let oldest = Timestamp::from_nanos(now.as_nanos().saturating_sub(WINDOW_NS));
        kept.rules.retain(|_, rule| {
            rule.forget_before(oldest);
            !rule.entries.is_empty()
        });
        kept.bytes = kept.rules.values().map(RuleRequests::bytes).sum();
        self.publish(&kept);
    }

    /// The sampled requests of a rule; `None` if there are none.
    pub(crate) fn of_rule(&self, rule: &RuleId) -> Option<RuleSample> {
        self.lock().rules.get(rule).map(RuleRequests::sample)
    }

    /// Publishes the bounds of all rules.
    fn publish(&self, kept: &KeptRequests) {
        let mut bounds = [0_u64; BOUNDS];
        let mut is_used = [false; BOUNDS];
        for (rule, requests) in &kept.rules {
            let index = index_of(rule);
            bounds[index] = bounds[index].max(requests.bound());
            is_used[index] = true;
        }
        for ((bound, is_used), published) in bounds.iter().zip(is_used).zip(self.bounds.iter()) {
            published.store(if is_used { *bound } else { u64::MAX }, Ordering::Relaxed);
        }
    }

    fn bound(&self, rule: &RuleId) -> &AtomicU64 {
        &self.bounds[index_of(rule)]
    }

    fn lock(&self) -> MutexGuard<'_, KeptRequests> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptRequests {
    /// Makes rules that have more than half of an equal share smaller: at least a part of the memory is
    /// free afterwards, so the next time is far off.
    fn make_room(&mut self) {
        let share = MOST_BYTES / (2 * self.rules.len().max(1));
        for rule in self.rules.values_mut().filter(|rule| rule.bytes() > share) {
            rule.shrink();
        }
        self.rules.retain(|_, rule| !rule.entries.is_empty());
        self.bytes = self.rules.values().map(RuleRequests::bytes).sum();
    }
}

impl RuleRequests {
    fn new(now: Timestamp) -> Self {
        Self {
            halvings: 0,
            keys: HashMap::new(),
            entries: VecDeque::new(),
            since: now,
            is_whole: true,
        }
    }

    /// Hashes up to this are in the sample.
    const fn bound(&self) -> u64 {
        u64::MAX >> self.halvings
    }

    /// Adds a request, and returns by how many bytes this has grown.
    fn add(&mut self, entry: Entry, is_whole: bool, name: impl FnOnce() -> KeyName) -> usize {
        if entry.key > self.bound() {
            return 0;
        }
        self.is_whole &= is_whole;
        if self.entries.len() >= JOINED_FROM
            && let Some(last) = self.entries.back_mut()
            && last.is_joined_by(&entry)
        {
            last.count = last.count.saturating_add(entry.count);
            self.is_whole = false;
            return 0;
        }
        let mut grown = ENTRY_BYTES;
        let key = match self.keys.entry(entry.key) {
            Occupied(known) => known.into_mut(),
            Vacant(vacant) => {
                let name = Arc::new(name());
                let bytes = bytes_of(&name);
                if bytes > MOST_KEY_BYTES {
                    // A few of these would take the place of all others.
                    self.is_whole = false;
                    return 0;
                }
                grown += bytes;
                vacant.insert(NamedKey { name, bytes, entries: 0 })
            }
        };
        key.entries += 1;
        self.entries.push_back(entry);
        grown
    }

    /// Forgets the requests before a time.
    fn forget_before(&mut self, oldest: Timestamp) {
        while self.entries.front().is_some_and(|entry| entry.at < oldest) {
            self.forget_first();
        }
        self.since = self.since.max(oldest);
    }

    fn forget_first(&mut self) {
        let Some(first) = self.entries.pop_front() else { return };
        if let Some(key) = self.keys.get_mut(&first.key) {
            key.entries -= 1;
            if key.entries == 0 {
                self.keys.remove(&first.key);
            }
        }
    }

    /// Keeps half of the keys; of a few keys, or where that does not help, the newer half of the
    /// requests.
    fn shrink(&mut self) {
        let before = self.entries.len();
        if self.keys.len() >= LEAST_KEYS {
            self.halvings += 1;
            let bound = self.bound();
            self.keys.retain(|key, _| *key <= bound);
            self.entries.retain(|entry| entry.key <= bound);
        }
        if self.entries.len() > before - before / 4 {
            let oldest = self.entries.get(self.entries.len() / 2).map(|entry| entry.at);
            for _ in 0..self.entries.len() / 2 {
                self.forget_first();
            }
            self.since = self.since.max(oldest.unwrap_or_default());
        }
        self.entries.shrink_to_fit();
        self.keys.shrink_to_fit();
    }

    fn bytes(&self) -> usize {
        let names: usize = self.keys.values().map(|key| key.bytes).sum();
        RULE_BYTES + self.entries.len() * ENTRY_BYTES + names
    }

    fn sample(&self) -> RuleSample {
        let mut by_key: HashMap<u64, KeySample> = HashMap::with_capacity(self.keys.len());
        for entry in &self.entries {
            let Some(key) = self.keys.get(&entry.key) else { continue };
            let Entry { at, cost, count, is_denied, is_denied_by_others, .. } = *entry;
            let of_key = by_key.entry(entry.key).or_insert_with(|| KeySample {
                name: Arc::clone(&key.name),
                requests: Vec::with_capacity(key.entries),
            });
            let request = SampledRequest { at, cost, count, is_denied, is_denied_by_others };
            of_key.requests.push(request);
        }
        let mut keys: Vec<_> = by_key.into_iter().collect();
        keys.sort_unstable_by_key(|(hash, _)| *hash);
        RuleSample {
            keys: keys.into_iter().map(|(_, key)| key).collect(),
            halvings: self.halvings,
            since: self.since,
            is_whole: self.is_whole,
        }
    }
}

impl Entry {
    /// Whether another request is as good as at the same time.
    fn is_joined_by(&self, other: &Self) -> bool {
        let apart_ns = other.at.as_nanos().saturating_sub(self.at.as_nanos());
        let kind = |it: &Self| (it.key, it.cost, it.is_denied, it.is_denied_by_others);
        kind(self) == kind(other) && apart_ns < JOINED_NS
    }
}

/// How many rules denied a request, and how many of them are not postpaid.
#[derive(Clone, Copy, Debug)]
struct DenyingRules {
    all: usize,
    prepaid: usize,
}

/// The enforced rules that denied.
fn denying_rules(report: &Report) -> DenyingRules {
    let mut rules = DenyingRules { all: 0, prepaid: 0 };
    if report.is_allowed() {
        return rules;
    }
    for rule in report.rules().filter(|it| it.mode == Mode::Enforce && !it.decision.is_allowed()) {
        rules.all += 1;
        rules.prepaid += usize::from(rule.charging != Charging::Postpaid);
    }
    rules
}

/// Spreads a hash again: its high bits also decide which keys a share of enforcement is for.
const fn mix(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The index of a rule's bound.
fn index_of(rule: &RuleId) -> usize {
    // Rules with the same index share the larger bound, so a poor hash is good enough.
    let bytes = rule.name().bytes().rev().take(8).chain(rule.domain().bytes().take(4));
    let hash = bytes.fold(rule.name().len(), |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    hash % BOUNDS
}

/// For how many requests one of this thread stands; `None` if it is left out. All are kept while there
/// are few.
fn weight(now: Timestamp) -> Option<u32> {
    thread_local! {
        /// The current second, and the number of kept requests in it.
        static SEEN: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }
    let second = now.as_nanos() / 1_000_000_000;
    SEEN.with(|seen| {
        let (of_second, count) = seen.get();
        let count = if of_second == second { count.saturating_add(1) } else { 1 };
        seen.set((second, count));
        match count {
            0..=ALL_UP_TO => Some(1),
            _ if count % ONE_IN == 0 => Some(ONE_IN),
            _ => None,
        }
    })
}

/// The memory of a key's name.
fn bytes_of(name: &KeyName) -> usize {
    let parts = name.parts().map(|(name, value)| 64 + name.len() + value.map_or(0, str::len));
    let rule = name.rule().name().len() + name.rule().domain().len();
    KEY_BYTES + rule + parts.sum::<usize>()
}

/// The memory of all rules together.
const MOST_BYTES: usize = 8 << 20;
/// A rule with fewer keys keeps all of them, for a shorter time.
const LEAST_KEYS: usize = 64;
/// What is older is of no interest.
const WINDOW_NS: u64 = 15 * 60 * 1_000_000_000;
/// In a rule with many requests, those of a key that follow each other within this time count as one
/// entry.
const JOINED_NS: u64 = 1_000_000;
const JOINED_FROM: usize = 8_192;
/// Up to this many kept requests per second and thread stand for themselves.
const ALL_UP_TO: u32 = 4_096;
const ONE_IN: u32 = 16;
/// The number of bounds: a page of memory that most rules share with no other.
const BOUNDS: usize = 512;
/// The queue of entries grows by doubling.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>();
/// Keys with longer names are not in the sample.
const MOST_KEY_BYTES: usize = 4 << 10;
/// A key and a rule without their names, in tables that grow by doubling.
const KEY_BYTES: usize = 256;
const RULE_BYTES: usize = 512;

#[cfg(test)]
mod tests;
