//! The order of waiters: which is first, whose turn it is, which is due. No lock, no thread and
//! no clock; `B` is a waker, which this file stores and never calls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tidegate_core::Timestamp;

/// A request to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRequest {
    /// The queue to wait in.
    pub queue: u64,
    /// How many may wait in that queue, this one included.
    pub max_waiters: usize,
    /// Higher ranks come first; equal ranks come in arrival order.
    pub rank: i64,
    /// When to give up. From then on a waiter does not sleep; the head still makes one attempt.
    pub deadline: Option<Timestamp>,
    /// How its attempts are made.
    pub attempts: Attempts,
}

/// How the attempts of a waiter are made. Those of one queue are all made alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// By the head alone, under a lock: their results come at once.
    Now,
    /// By the head alone. Their results may come later, and no lock is held during them.
    Later,
    /// By every waiter, as soon as it joins: the order is kept where the attempts are made, because
    /// others share it. Then by the head, as with the others, and by every waiter at each multiple
    /// of this time, so that its turn is kept. Their results may come later.
    Ticketed {
        /// How often a waiter attempts that is not the head.
        renewed_every: Duration,
    },
}

/// An attempt that is to be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTurn {
    /// The time.
    pub now: Timestamp,
    /// The number of the waiter in its queue; later ones have larger numbers.
    pub arrival: u64,
    /// Whether it leaves the queue if this fails: its deadline has come.
    pub is_last: bool,
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

    pub(super) fn arrival(self) -> u64 {
        self.order.arrival
    }
}

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Attempt: it is first, and something may have changed since the last attempt.
    Attempt,
    /// Attempt and then leave in any case: it is first, and its deadline has come.
    LastAttempt,
    /// Sleep, until this time unless woken: another waiter is first, or nothing has changed.
    Sleep { until: Option<Timestamp> },
    /// Leave: the deadline has come, and another waiter is first that has no reason to attempt.
    TooLate,
    /// Leave: the queue was full when it came, as an attempt has shown since.
    Full,
    /// Leave: the queues are closed.
    Closed,
}

/// The wakers after a departure.
#[derive(Debug)]
pub(super) struct Departure<B> {
    /// The waker of the waiter that left. Dropping it may run foreign code: not under a lock.
    pub(super) own: Option<B>,
    /// To be woken: the new head.
    pub(super) next: Option<B>,
}

/// All queues with waiters. A queue exists while it is not empty.
#[derive(Debug)]
pub(super) struct Queues<B> {
    queues: HashMap<u64, Queue<B>>,
    /// Sleeping waiters by due time. The number of the arrival distinguishes those of one instant.
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

    /// Whether a new waiter would be first, so that it overtakes none when it attempts at once.
    pub(super) fn would_be_first(&self, request: &WaitRequest) -> bool {
        let first = self.queues.get(&request.queue).and_then(Queue::first);
        first.is_none_or(|first| Reverse(request.rank) < first.rank)
    }

    /// The number of the next waiter.
    pub(super) fn next_arrival(&self) -> u64 {
        self.arrivals
    }

    /// Whether the first in a queue makes its first attempt, so that it is not known yet whether
    /// those behind it have to wait at all.
    pub(super) fn is_undecided(&self, queue: u64) -> bool {
        self.queues.get(&queue).is_some_and(Queue::is_undecided)
    }

    /// Joins as the first, to make an attempt at once.
    pub(super) fn join_attempting(&mut self, request: &WaitRequest) -> Ticket {
        let order = Order { rank: Reverse(request.rank), arrival: self.arrivals };
        self.arrivals += 1;
        let queue = self.queues.entry(request.queue).or_insert_with(Queue::new);
        let waiter = Waiter {
            deadline: request.deadline,
            undecided: Some(request.max_waiters),
            attempt: Some(self.arrivals),
            ..Waiter::new()
        };
        queue.waiters.insert(order, waiter);
        queue.may_have_changed = false;
        Ticket { queue: request.queue, order }
    }

