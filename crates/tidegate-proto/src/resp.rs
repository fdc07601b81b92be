//! The server side of the Redis protocol: commands in, replies out, versions 2 and 3.
//!
//! ```
//! use tidegate_proto::resp::{Arguments, Replies, Version, parse};
//!
//! let input = b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n*1\r\n$4\r\nPI";
//! let mut arguments = Arguments::default();
//! let used = parse(input, &mut arguments)?.expect("the first command is complete");
//! let words: Vec<&[u8]> = arguments.iter(input).collect();
//! assert_eq!(words, [b"ECHO".as_slice(), b"hello"]);
//! assert_eq!(parse(&input[used..], &mut arguments)?, None); // the second one is not
//!
//! let mut out = Vec::new();
//! Replies::new(&mut out, Version::Resp2).bulk(b"hello");
//! assert_eq!(out, b"$5\r\nhello\r\n");
//! # Ok::<(), tidegate_proto::resp::ProtocolError>(())
//! ```
//!
//! Commands are arrays of bulk strings, which are not copied, or lines of words. Nested arrays and
//! all other types are errors, as in Redis. A length alone allocates nothing.

mod inline;
mod reply;
mod request;
mod throttle;

pub use reply::{Replies, Version};
pub use request::{
    ARGUMENTS_MAX, Arguments, BULK_BYTES_MAX, INLINE_BYTES_MAX, ProtocolError, integer, parse,
};
pub use throttle::{ThrottleCall, ThrottleError, throttle_reply};

#[cfg(test)]
mod tests;
