//! Reads all records of a log, for an audit.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::disk::Disk;
use super::error::OpenError;
use super::frame::{Batches, FileKind};
use super::segments::{RecordPosition, SegmentLink, Segments};
use crate::store::record::{ByteReader, Record};

/// Reads the records of all segments, batch by batch.
#[derive(Debug)]
pub(super) struct LogReader {
    disk: Arc<dyn Disk>,
    links: VecDeque<SegmentLink>,
    segment: Option<OpenSegment>,
    /// Segments that are missing or cannot be read, until that is reported.
    damage: Vec<OpenError>,
    bytes_read: u64,
}

/// A segment that is being read.
struct OpenSegment {
    link: SegmentLink,
    file: String,
    bytes: Vec<u8>,
    at: usize,
    next_batch: u64,
}

impl LogReader {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let chain = Segments::read_readable(&*disk, 0)?;
        let links = chain.links().iter().copied().collect();
        Ok(Self { disk, links, segment: None, damage: chain.damage(), bytes_read: 0 })
    }

    /// Reads the segments from the newest to the oldest.
    pub(super) fn newest_first(disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let mut reader = Self::new(disk)?;
        reader.links.make_contiguous().reverse();
        Ok(reader)
    }

    /// The length of all segments that were opened.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Whether the next batch is that of another segment.
    pub(super) const fn is_between_segments(&self) -> bool {
        self.segment.is_none()
    }

    /// Whether all segments were opened.
    pub(super) fn is_at_end(&self) -> bool {
        self.links.is_empty()
    }

    /// Calls a function for the records of one more batch; `false` at the end. After an error it
    /// continues with the next segment.
    pub(super) fn read_batch(&mut self, mut then: impl FnMut(Record)) -> Result<bool, OpenError> {
        if !self.damage.is_empty() {
            return Err(self.damage.remove(0));
        }
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => match self.links.pop_front() {
                Some(link) => {
                    let segment = OpenSegment::read(&*self.disk, link)?;
                    self.bytes_read += segment.bytes.len() as u64;
                    segment
                }
                None => return Ok(false),
            },
        };
        let position = RecordPosition { file: segment.file.clone(), at: segment.at as u64 };
        let counted = segment.link.counted(&segment.bytes);
        let mut batches = Batches::from(counted, segment.at, segment.next_batch);
        let Some(batch) = batches.next() else {
            let damage = segment.link.damage(&batches);
            return damage.map_or(Ok(true), |what| Err(position.damaged(what)));
        };
        let mut records = ByteReader(batch.records);
        while !records.is_empty() {
            then(Record::read(&mut records).map_err(|_| position.broken())?);
        }
        (segment.at, segment.next_batch) = (batches.position(), batches.next_number());
        self.segment = Some(segment);
        Ok(true)
    }
}

impl OpenSegment {
    fn read(disk: &dyn Disk, link: SegmentLink) -> Result<Self, OpenError> {
        let file = FileKind::Log.file_name(link.header.number);
        let (link, bytes) = link.read(disk)?;
        let start = link.batches(&bytes);
        let (at, next_batch) = (start.position(), start.next_number());
        Ok(Self { link, file, bytes, at, next_batch })
    }
}

impl fmt::Debug for OpenSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("file", &self.file).field("at", &self.at).finish()
    }
}
