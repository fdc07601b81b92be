//! The calls of a connection: detects connections without any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of calls that were begun, and ended.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    /// Counts a call, which ends when the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenCall {
        self.begun.fetch_add(1, Ordering::Relaxed);
        OpenCall(Arc::clone(self))
    }

    /// Waits until there was no call for this long, or up to a quarter longer.
    pub(crate) async fn idle_for(&self, time: Duration) {
        let mut ticks = tokio::time::interval((time / TICKS).max(Duration::from_millis(1)));
        let (mut before, mut idle_ticks) = (0, 0);
        while idle_ticks <= TICKS {
            ticks.tick().await;
            let ended = self.ended.load(Ordering::Relaxed);
            let is_idle = ended == before && self.begun.load(Ordering::Relaxed) == ended;
            idle_ticks = if is_idle { idle_ticks + 1 } else { 0 };
            before = ended;
        }
    }
}

/// A call that has not ended.
#[derive(Debug)]
pub(crate) struct OpenCall(Arc<Calls>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks within the time of [`Calls::idle_for`].
const TICKS: u32 = 4;
