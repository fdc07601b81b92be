//! Queues of waiters, in arrival order.
//!
//! They know neither slots nor buckets. The head of a queue makes *attempts*, all other waiters
//! sleep. What an attempt does is up to the caller.
//!
//! - **Arrival is the call of [`WaitQueues::wait`]**, not the first poll. The check for earlier
//!   waiters, the first attempt and the joining happen under one lock, so no waiter is overtaken by
//!   a later call, unless its rank is higher.
//! - **A new head attempts.** After a success, a cancellation, a time-out or a panic the next
//!   waiter attempts too, so a wake-up is passed on until an attempt finds no more.
//! - **The lock is held during an attempt** whose result comes at once. A wake-up comes before it or
//!   after it, never between a failed attempt and the sleep. An attempt must therefore not call the
//!   queues, nor drop anything that does; it panics if it tries.
//! - **No lock is held** while the result of an attempt comes later (`waiting/pending.rs`): the waiter
//!   joins first. A wake-up meanwhile is noted, and the attempt is repeated.
//! - **Where others keep the order as well** ([`Attempts::Ticketed`]) every waiter attempts when it
//!   comes, and whether it is its turn is up to the attempt. Here the queue decides only which
//!   waiter attempts again, and when.
//! - A head that is not polled blocks its queue, until its future is dropped.

use std::fmt;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::Timestamp;

use crate::clock::Clock;

mod park;
mod pending;
mod queue;
mod sync;
mod timer;

use park::Parker;
use pending::PendingAttempt;
pub use pending::Tried;
pub use queue::{AttemptTurn, Attempts, WaitRequest};
use queue::{Queues, Ticket, Turn, next_attempt};
use sync::{AtomicUsize, Attempting, Mutex, MutexGuard, Ordering, fence, lock};
use timer::{Alarms, Armed, SleepBudget, Timer};

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// It succeeded.
    Done(T),
    /// Not now. It is repeated after a `wake` of the queue, or at `retry_at`.
    NotYet { retry_at: Option<Timestamp> },
}

/// Why a wait ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// The queue is full.
    QueueFull,
    /// The deadline has passed.
    DeadlinePassed,
    /// The queues were closed.
    Closed,
}

/// All queues.
pub struct WaitQueues {
    shared: Arc<WaitInner>,
}

impl WaitQueues {
    /// Empty queues; deadlines and retry times are times of `clock`.
    pub fn new(clock: Arc<dyn Clock + Send + Sync>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Queues::new()));
        let waiting = AtomicUsize::new(0);
        Self { shared: Arc::new(WaitInner { shards, waiting, clock, timer: Timer::new() }) }
    }

    /// Whether a queue is empty. Costs one load when all are.
    ///
    /// A caller that does not want to wait may attempt without the queues then; otherwise it would
    /// overtake. A caller that wants to wait calls [`wait`](Self::wait), which makes its first
    /// attempt.
    #[cfg(test)]
    pub(crate) fn is_empty(&self, queue: u64) -> bool {
        self.shared.is_unused() || self.shared.queues(queue).is_empty(queue)
    }

    /// Waits until an attempt succeeds. Await it, or [block](QueueWait::block) on it.
    ///
    /// With no waiter ahead, the first attempt is made now, and a success takes no ticket. A
    /// deadline that has passed thus means: do not wait. Dropping the future leaves the queue.
    pub fn wait<'a, T, F, R>(&'a self, request: WaitRequest, mut attempt: F) -> QueueWait<'a, T, F>
    where
        F: FnMut(AttemptTurn) -> R,
        R: Into<Tried<'a, T>>,
    {
        let mut tried = |turn| attempt(turn).into();
        let is_pending = request.attempts != Attempts::Now;
        let stage = if is_pending {
            self.enter_pending(&request, &mut tried)
        } else {
            self.enter(&request, &mut tried)
        };
        QueueWait { attempt, queues: self, stage, is_pending }
    }

    /// Wakes the head of a queue: an attempt may succeed now, because units were released.
    ///
    /// Call it after the release. One call is enough for any number of units. Costs one load
    /// when all queues are empty.
    pub fn wake(&self, queue: u64) {
        if self.shared.is_unused() {
            return;
        }
        let waker = self.shared.queues(queue).wake(queue);
        wake_all(waker);
    }

    /// Wakes the heads of all queues: units of more than one key may have been released.
    pub fn wake_all(&self) {
        if self.shared.is_unused() {
            return;
        }
        for shard in &self.shared.shards {
            let wakers = lock(shard).wake_all();
            wake_all(wakers);
        }
    }

    /// Wakes all waiters whose deadline or retry time has come at `now`.
    ///
    /// For clocks that do not move by themselves: with any other the timer does it.
    pub fn tick(&self, now: Timestamp) {
        self.shared.tick(now);
    }

    /// When `tick` will have something to do.
    #[cfg(test)]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.shared.next_due()
    }

    /// How many wait, or are about to.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// The number of queues that are not empty.
    pub(crate) fn queue_count(&self) -> usize {
        self.shared.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Ends all current and later waits, ends the timer and waits for its end. The second call does
    /// nothing.
    pub fn close(&self) {
        Attempting::assert_not();
        for shard in &self.shared.shards {
            let wakers = lock(shard).close();
            wake_all(wakers);
        }
        self.shared.timer.close();
    }

    fn enter<'a, T>(
        &'a self,
        request: &WaitRequest,
        attempt: &mut impl FnMut(AttemptTurn) -> Tried<'a, T>,
    ) -> WaitStage<'a, T> {
        let counted = WaiterCount::new(&self.shared.waiting);
        let mut queues = self.shared.queues(request.queue);
        let now = self.shared.clock.now();
        if queues.is_closed() {
            return WaitStage::Settled(Err(QueueError::Closed));
        }
        let mut next_retry = None;
        let is_last = request.deadline.is_some_and(|deadline| deadline <= now);
        if queues.would_be_first(request) {
            let arrival = queues.next_arrival();
            match try_once(attempt, AttemptTurn { now, arrival, is_last }) {
                Attempt::Done(value) => return WaitStage::Settled(Ok(value)),
                Attempt::NotYet { retry_at } => next_retry = next_attempt(retry_at, now),
            }
        }
        if is_last {
            return WaitStage::Settled(Err(QueueError::DeadlinePassed));
        }
        match queues.join(request, next_retry) {
            Some(ticket) => {
                WaitStage::Waits(TicketGuard { shared: &self.shared, ticket, _counted: counted })
            }
            None => WaitStage::Settled(Err(QueueError::QueueFull)),
        }
    }
}