    /// Joins to make an attempt at once, whether or not there are waiters ahead.
    pub(super) fn join_ticketed(
        &mut self,
        request: &WaitRequest,
        renewed_every: Duration,
    ) -> Ticket {
        let order = Order { rank: Reverse(request.rank), arrival: self.arrivals };
        self.arrivals += 1;
        let queue = self.queues.entry(request.queue).or_insert_with(Queue::new);
        let waiter = Waiter {
            deadline: request.deadline,
            attempt: Some(self.arrivals),
            renewed_every: Some(renewed_every),
            ..Waiter::new()
        };
        queue.waiters.insert(order, waiter);
        if queue.is_first(order) {
            queue.may_have_changed = false;
        }
        Ticket { queue: request.queue, order }
    }

    /// Marks that an attempt begins whose result comes later.
    pub(super) fn begin_attempt(&mut self, ticket: Ticket) {
        let arrivals = self.arrivals;
        self.queue_of(ticket).waiter(ticket.order).attempt = Some(arrivals);
    }

    /// Stores that an attempt has failed. Those that came before it began, or are behind one that
    /// waits, know by it whether they may wait. Returns the wakers of those that have to leave.
    pub(super) fn end_attempt(
        &mut self,
        ticket: Ticket,
        retry_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<B> {
        let queue = self.queue_of(ticket);
        let waiter = queue.waiter(ticket.order);
        let began = waiter.attempt.take().unwrap_or(0);
        waiter.retry_at = retry_at;
        waiter.renew_at = waiter.renewed_every.map(|every| next_multiple(every, now));
        let (mut ahead, mut wakers) = (0, Vec::new());
        for (order, waiter) in &mut queue.waiters {
            if let Some(max_waiters) = waiter.undecided {
                if order.arrival >= began && ahead == 0 {
                    break;
                }
                waiter.undecided = None;
                waiter.is_refused = ahead >= max_waiters;
                if waiter.is_refused {
                    wakers.extend(waiter.waker.take());
                }
            }
            ahead += usize::from(!waiter.is_refused);
        }
        let late = queue.waiters.values_mut().filter(|waiter| waiter.patience.is_some());
        wakers.extend(late.filter_map(|waiter| waiter.waker.take()));
        wakers
    }

    /// Joins behind all of the same rank; `None` if the queue is full.
    ///
    /// A waiter that would be first must have attempted already; `retry_at` is the result. It is
    /// not woken for an earlier change.
    pub(super) fn join(
        &mut self,
        request: &WaitRequest,
        retry_at: Option<Timestamp>,
    ) -> Option<Ticket> {
        let is_undecided = self.is_undecided(request.queue);
        let waiters = self.queues.get(&request.queue).map_or(0, |queue| queue.waiters.len());
        if !is_undecided && waiters >= request.max_waiters {
            return None;
        }
        let order = Order { rank: Reverse(request.rank), arrival: self.arrivals };
        // 2^64 arrivals take longer than the clock lasts.
        self.arrivals += 1;
        let queue = self.queues.entry(request.queue).or_insert_with(Queue::new);
        let undecided = is_undecided.then_some(request.max_waiters);
        let waiter = Waiter { deadline: request.deadline, retry_at, undecided, ..Waiter::new() };
        queue.waiters.insert(order, waiter);
        if queue.is_first(order) {
            queue.may_have_changed = false;
        }
        Some(Ticket { queue: request.queue, order })
    }

    /// What a waiter does at the time `now`. A turn to attempt consumes the change that was the
    /// reason for it.
    pub(super) fn turn(&mut self, ticket: Ticket, now: Timestamp) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        let queue = self.queue_of(ticket);
        if queue.waiter(ticket.order).renewed_every.is_some() {
            return queue.ticketed_turn(ticket.order, now);
        }
        let is_first = queue.is_first(ticket.order);
        let may_have_changed = queue.may_have_changed;
        let head_attempts = queue.head_attempts(now);
        let is_undecided = queue.is_undecided();
        let waiter = queue.waiter(ticket.order);
        if waiter.is_refused {
            return Turn::Full;
        }
        if waiter.undecided.is_some() && (is_first || is_undecided) {
            // Its first attempt, whatever its deadline is; it is made when those ahead have made
            // theirs.
            return match (is_first, has_come(waiter.deadline, now)) {
                (false, _) => Turn::Sleep { until: None },
                (true, true) => Turn::LastAttempt,
                (true, false) => {
                    queue.may_have_changed = false;
                    Turn::Attempt
                }
            };
        }
        let expired = waiter.expired || has_come(waiter.deadline, now);
        let has_reason = may_have_changed || has_come(waiter.retry_at, now);
        match (is_first, expired) {
            (true, true) => Turn::LastAttempt,
            (false, true) => {
                // What is released at the instant of the deadline comes before it; those ahead
                // take their parts first.
                waiter.expired = true;
                let patience = *waiter.patience.get_or_insert(now.saturating_add(PATIENCE));
                if head_attempts && now < patience {
                    Turn::Sleep { until: waiter.due() }
                } else {
                    Turn::TooLate
                }
            }
            (true, false) if has_reason => {
                waiter.retry_at = None;
                queue.may_have_changed = false;
                Turn::Attempt
            }
            (true, false) => Turn::Sleep { until: waiter.due() },
            (false, false) => {
                // A higher rank came between. It attempts again when it is first again.
                waiter.retry_at = None;
                Turn::Sleep { until: waiter.due() }
            }
        }
    }

