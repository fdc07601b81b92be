//! The order of those who wait: who is first, whose turn it is, who is due. No lock, no thread and
//! no clock; `B` is what wakes a waiter, which this file keeps and never calls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tidegate_core::Timestamp;

/// On which terms somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitRequest {
    /// The queue to wait in.
    pub(crate) queue: u64,
    /// How many may wait in that queue, this one included.
    pub(crate) max_waiters: usize,
    /// Higher ranks come first; equal ranks come in arrival order.
    pub(crate) rank: i64,
    /// When to give up. From then on a waiter does not sleep; the head still makes one attempt.
    pub(crate) deadline: Option<Timestamp>,
}

/// A position in a queue, from joining until leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    queue: u64,
    order: Order,
}

impl Ticket {
    pub(super) fn queue(self) -> u64 {
        self.queue
    }
}

/// What somebody who waits does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Attempt: it is first, and something may have changed since the last attempt.
    Attempt,
    /// Attempt and then leave in any case: it is first, and its deadline has come.
    LastAttempt,
    /// Sleep, until this time if nobody rings: somebody else is first, or nothing has changed.
    Sleep { until: Option<Timestamp> },
    /// Leave: the deadline has come, and somebody else is first.
    TooLate,
    /// Leave: the lines are closed.
    Closed,
}

/// The bells that a departure leaves behind.
#[derive(Debug)]
pub(super) struct Departure<B> {
    /// The bell of the one who left. Dropping it may run foreign code: not under a lock.
    pub(super) own: Option<B>,
    /// To be rung: somebody has become first.
    pub(super) next: Option<B>,
}

/// All lines that somebody waits in. A line exists while it is not empty.
#[derive(Debug)]
pub(super) struct Queues<B> {
    queues: HashMap<u64, Queue<B>>,
    /// Who sleeps until when. The number of the arrival tells those of one instant apart.
    due: BTreeMap<(Timestamp, u64), Ticket>,
    arrivals: u64,
    closed: bool,
}

impl<B> Queues<B> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::new(), due: BTreeMap::new(), arrivals: 0, closed: false }
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self, queue: u64) -> bool {
        !self.queues.contains_key(&queue)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a newcomer would be first, so that it overtakes nobody when it attempts at once.
    pub(super) fn would_be_first(&self, terms: &WaitRequest) -> bool {
        let first = self.queues.get(&terms.queue).and_then(Queue::first);
        first.is_none_or(|first| Reverse(terms.rank) < first.rank)
    }

    /// Takes a place behind all of the same rank, or none if the line is full.
    ///
    /// Who would be first must have attempted already; `retry_at` is what it was told. It is not
    /// woken for a change that came before.
    pub(super) fn join(
        &mut self,
        terms: &WaitRequest,
        retry_at: Option<Timestamp>,
    ) -> Option<Ticket> {
        if self.queues.get(&terms.queue).map_or(0, |queue| queue.waiters.len()) >= terms.max_waiters
        {
            return None;
        }
        let order = Order { rank: Reverse(terms.rank), arrival: self.arrivals };
        // 2^64 arrivals take longer than the clock lasts.
        self.arrivals += 1;
        let queue = self.queues.entry(terms.queue).or_insert_with(Queue::new);
        let waiter = Waiter { deadline: terms.deadline, retry_at, ..Waiter::new() };
        queue.waiters.insert(order, waiter);
        if queue.is_first(order) {
            queue.stirred = false;
        }
        Some(Ticket { queue: terms.queue, order })
    }

    /// What the one at `place` does at the time `now`. An answer that lets it attempt uses up what
    /// there was to look at.
    pub(super) fn turn(&mut self, ticket: Ticket, now: Timestamp) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        let queue = self.queue_of(ticket);
        let is_first = queue.is_first(ticket.order);
        let stirred = queue.stirred;
        let waiter = queue.waiter(ticket.order);
        let expired = waiter.expired || has_come(waiter.deadline, now);
        let has_reason = stirred || has_come(waiter.retry_at, now);
        match (is_first, expired) {
            (true, true) => Turn::LastAttempt,
            (false, true) => Turn::TooLate,
            (true, false) if has_reason => {
                waiter.retry_at = None;
                queue.stirred = false;
                Turn::Attempt
            }
            (true, false) => Turn::Sleep { until: waiter.due() },
            (false, false) => {
                // A higher rank came between. It looks anew when it is first again.
                waiter.retry_at = None;
                Turn::Sleep { until: waiter.due() }
            }
        }
    }

    /// Notes what an attempt was told.
    pub(super) fn put_off(&mut self, ticket: Ticket, retry_at: Option<Timestamp>) {
        self.queue_of(ticket).waiter(ticket.order).retry_at = retry_at;
    }

    /// Hangs up the bell of somebody who goes to sleep, and returns the one that hung there.
    pub(super) fn listen(&mut self, ticket: Ticket, waker: B) -> Option<B> {
        let waiter = self.queue_of(ticket).waiter(ticket.order);
        let old = waiter.waker.replace(waker);
        let due = waiter.due();
        let scheduled = std::mem::replace(&mut waiter.scheduled, due);
        if scheduled != due {
            if let Some(at) = scheduled {
                self.due.remove(&(at, ticket.order.arrival));
            }
            if let Some(at) = due {
                self.due.insert((at, ticket.order.arrival), ticket);
            }
        }
        old
    }

    /// Gives the place back. If that makes somebody else first, it is its turn to look: there may
    /// be more than the one who left has taken, or it may need less.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Departure<B> {
        let queue = self.queue_of(ticket);
        let was_first = queue.is_first(ticket.order);
        let waiter = queue.waiters.remove(&ticket.order);
        let next = if was_first { queue.stir() } else { None };
        if queue.waiters.is_empty() {
            self.queues.remove(&ticket.queue);
        }
        if let Some(at) = waiter.as_ref().and_then(|waiter| waiter.scheduled) {
            self.due.remove(&(at, ticket.order.arrival));
        }
        Departure { own: waiter.and_then(|waiter| waiter.waker), next }
    }

    /// Makes the first of a line look again, and returns its bell, to be rung.
    pub(super) fn wake(&mut self, queue: u64) -> Option<B> {
        self.queues.get_mut(&queue).and_then(Queue::stir)
    }

    /// Makes the first of every line look again, and returns their bells, to be rung.
    pub(super) fn wake_all(&mut self) -> Vec<B> {
        self.queues.values_mut().filter_map(Queue::stir).collect()
    }

    /// Makes all look again whose deadline or time to retry has come, and returns their bells.
    pub(super) fn tick(&mut self, now: Timestamp) -> Vec<B> {
        let mut wakers = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ticket = entry.remove();
            let queue = self.queue_of(ticket);
            let is_first = queue.is_first(ticket.order);
            let waiter = queue.waiter(ticket.order);
            waiter.scheduled = None;
            waiter.expired |= has_come(waiter.deadline, now);
            let retries = is_first && has_come(waiter.retry_at, now);
            wakers.extend(waiter.waker.take());
            queue.stirred |= retries;
        }
        wakers
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Sends everybody home, and returns their bells.
    pub(super) fn close(&mut self) -> Vec<B> {
        self.closed = true;
        let waiters = self.queues.values_mut().flat_map(|queue| queue.waiters.values_mut());
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
    }

    fn queue_of(&mut self, ticket: Ticket) -> &mut Queue<B> {
        self.queues.get_mut(&ticket.queue).expect("a place is in its line until it is left")
    }
}

