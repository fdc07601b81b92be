//! Policies from outside: what is parsed, refused, warned about and written.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod bad_input;
mod errors;
mod guide;
mod sample;
mod text;
mod text_any;
mod warnings;
mod yaml;
mod yaml_any;
mod yaml_files;
mod yaml_odd;

use std::time::Duration;

const fn seconds(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
