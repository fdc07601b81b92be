//! The segments of a log in their order, and how far each of them counts.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::{LogError, Position, UNREADABLE};
use crate::frame::{
    Batch, BatchStream, Batches, BatchesEnd, FileHeader, HEADER_LEN, HeaderError, SegmentEnd,
};
use crate::names::{BEGUN, BEGUN_TMP, FileKind};
use crate::snapshot::newest_snapshot;
use crate::writer::ResumePoint;

/// The segments that count, oldest first.
#[derive(Debug)]
pub struct Segments {
    pub(crate) links: Vec<SegmentLink>,
    /// The first segment that must exist, because of a snapshot; 0 is none.
    from: u64,
    /// A number that no file has had.
    next_segment: u64,
    /// Headers that cannot be read, and segments that are missing between others.
    unreadable: Vec<LogError>,
    /// The segment before the first one, if there was one and it is missing.
    missing: Option<LogError>,
}

/// One segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentLink {
    pub(crate) header: FileHeader,
    pub(crate) end: CountedEnd,
}

/// How many bytes of a segment count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedEnd {
    /// As many as the header of the next segment has.
    At(u64),
    /// It is the last one: as many as can be read.
    Open,
    /// Its successor cannot be read, so neither is known how many they are.
    Unknown,
}

/// How the log ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    pub(crate) from: ResumePoint,
    /// Records at the end that can be read, but are not proven to be durable: a process that was
    /// killed may have left them to the system, or a sync of them may have failed.
    pub(crate) unproven: Vec<u8>,
    /// Whether something was cut off that was never durable.
    pub is_torn: bool,
    /// Bytes that were read.
    pub len: u64,
}

impl LogEnd {
    /// Whether there is a log before its end.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.from.end.number != 0
    }
}

impl Segments {
    /// The segments since a snapshot, or all of them. All of them must be there, but for those before
    /// a snapshot.
    pub fn read(disk: &dyn Disk, snapshot: Option<u64>) -> Result<Self, LogError> {
        let segments = Self::read_readable(disk, snapshot.unwrap_or(0))?;
        let first = segments.links.first().map(|link| link.header.number);
        let missing = snapshot.filter(|number| first != Some(*number)).map(Position::start_of);
        let missing = missing.map(|position| position.damaged("the segment is missing"));
        segments.unreadable.first().cloned().or(missing).map_or(Ok(segments), Err)
    }

    /// The segments from number `from` on whose headers can be read; 0 for all of them.
    pub(crate) fn read_readable(disk: &dyn Disk, from: u64) -> Result<Self, LogError> {
        let numbers = disk.numbers(FileKind::Log)?;
        if numbers.is_empty() && has_begun(disk)? {
            // Without a snapshot nothing else says that there was a log.
            let number = newest_snapshot(disk)?;
            return Err(number.map_or(LogError::Missing, missing_segment));
        }
        let next_segment = numbers.last().map_or(1, |last| last + 1);
        let (mut headers, mut unreadable) = (BTreeMap::new(), Vec::new());
        for number in numbers.into_iter().filter(|number| *number >= from) {
            match read_header(disk, number) {
                Ok(header) => {
                    headers.insert(number, header);
                }
                Err(error @ LogError::Damaged { .. }) => unreadable.push(error),
                Err(error) => return Err(error),
            }
        }
        let (mut links, mut missing) = (Vec::new(), None);
        let mut next = headers.last_key_value().map(|(number, _)| *number);
        let mut end = CountedEnd::Open;
        while let Some(number) = next {
            let Some(header) = headers.get(&number).copied() else {
                next = headers.range(..number).next_back().map(|(older, _)| *older);
                if next.is_none() {
                    // A start needs only what follows a snapshot, an audit needs all of it.
                    missing = Some(number);
                    break;
                }
                if unreadable.is_empty() {
                    unreadable.push(missing_segment(number));
                }
                end = CountedEnd::Unknown;
                continue;
            };
            links.push(SegmentLink { header, end });
            end = CountedEnd::At(header.after.len);
            next = (header.after.number != 0 && number > from).then_some(header.after.number);
        }
        links.reverse();
        let missing = missing.map(missing_segment);
        Ok(Self { links, from, next_segment, unreadable, missing })
    }

