//! Writes the end of the log.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, FileIdentity, NamedFile};
use crate::frame::{FileHeader, SPACE_AFTER, SegmentEnd, frame};
use crate::names::{FileKind, SEGMENT_TMP};

/// Writes batches of records, and moves on to another segment when one is full or has failed.
///
/// A segment that has failed once is never written or synced again: what the disk has of it is
/// unknown after that. Records that were not synced are written again, into a new segment, whose
/// header has how much of the old one counts.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    pub(crate) disk: Arc<dyn Disk>,
    sizes: SegmentSizes,
    current: Option<CurrentSegment>,
    /// Where the log ends, for the header of the next segment.
    end: SegmentEnd,
    next_segment: u64,
    next_batch: u64,
    /// The last batch that is synced.
    synced_batch: u64,
    /// Records that were written and may not be synced.
    unsynced: Vec<u8>,
    /// Records that were not written.
    unwritten: Vec<u8>,
    /// Bytes written.
    pub(crate) written_len: u64,
    /// How often the disk was synced.
    pub(crate) syncs: u64,
}

/// How far a record is on its way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It is in the queue.
    Accepted,
    /// It was handed to the operating system: it survives the end of the process.
    Written,
    /// It is on the disk: it survives a loss of power.
    Synced,
}

/// Sizes of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSizes {
    /// A segment that is longer gets a successor.
    pub segment_len: u64,
    /// Space is allocated in pieces of this size, filled with zeros and synced before a batch uses
    /// it: overwriting it needs no sync of the file's length, and a file that was cut short is
    /// recognised.
    pub fill_len: u64,
}

impl Default for SegmentSizes {
    fn default() -> Self {
        Self { segment_len: 64 << 20, fill_len: 1 << 20 }
    }
}

#[derive(Debug)]
struct CurrentSegment {
    file: Box<dyn DiskFile>,
    identity: FileIdentity,
    number: u64,
    len: u64,
    synced_len: u64,
    filled_len: u64,
    has_failed_to_sync: bool,
}

/// Where the log continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    pub(crate) end: SegmentEnd,
    pub(crate) next_segment: u64,
    pub(crate) next_batch: u64,
}

impl SegmentWriter {
    /// The end of a log that continues from a position, with records after it that may not be
    /// synced.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        sizes: SegmentSizes,
        from: ResumePoint,
        unsynced: Vec<u8>,
    ) -> Self {
        Self {
            disk,
            sizes,
            current: None,
            end: from.end,
            next_segment: from.next_segment,
            next_batch: from.next_batch,
            synced_batch: from.next_batch.saturating_sub(1),
            unsynced,
            unwritten: Vec::new(),
            written_len: 0,
            syncs: 0,
        }
    }

    /// Writes records, together with those that could not be written before, and syncs all of them
    /// on [`Level::Synced`].
    ///
    /// After an error nothing is lost: the next call retries, in a new segment.
    pub(crate) fn write(&mut self, records: &[u8], level: Level) -> io::Result<()> {
        self.unwritten.extend_from_slice(records);
        self.write_all(level)?;
        self.verify()
    }

    fn write_all(&mut self, level: Level) -> io::Result<()> {
        if self.unwritten.is_empty() && self.unsynced.is_empty() && self.current.is_some() {
            return Ok(());
        }
        let is_full = |segment: &CurrentSegment| segment.len >= self.sizes.segment_len;
        if self.current.as_ref().is_some_and(is_full) {
            self.verify()?;
            self.seal();
        }
        let too_much = self.unsynced.len() + self.unwritten.len() > MOST_UNSYNCED;
        let level = if too_much { Level::Synced } else { level };
        match self.write_here(level) {
            Ok(()) => Ok(()),
            // One retry in a new segment before it is an error.
            Err(_) if self.current.is_some() => {
                // A segment that is gone must not get a successor.
                self.verify()?;
                self.seal();
                self.begin_segment()
            }
            Err(error) => Err(error),
        }
    }

    /// Begins another segment, with everything before it synced, and returns its number.
    pub(crate) fn rotate(&mut self) -> io::Result<u64> {
        self.verify()?;
        self.seal();
        self.begin_segment()?;
        self.verify()?;
        Ok(self.end.number)
    }

    /// The segment that is being written.
    pub(crate) fn log_file(&self) -> Option<NamedFile> {
        let CurrentSegment { number, identity, filled_len, .. } = self.current.as_ref()?;
        let name = FileKind::Log.file_name(*number);
        Some(NamedFile { name, identity: *identity, least_len: *filled_len })
    }

    /// Fails if the folder, its lock or the segment is not what was opened.
    fn verify(&self) -> io::Result<()> {
        self.disk.verify(self.log_file().as_ref())
    }

    /// Whether everything that was accepted is synced.
    pub(crate) fn is_all_synced(&self) -> bool {
        self.unsynced.is_empty() && self.unwritten.is_empty()
    }

    fn write_here(&mut self, level: Level) -> io::Result<()> {
        let Some(segment) = &mut self.current else { return self.begin_segment() };
        if !self.unwritten.is_empty() {
            let frame = frame(self.next_batch, self.synced_batch, &self.unwritten);
            if segment.lacks_space(&frame) {
                self.syncs += 1;
                segment.allocate(&frame, self.sizes.fill_len)?;
            }
            segment.write(&frame)?;
            self.written_len += frame.len() as u64;
            self.next_batch += 1;
            self.unsynced.append(&mut self.unwritten);
        }
        if level == Level::Synced {
            self.syncs += 1;
            segment.sync()?;
            self.end = SegmentEnd { number: segment.number, len: segment.len };
            self.synced_batch = self.next_batch - 1;
            self.unsynced.clear();
        }
        Ok(())
    }

    /// Ends the current segment, as far as it is synced.
    fn seal(&mut self) {
        let Some(mut segment) = self.current.take() else { return };
        // After a failed write what was written before may be synced; after a failed sync it may
        // not.
        self.syncs += u64::from(!segment.has_failed_to_sync);
        if !segment.has_failed_to_sync && segment.sync().is_ok() {
            self.synced_batch = self.next_batch - 1;
            self.unsynced.clear();
        }
        self.end = SegmentEnd { number: segment.number, len: segment.synced_len };
        // Batches that do not count have numbers that were never acknowledged.
        self.next_batch = self.synced_batch + 1;
    }

    /// Writes everything that is not synced into a new segment, and syncs it.
    fn begin_segment(&mut self) -> io::Result<()> {
        let number = self.next_segment;
        self.next_segment += 1;
        let header = FileHeader {
            kind: FileKind::Log,
            number,
            after: self.end,
            first_batch: self.synced_batch + 1,
        };
        let mut records = self.unsynced.clone();
        records.extend_from_slice(&self.unwritten);
        let batch = match records.len() {
            0 => Vec::new(),
            _ => frame(header.first_batch, self.synced_batch, &records),
        };
        self.syncs += 1;
        let segment = self.create_segment(&header, &batch)?;
        if header.after.number > 0 {
            // Cuts space that was allocated ahead. Should it remain, it is only space.
            let before = FileKind::Log.file_name(header.after.number);
            let _ = self.disk.cut(&before, header.after.len);
        }
        self.next_batch = header.first_batch + u64::from(!records.is_empty());
        self.synced_batch = self.next_batch - 1;
        self.written_len += segment.len;
        self.end = SegmentEnd { number, len: segment.len };
        self.unsynced.clear();
        self.unwritten.clear();
        self.current = Some(segment);
        Ok(())
    }

    /// Creates a segment under another name, and renames it when all of it is synced: a file with
    /// the name of a segment is never shorter than it was when it got that name.
    fn create_segment(&self, header: &FileHeader, batch: &[u8]) -> io::Result<CurrentSegment> {
        let name = FileKind::Log.file_name(header.number);
        // An unfinished one is of no use.
        let _ = self.disk.remove(SEGMENT_TMP);
        let mut segment = CurrentSegment::new(self.disk.create(SEGMENT_TMP)?, header.number)?;
        let begun = segment.begin(header, batch, self.sizes.fill_len);
        let named = begun.and_then(|()| self.disk.rename(SEGMENT_TMP, &name));
        if let Err(error) = named.and_then(|()| self.disk.sync_names()) {
            // Should it remain, its successor does not refer to it, so it is not read.
            let _ = self.disk.remove(&name);
            let _ = self.disk.remove(SEGMENT_TMP);
            return Err(error);
        }
        Ok(segment)
    }
}

