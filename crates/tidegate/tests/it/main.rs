//! The limiter from outside: its promises to callers.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod allocations;
mod basics;
mod bounded;
mod changes;
mod clocks;
mod descriptors;
mod direct;
mod engine;
mod engine_at;
mod engine_batches;
mod engine_builder;
mod engine_clocks;
mod engine_conformance;
mod engine_corners;
mod engine_exact;
mod engine_extremes;
mod engine_full;
mod engine_history;
mod engine_model;
mod engine_paths;
mod engine_reference;
mod engine_reports;
mod engine_stories;
mod engine_stress;
mod engine_threads;
mod engine_unseen;
mod engine_waits;
mod errors;
mod file_conformance;
mod file_crash;
mod file_damage;
mod file_faults;
mod file_folder;
mod file_kill;
mod file_ledger;
mod file_store;
mod file_threads;
mod guard;
mod layers;
mod local_share;
mod model;
mod module_cycles;
mod overlay_text;
mod per_call;
mod policy;
mod policy_bad_input;
mod policy_errors;
mod policy_guide;
mod policy_text;
mod policy_text_any;
mod policy_warnings;
mod policy_yaml;
mod policy_yaml_any;
mod policy_yaml_files;
mod policy_yaml_odd;
mod ready;
mod shared_full;
mod shared_history;
mod shared_holds_model;
mod shared_queue;
mod shared_queue_model;
mod shared_store;
mod stores_agree;
mod stories;
mod test_targets;
mod threads;

use std::time::Duration;

use tidegate::{Bucket, Rate, Timestamp};

/// A bucket of `burst`, refilled by one per second.
fn one_per_second(burst: u64) -> Bucket {
    Bucket::new(Rate::per_second(1).unwrap(), burst).unwrap()
}

/// A bucket of `burst` that does not refill while a test runs.
fn one_per_day(burst: u64) -> Bucket {
    Bucket::new(Rate::per_day(1).unwrap(), burst).unwrap()
}

fn secs(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

const fn seconds(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
