//! Who waits for a turn, in arrival order.
//!
//! The list knows neither slots nor buckets. It orders those who wait in *lines*; the first of a
//! line makes *attempts*, all others sleep. What an attempt does is the caller's affair.
//!
//! - **Arrival is the call of [`WaitList::wait`]**, not the first poll. The check whether somebody
//!   waits, the first attempt and the joining happen under one lock, so nobody is overtaken by
//!   somebody who called later, unless its rank is higher.
//! - **Who becomes first looks.** After a success, a cancellation, a time-out or a panic the next
//!   one attempts too, so a wake-up is passed on until an attempt says that there is no more.
//! - **The lock is held during an attempt.** A wake-up comes before it or after it, never between a
//!   refused attempt and the sleep. An attempt must therefore not call the list, nor drop anything
//!   that does; it panics if it tries.
//! - Who is first and is not polled holds up its line, until its future is dropped.

use std::fmt;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::Timestamp;

use crate::clock::Clock;

mod park;
mod queue;
mod sync;
mod timer;

use park::Parker;
pub(crate) use queue::WaitRequest;
use queue::{Queues, Ticket, Turn, next_attempt};
use sync::{AtomicUsize, Attempting, Mutex, MutexGuard, Ordering, fence, lock};
use timer::{Alarms, Armed, SleepBudget, Timer};

/// What an attempt has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<T> {
    /// It has what it wanted.
    Done(T),
    /// Not now. It is made again after a `wake` of the line, or at `retry_at`.
    NotYet { retry_at: Option<Timestamp> },
}

/// Why somebody waits no longer, without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueError {
    /// All places of the line were taken.
    QueueFull,
    /// The deadline has come.
    DeadlinePassed,
    /// The list has been closed.
    Closed,
}

/// All who wait.
pub(crate) struct WaitQueues {
    shared: Arc<WaitInner>,
}

impl WaitQueues {
    /// An empty list, whose deadlines and times to retry are times of `clock`.
    pub(crate) fn new(clock: Arc<dyn Clock + Send + Sync>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Queues::new()));
        let waiting = AtomicUsize::new(0);
        Self { shared: Arc::new(WaitInner { shards, waiting, clock, timer: Timer::new() }) }
    }

    /// Whether nobody waits in a line. Costs one load when nobody waits anywhere.
    ///
    /// Who does not want to wait may attempt without the list when it is so; otherwise it would
    /// overtake. Who wants to wait calls [`wait`](Self::wait) and has made its first attempt there.
    #[cfg(test)]
    pub(crate) fn is_empty(&self, queue: u64) -> bool {
        self.shared.is_unused() || self.shared.queues(queue).is_empty(queue)
    }

    /// Waits until an attempt succeeds. To be awaited, or [blocked](Wait::block) on.
    ///
    /// If nobody is ahead, the first attempt is made now, and who succeeds never takes a place. A
    /// deadline that has come, then, means: do not wait. Dropping the future gives the place back.
    pub(crate) fn wait<T, F>(&self, terms: WaitRequest, mut attempt: F) -> QueueWait<'_, T, F>
    where
        F: FnMut(Timestamp) -> Attempt<T>,
    {
        let stage = self.enter(&terms, &mut attempt);
        QueueWait { list: self, stage, attempt }
    }

    /// Tells a line that an attempt may succeed now: something was given back.
    ///
    /// Comes after the giving back. One call is enough for any number of places. Costs one load
    /// when nobody waits anywhere.
    pub(crate) fn wake(&self, queue: u64) {
        if self.shared.is_unused() {
            return;
        }
        let waker = self.shared.queues(queue).wake(queue);
        wake_all(waker);
    }

    /// Tells every line that an attempt may succeed now: more than one key may have got something.
    pub(crate) fn wake_all(&self) {
        if self.shared.is_unused() {
            return;
        }
        for shard in &self.shared.shards {
            let wakers = lock(shard).wake_all();
            wake_all(wakers);
        }
    }

    /// Tells those who have to hear of something that was given back.
    pub(crate) fn notify(&self, queues: crate::store::FreedQueues) {
        match queues {
            crate::store::FreedQueues::One(queue) => self.wake(queue),
            crate::store::FreedQueues::All => self.wake_all(),
        }
    }

    /// Wakes all whose deadline or time to retry has come at `now`.
    ///
    /// For clocks that do not move by themselves: with any other the timer does it.
    pub(crate) fn tick(&self, now: Timestamp) {
        self.shared.tick(now);
    }

    /// When `tick` will have something to do.
    #[cfg(test)]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.shared.next_due()
    }

    /// How many lines there are: those in which somebody waits.
    pub(crate) fn queue_count(&self) -> usize {
        self.shared.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Sends all home who wait or come later, ends the timer and waits for its end. The second call
    /// does nothing.
    pub(crate) fn close(&self) {
        Attempting::assert_not();
        for shard in &self.shared.shards {
            let wakers = lock(shard).close();
            wake_all(wakers);
        }
        self.shared.timer.close();
    }

    fn enter<T>(
        &self,
        terms: &WaitRequest,
        attempt: &mut impl FnMut(Timestamp) -> Attempt<T>,
    ) -> WaitStage<'_, T> {
        let counted = WaiterCount::new(&self.shared.waiting);
        let mut queues = self.shared.queues(terms.queue);
        let now = self.shared.clock.now();
        if queues.is_closed() {
            return WaitStage::Settled(Err(QueueError::Closed));
        }
        let mut told = None;
        if queues.would_be_first(terms) {
            match try_once(attempt, now) {
                Attempt::Done(value) => return WaitStage::Settled(Ok(value)),
                Attempt::NotYet { retry_at } => told = next_attempt(retry_at, now),
            }
        }
        if terms.deadline.is_some_and(|deadline| deadline <= now) {
            return WaitStage::Settled(Err(QueueError::DeadlinePassed));
        }
        match queues.join(terms, told) {
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
        f.debug_struct("WaitList").field("lines", &self.queue_count()).finish_non_exhaustive()
    }
}

