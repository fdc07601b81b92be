use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A counter that threads add to without sharing a cache line, while there are few threads.
#[derive(Debug, Default)]
pub(crate) struct ShardedCounter {
    shards: [Shard; SHARDS],
}

/// A part of the counter, with two cache lines for itself: some processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

impl ShardedCounter {
    pub(crate) fn add(&self, count: u64) {
        self.shards[shard()].0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        let counts = self.shards.iter().map(|shard| shard.0.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

/// The shard of this thread: threads get them in turn.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        own.get()
    })
}

/// As many as a large machine has threads that serve requests; more threads share.
const SHARDS: usize = 16;
