//! Recovers a store from its disk: the newest snapshot, and the log since.

use tidegate_core::Timestamp;
use tidegate_log::{Disk, LogEnd, LogError, Segments, SnapshotReader, newest_snapshot};
use tidegate_policy::StoreBounds;

use super::edits::LoggedEdits;
use super::keys::{Keys, KnownKey, LoadingKeys};
use super::options::OpenError;
use crate::edits::{ChangeLog, Overlay};
use crate::store::StoredEdits;
use crate::store::memory::MemoryStore;
use crate::store::record::skim::{self, KeyHead};
use crate::store::record::{ByteReader, KeyRecord, Malformed, Record, read_image};
use crate::store::replay::{Replay, Threads};

/// A recovered store.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) memory: MemoryStore,
    pub(super) keys: Keys,
    pub(super) edits: LoggedEdits,
    pub(super) end: LogEnd,
    /// The latest time in the log.
    pub(super) last: Timestamp,
    /// Whether the disk was empty.
    pub(super) is_new: bool,
}

/// Reads everything on a disk.
pub(super) fn recover(disk: &dyn Disk, bounds: StoreBounds) -> Result<Recovered, OpenError> {
    let mut replay = FileReplay::new(bounds)?;
    let snapshot = newest_snapshot(disk)?;
    if let Some(number) = snapshot {
        replay.is_snapshot = true;
        replay.read_snapshot(disk, number)?;
        replay.is_snapshot = false;
    }
    let segments = Segments::read(disk, snapshot)?;
    let end = segments.for_each(disk, |batch| replay.apply_batch(batch, |_| {}))?;
    replay.name_keys_with_holds(disk, &segments)?;
    if end.has_begun() && !replay.replay.has_seed {
        let what = "the log begins earlier, and there is no snapshot";
        return Err(segments.begins_wrong(what).into());
    }
    replay.finish(end)
}

/// Whether a snapshot with so many records before this one ends with it.
fn ends_after(mut record: ByteReader<'_>, read: u64) -> bool {
    matches!(record.byte(), Ok(skim::END)) && record.number() == Ok(read)
}

/// Everything that is read from a disk.
pub(super) struct FileReplay {
    replay: Replay,
    keys: LoadingKeys,
    /// Whether a snapshot is being read, and not the log.
    is_snapshot: bool,
    /// The edits in force, and how many there were.
    pub(super) overlay: String,
    pub(super) revision: u64,
    pub(super) changes: ChangeLog,
}

impl FileReplay {
    fn new(bounds: StoreBounds) -> Result<Self, OpenError> {
        let memory = MemoryStore::with_bounds(bounds).ok_or(OpenError::TooManyKeys)?;
        let replay = Replay::new(memory, Threads::ForWork);
        let (keys, overlay, changes) = (LoadingKeys::new(), String::new(), ChangeLog::default());
        Ok(Self { replay, keys, is_snapshot: false, overlay, revision: 0, changes })
    }

    fn read_snapshot(&mut self, disk: &dyn Disk, number: u64) -> Result<(), LogError> {
        let mut snapshot = SnapshotReader::open(disk, number)?;
        let (mut read, mut is_whole) = (0, false);
        while let Some(batch) = snapshot.next_batch()? {
            let applied = self.apply_batch(batch, |record| {
                is_whole = ends_after(record, read);
                read += 1;
            });
            applied.map_err(|_| snapshot.broken())?;
        }
        if is_whole { Ok(()) } else { Err(snapshot.broken()) }
    }

