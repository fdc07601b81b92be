//! The messages of Envoy are as committed.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod generated;
