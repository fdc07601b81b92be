//! Segments and batches: how records are laid out in files, and what a crash can leave of them.
//!
//! `docs/internals/ledger.md` has every byte.

use super::crc::crc32c;

/// The first 64 bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) kind: FileKind,
    pub(super) number: u64,
    /// The segment before this one, and how many of its bytes count.
    pub(super) after: SegmentEnd,
    /// The number of its first batch.
    pub(super) first_batch: u64,
}

/// The end of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentEnd {
    /// 0 is no segment.
    pub(super) number: u64,
    pub(super) len: u64,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Events, one after the other.
    Log,
    /// All states as they were before the segment of the same number.
    Snapshot,
}

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// It does not begin like such a file, or its header is incomplete.
    NotOurs,
    /// Another version of tidegate wrote it.
    Version(u32),
}

impl FileKind {
    const fn magic(self) -> &'static [u8; 16] {
        match self {
            Self::Log => b"tidegate ledger\n",
            Self::Snapshot => b"tidegate states\n",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Snapshot => "snapshot",
        }
    }

    /// The name of the file with this number.
    pub(super) fn file_name(self, number: u64) -> String {
        format!("{number:010}.{}", self.extension())
    }

    /// The number in the name of a file, if it is one of these.
    pub(super) fn number_of(self, name: &str) -> Option<u64> {
        let (digits, extension) = name.split_once('.')?;
        let is_plain = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = (is_plain && extension == self.extension()).then(|| digits.parse().ok())??;
        // No log is that long.
        (number < u64::MAX >> 1).then_some(number)
    }
}

impl FileHeader {
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..16].copy_from_slice(self.kind.magic());
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        let words = [self.number, self.after.number, self.after.len, self.first_batch];
        for (index, word) in words.into_iter().enumerate() {
            bytes[24 + 8 * index..32 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(0, &bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(kind: FileKind, bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes = bytes.first_chunk::<HEADER_LEN>().ok_or(HeaderError::NotOurs)?;
        if !bytes.starts_with(kind.magic()) {
            return Err(HeaderError::NotOurs);
        }
        let version = u32_at(bytes, 16);
        // There is no version 0: that is a header of which only the beginning was written.
        if version != VERSION && version != 0 {
            return Err(HeaderError::Version(version));
        }
        if crc32c(0, &bytes[..HEADER_LEN - 4]) != u32_at(bytes, HEADER_LEN - 4) {
            return Err(HeaderError::NotOurs);
        }
        let [number, after, len, first_batch] = [24, 32, 40, 48].map(|at| u64_at(bytes, at));
        Ok(Self { kind, number, after: SegmentEnd { number: after, len }, first_batch })
    }
}

/// A batch of records as it is written: a head, the records, and zeros up to a multiple of eight.
pub(super) fn frame(number: u64, synced: u64, records: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(padded(HEAD_LEN + records.len()));
    frame.extend_from_slice(&[0; 4]);
    let len = u32::try_from(records.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(&synced.to_le_bytes());
    frame.extend_from_slice(records);
    let crc = crc32c(0, &frame[4..]);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    frame.resize(padded(frame.len()), 0);
    frame
}

/// A batch that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    pub(super) number: u64,
    /// The last batch that was synced when this one was written.
    pub(super) synced: u64,
    pub(super) records: &'a [u8],
    /// Where the next one begins.
    end: usize,
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchesEnd {
    /// After a whole batch.
    Clean,
    /// In the middle of a write that was never durable.
    Torn,
    /// Something that was durable is broken.
    Damaged,
}

/// Reads the batches of a segment, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
    next: u64,
}

impl<'a> Batches<'a> {
    /// The batches after the header, in as many of the bytes as count.
    pub(super) fn new(bytes: &'a [u8], first_batch: u64) -> Self {
        Self { bytes, at: HEADER_LEN, next: first_batch }
    }

    /// The batches from an offset on, where the one with number `next` begins.
    pub(super) fn from(bytes: &'a [u8], at: usize, next: u64) -> Self {
        Self { bytes, at, next }
    }

    /// Where the next batch begins.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The number of the next batch.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// The kind of what follows the last readable batch.
    pub(super) fn ending(&self) -> BatchesEnd {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.iter().all(|byte| *byte == 0) {
            return BatchesEnd::Clean;
        }
        // A later batch that has this one as synced proves that it was durable.
        let is_proof = |at: usize| {
            batch_at(self.bytes, at)
                .is_some_and(|later| later.number > self.next && later.synced >= self.next)
        };
        let is_damaged = (self.at..self.bytes.len()).step_by(8).any(is_proof);
        if is_damaged { BatchesEnd::Damaged } else { BatchesEnd::Torn }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let batch = batch_at(self.bytes, self.at).filter(|batch| batch.number == self.next)?;
        self.at = batch.end;
        self.next += 1;
        Some(batch)
    }
}

/// Whether a segment was in use: with its header, at most one batch is written.
pub(super) fn was_in_use(bytes: &[u8]) -> bool {
    (HEADER_LEN + 8..bytes.len()).step_by(8).any(|at| batch_at(bytes, at).is_some())
}

/// The batch at an offset, if there is a whole one.
fn batch_at(bytes: &[u8], at: usize) -> Option<Batch<'_>> {
    let head = bytes.get(at..at + HEAD_LEN)?;
    let len = u32_at(head, 4) as usize;
    let end = at + HEAD_LEN + len;
    if len == 0 || crc32c(0, bytes.get(at + 4..end)?) != u32_at(head, 0) {
        return None;
    }
    let (number, synced) = (u64_at(head, 8), u64_at(head, 16));
    Some(Batch { number, synced, records: &bytes[at + HEAD_LEN..end], end: padded(end) })
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
pub(super) const HEADER_LEN: usize = 64;

/// The length of a batch's head.
const HEAD_LEN: usize = 24;

/// The version of the format.
pub(super) const VERSION: u32 = 2;

#[cfg(test)]
mod tests;
