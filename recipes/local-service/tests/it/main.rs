//! The local service from outside: over real sockets, in this process with a stopped clock, and as
//! the real command with real users.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod callers;
mod connections;
mod frames;
mod guide;
mod harness;
mod limits;
mod order;
mod settings;
mod shutdown;
mod socket_file;
mod timeouts;
mod users;
