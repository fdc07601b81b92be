//! The order of those who wait: who is first, whose turn it is, who is due. No lock, no thread and
//! no clock; `B` is what wakes a waiter, which this file keeps and never calls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tidegate_core::Timestamp;

/// On which terms somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The line to wait in.
    pub(crate) line: u64,
    /// How many may wait in that line, this one included.
    pub(crate) places: usize,
    /// Higher ranks come first; equal ranks come in arrival order.
    pub(crate) rank: i64,
    /// When to give up. At or after this time nobody waits, but who is first still looks once.
    pub(crate) deadline: Option<Timestamp>,
}

/// A place in a line, from joining until leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    line: u64,
    order: Order,
}

impl Place {
    pub(super) fn line(self) -> u64 {
        self.line
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
pub(super) struct Left<B> {
    /// The bell of the one who left. Dropping it may run foreign code: not under a lock.
    pub(super) own: Option<B>,
    /// To be rung: somebody has become first.
    pub(super) next: Option<B>,
}

/// All lines that somebody waits in. A line exists while it is not empty.
#[derive(Debug)]
pub(super) struct Lines<B> {
    lines: HashMap<u64, Line<B>>,
    /// Who sleeps until when. The number of the arrival tells those of one instant apart.
    due: BTreeMap<(Timestamp, u64), Place>,
    arrivals: u64,
    closed: bool,
}

impl<B> Lines<B> {
    pub(super) fn new() -> Self {
        Self { lines: HashMap::new(), due: BTreeMap::new(), arrivals: 0, closed: false }
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self, line: u64) -> bool {
        !self.lines.contains_key(&line)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a newcomer would be first, so that it overtakes nobody when it attempts at once.
    pub(super) fn would_be_first(&self, terms: &Terms) -> bool {
        let first = self.lines.get(&terms.line).and_then(Line::first);
        first.is_none_or(|first| Reverse(terms.rank) < first.rank)
    }

    /// Takes a place behind all of the same rank, or none if the line is full.
    ///
    /// Who would be first must have attempted already; `retry_at` is what it was told. It is not
    /// woken for a change that came before.
    pub(super) fn join(&mut self, terms: &Terms, retry_at: Option<Timestamp>) -> Option<Place> {
        if self.lines.get(&terms.line).map_or(0, |line| line.waiters.len()) >= terms.places {
            return None;
        }
        let order = Order { rank: Reverse(terms.rank), arrival: self.arrivals };
        // 2^64 arrivals take longer than the clock lasts.
        self.arrivals += 1;
        let line = self.lines.entry(terms.line).or_insert_with(Line::new);
        let waiter = Waiter { deadline: terms.deadline, retry_at, ..Waiter::new() };
        line.waiters.insert(order, waiter);
        if line.is_first(order) {
            line.stirred = false;
        }
        Some(Place { line: terms.line, order })
    }

    /// What the one at `place` does at the time `now`. An answer that lets it attempt uses up what
    /// there was to look at.
    pub(super) fn turn(&mut self, place: Place, now: Timestamp) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        let line = self.line_of(place);
        let is_first = line.is_first(place.order);
        let stirred = line.stirred;
        let waiter = line.waiter(place.order);
        let expired = waiter.expired || has_come(waiter.deadline, now);
        let has_reason = stirred || has_come(waiter.retry_at, now);
        match (is_first, expired) {
            (true, true) => Turn::LastAttempt,
            (false, true) => Turn::TooLate,
            (true, false) if has_reason => {
                waiter.retry_at = None;
                line.stirred = false;
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
    pub(super) fn put_off(&mut self, place: Place, retry_at: Option<Timestamp>) {
        self.line_of(place).waiter(place.order).retry_at = retry_at;
    }

    /// Hangs up the bell of somebody who goes to sleep, and returns the one that hung there.
    pub(super) fn listen(&mut self, place: Place, bell: B) -> Option<B> {
        let waiter = self.line_of(place).waiter(place.order);
        let old = waiter.bell.replace(bell);
        let due = waiter.due();
        let scheduled = std::mem::replace(&mut waiter.scheduled, due);
        if scheduled != due {
            if let Some(at) = scheduled {
                self.due.remove(&(at, place.order.arrival));
            }
            if let Some(at) = due {
                self.due.insert((at, place.order.arrival), place);
            }
        }
        old
    }

    /// Gives the place back. If that makes somebody else first, it is its turn to look: there may
    /// be more than the one who left has taken, or it may need less.
    pub(super) fn leave(&mut self, place: Place) -> Left<B> {
        let line = self.line_of(place);
        let was_first = line.is_first(place.order);
        let waiter = line.waiters.remove(&place.order);
        let next = if was_first { line.stir() } else { None };
        if line.waiters.is_empty() {
            self.lines.remove(&place.line);
        }
        if let Some(at) = waiter.as_ref().and_then(|waiter| waiter.scheduled) {
            self.due.remove(&(at, place.order.arrival));
        }
        Left { own: waiter.and_then(|waiter| waiter.bell), next }
    }

    /// Makes the first of a line look again, and returns its bell, to be rung.
    pub(super) fn wake(&mut self, line: u64) -> Option<B> {
        self.lines.get_mut(&line).and_then(Line::stir)
    }

    /// Makes the first of every line look again, and returns their bells, to be rung.
    pub(super) fn wake_all(&mut self) -> Vec<B> {
        self.lines.values_mut().filter_map(Line::stir).collect()
    }

    /// Makes all look again whose deadline or time to retry has come, and returns their bells.
    pub(super) fn tick(&mut self, now: Timestamp) -> Vec<B> {
        let mut bells = Vec::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let place = entry.remove();
            let line = self.line_of(place);
            let is_first = line.is_first(place.order);
            let waiter = line.waiter(place.order);
            waiter.scheduled = None;
            waiter.expired |= has_come(waiter.deadline, now);
            let retries = is_first && has_come(waiter.retry_at, now);
            bells.extend(waiter.bell.take());
            line.stirred |= retries;
        }
        bells
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Sends everybody home, and returns their bells.
    pub(super) fn close(&mut self) -> Vec<B> {
        self.closed = true;
        let waiters = self.lines.values_mut().flat_map(|line| line.waiters.values_mut());
        waiters.filter_map(|waiter| waiter.bell.take()).collect()
    }

    fn line_of(&mut self, place: Place) -> &mut Line<B> {
        self.lines.get_mut(&place.line).expect("a place is in its line until it is left")
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
struct Line<B> {
    waiters: BTreeMap<Order, Waiter<B>>,
    /// Something may have changed since the first one attempted.
    stirred: bool,
}

impl<B> Line<B> {
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
        self.waiters.first_entry().and_then(|mut first| first.get_mut().bell.take())
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
    bell: Option<B>,
}

impl<B> Waiter<B> {
    fn new() -> Self {
        Self { deadline: None, retry_at: None, scheduled: None, expired: false, bell: None }
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
