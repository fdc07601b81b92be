//! What does not fit into slots: holds, idempotency keys, and overflow counters.

#[cfg(feature = "durable")]
use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Decision, Timestamp};
use tidegate_policy::StoreBounds;

use super::overflow::Overflow;
use crate::decision::INLINE;
use crate::mixing::Mixing;
use crate::plan::IdempotencyKey;
use crate::store::settlement::EndKind;
use crate::store::{Failure, HoldBound, HoldId, NewHold};
use crate::transition::HoldItem;

#[derive(Debug)]
pub(crate) struct HoldTables {
    bounds: StoreBounds,
    /// Units on hold, by the hash of the state.
    held: HashMap<u64, u64, Mixing>,
    holds: HashMap<HoldId, Hold, Mixing>,
    /// Open holds by domain.
    by_domain: HashMap<u64, usize, Mixing>,
    /// Open holds by the hash of the state, with their ends.
    by_key: HashMap<u64, BTreeSet<(Timestamp, HoldId)>, Mixing>,
    /// When open holds expire.
    due: BTreeSet<(Timestamp, HoldId)>,
    settled: VecDeque<(Timestamp, HoldId)>,
    names: HashMap<[u64; 2], CachedResult, Mixing>,
    /// Idempotency keys of each domain, oldest first.
    names_by_age: HashMap<u64, VecDeque<(Timestamp, [u64; 2])>, Mixing>,
    /// How many were dropped before their time, because there were too many.
    evicted_names: u64,
    last_fence: u64,
    pub(crate) shared: Overflow,
}

/// Units that are held together.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) items: SmallVec<[HoldItem; INLINE]>,
    /// How long it lasts.
    pub(crate) length: Duration,
    pub(crate) expires: Timestamp,
    pub(crate) fence: u64,
    /// How it was settled; `None` while it is open.
    pub(crate) end: Option<HoldEnd>,
    /// The idempotency key of its request.
    pub(crate) name: Option<[u64; 2]>,
    /// The domain that it counts for.
    pub(crate) domain: u64,
}

/// How a hold was settled: the response to the same settlement again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldEnd {
    pub(crate) at: Timestamp,
    pub(crate) settlement: EndKind,
    /// Units charged.
    pub(crate) units: u64,
    /// What of it is owed.
    pub(crate) debt: u64,
    /// What was not charged.
    pub(crate) forgiven: u64,
}

/// The idempotency key belongs to another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyMismatch;

impl From<BodyMismatch> for Failure {
    fn from(BodyMismatch: BodyMismatch) -> Self {
        Self::OtherBody
    }
}

/// The cached result of a charged request.
#[derive(Clone, Debug)]
pub(crate) struct CachedResult {
    pub(crate) at: Timestamp,
    pub(crate) domain: u64,
    pub(crate) body: u64,
    pub(crate) response: CachedResponse,
}

/// What the same request again gets, with the hashes of the states concerned.
#[derive(Clone, Debug)]
pub(crate) enum CachedResponse {
    /// A rule may charge denied requests, too; nothing is on hold for these.
    Charged {
        is_allowed: bool,
        hold: Option<NewHold>,
        decisions: Box<[(u64, Decision)]>,
    },
    Refunded {
        units: u64,
        hashes: Box<[u64]>,
    },
}

impl CachedResponse {
    /// The states that it is about.
    #[cfg(feature = "durable")]
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        let (decisions, hashes) = match self {
            Self::Charged { decisions, .. } => (&**decisions, &[][..]),
            Self::Refunded { hashes, .. } => (&[][..], &**hashes),
        };
        decisions.iter().map(|(hash, _)| *hash).chain(hashes.iter().copied())
    }

    /// The states that it is about, to be renumbered.
    #[cfg(feature = "durable")]
    pub(crate) fn hashes_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let (decisions, hashes) = match self {
            Self::Charged { decisions, .. } => (&mut **decisions, &mut [][..]),
            Self::Refunded { hashes, .. } => (&mut [][..], &mut **hashes),
        };
        decisions.iter_mut().map(|(hash, _)| hash).chain(hashes)
    }

    /// Whether it is the response that made a hold.
    pub(crate) fn is_of(&self, id: HoldId) -> bool {
        matches!(self, Self::Charged { hold: Some(hold), .. } if hold.id == id)
    }

    /// What it has on the heap, in bytes.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Charged { decisions, .. } => size_of_val(&**decisions),
            Self::Refunded { hashes, .. } => size_of_val(&**hashes),
        }
    }
}

