//! The tickets of those that wait for a slot: one queue over all engines, in the record of its key.
//!
//! A ticket says who waits, not what it gets: a slot is taken only with an entry among those on hold,
//! in the same write. So a ticket that is lost, or lapses too early, costs an order, and never a slot.

use std::time::Duration;

use tidegate_core::Timestamp;

use crate::plan::PlannedTicket;
use crate::store::TicketOutcome;
use crate::store::record::{ByteReader, ByteWriter, Malformed, read_time, time};

/// The tickets of a key, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tickets {
    list: Vec<Ticket>,
    /// Whether one was found to expire later than it may, so that the record has to be written.
    is_cut: bool,
}

/// One that waits, at an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    node: u64,
    /// Its number at that engine; later ones have larger numbers.
    arrival: u64,
    /// Higher ranks come first.
    rank: i64,
    expires: Timestamp,
}

impl Tickets {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Drops those that have lapsed. One that was written by a clock far ahead lapses as soon as one
    /// that is written now, or a little later.
    pub(super) fn lapse(&mut self, now: Timestamp) {
        let latest = now.saturating_add(LAPSES_AFTER * 2);
        self.list.retain_mut(|ticket| {
            self.is_cut |= ticket.expires > latest;
            ticket.expires = ticket.expires.min(latest);
            ticket.expires > now
        });
    }

    /// When the last of them lapses.
    pub(super) fn last_expiry(&self) -> Option<Timestamp> {
        self.list.iter().map(|ticket| ticket.expires).max()
    }

    /// How many come before a waiter, whether or not it has a ticket.
    pub(super) fn ahead(&self, of: &PlannedTicket) -> usize {
        let (before, after) = match self.position(of) {
            Some(index) => (&self.list[..index], &self.list[index + 1..]),
            None => self.list.split_at(self.place_for(of)),
        };
        let earlier = before.iter().filter(|ticket| ticket.rank >= of.rank).count();
        earlier + after.iter().filter(|ticket| ticket.rank > of.rank).count()
    }

    /// Lets one wait that got nothing; true if that has changed something.
    pub(super) fn wait(&mut self, of: &PlannedTicket, now: Timestamp) -> (TicketOutcome, bool) {
        let (waits, expires) =
            (TicketOutcome::Waits { queue: of.queue }, now.saturating_add(LAPSES_AFTER));
        if let Some(index) = self.position(of) {
            let ticket = &mut self.list[index];
            let is_due = ticket.expires <= now.saturating_add(RENEWED_BELOW);
            if is_due {
                ticket.expires = expires;
            }
            return (waits, is_due || self.is_cut);
        }
        if self.len() >= of.most.min(MOST_TICKETS) {
            return (TicketOutcome::Full, self.is_cut);
        }
        let PlannedTicket { turn, rank, .. } = *of;
        let ticket = Ticket { node: turn.node, arrival: turn.arrival, rank, expires };
        self.list.insert(self.place_for(of), ticket);
        (waits, true)
    }

    /// Takes a ticket out; true if that has changed something.
    pub(super) fn leave(&mut self, node: u64, arrival: u64) -> bool {
        let before = self.len();
        self.list.retain(|ticket| (ticket.node, ticket.arrival) != (node, arrival));
        self.len() != before || self.is_cut
    }

    /// Where the ticket of a waiter is. One that it got under another rank does not count: the rule
    /// was edited.
    fn position(&self, of: &PlannedTicket) -> Option<usize> {
        let (id, rank) = ((of.turn.node, of.turn.arrival), of.rank);
        self.list.iter().position(|it| (it.node, it.arrival) == id && it.rank == rank)
    }

    /// Where a new ticket belongs: at the end, but before those of the same engine that came later.
    /// So the first that waits at an engine is the first of its tickets.
    fn place_for(&self, of: &PlannedTicket) -> usize {
        let is_later = |ticket: &Ticket| {
            (ticket.node, ticket.rank) == (of.turn.node, of.rank)
                && ticket.arrival > of.turn.arrival
        };
        self.list.iter().position(is_later).unwrap_or(self.list.len())
    }

    /// Nothing is written where there are none.
    pub(super) fn write(&self, out: &mut ByteWriter) {
        if self.is_empty() {
            return;
        }
        out.list(self.list.iter(), |out, ticket| {
            out.word(ticket.node);
            out.number(ticket.arrival);
            out.number(zigzag(ticket.rank));
            time(out, ticket.expires);
        });
    }

    pub(super) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        if from.is_empty() {
            return Ok(Self::default());
        }
        let list = from.list(|from| {
            Ok(Ticket {
                node: from.word()?,
                arrival: from.number()?,
                rank: unzigzag(from.number()?),
                expires: read_time(from)?,
            })
        })?;
        if list.is_empty() { Err(Malformed) } else { Ok(Self { list, is_cut: false }) }
    }
}

/// Small numbers of either sign as small numbers.
const fn zigzag(rank: i64) -> u64 {
    ((rank << 1) ^ (rank >> 63)).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// How long a ticket is valid that is not renewed.
const LAPSES_AFTER: Duration = Duration::from_secs(3);

/// A ticket that is valid for less than this is renewed: at every second, as its waiter attempts, and
/// within 1.5 s at first.
const RENEWED_BELOW: Duration = Duration::from_millis(2_500);

/// How many tickets a key may have, so that its record stays small.
const MOST_TICKETS: usize = 1_024;

#[cfg(test)]
mod tests;
