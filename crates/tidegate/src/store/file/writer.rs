//! The end of the log, where it is written.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::frame::{FileHeader, FileKind, HEADER_LEN, SegmentEnd, frame};

/// Writes batches of records, and moves on to another segment when one is full or has failed.
///
/// A segment that has failed once is never written or synced again: nobody can know what a disk has
/// kept of it after that. Whatever was not known to be safe is written again, elsewhere, and the new
/// segment says how much of the old one counts.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    disk: Arc<dyn Disk>,
    sizes: SegmentSizes,
    current: Option<CurrentSegment>,
    /// Where the log ends, for the next segment to say.
    end: SegmentEnd,
    next_segment: u64,
    next_batch: u64,
    /// The last batch that is known to be safe.
    synced_batch: u64,
    /// Records that were written and may not be safe.
    unsynced: Vec<u8>,
    /// Records that were not even written.
    unwritten: Vec<u8>,
    /// Bytes written since somebody asked.
    pub(super) written_len: u64,
    /// How often the disk was told to make things safe.
    pub(super) syncs: u64,
}

/// How large things are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentSizes {
    /// A segment that is longer gets a successor.
    pub(super) segment_len: u64,
    /// Space is taken in pieces of this size, filled with zeros: what is written over later needs no
    /// change of the file's length to be safe.
    pub(super) fill_len: u64,
    /// A snapshot is taken after so many bytes of log.
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

/// Where the log goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResumePoint {
    pub(super) end: SegmentEnd,
    pub(super) next_segment: u64,
    pub(super) next_batch: u64,
}

impl SegmentWriter {
    /// The end of a log that goes on from a place, with records after it that may not be safe.
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

    /// Writes records, together with those that could not be written before, and makes all of them
    /// safe if that is wanted.
    ///
    /// After an error nothing is lost: the next call tries again, in a new segment.
    pub(super) fn write(&mut self, records: &[u8], is_safe: SyncMode) -> io::Result<()> {
        self.unwritten.extend_from_slice(records);
        if self.unwritten.is_empty() && self.unsynced.is_empty() && self.current.is_some() {
            return Ok(());
        }
        let is_full = |segment: &CurrentSegment| segment.len >= self.sizes.segment_len;
        if self.current.as_ref().is_some_and(is_full) {
            self.seal();
        }
        let too_much = self.unsynced.len() + self.unwritten.len() > MOST_UNSYNCED;
        let is_safe = if too_much { SyncMode::Now } else { is_safe };
        match self.write_here(is_safe) {
            Ok(()) => Ok(()),
            // One try elsewhere before anybody is told.
            Err(_) if self.current.is_some() => {
                self.seal();
                self.begin_segment()
            }
            Err(error) => Err(error),
        }
    }

    /// Begins another segment, with everything before it safe, and reports its number.
    pub(super) fn rotate(&mut self) -> io::Result<u64> {
        self.seal();
        self.begin_segment()?;
        Ok(self.end.number)
    }

    /// Whether nothing that was written could still be lost.
    pub(super) fn is_all_synced(&self) -> bool {
        self.unsynced.is_empty() && self.unwritten.is_empty()
    }

    fn write_here(&mut self, is_safe: SyncMode) -> io::Result<()> {
        let Some(segment) = &mut self.current else { return self.begin_segment() };
        if !self.unwritten.is_empty() {
            let frame = frame(self.next_batch, self.synced_batch, &self.unwritten);
            segment.write(&frame, self.sizes.fill_len)?;
            self.written_len += frame.len() as u64;
            self.next_batch += 1;
            self.unsynced.append(&mut self.unwritten);
        }
        if is_safe == SyncMode::Now {
            self.syncs += 1;
            segment.sync()?;
            self.end = SegmentEnd { number: segment.number, len: segment.len };
            self.synced_batch = self.next_batch - 1;
            self.unsynced.clear();
        }
        Ok(())
    }

    /// Ends the current segment, as far as it is known to be safe.
    fn seal(&mut self) {
        let Some(mut segment) = self.current.take() else { return };
        // What was written before a write failed may be made safe; a sync that failed is the end.
        self.syncs += u64::from(!segment.has_failed_to_sync);
        if !segment.has_failed_to_sync && segment.sync().is_ok() {
            self.synced_batch = self.next_batch - 1;
            self.unsynced.clear();
        }
        self.end = SegmentEnd { number: segment.number, len: segment.synced_len };
        // Batches that do not count have numbers that nobody has seen as safe.
        self.next_batch = self.synced_batch + 1;
    }

    /// Writes everything that is not known to be safe into a new segment, and makes it so.
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
            // Should it stay after all, its successor does not name it, so it is not read.
            let _ = self.disk.remove(&name);
            return Err(error);
        }
        if header.after.number > 0 {
            // Space that was taken ahead. Should it stay, it is only space.
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

/// Whether records have to be safe before anybody goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SyncMode {
    Later,
    Now,
}

impl CurrentSegment {
    fn new(file: Box<dyn DiskFile>, number: u64) -> Self {
        Self { file, number, len: 0, synced_len: 0, filled_len: 0, has_failed_to_sync: false }
    }

    /// Writes the header, and records that nobody knows of yet.
    fn begin(&mut self, header: &FileHeader, batch: &[u8], fill_len: u64) -> io::Result<()> {
        self.write(&[&header.to_bytes(), batch].concat(), fill_len)?;
        self.sync()
    }

    /// Writes records that are in an older segment as well, and only then the header: from there on
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
            // Without it the file grows with every batch instead, which is slower and as good.
            let _ = self.file.write_at(self.len, &zeros);
            self.filled_len = end;
        }
        Ok(())
    }
}

/// How many bytes of records may wait to become safe before somebody sees to it.
const MOST_UNSYNCED: usize = 1 << 20;
