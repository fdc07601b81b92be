//! Where states are kept: one whole-decision operation, answering now or later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

mod memory;
mod plan;

pub use memory::MemoryStore;
pub use plan::{Charge, Plan};

pub(crate) use memory::{Adoption, Decided, NewLimit, Succession};
pub(crate) use plan::{HoldFor, Named};

/// What a store answers: at once, or when it knows.
///
/// Await it, or [`wait`](Self::wait) for it in blocking code. The in-memory store always answers at
/// once, so that neither costs anything.
#[must_use = "an answer that nobody looks at may never be made"]
pub enum Answer<'a, T> {
    /// Here it is.
    Now(T),
    /// It takes a while.
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    /// The answer, at the price of blocking this thread until it is there.
    pub fn wait(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(future) => block_on(future),
        }
    }

    /// What a function makes of the answer.
    pub fn map<U>(self, function: impl FnOnce(T) -> U + Send + 'a) -> Answer<'a, U>
    where
        T: 'a,
    {
        match self {
            Self::Now(answer) => Answer::Now(function(answer)),
            Self::Later(future) => Answer::Later(Box::pin(async { function(future.await) })),
        }
    }
}

impl<T: Unpin> Future for Answer<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let taken = Answer::Later(Box::pin(std::future::pending()));
        match std::mem::replace(&mut *self, taken) {
            Self::Now(answer) => Poll::Ready(answer),
            Self::Later(mut future) => {
                let polled = future.as_mut().poll(context);
                *self = Self::Later(future);
                polled
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
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
            *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.changed.notify_one();
        }
    }

    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        let mut is_set = signal.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_set {
            is_set = signal.changed.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
        *is_set = false;
    }
}