impl HoldTables {
    pub(crate) fn new(bounds: StoreBounds) -> Self {
        Self {
            bounds,
            held: HashMap::default(),
            holds: HashMap::default(),
            by_domain: HashMap::default(),
            by_key: HashMap::default(),
            due: BTreeSet::new(),
            settled: VecDeque::new(),
            names: HashMap::default(),
            names_by_age: HashMap::default(),
            evicted_names: 0,
            last_fence: 0,
            shared: Overflow::default(),
        }
    }

    pub(crate) fn held(&self, hash: u64) -> u64 {
        self.held.get(&hash).copied().unwrap_or(0)
    }

    pub(crate) fn set_held(&mut self, hash: u64, units: u64) {
        if units == 0 {
            self.held.remove(&hash);
        } else {
            self.held.insert(hash, units);
        }
    }

    /// The limits that holds belong to.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        let items = self.holds.values().flat_map(|hold| &hold.items);
        items.flat_map(|item| {
            [Some(item.tag), item.charged.as_ref().map(|charged| charged.tag)].into_iter().flatten()
        })
    }

    /// All holds, open or settled.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (&HoldId, &Hold)> {
        self.holds.iter()
    }

    /// Restores an open hold.
    #[cfg(feature = "durable")]
    pub(crate) fn restore_hold(&mut self, id: HoldId, hold: Hold) {
        self.insert_hold(id, hold);
    }

    #[cfg(feature = "durable")]
    pub(crate) fn last_fence(&self) -> u64 {
        self.last_fence
    }

    #[cfg(feature = "durable")]
    pub(crate) fn set_last_fence(&mut self, fence: u64) {
        self.last_fence = fence;
    }

    /// How many holds are open.
    pub(crate) fn open_holds(&self) -> usize {
        self.holds.len() - self.settled.len()
    }

    /// A number larger than all before it, also those before a restart if the clock is right.
    pub(crate) fn next_fence(&mut self, now: Timestamp) -> u64 {
        self.last_fence = (self.last_fence + 1).max(now.as_nanos() / 1_000);
        self.last_fence
    }

    pub(crate) fn insert_hold(&mut self, id: HoldId, hold: Hold) {
        self.due.insert((hold.expires, id));
        *self.by_domain.entry(hold.domain).or_default() += 1;
        for item in &hold.items {
            self.by_key.entry(item.hash).or_default().insert((hold.expires, id));
        }
        self.holds.insert(id, hold);
    }

    pub(crate) fn hold(&self, id: HoldId) -> Option<&Hold> {
        self.holds.get(&id)
    }

    pub(crate) fn renew(&mut self, id: HoldId, expires: Timestamp) {
        if let Some(hold) = self.holds.get_mut(&id) {
            self.due.remove(&(hold.expires, id));
            self.due.insert((expires, id));
            for item in &hold.items {
                let ends = self.by_key.entry(item.hash).or_default();
                ends.remove(&(hold.expires, id));
                ends.insert((expires, id));
            }
            hold.expires = expires;
        }
    }

    /// Replaces the items of a settled hold, after a refund.
    pub(crate) fn set_items(&mut self, id: HoldId, items: SmallVec<[HoldItem; INLINE]>) {
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.items = items;
        }
    }

    /// Keeps a settled hold for some time, for refunds and for the same settlement again.
    pub(crate) fn settle(&mut self, id: HoldId, items: SmallVec<[HoldItem; INLINE]>, end: HoldEnd) {
        let now = end.at;
        if let Some(mut hold) = self.holds.remove(&id) {
            self.close(id, &hold);
            self.settled.push_back((now, id));
            (hold.items, hold.end) = (items, Some(end));
            self.holds.insert(id, hold);
        }
        let oldest = now.saturating_sub(REMEMBERED_FOR);
        while let Some(&(at, id)) = self.settled.front()
            && (at < oldest || self.settled.len() > MOST_REMEMBERED)
        {
            self.settled.pop_front();
            self.holds.remove(&id);
        }
    }

    /// Drops an open hold, and the idempotency key of its request.
    pub(crate) fn drop_hold(&mut self, id: HoldId) -> Option<Hold> {
        let hold = self.holds.remove(&id)?;
        self.close(id, &hold);
        self.drop_name(id, hold.name);
        Some(hold)
    }

    /// Takes a hold out of those that are open.
    fn close(&mut self, id: HoldId, hold: &Hold) {
        self.due.remove(&(hold.expires, id));
        if let Entry::Occupied(mut open) = self.by_domain.entry(hold.domain) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
        for item in &hold.items {
            if let Entry::Occupied(mut open) = self.by_key.entry(item.hash) {
                open.get_mut().remove(&(hold.expires, id));
                if open.get().is_empty() {
                    open.remove();
                }
            }
        }
    }

    /// The parts of open holds that a key has, in the order of their ends.
    pub(crate) fn open_items(&self, hash: u64) -> impl Iterator<Item = (Timestamp, &HoldItem)> {
        self.by_key.get(&hash).into_iter().flatten().filter_map(move |(expires, id)| {
            let item = self.holds.get(id)?.items.iter().find(|item| item.hash == hash)?;
            Some((*expires, item))
        })
    }

    /// The bound that another hold of a domain, on these keys, would exceed.
    pub(crate) fn bound_of_holds(
        &self,
        domain: u64,
        mut keys: impl Iterator<Item = u64>,
    ) -> Option<HoldBound> {
        let open_of_key = |key: u64| self.by_key.get(&key).map_or(0, BTreeSet::len);
        let (most, of_domain) = (self.bounds.max_holds, self.bounds.max_holds_of_domain());
        if self.open_holds() >= most {
            Some(HoldBound::Store { most })
        } else if self.by_domain.get(&domain).copied().unwrap_or(0) >= of_domain {
            Some(HoldBound::Domain { most: of_domain })
        } else if keys.any(|key| open_of_key(key) >= MOST_HOLDS_OF_KEY) {
            Some(HoldBound::Key { most: MOST_HOLDS_OF_KEY })
        } else {
            None
        }
    }

    /// How many idempotency keys were dropped before their time.
    pub(crate) fn evicted_names(&self) -> u64 {
        self.evicted_names
    }

    /// Drops the idempotency key of a hold that charged nothing: if the request is repeated, it is
    /// a new one. After 24 hours the key may be another hold's, and stays.
    pub(crate) fn drop_name(&mut self, id: HoldId, name: Option<[u64; 2]>) {
        if let Some(Entry::Occupied(known)) = name.map(|name| self.names.entry(name))
            && known.get().response.is_of(id)
        {
            known.remove();
        }
    }

    /// A hold that has expired, removed.
    pub(crate) fn next_expired(&mut self, now: Timestamp) -> Option<(HoldId, Hold)> {
        let (_, id) = *self.due.first().filter(|(expires, _)| *expires <= now)?;
        Some((id, self.drop_hold(id)?))
    }

    /// When the next hold expires.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(expires, _)| *expires)
    }

    /// The cached result under this idempotency key; an error if the request was another one.
    pub(crate) fn recall(
        &mut self,
        named: IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<&CachedResponse>, BodyMismatch> {
        self.forget_old_names(named.domain, now);
        match self.names.get(&named.name) {
            None => Ok(None),
            Some(known) if known.body == named.body => Ok(Some(&known.response)),
            Some(_) => Err(BodyMismatch),
        }
    }

    /// Caches a result under an idempotency key: of what charged, never a denial that did not.
    pub(crate) fn cache_result(
        &mut self,
        named: IdempotencyKey,
        response: CachedResponse,
        now: Timestamp,
    ) {
        while self.names.len() >= self.bounds.max_idempotency_keys && self.evict_name(now) {}
        let IdempotencyKey { domain, name, body } = named;
        self.names_by_age.entry(domain).or_default().push_back((now, name));
        self.names.insert(name, CachedResult { at: now, domain, body, response });
    }

    /// Drops the idempotency keys of a domain that are too old.
    fn forget_old_names(&mut self, domain: u64, now: Timestamp) {
        let oldest = now.saturating_sub(REMEMBERED_FOR);
        while let Some(&(at, name)) = self.names_by_age.get(&domain).and_then(VecDeque::front)
            && at < oldest
        {
            self.pop_name(domain);
            self.forget_name(name, at);
        }
    }

    /// Drops the oldest idempotency key of the domain with most; false if there is none.
    fn evict_name(&mut self, now: Timestamp) -> bool {
        let domains: SmallVec<[u64; 8]> = self.names_by_age.keys().copied().collect();
        domains.into_iter().for_each(|domain| self.forget_old_names(domain, now));
        let most = self.names_by_age.iter().max_by_key(|(_, names)| names.len());
        let Some(domain) = most.map(|(domain, _)| *domain) else { return false };
        let Some((at, name)) = self.pop_name(domain) else { return false };
        self.evicted_names += u64::from(self.forget_name(name, at));
        true
    }

    fn pop_name(&mut self, domain: u64) -> Option<(Timestamp, [u64; 2])> {
        let names = self.names_by_age.get_mut(&domain)?;
        let oldest = names.pop_front();
        if names.is_empty() {
            self.names_by_age.remove(&domain);
        }
        oldest
    }

    /// Drops an idempotency key of a given time, unless it was used again since.
    fn forget_name(&mut self, name: [u64; 2], at: Timestamp) -> bool {
        let is_its = self.names.get(&name).is_some_and(|known| known.at == at);
        is_its && self.names.remove(&name).is_some()
    }
}

