//! The proposal desk over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod ai;
mod audit;
mod cap;
mod connections;
mod cooldown;
mod crash;
mod enrolment;
mod flow;
mod full_disk;
mod interpreting;
mod limits;
mod outages;
mod program;
mod readme;
mod requests;
mod restart;
mod slots;
mod support;
mod windows;
