//! Attempts whose result comes later: no lock is held meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::Timestamp;

use super::queue::{AttemptTurn, Attempts, Turn, WaitRequest, next_attempt};
use super::{Attempt, QueueError, TicketGuard, WaitQueues, WaitStage, WaitStep, WaiterCount};

/// An attempt, whose result is known or comes later.
#[allow(missing_debug_implementations, reason = "it may be a future")]
pub enum Tried<'a, T> {
    /// Its result.
    Now(Attempt<T>),
    /// Its result, later.
    Pending(Pin<Box<dyn Future<Output = Attempt<T>> + Send + 'a>>),
}

impl<T> From<Attempt<T>> for Tried<'_, T> {
    fn from(attempt: Attempt<T>) -> Self {
        Self::Now(attempt)
    }
}

/// An attempt on its way.
///
/// If it is dropped, the waiter leaves the queue, and what the attempt gets is up to its future.
pub(super) struct PendingAttempt<'a, T> {
    tried: Tried<'a, T>,
    guard: TicketGuard<'a>,
    began: Timestamp,
    /// Whether the deadline had come.
    is_last: bool,
}

impl WaitQueues {
    /// Joins, and makes the first attempt now if there is no waiter ahead, or its order is kept
    /// elsewhere.
    pub(super) fn enter_pending<'a, T>(
        &'a self,
        request: &WaitRequest,
        attempt: &mut impl FnMut(AttemptTurn) -> Tried<'a, T>,
    ) -> WaitStage<'a, T> {
        let counted = WaiterCount::new(&self.shared.waiting);
        let mut queues = self.shared.queues(request.queue);
        let began = self.shared.clock.now();
        if queues.is_closed() {
            return WaitStage::Settled(Err(QueueError::Closed));
        }
        let is_last = request.deadline.is_some_and(|deadline| deadline <= began);
        let is_ticketed = matches!(request.attempts, Attempts::Ticketed { .. });
        let is_first = is_ticketed || queues.would_be_first(request);
        if is_last && !is_first && !queues.is_undecided(request.queue) {
            return WaitStage::Settled(Err(QueueError::DeadlinePassed));
        }
        let ticket = match (request.attempts, is_first) {
            (Attempts::Ticketed { renewed_every }, _) => {
                Some(queues.join_ticketed(request, renewed_every))
            }
            (Attempts::Now | Attempts::Later, true) => Some(queues.join_attempting(request)),
            (Attempts::Now | Attempts::Later, false) => queues.join(request, None),
        };
        let Some(ticket) = ticket else {
            return WaitStage::Settled(Err(QueueError::QueueFull));
        };
        drop(queues);
        let guard = TicketGuard { shared: &self.shared, ticket, _counted: counted };
        if !is_first {
            return WaitStage::Waits(guard);
        }
        // If it panics, the ticket is dropped.
        let tried = attempt(AttemptTurn { now: began, arrival: ticket.arrival(), is_last });
        WaitStage::Attempts(PendingAttempt { tried, guard, began, is_last })
    }
}

/// Makes attempts as it is time for them; otherwise registers the waker.
pub(super) fn turn<'a, T>(
    guard: TicketGuard<'a>,
    attempt: &mut impl FnMut(AttemptTurn) -> Tried<'a, T>,
    waker: &Waker,
) -> (WaitStage<'a, T>, WaitStep<T>) {
    let mut guard = guard;
    loop {
        // Cloned before and dropped after the lock is held: both may run foreign code.
        let waker_clone = waker.clone();
        let mut queues = guard.shared.queues(guard.ticket.queue());
        let now = guard.shared.clock.now();
        let turn = queues.turn(guard.ticket, now);
        let error = match turn {
            Turn::Attempt | Turn::LastAttempt => {
                queues.begin_attempt(guard.ticket);
                drop(queues);
                let is_last = turn == Turn::LastAttempt;
                let arrival = guard.ticket.arrival();
                let tried = attempt(AttemptTurn { now, arrival, is_last });
                match (PendingAttempt { tried, guard, began: now, is_last }).go_on(waker) {
                    AttemptEnd::Failed(again) => guard = again,
                    AttemptEnd::Over(stage, step) => return (stage, step),
                }
                continue;
            }
            Turn::Sleep { until } => {
                let old = queues.listen(guard.ticket, waker_clone);
                drop(queues);
                drop(old);
                return (WaitStage::Waits(guard), WaitStep::Sleeps { until });
            }
            Turn::TooLate => QueueError::DeadlinePassed,
            Turn::Full => QueueError::QueueFull,
            Turn::Closed => QueueError::Closed,
        };
        drop(queues);
        return (WaitStage::Over, WaitStep::Settled(Err(error)));
    }
}

/// Waits for the result of an attempt, and goes on from there.
pub(super) fn go_on<'a, T>(
    attempting: PendingAttempt<'a, T>,
    attempt: &mut impl FnMut(AttemptTurn) -> Tried<'a, T>,
    waker: &Waker,
) -> (WaitStage<'a, T>, WaitStep<T>) {
    match attempting.go_on(waker) {
        AttemptEnd::Failed(guard) => turn(guard, attempt, waker),
        AttemptEnd::Over(stage, step) => (stage, step),
    }
}

/// How far an attempt has come.
enum AttemptEnd<'a, T> {
    /// It has failed, and its waiter waits on.
    Failed(TicketGuard<'a>),
    /// Its result is awaited, or the wait is over.
    Over(WaitStage<'a, T>, WaitStep<T>),
}

impl<'a, T> PendingAttempt<'a, T> {
    fn go_on(mut self, waker: &Waker) -> AttemptEnd<'a, T> {
        let result = match self.tried {
            Tried::Pending(mut future) => {
                match future.as_mut().poll(&mut Context::from_waker(waker)) {
                    Poll::Ready(result) => result,
                    Poll::Pending => {
                        self.tried = Tried::Pending(future);
                        let step = WaitStep::Sleeps { until: None };
                        return AttemptEnd::Over(WaitStage::Attempts(self), step);
                    }
                }
            }
            Tried::Now(result) => result,
        };
        let Self { guard, began, is_last, .. } = self;
        match result {
            Attempt::Done(value) => AttemptEnd::Over(WaitStage::Over, WaitStep::Settled(Ok(value))),
            Attempt::NotYet { .. } if is_last => {
                let step = WaitStep::Settled(Err(QueueError::DeadlinePassed));
                AttemptEnd::Over(WaitStage::Over, step)
            }
            Attempt::NotYet { retry_at } => {
                let retry_at = next_attempt(retry_at, began);
                let mut queues = guard.shared.queues(guard.ticket.queue());
                let now = guard.shared.clock.now();
                let woken = queues.end_attempt(guard.ticket, retry_at, now);
                drop(queues);
                super::wake_all(woken);
                AttemptEnd::Failed(guard)
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
