//! The store on disk does what every store has to do.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::durable::{FileOptions, FileStore};
use tollgate::policy::Durability;
use tollgate::{WhenFull, testing};

/// A folder of its own for every store, removed at the end.
struct Folders {
    base: PathBuf,
    made: AtomicU64,
}

impl Folders {
    fn new(name: &str) -> Self {
        let base = std::env::temp_dir().join(format!("tollgate-{name}-{}", std::process::id()));
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
fn files_conform() {
    let folders = Folders::new("conform");
    testing::conformance(|| folders.store(Durability::Memory));
}

#[test]
fn files_conform_when_everything_is_kept() {
    let folders = Folders::new("conform-flush");
    testing::conformance(|| folders.store(Durability::Flush));
}