    /// Stores the retry time of an attempt. Returns the wakers of waiters whose deadline has come:
    /// nothing is left for them.
    pub(super) fn put_off(&mut self, ticket: Ticket, retry_at: Option<Timestamp>) -> Vec<B> {
        let queue = self.queue_of(ticket);
        queue.waiter(ticket.order).retry_at = retry_at;
        let late = queue.waiters.values_mut().filter(|waiter| waiter.patience.is_some());
        late.filter_map(|waiter| waiter.waker.take()).collect()
    }

    /// Registers the waker of a waiter that goes to sleep, and returns the previous one.
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

    /// Leaves the queue. A new head gets a turn: there may be more than the old one has taken, or
    /// it may need less.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Departure<B> {
        let queue = self.queue_of(ticket);
        let was_first = queue.is_first(ticket.order);
        let waiter = queue.waiters.remove(&ticket.order);
        let next = if was_first { queue.mark_changed() } else { None };
        if queue.waiters.is_empty() {
            self.queues.remove(&ticket.queue);
        }
        if let Some(at) = waiter.as_ref().and_then(|waiter| waiter.scheduled) {
            self.due.remove(&(at, ticket.order.arrival));
        }
        Departure { own: waiter.and_then(|waiter| waiter.waker), next }
    }

    /// Marks a queue as changed, and returns the waker of its head, to be woken.
    pub(super) fn wake(&mut self, queue: u64) -> Option<B> {
        self.queues.get_mut(&queue).and_then(Queue::mark_changed)
    }

    /// Marks every queue as changed, and returns the wakers of their heads, to be woken.
    pub(super) fn wake_all(&mut self) -> Vec<B> {
        self.queues.values_mut().filter_map(Queue::mark_changed).collect()
    }

    /// Handles all waiters whose deadline or retry time has come, and returns their wakers.
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
            queue.may_have_changed |= retries;
        }
        wakers
    }

    /// When the next waiter is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Closes all queues, and returns the wakers of all waiters.
    pub(super) fn close(&mut self) -> Vec<B> {
        self.closed = true;
        let waiters = self.queues.values_mut().flat_map(|queue| queue.waiters.values_mut());
        waiters.filter_map(|waiter| waiter.waker.take()).collect()
    }

    fn queue_of(&mut self, ticket: Ticket) -> &mut Queue<B> {
        self.queues.get_mut(&ticket.queue).expect("a ticket is in its queue until it leaves")
    }
}

/// When to repeat an attempt that failed at `now` with `retry_at`.
///
/// A time in the past would repeat it without end.
pub(super) fn next_attempt(retry_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    retry_at.map(|at| if at > now { at } else { now.saturating_add(PAUSE) })
}

/// The first multiple of a time after `now`, so that all waiters of a queue come at once.
fn next_multiple(every: Duration, now: Timestamp) -> Timestamp {
    let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    let left_ns = every_ns - now.as_nanos() % every_ns;
    now.saturating_add(Duration::from_nanos(left_ns))
}

/// The order in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    rank: Reverse<i64>,
    arrival: u64,
}

