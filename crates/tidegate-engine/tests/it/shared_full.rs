//! A shared store that has as many records as it may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::store::{RecordStore, SharedStore};
use tidegate::testing::{DelayedRecords, RecordFaults};
use tidegate::{Request, StoreEngine, Timestamp, WhenFull, clock::ManualClock, store::StoreBounds};

const MAX_KEYS: usize = 32;

/// Limits of all kinds, each with three units for a user; a cooldown has one.
const KINDS: [(&str, u64); 4] = [
    ("bucket = { rate = \"3/h\", burst = 3 }", 3),
    ("window = { max = 3, per = \"1h\" }", 3),
    ("sliding = { max = 3, per = \"1h\", parts = 4 }", 3),
    ("cooldown = \"1h\"", 1),
];

type TestEngine = StoreEngine;

fn policy() -> String {
    let rule = |(kind, (limit, _)): (usize, &(&str, u64))| {
        format!("[[rule]]\nname = \"r\"\ndomain = \"d{kind}\"\nkey = [\"user\"]\n{limit}\n")
    };
    KINDS.iter().enumerate().map(rule).collect()
}

fn engines(records: &Arc<DelayedRecords>, clock: &ManualClock) -> Vec<TestEngine> {
    let engine = |_| {
        let bounds = StoreBounds::new(MAX_KEYS, WhenFull::Share);
        let store = SharedStore::new(Arc::clone(records), b"a secret").bounds(bounds);
        let builder = StoreEngine::builder(Policy::from_toml(&policy()).unwrap());
        builder.store(store).clock(clock.clone()).build().unwrap()
    };
    (0..2).map(engine).collect()
}

/// Charges users of all kinds from several threads; returns what each was allowed.
fn load(engines: &[TestEngine], users: usize) -> HashMap<(usize, usize), u64> {
    let allowed = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (engine, allowed) = (&engines[number % 2], &allowed);
            scope.spawn(move || {
                for turn in 0..users * 4 {
                    let (user, kind) = ((turn * 7 + number * 3) % users, turn % KINDS.len());
                    let (name, domain) = (format!("u{user}"), format!("d{kind}"));
                    let attributes = [("user", &*name)];
                    let report = engine.check(&Request::new(&domain, &attributes)).block().unwrap();
                    let is_counted = report.is_allowed() && !report.is_outage();
                    *allowed.lock().unwrap().entry((kind, user)).or_insert(0) +=
                        u64::from(is_counted);
                }
            });
        }
    });
    allowed.into_inner().unwrap()
}

fn assert_within(allowed: &HashMap<(usize, usize), u64>) {
    for ((kind, user), count) in allowed {
        assert!(*count <= KINDS[*kind].1, "{count} of user {user}: {}", KINDS[*kind].0);
    }
}

#[test]
fn keys_that_share_states_are_never_admitted_too_often_by_any_kind_of_limit() {
    for (seed, faults) in [(1, RecordFaults::default()), (2, RecordFaults::each(20))] {
        let records = Arc::new(DelayedRecords::with_faults(seed, faults));
        let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
        let engines = engines(&records, &clock);
        let mut allowed = load(&engines, 40);
        assert_within(&allowed);
        let before = records.len();
        assert!(before >= MAX_KEYS);
        // Most of these are new, and share what there is. No time has passed.
        for (key, count) in load(&engines, 400) {
            *allowed.entry(key).or_insert(0) += count;
        }
        assert_within(&allowed);
        let cells = MAX_KEYS / 8;
        assert!(records.len() <= before + cells, "{} records, {before} before", records.len());
        // After that time every key is as good as new.
        clock.advance(Duration::from_secs(2 * 3_600));
        let allowed = load(&engines, 8);
        assert_within(&allowed);
        assert!(allowed.values().sum::<u64>() > 0);
    }
}

#[test]
fn a_key_shows_what_it_shares() {
    let records = Arc::new(DelayedRecords::new(3));
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let engines = engines(&records, &clock);
    let _ = load(&engines, 40);
    for kind in 0..KINDS.len() {
        let domain = format!("d{kind}");
        for user in 0..200 {
            let name = format!("late-{user}");
            let attributes = [("user", &*name)];
            let request = Request::new(&domain, &attributes);
            let peeked = engines[1].peek(&request).block().unwrap().is_allowed();
            let allowed = engines[0].check(&request).block().unwrap().is_allowed();
            assert_eq!(peeked, allowed, "{domain} {name}");
        }
    }
}
