//! The engine under threads, on a clock that stands still: counts are exact.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate::policy::Policy;
use tidegate::{Engine, ManualClock, Request};

/// Two limits under 32 threads: exactly what the tighter one allows is allowed, per user and in
/// all.
#[test]
fn two_limits_under_32_threads_admit_exactly_their_maximum() {
    let policy = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 10, per = \"10s\" }\n\
                  [[rule]]\nname = \"all\"\nbucket = { rate = \"1/day\", burst = 55 }\n";
    for _ in 0..20 {
        let engine = Engine::with_clock(Policy::from_toml(policy).unwrap(), ManualClock::default());
        let passed: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let (engine, passed) = (&engine, &passed);
                scope.spawn(move || {
                    for turn in 0..40 {
                        let user = (thread + turn) % passed.len();
                        let name = user.to_string();
                        let attributes = [("user", name.as_str())];
                        let report = engine.check(&Request::new("default", &attributes)).wait();
                        if report.unwrap().is_allowed() {
                            passed[user].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let passed: Vec<usize> = passed.into_iter().map(AtomicUsize::into_inner).collect();
        assert_eq!(passed.iter().sum::<usize>(), 55);
        assert!(passed.iter().all(|passed| *passed <= 10), "{passed:?}");
    }
}
