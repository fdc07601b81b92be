//! The webhook over real sockets: Telegram, its chat API and the agent are servers and clients of
//! the tests, with a manual clock.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod access;
mod bounds;
mod duplicates;
mod http;
mod limits;
mod process;
mod readme;
mod restart;
mod server;
mod stand_in;
mod tls;
