//! Many threads on one disk that crashes: everything acknowledged is there, and nothing that was
//! not requested.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate::durable::{FileOptions, Filter};
use tidegate::policy::Policy;
use tidegate::testing::{CrashDisk, Dice};
use tidegate::{Request, StoreEngine, Timestamp, clock::ManualClock};

const USERS: [&str; 3] = ["ada", "bob", "eve"];
const THREADS: u64 = 6;

fn open(disk: &CrashDisk, size: u64) -> StoreEngine {
    let policy = Policy::from_toml(
        "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nquota = { max = 100000, per = \"day\" }\n\
         [[rule]]\nname = \"all\"\nquota = { max = 100000, per = \"day\" }",
    );
    let options = FileOptions::default().max_keys(1_000).snapshot_every(size).fill_ahead(500);
    let store = options.open_on(Arc::new(disk.clone())).unwrap();
    StoreEngine::builder(policy.unwrap())
        .store(store)
        .clock(ManualClock::new(Timestamp::from_secs(1_000_000)))
        .build()
        .unwrap()
}

/// What a user has used, and all of them together.
fn used(engine: &StoreEngine, user: &str) -> (u64, u64) {
    let report = engine.peek(&Request::new("default", &[("user", user)]).cost(0)).block().unwrap();
    let left: Vec<u64> = report.rules().map(|it| it.decision.remaining()).collect();
    (100_000 - left[0], 100_000 - left[1])
}

/// Reserves, commits and checks until the disk dies; counts what was acknowledged and what was
/// sent.
fn work(engine: &StoreEngine, seed: u64, sums: &[[AtomicU64; 2]; 3]) {
    let mut dice = Dice::new(seed);
    loop {
        let user = dice.below(3) as usize;
        let (acknowledged, sent) = (&sums[user][0], &sums[user][1]);
        let cost = 1 + dice.below(3);
        let attributes = [("user", USERS[user])];
        let request = Request::new("default", &attributes).cost(cost);
        sent.fetch_add(cost, Ordering::SeqCst);
        if dice.once_in(2) {
            if engine.check(&request).block().unwrap().is_outage() {
                return;
            }
        } else {
            let report = engine.hold(&request).block().unwrap();
            let Some(hold) = report.hold() else { return };
            // It may fail, and then it is still held, or used.
            if engine.commit(hold, None).block().is_err() {
                acknowledged.fetch_add(cost, Ordering::SeqCst);
                return;
            }
        }
        acknowledged.fetch_add(cost, Ordering::SeqCst);
    }
}

#[test]
fn acknowledged_operations_of_all_threads_survive_a_crash() {
    for seed in 0..40 {
        let disk = CrashDisk::new();
        let engine = open(&disk, 3_000);
        let sums: [[AtomicU64; 2]; 3] = Default::default();
        disk.die_at(disk.calls() + 20 + 7 * seed);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (engine, sums) = (&engine, &sums);
                scope.spawn(move || work(engine, seed * 100 + number, sums));
            }
        });
        drop(engine);
        for crash in 0..4 {
            let after = open(&disk.crash(crash), 3_000);
            let mut all = 0;
            for (user, sums) in USERS.iter().zip(&sums) {
                let (used, of_all) = used(&after, user);
                let [acknowledged, sent] = [&sums[0], &sums[1]].map(|it| it.load(Ordering::SeqCst));
                assert!(
                    (acknowledged..=sent).contains(&used),
                    "{seed}: {acknowledged} {used} {sent}"
                );
                let totals = after.ledger().unwrap().totals(&Filter::new().key("user", user));
                let totals = totals.unwrap();
                assert_eq!(totals.committed + totals.held, used, "{seed}: {totals:?}");
                all += used;
                if *user == "eve" {
                    assert_eq!(all, of_all, "{seed}: all rules or none");
                }
            }
        }
    }
}
