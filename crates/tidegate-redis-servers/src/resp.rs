//! A small blocking client for RESP 2.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) use frames::{Frame, FrameScanner};

mod frames;

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as `OK`.
    Status(String),
    /// An error, such as `WRONGTYPE …`.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Nothing, as for a key that does not exist.
    Null,
    /// A list.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a status, a string or a number.
    ///
    /// # Panics
    ///
    /// If it is none of these.
    #[track_caller]
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Integer(number) => number.to_string(),
            other => panic!("the reply has no text: {other:?}"),
        }
    }

    /// A number, also if it is written as a string.
    ///
    /// # Panics
    ///
    /// If it is no number.
    #[track_caller]
    #[must_use]
    pub fn integer(&self) -> i64 {
        self.text().parse().unwrap_or_else(|_| panic!("the reply is no number: {self:?}"))
    }

    /// The elements of a list.
    ///
    /// # Panics
    ///
    /// If it is no list.
    #[track_caller]
    #[must_use]
    pub fn array(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            other => panic!("the reply is no list: {other:?}"),
        }
    }

    /// The message, if it is an error.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(message) => Some(message),
            _ => None,
        }
    }

    /// The reply, unless it is an error.
    ///
    /// # Panics
    ///
    /// If it is an error.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Self {
        assert_eq!(self.error(), None, "the server replied with an error");
        self
    }
}

/// A connection to a server. Connecting, writing and reading have a time-out each.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects, with a time-out of five seconds for each operation.
    ///
    /// # Errors
    ///
    /// If the address does not accept the connection in time.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_with_timeout(address, Duration::from_secs(5))
    }

    /// Connects, with a time-out for each operation.
    ///
    /// # Errors
    ///
    /// If the address does not accept the connection in time.
    pub fn open_with_timeout(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    ///
    /// If the connection is cut or times out, or if the reply is malformed or larger than 16 MiB.
    pub fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command. Its reply is read by [`receive`](Self::receive).
    ///
    /// # Errors
    ///
    /// If the connection is cut or times out.
    pub fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)
    }

    /// Reads a reply.
    ///
    /// # Errors
    ///
    /// As [`command`](Self::command).
    pub fn receive(&mut self) -> io::Result<Reply> {
        read_reply(&mut (&mut self.stream).take(REPLY_BYTES_MAX), DEPTH_MAX)
    }
}

fn read_reply(stream: &mut impl BufRead, depth: u32) -> io::Result<Reply> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| malformed(&line))?;
    let line = std::str::from_utf8(line).map_err(|_| malformed(line))?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(line.as_bytes()))?;
    let number = || rest.parse::<i64>().map_err(|_| malformed(line.as_bytes()));
    Ok(match kind {
        "+" => Reply::Status(rest.into()),
        "-" => Reply::Error(rest.into()),
        ":" => Reply::Integer(number()?),
        "$" => match u64::try_from(number()?) {
            Ok(length) => Reply::Bulk(read_bulk(stream, length)?),
            Err(_) => Reply::Null,
        },
        "*" if depth > 0 => match u64::try_from(number()?) {
            // Each element has bytes, so their number is bounded as well.
            Ok(count) => Reply::Array(
                (0..count).map(|_| read_reply(stream, depth - 1)).collect::<io::Result<_>>()?,
            ),
            Err(_) => Reply::Null,
        },
        _ => return Err(malformed(line.as_bytes())),
    })
}

fn read_bulk(stream: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(length.saturating_add(2)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length.saturating_add(2) || !bytes.ends_with(b"\r\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

fn malformed(line: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed reply: {shown:?}"))
}

const REPLY_BYTES_MAX: u64 = 16 << 20;
const DEPTH_MAX: u32 = 16;
