//! Recovers a store from its disk: the newest snapshot, and the log since.

use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;

use super::disk::Disk;
use super::edits::LoggedEdits;
use super::error::OpenError;
use super::frame::{Batches, FileHeader, FileKind, HeaderError};
use super::keys::Keys;
use super::segments::{LogEnd, RecordPosition, Segments};
use crate::edits::{Change, Overlay};
use crate::store::StoredEdits;
use crate::store::memory::MemoryStore;
use crate::store::record::ByteReader;
use crate::store::record::Record;
use crate::store::replay::Replay;

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
        replay.read_snapshot(disk, number)?;
    }
    let chain = Segments::read(disk, snapshot.unwrap_or(0))?;
    let first = chain.links().first().map(|link| link.header.number);
    if let Some(number) = snapshot.filter(|number| first != Some(*number)) {
        let file = FileKind::Log.file_name(number);
        return Err(OpenError::Damaged { file, at: 0, what: "the segment is missing" });
    }
    let finish = chain.for_each(disk, |record, position| replay.apply(record, position))?;
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

/// Everything that is read from a disk.
pub(super) struct FileReplay {
    replay: Replay,
    keys: Keys,
    /// The edits in force, and how many there were.
    pub(super) overlay: String,
    pub(super) revision: u64,
    pub(super) changes: Vec<Change>,
}

impl FileReplay {
    fn new(bounds: StoreBounds) -> Result<Self, OpenError> {
        let memory = MemoryStore::with_bounds(bounds).ok_or(OpenError::TooManyKeys)?;
        let replay = Replay::new(memory);
        let (keys, overlay, revision, changes) = (Keys::default(), String::new(), 0, Vec::new());
        Ok(Self { replay, keys, overlay, revision, changes })
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
        match &record {
            Record::Key(key) if !key.is_erased => {
                self.keys.insert(
                    key.number,
                    key.hash,
                    (key.name.rule.domain(), key.name.rule.name()),
                );
            }
            Record::Keys { domain, rule, keys } => {
                self.keys.reserve(keys.len());
                for (number, hash) in keys {
                    self.keys.insert(*number, *hash, (domain, rule));
                }
            }
            Record::Erased { keys, .. } => {
                keys.iter().filter_map(|it| self.replay.hash_of(*it)).for_each(|hash| {
                    self.keys.remove(hash);
                });
            }
            Record::Edit(edit) => self.apply_edit(edit).map_err(|_| position.broken())?,
            _ => {}
        }
        self.replay.apply(record).map_err(|_| position.broken())
    }

    fn finish(self, finish: LogEnd, log_len: u64) -> Result<Recovered, OpenError> {
        let overlay = Overlay::from_toml(&self.overlay)
            .map_err(|errors| OpenError::Overlay { errors: errors.to_string() })?;
        let (last, is_new) = (self.replay.last, !self.replay.has_seed);
        let memory = self.replay.finish().map_err(|_| OpenError::TooManyKeys)?;
        let stored = StoredEdits { overlay, changes: self.changes };
        let edits = LoggedEdits::new(stored, self.overlay, self.revision);
        Ok(Recovered { memory, keys: self.keys, edits, finish, last, is_new, log_len })
    }
}