    /// The error of a log whose oldest segment does not begin as it should.
    #[must_use]
    pub fn begins_wrong(&self, what: &'static str) -> LogError {
        let first = self.links.first().map_or(1, |link| link.header.number);
        Position::start_of(first).damaged(what)
    }

    /// Calls a function with the records of every batch, in order. An error of it says that they cannot
    /// be decoded, and is reported as damage.
    pub fn for_each<E>(
        &self,
        disk: &dyn Disk,
        mut then: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<LogEnd, LogError> {
        let mut finish = LogEnd::default();
        (finish.from.next_segment, finish.from.next_batch) = (self.next_segment, 1);
        finish.len = self.links.iter().filter_map(|link| link.end.len()).sum();
        for link in &self.links {
            let (link, end) = link.find_end(disk)?;
            let (header, number) = (&link.header, link.header.number);
            let mut position = Position { at: HEADER_LEN as u64, ..Position::start_of(number) };
            let mut proof = DurablePrefix::new(self.from, header);
            let mut batches = link.stream(disk, Some(end.len))?;
            let mut at = batches.position;
            while let Some(batch) = batches.next_batch().map_err(|error| position.failed(error))? {
                at += batch.len() as u64;
                proof.add(&batch, at);
                then(batch.records).map_err(|_| position.broken())?;
                position.at = at;
            }
            if at != end.len {
                return Err(position.broken());
            }
            finish.is_torn = link.end == CountedEnd::Open && end.kind == BatchesEnd::Torn;
            (finish.from.end, finish.from.next_batch) = match link.end {
                CountedEnd::At(len) => (SegmentEnd { number, len }, batches.next_number),
                CountedEnd::Open | CountedEnd::Unknown => proof.durable,
            };
            finish.unproven = proof.unproven;
        }
        finish.len += finish.from.end.len;
        Ok(finish)
    }
}

/// The end of the batches of a segment.
#[derive(Clone, Copy, Debug)]
struct FoundEnd {
    /// How many bytes the header and the batches have.
    len: u64,
    kind: BatchesEnd,
}

/// How much of the last segment is proven to be durable.
///
/// A batch has the number of the last batch that was synced when it was written. Only what is
/// proven so may be built upon: that something can be read does not mean that it survives a loss of
/// power.
struct DurablePrefix {
    number: u64,
    /// Batches that may still be proven: number, where they end, and where their records do.
    ends: Vec<(u64, u64, usize)>,
    /// Where the log continues, and with which batch.
    durable: (SegmentEnd, u64),
    /// The records after the durable part.
    unproven: Vec<u8>,
}

impl DurablePrefix {
    fn new(from: u64, header: &FileHeader) -> Self {
        // A snapshot is made after its segment is synced.
        let is_begun = header.number == from;
        let end = SegmentEnd { number: header.number, len: HEADER_LEN as u64 };
        let durable = (if is_begun { end } else { header.after }, header.first_batch);
        Self { number: header.number, ends: Vec::new(), durable, unproven: Vec::new() }
    }

