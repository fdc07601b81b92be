//! The queue of messages to one client, bounded in messages and in bytes.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The sending end of a client's queue. It never blocks.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<QueuedEnvelope>,
    /// Bytes that may still be queued for this client.
    own_room: Arc<Semaphore>,
    /// Bytes that may still be queued for all clients.
    shared_room: Arc<Semaphore>,
}

/// The receiving end of the queue, for the client's own task.
pub(crate) type OutboxReceiver = mpsc::Receiver<QueuedEnvelope>;

/// A queued envelope. Dropping it frees its room.
#[derive(Debug)]
pub(crate) struct QueuedEnvelope {
    pub(crate) bytes: Bytes,
    _own_room: OwnedSemaphorePermit,
    _shared_room: OwnedSemaphorePermit,
}

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutboxBounds {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// The queue is full because its client reads slowly, or the client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutboxFull;

/// A queue for one client.
pub(crate) fn outbox(
    capacity: OutboxBounds,
    shared_room: Arc<Semaphore>,
) -> (Outbox, OutboxReceiver) {
    let (queue, waiting) = mpsc::channel(capacity.messages);
    (Outbox { queue, own_room: Arc::new(Semaphore::new(capacity.bytes)), shared_room }, waiting)
}

impl Outbox {
    /// Queues a copy of an envelope, if there is room.
    ///
    /// A copy, because the original may be a small part of a large buffer that it keeps alive.
    pub(crate) fn offer(&self, envelope: &[u8]) -> Result<(), OutboxFull> {
        let size = u32::try_from(envelope.len()).map_err(|_| OutboxFull)?;
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(size);
        let parcel = QueuedEnvelope {
            _own_room: take(&self.own_room).map_err(|_| OutboxFull)?,
            _shared_room: take(&self.shared_room).map_err(|_| OutboxFull)?,
            bytes: Bytes::copy_from_slice(envelope),
        };
        self.queue.try_send(parcel).map_err(|_| OutboxFull)
    }
}

#[cfg(test)]
mod tests;
