//! How a thread sleeps in a blocking wait.

use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use super::sync::{Condvar, Mutex, Woken, lock, sleep_on};

/// Parks one thread. A wake-up that comes before the thread sleeps is kept.
pub(super) struct Parker {
    is_woken: Mutex<bool>,
    waker: Condvar,
}

impl Parker {
    pub(super) fn new() -> Self {
        Self { is_woken: Mutex::new(false), waker: Condvar::new() }
    }

    /// Sleeps until it is woken, at most for `timeout`.
    pub(super) fn park(&self, timeout: Option<Duration>) -> Woken {
        let mut is_woken = lock(&self.is_woken);
        if !*is_woken {
            // Waking too early is harmless: the caller checks the queue again.
            let slept = sleep_on(&self.waker, is_woken, timeout);
            is_woken = slept.guard;
            if !*is_woken {
                return slept.woken;
            }
        }
        *is_woken = false;
        Woken::Early
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.waker.notify_one();
    }
}
