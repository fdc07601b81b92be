//! The daemon from outside, over every way in.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod resp;