    fn add(&mut self, batch: &Batch<'_>, end: u64) {
        let known = self.ends.iter().rposition(|(number, ..)| *number <= batch.synced);
        if let Some(last) = known {
            let (number, len, records_len) = self.ends[last];
            self.durable = (SegmentEnd { number: self.number, len }, number + 1);
            self.unproven.drain(..records_len);
            self.ends.drain(..=last);
            self.ends.iter_mut().for_each(|(_, _, len)| *len -= records_len);
        }
        self.unproven.extend_from_slice(batch.records);
        self.ends.push((batch.number, end, self.unproven.len()));
    }
}

impl SegmentLink {
    /// The batches of the segment, read in pieces, in as many bytes as given, or all.
    fn stream<'a>(
        &self,
        disk: &'a dyn Disk,
        len: Option<u64>,
    ) -> Result<BatchStream<'a>, LogError> {
        let (start, begin) = (Position::start_of(self.header.number), HEADER_LEN as u64);
        let from = disk.read_from(&start.file, begin).map_err(|error| start.failed(error))?;
        let len = len.map_or(u64::MAX, |len| len.saturating_sub(begin));
        Ok(BatchStream::new(Box::new(from.take(len)), begin, self.header.first_batch))
    }

    /// Where the batches that count end.
    ///
    /// The last segment is read for that. A reader beside a process that writes may see a part of a
    /// batch and all of a later one, or the last segment when it has got a successor. So what looks
    /// like damage is read again.
    fn find_end(mut self, disk: &dyn Disk) -> Result<(Self, FoundEnd), LogError> {
        let start = Position::start_of(self.header.number);
        let failed = |error| start.failed(error);
        let mut tries = 0;
        loop {
            if let CountedEnd::At(len) = self.end {
                return Ok((self, FoundEnd { len, kind: BatchesEnd::Clean }));
            }
            let mut batches = self.stream(disk, None)?;
            while batches.next_batch().map_err(failed)?.is_some() {}
            let len = batches.position;
            let kind = batches.ending().map_err(failed)?;
            tries += 1;
            match self.damage_at(len, || kind) {
                None => return Ok((self, FoundEnd { len, kind })),
                Some(what) if tries == READS => {
                    return Err(Position { at: len, ..start }.damaged(what));
                }
                Some(_) => self.end = CountedEnd::of(successor(disk, self.header.number)?),
            }
        }
    }

    /// The batches in the bytes that count.
    pub(crate) fn batches<'a>(&self, bytes: &'a [u8]) -> Batches<'a> {
        Batches::new(self.counted(bytes), self.header.first_batch)
    }

    /// The bytes that count.
    pub(crate) fn counted<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let len = self.end.len().and_then(|len| usize::try_from(len).ok());
        len.and_then(|len| bytes.get(..len)).unwrap_or(bytes)
    }

    /// What is wrong after the last readable batch.
    pub(crate) fn damage(&self, batches: &Batches<'_>) -> Option<&'static str> {
        self.damage_at(batches.position as u64, || batches.ending())
    }

    /// What is wrong where the batches that can be read end.
    fn damage_at(&self, at: u64, kind: impl FnOnce() -> BatchesEnd) -> Option<&'static str> {
        match self.end {
            CountedEnd::At(len) => (at != len).then_some(UNREADABLE),
            CountedEnd::Open | CountedEnd::Unknown => match kind() {
                BatchesEnd::Damaged => Some(UNREADABLE),
                BatchesEnd::Short if self.end == CountedEnd::Open => {
                    Some("the file was cut short here, or its successor is missing")
                }
                _ => None,
            },
        }
    }
}

impl CountedEnd {
    /// The end of a segment with this successor.
    pub(crate) fn of(successor: Option<FileHeader>) -> Self {
        successor.map_or(Self::Open, |next| Self::At(next.after.len))
    }

    /// How many bytes count, if that is known.
    pub(crate) fn len(self) -> Option<u64> {
        match self {
            Self::At(len) => Some(len),
            Self::Open | Self::Unknown => None,
        }
    }
}

fn missing_segment(number: u64) -> LogError {
    let what = "the segment is missing, and with it entries and names of keys";
    Position::start_of(number).damaged(what)
}

/// The header of the segment after this one, if there is one. It is the newest one that refers to
/// it.
pub(crate) fn successor(disk: &dyn Disk, number: u64) -> Result<Option<FileHeader>, LogError> {
    let later = disk.numbers(FileKind::Log)?.into_iter().filter(|later| *later > number);
    let mut next = None;
    for later in later {
        let header = read_header(disk, later)?;
        next = Some(header).filter(|header| header.after.number == number).or(next);
    }
    Ok(next)
}

/// Reads the records of all segments batch by batch, for an audit: also those that can be read beside damage.
#[derive(Debug)]
pub struct LogReader {
    disk: Arc<dyn Disk>,
    links: VecDeque<SegmentLink>,
    segment: Option<OpenSegment>,
    /// Segments that are missing or cannot be read, until that is reported.
    damage: VecDeque<LogError>,
    bytes_read: u64,
}

/// A segment that is being read.
#[derive(Debug)]
struct OpenSegment {
    link: SegmentLink,
    file: String,
    bytes: Vec<u8>,
    at: usize,
    next_batch: u64,
}

impl LogReader {
    /// Reads the segments from the oldest to the newest.
    pub fn new(disk: Arc<dyn Disk>) -> Result<Self, LogError> {
        let Segments { links, missing, unreadable, .. } = Segments::read_readable(&*disk, 0)?;
        let damage = missing.into_iter().chain(unreadable).collect();
        Ok(Self { disk, links: links.into(), segment: None, damage, bytes_read: 0 })
    }

