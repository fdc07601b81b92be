#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use std::io::{self, Read};

use super::{
    BatchStream, Batches, BatchesEnd, FileHeader, FileKind, HEADER_LEN, HeaderError, SPACE_AFTER,
    SegmentEnd, frame,
};

fn header() -> FileHeader {
    FileHeader {
        kind: FileKind::Log,
        number: 7,
        after: SegmentEnd { number: 6, len: 4_096 },
        first_batch: 3,
    }
}

/// A segment with three batches, each written when the one before it was synced.
fn segment() -> Vec<u8> {
    let mut bytes = header().to_bytes().to_vec();
    for (number, records) in [(3, &b"one"[..]), (4, b"twotwotwo"), (5, b"three")] {
        bytes.extend_from_slice(&frame(number, number - 1, records));
    }
    bytes.resize(bytes.len() + SPACE_AFTER, 0);
    bytes
}

/// How many batches can be read, and what comes then.
fn read(bytes: &[u8]) -> (usize, BatchesEnd) {
    let mut batches = Batches::new(bytes, 3);
    let count = batches.by_ref().count();
    (count, batches.ending())
}

#[test]
fn a_header_round_trips() {
    let bytes = header().to_bytes();
    assert_eq!(FileHeader::from_bytes(FileKind::Log, &bytes), Ok(header()));
    assert_eq!(FileHeader::from_bytes(FileKind::Snapshot, &bytes), Err(HeaderError::NotOurs));
}

#[test]
fn a_partly_written_header_is_invalid() {
    let whole = header().to_bytes();
    for len in 0..HEADER_LEN {
        let mut zeros_after = [0; HEADER_LEN];
        zeros_after[..len].copy_from_slice(&whole[..len]);
        for torn in [&whole[..len], &zeros_after] {
            let read = FileHeader::from_bytes(FileKind::Log, torn);
            assert_eq!(read, Err(HeaderError::NotOurs), "{len} bytes");
        }
    }
}

#[test]
fn another_version_is_reported() {
    let mut bytes = header().to_bytes();
    bytes[16] = 99;
    assert_eq!(FileHeader::from_bytes(FileKind::Log, &bytes), Err(HeaderError::Version(99)));
}

#[test]
fn batches_begin_at_multiples_of_eight_and_zeros_end_them() {
    let mut bytes = segment();
    assert_eq!(bytes.len() % 8, 0);
    let records: Vec<&[u8]> = Batches::new(&bytes, 3).map(|batch| batch.records).collect();
    assert_eq!(records, [&b"one"[..], b"twotwotwo", b"three"]);
    assert_eq!(read(&bytes), (3, BatchesEnd::Clean));
    bytes.resize(bytes.len() + 1_000, 0);
    assert_eq!(read(&bytes), (3, BatchesEnd::Clean));
}

#[test]
fn a_batch_that_was_not_written_whole_is_torn_and_not_damaged() {
    let whole = segment();
    let last = whole.len() - SPACE_AFTER - 32;
    for len in last + 1..last + 29 {
        let mut bytes = whole.clone();
        bytes[len..].fill(0);
        assert_eq!(read(&bytes), (2, BatchesEnd::Torn), "{len}");
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_short() {
    let whole = segment();
    let ends = [96, 144, 176];
    for len in HEADER_LEN..whole.len() {
        let count = ends.iter().filter(|end| **end <= len).count();
        let (read, ending) = read(&whole[..len]);
        assert!(read >= count, "{len}");
        assert_eq!(ending, BatchesEnd::Short, "{len}");
    }
}

#[test]
fn a_broken_batch_is_damage_if_a_later_one_proves_it_synced() {
    let whole = segment();
    let end = whole.len() - SPACE_AFTER;
    for at in HEADER_LEN..end {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let (count, ending) = read(&bytes);
        let is_last = at >= end - 32;
        let is_padding = count == 3;
        // A length that reaches beyond the end of the file is damage, too.
        let is_expected = match ending {
            BatchesEnd::Torn | BatchesEnd::Short => is_last,
            other => !is_last && other == BatchesEnd::Damaged,
        };
        assert!(is_padding || is_expected, "{at}: {count} {ending:?}");
    }
}

/// Contents that look like heads of long batches cost no checksum each.
#[test]
fn the_search_for_a_later_batch_takes_linear_time() {
    let mut bytes = header().to_bytes().to_vec();
    let mut heads = Vec::new();
    for _ in 0..200_000_u64 {
        heads.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0x40, 0]);
        heads.extend_from_slice(&4_u64.to_le_bytes());
        heads.extend_from_slice(&3_u64.to_le_bytes());
    }
    bytes.extend_from_slice(&heads);
    bytes.resize(bytes.len() + (8 << 20), 0);
    assert_eq!(read(&bytes), (0, BatchesEnd::Damaged));
    let mut bytes = header().to_bytes().to_vec();
    bytes.resize(bytes.len() + (8 << 20), 0x11);
    bytes.resize(bytes.len() + SPACE_AFTER, 0);
    assert_ne!(read(&bytes), (0, BatchesEnd::Clean));
}

