//! The servers and the proxy, as tests use them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod clock;
mod cluster;
mod process;
mod proxy;
mod sentinel;
mod server;
mod tls;
