//! The guard around a WebSocket service, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod addresses;
mod denials;
mod flood;
mod guide;
mod process;
mod stopping;
mod support;
