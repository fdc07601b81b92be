//! What can only be seen from inside: how much memory keys take.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use tidegate_core::Timestamp;

use crate::policy::Policy;
use crate::{Engine, ManualClock, Request};

/// The most bytes per key that a growing table takes, from a number of keys on.
fn most_bytes_per_key(limit: &str, from: usize, to: usize) -> usize {
    let policy = format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n");
    let clock = ManualClock::new(Timestamp::from_secs(1));
    let engine = Engine::with_clock(Policy::from_toml(&policy).unwrap(), clock);
    let mut most = 0;
    for key in 0..to {
        let user = key.to_string();
        let attributes = [("user", user.as_str())];
        let request = Request::new("default", &attributes);
        assert!(engine.check(&request).wait().unwrap().is_allowed(), "key {key}");
        if key >= from && key % 10_000 == 0 {
            most = most.max(engine.bytes() / engine.len());
        }
    }
    assert_eq!(engine.len(), to);
    most
}

#[test]
fn a_bucket_takes_at_most_53_bytes_in_a_growing_table() {
    let most = most_bytes_per_key("bucket = { rate = \"1/day\", burst = 1 }", 200_000, 800_000);
    assert!((40..=53).contains(&most), "{most}");
}

#[test]
fn a_quota_takes_at_most_175_bytes_in_a_growing_table() {
    let most = most_bytes_per_key("quota = { max = 1, per = \"day\" }", 100_000, 300_000);
    assert!((120..=175).contains(&most), "{most}");
}
