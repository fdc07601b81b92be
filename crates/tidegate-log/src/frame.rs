//! Segments and batches: how records are laid out in files, and what a crash can leave of them.
//!
//! `docs/internals/ledger.md` has every byte.

use std::fmt;
use std::io::{self, Read};

use crc32c::crc32c;

use crate::names::FileKind;

/// The first 64 bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
    /// The segment before this one, and how many of its bytes count.
    pub(crate) after: SegmentEnd,
    /// The number of its first batch.
    pub(crate) first_batch: u64,
}

/// The end of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    /// 0 is no segment.
    pub(crate) number: u64,
    pub(crate) len: u64,
}

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// It does not begin like such a file, or its header is incomplete.
    NotOurs,
    /// Another version of tidegate wrote it.
    Version(u32),
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..16].copy_from_slice(magic(self.kind));
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        let words = [self.number, self.after.number, self.after.len, self.first_batch];
        for (index, word) in words.into_iter().enumerate() {
            bytes[24 + 8 * index..32 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(&bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(kind: FileKind, bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes = bytes.first_chunk::<HEADER_LEN>().ok_or(HeaderError::NotOurs)?;
        if !bytes.starts_with(magic(kind)) {
            return Err(HeaderError::NotOurs);
        }
        let version = u32_at(bytes, 16);
        // There is no version 0: that is a header of which only the beginning was written.
        if version != VERSION && version != 0 {
            return Err(HeaderError::Version(version));
        }
        if crc32c(&bytes[..HEADER_LEN - 4]) != u32_at(bytes, HEADER_LEN - 4) {
            return Err(HeaderError::NotOurs);
        }
        let [number, after, len, first_batch] = [24, 32, 40, 48].map(|at| u64_at(bytes, at));
        Ok(Self { kind, number, after: SegmentEnd { number: after, len }, first_batch })
    }
}

/// A batch of records as it is written: a head, the records, and zeros up to a multiple of eight.
pub(crate) fn frame(number: u64, synced: u64, records: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(padded(HEAD_LEN + records.len()));
    frame.extend_from_slice(&[0; 4]);
    let len = u32::try_from(records.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(&synced.to_le_bytes());
    frame.extend_from_slice(records);
    let crc = crc32c(&frame[4..]);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    frame.resize(padded(frame.len()), 0);
    frame
}

/// A batch that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) number: u64,
    /// The last batch that was synced when this one was written.
    pub(crate) synced: u64,
    pub(crate) records: &'a [u8],
    /// Where the next one begins.
    end: usize,
}

impl Batch<'_> {
    /// How many bytes it takes in its file.
    pub(crate) fn len(&self) -> usize {
        padded(HEAD_LEN + self.records.len())
    }
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchesEnd {
    /// After a whole batch.
    Clean,
    /// In the middle of a write that was never durable.
    Torn,
    /// Something that was durable is broken.
    Damaged,
    /// The end of the file is missing: there is space after every batch.
    Short,
}

/// Reads the batches of a segment, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Batches<'a> {
    bytes: &'a [u8],
    /// Where the next batch begins, and its number.
    pub(crate) position: usize,
    pub(crate) next_number: u64,
}

impl<'a> Batches<'a> {
    /// The batches after the header, in as many of the bytes as count.
    pub(crate) fn new(bytes: &'a [u8], first_batch: u64) -> Self {
        Self { bytes, position: HEADER_LEN, next_number: first_batch }
    }

    /// The batches from an offset on, where the one with this number begins.
    pub(crate) fn from(bytes: &'a [u8], position: usize, next_number: u64) -> Self {
        Self { bytes, position, next_number }
    }

    /// The kind of what follows the last readable batch.
    pub(crate) fn ending(&self) -> BatchesEnd {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let used_len = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if self.has_proof(used_len) {
            BatchesEnd::Damaged
        } else if lacks_space(rest) {
            BatchesEnd::Short
        } else if used_len == 0 {
            BatchesEnd::Clean
        } else {
            BatchesEnd::Torn
        }
    }

    /// Whether a later batch has this one as synced, which proves that it was durable. So has a
    /// search that takes too long: then the log is not read on.
    fn has_proof(&self, used_len: usize) -> bool {
        let is_proof = |later: &Batch<'_>| later.synced >= self.next_number;
        !matches!(self.search(used_len, is_proof), Search::Nothing)
    }

    /// The next batch that can be read after the one here, which cannot: its offset and number.
    pub(crate) fn next_whole(&self) -> Option<(usize, u64)> {
        let rest_len = self.bytes.len().saturating_sub(self.position);
        match self.search(rest_len, |_| true) {
            Search::Found { at, number } => Some((at, number)),
            Search::Nothing | Search::TooLong => None,
        }
    }

    /// Searches for a later batch.
    ///
    /// Contents may look like the head of a batch. So heads are compared before checksums are
    /// computed, and there is a bound on these.
    fn search(&self, rest_len: usize, is_wanted: impl Fn(&Batch<'_>) -> bool) -> Search {
        let mut budget = 64 * (rest_len + HEAD_LEN);
        for at in (self.position..self.position + rest_len).step_by(8) {
            let Some(head) = self.bytes.get(at..at + HEAD_LEN) else { break };
            let (number, synced, records) = (u64_at(head, 8), u64_at(head, 16), &[][..]);
            let most =
                self.next_number.saturating_add(((at - self.position) / MIN_BATCH_LEN) as u64);
            // Where the first number is not known, any will do.
            let is_later = self.next_number == 0 || (number > self.next_number && number <= most);
            let batch = Batch { number, synced, records, end: at };
            if !is_later || synced >= number || !is_wanted(&batch) {
                continue;
            }
            if batch_at(self.bytes, at).is_some() {
                return Search::Found { at, number };
            }
            match budget.checked_sub(u32_at(head, 4) as usize) {
                Some(left) => budget = left,
                None => return Search::TooLong,
            }
        }
        Search::Nothing
    }
}

/// The result of a search for a batch.
enum Search {
    Found { at: usize, number: u64 },
    Nothing,
    TooLong,
}

impl<'a> Iterator for Batches<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let batch =
            batch_at(self.bytes, self.position).filter(|batch| batch.number == self.next_number)?;
        self.position = batch.end;
        self.next_number += 1;
        Some(batch)
    }
}

