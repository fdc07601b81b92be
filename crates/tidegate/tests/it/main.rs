//! The limiter from outside: its promises to callers.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod basics;
mod bounded;
mod changes;
mod clocks;
mod direct;
mod errors;
mod guard;
mod layers;
mod model;
mod module_cycles;
mod per_call;
mod ready;
mod slots;
mod stories;
mod test_targets;
mod threads;

use std::time::Duration;

use tidegate::{Bucket, Rate, Timestamp};

/// A bucket of `burst`, refilled by one per second.
fn one_per_second(burst: u64) -> Bucket {
    Bucket::try_new(Rate::per_second(1), burst).unwrap()
}

/// A bucket of `burst` that does not refill while a test runs.
fn one_per_day(burst: u64) -> Bucket {
    Bucket::try_new(Rate::per_day(1), burst).unwrap()
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
