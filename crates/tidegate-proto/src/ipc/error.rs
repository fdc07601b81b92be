use std::error::Error;
use std::fmt;

use super::FRAME_BYTES_MAX;

/// An invalid frame, or an invalid message in a frame.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IpcError {
    /// The frame's length exceeds the maximum, or a message would need such a frame.
    ///
    /// A reader cannot find the next frame after it.
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// The frame's length is zero.
    Empty,
    /// The bytes of the frame are not UTF-8.
    NotUtf8,
    /// The text is not one JSON value.
    NotJson {
        /// The parser's message.
        reason: String,
    },
    /// The text is JSON, but not the message that was expected.
    WrongShape {
        /// The parser's message.
        reason: String,
    },
}

impl IpcError {
    /// Whether the following frames can still be read.
    #[must_use]
    pub const fn is_in_step(&self) -> bool {
        !matches!(self, Self::TooLong { .. })
    }
}

impl fmt::Display for IpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { length } => {
                write!(f, "the frame is too long: {length} bytes, {FRAME_BYTES_MAX} at most")
            }
            Self::Empty => f.write_str("the frame is empty"),
            Self::NotUtf8 => f.write_str("the frame is not UTF-8"),
            Self::NotJson { reason } => write!(f, "the frame is not JSON: {reason}"),
            Self::WrongShape { reason } => write!(f, "the message has the wrong shape: {reason}"),
        }
    }
}

tidegate_core::debug_as_displayed!(IpcError);

impl Error for IpcError {}
