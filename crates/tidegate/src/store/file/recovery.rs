//! Recovers a store from its disk: the newest snapshot, and the log since.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::Timestamp;

use super::bytes::ByteReader;
use super::disk::Disk;
use super::error::OpenError;
use super::frame::{Batches, FileHeader, FileKind, HeaderError, SegmentEnd};
use super::keys::{Keys, Mixing};
use super::record::{ActionsRecord, EditRecord, EditedItem, EditedKind, Record, RoundRecord};
use super::segments::{LogEnd, RecordPosition, Segments};
use crate::calendar::CachedCalendar;
use crate::cycle::CycleClock;
use crate::engine::{Change, Changed, MOST_CHANGES, Overlay};
use crate::hash::KeyedHash;
use crate::policy::Cycle;
use crate::store::memory::{CachedResult, Hold, LimitImage, MemoryStore, StateImage};
use crate::store::sealed::Store as _;
use crate::store::{HoldId, StoredEdits};
use crate::table::WhenFull;

/// A recovered store.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) memory: MemoryStore,
    pub(super) keys: Keys,
    pub(super) edits: StoredEdits,
    pub(super) finish: LogEnd,
    /// The latest time in the log.
    pub(super) last: Timestamp,
    /// Whether the disk was empty.
    pub(super) is_new: bool,
    /// Bytes of log since the snapshot.
    pub(super) log_len: u64,
}

/// The bounds of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryBounds {
    pub(super) max_keys: usize,
    pub(super) when_full: WhenFull,
}

/// Reads everything on a disk.
pub(super) fn recover(disk: &dyn Disk, room: RecoveryBounds) -> Result<Recovered, OpenError> {
    let mut replay = Replay::new(room)?;
    let snapshot = newest_snapshot(disk)?;
    if let Some(number) = snapshot {
        replay.read_snapshot(disk, number)?;
    }
    let chain = Segments::read(disk, snapshot.unwrap_or(0))?;
    let after_snapshot = snapshot.map(|number| SegmentEnd { number, len: 0 });
    if let (Some(number), Some(first)) = (snapshot, chain.links().first())
        && first.header.number != number
        && Some(first.header.after) != after_snapshot
    {
        let file = FileKind::Log.file_name(number);
        return Err(OpenError::Damaged { file, at: 0, what: "the segment is missing" });
    }
    let mut finish = chain.for_each(disk, |record, position| replay.apply(record, position))?;
    if let (Some(after), []) = (after_snapshot, chain.links()) {
        // A repair removed what followed the snapshot: the log continues from there.
        finish.from.end = after;
        finish.from.next_segment = finish.from.next_segment.max(after.number + 1);
    }
    if replay.memory.limits_mut().has_cycle() {
        let file = chain.links().first().map_or(0, |link| link.header.number);
        let (file, what) = (FileKind::Log.file_name(file), "a limit is its own successor");
        return Err(OpenError::Damaged { file, at: 0, what });
    }
    let is_begun = finish.from.end.number != 0;
    if let (Some(first), true, false) = (chain.links().first(), is_begun, replay.has_seed) {
        let file = FileKind::Log.file_name(first.header.number);
        let what = "the log begins earlier, and there is no snapshot";
        return Err(OpenError::Damaged { file, at: 0, what });
    }
    let log_len = chain.links().iter().filter_map(|link| link.counts_len).sum::<u64>();
    let log_len = log_len + finish.from.end.len;
    replay.finish(finish, log_len)
}

/// The number of the newest snapshot.
pub(super) fn newest_snapshot(disk: &dyn Disk) -> Result<Option<u64>, OpenError> {
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    Ok(names.iter().filter_map(|name| FileKind::Snapshot.number_of(name)).max())
}

struct Replay {
    memory: MemoryStore,
    keys: Keys,
    /// Hashes of keys, by number.
    hashes: HashMap<u64, u64, Mixing>,
    /// States by hash. Only the last one of each key matters, and which of them have holds is known
    /// at the end.
    states: HashMap<u64, StateImage, Mixing>,
    holds: HashMap<HoldId, Hold>,
    names: HashMap<[u64; 2], CachedResult>,
    cycles: Vec<(Cycle, Box<str>, Arc<CycleClock>)>,
    fence: u64,
    last: Timestamp,
    overlay: Option<Box<str>>,
    changes: Vec<Change>,
    has_seed: bool,
}

