//! The promises of the arithmetic, each as a test that can fail.
//!
//! `model` says what the limits mean: naively, from the whole list of events, in numbers of any
//! size. The other modules hold the crate against it, and against promises that need no model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod common_ticks;
mod edits;
mod extremes;
mod intervals;
mod laws;
mod model;
mod pictures;
mod quotas;
mod script;
mod stories;
mod strategies;
mod traffic;
mod vectors;
mod walk;
