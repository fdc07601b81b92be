//! Everything at once, with real threads, and what must be true when they are done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tidegate::policy::Policy;
use tidegate::{Edit, Request, StoreEngine, clock::ManualClock};

fn policy(max: u64) -> Policy {
    let text = format!(
        r#"
        [server]
        max_keys = 20000
        [[rule]]
        name = "user"
        key = ["user"]
        window = {{ max = {max}, per = "100d" }}
        [[rule]]
        name = "org"
        key = ["org"]
        sliding = {{ max = {max}, per = "100d" }}
        [[rule]]
        name = "all"
        quota = {{ max = {max}, per = "round", carry = "all" }}
        [[rule]]
        name = "bucket"
        key = ["user", "org"]
        bucket = {{ rate = "{max}/100d", burst = {max} }}
        "#
    );
    Policy::from_toml(&text).unwrap()
}

const MAX: u64 = 1_000_000;
const RULES: [&str; 4] = ["user", "org", "all", "bucket"];

fn left(engine: &StoreEngine, attributes: &[(&str, &str)]) -> Vec<u64> {
    let report = engine.peek(&Request::new("default", attributes).cost(0)).block().unwrap();
    assert_eq!(report.rules().map(|it| it.rule.name()).collect::<Vec<_>>(), RULES);
    report.rules().map(|it| it.decision.remaining()).collect()
}

/// One worker: charges, reserves, settles; reports what stays charged to its organisation.
fn work(engine: &StoreEngine, number: u64, steps: u64) -> u64 {
    let org = (number % 2).to_string();
    let mut charged = 0;
    for step in 0..steps {
        let user = ((step * 7 + number) % 5).to_string();
        let attributes = [("user", user.as_str()), ("org", org.as_str())];
        let request = Request::new("default", &attributes);
        match step % 6 {
            0 | 1 => charged += u64::from(engine.check(&request).block().unwrap().is_allowed()),
            2 => {
                let id = engine.hold(&request.cost(3)).block().unwrap().hold().unwrap();
                engine.cancel(id, None).block().unwrap();
            }
            3 => {
                let id = engine.hold(&request.cost(3)).block().unwrap().hold().unwrap();
                charged += engine.commit(id, Some(step % 5)).block().unwrap().charged;
            }
            4 => {
                let id = engine.hold(&request.cost(2)).block().unwrap().hold().unwrap();
                charged += engine.commit(id, None).block().unwrap().charged;
                let given = engine.refund_hold(id, 1).block().unwrap();
                assert_eq!(given, 1);
                charged -= given;
            }
            _ => assert!(!engine.check(&request.cost(u64::MAX)).block().unwrap().is_allowed()),
        }
    }
    charged
}

#[test]
fn everything_at_once_adds_up() {
    for _ in 0..3 {
        let clock = ManualClock::default();
        let engine = StoreEngine::builder(policy(MAX)).clock(clock).build().unwrap();
        let (is_over, charged) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        thread::scope(|scope| {
            // Edits that never go below what is needed.
            scope.spawn(|| {
                let mut max = MAX;
                while !is_over.load(Ordering::Relaxed) {
                    max = if max > MAX + 50 { MAX } else { max + 1 };
                    engine.edit("test", Edit::policy(policy(max))).block().unwrap();
                }
            });
            // Others come and go, so that the table grows and slots are freed.
            scope.spawn(|| {
                for name in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let user = format!("other-{}", name % 3_000);
                    let attributes = [("user", user.as_str()), ("org", user.as_str())];
                    let other = Request::new("crowd", &attributes);
                    let _ = engine.check(&other).block().unwrap();
                    let other = Request::new("default", &attributes);
                    // Peeks, denials and keys that are forgotten again.
                    let _ = engine.peek(&other).block().unwrap();
                    let _ = engine.check(&other.cost(u64::MAX)).block().unwrap();
                    let _ = engine.refund(&other.cost(0)).block().unwrap();
                }
            });
            let workers: Vec<_> = (0..4)
                .map(|number| {
                    let (engine, charged) = (&engine, &charged);
                    scope.spawn(move || {
                        let units = work(engine, number, 1_800);
                        charged[(number % 2) as usize].fetch_add(units, Ordering::Relaxed);
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        engine.edit("test", Edit::policy(policy(MAX))).block().unwrap();
        let charged_to =
            |attributes: &[(&str, &str)], rule: usize| MAX - left(&engine, attributes)[rule];
        let charged = charged.map(AtomicU64::into_inner);
        for (org, charged) in ["0", "1"].iter().zip(charged) {
            assert_eq!(charged_to(&[("user", "0"), ("org", org)], 1), charged, "by organisation");
            let users = ["0", "1", "2", "3", "4"];
            let by_both: u64 =
                users.iter().map(|it| charged_to(&[("user", it), ("org", org)], 3)).sum();
            assert_eq!(by_both, charged, "by user and organisation");
        }
        let by_user: u64 = ["0", "1", "2", "3", "4"]
            .iter()
            .map(|it| charged_to(&[("user", it), ("org", "0")], 0))
            .sum();
        assert_eq!(by_user, charged[0] + charged[1]);
        assert_eq!(charged_to(&[("user", "0"), ("org", "0")], 2), charged[0] + charged[1]);
        // Five users, two organisations, one for all, ten pairs; no claimed slot is left over.
        assert_eq!(engine.len(), 5 + 2 + 1 + 10);
    }
}

/// Keys are forgotten while others charge them: no key is counted twice, and none is left behind.
#[test]
fn forgetting_and_growing_leave_the_count_right() {
    let engine = StoreEngine::builder(policy(MAX)).clock(ManualClock::default()).build().unwrap();
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let engine = &engine;
            scope.spawn(move || {
                for step in 0..3_000_u64 {
                    let user = ((step * 31 + number * 17) % 400).to_string();
                    let attributes = [("user", user.as_str()), ("org", user.as_str())];
                    let request = Request::new("default", &attributes);
                    match (step + number) % 4 {
                        0 => drop(engine.forget(&request).block().unwrap()),
                        1 => {
                            let id = engine.hold(&request).block().unwrap().hold().unwrap();
                            engine.cancel(id, None).block().unwrap();
                        }
                        _ => assert!(engine.check(&request).block().unwrap().is_allowed()),
                    }
                }
            });
        }
    });
    for user in 0..400 {
        let user = user.to_string();
        let attributes = [("user", user.as_str()), ("org", user.as_str())];
        let _ = engine.forget(&Request::new("default", &attributes)).block().unwrap();
        assert_eq!(left(&engine, &attributes), [MAX; 4], "all holds are settled");
    }
    assert!(engine.is_empty(), "{} keys are left", engine.len());
}
