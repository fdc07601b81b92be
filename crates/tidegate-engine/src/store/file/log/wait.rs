//! Waiting until records are durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tidegate_policy::policy::Durability;
use tidegate_table::locks::lock;

use super::LogInner;
use crate::store::Outage;

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
    /// Up to which record everything has this durability.
    pub(super) fn reached(&self, durability: Durability) -> u64 {
        match durability {
            Durability::Memory => u64::MAX,
            Durability::Flush => self.written.load(Ordering::Acquire),
            Durability::Fsync => self.synced.load(Ordering::Acquire),
        }
    }

    pub(super) fn note_written(&self, record: u64) {
        self.written.store(record, Ordering::Release);
    }

    pub(super) fn note_synced(&self, record: u64) {
        self.synced.store(record, Ordering::Release);
    }
}

/// A record, and how durable it has to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurabilityGoal {
    pub(super) record: u64,
    pub(super) durability: Durability,
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

/// Waits until a record and all before it are durable.
#[derive(Debug)]
pub(crate) struct WaitDurable {
    shared: Arc<LogInner>,
    record: u64,
    durability: Durability,
    /// Its number among the waiters, and how many outages there were when it became one.
    waiter: Option<(u64, u64)>,
}

impl WaitDurable {
    pub(super) fn new(shared: &Arc<LogInner>, record: u64, durability: Durability) -> Self {
        Self { shared: Arc::clone(shared), record, durability, waiter: None }
    }

    fn is_reached(&self) -> bool {
        self.shared.progress.reached(self.durability) >= self.record
    }
}

impl Future for WaitDurable {
    type Output = Result<(), Outage>;

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
        let outages = self.waiter.map_or(state.outages, |(_, outages)| outages);
        let goal = DurabilityGoal { record: self.record, durability: self.durability, outages };
        if let Some(outcome) = shared.outcome(&state, &goal) {
            return Poll::Ready(outcome);
        }
        let known = self.waiter.and_then(|(number, _)| state.waiter(number));
        match known {
            Some(index) => std::mem::swap(&mut state.waiting[index].waker, &mut waker),
            None => {
                self.waiter = Some((state.add_waiter(goal, waker), outages));
                // Records that were accepted with less durability have to become durable, too.
                state.request(&goal);
                if state.wanted.is_some() {
                    shared.wake(state);
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for WaitDurable {
    fn drop(&mut self) {
        let Some((number, _)) = self.waiter else { return };
        let mut state = lock(&self.shared.state);
        let waiter = state.waiter(number).map(|index| state.waiting.remove(index));
        drop(state);
        drop(waiter);
    }
}
