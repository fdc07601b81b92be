//! The locks and threads of the waiting list: std's, or shuttle's when the list is model-checked.

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

/// Locks a mutex. An attempt that panics under a lock has changed nothing of what the lock guards,
/// so poison is no reason to stop.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Somebody rang, or nobody knows why.
    Early,
    /// The time is over.
    TimedOut,
}

/// Sleeps until somebody rings, at most for `timeout`. In the model no time passes by itself.
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

/// The lock, taken again after a sleep.
pub(super) struct Slept<'a, T> {
    pub(super) guard: MutexGuard<'a, T>,
    pub(super) woken: Woken,
}

/// A mark that this thread is inside an attempt, which holds a lock of the list.
///
/// The model has many threads on one of the system's, so there it marks nothing.
pub(super) struct Attempting(());

impl Attempting {
    pub(super) fn begin() -> Self {
        mark(true);
        Self(())
    }

    /// Stops a call of the list that would wait for its own thread for ever.
    pub(super) fn assert_not() {
        #[cfg(not(shuttle))]
        assert!(
            !ATTEMPTING.get(),
            "an attempt must not call the waiting list, nor drop anything that does"
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
