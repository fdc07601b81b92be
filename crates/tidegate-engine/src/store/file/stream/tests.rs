#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use std::io::{self, Read};

use super::super::frame::{Batches, frame};
use super::BatchStream;

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
    let position = stream.position();
    (found, position, format!("{:?}", stream.ending().unwrap()))
}

fn whole(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64, String) {
    let mut batches = Batches::from(bytes, 0, 7);
    let mut found = Vec::new();
    for batch in batches.by_ref() {
        found.push((batch.number, batch.records.to_vec()));
    }
    (found, 64 + batches.position() as u64, format!("{:?}", batches.ending()))
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
