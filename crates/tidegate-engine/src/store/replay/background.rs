//! Work of a replay that nothing else waits for, on a thread of its own.

use std::panic;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Applies items to a value in the order in which they came: on a thread of its own, once there are
/// many of them.
///
/// The items of a small store are applied by the caller, and so are all of them if no thread may be
/// started, or none can. Dropping it waits for the thread.
#[derive(Debug)]
pub(in crate::store) struct Background<T, S> {
    threads: Threads,
    /// Items that were not handed over.
    batch: Vec<T>,
    apply: fn(&mut S, &mut Vec<T>),
    worker: Worker<T, S>,
}

/// Whether threads may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Threads {
    /// All is done by the caller.
    None,
    /// One for each piece of work that is large. They end with it.
    #[cfg(feature = "durable")]
    ForWork,
}

/// What applies the items.
#[derive(Debug)]
enum Worker<T, S> {
    Caller(S),
    Thread(Handover<T>, JoinHandle<Option<S>>),
    /// The value was taken out.
    Gone,
}

/// Batches on their way to the thread, and their memory on its way back.
#[derive(Debug)]
struct Handover<T> {
    batches: SyncSender<Vec<T>>,
    empty: Receiver<Vec<T>>,
}

impl<T: Send + 'static, S: Send + 'static> Background<T, S> {
    /// Applies items to a value by a function, which has to leave an empty list.
    pub(in crate::store) fn new(
        threads: Threads,
        value: S,
        apply: fn(&mut S, &mut Vec<T>),
    ) -> Self {
        Self { threads, batch: Vec::new(), apply, worker: Worker::Caller(value) }
    }

    /// Applies an item after all those before it.
    #[inline]
    pub(in crate::store) fn push(&mut self, item: T) {
        self.batch.push(item);
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }

    /// The value with all items applied.
    pub(in crate::store) fn finish(mut self) -> S {
        self.hand_over();
        match std::mem::replace(&mut self.worker, Worker::Gone) {
            Worker::Caller(value) => value,
            Worker::Thread(handover, thread) => {
                drop(handover);
                let value = thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
                value.unwrap_or_else(|| unreachable!("it was sent when the thread was started"))
            }
            Worker::Gone => unreachable!("it is taken out once, here"),
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        if self.batch.len() >= BATCH && self.threads != Threads::None {
            self.start_thread();
        }
        match &mut self.worker {
            Worker::Caller(value) => (self.apply)(value, &mut self.batch),
            Worker::Thread(handover, _) => {
                let empty = handover.empty.try_recv().unwrap_or_default();
                let batch = std::mem::replace(&mut self.batch, empty);
                // It fails if the thread has panicked: then `finish` does, too.
                let _ = handover.batches.send(batch);
            }
            Worker::Gone => {}
        }
    }

    /// Moves the value to a thread. If there is none, the caller keeps it.
    fn start_thread(&mut self) {
        let Worker::Caller(_) = self.worker else { return };
        let (apply, (batches, to_apply)) = (self.apply, sync_channel::<Vec<T>>(MOST_WAITING));
        let (empty, applied) = sync_channel(MOST_WAITING);
        // Sent, and not moved into the function: that would be lost if there is no thread.
        let (first, value) = sync_channel::<S>(1);
        let run = move || {
            let mut value = value.recv().ok()?;
            for mut batch in to_apply {
                apply(&mut value, &mut batch);
                // Its memory is freed if it is not needed.
                let _ = empty.try_send(batch);
            }
            Some(value)
        };
        let Ok(thread) = thread::Builder::new().name("tidegate-replay".into()).spawn(run) else {
            return;
        };
        let worker = Worker::Thread(Handover { batches, empty: applied }, thread);
        if let Worker::Caller(value) = std::mem::replace(&mut self.worker, worker) {
            // The thread waits for it.
            let _ = first.send(value);
        }
    }
}

impl<T, S> Drop for Background<T, S> {
    fn drop(&mut self) {
        if let Worker::Thread(handover, thread) = std::mem::replace(&mut self.worker, Worker::Gone)
        {
            drop(handover);
            // Nothing of it is needed any more; a panic there has been reported.
            let _ = thread.join();
        }
    }
}

/// How many items are handed over at once.
const BATCH: usize = 1_024;

/// How many batches may wait for the thread: the memory that they take is bounded.
const MOST_WAITING: usize = 8;

#[cfg(all(test, feature = "durable"))]
mod tests;
