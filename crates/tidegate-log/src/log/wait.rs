//! Waiting until records are durable.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tidegate_table::locks::lock;

use super::LogInner;
use crate::writer::Level;

/// How far the log is, for readers without its lock. It is changed under the lock.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Up to which record everything was written, and synced.
    written: AtomicU64,
    synced: AtomicU64,
    /// Bytes of records that were not taken to be written.
    pub(super) queued_len: AtomicUsize,
    /// Whether there is an outage.
    pub(super) is_failing: AtomicBool,
}

impl Progress {
    /// Up to which record everything is on this level.
    pub(super) fn reached(&self, level: Level) -> u64 {
        match level {
            Level::Accepted => u64::MAX,
            Level::Written => self.written.load(Ordering::Acquire),
            Level::Synced => self.synced.load(Ordering::Acquire),
        }
    }

    pub(super) fn note_written(&self, record: u64) {
        self.written.store(record, Ordering::Release);
    }

    pub(super) fn note_synced(&self, record: u64) {
        self.synced.store(record, Ordering::Release);
    }
}

/// A record, and the level that it has to reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurabilityGoal {
    pub(super) record: u64,
    pub(super) level: Level,
    /// How many outages there were when the wait began.
    pub(super) outages: u64,
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) goal: DurabilityGoal,
    pub(super) waker: Waker,
}

/// Waits until a record and all before it have reached a level.
#[derive(Debug)]
pub struct WaitDurable {
    shared: Arc<LogInner>,
    goal: DurabilityGoal,
    /// Its number, once it is among the waiters.
    waiter: Option<u64>,
}

impl WaitDurable {
    pub(super) fn new(shared: &Arc<LogInner>, record: u64, level: Level) -> Self {
        let goal = DurabilityGoal { record, level, outages: 0 };
        Self { shared: Arc::clone(shared), goal, waiter: None }
    }

    fn is_reached(&self) -> bool {
        self.shared.progress.reached(self.goal.level) >= self.goal.record
    }
}

impl Future for WaitDurable {
    type Output = Result<(), NotDurable>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The usual case after a wake-up, without the lock that the next callers need.
        if self.is_reached() {
            self.waiter = None;
            return Poll::Ready(Ok(()));
        }
        // Not under the lock: it is foreign code.
        let mut waker = context.waker().clone();
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        if self.waiter.is_none() {
            self.goal.outages = state.outages;
        }
        let goal = self.goal;
        if let Some(outcome) = shared.outcome(&state, &goal) {
            return Poll::Ready(outcome);
        }
        let known = self.waiter.and_then(|number| state.waiter(number));
        match known {
            Some(index) => std::mem::swap(&mut state.waiting[index].waker, &mut waker),
            None => {
                self.waiter = Some(state.add_waiter(goal, waker));
                // Records that were accepted with a lower level have to reach this one, too.
                state.request(&goal);
                if state.wanted.is_some() {
                    shared.wake(state);
                }
            }
        }
        Poll::Pending
    }
}

/// The disk failed before a record was as durable as it had to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NotDurable;

impl fmt::Display for NotDurable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the disk failed before the record was durable")
    }
}

tidegate_core::debug_as_displayed!(NotDurable);

impl std::error::Error for NotDurable {}

impl Drop for WaitDurable {
    fn drop(&mut self) {
        let Some(number) = self.waiter else { return };
        let mut state = lock(&self.shared.state);
        let waiter = state.waiter(number).map(|index| state.waiting.remove(index));
        drop(state);
        drop(waiter);
    }
}
