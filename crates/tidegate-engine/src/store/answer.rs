//! Results that are ready at once or pending: promises, and what happens to those that no caller waits for
//! any more.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tidegate_table::locks::lock;

/// The result of an operation: ready at once, or pending.
///
/// Await it, or [`block`](Self::block) on it in blocking code. With the in-memory store it is always
/// ready, so that neither costs anything. A file store has applied the operation when this is
/// returned, and it resolves when the operation is durable.
#[must_use = "the operation may not be durable until this is awaited"]
pub enum Answer<T> {
    /// It is ready.
    Ready(T),
    /// It is on its way.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Answer<T> {
    /// The result; blocks this thread until it is ready.
    #[inline]
    pub fn block(self) -> T {
        match self {
            Self::Ready(result) => result,
            Self::Pending(future) => block_on(future),
        }
    }

    /// Applies a function to the result.
    pub fn map<U>(self, function: impl FnOnce(T) -> U + Send + 'static) -> Answer<U>
    where
        T: 'static,
    {
        match self {
            Self::Ready(result) => Answer::Ready(function(result)),
            Self::Pending(future) => Answer::Pending(Box::pin(async { function(future.await) })),
        }
    }

    /// Goes on with another operation, once this one has its result.
    pub(crate) fn then<U: Send + 'static>(
        self,
        next: impl FnOnce(T) -> Answer<U> + Send + 'static,
    ) -> Answer<U>
    where
        T: 'static,
    {
        match self {
            Self::Ready(result) => next(result),
            Self::Pending(future) => Answer::Pending(Box::pin(async move {
                match next(future.await) {
                    Answer::Ready(result) => result,
                    Answer::Pending(future) => future.await,
                }
            })),
        }
    }
}

impl<T: Unpin> IntoFuture for Answer<T> {
    type Output = T;
    type IntoFuture = AnswerFuture<T>;

    fn into_future(self) -> AnswerFuture<T> {
        AnswerFuture(Some(self))
    }
}

/// The future of an [`Answer`].
#[derive(Debug)]
pub struct AnswerFuture<T>(Option<Answer<T>>);

impl<T: Unpin> Future for AnswerFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.0.take() {
            Some(Answer::Ready(result)) => Poll::Ready(result),
            Some(Answer::Pending(mut future)) => {
                let polled = future.as_mut().poll(context);
                if polled.is_pending() {
                    self.0 = Some(Answer::Pending(future));
                }
                polled
            }
            None => Poll::Pending,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(mut future: Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
    #[derive(Default)]
    struct Signal {
        is_set: Mutex<bool>,
        changed: Condvar,
    }

    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            *lock(&self.is_set) = true;
            self.changed.notify_one();
        }
    }

    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        let mut is_set = lock(&signal.is_set);
        while !*is_set {
            is_set = signal.changed.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
        *is_set = false;
    }
}

/// A future that a store makes.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A result that another thread will have.
pub(crate) struct Promise<T>(Arc<Mutex<Promised<T>>>);

/// The other end of a [`Promise`].
pub(crate) struct PromiseFuture<T>(Arc<Mutex<Promised<T>>>);

struct Promised<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

pub(crate) fn promise<T>() -> (Promise<T>, PromiseFuture<T>) {
    let shared = Arc::new(Mutex::new(Promised { result: None, waker: None }));
    (Promise(Arc::clone(&shared)), PromiseFuture(shared))
}

impl<T> Promise<T> {
    /// Gives the result to the future.
    pub(crate) fn keep(self, result: T) {
        let waker = {
            let mut promised = lock(&self.0);
            promised.result = Some(result);
            promised.waker.take()
        };
        // Not under the lock: it runs foreign code.
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Future for PromiseFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let waker = context.waker().clone();
        let mut promised = lock(&self.0);
        match promised.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                let _old = promised.waker.replace(waker);
                drop(promised);
                Poll::Pending
            }
        }
    }
}

/// An operation that was submitted: it is completed, also if this is dropped.
///
/// The result of one that was dropped goes to `abandoned`.
pub(crate) struct Submitted<T: Send + 'static> {
    future: Option<BoxFuture<T>>,
    abandoned: fn(T) -> Option<BoxFuture<()>>,
    finisher: Finisher,
}

impl<T: Send + 'static> Submitted<T> {
    pub(crate) fn new(
        future: BoxFuture<T>,
        abandoned: fn(T) -> Option<BoxFuture<()>>,
        finisher: &Finisher,
    ) -> Self {
        Self { future: Some(future), abandoned, finisher: finisher.clone() }
    }
}

impl<T: Send + 'static> Future for Submitted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let result = std::task::ready!(future.as_mut().poll(context));
        self.future = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> Drop for Submitted<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            let abandoned = self.abandoned;
            self.finisher.finish(Box::pin(async move {
                if let Some(rest) = abandoned(future.await) {
                    rest.await;
                }
            }));
        }
    }
}

/// Completes operations that no caller waits for any more, on one thread, which ends when there are
/// none.
#[derive(Clone, Default)]
pub(crate) struct Finisher(Arc<FinisherQueue>);

#[derive(Default)]
struct FinisherQueue {
    state: Mutex<FinisherState>,
    changed: Condvar,
}

#[derive(Default)]
struct FinisherState {
    ready: VecDeque<Arc<Task>>,
    /// How many tasks are not complete.
    open: usize,
    /// How many were dropped, because there were too many.
    dropped: u64,
    is_running: bool,
}

struct Task {
    future: Mutex<Option<BoxFuture<()>>>,
    queue: Arc<FinisherQueue>,
}

impl Finisher {
    /// How many operations were dropped, because too many were to be completed.
    pub(crate) fn dropped(&self) -> u64 {
        lock(&self.0.state).dropped
    }

    /// Runs a future to its end. Beyond so many at once, it is dropped and counted: what it holds
    /// expires.
    fn finish(&self, future: BoxFuture<()>) {
        let task = Arc::new(Task { future: Mutex::new(Some(future)), queue: Arc::clone(&self.0) });
        let mut state = lock(&self.0.state);
        if state.open >= MOST_ABANDONED {
            state.dropped += 1;
            // Not under the lock: the task is dropped after it.
            drop(state);
            return;
        }
        state.open += 1;
        state.ready.push_back(task);
        if !state.is_running {
            let queue = Arc::clone(&self.0);
            let thread = thread::Builder::new().name("tidegate-finish".into());
            state.is_running = thread.spawn(move || queue.run()).is_ok();
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

impl FinisherQueue {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.ready.pop_front() {
                drop(state);
                let is_done = task.run();
                drop(task);
                state = lock(&self.state);
                state.open -= usize::from(is_done);
            } else if state.open == 0 {
                state.is_running = false;
                return;
            } else {
                let waited = self.changed.wait_timeout(state, Duration::from_secs(1));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Task {
    /// Polls it once; true if it is complete.
    fn run(self: &Arc<Self>) -> bool {
        let waker = Waker::from(Arc::clone(self));
        let mut future = lock(&self.future);
        let Some(pending) = future.as_mut() else { return false };
        let is_done = pending.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if is_done {
            *future = None;
        }
        is_done
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        lock(&queue.state).ready.push_back(self);
        queue.changed.notify_one();
    }
}

impl fmt::Debug for Finisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finisher").field("open", &lock(&self.0.state).open).finish()
    }
}

/// How many abandoned operations are completed at once.
const MOST_ABANDONED: usize = 1 << 16;
