//! Puts a store together again from records.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::Timestamp;
use tidegate_table::hash::KeyedHash;

use super::record::{
    ByteReader, KeyRecord, Malformed, Record, RuleImage, read_hold, read_image, read_name,
    read_pair, skim,
};
use crate::history::History;
use crate::mixing::Mixing;
use crate::periods::PeriodClocks;
use crate::plan::{KeyAttributes, KeyName};
use crate::store::HoldId;
use crate::store::memory::{CachedResult, Hold, MemoryStore, NoSlotForState, StateImage, Width};

pub(super) use background::{Background, Threads};

mod background;

/// A store that is put together from records.
///
/// States go to their slots as they are read, on another thread if there are many, and the last one
/// of each key stays. Which of them have holds is known at the end; until then none is taken for
/// idle.
#[derive(Debug)]
pub(super) struct Replay {
    /// The store, whose slots are filled meanwhile.
    memory: Arc<MemoryStore>,
    states: Background<(u64, Option<StateImage>), Slots>,
    /// The seed and the rules that the store will have.
    hash: Option<KeyedHash>,
    history: Arc<History>,
    /// The hashes of keys, by number.
    hashes: NumberedHashes,
    /// The attributes of keys, by number, as far as they are needed.
    keys: HashMap<u64, Arc<KeyAttributes>, Mixing>,
    holds: HashMap<HoldId, Hold>,
    names: HashMap<[u64; 2], CachedResult>,
    period_clocks: PeriodClocks,
    fence: u64,
    /// The latest time.
    pub(super) last: Timestamp,
    pub(super) has_seed: bool,
}

impl Replay {
    pub(super) fn new(memory: MemoryStore, threads: Threads) -> Self {
        let memory = Arc::new(memory);
        Self {
            states: Background::new(threads, Slots::new(Arc::clone(&memory)), Slots::store_all),
            hash: None,
            history: memory.history(),
            memory,
            hashes: NumberedHashes::default(),
            keys: HashMap::default(),
            holds: HashMap::new(),
            names: HashMap::new(),
            period_clocks: PeriodClocks::default(),
            fence: 0,
            last: Timestamp::ZERO,
            has_seed: false,
        }
    }

