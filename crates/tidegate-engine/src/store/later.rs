//! Results that come later: promises, and what happens to those that no caller waits for any more.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tidegate_table::locks::lock;

/// A future that runs to its end whether or not it is waited for.
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
    is_running: bool,
}

struct Task {
    future: Mutex<Option<BoxFuture<()>>>,
    queue: Arc<FinisherQueue>,
}

impl Finisher {
    /// Runs a future to its end. Beyond so many at once, it is dropped: what it holds expires.
    fn finish(&self, future: BoxFuture<()>) {
        let task = Arc::new(Task { future: Mutex::new(Some(future)), queue: Arc::clone(&self.0) });
        let mut state = lock(&self.0.state);
        if state.open >= MOST_ABANDONED {
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
                state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
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
