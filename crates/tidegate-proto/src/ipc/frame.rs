use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::IpcError;

/// The maximum number of bytes after a frame's length.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Decoder of frames from bytes that arrive in pieces of any size.
///
/// It holds at most one frame, and at most twice the memory of the bytes that have arrived: a
/// length alone allocates nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    length: [u8; LENGTH_BYTES],
    length_arrived: usize,
    body: Vec<u8>,
    /// The length of a frame that was too long; decoding cannot continue.
    lost: Option<usize>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The text of the next frame, if these bytes complete it. Used bytes are removed from `input`.
    ///
    /// Call it until it returns `None`: then all bytes are used. After an error the next call
    /// continues with the next frame, except after a frame that is too long: its end is not
    /// searched, so every call returns that error and uses no bytes.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<String>, IpcError> {
        if let Some(length) = self.lost {
            return Err(IpcError::TooLong { length });
        }
        let missing = LENGTH_BYTES - self.length_arrived;
        let piece = take(input, missing);
        self.length[self.length_arrived..][..piece.len()].copy_from_slice(piece);
        self.length_arrived += piece.len();
        if self.length_arrived < LENGTH_BYTES {
            return Ok(None);
        }
        // A length that does not fit a usize is too long as well.
        let length = usize::try_from(u32::from_le_bytes(self.length)).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            self.lost = Some(length);
            return Err(IpcError::TooLong { length });
        }
        if length == 0 {
            self.length_arrived = 0;
            return Err(IpcError::Empty);
        }
        self.extend(take(input, length - self.body.len()), length);
        if self.body.len() < length {
            return Ok(None);
        }
        self.length_arrived = 0;
        let body = std::mem::take(&mut self.body);
        String::from_utf8(body).map(Some).map_err(|_| IpcError::NotUtf8)
    }

    /// Whether no frame is incomplete, so that the peer may close without cutting one off.
    #[must_use]
    pub const fn is_between_frames(&self) -> bool {
        self.length_arrived == 0
    }

    /// Adds bytes of a body of this length; memory grows with what has arrived.
    fn extend(&mut self, piece: &[u8], length: usize) {
        let needed = self.body.len() + piece.len();
        if needed > self.body.capacity() {
            let room = needed.max(self.body.capacity() * 2).min(length);
            self.body.reserve_exact(room - self.body.len());
        }
        self.body.extend_from_slice(piece);
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.body.capacity()
    }
}

/// Encodes a message as a frame.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, IpcError> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)
        .map_err(|error| IpcError::WrongShape { reason: short(&error) })?;
    finish(frame)
}

/// Encodes any text as a frame; empty text is an error.
pub fn encode_text(text: &str) -> Result<Vec<u8>, IpcError> {
    let mut frame = vec![0; LENGTH_BYTES];
    frame.extend_from_slice(text.as_bytes());
    finish(frame)
}

/// Writes the length before the body.
fn finish(mut frame: Vec<u8>) -> Result<Vec<u8>, IpcError> {
    let length = frame.len() - LENGTH_BYTES;
    if length == 0 {
        return Err(IpcError::Empty);
    }
    match u32::try_from(length) {
        Ok(header) if length <= FRAME_BYTES_MAX => {
            frame[..LENGTH_BYTES].copy_from_slice(&header.to_le_bytes());
            Ok(frame)
        }
        _ => Err(IpcError::TooLong { length }),
    }
}

/// Parses the text of a frame. A message is a JSON object: an array of its values is none.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, IpcError> {
    let is_object = text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{');
    let parsed = serde_json::from_str(text).map_err(|error| short(&error));
    let reason = match parsed {
        Ok(message) if is_object => return Ok(message),
        Ok(_) => "expected an object".into(),
        Err(reason) => reason,
    };
    // A parser of a message may stop before it has seen that the text is not JSON.
    Err(match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) => IpcError::WrongShape { reason },
        Err(error) => IpcError::NotJson { reason: short(&error) },
    })
}

/// The parser's message, shortened so that it fits into a response and a log line.
fn short(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

/// Up to `most` bytes from the front of the input.
fn take<'i>(input: &mut &'i [u8], most: usize) -> &'i [u8] {
    let (piece, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    piece
}

const LENGTH_BYTES: usize = 4;

const REASON_CHARS_MAX: usize = 160;
