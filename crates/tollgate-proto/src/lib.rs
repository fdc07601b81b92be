//! Wire formats of rate limiting, without sockets.
#![forbid(unsafe_code)]

pub mod ipc;
