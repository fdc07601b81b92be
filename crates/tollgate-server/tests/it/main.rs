//! The daemon from outside, over every way in.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod admin;
mod admin_edits;
mod local;
mod local_bad_input;
mod resp;
mod running;
mod watch;
