//! The locks and threads of the queues: std's, or shuttle's when the queues are model-checked.

use std::time::Duration;

#[cfg(not(shuttle))]
pub(super) use std::{
    sync::atomic::{AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(shuttle)]
pub(super) use shuttle::{
    sync::atomic::{AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

/// Locks a mutex, and ignores poisoning: an attempt that panics under a lock has not changed what
/// the lock guards.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// By a wake-up, or spuriously.
    Early,
    /// By the timeout.
    TimedOut,
}

/// Sleeps until a wake-up, at most for `timeout`. In the model no time passes by itself.
pub(super) fn sleep_on<'a, T>(
    waker: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Option<Duration>,
) -> Slept<'a, T> {
    let Some(timeout) = timeout else {
        let guard = waker.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        return Slept { guard, woken: Woken::Early };
    };
    let (guard, result) =
        waker.wait_timeout(guard, timeout).unwrap_or_else(|poisoned| poisoned.into_inner());
    Slept { guard, woken: if result.timed_out() { Woken::TimedOut } else { Woken::Early } }
}

/// The lock, locked again after a sleep.
pub(super) struct Slept<'a, T> {
    pub(super) guard: MutexGuard<'a, T>,
    pub(super) woken: Woken,
}

/// Marks that this thread is inside an attempt, which holds a lock of the queues.
///
/// The model runs many threads on one of the system's, so there it marks nothing.
pub(super) struct Attempting(());

impl Attempting {
    pub(super) fn begin() -> Self {
        mark(true);
        Self(())
    }

    /// Panics on a call of the queues that would deadlock.
    pub(super) fn assert_not() {
        #[cfg(not(shuttle))]
        assert!(
            !ATTEMPTING.get(),
            "an attempt must not call the wait queues, nor drop anything that does"
        );
    }
}

impl Drop for Attempting {
    fn drop(&mut self) {
        mark(false);
    }
}

#[cfg(not(shuttle))]
fn mark(attempting: bool) {
    ATTEMPTING.set(attempting);
}

#[cfg(shuttle)]
fn mark(_: bool) {}

#[cfg(not(shuttle))]
std::thread_local! {
    static ATTEMPTING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