#[derive(Debug)]
struct Queue<B> {
    waiters: BTreeMap<Order, Waiter<B>>,
    /// Something may have changed since the head attempted.
    may_have_changed: bool,
}

impl<B> Queue<B> {
    fn new() -> Self {
        Self { waiters: BTreeMap::new(), may_have_changed: false }
    }

    fn first(&self) -> Option<Order> {
        self.waiters.first_key_value().map(|(order, _)| *order)
    }

    fn is_first(&self, order: Order) -> bool {
        self.first() == Some(order)
    }

    fn waiter(&mut self, order: Order) -> &mut Waiter<B> {
        self.waiters.get_mut(&order).expect("a ticket is in its queue until it leaves")
    }

    /// Whether the first makes its first attempt.
    fn is_undecided(&self) -> bool {
        let first = self.waiters.first_key_value();
        first.is_some_and(|(_, it)| it.undecided.is_some())
    }

    /// Whether the first has an attempt to make.
    fn head_attempts(&self, now: Timestamp) -> bool {
        let is_due = |first: &Waiter<B>| {
            first.attempt.is_some()
                || first.expired
                || has_come(first.deadline, now)
                || has_come(first.retry_at, now)
        };
        self.may_have_changed || self.waiters.first_key_value().is_some_and(|it| is_due(it.1))
    }

    /// What a waiter does whose order is kept elsewhere: those ahead of it count there.
    fn ticketed_turn(&mut self, order: Order, now: Timestamp) -> Turn {
        let is_first = self.is_first(order);
        let may_have_changed = is_first && self.may_have_changed;
        let waiter = self.waiter(order);
        if waiter.expired || has_come(waiter.deadline, now) {
            return Turn::LastAttempt;
        }
        if !is_first {
            // The head finds it out for all.
            waiter.retry_at = None;
        }
        let is_due = has_come(waiter.retry_at, now) || has_come(waiter.renew_at, now);
        if !may_have_changed && !is_due {
            return Turn::Sleep { until: waiter.due() };
        }
        (waiter.retry_at, waiter.renew_at) = (None, None);
        if is_first {
            self.may_have_changed = false;
        }
        Turn::Attempt
    }

    fn mark_changed(&mut self) -> Option<B> {
        self.may_have_changed = true;
        self.waiters.first_entry().and_then(|mut first| first.get_mut().waker.take())
    }
}

#[derive(Debug)]
struct Waiter<B> {
    deadline: Option<Timestamp>,
    retry_at: Option<Timestamp>,
    /// How often it attempts though it is not the head, and when it does so next.
    renewed_every: Option<Duration>,
    renew_at: Option<Timestamp>,
    /// Its time in `due`, if it is there.
    scheduled: Option<Timestamp>,
    /// Whether a tick has found that the deadline has come, whatever the clock shows later.
    expired: bool,
    /// How long it waits for those ahead of it, once its deadline has come.
    patience: Option<Timestamp>,
    /// How many may wait in the queue, while it is not known whether it has to wait.
    undecided: Option<usize>,
    /// How many had come when its attempt began, while the result is awaited.
    attempt: Option<u64>,
    /// Whether there was no room for it, as is known since.
    is_refused: bool,
    /// Absent before the first sleep, and from a wake-up to the next sleep.
    waker: Option<B>,
}

impl<B> Waiter<B> {
    fn new() -> Self {
        Self {
            deadline: None,
            retry_at: None,
            renewed_every: None,
            renew_at: None,
            scheduled: None,
            expired: false,
            patience: None,
            undecided: None,
            attempt: None,
            is_refused: false,
            waker: None,
        }
    }

    fn due(&self) -> Option<Timestamp> {
        let times = [self.deadline, self.retry_at, self.renew_at];
        self.patience.or_else(|| times.into_iter().flatten().min())
    }
}

fn has_come(time: Option<Timestamp>, now: Timestamp) -> bool {
    time.is_some_and(|time| time <= now)
}

/// The least time between two attempts whose retry time has passed.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// How long a waiter whose deadline has come waits for the attempts of those ahead of it.
const PATIENCE: Duration = Duration::from_millis(10);

#[cfg(all(test, not(shuttle)))]
mod tests;
