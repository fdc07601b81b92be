use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::durable::{Disk, DiskFile, FileOptions, Folder};
use tidegate::{StoreEngine, clock::ManualClock};

use super::{log, message, pass, three};
use crate::message_limiter::{Claimed, MessageLimiter};

/// A folder on a disk that can be full.
#[derive(Debug)]
struct Limited {
    folder: Folder,
    path: PathBuf,
    is_full: Arc<AtomicBool>,
}

/// A file on that disk.
#[derive(Debug)]
struct LimitedFile {
    file: Box<dyn DiskFile>,
    is_full: Arc<AtomicBool>,
}

impl Limited {
    fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-webhook-disk-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        Self { folder: Folder::own(&path).unwrap(), path, is_full: Arc::default() }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // A failure only leaves temporary files behind.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Disk for Limited {
    fn names(&self) -> io::Result<Vec<String>> {
        self.folder.names()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.folder.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let (file, is_full) = (self.folder.create(name)?, Arc::clone(&self.is_full));
        Ok(Box::new(LimitedFile { file, is_full }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        self.folder.cut(name, len)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.folder.sync_names()
    }
}

impl DiskFile for LimitedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

fn storage() -> (MessageLimiter, StoreEngine, Arc<AtomicBool>) {
    let disk = Limited::new();
    let is_full = Arc::clone(&disk.is_full);
    let store = FileOptions::default().open_on(Arc::new(disk)).unwrap();
    let engine = StoreEngine::builder(three().policy().unwrap())
        .store(store)
        .clock(ManualClock::default())
        .build()
        .unwrap();
    (MessageLimiter::new(engine.clone()), engine, is_full)
}

#[tokio::test]
async fn outage_of_the_store_allows_messages_and_is_logged() {
    let (limiter, engine, is_full) = storage();
    let (log, _guard) = log::begun();
    assert_eq!(pass(&limiter, message(7, 1)).await, Some(2));
    assert_eq!(log.text(), "");
    is_full.store(true, Ordering::SeqCst);
    for update_id in 2..10 {
        let checked = limiter.check(&message(7, update_id)).await;
        assert_eq!((checked.allowed, checked.remaining), (true, None));
        assert_eq!(limiter.claim(checked).await, Claimed::First);
    }
    let text = log.text();
    let warnings = text.lines().filter(|line| {
        line.contains("WARN") && line.contains("message allowed without being counted: store")
    });
    assert_eq!(warnings.count(), 8, "{text}");
    is_full.store(false, Ordering::SeqCst);
    engine.file_store().unwrap().wait_until_it_works();
    assert_eq!(pass(&limiter, message(7, 10)).await, Some(1), "only written charges count");
}

#[tokio::test]
async fn outage_between_check_and_claim_allows_the_message() {
    let (limiter, engine, is_full) = storage();
    let (log, _guard) = log::begun();
    let checked = limiter.check(&message(7, 1)).await;
    is_full.store(true, Ordering::SeqCst);
    assert_eq!(limiter.claim(checked).await, Claimed::First);
    assert!(log.text().contains("message allowed; it may not be counted: "), "{}", log.text());
    is_full.store(false, Ordering::SeqCst);
    engine.file_store().unwrap().wait_until_it_works();
    assert_eq!(pass(&limiter, message(7, 2)).await, Some(1));
}

/// The same guarantees on disk.
#[tokio::test]
async fn duplicate_message_is_claimed_once_on_disk() {
    let disk = Limited::new();
    let path = disk.path.clone();
    drop(disk);
    let clock = ManualClock::default();
    let opened = || {
        let store = FileOptions::default().open(&path).unwrap();
        MessageLimiter::new(
            StoreEngine::builder(three().policy().unwrap())
                .store(store)
                .clock(clock.clone())
                .build()
                .unwrap(),
        )
    };
    let limiter = opened();
    assert_eq!(pass(&limiter, message(7, 1)).await, Some(2));
    // Held, and never claimed.
    assert!(limiter.check(&message(7, 2)).await.allowed);
    drop(limiter);
    let limiter = opened();
    assert_eq!(pass(&limiter, message(7, 1)).await, None, "after a restart, too");
    assert_eq!(pass(&limiter, message(7, 2)).await, Some(1), "it finds its hold");
    assert_eq!(pass(&limiter, message(7, 3)).await, Some(0));
    assert_eq!(pass(&limiter, message(7, 4)).await, None);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(pass(&limiter, message(7, 5)).await, Some(2));
    drop(limiter);
    std::fs::remove_dir_all(&path).unwrap();
}
