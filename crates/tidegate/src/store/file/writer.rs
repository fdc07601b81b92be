//! Writes the end of the log.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::frame::{FileHeader, FileKind, HEADER_LEN, SegmentEnd, frame};

/// Writes batches of records, and moves on to another segment when one is full or has failed.
///
/// A segment that has failed once is never written or synced again: what the disk has of it is
/// unknown after that. Records that were not synced are written again, into a new segment, whose
/// header has how much of the old one counts.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    disk: Arc<dyn Disk>,
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
    pub(super) written_len: u64,
    /// How often the disk was synced.
    pub(super) syncs: u64,
}

/// Sizes of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentSizes {
    /// A segment that is longer gets a successor.
    pub(super) segment_len: u64,
    /// Space is allocated in pieces of this size, filled with zeros: overwriting it needs no sync
    /// of the file's length.
    pub(super) fill_len: u64,
    /// A snapshot is taken after this many bytes of log.
    pub(super) snapshot_after_len: u64,
}

impl Default for SegmentSizes {
    fn default() -> Self {
        Self { segment_len: 64 << 20, fill_len: 1 << 20, snapshot_after_len: 64 << 20 }
    }
}

#[derive(Debug)]
struct CurrentSegment {
    file: Box<dyn DiskFile>,
    number: u64,
    len: u64,
    synced_len: u64,
    filled_len: u64,
    has_failed_to_sync: bool,
}

/// Where the log continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResumePoint {
    pub(super) end: SegmentEnd,
    pub(super) next_segment: u64,
    pub(super) next_batch: u64,
}

impl SegmentWriter {
    /// The end of a log that continues from a position, with records after it that may not be
    /// synced.
    pub(super) fn new(
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
    /// with [`SyncMode::Now`].
    ///
    /// After an error nothing is lost: the next call retries, in a new segment.
    pub(super) fn write(&mut self, records: &[u8], sync: SyncMode) -> io::Result<()> {
        self.unwritten.extend_from_slice(records);
        if self.unwritten.is_empty() && self.unsynced.is_empty() && self.current.is_some() {
            return Ok(());
        }
        let is_full = |segment: &CurrentSegment| segment.len >= self.sizes.segment_len;
        if self.current.as_ref().is_some_and(is_full) {
            self.seal();
        }
        let too_much = self.unsynced.len() + self.unwritten.len() > MOST_UNSYNCED;
        let sync = if too_much { SyncMode::Now } else { sync };
        match self.write_here(sync) {
            Ok(()) => Ok(()),
            // One retry in a new segment before it is an error.
            Err(_) if self.current.is_some() => {
                self.seal();
                self.begin_segment()
            }
            Err(error) => Err(error),
        }
    }

    /// Begins another segment, with everything before it synced, and returns its number.
    pub(super) fn rotate(&mut self) -> io::Result<u64> {
        self.seal();
        self.begin_segment()?;
        Ok(self.end.number)
    }

    /// Whether everything that was accepted is synced.
    pub(super) fn is_all_synced(&self) -> bool {
        self.unsynced.is_empty() && self.unwritten.is_empty()
    }

    fn write_here(&mut self, sync: SyncMode) -> io::Result<()> {
        let Some(segment) = &mut self.current else { return self.begin_segment() };
        if !self.unwritten.is_empty() {
            let frame = frame(self.next_batch, self.synced_batch, &self.unwritten);
            segment.write(&frame, self.sizes.fill_len)?;
            self.written_len += frame.len() as u64;
            self.next_batch += 1;
            self.unsynced.append(&mut self.unwritten);
        }
        if sync == SyncMode::Now {
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
        let name = FileKind::Log.file_name(number);
        let file = self.disk.create(&name)?;
        let mut segment = CurrentSegment::new(file, number);
        self.syncs += 1;
        let begun = match self.unsynced.is_empty() {
            true => segment.begin(&header, &batch, self.sizes.fill_len),
            false => segment.begin_again(&header, &batch, self.sizes.fill_len),
        };
        if let Err(error) = begun.and_then(|()| self.disk.sync_names()) {
            // Should it remain, its successor does not refer to it, so it is not read.
            let _ = self.disk.remove(&name);
            return Err(error);
        }
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
}

/// When records have to be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SyncMode {
    Later,
    Now,
}

impl CurrentSegment {
    fn new(file: Box<dyn DiskFile>, number: u64) -> Self {
        Self { file, number, len: 0, synced_len: 0, filled_len: 0, has_failed_to_sync: false }
    }

    /// Writes the header, and new records.
    fn begin(&mut self, header: &FileHeader, batch: &[u8], fill_len: u64) -> io::Result<()> {
        self.write(&[&header.to_bytes(), batch].concat(), fill_len)?;
        self.sync()
    }

    /// Writes records that are in an older segment as well, and only then the header: from then on
    /// the older ones do not count, and these must not be torn.
    fn begin_again(&mut self, header: &FileHeader, batch: &[u8], fill_len: u64) -> io::Result<()> {
        self.len = HEADER_LEN as u64;
        self.write(batch, fill_len)?;
        self.sync()?;
        self.file.write_at(0, &header.to_bytes())?;
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

    fn write(&mut self, bytes: &[u8], fill_len: u64) -> io::Result<()> {
        self.file.write_at(self.len, bytes)?;
        self.len += bytes.len() as u64;
        if self.len > self.filled_len && fill_len > 0 {
            let end = self.len.next_multiple_of(8) + fill_len;
            let zeros = vec![0; usize::try_from(end - self.len).unwrap_or(0)];
            // Without it the file grows with every batch, which is slower but correct.
            let _ = self.file.write_at(self.len, &zeros);
            self.filled_len = end;
        }
        Ok(())
    }
}

/// How many bytes of records may be unsynced before a sync is forced.
const MOST_UNSYNCED: usize = 1 << 20;