/// Somebody who waits: a future, or a call that blocks.
#[must_use = "it holds up its line and does not attempt unless it is awaited or blocked on"]
pub(crate) struct QueueWait<'a, T, F> {
    list: &'a WaitQueues,
    stage: WaitStage<'a, T>,
    attempt: F,
}

impl<T, F: FnMut(Timestamp) -> Attempt<T>> QueueWait<'_, T, F> {
    /// Blocks the thread until it is settled. Needs no timer.
    pub(crate) fn block(mut self) -> Result<T, QueueError> {
        let parker = Arc::new(Parker::new());
        let waker = Waker::from(Arc::clone(&parker));
        let mut patience = SleepBudget::new();
        loop {
            match self.step(&waker) {
                WaitStep::Settled(outcome) => return outcome,
                WaitStep::Sleeps { until: None } => {
                    parker.park(None);
                }
                WaitStep::Sleeps { until: Some(until) } => {
                    let timeout = patience.timeout(until, self.list.shared.clock.now());
                    patience.note(until, parker.park(Some(timeout)));
                }
            }
        }
    }

    fn step(&mut self, waker: &Waker) -> WaitStep<T> {
        match std::mem::replace(&mut self.stage, WaitStage::Over) {
            WaitStage::Settled(outcome) => WaitStep::Settled(outcome),
            // If the attempt panics, the seat goes with it.
            WaitStage::Waits(seat) => match seat.attempt_turn(&mut self.attempt, waker) {
                WaitStep::Settled(outcome) => WaitStep::Settled(outcome),
                WaitStep::Sleeps { until } => {
                    self.stage = WaitStage::Waits(seat);
                    WaitStep::Sleeps { until }
                }
            },
            WaitStage::Over => panic!("polled after it was settled"),
        }
    }
}

impl<T, F: FnMut(Timestamp) -> Attempt<T>> Future for QueueWait<'_, T, F> {
    type Output = Result<T, QueueError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.step(context.waker()) {
            WaitStep::Settled(outcome) => Poll::Ready(outcome),
            WaitStep::Sleeps { until } => {
                if let Some(until) = until
                    && Timer::arm(&this.list.shared, until) == Armed::No
                {
                    // Better awake all the time than never again.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// Nothing in it is ever pinned.
impl<T, F> Unpin for QueueWait<'_, T, F> {}

impl<T, F> fmt::Debug for QueueWait<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}

enum WaitStage<'a, T> {
    Waits(TicketGuard<'a>),
    /// Known, but not yet asked for.
    Settled(Result<T, QueueError>),
    Over,
}

enum WaitStep<T> {
    Settled(Result<T, QueueError>),
    Sleeps { until: Option<Timestamp> },
}

/// A place, given back on drop.
struct TicketGuard<'a> {
    shared: &'a WaitInner,
    ticket: Ticket,
    _counted: WaiterCount<'a>,
}

impl TicketGuard<'_> {
    /// Makes an attempt if it is the time for one; otherwise hangs up the bell, under the same lock.
    fn attempt_turn<T>(
        &self,
        attempt: &mut impl FnMut(Timestamp) -> Attempt<T>,
        waker: &Waker,
    ) -> WaitStep<T> {
        // Cloned before and dropped after the lock is held: both may run foreign code.
        let waker = waker.clone();
        let _old;
        let mut queues = self.shared.queues(self.ticket.queue());
        loop {
            let now = self.shared.clock.now();
            let turn = queues.turn(self.ticket, now);
            match turn {
                Turn::Attempt | Turn::LastAttempt => match try_once(attempt, now) {
                    Attempt::Done(value) => return WaitStep::Settled(Ok(value)),
                    Attempt::NotYet { .. } if turn == Turn::LastAttempt => {
                        return WaitStep::Settled(Err(QueueError::DeadlinePassed));
                    }
                    Attempt::NotYet { retry_at } => {
                        queues.put_off(self.ticket, next_attempt(retry_at, now));
                    }
                },
                Turn::Sleep { until } => {
                    _old = queues.listen(self.ticket, waker);
                    return WaitStep::Sleeps { until };
                }
                Turn::TooLate => return WaitStep::Settled(Err(QueueError::DeadlinePassed)),
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

/// One in the count of all who wait or are about to.
///
/// Who looks for something is counted before, and who gives something back asks for the count
/// after, with a fence on both sides: at least one of them sees the other.
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

/// What the list and its timer have in common.
struct WaitInner {
    /// Lines that have nothing to do with each other seldom share a lock.
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

fn try_once<T>(attempt: &mut impl FnMut(Timestamp) -> Attempt<T>, now: Timestamp) -> Attempt<T> {
    let _mark = Attempting::begin();
    attempt(now)
}

/// Rings bells, under no lock. One that panics must not cost the others their turn, nor the timer
/// its thread; the panic has been reported where it happened.
fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// One in the model: it is about the threads on one lock.
const SHARDS: usize = if cfg!(shuttle) { 1 } else { 16 };

#[cfg(all(test, shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(shuttle)))]
mod tests;
