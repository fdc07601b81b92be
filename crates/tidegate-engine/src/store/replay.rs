//! Puts a store together again from records.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::Timestamp;
use tidegate_table::hash::KeyedHash;

use super::record::{ActionsRecord, KeyRecord, Malformed, Record, RuleImage};
use crate::cycle::CycleClocks;
use crate::plan::KeyAttributes;
use crate::plan::KeyName;
use crate::store::HoldId;
use crate::store::memory::{CachedResult, Hold, MemoryStore, NoSlotForState, StateImage};
use crate::store::sealed::Store as _;

/// A store that is put together from records.
#[derive(Debug)]
pub(super) struct Replay {
    memory: MemoryStore,
    /// The hashes of keys, by number.
    hashes: HashMap<u64, u64>,
    /// The attributes of keys, by number.
    keys: HashMap<u64, Arc<KeyAttributes>>,
    /// States by hash. Only the last one of each key matters, and which of them have holds is known
    /// at the end.
    states: HashMap<u64, StateImage>,
    holds: HashMap<HoldId, Hold>,
    names: HashMap<[u64; 2], CachedResult>,
    cycles: CycleClocks,
    fence: u64,
    /// The latest time.
    pub(super) last: Timestamp,
    pub(super) has_seed: bool,
}

impl Replay {
    pub(super) fn new(memory: MemoryStore) -> Self {
        Self {
            memory,
            hashes: HashMap::new(),
            keys: HashMap::new(),
            states: HashMap::new(),
            holds: HashMap::new(),
            names: HashMap::new(),
            cycles: CycleClocks::default(),
            fence: 0,
            last: Timestamp::ZERO,
            has_seed: false,
        }
    }

    /// Applies a record, as far as it is about states.
    pub(super) fn apply(&mut self, record: Record) -> Result<(), Malformed> {
        match record {
            Record::Seed(words) => {
                self.memory.set_hash(KeyedHash::from_words(&words).ok_or(Malformed)?);
                self.has_seed = true;
            }
            Record::Key(key) if key.is_erased => {}
            Record::Key(KeyRecord { number, hash, name, .. }) => {
                self.hashes.insert(number, hash);
                self.keys.insert(number, attributes_of(name));
            }
            Record::Keys { keys, .. } => self.hashes.extend(keys),
            Record::Rule(image) => self.apply_rule(*image)?,
            Record::Acts(acts) => self.apply_actions(*acts),
            Record::Round(round) => {
                self.memory.rounds(&round.domain).store(round.closed, Ordering::Release);
                self.last = self.last.max(round.at);
            }
            Record::Note { at, .. } => self.last = self.last.max(at),
            Record::Erased { at, keys } => {
                self.last = self.last.max(at);
                for number in keys {
                    self.keys.remove(&number);
                    let hash = self.hashes.remove(&number);
                    hash.and_then(|hash| self.states.remove(&hash));
                }
            }
            Record::Clock { now, reuse, fence } => {
                self.memory.note_reuse(reuse);
                self.last = self.last.max(now);
                self.fence = self.fence.max(fence);
            }
            Record::Edit(_) | Record::End { .. } | Record::Lost { .. } => {}
        }
        Ok(())
    }

    /// The hash of a key, by its number.
    #[cfg(feature = "durable")]
    pub(super) fn hash_of(&self, number: u64) -> Option<u64> {
        self.hashes.get(&number).copied()
    }

    fn apply_rule(&mut self, image: RuleImage) -> Result<(), Malformed> {
        let Self { memory, cycles, .. } = self;
        let before = memory.history_mut().rule(image.family()).cloned();
        let cycle_of = |cycle, domain| cycles.of((cycle, domain), |domain| memory.rounds(domain));
        let rule = image.applied_to(before.as_deref(), cycle_of).ok_or(Malformed)?;
        self.memory.history_mut().insert(Arc::new(rule));
        Ok(())
    }

    fn apply_actions(&mut self, acts: ActionsRecord) {
        for (number, image) in acts.states {
            match (self.hashes.get(&number), image) {
                (Some(hash), Some(image)) => self.states.insert(*hash, image),
                (Some(hash), None) => self.states.remove(hash),
                (None, _) => None,
            };
        }
        for (id, hold) in acts.holds {
            match hold {
                Some(hold) => self.holds.insert(id, hold),
                None => self.holds.remove(&id),
            };
        }
        for (name, cached) in acts.names {
            match cached {
                Some(cached) => self.names.insert(name, cached),
                None => self.names.remove(&name),
            };
        }
        for act in acts.acts {
            self.last = self.last.max(act.at);
        }
        self.fence = self.fence.max(acts.fence);
    }

    /// The store with everything in it.
    pub(super) fn finish(mut self) -> Result<MemoryStore, NoSlotForState> {
        let (hashes, keys) = (&self.hashes, &self.keys);
        let hold = |(id, mut hold): (HoldId, Hold)| {
            hold.items.retain(|item| match hashes.get(&item.hash) {
                Some(hash) => {
                    item.key = keys.get(&item.hash).map_or_else(|| Arc::new([]) as _, Arc::clone);
                    item.hash = *hash;
                    true
                }
                None => false,
            });
            (id, hold)
        };
        let holds: Vec<(HoldId, Hold)> = self.holds.into_iter().map(hold).collect();
        restore(&self.memory, std::mem::take(&mut self.states), &holds, self.last)?;
        let name = |(name, mut cached): ([u64; 2], CachedResult)| {
            for number in cached.response.hashes_mut() {
                *number = hashes.get(number).copied().unwrap_or(0);
            }
            (name, cached)
        };
        let names = self.names.into_iter().map(name).collect();
        self.memory.restore_hold_tables(holds, names, self.fence);
        Ok(self.memory)
    }
}

/// Restores all states. There may be more than the maximum, as far as some have become idle.
fn restore(
    memory: &MemoryStore,
    states: HashMap<u64, StateImage>,
    holds: &[(HoldId, Hold)],
    last: Timestamp,
) -> Result<(), NoSlotForState> {
    let open = holds.iter().filter(|(_, hold)| hold.end.is_none());
    let held: HashSet<u64> =
        open.flat_map(|(_, hold)| hold.items.iter().map(|item| item.hash)).collect();
    for state in states {
        let is_held = held.contains(&state.0);
        memory.restore_image(state, last, is_held)?;
    }
    Ok(())
}

/// The attributes of a key by its name. An address has the length of its network there. Those of a
/// name with a hash are not known.
fn attributes_of(name: KeyName) -> Arc<KeyAttributes> {
    let is_hash = |value: &str| value.len() == HASHED.len() + 64 && value.starts_with(HASHED);
    if name.parts.iter().any(|(_, value)| value.as_deref().is_some_and(is_hash)) {
        return Arc::new([]);
    }
    let value = |value: Box<str>| match value.rsplit_once('/') {
        Some((address, bits))
            if address.parse::<std::net::IpAddr>().is_ok() && bits.parse::<u8>().is_ok() =>
        {
            address.into()
        }
        _ => value,
    };
    name.parts.into_iter().filter_map(|(name, it)| Some((name, value(it?)))).collect()
}

/// What the hash of a long value begins with; 64 hexadecimal digits follow.
pub(super) const HASHED: &str = "sha256:";