/// When an attempt at the time `now` that was told `retry_at` is made again.
///
/// A time that had already come would be an attempt without end.
pub(super) fn next_attempt(retry_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    retry_at.map(|at| if at > now { at } else { now.saturating_add(PAUSE) })
}

/// The order in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    rank: Reverse<i64>,
    arrival: u64,
}

#[derive(Debug)]
struct Queue<B> {
    waiters: BTreeMap<Order, Waiter<B>>,
    /// Something may have changed since the first one attempted.
    stirred: bool,
}

impl<B> Queue<B> {
    fn new() -> Self {
        Self { waiters: BTreeMap::new(), stirred: false }
    }

    fn first(&self) -> Option<Order> {
        self.waiters.first_key_value().map(|(order, _)| *order)
    }

    fn is_first(&self, order: Order) -> bool {
        self.first() == Some(order)
    }

    fn waiter(&mut self, order: Order) -> &mut Waiter<B> {
        self.waiters.get_mut(&order).expect("a place is in its line until it is left")
    }

    fn stir(&mut self) -> Option<B> {
        self.stirred = true;
        self.waiters.first_entry().and_then(|mut first| first.get_mut().waker.take())
    }
}

#[derive(Debug)]
struct Waiter<B> {
    deadline: Option<Timestamp>,
    retry_at: Option<Timestamp>,
    /// Under which time `due` has it, if it does.
    scheduled: Option<Timestamp>,
    /// A tick has found that the deadline has come, whatever the clock says later.
    expired: bool,
    /// Absent before the first sleep, and from being rung to the next sleep.
    waker: Option<B>,
}

impl<B> Waiter<B> {
    fn new() -> Self {
        Self { deadline: None, retry_at: None, scheduled: None, expired: false, waker: None }
    }

    fn due(&self) -> Option<Timestamp> {
        [self.deadline, self.retry_at].into_iter().flatten().min()
    }
}

fn has_come(time: Option<Timestamp>, now: Timestamp) -> bool {
    time.is_some_and(|time| time <= now)
}

/// The least time between two looks at something that should have come but has not.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

#[cfg(all(test, not(shuttle)))]
mod tests;
