//! The conformance suite, on every kind of server.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::store::SharedStore;
use tidegate::testing;
use tidegate_redis_servers::{Cluster, Program, Server};

use crate::cluster::url;
use crate::support::builder;

static STORES: AtomicU64 = AtomicU64::new(0);

/// A store in a namespace of its own. The suite's clocks stand still, so nothing may expire.
fn make(server: &Server) -> SharedStore {
    make_at(&server.url())
}

fn make_at(url: &str) -> SharedStore {
    store_at(url, STORES.fetch_add(1, Ordering::Relaxed))
}

fn store_at(url: &str, number: u64) -> SharedStore {
    builder(url)
        .namespace(&format!("t{number}"))
        .deadline(Duration::from_secs(60))
        .edit_lead(Duration::from_millis(1))
        .kept_longer(Duration::from_secs(24 * 3_600))
        .build()
        .unwrap()
        .store()
}

#[test]
fn it_conforms_on_valkey() {
    let server = Server::start(Program::Valkey9);
    testing::conformance(|| make(&server));
}

#[test]
fn it_conforms_on_redis() {
    let server = Server::start(Program::Redis7);
    testing::conformance(|| make(&server));
}

#[test]
fn it_conforms_in_a_cluster() {
    let cluster = Cluster::start(Program::Valkey9);
    testing::conformance(|| make_at(&url(&cluster)));
}

#[test]
fn what_is_shared_conforms() {
    let server = Server::start(Program::Valkey9);
    testing::shared_conformance(|| {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        [(); 2].map(|()| store_at(&server.url(), number))
    });
}

#[test]
fn it_passes_the_vectors() {
    let server = Server::start(Program::Valkey9);
    pass_vectors(|| make(&server));
}

#[test]
fn it_passes_the_vectors_in_a_cluster() {
    let cluster = Cluster::start(Program::Redis7);
    pass_vectors(|| make_at(&url(&cluster)));
}

fn pass_vectors(make: impl Fn() -> SharedStore) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-core/vectors");
    for name in ["bucket", "window", "sliding", "cooldown", "quota"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        assert!(testing::vectors(&make, &text) > 0, "{name}");
    }
}
