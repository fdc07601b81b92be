//! The local service as its callers see it: over real sockets, in this process by a clock that
//! stands still, and as the real command with real users.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod callers;
mod connections;
mod frames;
mod guide;
mod harness;
mod limits;
mod order;
mod settings;
mod socket_file;
mod timeouts;
mod users;
