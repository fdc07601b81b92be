//! The store on real servers.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod clocks;
mod cluster;
mod conformance;
mod durability;
mod faults;
mod full;
mod local_share;
mod nodes;
mod presence;
mod programme;
mod queue;
mod restarts;
mod sentinel;
mod support;
mod tls;
mod turns;
