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

/// Stays away from a line that another thread has just written, for as long as that thread takes
/// for a few more decisions. Call it without a locked line.
///
/// Two cores that take a line from each other for every decision wait for its transfer most of the
/// time. A core that lost the line, and does not ask for it for a moment, leaves it to the other
/// for several decisions, and then has it for several of its own.
///
/// `losses` is how often this decision has lost the line before: it stays away for longer each
/// time, and from the third on with pauses, which leave a core to its other thread.
#[cold]
#[inline(never)]
pub fn give_way(losses: u32) {
    #[cfg(not(loom))]
    match losses {
        0 | 1 => spin(SPINS_AFTER_LOSS << losses),
        _ => pause(PAUSES << losses.min(MOST_DOUBLINGS)),
    }
    #[cfg(loom)]
    let _ = losses;
}

/// Waits while another thread holds a lock for a few instructions.
///
/// First without a pause, which takes up to 140 cycles on some processors, and longer each time;
/// then with pauses. The holder may have been descheduled, so a long wait yields the processor.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    waits: u32,
}

impl Backoff {
    #[cold]
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        {
            match self.waits {
                0..WAITS_BEFORE_PAUSE => spin(FIRST_SPINS << self.waits),
                WAITS_BEFORE_PAUSE..WAITS_BEFORE_YIELD => pause(PAUSES),
                _ => std::thread::yield_now(),
            }
            self.waits = self.waits.saturating_add(1);
        }
    }
}

/// Takes about a cycle of the processor for each time, and reads no memory that others write.
#[cfg(not(loom))]
fn spin(times: u32) {
    // Without optimisation each takes some thirty times as long.
    let times = if cfg!(debug_assertions) { times / 32 } else { times };
    (0..times).for_each(|time| {
        std::hint::black_box(time);
    });
}

#[cfg(not(loom))]
fn pause(times: u32) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// Some 300 ns.
#[cfg(not(loom))]
const SPINS_AFTER_LOSS: u32 = 1024;
#[cfg(not(loom))]
const MOST_DOUBLINGS: u32 = 5;
/// About as long as a line is locked for one decision.
#[cfg(not(loom))]
const FIRST_SPINS: u32 = 16;
#[cfg(not(loom))]
const WAITS_BEFORE_PAUSE: u32 = 6;
#[cfg(not(loom))]
const WAITS_BEFORE_YIELD: u32 = 20;
#[cfg(not(loom))]
const PAUSES: u32 = 8;