impl Drop for WaitQueues {
    fn drop(&mut self) {
        self.shared.timer.stop();
    }
}

impl fmt::Debug for WaitQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueues").field("queues", &self.queue_count()).finish_non_exhaustive()
    }
}

/// A wait in a queue: a future, or a call that blocks.
#[must_use = "it blocks its queue and makes no attempt unless it is awaited or blocked on"]
pub struct QueueWait<'a, T, F> {
    /// Dropped before it leaves the queue, so that the next waiter finds its effects.
    attempt: F,
    queues: &'a WaitQueues,
    stage: WaitStage<'a, T>,
    is_pending: bool,
}

impl<'a, T, R: Into<Tried<'a, T>>, F: FnMut(AttemptTurn) -> R> QueueWait<'a, T, F> {
    /// Blocks the thread until it is settled. Needs no timer.
    pub fn block(mut self) -> Result<T, QueueError> {
        let parker = Arc::new(Parker::new());
        let waker = Waker::from(Arc::clone(&parker));
        let mut budget = SleepBudget::new();
        loop {
            match self.step(&waker) {
                WaitStep::Settled(outcome) => return outcome,
                WaitStep::Sleeps { until: None } => {
                    parker.park(None);
                }
                WaitStep::Sleeps { until: Some(until) } => {
                    let timeout = budget.timeout(until, self.queues.shared.clock.now());
                    budget.note(until, parker.park(Some(timeout)));
                }
            }
        }
    }

    fn step(&mut self, waker: &Waker) -> WaitStep<T> {
        match std::mem::replace(&mut self.stage, WaitStage::Over) {
            WaitStage::Settled(outcome) => WaitStep::Settled(outcome),
            WaitStage::Waits(guard) if self.is_pending => {
                let mut attempt = |turn| (self.attempt)(turn).into();
                let (stage, step) = pending::turn(guard, &mut attempt, waker);
                self.stage = stage;
                step
            }
            WaitStage::Attempts(attempting) => {
                let mut attempt = |turn| (self.attempt)(turn).into();
                let (stage, step) = pending::go_on(attempting, &mut attempt, waker);
                self.stage = stage;
                step
            }
            // If the attempt panics, the ticket is dropped.
            WaitStage::Waits(guard) => {
                let mut attempt = |turn| (self.attempt)(turn).into();
                match guard.attempt_turn(&mut attempt, waker) {
                    WaitStep::Settled(outcome) => WaitStep::Settled(outcome),
                    WaitStep::Sleeps { until } => {
                        self.stage = WaitStage::Waits(guard);
                        WaitStep::Sleeps { until }
                    }
                }
            }
            WaitStage::Over => panic!("polled after completion"),
        }
    }
}

