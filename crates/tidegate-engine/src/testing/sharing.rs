//! What stores have to keep that several engines share: each scenario gets two of the same new records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_core::Timestamp;
use tidegate_table::ManualClock;

use super::{ADA, TestEngine, read, rule};
use crate::{Edit, Request};

pub(super) type MakeTwo<'a> = &'a dyn Fn() -> [crate::Store; 2];

/// Two engines with the same clock, which stands still.
fn two(make: MakeTwo<'_>, policy: &str) -> [TestEngine; 2] {
    let clock = ManualClock::new(Timestamp::ZERO);
    make().map(|store| TestEngine::over(store, policy, clock.clone()))
}

pub(super) fn both_admit_the_limit_together(make: MakeTwo<'_>) {
    let engines = two(make, &rule("bucket = { rate = \"1/h\", burst = 300 }"));
    let allowed = AtomicU64::new(0);
    thread::scope(|scope| {
        for engine in &engines {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..150 {
                        let is_allowed = engine.allows(ADA, 1);
                        allowed.fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                    }
                });
            }
        }
    });
    assert_eq!(allowed.into_inner(), 300, "600 requests on a clock that stands still");
}

pub(super) fn one_decides_over_what_the_other_charged(make: MakeTwo<'_>) {
    let [one, other] = two(make, &rule("window = { max = 10, per = \"1h\" }"));
    assert!(one.allows(ADA, 4));
    let held = one.hold(ADA, 3);
    assert_eq!(other.left(ADA, "r"), 3);
    assert_eq!(other.commit(held, 1), 1, "a hold of the other engine");
    assert_eq!(one.left(ADA, "r"), 5);
    assert_eq!(one.refund(ADA, 2), 2);
    assert_eq!(other.left(ADA, "r"), 7);
}

pub(super) fn edits_of_one_count_in_the_other(make: MakeTwo<'_>) {
    let [one, other] = two(make, &rule("window = { max = 10, per = \"1h\" }"));
    assert!(other.allows(ADA, 4));
    let edited = read(&rule("window = { max = 5, per = \"1h\" }"));
    one.engine.edit("test", Edit::policy(edited)).block().unwrap();
    assert_eq!(other.left(ADA, "r"), 1);
    assert!(!other.allows(ADA, 2));
}

/// More keys than a store lists at once.
pub(super) fn every_key_is_listed(make: MakeTwo<'_>) {
    let [one, other] = two(make, &rule("cooldown = \"1h\""));
    let names: Vec<String> = (0..1_500).map(|number| format!("user {number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let engine = if number % 2 == 0 { &one } else { &other };
        assert!(engine.allows(&[("user", name)], 1));
    }
    assert_eq!(one.engine.forget_all(None).block().unwrap(), 1_500);
    for name in &names {
        let request = [("user", name.as_str())];
        let report = other.engine.peek(&Request::new("default", &request)).block().unwrap();
        assert!(report.is_allowed(), "{name}");
    }
}
