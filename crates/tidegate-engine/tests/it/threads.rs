//! The engine under threads, on a clock that stands still: counts are exact.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate::policy::Policy;
use tidegate::{Edit, Request, StoreEngine, clock::ManualClock};

/// Two limits under 32 threads: exactly what the tighter one allows is allowed, per user and in
/// all.
#[test]
fn two_limits_under_32_threads_admit_exactly_their_maximum() {
    let policy = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 10, per = \"10s\" }\n\
                  [[rule]]\nname = \"all\"\nbucket = { rate = \"1/day\", burst = 55 }\n";
    for _ in 0..20 {
        let engine = StoreEngine::builder(Policy::from_toml(policy).unwrap())
            .clock(ManualClock::default())
            .build()
            .unwrap();
        let passed: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let (engine, passed) = (&engine, &passed);
                scope.spawn(move || {
                    for turn in 0..40 {
                        let user = (thread + turn) % passed.len();
                        let name = user.to_string();
                        let attributes = [("user", name.as_str())];
                        let report = engine.check(&Request::new("default", &attributes)).block();
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

/// Threads that insert, charge and forget keys of narrow and wide states at once never exceed the
/// capacity, and afterwards exactly as many keys fit as before.
#[test]
fn the_capacity_holds_under_threads_and_is_free_again_afterwards() {
    const MAX_KEYS: usize = 64;
    let policy = format!(
        "[server]\nmax_keys = {MAX_KEYS}\nwhen_full = \"deny\"\n\
         [[rule]]\nname = \"bucket\"\nkey = [\"a\"]\nmissing = \"skip\"\n\
         bucket = {{ rate = \"1/s\", burst = 2 }}\n\
         [[rule]]\nname = \"sliding\"\nkey = [\"b\"]\nmissing = \"skip\"\n\
         sliding = {{ max = 2, per = \"1s\", parts = 4 }}\n\
         [[rule]]\nname = \"window\"\nkey = [\"c\"]\nmissing = \"skip\"\n\
         window = {{ max = 2, per = \"1s\" }}\n\
         reserve_for = \"2s\"\n\
         [[rule]]\nname = \"quota\"\nkey = [\"d\"]\nmissing = \"skip\"\n\
         quota = {{ max = 2, per = \"round\" }}\n"
    );
    let clock = ManualClock::default();
    let engine = StoreEngine::builder(Policy::from_toml(&policy).unwrap())
        .clock(clock.clone())
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (engine, clock) = (&engine, &clock);
            scope.spawn(move || {
                let mut random = thread + 1;
                for turn in 0..4_000_u64 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (key, other) = ((random >> 33) % 200, (random >> 43) % 200);
                    let (key, other) = (key.to_string(), other.to_string());
                    let names = ["a", "b", "c", "d"];
                    let name = names[(random >> 53) as usize % 4];
                    let second = names[(random >> 55) as usize % 4];
                    let attributes = [(name, key.as_str()), (second, other.as_str())];
                    let attributes = &attributes[..if name == second { 1 } else { 2 }];
                    let request = Request::new("default", attributes);
                    match (random >> 57) % 8 {
                        0 => drop(engine.forget(&request).block().unwrap()),
                        1 => {
                            let hold = engine.hold(&request).block().unwrap().hold();
                            let _ = hold.map(|id| engine.cancel(id, None).block());
                        }
                        2 => drop(engine.peek(&request).block().unwrap()),
                        // More than any limit has: nothing to store.
                        3 => drop(engine.check(&request.cost(9)).block().unwrap()),
                        _ => drop(engine.check(&request).block().unwrap()),
                    }
                    assert!(engine.len() <= MAX_KEYS, "{} keys", engine.len());
                    if thread == 0 && turn % 100 == 0 {
                        clock.advance(std::time::Duration::from_millis(700));
                        engine.close_round("default", None).block().unwrap();
                    }
                }
            });
        }
    });
    for key in 0..200 {
        let key = key.to_string();
        for name in ["a", "b", "c", "d"] {
            let attributes = [(name, key.as_str())];
            engine.forget(&Request::new("default", &attributes)).block().unwrap();
        }
    }
    assert_eq!(engine.len(), 0);
    let fits = |key: &usize| {
        let (name, key) = (["a", "b", "c", "d"][key % 4], key.to_string());
        let attributes = [(name, key.as_str())];
        engine.check(&Request::new("default", &attributes)).block().unwrap().is_allowed()
    };
    assert_eq!((0..4 * MAX_KEYS).filter(fits).count(), MAX_KEYS);
    assert_eq!(engine.len(), MAX_KEYS);
}

/// Rules come and go while their keys are inserted on the path with holds. No slot is left behind.
#[test]
fn rules_that_are_removed_while_keys_are_inserted_leave_no_slots() {
    const MAX_KEYS: usize = 64;
    let rule = |name: &str, limit: &str| {
        format!("[[rule]]\nname = \"{name}\"\nkey = [\"user\"]\n{limit}\n")
    };
    let server = format!("[server]\nmax_keys = {MAX_KEYS}\nwhen_full = \"deny\"\n");
    let kept = rule("kept", "bucket = { rate = \"1000/s\", burst = 1000 }");
    let gone = rule("gone", "window = { max = 100, per = \"1s\" }");
    let gone = gone + &rule("slots", "slots = { max = 5, expires = \"1s\" }");
    let parse = |text: &str| Policy::from_toml(text).unwrap();
    let (few, all) = (parse(&format!("{server}{kept}")), parse(&format!("{server}{kept}{gone}")));
    let clock = ManualClock::default();
    let engine = StoreEngine::builder(all.clone()).clock(clock.clone()).build().unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (engine, is_done) = (&engine, &is_done);
            scope.spawn(move || {
                for turn in 0.. {
                    let user = format!("{thread}-{}", turn % 7);
                    let attributes = [("user", user.as_str())];
                    let request = Request::new("default", &attributes);
                    let _ = engine.hold(&request).block();
                    let _ = engine.forget(&request).block();
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..500 {
            engine.edit("test", Edit::policy(few.clone())).block().unwrap();
            engine.edit("test", Edit::policy(all.clone())).block().unwrap();
            clock.advance(std::time::Duration::from_millis(10));
        }
        engine.edit("test", Edit::policy(few.clone())).block().unwrap();
        is_done.store(true, Ordering::Relaxed);
    });
    // States of removed rules are dropped after a day. All holds have expired; a request with a hold
    // releases them.
    clock.advance(std::time::Duration::from_secs(48 * 3_600));
    let request = Request::new("default", &[("user", "last")]);
    let hold = engine.hold(&request).block().unwrap().hold().unwrap();
    engine.cancel(hold, None).block().unwrap();
    engine.forget(&request).block().unwrap();
    let fits = |key: &usize| {
        let user = format!("new-{key}");
        let attributes = [("user", user.as_str())];
        engine.check(&Request::new("default", &attributes)).block().unwrap().is_allowed()
    };
    assert_eq!((0..2_000).filter(fits).count(), MAX_KEYS);
}
