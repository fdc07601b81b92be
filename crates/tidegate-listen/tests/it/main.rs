//! The accept loop with HTTP, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod flood;
mod requests;
mod stopping;
mod support;
mod tls;
mod upgrades;
