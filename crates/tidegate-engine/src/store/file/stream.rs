//! Reads the batches of a file one after the other, with little of it in memory.

use std::fmt;
use std::io::{self, Read};

use super::frame::{Batch, Batches, BatchesEnd, batch_len};

/// The batches of a file from an offset on.
pub(super) struct BatchStream<'a> {
    from: Box<dyn Read + 'a>,
    /// Bytes that were read, and where the next batch begins in them.
    buffer: Vec<u8>,
    start: usize,
    /// Where the next batch begins in the file.
    position: u64,
    /// The number of the next batch.
    next: u64,
    is_at_end: bool,
}

impl<'a> BatchStream<'a> {
    /// The batches from an offset on, where the one with number `next` begins.
    pub(super) fn new(from: Box<dyn Read + 'a>, position: u64, next: u64) -> Self {
        Self { from, buffer: Vec::new(), start: 0, position, next, is_at_end: false }
    }

    /// Where the next batch begins in the file.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The number of the next batch.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// The next batch; `None` where no whole one follows.
    pub(super) fn next_batch(&mut self) -> io::Result<Option<Batch<'_>>> {
        loop {
            let rest = self.buffer.get(self.start..).unwrap_or_default();
            let wanted = batch_len(rest);
            if rest.len() >= wanted || self.is_at_end {
                break;
            }
            let missing = wanted - rest.len();
            self.fill(missing.max(READ_LEN))?;
        }
        let mut batches = Batches::from(&self.buffer, self.start, self.next);
        let batch = batches.next();
        if batch.is_some() {
            self.position += (batches.position() - self.start) as u64;
            (self.start, self.next) = (batches.position(), batches.next_number());
        }
        Ok(batch)
    }

    /// The kind of what follows the last readable batch.
    pub(super) fn ending(mut self) -> io::Result<BatchesEnd> {
        self.from.read_to_end(&mut self.buffer)?;
        Ok(Batches::from(&self.buffer, self.start, self.next).ending())
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

/// How many bytes are read at once.
const READ_LEN: usize = 256 << 10;

#[cfg(test)]
mod tests;