    /// Applies the records of a batch, and shows each of them to a function before.
    fn apply_batch(
        &mut self,
        batch: &[u8],
        mut before: impl FnMut(ByteReader<'_>),
    ) -> Result<(), Malformed> {
        let mut records = ByteReader(batch);
        while !records.is_empty() {
            before(records);
            self.apply_next(&mut records)?;
        }
        Ok(())
    }

    /// Applies the next record.
    fn apply_next(&mut self, records: &mut ByteReader<'_>) -> Result<(), Malformed> {
        match records.0.first() {
            Some(&skim::ACTS) => self.replay.apply_actions(records),
            Some(&skim::KEY) => self.apply_key(records),
            Some(&skim::KEYS) => self.apply_keys(records),
            Some(&skim::STATES) => self.apply_states(records),
            _ => Record::read(records).and_then(|record| self.apply(record)),
        }
    }

    /// Applies the record of a key. A name in the log is read again should it be needed; a snapshot has
    /// those that are.
    fn apply_key(&mut self, records: &mut ByteReader<'_>) -> Result<(), Malformed> {
        if self.is_snapshot
            && let Record::Key(KeyRecord { number, name, .. }) = Record::read(&mut records.clone())?
        {
            self.replay.add_attributes(number, name);
        }
        records.byte()?;
        let key = KeyHead::read(records)?;
        if !key.is_erased {
            let rule = self.keys.rule(key.domain, key.rule);
            self.add_key(key.number, key.hash, rule);
        }
        Ok(())
    }

    /// Adds a key, by its number, hash and rule.
    fn add_key(&mut self, number: u64, hash: u64, rule: u32) {
        self.keys.insert(hash, KnownKey { number, rule });
        self.replay.add_key(number, hash);
    }

    /// Applies the numbers and hashes of keys of a rule.
    fn apply_keys(&mut self, records: &mut ByteReader<'_>) -> Result<(), Malformed> {
        records.byte()?;
        let rule = self.keys.rule(records.text()?, records.text()?);
        for _ in 0..records.count()? {
            let (number, hash) = (records.number()?, records.word()?);
            self.add_key(number, hash, rule);
        }
        Ok(())
    }

    /// Applies the numbers, hashes and states of keys of a rule.
    fn apply_states(&mut self, records: &mut ByteReader<'_>) -> Result<(), Malformed> {
        records.byte()?;
        let rule = self.keys.rule(records.text()?, records.text()?);
        for _ in 0..records.count()? {
            let (number, hash) = (records.number()?, records.word()?);
            self.add_key(number, hash, rule);
            self.replay.set_state(hash, Some(read_image(records)?.ok_or(Malformed)?));
        }
        Ok(())
    }

    fn apply(&mut self, record: Record) -> Result<(), Malformed> {
        match &record {
            Record::Erased { keys, .. } => {
                keys.iter().filter_map(|it| self.replay.hash_of(*it)).for_each(|hash| {
                    self.keys.remove(hash);
                });
            }
            Record::Edit(edit) => self.apply_edit(edit)?,
            _ => {}
        }
        self.replay.apply(record)
    }

    /// Reads the log once more for the names of keys with holds, if there are any.
    fn name_keys_with_holds(
        &mut self,
        disk: &dyn Disk,
        segments: &Segments,
    ) -> Result<(), LogError> {
        let needed = self.replay.keys_with_holds();
        if needed.is_empty() {
            return Ok(());
        }
        segments.for_each(disk, |batch| {
            Record::each(batch, |record| match record {
                Record::Key(key) if !key.is_erased && needed.contains(&key.number) => {
                    self.replay.add_attributes(key.number, key.name);
                }
                _ => {}
            })
        })?;
        Ok(())
    }

    fn finish(self, end: LogEnd) -> Result<Recovered, OpenError> {
        let overlay = Overlay::from_toml(&self.overlay)
            .map_err(|errors| OpenError::Overlay { errors: errors.to_string() })?;
        let (last, is_new) = (self.replay.last, !self.replay.has_seed);
        let memory = self.replay.finish().map_err(|_| OpenError::TooManyKeys)?;
        let stored = StoredEdits { overlay, changes: self.changes };
        let edits = LoggedEdits::new(stored, self.overlay, self.revision);
        Ok(Recovered { memory, keys: self.keys.finish(), edits, end, last, is_new })
    }
}
