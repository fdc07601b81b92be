//! The atomics of the table: std's, or loom's when the table is model-checked.

#![allow(unsafe_code, reason = "reads atomics plainly where a lock orders all writes")]

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

/// Whether a value that no other thread writes meanwhile is this one.
///
/// A plain read, which the compiler makes part of the comparison.
///
/// # Safety
///
/// No other thread may write it until this returns: the caller holds the lock that orders writes.
#[inline(always)]
pub(crate) unsafe fn is_u64(value: &AtomicU64, expected: u64) -> bool {
    #[cfg(not(loom))]
    // SAFETY: the pointer is valid, and by the contract there is no write at the same time.
    let value = unsafe { value.as_ptr().read() };
    #[cfg(loom)]
    // SAFETY: as above; loom checks it.
    let value = unsafe { value.unsync_load() };
    value == expected
}

/// [`is_u64`] for half as many bits.
///
/// # Safety
///
/// As [`is_u64`].
#[inline(always)]
pub(crate) unsafe fn is_u32(value: &AtomicU32, expected: u32) -> bool {
    #[cfg(not(loom))]
    // SAFETY: as in `is_u64`.
    let value = unsafe { value.as_ptr().read() };
    #[cfg(loom)]
    // SAFETY: as in `is_u64`.
    let value = unsafe { value.unsync_load() };
    value == expected
}

/// Locks a mutex, and ignores poisoning: no code that runs under the table's mutexes leaves data
/// half-changed when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits while another thread holds a lock for a few instructions.
///
/// First without a pause, which takes up to 140 cycles on some processors: longer than a line is
/// locked. The holder may have been descheduled, so a long wait yields the processor.
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
            if self.spins > SPINS_BEFORE_PAUSE {
                std::hint::spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(not(loom))]
const SPINS_BEFORE_PAUSE: u32 = 16;
#[cfg(not(loom))]
const SPINS_BEFORE_YIELD: u32 = 128;
