//! Snapshot files: everything that a start would otherwise read from the log before a segment.
//!
//! A snapshot is complete or ignored: it is written under another name, synced, and renamed.

use std::io;

use crate::disk::{Disk, DiskFile};
use crate::error::{LogError, Position};
use crate::frame::{BatchStream, FileHeader, HEADER_LEN, HeaderError, SegmentEnd, frame};
use crate::names::{FileKind, SNAPSHOT_TMP};

/// The number of the newest snapshot.
pub fn newest_snapshot(disk: &dyn Disk) -> Result<Option<u64>, LogError> {
    Ok(disk.numbers(FileKind::Snapshot)?.last().copied())
}

/// A snapshot that is being written.
#[derive(Debug)]
pub struct SnapshotWriter<'a> {
    disk: &'a dyn Disk,
    number: u64,
    file: Box<dyn DiskFile>,
    at: u64,
    batch: u64,
    /// How many records were added.
    count: u64,
    /// Those that are not written.
    records: Vec<u8>,
    /// Where batches may end in these, about every [`BATCH_LEN`] bytes.
    ends: Vec<usize>,
}

impl<'a> SnapshotWriter<'a> {
    /// Begins the snapshot of everything before the segment with this number.
    pub fn create(disk: &'a dyn Disk, number: u64) -> io::Result<Self> {
        // An unfinished one is of no use.
        let _ = disk.remove(SNAPSHOT_TMP);
        let mut file = disk.create(SNAPSHOT_TMP)?;
        let (kind, after) = (FileKind::Snapshot, SegmentEnd::default());
        let header = FileHeader { kind, number, after, first_batch: 1 };
        file.write_at(0, &header.to_bytes())?;
        let (at, records, ends) = (HEADER_LEN as u64, Vec::new(), Vec::new());
        Ok(Self { disk, number, file, at, batch: 1, count: 0, records, ends })
    }

    /// Adds a record without writing, so that no lock is held during disk access.
    pub fn queue(&mut self, record: &[u8]) {
        self.count += 1;
        self.records.extend_from_slice(record);
        if self.records.len() - self.ends.last().copied().unwrap_or(0) >= BATCH_LEN {
            self.ends.push(self.records.len());
        }
    }

    /// How many records were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds a record, and writes what was added if it is enough for a batch.
    pub fn add(&mut self, record: &[u8]) -> io::Result<()> {
        self.queue(record);
        if self.records.len() < BATCH_LEN { Ok(()) } else { self.write() }
    }

    /// Writes the records that were added.
    pub fn write(&mut self) -> io::Result<()> {
        // The length of a batch has 32 bits, so there are several for many keys.
        let (records, mut ends) =
            (std::mem::take(&mut self.records), std::mem::take(&mut self.ends));
        ends.push(records.len());
        let mut start = 0;
        for end in ends {
            if end > start {
                let frame = frame(self.batch, 0, &records[start..end]);
                self.file.write_at(self.at, &frame)?;
                self.at += frame.len() as u64;
                self.batch += 1;
            }
            start = end;
        }
        Ok(())
    }

    /// Makes the snapshot count, and removes those before it. What it has must be durable in the log.
    pub fn finish(mut self) -> io::Result<()> {
        self.write()?;
        self.file.sync()?;
        self.disk.rename(SNAPSHOT_TMP, &FileKind::Snapshot.file_name(self.number))?;
        self.disk.sync_names()?;
        for name in self.disk.names()? {
            if FileKind::Snapshot.number_of(&name).is_some_and(|older| older < self.number) {
                self.disk.remove(&name)?;
            }
        }
        self.disk.sync_names()
    }
}

/// A snapshot that is being read.
#[derive(Debug)]
pub struct SnapshotReader<'a> {
    batches: BatchStream<'a>,
    /// That of the batch that was read last.
    position: Position,
}

impl<'a> SnapshotReader<'a> {
    /// Opens the snapshot with this number.
    pub fn open(disk: &'a dyn Disk, number: u64) -> Result<Self, LogError> {
        let mut position = Position { file: FileKind::Snapshot.file_name(number), at: 0 };
        let start = disk.read_start(&position.file).map_err(|error| position.failed(error))?;
        let header = match FileHeader::from_bytes(FileKind::Snapshot, &start) {
            Ok(header) => header,
            Err(HeaderError::NotOurs) => return Err(position.broken()),
            Err(HeaderError::Version(version)) => {
                return Err(LogError::Version { file: position.file, version });
            }
        };
        position.at = HEADER_LEN as u64;
        let from = disk.read_from(&position.file, position.at);
        let from = from.map_err(|error| position.failed(error))?;
        let batches = BatchStream::new(from, position.at, header.first_batch);
        Ok(Self { batches, position })
    }

    /// The records of the next batch; `None` where no whole one follows.
    pub fn next_batch(&mut self) -> Result<Option<&[u8]>, LogError> {
        self.position.at = self.batches.position;
        let batch = self.batches.next_batch().map_err(|error| self.position.failed(error))?;
        Ok(batch.map(|batch| batch.records))
    }

    /// The error of a batch whose records cannot be decoded, or of an end that comes too early.
    #[must_use]
    pub fn broken(&self) -> LogError {
        self.position.broken()
    }
}

/// How many bytes go into one batch.
const BATCH_LEN: usize = 1 << 20;
