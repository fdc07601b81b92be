//! Puts a store together again from records.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::Timestamp;
use tidegate_table::hash::KeyedHash;

use super::mixing::Mixing;
use super::record::{
    ByteReader, KeyRecord, Malformed, Record, RuleImage, read_hold, read_image, read_name,
    read_pair, skim,
};
use crate::cycle::CycleClocks;
use crate::plan::KeyAttributes;
use crate::plan::KeyName;
use crate::store::HoldId;
use crate::store::memory::{CachedResult, Hold, MemoryStore, NoSlotForState, StateImage, Width};
use crate::store::sealed::Store as _;

/// A store that is put together from records.
///
/// States go to their slots as they are read, and the last one of each key stays. Which of them have
/// holds is known at the end; until then none is taken for idle.
#[derive(Debug)]
pub(super) struct Replay {
    memory: MemoryStore,
    /// The hashes of keys, by number.
    hashes: HashMap<u64, u64, Mixing>,
    /// The number and the hash of the newest key: often its state follows.
    newest: (u64, u64),
    /// States whose lines are being loaded, and that are stored next.
    pending: Vec<(u64, Option<StateImage>)>,
    /// The attributes of keys, by number, as far as they are needed.
    keys: HashMap<u64, Arc<KeyAttributes>, Mixing>,
    /// States that have no slot, by hash: keys may be idle by the end.
    left_over: HashMap<u64, StateImage, Mixing>,
    /// Whether there were states of either width.
    has_narrow: bool,
    has_wide: bool,
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
            hashes: HashMap::default(),
            newest: (0, 0),
            pending: Vec::with_capacity(PENDING),
            keys: HashMap::default(),
            left_over: HashMap::default(),
            has_narrow: false,
            has_wide: false,
            holds: HashMap::new(),
            names: HashMap::new(),
            cycles: CycleClocks::default(),
            fence: 0,
            last: Timestamp::ZERO,
            has_seed: false,
        }
    }

    /// Reads a record and applies it, as far as it is about states.
    pub(super) fn apply_next(&mut self, records: &mut ByteReader<'_>) -> Result<(), Malformed> {
        match records.0.first() {
            Some(&skim::ACTS) => self.apply_actions(records),
            _ => self.apply(Record::read(records)?),
        }
    }

    /// Applies a record that is not of actions, as far as it is about states.
    pub(super) fn apply(&mut self, record: Record) -> Result<(), Malformed> {
        match record {
            Record::Seed(words) => {
                self.memory.set_hash(KeyedHash::from_words(&words).ok_or(Malformed)?);
                self.has_seed = true;
            }
            Record::Key(key) if key.is_erased => {}
            Record::Key(KeyRecord { number, hash, name, .. }) => {
                self.add_key(number, hash);
                self.add_attributes(number, name);
            }
            Record::Keys { keys, .. } => {
                keys.into_iter().for_each(|(number, hash)| self.add_key(number, hash));
            }
            Record::States { states, .. } => {
                for (number, hash, image) in states {
                    self.add_key(number, hash);
                    self.set_state(hash, Some(image));
                }
            }
            Record::Rule(image) => self.apply_rule(*image)?,
            Record::Round(round) => {
                self.memory.rounds(&round.domain).store(round.closed, Ordering::Release);
                self.last = self.last.max(round.at);
            }
            Record::Note { at, .. } => self.last = self.last.max(at),
            Record::Erased { at, keys } => {
                self.last = self.last.max(at);
                for number in keys {
                    self.keys.remove(&number);
                    if let Some(hash) = self.hashes.remove(&number) {
                        self.newest = (0, 0);
                        self.set_state(hash, None);
                    }
                }
            }
            Record::Clock { now, reuse, fence } => {
                self.memory.note_reuse(reuse);
                self.last = self.last.max(now);
                self.fence = self.fence.max(fence);
            }
            // Actions are applied as they are read.
            Record::Acts(_) | Record::Edit(_) | Record::End { .. } | Record::Lost { .. } => {}
        }
        Ok(())
    }

    /// Adds a key, by its number.
    pub(super) fn add_key(&mut self, number: u64, hash: u64) {
        self.hashes.insert(number, hash);
        self.newest = (number, hash);
    }

    /// Adds the attributes of a key, by its number.
    pub(super) fn add_attributes(&mut self, number: u64, name: KeyName) {
        self.keys.insert(number, attributes_of(name));
    }

    /// The numbers of keys that have holds: their attributes are needed.
    #[cfg(feature = "durable")]
    pub(super) fn keys_with_holds(&self) -> HashSet<u64> {
        self.holds.values().flat_map(|hold| hold.items.iter().map(|item| item.hash)).collect()
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

    /// Applies a record of actions as it is read.
    pub(super) fn apply_actions(&mut self, from: &mut ByteReader<'_>) -> Result<(), Malformed> {
        from.byte()?;
        for _ in 0..from.count()? {
            self.last = self.last.max(skim::skim_action(from)?);
        }
        for _ in 0..from.count()? {
            let (number, image) = (from.number()?, read_image(from)?);
            let hash = match self.newest {
                (newest, hash) if newest == number && number != 0 => Some(hash),
                _ => self.hashes.get(&number).copied(),
            };
            if let Some(hash) = hash {
                self.set_state(hash, image);
            }
        }
        for _ in 0..from.count()? {
            let id = HoldId(read_pair(from)?);
            match from.option(read_hold)? {
                Some(hold) => self.holds.insert(id, hold),
                None => self.holds.remove(&id),
            };
        }
        for _ in 0..from.count()? {
            let name = read_pair(from)?;
            match from.option(read_name)? {
                Some(cached) => self.names.insert(name, cached),
                None => self.names.remove(&name),
            };
        }
        self.fence = self.fence.max(from.number()?);
        Ok(())
    }

    /// Sets or removes the state of a key, after those before.
    pub(super) fn set_state(&mut self, hash: u64, image: Option<StateImage>) {
        // Most of the time would be spent on waiting for memory otherwise.
        image.iter().for_each(|image| self.memory.prefetch(hash, image));
        self.pending.push((hash, image));
        if self.pending.len() == PENDING {
            self.store_pending();
        }
    }

    fn store_pending(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.drain(..).for_each(|(hash, image)| self.store_state(hash, image));
        self.pending = pending;
    }

    fn store_state(&mut self, hash: u64, image: Option<StateImage>) {
        if !self.left_over.is_empty() {
            self.left_over.remove(&hash);
        }
        let (is_narrow, is_wide) =
            image.map_or((false, false), |image| (image.is_narrow(), !image.is_narrow()));
        // A key has one state: an older one may be of another width.
        if self.has_narrow && !is_narrow {
            self.memory.remove_image(hash, Width::Narrow);
        }
        if self.has_wide && !is_wide {
            self.memory.remove_image(hash, Width::Wide);
        }
        self.has_narrow |= is_narrow;
        self.has_wide |= is_wide;
        if let Some(image) = image
            && self.memory.restore_beside((hash, image)).is_err()
        {
            self.left_over.insert(hash, image);
        }
    }

    /// The store with everything in it.
    pub(super) fn finish(mut self) -> Result<MemoryStore, NoSlotForState> {
        self.store_pending();
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
        let open = holds.iter().filter(|(_, hold)| hold.end.is_none());
        let held: HashSet<u64> =
            open.flat_map(|(_, hold)| hold.items.iter().map(|item| item.hash)).collect();
        self.memory.pin_all(&held);
        // There may be more than the maximum, as far as some have become idle.
        for state in std::mem::take(&mut self.left_over) {
            self.memory.restore_image(state, self.last, held.contains(&state.0))?;
        }
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

/// How many states are being loaded at a time.
const PENDING: usize = 16;
