use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::IpcError;

/// The most bytes that a frame may have behind its length.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// A reader of frames from bytes that come in any pieces.
///
/// It holds one frame at most, and never more memory than twice the bytes of it that have arrived: a
/// length alone costs nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    length: [u8; LENGTH_BYTES],
    length_arrived: usize,
    body: Vec<u8>,
    /// The length of a frame that was too long. There is no way on.
    lost: Option<usize>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The text of the next frame, if these bytes complete it. What was used is taken off `input`.
    ///
    /// To be called until it has nothing more to say: `None` means that all bytes are used. After an
    /// error the next call goes on with the next frame, except after a frame that is too long: its
    /// end is not looked for, so every call gives that same error and takes nothing.
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
        // On a machine on which a length does not fit, it is too long all the same.
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

    /// Whether no frame has begun that has not ended: the peer may leave without leaving half a frame.
    #[must_use]
    pub const fn is_between_frames(&self) -> bool {
        self.length_arrived == 0
    }

    /// Adds bytes of a body of this length, in memory that grows with what has arrived.
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

/// The frame of a message.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, IpcError> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)
        .map_err(|error| IpcError::WrongShape { reason: short(&error) })?;
    finish(frame)
}

/// The frame of a text, whatever it says. An empty one has no frame.
pub fn encode_text(text: &str) -> Result<Vec<u8>, IpcError> {
    let mut frame = vec![0; LENGTH_BYTES];
    frame.extend_from_slice(text.as_bytes());
    finish(frame)
}

/// Writes the length in front of a body.
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

/// The message that the text of a frame is.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, IpcError> {
    serde_json::from_str(text).map_err(|error| {
        // A parser that looks for a message may stop before it has seen that it is not JSON.
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(IgnoredAny) => IpcError::WrongShape { reason: short(&error) },
            Err(error) => IpcError::NotJson { reason: short(&error) },
        }
    })
}

/// What the parser says, without all of what it may quote: a reason fits into an answer and a log.
fn short(error: &serde_json::Error) -> String {
    let said = error.to_string();
    match said.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said,
    }
}

/// As much of the input as there is, up to `most`.
fn take<'i>(input: &mut &'i [u8], most: usize) -> &'i [u8] {
    let (piece, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    piece
}

const LENGTH_BYTES: usize = 4;

const REASON_CHARS_MAX: usize = 160;
