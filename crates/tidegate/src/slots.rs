//! At most so many at once, in one process: slots and a fair queue for them, without keys and without an
//! engine.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_table::MonotonicClock;
use tidegate_table::clock::Clock;
use tidegate_table::waiting::{Attempt, AttemptTurn, Attempts, QueueWait, WaitQueues, WaitRequest};

use crate::limiter::WaitError;

/// At most so many operations in flight; others wait in the order in which they came.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Slots;
///
/// let slots = Slots::new(3).queue(100);
/// let slot = slots.acquire_within(Duration::from_secs(30)).block()?; // or `.await`
/// assert_eq!(slots.in_use(), 1);
/// drop(slot);
/// assert_eq!(slots.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A slot has no expiry: its [guard](Slot) releases it, also when its task is cancelled or panics. Slots
/// per key, with an expiry or for many processes, are a rule of an engine's policy.
///
/// Clones are handles of the same slots.
#[derive(Clone, Debug)]
pub struct Slots {
    shared: Arc<SlotsInner>,
    max_waiters: usize,
}

#[derive(Debug)]
struct SlotsInner {
    max: u64,
    in_use: AtomicU64,
    queues: WaitQueues,
}

/// A slot in use. Dropping it releases it.
#[derive(Debug)]
#[must_use = "dropping a slot releases it"]
pub struct Slot(Arc<SlotsInner>);

impl Slots {
    /// So many slots, and a queue of up to 65 536 that wait for one.
    #[must_use]
    pub fn new(max: u64) -> Self {
        let queues = WaitQueues::new(Arc::new(MonotonicClock));
        let shared = Arc::new(SlotsInner { max, in_use: AtomicU64::new(0), queues });
        Self { shared, max_waiters: MOST_WAITING }
    }

    /// A handle whose waiters find the queue full when so many wait.
    #[must_use]
    pub fn queue(self, max_waiters: usize) -> Self {
        Self { max_waiters: max_waiters.min(MOST_WAITING), ..self }
    }

    /// A slot, as soon as one is free: await it under any runtime, or [block](UntilSlot::block) on it.
    pub fn acquire(&self) -> UntilSlot<'_> {
        self.wait(None)
    }

    /// [`acquire`](Self::acquire), or an error after this long.
    pub fn acquire_within(&self, max_wait: Duration) -> UntilSlot<'_> {
        self.wait(Some(MonotonicClock.now().saturating_add(max_wait)))
    }

    /// A slot, if one is free and nobody waits for it.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Slot> {
        self.wait(Some(Timestamp::ZERO)).block().ok()
    }

    fn wait(&self, deadline: Option<Timestamp>) -> UntilSlot<'_> {
        let request = WaitRequest {
            queue: 0,
            max_waiters: self.max_waiters,
            rank: 0,
            deadline,
            attempts: Attempts::Now,
        };
        let shared = &self.shared;
        let attempt = move |_turn: AttemptTurn| match shared.take() {
            true => Attempt::Done(Slot(Arc::clone(shared))),
            false => Attempt::NotYet { retry_at: None },
        };
        UntilSlot(shared.queues.wait(request, Box::new(attempt)))
    }

    /// How many are in use.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.shared.in_use.load(Ordering::Acquire)
    }

    /// How many wait for one.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queues.waiting()
    }

    /// Ends all waiting with an error. Slots in use stay so until they are dropped.
    pub fn close(&self) {
        self.shared.queues.close();
    }
}

impl SlotsInner {
    fn take(&self) -> bool {
        let taken = |in_use: u64| (in_use < self.max).then_some(in_use + 1);
        self.in_use.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::AcqRel);
        self.0.queues.wake(0);
    }
}

/// A wait for a slot: await it, or block on it. Dropping it leaves the queue.
#[must_use = "nothing waits unless it is awaited or blocked on"]
pub struct UntilSlot<'a>(
    QueueWait<'a, Slot, Box<dyn FnMut(AttemptTurn) -> Attempt<Slot> + Send + 'a>>,
);

impl UntilSlot<'_> {
    /// Blocks the thread until the wait is over.
    pub fn block(self) -> Result<Slot, WaitError> {
        Ok(self.0.block()?)
    }
}

impl Future for UntilSlot<'_> {
    type Output = Result<Slot, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0).poll(context).map(|outcome| Ok(outcome?))
    }
}

impl fmt::Debug for UntilSlot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilSlot").finish_non_exhaustive()
    }
}

/// How many may wait at most.
const MOST_WAITING: usize = 1 << 16;
