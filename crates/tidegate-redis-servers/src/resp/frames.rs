//! Where requests and replies end in a stream of RESP 2 or 3, without their values.

/// A whole request or reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A value. For a request, with the name of the command: its first string.
    Value { name: Vec<u8> },
    /// A message of RESP 3 that answers no request.
    Push,
}

/// Finds the ends of frames in bytes that come in pieces. It keeps no more than one short line.
#[derive(Debug)]
pub(crate) struct FrameScanner {
    /// Values that the frame still lacks; 0 between two frames.
    lacking: u64,
    is_push: bool,
    name: Option<Vec<u8>>,
    line: Vec<u8>,
    /// Bytes of the current string that are still to come, with its line end.
    bulk: u64,
    is_in_name: bool,
}

impl FrameScanner {
    pub(crate) const fn new() -> Self {
        Self {
            lacking: 0,
            is_push: false,
            name: None,
            line: Vec::new(),
            bulk: 0,
            is_in_name: false,
        }
    }

    /// Reads until a frame ends or the bytes do. Returns how many it has read, and the frame.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> (usize, Option<Frame>) {
        let mut used = 0;
        while used < bytes.len() {
            used += if self.bulk > 0 {
                self.read_bulk(&bytes[used..])
            } else {
                self.read_line_byte(bytes[used]);
                1
            };
            let is_between = self.bulk == 0 && self.line.is_empty();
            if is_between && self.lacking == 0 {
                let name = self.name.take().unwrap_or_default();
                let is_push = std::mem::take(&mut self.is_push);
                let frame = if is_push { Frame::Push } else { Frame::Value { name } };
                return (used, Some(frame));
            }
        }
        (used, None)
    }

    fn read_bulk(&mut self, bytes: &[u8]) -> usize {
        let length = usize::try_from(self.bulk).unwrap_or(usize::MAX).min(bytes.len());
        if self.is_in_name {
            let name = self.name.get_or_insert_default();
            // Without the line end.
            let text = self.bulk.saturating_sub(2);
            let text = usize::try_from(text).unwrap_or(usize::MAX).min(length);
            let text = text.min(KEPT_BYTES_MAX.saturating_sub(name.len()));
            name.extend_from_slice(&bytes[..text]);
        }
        self.bulk -= length as u64;
        if self.bulk == 0 {
            self.is_in_name = false;
            self.lacking = self.lacking.saturating_sub(1);
        }
        length
    }

    fn read_line_byte(&mut self, byte: u8) {
        if byte != b'\n' {
            if self.line.len() < KEPT_BYTES_MAX {
                self.line.push(byte);
            }
            return;
        }
        let line = std::mem::take(&mut self.line);
        let is_first = self.lacking == 0;
        self.lacking += u64::from(is_first);
        let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).into_owned();
        let number: Option<u64> = text.trim_end().parse().ok();
        let more = match (line.first(), number) {
            (Some(b'$' | b'!' | b'='), Some(length)) => {
                self.bulk = length.saturating_add(2);
                self.is_in_name = self.name.is_none();
                return;
            }
            (Some(b'*' | b'~'), Some(count)) => count,
            (Some(b'>'), Some(count)) => {
                self.is_push |= is_first;
                count
            }
            (Some(b'%'), Some(pairs)) => pairs.saturating_mul(2),
            // An attribute comes before the value that it describes.
            (Some(b'|'), Some(pairs)) => pairs.saturating_mul(2).saturating_add(1),
            // A value in one line, or the absence of one.
            _ => 0,
        };
        self.lacking = self.lacking.saturating_sub(1).saturating_add(more);
    }
}

/// The longest line and name that matter: a kind and a number, the name of a command.
const KEPT_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests;