    /// Applies a record that is not of actions, as far as it is about states.
    pub(super) fn apply(&mut self, record: Record) -> Result<(), Malformed> {
        match record {
            Record::Seed(words) => {
                self.hash = Some(KeyedHash::from_words(&words).ok_or(Malformed)?);
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
                    if let Some(hash) = self.hashes.remove(number) {
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
        self.hashes.get(number)
    }

    fn apply_rule(&mut self, image: RuleImage) -> Result<(), Malformed> {
        let Self { memory, history, period_clocks, .. } = self;
        let before = history.rule(image.family()).cloned();
        let periods_of =
            |periods, domain| period_clocks.of(periods, domain, |domain| memory.rounds(domain));
        let rule = image.applied_to(before.as_deref(), periods_of).ok_or(Malformed)?;
        Arc::make_mut(&mut self.history).insert(Arc::new(rule));
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
            if let Some(hash) = self.hashes.get(number) {
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
        self.states.push((hash, image));
    }

    /// The store with everything in it.
    pub(super) fn finish(self) -> Result<MemoryStore, NoSlotForState> {
        let Self { memory, states, hashes, keys, .. } = self;
        drop(memory);
        let (mut memory, left_over) = states.finish().into_parts();
        self.hash.into_iter().for_each(|hash| memory.set_hash(hash));
        *memory.history_mut() = Arc::unwrap_or_clone(self.history);
        let hold = |(id, mut hold): (HoldId, Hold)| {
            hold.items.retain(|item| match hashes.get(item.hash) {
                Some(hash) => {
                    item.key = keys.get(&item.hash).map_or_else(|| Arc::new([]) as _, Arc::clone);
                    item.hash = hash;
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
        memory.pin_all(&held);
        // There may be more than the maximum, as far as some have become idle.
        for (hash, image) in left_over {
            memory.restore_image(hash, image, self.last, held.contains(&hash))?;
        }
        let name = |(name, mut cached): ([u64; 2], CachedResult)| {
            for number in cached.response.hashes_mut() {
                *number = hashes.get(*number).unwrap_or(0);
            }
            (name, cached)
        };
        let names = self.names.into_iter().map(name).collect();
        memory.restore_hold_tables(holds, names, self.fence);
        Ok(memory)
    }
}

/// The hashes of keys, by number.
///
/// A file store counts its keys upwards, so most numbers are an index into a list. A number that is
/// large for how many keys there are is in a map: those of a store whose keys come and go, and those
/// of a snapshot in memory, which has hashes for numbers.
#[derive(Debug, Default)]
struct NumberedHashes {
    /// By number; 0, which is no key's hash, where there is none.
    listed: Vec<u64>,
    mapped: HashMap<u64, u64, Mixing>,
    /// How many were inserted. It never decreases, so a number that was once small enough for the
    /// list stays so.
    inserted: usize,
}

impl NumberedHashes {
    fn insert(&mut self, number: u64, hash: u64) {
        self.inserted += 1;
        let most = SLACK + SPREAD * self.inserted;
        match usize::try_from(number) {
            Ok(index) if index < most => {
                if index >= self.listed.len() {
                    self.listed.resize(index + 1, 0);
                }
                self.listed[index] = hash;
            }
            _ => {
                self.mapped.insert(number, hash);
            }
        }
    }

    fn get(&self, number: u64) -> Option<u64> {
        let listed = usize::try_from(number).ok().and_then(|index| self.listed.get(index));
        match listed {
            Some(hash) if *hash != 0 => Some(*hash),
            _ => self.mapped.get(&number).copied(),
        }
    }

    fn remove(&mut self, number: u64) -> Option<u64> {
        let found = self.get(number);
        self.mapped.remove(&number);
        let index = usize::try_from(number).ok();
        if let Some(hash) = index.and_then(|index| self.listed.get_mut(index)) {
            *hash = 0;
        }
        found
    }
}

/// The slots of a store that is put together.
#[derive(Debug)]
struct Slots {
    memory: Arc<MemoryStore>,
    /// States that have no slot, by hash: keys may be idle by the end.
    left_over: HashMap<u64, StateImage, Mixing>,
    /// Whether there were states of either width.
    has_narrow: bool,
    has_wide: bool,
}

impl Slots {
    fn new(memory: Arc<MemoryStore>) -> Self {
        Self { memory, left_over: HashMap::default(), has_narrow: false, has_wide: false }
    }

    /// Sets or removes the states of keys, in this order.
    fn store_all(&mut self, states: &mut Vec<(u64, Option<StateImage>)>) {
        // Most of the time would be spent on waiting for memory otherwise.
        (0..AHEAD).for_each(|index| self.prefetch(states.get(index)));
        for index in 0..states.len() {
            self.prefetch(states.get(index + AHEAD));
            let (hash, image) = states[index];
            self.store(hash, image);
        }
        states.clear();
    }

    /// Begins to load the line of a state.
    fn prefetch(&self, state: Option<&(u64, Option<StateImage>)>) {
        if let Some((hash, Some(image))) = state {
            self.memory.prefetch(*hash, image);
        }
    }

    fn store(&mut self, hash: u64, image: Option<StateImage>) {
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
            && self.memory.restore_beside(hash, image).is_err()
        {
            self.left_over.insert(hash, image);
        }
    }

    /// The store, and the states that have no slot. Nothing else may refer to the store.
    fn into_parts(self) -> (MemoryStore, HashMap<u64, StateImage, Mixing>) {
        let Some(memory) = Arc::into_inner(self.memory) else {
            unreachable!("the replay has dropped its reference");
        };
        (memory, self.left_over)
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

/// The list may have so many entries for each key. Keys of a snapshot come in any order, and only an
/// eighth of them are too large for it when they come.
const SPREAD: usize = 4;

/// And so many beside.
const SLACK: usize = 1_024;

/// How many states ahead of the one that is stored a line is loaded.
const AHEAD: usize = 16;

#[cfg(test)]
mod tests;
