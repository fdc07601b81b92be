//! The segments of a log in their order, and how far each of them counts.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::disk::Disk;
use super::error::OpenError;
use super::frame::{
    Batch, Batches, BatchesEnd, FileHeader, FileKind, HEADER_LEN, HeaderError, SegmentEnd,
};
use super::marker::has_begun;
use super::recovery::newest_snapshot;
use super::stream::BatchStream;
use super::writer::ResumePoint;
use crate::store::record::ByteReader;

/// The segments that count, oldest first.
#[derive(Debug)]
pub(super) struct Segments {
    links: Vec<SegmentLink>,
    /// The first segment that must exist, because of a snapshot; 0 is none.
    from: u64,
    /// A number that no file has had.
    next_segment: u64,
    /// Headers that cannot be read, and segments that are missing between others.
    unreadable: Vec<OpenError>,
    /// The segment before the first one, if there was one and it is missing.
    missing: Option<OpenError>,
}

/// One segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentLink {
    pub(super) header: FileHeader,
    pub(super) end: CountedEnd,
}

/// How many bytes of a segment count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedEnd {
    /// As many as the header of the next segment has.
    At(u64),
    /// It is the last one: as many as can be read.
    Open,
    /// Its successor cannot be read, so neither is known how many they are.
    Unknown,
}

/// How the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    pub(super) from: ResumePoint,
    /// Records at the end that can be read, but are not proven to be durable: a process that was
    /// killed may have left them to the system, or a sync of them may have failed.
    pub(super) unproven: Vec<u8>,
    /// Whether something was cut off that was never durable.
    pub(super) is_torn: bool,
}

impl Segments {
    /// The segments from number `from` on; 0 for all of them. All of them must be there, but for
    /// those before a snapshot.
    pub(super) fn read(disk: &dyn Disk, from: u64) -> Result<Self, OpenError> {
        let segments = Self::read_readable(disk, from)?;
        segments.unreadable.first().cloned().map_or(Ok(segments), Err)
    }

    /// The segments whose headers can be read.
    pub(super) fn read_readable(disk: &dyn Disk, from: u64) -> Result<Self, OpenError> {
        let numbers = segment_numbers(disk)?;
        if numbers.is_empty() && has_begun(disk)? {
            // Without a snapshot nothing else says that there was a log.
            let number = newest_snapshot(disk)?;
            return Err(number.map_or(OpenError::LogMissing, missing_segment));
        }
        let next_segment = numbers.last().map_or(1, |last| last + 1);
        let (mut headers, mut unreadable) = (BTreeMap::new(), Vec::new());
        for number in numbers.into_iter().filter(|number| *number >= from) {
            match read_header(disk, number) {
                Ok(header) => {
                    headers.insert(number, header);
                }
                Err(error @ OpenError::Damaged { .. }) => unreadable.push(error),
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

    /// Why the ledger is incomplete: segments that cannot be read, and a beginning that is missing.
    pub(super) fn damage(&self) -> Vec<OpenError> {
        self.missing.iter().chain(&self.unreadable).cloned().collect()
    }

    pub(super) fn links(&self) -> &[SegmentLink] {
        &self.links
    }

    /// Calls a function with the records of every batch, in order, until it has read them all, and
    /// with the position of the batch.
    pub(super) fn for_each(
        &self,
        disk: &dyn Disk,
        mut then: impl FnMut(&mut ByteReader<'_>, &RecordPosition) -> Result<(), OpenError>,
    ) -> Result<LogEnd, OpenError> {
        let mut finish = LogEnd {
            from: ResumePoint {
                end: SegmentEnd::default(),
                next_segment: self.next_segment,
                next_batch: 1,
            },
            unproven: Vec::new(),
            is_torn: false,
        };
        for link in &self.links {
            let (link, end) = link.find_end(disk)?;
            let (header, number) = (&link.header, link.header.number);
            let file = FileKind::Log.file_name(number);
            let mut position = RecordPosition { file, at: HEADER_LEN as u64 };
            let mut proof = DurablePrefix::new(self.from, header);
            let mut batches = link.stream(disk, Some(end.len))?;
            let mut at = batches.position();
            while let Some(batch) = batches.next_batch().map_err(|error| position.failed(error))? {
                at += batch.len() as u64;
                proof.add(&batch, at);
                let mut records = ByteReader(batch.records);
                while !records.is_empty() {
                    then(&mut records, &position)?;
                }
                position.at = at;
            }
            if at != end.len {
                return Err(position.broken());
            }
            finish.is_torn = link.end == CountedEnd::Open && end.kind == BatchesEnd::Torn;
            (finish.from.end, finish.from.next_batch) = match link.end {
                CountedEnd::At(len) => (SegmentEnd { number, len }, batches.next_number()),
                CountedEnd::Open | CountedEnd::Unknown => proof.durable,
            };
            finish.unproven = proof.unproven;
        }
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
    /// The bytes of the segment, and how many of them count.
    ///
    /// A reader beside a process that writes may see a part of a batch and all of a later one, or
    /// the last segment when it has got a successor. So what looks like damage is read again.
    pub(super) fn read(mut self, disk: &dyn Disk) -> Result<(Self, Vec<u8>), OpenError> {
        let file = FileKind::Log.file_name(self.header.number);
        let mut tries = 0;
        loop {
            let bytes =
                disk.read(&file).map_err(|error| OpenError::disk(format!("read {file}"), error))?;
            let mut batches = self.batches(&bytes);
            batches.by_ref().for_each(drop);
            tries += 1;
            if self.damage(&batches).is_none() || tries == READS {
                return Ok((self, bytes));
            }
            if self.end == CountedEnd::Open {
                self.end = CountedEnd::of(successor(disk, self.header.number)?);
            }
        }
    }

    /// The batches of the segment, read in pieces, in as many bytes as given, or all.
    fn stream<'a>(
        &self,
        disk: &'a dyn Disk,
        len: Option<u64>,
    ) -> Result<BatchStream<'a>, OpenError> {
        let (file, begin) = (FileKind::Log.file_name(self.header.number), HEADER_LEN as u64);
        let from = disk.read_from(&file, begin);
        let from = from.map_err(|error| OpenError::disk(format!("read {file}"), error))?;
        let len = len.map_or(u64::MAX, |len| len.saturating_sub(begin));
        Ok(BatchStream::new(Box::new(from.take(len)), begin, self.header.first_batch))
    }

    /// Where the batches that count end.
    ///
    /// The last segment is read for that. A reader beside a process that writes may see a part of a
    /// batch and all of a later one, or the last segment when it has got a successor. So what looks
    /// like damage is read again.
    fn find_end(mut self, disk: &dyn Disk) -> Result<(Self, FoundEnd), OpenError> {
        let file = FileKind::Log.file_name(self.header.number);
        let failed = |error| OpenError::disk(format!("read {file}"), error);
        let mut tries = 0;
        loop {
            if let CountedEnd::At(len) = self.end {
                return Ok((self, FoundEnd { len, kind: BatchesEnd::Clean }));
            }
            let mut batches = self.stream(disk, None)?;
            while batches.next_batch().map_err(failed)?.is_some() {}
            let len = batches.position();
            let kind = batches.ending().map_err(failed)?;
            tries += 1;
            match self.damage_at(len, || kind) {
                None => return Ok((self, FoundEnd { len, kind })),
                Some(what) if tries == READS => {
                    return Err(OpenError::Damaged { file, at: len, what });
                }
                Some(_) => self.end = CountedEnd::of(successor(disk, self.header.number)?),
            }
        }
    }

    /// The batches in the bytes that count.
    pub(super) fn batches<'a>(&self, bytes: &'a [u8]) -> Batches<'a> {
        Batches::new(self.counted(bytes), self.header.first_batch)
    }

    /// The bytes that count.
    pub(super) fn counted<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let len = self.end.len().and_then(|len| usize::try_from(len).ok());
        len.and_then(|len| bytes.get(..len)).unwrap_or(bytes)
    }

