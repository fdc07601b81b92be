//! Waiting for units instead of being denied.

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::{Decision, Wait};
use tidegate_table::clock::Clock;
use tidegate_table::table::keyed::KeyedLimit;
use tidegate_table::waiting::{
    Attempt, AttemptTurn, Attempts, QueueError, QueueWait, WaitQueues, WaitRequest,
};

use super::Limiter;

/// Why a waiter got nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// No wait helps: the cost exceeds what the limit ever allows.
    Never,
    /// The time to wait is over.
    TimedOut,
    /// 65 536 callers wait already.
    QueueFull,
    /// The limiter was [closed](Limiter::close).
    Closed,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "the cost exceeds what the limit ever allows",
            Self::TimedOut => "the wait timed out",
            Self::QueueFull => "the queue is full",
            Self::Closed => "the limiter was closed",
        })
    }
}

tidegate_core::debug_as_displayed!(WaitError);

impl std::error::Error for WaitError {}

impl From<QueueError> for WaitError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::QueueFull => Self::QueueFull,
            QueueError::DeadlinePassed => Self::TimedOut,
            QueueError::Closed => Self::Closed,
        }
    }
}

type Outcome = Result<Decision, WaitError>;

/// A wait for units: await it under any runtime, or [block](Self::block) on it. Dropping it leaves
/// the queue.
#[must_use = "nothing waits unless it is awaited or blocked on"]
pub struct UntilReady<'a>(Stage<'a>);

enum Stage<'a> {
    Over(Outcome),
    Waits(QueueWait<'a, Outcome, Box<dyn FnMut(AttemptTurn) -> Attempt<Outcome> + Send + 'a>>),
}

impl UntilReady<'_> {
    /// Blocks the thread until the wait is over.
    pub fn block(self) -> Result<Decision, WaitError> {
        match self.0 {
            Stage::Over(outcome) => outcome,
            Stage::Waits(wait) => wait.block()?,
        }
    }
}

impl Future for UntilReady<'_> {
    type Output = Result<Decision, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Stage::Over(outcome) => Poll::Ready(*outcome),
            Stage::Waits(wait) => Pin::new(wait).poll(context).map(|outcome| outcome?),
        }
    }
}

impl fmt::Debug for UntilReady<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilReady").finish_non_exhaustive()
    }
}

/// Waiting.
impl<K, A, C, S> Limiter<K, A, C, S>
where
    K: ?Sized,
    A: KeyedLimit,
    C: Clock + Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Charges one unit to the key as soon as it is free. Waiters for a key are served in the order
    /// in which they called.
    ///
    /// ```
    /// use tidegate::{Bucket, Limiter};
    ///
    /// let limiter: Limiter<str> = Limiter::new(Bucket::per_second(1_000).burst(1));
    /// for _ in 0..3 {
    ///     limiter.ready("crawler").block()?; // or `.await`
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Calls of [`check`](Self::check) and [`allow`](Self::allow) do not queue, and may take what
    /// waiters wait for. The first wait of a future starts a thread, which ends when there has been
    /// none for ten seconds; blocking needs no thread.
    pub fn ready<Q>(&self, key: &Q) -> UntilReady<'_>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.ready_n(key, 1)
    }

    /// [`ready`](Self::ready), or an error after this long.
    pub fn ready_within<Q>(&self, key: &Q, max_wait: Duration) -> UntilReady<'_>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.ready_n_within(key, 1, max_wait)
    }

    /// [`ready`](Self::ready) for `cost` units, all at once.
    pub fn ready_n<Q>(&self, key: &Q, cost: u64) -> UntilReady<'_>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.wait(self.hash(key), cost, None)
    }

    /// [`ready_n`](Self::ready_n), or an error after this long.
    pub fn ready_n_within<Q>(&self, key: &Q, cost: u64, max_wait: Duration) -> UntilReady<'_>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        self.wait(self.hash(key), cost, Some(max_wait))
    }

    fn wait(&self, hash: u64, cost: u64, max_wait: Option<Duration>) -> UntilReady<'_> {
        let Some(queues) = self.shared.queues.get_or_init(|| {
            let clock: Arc<dyn Clock + Send + Sync> = Arc::new(self.clock.clone());
            Some(WaitQueues::new(clock))
        }) else {
            return UntilReady(Stage::Over(Err(WaitError::Closed)));
        };
        let waiting = queues.waiting();
        if waiting >= MOST_WAITING {
            return UntilReady(Stage::Over(Err(WaitError::QueueFull)));
        }
        let request = WaitRequest {
            queue: hash,
            max_waiters: MOST_WAITING,
            rank: 0,
            deadline: max_wait.map(|wait| self.clock.now().saturating_add(wait)),
            attempts: Attempts::Now,
        };
        let table = &self.shared.table;
        let attempt = move |AttemptTurn { now, .. }| {
            let decision = table.check(table.fetch(hash), cost, now, |decision| decision);
            match decision.retry_after() {
                None => Attempt::Done(Ok(decision)),
                Some(Wait::After(wait)) => {
                    Attempt::NotYet { retry_at: Some(now.saturating_add(wait)) }
                }
                // The table is full: other keys have to become idle.
                Some(Wait::Unknown) => {
                    Attempt::NotYet { retry_at: Some(now.saturating_add(RETRY_WHEN_FULL)) }
                }
                Some(Wait::Never) => Attempt::Done(Err(WaitError::Never)),
            }
        };
        UntilReady(Stage::Waits(queues.wait(request, Box::new(attempt))))
    }
}

impl<K: ?Sized, A: KeyedLimit, C, S> Limiter<K, A, C, S> {
    /// Wakes those that wait for a key: units of it may be free.
    pub(super) fn wake(&self, hash: u64) {
        if let Some(Some(queues)) = self.shared.queues.get() {
            queues.wake(hash);
        }
    }

    /// Wakes those that wait for any key.
    pub(super) fn wake_all(&self) {
        if let Some(Some(queues)) = self.shared.queues.get() {
            queues.wake_all();
        }
    }
}

/// How many callers may wait, for all keys.
const MOST_WAITING: usize = 1 << 16;

/// When a key that finds the table full attempts again.
const RETRY_WHEN_FULL: Duration = Duration::from_millis(10);