impl<'a, T, R: Into<Tried<'a, T>>, F: FnMut(AttemptTurn) -> R> Future for QueueWait<'a, T, F> {
    type Output = Result<T, QueueError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.step(context.waker()) {
            WaitStep::Settled(outcome) => Poll::Ready(outcome),
            WaitStep::Sleeps { until } => {
                if let Some(until) = until
                    && Timer::arm(&this.queues.shared, until) == Armed::No
                {
                    // Without a timer it polls all the time.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// Nothing in it is pinned.
impl<T, F> Unpin for QueueWait<'_, T, F> {}

impl<T, F> fmt::Debug for QueueWait<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}

enum WaitStage<'a, T> {
    Waits(TicketGuard<'a>),
    /// An attempt whose result comes later.
    Attempts(PendingAttempt<'a, T>),
    /// Known, but not returned yet.
    Settled(Result<T, QueueError>),
    Over,
}

enum WaitStep<T> {
    Settled(Result<T, QueueError>),
    Sleeps { until: Option<Timestamp> },
}

/// A ticket, which leaves the queue on drop.
struct TicketGuard<'a> {
    shared: &'a WaitInner,
    ticket: Ticket,
    _counted: WaiterCount<'a>,
}

impl TicketGuard<'_> {
    /// Makes an attempt if it is time for one; otherwise registers the waker, under the same lock.
    fn attempt_turn<'t, T>(
        &self,
        attempt: &mut impl FnMut(AttemptTurn) -> Tried<'t, T>,
        waker: &Waker,
    ) -> WaitStep<T> {
        // Cloned before and dropped after the lock is held: both may run foreign code.
        let waker = waker.clone();
        let _old;
        let mut late = WokenAtEnd(Vec::new());
        let mut queues = self.shared.queues(self.ticket.queue());
        loop {
            let now = self.shared.clock.now();
            let turn = queues.turn(self.ticket, now);
            let (arrival, is_last) = (self.ticket.arrival(), turn == Turn::LastAttempt);
            match turn {
                Turn::Attempt | Turn::LastAttempt => {
                    match try_once(attempt, AttemptTurn { now, arrival, is_last }) {
                        Attempt::Done(value) => return WaitStep::Settled(Ok(value)),
                        Attempt::NotYet { .. } if is_last => {
                            return WaitStep::Settled(Err(QueueError::DeadlinePassed));
                        }
                        Attempt::NotYet { retry_at } => {
                            late.0 = queues.put_off(self.ticket, next_attempt(retry_at, now));
                        }
                    }
                }
                Turn::Sleep { until } => {
                    _old = queues.listen(self.ticket, waker);
                    return WaitStep::Sleeps { until };
                }
                Turn::TooLate => return WaitStep::Settled(Err(QueueError::DeadlinePassed)),
                Turn::Full => return WaitStep::Settled(Err(QueueError::QueueFull)),
                Turn::Closed => return WaitStep::Settled(Err(QueueError::Closed)),
            }
        }
    }
}

impl Drop for TicketGuard<'_> {
    fn drop(&mut self) {
        let left = self.shared.queues(self.ticket.queue()).leave(self.ticket);
        wake_all(left.next);
        drop(left.own);
    }
}

/// Wakers that are woken when the lock is no longer held.
struct WokenAtEnd(Vec<Waker>);

impl Drop for WokenAtEnd {
    fn drop(&mut self) {
        wake_all(self.0.drain(..));
    }
}

/// Counts one that waits or is about to.
///
/// A waiter is counted before it attempts, and the count is read after a release, with a fence on
/// both sides: at least one of them sees the other.
struct WaiterCount<'a>(&'a AtomicUsize);

impl<'a> WaiterCount<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Shared by the queues and their timer.
struct WaitInner {
    /// Unrelated queues rarely share a lock.
    shards: [Mutex<Queues<Waker>>; SHARDS],
    waiting: AtomicUsize,
    clock: Arc<dyn Clock + Send + Sync>,
    timer: Timer,
}

impl WaitInner {
    fn queues(&self, queue: u64) -> MutexGuard<'_, Queues<Waker>> {
        Attempting::assert_not();
        // The remainder is less than SHARDS, so it fits whatever the width of usize.
        lock(&self.shards[usize::try_from(queue % SHARDS as u64).unwrap_or(0)])
    }

    fn is_unused(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) == 0
    }

    fn tick(&self, now: Timestamp) {
        Attempting::assert_not();
        for shard in &self.shards {
            let wakers = lock(shard).tick(now);
            wake_all(wakers);
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.shards.iter().filter_map(|shard| lock(shard).next_due()).min()
    }
}

impl Alarms for WaitInner {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn fire(&self, now: Timestamp) -> Option<Timestamp> {
        self.tick(now);
        self.next_due()
    }
}

fn try_once<'a, T>(
    attempt: &mut impl FnMut(AttemptTurn) -> Tried<'a, T>,
    turn: AttemptTurn,
) -> Attempt<T> {
    let _mark = Attempting::begin();
    match attempt(turn) {
        Tried::Now(attempt) => attempt,
        // Only requests that say so have such attempts.
        Tried::Pending(_) => Attempt::NotYet { retry_at: Some(turn.now) },
    }
}

/// Wakes wakers, under no lock. One that panics must not cost the others their turn, nor the timer
/// its thread; the panic has been reported where it happened.
fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// One in the model, which is about threads on one lock.
const SHARDS: usize = if cfg!(shuttle) { 1 } else { 16 };

#[cfg(all(test, shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(shuttle)))]
mod tests;
