//! Many threads, on a clock that stands still.

use crate::Edit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{ADA, Make, TestEngine, read};

const THREADS: u64 = 4;

pub(super) fn exactly_the_least_limit(make: Make<'_>) {
    let policy = "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nwindow = { max = 900, per = \"1h\" }\n\
                  [[rule]]\nname = \"b\"\nbucket = { rate = \"1/day\", burst = 700 }\n\
                  [[rule]]\nname = \"c\"\nkey = [\"org\"]\nsliding = { max = 800, per = \"1h\" }";
    for round in 0..5 {
        let desk = TestEngine::new(make, policy);
        let admitted = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (desk, admitted) = (&desk, &admitted);
                scope.spawn(move || {
                    let attributes =
                        [("user", "ada"), ("org", if number % 2 == 0 { "x" } else { "y" })];
                    for _ in 0..300 {
                        if desk.allows(&attributes, 1) {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 700, "in round {round}");
        let attributes = [("user", "ada"), ("org", "x")];
        assert_eq!((desk.left(&attributes, "a"), desk.left(&attributes, "b")), (200, 0));
        let other = [("user", "ada"), ("org", "y")];
        assert_eq!(desk.left(&attributes, "c") + desk.left(&other, "c"), 900);
    }
}

pub(super) fn one_token_for_two(make: Make<'_>) {
    let policy = "[[rule]]\nname = \"tokens\"\nkey = [\"user\"]\n\
                  quota = { max = 1, per = \"round\" }\n[[rule]]\nname = \"gap\"\n\
                  key = [\"user\"]\ncooldown = \"1s\"";
    let desk = TestEngine::new(make, policy);
    for round in 0..300_u64 {
        desk.at(round * 1_000);
        let won = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let hold = desk.reserve(ADA, 1).hold();
                    won.fetch_add(u64::from(hold.is_some()), Ordering::Relaxed);
                    if let Some(id) = hold {
                        assert_eq!(desk.commit(id, 1), 1);
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1, "in round {round}");
        desk.engine.close_round("default", None).block().unwrap();
    }
}

pub(super) fn reservations_add_up(make: Make<'_>) {
    let policy = "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nwindow = { max = 100000, per = \"1h\" }\n\
                  [[rule]]\nname = \"b\"\nquota = { max = 100000, per = \"day\" }";
    let desk = TestEngine::new(make, policy);
    let charged = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (desk, charged) = (&desk, &charged);
            scope.spawn(move || {
                for step in 0..500_u64 {
                    let units = match (step + number) % 4 {
                        0 => u64::from(desk.allows(ADA, 1)),
                        1 => {
                            let id = desk.hold(ADA, 3);
                            desk.cancel(id);
                            0
                        }
                        2 => {
                            let id = desk.hold(ADA, 3);
                            desk.commit(id, 5)
                        }
                        _ => {
                            let id = desk.hold(ADA, 4);
                            let charged = desk.commit(id, 2);
                            charged - desk.engine.refund_hold(id, 1).block().unwrap()
                        }
                    };
                    charged.fetch_add(units, Ordering::Relaxed);
                }
            });
        }
    });
    let charged = charged.into_inner();
    assert_eq!(charged, THREADS * 125 * (1 + 5 + 1));
    assert_eq!((desk.left(ADA, "a"), desk.left(ADA, "b")), (100_000 - charged, 100_000 - charged));
}

pub(super) fn edits_lose_nothing(make: Make<'_>) {
    let policy = |max: u64| {
        read(&format!(
            "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nwindow = {{ max = {max}, per = \"1h\" }}\n\
             [[rule]]\nname = \"b\"\nbucket = {{ rate = \"{max}/day\", burst = {max} }}"
        ))
    };
    let desk =
        TestEngine::new(make, "[[rule]]\nname = \"none\"\nwindow = { max = 1, per = \"1s\" }");
    desk.engine.edit("test", Edit::policy(policy(1_000_000))).block().unwrap();
    let admitted = AtomicU64::new(0);
    let is_over = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut max = 1_000_000;
            while is_over.load(Ordering::Relaxed) < THREADS - 1 {
                max = if max == 1_000_000 { 2_000_000 } else { max + 1 };
                desk.engine.edit("test", Edit::policy(policy(max))).block().unwrap();
                // Each edit makes the history longer, so there are fewer than decisions.
                let before = admitted.load(Ordering::Relaxed);
                while admitted.load(Ordering::Relaxed) < before + 4
                    && is_over.load(Ordering::Relaxed) < THREADS - 1
                {
                    thread::yield_now();
                }
            }
        });
        for number in 0..THREADS - 1 {
            let (desk, admitted, is_over) = (&desk, &admitted, &is_over);
            scope.spawn(move || {
                for step in 0..1_500 {
                    let user = format!("user-{}", (step + number) % 3);
                    if desk.allows(&[("user", &user)], 1) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
                is_over.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    let admitted = admitted.into_inner();
    assert_eq!(admitted, (THREADS - 1) * 1_500);
    desk.engine.edit("test", Edit::policy(policy(1_000_000))).block().unwrap();
    let users = ["user-0", "user-1", "user-2"];
    let spent: u64 = users.iter().map(|user| 1_000_000 - desk.left(&[("user", user)], "a")).sum();
    assert_eq!(spent, admitted);
    assert_eq!(desk.left(&[("user", "user-0")], "b"), 1_000_000 - admitted);
}

/// Every thread uses every key, so each key is inserted by several of them at once.
pub(super) fn new_keys_while_it_grows(make: Make<'_>) {
    let policy = "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nwindow = { max = 3, per = \"1h\" }\n\
                  [[rule]]\nname = \"b\"\nkey = [\"user\"]\nsliding = { max = 2, per = \"1h\" }";
    let desk = TestEngine::new(make, policy);
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (desk, admitted) = (&desk, &admitted);
            scope.spawn(move || {
                for step in 0..400 {
                    let name = if number % 2 == 0 { step } else { 399 - step };
                    let user = name.to_string();
                    if desk.allows(&[("user", &user)], 1) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 2 * 400);
    assert_eq!(desk.engine.len(), 2 * 400);
}
