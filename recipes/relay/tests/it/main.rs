//! The relay over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod blocks;
mod client;
mod flood;
mod frames;
mod guard;
mod guide;
mod handshake;
mod leaving;
mod limits;
mod liveness;
mod program;
mod raw;
mod routing;
mod server;
mod soak;
