//! How a thread sleeps where a task would return to its executor.

use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use super::sync::{Condvar, Mutex, Woken, lock, sleep_on};

/// One thread's bed. A ring that comes before the thread lies down is kept.
pub(super) struct Parker {
    rung: Mutex<bool>,
    waker: Condvar,
}

impl Parker {
    pub(super) fn new() -> Self {
        Self { rung: Mutex::new(false), waker: Condvar::new() }
    }

    /// Sleeps until it is rung, at most for `timeout`.
    pub(super) fn park(&self, timeout: Option<Duration>) -> Woken {
        let mut rung = lock(&self.rung);
        if !*rung {
            // Waking too early is harmless: the caller looks at the list again.
            let slept = sleep_on(&self.waker, rung, timeout);
            rung = slept.guard;
            if !*rung {
                return slept.woken;
            }
        }
        *rung = false;
        Woken::Early
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.rung) = true;
        self.waker.notify_one();
    }
}
