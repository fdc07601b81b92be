//! Lines of a stream, one after the other, within a buffer of bounded size.

use std::io::{self, ErrorKind, Read};

/// Splits a stream into lines.
pub(crate) struct Lines<R> {
    stream: R,
    buffer: Vec<u8>,
    /// What of the buffer is not read yet.
    start: usize,
    end: usize,
    is_at_end: bool,
    /// Whether the rest of a line that was too long is skipped.
    is_skipping: bool,
    /// An error that was met too early: the lines before it come first.
    error: Option<io::Error>,
}

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Text(&'a [u8]),
    /// It has more than [`MOST_BYTES`].
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(stream: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { stream, buffer, start: 0, end: 0, is_at_end: false, is_skipping: false, error: None }
    }

    /// The first bytes of the stream: at most [`BUFFER_BYTES`], up to the first error.
    pub(crate) fn first_bytes(&mut self) -> &[u8] {
        while !self.is_at_end && self.end < GUESS_BYTES {
            if let Err(error) = self.fill() {
                self.error = Some(error);
                break;
            }
        }
        &self.buffer[self.start..self.end]
    }

    /// Leaves out the mark at the start of some texts in UTF-8.
    pub(crate) fn skip_byte_order_mark(&mut self) {
        if self.buffer[self.start..self.end].starts_with(b"\xef\xbb\xbf") {
            self.start += 3;
        }
    }

    /// The next line. After an error the lines before it have been returned.
    #[inline]
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let (start, end) = (self.start, searched + found);
                self.start = end + 1;
                if std::mem::take(&mut self.is_skipping) {
                    return Ok(Some(Line::TooLong));
                }
                return Ok(Some(self.line(start, end)));
            }
            if self.is_skipping {
                self.start = self.end;
            }
            if self.is_at_end {
                return Ok(self.last());
            }
            if self.end - self.start > MOST_BYTES {
                (self.is_skipping, self.start) = (true, self.end);
            }
            let unread = self.end - self.start;
            self.fill()?;
            searched = self.start + unread;
        }
    }

    fn line(&self, start: usize, end: usize) -> Line<'_> {
        let line = &self.buffer[start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MOST_BYTES { Line::TooLong } else { Line::Text(line) }
    }

    /// The last line, which has no end.
    fn last(&mut self) -> Option<Line<'_>> {
        if std::mem::take(&mut self.is_skipping) {
            return Some(Line::TooLong);
        }
        let (start, end) = (self.start, self.end);
        self.start = end;
        (start < end).then(|| self.line(start, end))
    }

    /// Reads more behind what is unread.
    fn fill(&mut self) -> io::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.is_at_end = read == 0;
                    self.end += read;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The longest line that is read.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// Room for the longest line and more to read at once.
const BUFFER_BYTES: usize = 2 * MOST_BYTES;
/// How much of an input is used to guess its format.
const GUESS_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests;
