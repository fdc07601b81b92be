//! The guard around a WebSocket service: every promise, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod addresses;
mod guide;
mod process;
mod refusals;
mod stopping;
mod support;
