//! The promises of the arithmetic, each as a test that can fail.
//!
//! `model` defines what the limits mean: naively, from the whole list of events, in numbers of any
//! size. The other modules compare the crate with it, and check promises that need no model.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod agreement;
mod common_ticks;
mod decisions;
mod edits;
mod extremes;
mod intervals;
mod laws;
mod model;
mod pictures;
mod quota_laws;
mod quotas;
mod script;
mod stories;
mod strategies;
mod text;
mod traffic;
mod vectors;
mod walk;