    /// What is wrong after the last readable batch.
    pub(super) fn damage(&self, batches: &Batches<'_>) -> Option<&'static str> {
        self.damage_at(batches.position() as u64, || batches.ending())
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
    pub(super) fn of(successor: Option<FileHeader>) -> Self {
        successor.map_or(Self::Open, |next| Self::At(next.after.len))
    }

    /// How many bytes count, if that is known.
    pub(super) fn len(self) -> Option<u64> {
        match self {
            Self::At(len) => Some(len),
            Self::Open | Self::Unknown => None,
        }
    }
}

fn missing_segment(number: u64) -> OpenError {
    let what = "the segment is missing, and with it entries and names of keys";
    OpenError::Damaged { file: FileKind::Log.file_name(number), at: 0, what }
}

/// The numbers of all segments, the oldest first.
pub(super) fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, OpenError> {
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| FileKind::Log.number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The header of the segment after this one, if there is one. It is the newest one that refers to
/// it.
pub(super) fn successor(disk: &dyn Disk, number: u64) -> Result<Option<FileHeader>, OpenError> {
    let later = segment_numbers(disk)?.into_iter().filter(|later| *later > number);
    let mut next = None;
    for later in later {
        let header = read_header(disk, later)?;
        next = Some(header).filter(|header| header.after.number == number).or(next);
    }
    Ok(next)
}

/// The position of a record.
#[derive(Clone, Debug)]
pub(super) struct RecordPosition {
    pub(super) file: String,
    pub(super) at: u64,
}

impl RecordPosition {
    pub(super) fn broken(&self) -> OpenError {
        self.damaged(UNREADABLE)
    }

    pub(super) fn failed(&self, error: io::Error) -> OpenError {
        OpenError::disk(format!("read {}", self.file), error)
    }

    pub(super) fn damaged(&self, what: &'static str) -> OpenError {
        OpenError::Damaged { file: self.file.clone(), at: self.at, what }
    }
}

pub(super) fn read_header(disk: &dyn Disk, number: u64) -> Result<FileHeader, OpenError> {
    let file = FileKind::Log.file_name(number);
    let bytes =
        disk.read_start(&file).map_err(|error| OpenError::disk(format!("read {file}"), error))?;
    let damaged = |what| OpenError::Damaged { file: file.clone(), at: 0, what };
    match FileHeader::from_bytes(FileKind::Log, &bytes) {
        Ok(header) if header.after.number >= number => Err(damaged("its predecessor is not older")),
        Ok(header) if header.number == number => Ok(header),
        Ok(_) => Err(damaged("the file name has another number")),
        // A segment gets its name when its header is durable.
        Err(HeaderError::NotOurs) => Err(damaged("its header is broken or missing")),
        Err(HeaderError::Version(version)) => Err(OpenError::Version { file, version }),
    }
}

const UNREADABLE: &str = "a durable batch cannot be read";

/// How often a segment is read before it counts as damaged.
const READS: usize = 3;