impl Replay {
    fn new(room: RecoveryBounds) -> Result<Self, OpenError> {
        let memory =
            MemoryStore::new(room.max_keys, room.when_full).ok_or(OpenError::TooManyKeys)?;
        Ok(Self {
            memory,
            keys: Keys::default(),
            hashes: HashMap::default(),
            states: HashMap::default(),
            holds: HashMap::new(),
            names: HashMap::new(),
            cycles: Vec::new(),
            fence: 0,
            last: Timestamp::ZERO,
            overlay: None,
            changes: Vec::new(),
            has_seed: false,
        })
    }

    fn read_snapshot(&mut self, disk: &dyn Disk, number: u64) -> Result<(), OpenError> {
        let file = FileKind::Snapshot.file_name(number);
        let bytes =
            disk.read(&file).map_err(|error| OpenError::disk(format!("read {file}"), error))?;
        let mut position = RecordPosition { file: file.clone(), at: 0 };
        let header =
            FileHeader::from_bytes(FileKind::Snapshot, &bytes).map_err(|error| match error {
                HeaderError::NotOurs => position.broken(),
                HeaderError::Version(version) => OpenError::Version { file, version },
            })?;
        let (mut batches, mut read) = (Batches::new(&bytes, header.first_batch), 0);
        let mut is_whole = false;
        while let Some(batch) = batches.next() {
            let mut records = ByteReader(batch.records);
            while !records.is_empty() {
                let record = Record::read(&mut records).map_err(|_| position.broken())?;
                is_whole = matches!(record, Record::End { records } if records == read);
                self.apply(record, &position)?;
                read += 1;
            }
            position.at = batches.position() as u64;
        }
        if is_whole { Ok(()) } else { Err(position.broken()) }
    }

    fn apply(&mut self, record: Record, position: &RecordPosition) -> Result<(), OpenError> {
        match record {
            Record::Seed(words) => {
                let hash = KeyedHash::from_words(&words).ok_or_else(|| position.broken())?;
                self.memory.set_hash(hash);
                self.has_seed = true;
            }
            Record::Key(key) if key.is_erased => {}
            Record::Key(key) => {
                self.hashes.insert(key.number, key.hash);
                self.keys.insert(key.number, key.hash, (&key.name.domain, &key.name.rule));
            }
            Record::Keys { domain, rule, keys } => {
                self.hashes.reserve(keys.len());
                self.keys.reserve(keys.len());
                for (number, hash) in keys {
                    self.hashes.insert(number, hash);
                    self.keys.insert(number, hash, (&domain, &rule));
                }
            }
            Record::Limit(image) => self.apply_limit(*image),
            Record::Acts(acts) => self.apply_actions(*acts),
            Record::Round(RoundRecord { at, domain, closed, .. }) => {
                self.memory.rounds(&domain).store(closed, Ordering::Release);
                self.last = self.last.max(at);
            }
            Record::Edit(edit) => self.apply_edit(*edit),
            Record::Note { at, .. } => self.last = self.last.max(at),
            Record::Erased { at, keys } => {
                self.last = self.last.max(at);
                for hash in keys.iter().filter_map(|number| self.hashes.remove(number)) {
                    self.keys.remove(hash);
                    self.states.remove(&hash);
                }
            }
            Record::Clock { now, reuse, fence } => {
                self.memory.note_reuse(reuse);
                self.last = self.last.max(now);
                self.fence = self.fence.max(fence);
            }
            Record::End { .. } => {}
        }
        Ok(())
    }

