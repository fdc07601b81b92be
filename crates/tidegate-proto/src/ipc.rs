//! Frames and messages of the local socket.
//!
//! A frame is a length of 4 bytes, little-endian, followed by that many bytes of UTF-8 JSON, 64 KiB
//! at most. Both sides send any number of frames on one connection, each request followed by its
//! response. This module encodes and decodes them; the caller owns the socket.
//!
//! ```
//! use tidegate_proto::ipc::{self, Decoder, Pong, Request, Response};
//!
//! let mut bytes = ipc::encode(&Request::new("ping"))?;
//! bytes.extend(ipc::encode(&Request::new("ping"))?);
//!
//! // They arrive in pieces of any size.
//! let mut decoder = Decoder::new();
//! let mut requests = Vec::new();
//! for mut piece in bytes.chunks(7) {
//!     while let Some(text) = decoder.next(&mut piece)? {
//!         requests.push(ipc::parse::<Request>(&text)?);
//!     }
//! }
//! assert_eq!(requests, [Request::new("ping"), Request::new("ping")]);
//!
//! let response = r#"{"ok":true,"serviceVersion":"1.0","time":"2026-01-31T12:00:00Z","protocolVersion":1}"#;
//! let response: Response<Pong> = ipc::parse(response)?;
//! assert!(matches!(response, Response::Ok(pong) if pong.service_version == "1.0"));
//! # Ok::<(), ipc::IpcError>(())
//! ```

mod error;
mod frame;
mod message;

pub use error::IpcError;
pub use frame::{Decoder, FRAME_BYTES_MAX, encode, encode_text, parse};
pub use message::{Failure, PROTOCOL_VERSION, Pong, Request, Response};

#[cfg(test)]
mod tests;
