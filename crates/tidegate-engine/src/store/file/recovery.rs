//! Recovers a store from its disk: the newest snapshot, and the log since.

use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;

use super::disk::Disk;
use super::edits::LoggedEdits;
use super::error::OpenError;
use super::frame::{FileHeader, FileKind, HEADER_LEN, HeaderError};
use super::keys::{Keys, KnownKey, LoadingKeys};
use super::segments::{LogEnd, RecordPosition, Segments};
use super::stream::BatchStream;
use crate::edits::{Change, Overlay};
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
    pub(super) finish: LogEnd,
    /// The latest time in the log.
    pub(super) last: Timestamp,
    /// Whether the disk was empty.
    pub(super) is_new: bool,
    /// Bytes of log since the snapshot.
    pub(super) log_len: u64,
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
    let chain = Segments::read(disk, snapshot.unwrap_or(0))?;
    let first = chain.links().first().map(|link| link.header.number);
    if let Some(number) = snapshot.filter(|number| first != Some(*number)) {
        let file = FileKind::Log.file_name(number);
        return Err(OpenError::Damaged { file, at: 0, what: "the segment is missing" });
    }
    let finish = chain.for_each(disk, |records, position| replay.apply_next(records, position))?;
    replay.name_keys_with_holds(disk, &chain)?;
    let is_begun = finish.from.end.number != 0;
    if let (Some(first), true, false) = (chain.links().first(), is_begun, replay.replay.has_seed) {
        let file = FileKind::Log.file_name(first.header.number);
        let what = "the log begins earlier, and there is no snapshot";
        return Err(OpenError::Damaged { file, at: 0, what });
    }
    let log_len = chain.links().iter().filter_map(|link| link.end.len()).sum::<u64>();
    let log_len = log_len + finish.from.end.len;
    replay.finish(finish, log_len)
}

/// The number of the newest snapshot.
pub(super) fn newest_snapshot(disk: &dyn Disk) -> Result<Option<u64>, OpenError> {
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    Ok(names.iter().filter_map(|name| FileKind::Snapshot.number_of(name)).max())
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
    pub(super) changes: Vec<Change>,
}

impl FileReplay {
    fn new(bounds: StoreBounds) -> Result<Self, OpenError> {
        let memory = MemoryStore::with_bounds(bounds).ok_or(OpenError::TooManyKeys)?;
        let replay = Replay::new(memory, Threads::ForWork);
        let (keys, overlay, revision, changes) = (LoadingKeys::new(), String::new(), 0, Vec::new());
        Ok(Self { replay, keys, is_snapshot: false, overlay, revision, changes })
    }

    fn read_snapshot(&mut self, disk: &dyn Disk, number: u64) -> Result<(), OpenError> {
        let file = FileKind::Snapshot.file_name(number);
        let failed = |error| OpenError::disk(format!("read {file}"), error);
        let mut position = RecordPosition { file: file.clone(), at: 0 };
        let header =
            FileHeader::from_bytes(FileKind::Snapshot, &disk.read_start(&file).map_err(failed)?)
                .map_err(|error| match error {
                    HeaderError::NotOurs => position.broken(),
                    HeaderError::Version(version) => {
                        OpenError::Version { file: file.clone(), version }
                    }
                })?;
        let begin = HEADER_LEN as u64;
        let from = disk.read_from(&file, begin).map_err(failed)?;
        let mut batches = BatchStream::new(from, begin, header.first_batch);
        let (mut read, mut is_whole) = (0, false);
        position.at = begin;
        while let Some(batch) = batches.next_batch().map_err(failed)? {
            let len = batch.len() as u64;
            let mut records = ByteReader(batch.records);
            while !records.is_empty() {
                is_whole = ends_after(records, read);
                self.apply_next(&mut records, &position)?;
                read += 1;
            }
            position.at += len;
        }
        if is_whole { Ok(()) } else { Err(position.broken()) }
    }

    /// Applies the next record.
    fn apply_next(
        &mut self,
        records: &mut ByteReader<'_>,
        position: &RecordPosition,
    ) -> Result<(), OpenError> {
        let applied = match records.0.first() {
            Some(&skim::ACTS) => self.replay.apply_actions(records),
            Some(&skim::KEY) => self.apply_key(records),
            Some(&skim::KEYS) => self.apply_keys(records),
            Some(&skim::STATES) => self.apply_states(records),
            _ => Record::read(records).and_then(|record| self.apply(record)),
        };
        applied.map_err(|_| position.broken())
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
            let rule = self.keys.rule((key.domain, key.rule));
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
        let rule = self.keys.rule((records.text()?, records.text()?));
        for _ in 0..records.count()? {
            let (number, hash) = (records.number()?, records.word()?);
            self.add_key(number, hash, rule);
        }
        Ok(())
    }

    /// Applies the numbers, hashes and states of keys of a rule.
    fn apply_states(&mut self, records: &mut ByteReader<'_>) -> Result<(), Malformed> {
        records.byte()?;
        let rule = self.keys.rule((records.text()?, records.text()?));
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
    ) -> Result<(), OpenError> {
        let needed = self.replay.keys_with_holds();
        if needed.is_empty() {
            return Ok(());
        }
        segments.for_each(disk, |records, position| {
            match Record::read(records).map_err(|_| position.broken())? {
                Record::Key(key) if !key.is_erased && needed.contains(&key.number) => {
                    self.replay.add_attributes(key.number, key.name);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }

    fn finish(self, finish: LogEnd, log_len: u64) -> Result<Recovered, OpenError> {
        let overlay = Overlay::from_toml(&self.overlay)
            .map_err(|errors| OpenError::Overlay { errors: errors.to_string() })?;
        let (last, is_new) = (self.replay.last, !self.replay.has_seed);
        let memory = self.replay.finish().map_err(|_| OpenError::TooManyKeys)?;
        let stored = StoredEdits { overlay, changes: self.changes };
        let edits = LoggedEdits::new(stored, self.overlay, self.revision);
        Ok(Recovered { memory, keys: self.keys.finish(), edits, finish, last, is_new, log_len })
    }
}