#[test]
fn a_later_batch_without_that_proof_is_torn() {
    let mut bytes = header().to_bytes().to_vec();
    let (lost, kept) = (frame(3, 2, b"lost"), frame(4, 2, b"kept"));
    bytes.resize(HEADER_LEN + lost.len(), 0);
    bytes.extend_from_slice(&kept);
    bytes.resize(bytes.len() + SPACE_AFTER, 0);
    assert_eq!(read(&bytes), (0, BatchesEnd::Torn));
}

/// Castagnoli's polynomial: the check value of the catalogue, and an example of RFC 3720, B.4.
#[test]
fn checksums_are_those_of_the_format() {
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
}

/// Returns a few bytes at a time.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(into.len());
        self.0.take(len as u64).read(into).inspect(|read| self.0 = &self.0[*read..])
    }
}

/// What is read of a file without its header: the numbers and records of batches, where they end,
/// and how.
fn streamed(bytes: &[u8], at_once: usize) -> (Vec<(u64, Vec<u8>)>, u64, String) {
    let mut stream = BatchStream::new(Box::new(Trickle(bytes, at_once)), 64, 7);
    let mut found = Vec::new();
    while let Some(batch) = stream.next_batch().unwrap() {
        found.push((batch.number, batch.records.to_vec()));
    }
    let position = stream.position;
    (found, position, format!("{:?}", stream.ending().unwrap()))
}

fn whole(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64, String) {
    let mut batches = Batches::from(bytes, 0, 7);
    let mut found = Vec::new();
    for batch in batches.by_ref() {
        found.push((batch.number, batch.records.to_vec()));
    }
    (found, 64 + batches.position as u64, format!("{:?}", batches.ending()))
}

#[test]
fn stream_reads_what_the_whole_file_has() {
    let mut bytes = Vec::new();
    for (number, len) in (7..).zip([1, 9, 300, 40, 700_000, 3]) {
        bytes.extend(frame(number, number - 1, &vec![b'x'; len]));
    }
    let end = bytes.len();
    bytes.extend([0; 64]);
    for at_once in [1, 7, 4096, usize::MAX] {
        assert_eq!(streamed(&bytes, at_once), whole(&bytes), "{at_once} at once");
        assert_eq!(streamed(&bytes, at_once).0.len(), 6);
    }
    // Cut anywhere near its end, or with a byte changed anywhere.
    for cut in end - 60..bytes.len() {
        assert_eq!(streamed(&bytes[..cut], 4096), whole(&bytes[..cut]), "cut at {cut}");
    }
    for broken in [0, 4, 30, 60, 400, 500_000, end - 10] {
        let mut bytes = bytes.clone();
        bytes[broken] ^= 0x10;
        assert_eq!(streamed(&bytes, 4096), whole(&bytes), "broken at {broken}");
    }
}
