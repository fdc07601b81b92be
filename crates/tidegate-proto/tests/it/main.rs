//! Drift check of the generated protobuf code.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod generated;