/// Whether what follows a batch has not the space that was there when it was written: for the head
/// of another one, and for all of that if its length can be read.
fn lacks_space(rest: &[u8]) -> bool {
    rest.len() < SPACE_AFTER || rest.len() - HEAD_LEN < u32_at(rest, 4) as usize
}

/// The batch at an offset, if there is a whole one.
fn batch_at(bytes: &[u8], at: usize) -> Option<Batch<'_>> {
    let head = bytes.get(at..at + HEAD_LEN)?;
    let len = u32_at(head, 4) as usize;
    let end = at + HEAD_LEN + len;
    if len == 0 || crc32c(bytes.get(at + 4..end)?) != u32_at(head, 0) {
        return None;
    }
    let (number, synced) = (u64_at(head, 8), u64_at(head, 16));
    Some(Batch { number, synced, records: &bytes[at + HEAD_LEN..end], end: padded(end) })
}

/// How many bytes have to be read for the batch that begins here, as far as that is known.
pub(crate) fn batch_len(bytes: &[u8]) -> usize {
    if bytes.len() < HEAD_LEN { HEAD_LEN } else { padded(HEAD_LEN + u32_at(bytes, 4) as usize) }
}

/// The batches of a file from an offset on.
pub(crate) struct BatchStream<'a> {
    from: Box<dyn Read + 'a>,
    /// Bytes that were read, and where the next batch begins in them.
    buffer: Vec<u8>,
    start: usize,
    /// Where the next batch begins in the file.
    pub(crate) position: u64,
    /// Its number.
    pub(crate) next_number: u64,
    is_at_end: bool,
}

impl<'a> BatchStream<'a> {
    /// The batches from an offset on, where the one with this number begins.
    pub(crate) fn new(from: Box<dyn Read + 'a>, position: u64, next_number: u64) -> Self {
        Self { from, buffer: Vec::new(), start: 0, position, next_number, is_at_end: false }
    }

    /// The next batch; `None` where no whole one follows.
    pub(crate) fn next_batch(&mut self) -> io::Result<Option<Batch<'_>>> {
        loop {
            let rest = self.buffer.get(self.start..).unwrap_or_default();
            let wanted = batch_len(rest);
            if rest.len() >= wanted || self.is_at_end {
                break;
            }
            let missing = wanted - rest.len();
            self.fill(missing.max(READ_LEN))?;
        }
        let mut batches = Batches::from(&self.buffer, self.start, self.next_number);
        let batch = batches.next();
        if batch.is_some() {
            self.position += (batches.position - self.start) as u64;
            (self.start, self.next_number) = (batches.position, batches.next_number);
        }
        Ok(batch)
    }

    /// The kind of what follows the last readable batch.
    pub(crate) fn ending(mut self) -> io::Result<BatchesEnd> {
        self.from.read_to_end(&mut self.buffer)?;
        Ok(Batches::from(&self.buffer, self.start, self.next_number).ending())
    }

    /// Reads more bytes, in place of those of batches that were read.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        let used = self.start.min(self.buffer.len());
        self.buffer.drain(..used);
        self.start -= used;
        let read = self.from.by_ref().take(len as u64).read_to_end(&mut self.buffer)?;
        self.is_at_end = read < len;
        Ok(())
    }
}

impl fmt::Debug for BatchStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStream").field("position", &self.position).finish_non_exhaustive()
    }
}

/// What a file of this kind begins with.
const fn magic(kind: FileKind) -> &'static [u8; 16] {
    match kind {
        FileKind::Log => b"tidegate ledger\n",
        FileKind::Snapshot => b"tidegate states\n",
    }
}

const fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The length of a header.
pub(crate) const HEADER_LEN: usize = 64;

/// The length of a batch's head.
pub(crate) const HEAD_LEN: usize = 24;

/// The length of the shortest batch.
pub(crate) const MIN_BATCH_LEN: usize = 32;

/// How many bytes of zeros are durable after a batch, before it is written.
pub(crate) const SPACE_AFTER: usize = HEAD_LEN;

/// The version of the format.
pub(crate) const VERSION: u32 = 4;

/// How many bytes are read at once.
const READ_LEN: usize = 256 << 10;

#[cfg(test)]
mod tests;
