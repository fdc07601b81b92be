/// Input that is not handled yet.
///
/// It grows with what has arrived, never with an announced length.
#[derive(Debug)]
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read filled the buffer.
    was_filled: bool,
}

/// The error of input beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl InputBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; FIRST_BYTES], start: 0, end: 0, was_filled: false }
    }

    /// The unhandled input.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The memory beyond that of a new buffer.
    pub(super) fn extra_bytes(&self) -> usize {
        self.bytes.capacity() - FIRST_BYTES.min(self.bytes.capacity())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Space to read into, where the buffer may hold at most `most` bytes.
    pub(super) fn spare(&mut self, most: usize) -> Result<&mut [u8], TooLong> {
        if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_full = self.end == self.bytes.len();
        if is_full && self.bytes.len() >= most {
            return Err(TooLong);
        }
        // Clients that send a lot get a larger buffer, for fewer reads.
        if is_full || (self.was_filled && self.bytes.len() < READ_BYTES.min(most)) {
            self.bytes.resize((self.bytes.len() * 2).min(most), 0);
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// Adds this many bytes that were read into the space.
    pub(super) fn read(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
        self.was_filled = self.end == self.bytes.len();
    }

    /// Removes this many handled bytes.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Frees memory while the connection is idle.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.bytes.len() > FIRST_BYTES {
            *self = Self::new();
        }
    }
}

/// The size of a new buffer.
const FIRST_BYTES: usize = 4 << 10;
/// The most bytes of one read.
const READ_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

    use super::*;

    /// Fills the buffer.
    fn fill(input: &mut InputBuffer, most: usize) -> Result<usize, TooLong> {
        let bytes = input.spare(most)?.len();
        input.read(bytes);
        Ok(bytes)
    }

    #[test]
    fn the_buffer_grows_with_its_input_up_to_a_bound() {
        let (mut input, most) = (InputBuffer::new(), 1 << 20);
        assert_eq!(input.bytes.len(), FIRST_BYTES);
        let mut rounds = 0;
        while fill(&mut input, most).is_ok() {
            assert!(input.bytes.len() <= 2 * input.end, "{input:?}");
            rounds += 1;
        }
        assert_eq!((input.arrived().len(), rounds), (most, 9));
        input.consume(most);
        assert!(input.is_empty());
        input.shrink();
        assert_eq!(input.bytes.len(), FIRST_BYTES);
    }

    #[test]
    fn unhandled_input_stays() {
        let mut input = InputBuffer::new();
        input.spare(1 << 20).unwrap()[..4096].fill(b'x');
        input.read(4096);
        input.consume(4000);
        input.spare(1 << 20).unwrap()[0] = b'y';
        input.read(1);
        let mut expected = vec![b'x'; 96];
        expected.push(b'y');
        assert_eq!(input.arrived(), expected);
        input.shrink();
        assert_eq!(input.arrived(), expected);
    }

    #[test]
    fn clients_that_send_a_lot_get_a_larger_buffer() {
        let mut input = InputBuffer::new();
        for _ in 0..10 {
            let bytes = fill(&mut input, 1 << 20).unwrap();
            input.consume(bytes);
        }
        assert_eq!(input.bytes.len(), READ_BYTES);
    }
}