impl CurrentSegment {
    fn new(file: Box<dyn DiskFile>, number: u64) -> io::Result<Self> {
        let (len, synced_len, filled_len, has_failed_to_sync) = (0, 0, 0, false);
        let identity = file.identity()?;
        Ok(Self { file, identity, number, len, synced_len, filled_len, has_failed_to_sync })
    }

    /// Writes the header, the first records and the space after them.
    fn begin(&mut self, header: &FileHeader, batch: &[u8], fill_len: u64) -> io::Result<()> {
        let bytes = [&header.to_bytes(), batch].concat();
        self.fill(&bytes, fill_len)?;
        self.write(&bytes)?;
        self.sync()
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync();
        match synced {
            Ok(()) => self.synced_len = self.len,
            Err(_) => self.has_failed_to_sync = true,
        }
        synced
    }

    /// Whether a batch would not leave [`SPACE_AFTER`] bytes of allocated space.
    fn lacks_space(&self, batch: &[u8]) -> bool {
        self.len + (batch.len() + SPACE_AFTER) as u64 > self.filled_len
    }

    /// Allocates space for a batch and for what follows it, and syncs it.
    fn allocate(&mut self, batch: &[u8], fill_len: u64) -> io::Result<()> {
        self.fill(batch, fill_len)?;
        let synced = self.file.sync();
        self.has_failed_to_sync |= synced.is_err();
        synced
    }

    /// Fills the space for a batch and for what follows it with zeros. On a disk that is nearly
    /// full it is only as much as is needed, which is slower.
    fn fill(&mut self, batch: &[u8], fill_len: u64) -> io::Result<()> {
        let least = self.len + (batch.len() + SPACE_AFTER) as u64;
        let zeros = |end: u64| usize::try_from(end - self.filled_len).map(|len| vec![0; len]);
        let ahead = zeros(least + fill_len).map_err(io::Error::other)?;
        let needed = zeros(least).map_err(io::Error::other)?;
        if self.file.write_at(self.filled_len, &ahead).is_ok() {
            self.filled_len = least + fill_len;
            return Ok(());
        }
        self.file.write_at(self.filled_len, &needed)?;
        self.filled_len = least;
        Ok(())
    }

    fn write(&mut self, batch: &[u8]) -> io::Result<()> {
        self.file.write_at(self.len, batch)?;
        self.len += batch.len() as u64;
        Ok(())
    }
}

/// How many bytes of records may be unsynced before a sync is forced.
const MOST_UNSYNCED: usize = 1 << 20;
