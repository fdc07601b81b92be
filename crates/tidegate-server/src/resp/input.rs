/// What has arrived and is not answered yet.
///
/// It grows with what arrives, never with what a length promises.
#[derive(Debug)]
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read found no room for more.
    was_filled: bool,
}

/// There is no room for more, and there must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl InputBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; FIRST_BYTES], start: 0, end: 0, was_filled: false }
    }

    /// What has arrived.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Room to read into, where at most `most` bytes may wait for an answer.
    pub(super) fn spare(&mut self, most: usize) -> Result<&mut [u8], TooLong> {
        if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_full = self.end == self.bytes.len();
        if is_full && self.bytes.len() >= most {
            return Err(TooLong);
        }
        // Reading more at a time is worth a little memory, to those who send a lot.
        if is_full || (self.was_filled && self.bytes.len() < READ_BYTES.min(most)) {
            self.bytes.resize((self.bytes.len() * 2).min(most), 0);
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// So many bytes of the room were read into.
    pub(super) fn read(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
        self.was_filled = self.end == self.bytes.len();
    }

    /// So many bytes were answered.
    pub(super) fn answered(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives memory back while nothing happens.
    pub(super) fn rest(&mut self) {
        if self.is_empty() && self.bytes.len() > FIRST_BYTES {
            *self = Self::new();
        }
    }
}

/// What a connection begins with.
const FIRST_BYTES: usize = 4 << 10;
/// The most that is read at once.
const READ_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

    use super::*;

    /// Reads as much as there is room for.
    fn fill(input: &mut InputBuffer, most: usize) -> Result<usize, TooLong> {
        let bytes = input.spare(most)?.len();
        input.read(bytes);
        Ok(bytes)
    }

    #[test]
    fn it_grows_with_what_arrives_up_to_a_bound() {
        let (mut input, most) = (InputBuffer::new(), 1 << 20);
        assert_eq!(input.bytes.len(), FIRST_BYTES);
        let mut rounds = 0;
        while fill(&mut input, most).is_ok() {
            assert!(input.bytes.len() <= 2 * input.end, "{input:?}");
            rounds += 1;
        }
        assert_eq!((input.arrived().len(), rounds), (most, 9));
        input.answered(most);
        assert!(input.is_empty());
        input.rest();
        assert_eq!(input.bytes.len(), FIRST_BYTES);
    }

    #[test]
    fn what_is_not_answered_stays() {
        let mut input = InputBuffer::new();
        input.spare(1 << 20).unwrap()[..4096].fill(b'x');
        input.read(4096);
        input.answered(4000);
        input.spare(1 << 20).unwrap()[0] = b'y';
        input.read(1);
        let mut expected = vec![b'x'; 96];
        expected.push(b'y');
        assert_eq!(input.arrived(), expected);
        input.rest();
        assert_eq!(input.arrived(), expected);
    }

    #[test]
    fn those_who_send_a_lot_get_a_larger_buffer() {
        let mut input = InputBuffer::new();
        for _ in 0..10 {
            let bytes = fill(&mut input, 1 << 20).unwrap();
            input.answered(bytes);
        }
        assert_eq!(input.bytes.len(), READ_BYTES);
    }
}
