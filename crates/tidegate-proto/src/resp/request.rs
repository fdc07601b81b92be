use std::fmt;

use super::inline;

/// The maximum length of one argument in bytes.
pub const BULK_BYTES_MAX: usize = 64 * 1024;

/// The maximum length of an inline command in bytes.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of arguments of a command, including its name.
pub const ARGUMENTS_MAX: usize = 64;

/// The positions of a command's arguments. One value is reused for all commands of a connection.
pub struct Arguments {
    spans: [ByteSpan; ARGUMENTS_MAX],
    count: usize,
    /// The words of an inline command, without their quotes.
    words: Vec<u8>,
    is_line: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct ByteSpan {
    start: u32,
    end: u32,
}

/// Input that cannot be parsed. A server replies with the error and closes the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is not a number, or is too large.
    ArgumentCount,
    /// The length of an argument is not a number, or is too large.
    BulkLength,
    /// An argument does not begin with `$`.
    NotBulk {
        /// The byte it begins with.
        byte: u8,
    },
    /// An argument does not end after its stated length.
    BulkEnd,
    /// An inline command exceeds the maximum length.
    LineTooLong,
    /// An inline command has a quote that does not end, or that ends inside a word.
    Quotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::ArgumentCount => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::NotBulk { byte } => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            Self::BulkEnd => f.write_str("expected CRLF after a bulk string"),
            Self::LineTooLong => f.write_str("too big inline request"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

tidegate_core::debug_as_displayed!(ProtocolError);

impl std::error::Error for ProtocolError {}

/// Finds the first command in `input`: its length in bytes, or `None` if it is incomplete.
///
/// An empty line or array is a command without arguments, which gets no reply.
#[inline]
pub fn parse(input: &[u8], arguments: &mut Arguments) -> Result<Option<usize>, ProtocolError> {
    arguments.count = 0;
    match input.first() {
        None => Ok(None),
        Some(b'*') => parse_array(input, arguments),
        Some(_) => {
            arguments.is_line = true;
            inline::parse(input, arguments)
        }
    }
}

#[inline]
fn parse_array(input: &[u8], arguments: &mut Arguments) -> Result<Option<usize>, ProtocolError> {
    arguments.is_line = false;
    let Some((count, mut at)) =
        length(input, 1, ARGUMENTS_MAX).map_err(|BadLength| ProtocolError::ArgumentCount)?
    else {
        return Ok(None);
    };
    for index in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&byte) => return Err(ProtocolError::NotBulk { byte }),
        }
        let Some((bytes, start)) =
            length(input, at + 1, BULK_BYTES_MAX).map_err(|BadLength| ProtocolError::BulkLength)?
        else {
            return Ok(None);
        };
        let end = start + bytes;
        match input.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::BulkEnd),
            None => return Ok(None),
        }
        arguments.spans[index] = ByteSpan::new(start, end);
        at = end + 2;
    }
    arguments.count = count;
    Ok(Some(at))
}

struct BadLength;

/// A length of at most `most` at this offset, and the offset of the bytes after it; `None` if its
/// end has not arrived.
#[inline]
fn length(input: &[u8], at: usize, most: usize) -> Result<Option<(usize, usize)>, BadLength> {
    let (mut value, mut offset) = (0_usize, at);
    loop {
        let Some(&byte) = input.get(offset) else { return Ok(None) };
        match byte {
            // Only zero itself begins with a zero.
            b'0'..=b'9' if offset == at || value > 0 => {
                value = value * 10 + usize::from(byte - b'0');
                if value > most {
                    return Err(BadLength);
                }
            }
            b'\r' if offset > at => break,
            _ => return Err(BadLength),
        }
        offset += 1;
    }
    match input.get(offset + 1) {
        Some(b'\n') => Ok(Some((value, offset + 2))),
        Some(_) => Err(BadLength),
        None => Ok(None),
    }
}

impl Arguments {
    /// The number of arguments, including the command's name.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none, not even a name.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the command was inline, so that its arguments are not in the input.
    #[must_use]
    pub const fn is_line(&self) -> bool {
        self.is_line
    }

    /// The arguments of the command that was found in `input`.
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let source = if self.is_line { &self.words } else { input };
        self.spans[..self.count].iter().map(move |span| span.of(source))
    }

    /// One argument of an array that was found in `input`; `None` if the index is out of range or
    /// the command was inline.
    #[inline]
    #[must_use]
    pub fn in_array<'i>(&self, input: &'i [u8], index: usize) -> Option<&'i [u8]> {
        (index < self.count && !self.is_line).then(|| self.spans[index].of(input))
    }

    /// Clears the words of the previous line.
    pub(super) fn clear_words(&mut self) {
        self.words.clear();
        // Long lines are rare; their memory is released.
        self.words.shrink_to(1024);
    }

    pub(super) fn words_mut(&mut self) -> &mut Vec<u8> {
        &mut self.words
    }

    /// Ends an argument that began at `start` of the words; false if there are too many.
    pub(super) fn end_word(&mut self, start: usize) -> bool {
        let Some(span) = self.spans.get_mut(self.count) else { return false };
        *span = ByteSpan::new(start, self.words.len());
        self.count += 1;
        true
    }
}

impl Default for Arguments {
    fn default() -> Self {
        let spans = [ByteSpan::default(); ARGUMENTS_MAX];
        Self { spans, count: 0, words: Vec::new(), is_line: false }
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, is_line, .. } = self;
        f.debug_struct("Arguments").field("count", count).field("is_line", is_line).finish()
    }
}

impl ByteSpan {
    /// No command reaches 4 GiB.
    #[allow(clippy::cast_possible_truncation, reason = "64 arguments of 64 KiB are 4 MiB")]
    fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The bytes; empty if `source` is not the input that they were found in.
    #[inline]
    fn of(self, source: &[u8]) -> &[u8] {
        source.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// An integer as Redis parses it: digits, with a sign if it is negative, nothing else.
#[inline]
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if !matches!(digits, [b'0'] | [b'1'..=b'9', ..]) || (is_negative && digits == b"0") {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        value = value.checked_mul(10)?;
        value = if is_negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}
