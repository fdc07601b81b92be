use super::*;
use crate::plan::TicketTurn;

/// A waiter at an engine, with its number there.
fn waiter(node: u64, arrival: u64) -> PlannedTicket {
    let turn = TicketTurn { node, arrival, hold: [1, 2], was_lost: false, is_last: false };
    PlannedTicket { turn, queue: 5, rank: 0, most: 10 }
}

fn ranked(node: u64, arrival: u64, rank: i64) -> PlannedTicket {
    PlannedTicket { rank, ..waiter(node, arrival) }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

const WAITS: TicketOutcome = TicketOutcome::Waits { queue: 5 };

/// Tickets of these, who came in this order at time 0.
fn tickets(of: &[PlannedTicket]) -> Tickets {
    let mut tickets = Tickets::default();
    for waiter in of {
        assert_eq!(tickets.wait(waiter, at(0)), (WAITS, true));
    }
    tickets
}

#[test]
fn those_that_came_earlier_are_ahead_unless_the_rank_is_higher() {
    let all =
        [ranked(1, 0, 0), ranked(2, 0, 5), ranked(1, 1, 0), ranked(2, 1, 5), ranked(3, 0, -1)];
    let tickets = tickets(&all);
    assert_eq!(all.each_ref().map(|it| tickets.ahead(it)), [2, 0, 3, 1, 4]);
    assert_eq!(tickets.ahead(&ranked(4, 0, 0)), 4, "a new one, behind its equals");
    assert_eq!(tickets.ahead(&ranked(4, 0, 9)), 0);
}

#[test]
fn tickets_of_one_engine_are_in_the_order_of_its_waiters() {
    let (first, second, other) = (waiter(1, 0), waiter(1, 1), waiter(2, 0));
    // The first was overtaken on its way.
    let tickets = tickets(&[second, other, first]);
    assert_eq!([first, second, other].each_ref().map(|it| tickets.ahead(it)), [0, 1, 2]);
}

#[test]
fn a_ticket_is_renewed_each_second_and_lapses_after_three() {
    let (mut tickets, waiter) = (tickets(&[waiter(1, 0)]), waiter(1, 0));
    assert_eq!(tickets.wait(&waiter, at(499)), (WAITS, false), "nothing to write");
    for second in 1..10 {
        let now = at(second * 1_000);
        tickets.lapse(now);
        assert_eq!(tickets.wait(&waiter, now), (WAITS, true));
        assert_eq!(tickets.wait(&waiter, now), (WAITS, false));
    }
    tickets.lapse(at(11_999));
    assert_eq!(tickets.len(), 1);
    tickets.lapse(at(12_000));
    assert!(tickets.is_empty());
}

#[test]
fn one_that_lapsed_joins_again_at_the_end() {
    let (slow, other) = (waiter(1, 0), waiter(2, 0));
    let mut tickets = tickets(&[slow]);
    assert_eq!(tickets.wait(&other, at(2_000)), (WAITS, true));
    tickets.lapse(at(3_000));
    assert_eq!(tickets.ahead(&other), 0);
    assert_eq!(tickets.wait(&slow, at(3_000)), (WAITS, true));
    assert_eq!((tickets.ahead(&other), tickets.ahead(&slow)), (0, 1));
}

#[test]
fn the_bound_counts_all_engines_and_no_queue_is_longer_than_a_record_may_be() {
    let bounded = |node| PlannedTicket { most: 2, ..waiter(node, 0) };
    let mut few = tickets(&[bounded(1), bounded(2)]);
    assert_eq!(few.wait(&bounded(3), at(0)), (TicketOutcome::Full, false));
    assert_eq!(few.wait(&bounded(2), at(1_000)), (WAITS, true), "one that is in it stays");
    assert!(few.leave(1, 0) && !few.leave(1, 0));
    assert_eq!(few.wait(&bounded(3), at(0)), (WAITS, true));
    let long = |node| PlannedTicket { most: usize::MAX, ..waiter(node, 0) };
    let all: Vec<PlannedTicket> = (0..MOST_TICKETS as u64).map(long).collect();
    let mut many = tickets(&all);
    assert_eq!(many.wait(&long(u64::MAX), at(0)).0, TicketOutcome::Full);
    let mut out = ByteWriter::default();
    many.write(&mut out);
    assert!(out.0.len() < MOST_TICKETS * 32, "{} bytes", out.0.len());
}

#[test]
fn a_ticket_of_a_clock_far_ahead_lapses_before_long() {
    let ahead = waiter(1, 0);
    let mut tickets = Tickets::default();
    assert_eq!(tickets.wait(&ahead, at(3_600_000)), (WAITS, true));
    tickets.lapse(at(0));
    assert_eq!(tickets.len(), 1);
    assert!(tickets.leave(9, 9), "the record has to be written");
    tickets.lapse(at(6_000));
    assert!(tickets.is_empty());
}

#[test]
fn tickets_are_read_as_they_were_written_and_none_take_no_bytes() {
    let all = [ranked(u64::MAX, 0, i64::MIN), ranked(0, u64::MAX, i64::MAX), ranked(7, 7, -1)];
    let tickets = tickets(&all);
    let mut out = ByteWriter::default();
    tickets.write(&mut out);
    let mut from = ByteReader(&out.0);
    assert_eq!(Tickets::read(&mut from), Ok(tickets));
    assert!(from.is_empty());
    for length in 1..out.0.len() {
        assert_eq!(Tickets::read(&mut ByteReader(&out.0[..length])), Err(Malformed));
    }
    assert_eq!(Tickets::read(&mut ByteReader(&[0])), Err(Malformed), "an empty list");
    let mut none = ByteWriter::default();
    Tickets::default().write(&mut none);
    assert_eq!(Tickets::read(&mut ByteReader(&none.0)), Ok(Tickets::default()));
    assert!(none.0.is_empty());
}
