//! The store on disk does what every store has to do.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::durable::{FileOptions, FileStore};
use tidegate::policy::{Durability, Policy};
use tidegate::{Request, StoreEngine, WhenFull, clock::ManualClock, testing};

/// A folder of its own for every store, removed at the end.
struct Folders {
    base: PathBuf,
    made: AtomicU64,
}

impl Folders {
    fn new(name: &str) -> Self {
        let base = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        Self { base, made: AtomicU64::new(0) }
    }

    fn store(&self, least: Durability) -> FileStore {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let options = FileOptions::default().max_keys(10_000).when_full(WhenFull::Share);
        options.least_durability(least).open(&self.base.join(number.to_string())).unwrap()
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

#[test]
fn file_store_conforms() {
    let folders = Folders::new("conform");
    testing::conformance(|| folders.store(Durability::Memory));
}

#[test]
fn file_store_conforms_when_everything_is_durable() {
    let folders = Folders::new("conform-flush");
    testing::conformance(|| folders.store(Durability::Flush));
}

/// The first commit takes effect; after a restart it is not repeated.
#[test]
fn reservations_that_no_rule_limits_are_durable_when_everything_is() {
    let folders = Folders::new("unlimited");
    let policy = Policy::from_toml(
        r#"
        [[rule]]
        name     = "messages"
        key      = ["user"]
        window   = { max = 1, per = "1h" }
        override = [{ key = { user = "ada" }, unlimited = true }]
        "#,
    );
    let (policy, clock) = (policy.unwrap(), ManualClock::default());
    let opened = || {
        let options = FileOptions::default().least_durability(Durability::Flush);
        let store = options.open(&folders.base.join("kept")).unwrap();
        StoreEngine::builder(policy.clone()).store(store).clock(clock.clone()).build().unwrap()
    };
    let open = Request::new("default", &[("user", "ada")]).idempotency_key("open");
    let done = open.idempotency_key("done");
    let engine = opened();
    let hold = |engine: &StoreEngine, request| engine.hold(request).block().unwrap().hold();
    let (open_hold, done_hold) = (hold(&engine, &open), hold(&engine, &done));
    assert!(engine.commit(done_hold.unwrap(), None).block().is_ok());
    drop(engine);
    let engine = opened();
    assert_eq!((hold(&engine, &open), hold(&engine, &done)), (open_hold, done_hold));
    assert!(engine.commit(open_hold.unwrap(), None).block().is_ok());
    assert!(engine.commit(done_hold.unwrap(), None).block().is_ok(), "the same again");
}