/// Snapshots.
#[cfg(feature = "durable")]
impl HoldTables {
    /// Restores settled holds.
    pub(crate) fn restore_settled(&mut self, mut holds: Vec<(HoldId, Hold)>) {
        let settled_at = |hold: &Hold| hold.end.map_or(Timestamp::ZERO, |end| end.at);
        holds.sort_unstable_by_key(|(id, hold)| (settled_at(hold), *id));
        for (id, hold) in holds {
            self.settled.push_back((settled_at(&hold), id));
            self.holds.insert(id, hold);
        }
    }

    /// Restores cached results.
    pub(crate) fn restore_names(&mut self, mut names: Vec<([u64; 2], CachedResult)>) {
        names.sort_unstable_by_key(|(name, known)| (known.at, *name));
        for (name, known) in names {
            self.names_by_age.entry(known.domain).or_default().push_back((known.at, name));
            self.names.insert(name, known);
        }
    }

    /// All cached results.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u64; 2], &CachedResult)> {
        self.names.iter()
    }
}

/// What a file store needs.
#[cfg(feature = "durable")]
impl HoldTables {
    /// The states that holds and cached results refer to.
    pub(crate) fn referenced(&self) -> HashSet<u64> {
        let of_holds = self.holds.values().flat_map(|hold| hold.items.iter().map(|it| it.hash));
        let of_names = self.names.values().flat_map(|known| known.response.hashes());
        of_holds.chain(of_names).collect()
    }