    /// Reads the segments from the newest to the oldest.
    pub fn newest_first(disk: Arc<dyn Disk>) -> Result<Self, LogError> {
        let mut reader = Self::new(disk)?;
        reader.links.make_contiguous().reverse();
        Ok(reader)
    }

    /// Whether the next batch is that of another segment, after this many bytes in others.
    #[must_use]
    pub fn is_next_segment_after(&self, bytes: u64) -> bool {
        self.segment.is_none() && self.bytes_read >= bytes && !self.links.is_empty()
    }

    /// Calls a function with the records of one more batch; `false` at the end. An error of it says that
    /// they cannot be decoded. After an error the reader continues with the next segment.
    pub fn read_batch<E>(
        &mut self,
        then: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<bool, LogError> {
        if let Some(error) = self.damage.pop_front() {
            return Err(error);
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
        let position = Position { file: segment.file.clone(), at: segment.at as u64 };
        let counted = segment.link.counted(&segment.bytes);
        let mut batches = Batches::from(counted, segment.at, segment.next_batch);
        let Some(batch) = batches.next() else {
            let damage = segment.link.damage(&batches);
            return damage.map_or(Ok(true), |what| Err(position.damaged(what)));
        };
        then(batch.records).map_err(|_| position.broken())?;
        (segment.at, segment.next_batch) = (batches.position, batches.next_number);
        self.segment = Some(segment);
        Ok(true)
    }
}

impl OpenSegment {
    /// A segment as it is now. What looks like damage is read again: see [`SegmentLink::find_end`].
    fn read(disk: &dyn Disk, mut link: SegmentLink) -> Result<Self, LogError> {
        let file = FileKind::Log.file_name(link.header.number);
        let mut tries = 0;
        loop {
            let bytes = disk.contents(&file)?;
            let mut batches = link.batches(&bytes);
            let (at, next_batch) = (batches.position, batches.next_number);
            batches.by_ref().for_each(drop);
            tries += 1;
            if link.damage(&batches).is_none() || tries == READS {
                return Ok(Self { link, file, bytes, at, next_batch });
            }
            if link.end == CountedEnd::Open {
                link.end = CountedEnd::of(successor(disk, link.header.number)?);
            }
        }
    }
}

pub(crate) fn read_header(disk: &dyn Disk, number: u64) -> Result<FileHeader, LogError> {
    let start = Position::start_of(number);
    let bytes = disk.read_start(&start.file).map_err(|error| start.failed(error))?;
    let damaged = |what| start.damaged(what);
    match FileHeader::from_bytes(FileKind::Log, &bytes) {
        Ok(header) if header.after.number >= number => Err(damaged("its predecessor is not older")),
        Ok(header) if header.number == number => Ok(header),
        Ok(_) => Err(damaged("the file name has another number")),
        // A segment gets its name when its header is durable.
        Err(HeaderError::NotOurs) => Err(damaged("its header is broken or missing")),
        Err(HeaderError::Version(version)) => Err(LogError::Version { file: start.file, version }),
    }
}

/// Whether a ledger has begun here.
///
/// Without the marker a folder whose only segment was removed would look like a new one, and everything
/// that was charged would be forgotten silently.
fn has_begun(disk: &dyn Disk) -> Result<bool, LogError> {
    Ok(disk.list()?.iter().any(|name| name == BEGUN))
}

/// Writes a file that says that a ledger has begun, if there is none. The log must have begun.
pub fn mark_begun(disk: &dyn Disk) -> Result<(), LogError> {
    if has_begun(disk)? {
        return Ok(());
    }
    // A loss of power must not leave the marker without the log.
    (disk.sync_names().and_then(|()| disk.replace(BEGUN, BEGUN_TMP, TEXT.as_bytes())))
        .map_err(|error| LogError::disk(format!("write {BEGUN}"), error))
}

/// Removes that file: the next start begins a new ledger.
pub(crate) fn unmark(disk: &dyn Disk) -> Result<(), LogError> {
    (disk.remove(BEGUN).and_then(|()| disk.sync_names()))
        .map_err(|error| LogError::disk(format!("remove {BEGUN}"), error))
}

const TEXT: &str = "A ledger has begun in this folder. If its .log files are gone, so is what they \
                    counted: restore them from a backup.\n";

/// How often a segment is read before it counts as damaged.
const READS: usize = 3;
