/// The protocol version that a client has selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The version that every client supports.
    #[default]
    Resp2,
    /// With maps, booleans and a null type.
    Resp3,
}

/// Writer of consecutive replies.
///
/// Arrays and maps write their header only; their elements follow.
#[derive(Debug)]
pub struct Replies<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
}

impl<'o> Replies<'o> {
    /// A writer that appends to `out`.
    #[inline]
    pub const fn new(out: &'o mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// The memory of all replies that are not sent yet.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.out.capacity()
    }

    /// A short text, such as `OK`. Line ends become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', &[text]);
    }

    /// An error: a code in capitals and a message. Line ends become spaces.
    pub fn error(&mut self, code: &str, message: &str) {
        self.line(b'-', &[code, " ", message]);
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// A count as an integer, saturating.
    pub fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Null.
    pub fn null(&mut self) {
        let null: &[u8] = match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        };
        self.out.extend_from_slice(null);
    }

    /// A boolean: 1 or 0 in version 2.
    pub fn boolean(&mut self, yes: bool) {
        match (self.version, yes) {
            (Version::Resp2, _) => self.integer(yes.into()),
            (Version::Resp3, true) => self.out.extend_from_slice(b"#t\r\n"),
            (Version::Resp3, false) => self.out.extend_from_slice(b"#f\r\n"),
        }
    }

    /// The header of an array of this length.
    #[inline]
    pub fn array(&mut self, length: usize) {
        self.number(b'*', i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// The header of a map of this many pairs: an array of twice as many in version 2.
    pub fn map(&mut self, pairs: usize) {
        let pairs = i64::try_from(pairs).unwrap_or(i64::MAX);
        match self.version {
            Version::Resp2 => self.number(b'*', pairs.saturating_mul(2)),
            Version::Resp3 => self.number(b'%', pairs),
        }
    }

    /// An array of integers.
    #[inline]
    pub fn integers(&mut self, values: &[i64]) {
        self.array(values.len());
        values.iter().for_each(|value| self.integer(*value));
    }

    fn line(&mut self, kind: u8, parts: &[&str]) {
        self.out.push(kind);
        let is_end = |byte| matches!(byte, b'\r' | b'\n');
        let bytes = parts.iter().flat_map(|part| part.bytes());
        self.out.extend(bytes.map(|byte| if is_end(byte) { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn number(&mut self, kind: u8, value: i64) {
        // Most numbers have one digit.
        if let Ok(digit @ 0..=9) = u8::try_from(value) {
            self.out.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']);
        } else {
            self.long_number(kind, value);
        }
    }

    fn long_number(&mut self, kind: u8, value: i64) {
        // A type byte, a sign, 19 digits and the end of the line.
        let (mut buffer, mut at) = ([0; 24], 22);
        buffer[22..].copy_from_slice(b"\r\n");
        let mut rest = value.unsigned_abs();
        loop {
            at -= 1;
            buffer[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            at -= 1;
            buffer[at] = b'-';
        }
        at -= 1;
        buffer[at] = kind;
        self.out.extend_from_slice(&buffer[at..]);
    }
}
