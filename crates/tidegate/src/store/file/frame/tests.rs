use super::{
    Batches, BatchesEnd, FileHeader, FileKind, HEADER_LEN, HeaderError, SegmentEnd, frame,
    was_in_use,
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
    bytes[16] = 3;
    assert_eq!(FileHeader::from_bytes(FileKind::Log, &bytes), Err(HeaderError::Version(3)));
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
fn a_batch_that_is_cut_off_is_torn_and_not_damaged() {
    let whole = segment();
    let last = whole.len() - 32;
    for len in last + 1..last + 29 {
        assert_eq!(read(&whole[..len]), (2, BatchesEnd::Torn), "{len}");
    }
}

#[test]
fn a_broken_batch_is_damage_if_a_later_one_proves_it_synced() {
    let whole = segment();
    for at in HEADER_LEN..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let (count, ending) = read(&bytes);
        let is_last = at >= whole.len() - 32;
        let is_padding = count == 3;
        let expected = if is_last { BatchesEnd::Torn } else { BatchesEnd::Damaged };
        assert!(is_padding || ending == expected, "{at}: {count} {ending:?}");
    }
}

#[test]
fn a_later_batch_without_that_proof_is_torn() {
    let mut bytes = header().to_bytes().to_vec();
    let (lost, kept) = (frame(3, 2, b"lost"), frame(4, 2, b"kept"));
    bytes.resize(HEADER_LEN + lost.len(), 0);
    bytes.extend_from_slice(&kept);
    assert_eq!(read(&bytes), (0, BatchesEnd::Torn));
}

#[test]
fn a_segment_was_in_use_if_it_has_more_than_its_first_batch() {
    let whole = segment();
    let first_end = HEADER_LEN + frame(3, 2, b"one").len();
    for (len, was) in [(0, false), (HEADER_LEN, false), (first_end, false), (whole.len(), true)] {
        let mut bytes = whole[..len].to_vec();
        bytes.iter_mut().take(HEADER_LEN).for_each(|byte| *byte = 0);
        assert_eq!(was_in_use(&bytes), was, "{len} bytes");
    }
}
