//! The store in memory does what every store has to do.

use std::path::Path;

use tidegate::{WhenFull, store::MemoryStore, testing};

fn make() -> MemoryStore {
    MemoryStore::new(10_000, WhenFull::Share).unwrap()
}

#[test]
fn memory_conforms() {
    testing::conformance(make);
}

#[test]
fn memory_conforms_when_full_denies() {
    testing::conformance(|| MemoryStore::new(1_000, WhenFull::Deny).unwrap());
}

#[test]
fn memory_passes_the_vectors_of_the_core() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-core/vectors");
    // Most quotas of the core have periods of a second, which no calendar has.
    for (name, least) in
        [("bucket", 8), ("window", 8), ("sliding", 8), ("cooldown", 8), ("quota", 1)]
    {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let cases = testing::vectors(make, &text);
        assert!(cases >= least, "only {cases} of {name}");
    }
}
