//! The conformance suite, on every kind of server.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::shared::SharedStore;
use tidegate::testing;
use tidegate_redis::Redis;

static STORES: AtomicU64 = AtomicU64::new(0);

fn make(url: &str) -> SharedStore {
    let number = STORES.fetch_add(1, Ordering::Relaxed);
    Redis::builder(url)
        .namespace(&format!("t{}-{number}", std::process::id()))
        .secret("a secret")
        .deadline(Duration::from_secs(5))
        .edit_lead(Duration::from_millis(1))
        .kept_longer(Duration::from_secs(24 * 3_600))
        .build()
        .unwrap()
        .store()
}

#[test]
fn it_conforms_on_valkey() {
    if let Ok(only) = std::env::var("ONLY") {
        for it in testing::scenarios::<SharedStore>().iter().filter(|it| it.name.contains(&only)) {
            (it.run)(&|| make("redis://127.0.0.1:7701"));
        }
        return;
    }
    testing::conformance(|| make("redis://127.0.0.1:7701"));
}

#[test]
fn it_conforms_on_redis() {
    testing::conformance(|| make("redis://127.0.0.1:7702"));
}

#[test]
fn it_passes_the_vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-core/vectors");
    for name in ["bucket", "window", "sliding", "cooldown", "quota"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        assert!(testing::vectors(|| make("redis://127.0.0.1:7701"), &text) > 0, "{name}");
    }
}
