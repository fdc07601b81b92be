//! The proposal desk over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod ai;
mod audit;
mod cap;
mod crash;
mod flow;
mod interpreting;
mod limits;
mod program;
mod readme;
mod requests;
mod restart;
mod support;
