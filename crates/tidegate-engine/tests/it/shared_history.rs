//! How long the history of the limits is that engines share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::store::{Listing, RecordKey, RecordStore, Records, SharedStore, Step, Transaction};
use tidegate::{Edit, Request, StoreEngine, Timestamp, clock::ManualClock};

/// Records in a map: one transaction at a time.
#[derive(Debug, Default)]
struct Map(Mutex<HashMap<RecordKey, Arc<[u8]>>>);

impl Map {
    /// The size of the record with the policy and the history.
    fn control_bytes(&self) -> usize {
        self.0.lock().unwrap().get(&RecordKey::control()).map_or(0, |it| it.len())
    }
}

impl RecordStore for Map {
    fn run(&self, mut transaction: Transaction) {
        let mut map = self.0.lock().unwrap();
        let mut records = Records::default();
        let mut keys = transaction.first_reads().to_vec();
        loop {
            for key in keys {
                records.insert(key, map.get(&key).cloned());
            }
            match transaction.step(&records) {
                Step::Read(more) => keys = more,
                Step::Write(writes) => {
                    for write in writes {
                        match write.value {
                            Some(value) => map.insert(write.key, value),
                            None => map.remove(&write.key),
                        };
                    }
                    break;
                }
                Step::Done => break,
            }
        }
        drop(map);
        transaction.complete();
    }

    fn states(&self, _from: u64) -> Listing {
        let keys: Vec<RecordKey> =
            self.0.lock().unwrap().keys().copied().filter(RecordKey::is_state).collect();
        Box::pin(async { Ok((keys, 0)) })
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A policy of two rules, one of which has this maximum.
fn policy(max: u64) -> Policy {
    let text = format!(
        "[[rule]]\nname = \"edited\"\ndomain = \"edited\"\nkey = [\"user\"]\n\
         bucket = {{ rate = \"1/h\", burst = {max} }}\n\
         [[rule]]\nname = \"carries\"\ndomain = \"carries\"\nkey = [\"user\"]\n\
         quota = {{ max = {max}, per = \"day\", carry = \"all\" }}\n"
    );
    Policy::from_toml(&text).unwrap()
}

#[test]
fn versions_that_no_state_counts_under_are_forgotten_and_states_stay_exact() {
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let map = Arc::new(Map::default());
    let store = SharedStore::new(Arc::clone(&map), b"a secret");
    let shared =
        StoreEngine::builder(policy(100)).store(store).clock(clock.clone()).build().unwrap();
    let memory = StoreEngine::builder(policy(100)).clock(clock.clone()).build().unwrap();
    let left = |domain: &str, user: &str| {
        let attributes = [("user", user)];
        let request = Request::new(domain, &attributes).cost(0);
        let of = [
            shared.peek(&request).block().unwrap().remaining(),
            memory.peek(&request).block().unwrap().remaining(),
        ];
        assert_eq!(of[0], of[1], "{domain} {user}");
    };
    let charge = |domain: &str, user: &str| {
        let attributes = [("user", user)];
        let request = Request::new(domain, &attributes).cost(7);
        let allowed = [
            shared.check(&request).block().unwrap().is_allowed(),
            memory.check(&request).block().unwrap().is_allowed(),
        ];
        assert_eq!(allowed[0], allowed[1], "{domain} {user}");
    };
    charge("edited", "ada");
    // Its state counts under the first version for good.
    charge("carries", "eve");
    let mut of_400_edits = 0;
    for edit in 0..1_300_u64 {
        let policy = policy(100 + edit % 13);
        shared.edit("test", Edit::policy(policy.clone())).block().unwrap();
        memory.edit("test", Edit::policy(policy)).block().unwrap();
        if edit == 399 {
            of_400_edits = map.control_bytes();
        }
        if edit % 100 == 0 {
            clock.advance(Duration::from_secs(5 * 3_600));
            charge("edited", "ada");
            charge("edited", "bob");
        }
    }
    // Nothing waits for it, so it may come a little later.
    let whole = of_400_edits * 3;
    let is_shorter = || map.control_bytes() < whole * 3 / 4;
    assert!((0..10_000_000).any(|_| is_shorter()), "{} of {whole}", map.control_bytes());
    for (domain, user) in [("edited", "ada"), ("edited", "bob"), ("carries", "eve")] {
        left(domain, user);
        charge(domain, user);
        left(domain, user);
    }
    // Another engine reads the shorter history.
    let store = SharedStore::new(Arc::clone(&map), b"a secret");
    let other =
        StoreEngine::builder(policy(100 + 1_299 % 13)).store(store).clock(clock).build().unwrap();
    let request = Request::new("carries", &[("user", "eve")]).cost(0);
    let eve = memory.peek(&request).block().unwrap().remaining();
    assert_eq!(other.peek(&request).block().unwrap().remaining(), eve);
}