    fn apply_limit(&mut self, image: LimitImage) {
        let cycle = image.cycle.as_ref().map(|(cycle, domain)| {
            let is_same = |it: &&(Cycle, Box<str>, _)| (&it.0, &it.1) == (cycle, domain);
            if let Some((_, _, clock)) = self.cycles.iter().find(is_same) {
                return Arc::clone(clock);
            }
            let clock = Arc::new(match cycle {
                Cycle::Calendar(calendar) => {
                    CycleClock::Calendar(CachedCalendar::new(calendar.clone()))
                }
                Cycle::Round => {
                    CycleClock::Round { domain: domain.clone(), closed: self.memory.rounds(domain) }
                }
            });
            self.cycles.push((cycle.clone(), domain.clone(), Arc::clone(&clock)));
            clock
        });
        self.memory.limits_mut().restore_whole(image, cycle);
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

    fn apply_edit(&mut self, edit: EditRecord) {
        self.overlay = Some(edit.overlay);
        // A snapshot may contain what the log repeats.
        let last = self.changes.last().map_or(0, |last| last.number);
        let new = edit.changes.into_iter().filter(|change| change.number > last);
        self.changes.extend(new.map(Change::from));
        let excess = self.changes.len().saturating_sub(MOST_CHANGES);
        self.changes.drain(..excess);
    }

    fn finish(mut self, finish: LogEnd, log_len: u64) -> Result<Recovered, OpenError> {
        let overlay = match &self.overlay {
            None => Overlay::default(),
            Some(text) => Overlay::from_toml(text)
                .map_err(|errors| OpenError::Overlay { errors: errors.to_string() })?,
        };
        let hashes = &self.hashes;
        let holds = std::mem::take(&mut self.holds).into_iter().map(|(id, mut hold)| {
            hold.items.retain(|item| match hashes.get(&item.hash) {
                Some(hash) => {
                    item.hash = *hash;
                    true
                }
                None => false,
            });
            (id, hold)
        });
        let holds: Vec<(HoldId, Hold)> = holds.collect();
        restore(&self.memory, std::mem::take(&mut self.states), &holds, self.last)?;
        let names = std::mem::take(&mut self.names).into_iter().map(|(name, mut cached)| {
            for number in &mut cached.result.hashes {
                *number = hashes.get(number).copied().unwrap_or(0);
            }
            (name, cached)
        });
        self.memory.restore_hold_tables(holds, names.collect(), self.fence);
        Ok(Recovered {
            memory: self.memory,
            keys: self.keys,
            edits: StoredEdits { overlay, changes: self.changes },
            finish,
            last: self.last,
            is_new: !self.has_seed,
            log_len,
        })
    }
}

/// Restores all states. There may be more than the maximum, as far as some have become idle.
fn restore(
    memory: &MemoryStore,
    states: HashMap<u64, StateImage, Mixing>,
    holds: &[(HoldId, Hold)],
    last: Timestamp,
) -> Result<(), OpenError> {
    let open = holds.iter().filter(|(_, hold)| hold.settled.is_none());
    let held: HashSet<u64> =
        open.flat_map(|(_, hold)| hold.items.iter().map(|item| item.hash)).collect();
    for state in states {
        let is_held = held.contains(&state.0);
        memory.restore_image(state, last, is_held).map_err(|_| OpenError::TooManyKeys)?;
    }
    Ok(())
}

impl From<EditedItem> for Change {
    fn from(it: EditedItem) -> Self {
        let EditedItem { number, at, actor, what, before, after } = it;
        let what = match what {
            EditedKind::Rule { domain, name, starts_fresh } => {
                Changed::Rule { domain, name, starts_fresh }
            }
            EditedKind::Bans { domain } => Changed::Bans { domain },
            EditedKind::Server => Changed::Server,
        };
        Self {
            number,
            at,
            actor,
            what,
            before: before.map(Into::into),
            after: after.map(Into::into),
        }
    }
}

impl From<&Change> for EditedItem {
    fn from(change: &Change) -> Self {
        let Change { number, at, actor, what, before, after } = change.clone();
        let what = match what {
            Changed::Rule { domain, name, starts_fresh } => {
                EditedKind::Rule { domain, name, starts_fresh }
            }
            Changed::Bans { domain } => EditedKind::Bans { domain },
            Changed::Server => EditedKind::Server,
        };
        Self {
            number,
            at,
            actor,
            what,
            before: before.map(Into::into),
            after: after.map(Into::into),
        }
    }
}
