//! The atomics of the table: std's, or loom's when the table is model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, RwLock};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, RwLock};

/// Locks a mutex, and ignores poisoning: no code that runs under the table's mutexes leaves data
/// half-changed when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits while another thread holds a lock for a few instructions.
///
/// The holder may have been descheduled, so a long wait yields the processor.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    spins: u32,
}

impl Backoff {
    #[cold]
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.spins < SPINS_BEFORE_YIELD {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(not(loom))]
const SPINS_BEFORE_YIELD: u32 = 128;