    /// The cached result under an idempotency key.
    pub(crate) fn name(&self, name: &[u64; 2]) -> Option<&CachedResult> {
        self.names.get(name)
    }

    /// Drops the cached result under an idempotency key, so that a repeat is a new request.
    pub(crate) fn forget_result(&mut self, name: [u64; 2]) {
        self.names.remove(&name);
    }

    /// Drops all cached results about a state, and its settled holds. Returns which.
    pub(crate) fn forget_state(&mut self, hash: u64) -> (Vec<[u64; 2]>, Vec<HoldId>) {
        let is_about =
            |(_, known): &(&[u64; 2], &CachedResult)| known.response.hashes().any(|it| it == hash);
        let names: Vec<[u64; 2]> = self.names.iter().filter(is_about).map(|(it, _)| *it).collect();
        names.iter().for_each(|name| self.forget_result(*name));
        let is_of = |hold: &Hold| hold.items.iter().any(|item| item.hash == hash);
        let settled: Vec<HoldId> = (self.settled.iter().map(|(_, id)| *id))
            .filter(|id| self.holds.get(id).is_some_and(is_of))
            .collect();
        self.settled.retain(|(_, id)| !settled.contains(id));
        for id in &settled {
            self.holds.remove(id);
        }
        (names, settled)
    }
}

