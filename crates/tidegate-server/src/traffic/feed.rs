//! The events that open pages of the dashboard get: one each second, the same for all of them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The newest event, for all who follow it. One that is slow misses some.
#[derive(Debug)]
pub(crate) struct Feed {
    newest: watch::Sender<Bytes>,
    permits: Arc<Semaphore>,
}

/// One that follows the events.
#[derive(Debug)]
pub(crate) struct Follower {
    newest: watch::Receiver<Bytes>,
    /// Held until it ends.
    _permit: OwnedSemaphorePermit,
}

impl Default for Feed {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(MOST_FOLLOWERS));
        Self { newest: watch::Sender::new(Bytes::new()), permits }
    }
}

impl Feed {
    /// Publishes an event.
    pub(crate) fn publish(&self, event: Bytes) {
        self.newest.send_replace(event);
    }

    /// Whether any page follows.
    pub(crate) fn is_followed(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// Follows from the next event on; `None` if too many do.
    pub(crate) fn follow(&self) -> Option<Follower> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(Follower { newest: self.newest.subscribe(), _permit: permit })
    }
}

impl Follower {
    /// The next event; `None` when there are no more.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.newest.changed().await.ok()?;
        Some(self.newest.borrow_and_update().clone())
    }
}

/// How many pages may follow at a time.
const MOST_FOLLOWERS: usize = 32;
