//! The engine from outside: its promises, on every store.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod allocations;
mod at;
mod batches;
mod builder;
mod clocks;
mod conformance;
mod corners;
mod descriptors;
mod exact;
mod extremes;
mod file_conformance;
mod file_crash;
mod file_damage;
mod file_faults;
mod file_folder;
mod file_kill;
mod file_ledger;
mod file_store;
mod file_threads;
mod full;
mod history;
mod local_share;
mod model;
mod overlay_text;
mod paths;
mod reference;
mod reports;
mod shared_full;
mod shared_history;
mod shared_holds_model;
mod shared_queue;
mod shared_queue_model;
mod shared_store;
mod stores_agree;
mod stories;
mod stress;
mod threads;
mod unseen;
mod verbs;
mod waits;
mod watch;