/// How long cached results and settled holds are kept.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// The most settled holds that are kept.
const MOST_REMEMBERED: usize = 1 << 17;

/// The most open holds of a key.
const MOST_HOLDS_OF_KEY: usize = 1 << 10;

/// Memory.
impl HoldTables {
    /// The items of all holds, open or settled.
    pub(crate) fn items_mut(&mut self) -> impl Iterator<Item = &mut HoldItem> {
        self.holds.values_mut().flat_map(|hold| &mut hold.items)
    }

    /// Memory in use, in bytes. What holds have on the heap is estimated from a few of them.
    pub(crate) fn bytes(&self) -> usize {
        let heap_of = |hold: &Hold| {
            let spilled = if hold.items.spilled() { hold.items.capacity() } else { 0 };
            let of_item = |item: &HoldItem| {
                let text = |(name, value): &(Box<str>, Box<str>)| name.len() + value.len();
                let charged = item.charged.as_deref().map_or(0, size_of_val);
                size_of_val(&*item.key) + item.key.iter().map(text).sum::<usize>() + charged
            };
            spilled * size_of::<HoldItem>() + hold.items.iter().map(of_item).sum::<usize>()
        };
        let of_holds = estimate(self.holds.len(), self.holds.values().map(heap_of));
        let heap_of = |known: &CachedResult| known.response.heap_bytes();
        let of_names = estimate(self.names.len(), self.names.values().map(heap_of));
        let by_key = estimate(self.by_key.len(), self.by_key.values().map(BTreeSet::len));
        let by_age: usize = self.names_by_age.values().map(VecDeque::capacity).sum();
        map_bytes(&self.held)
            + map_bytes(&self.holds)
            + of_holds
            + of_names
            // Nodes of a tree are two thirds full, on average.
            + (self.due.len() + by_key) * size_of::<(Timestamp, HoldId)>() * 3 / 2
            + map_bytes(&self.by_key)
            + self.settled.capacity() * size_of::<(Timestamp, HoldId)>()
            + map_bytes(&self.names)
            + by_age * size_of::<(Timestamp, [u64; 2])>()
            + self.shared.bytes()
    }
}

/// The entries of a map: seven of eight buckets can be used, and each has a byte of its own.
fn map_bytes<K, V>(map: &HashMap<K, V, Mixing>) -> usize {
    map.capacity() * 8 / 7 * (size_of::<(K, V)>() + 1)
}

/// The sum of sizes, estimated from the first of them.
fn estimate(count: usize, sizes: impl Iterator<Item = usize>) -> usize {
    sizes.take(SAMPLE).sum::<usize>() * count / count.clamp(1, SAMPLE)
}

/// How many sizes the sum of all is estimated from.
const SAMPLE: usize = 64;
