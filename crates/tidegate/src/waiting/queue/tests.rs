use super::*;

const LINE: u64 = 7;

fn terms() -> WaitRequest {
    WaitRequest { queue: LINE, max_waiters: 100, rank: 0, deadline: None }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

/// Lines whose bells are names.
fn queues() -> Queues<&'static str> {
    Queues::new()
}

/// Somebody who has joined and sleeps.
fn sleeper(queues: &mut Queues<&'static str>, terms: WaitRequest, name: &'static str) -> Ticket {
    let ticket = queues.join(&terms, None).expect("there is a place");
    assert!(matches!(queues.turn(ticket, at(0)), Turn::Sleep { .. }));
    assert_eq!(queues.listen(ticket, name), None);
    ticket
}

const SLEEP: Turn = Turn::Sleep { until: None };

#[test]
fn a_wake_up_is_for_the_first_and_is_used_up_by_looking() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, terms(), "anna");
    let bert = sleeper(&mut queues, terms(), "bert");
    assert_eq!(queues.wake(LINE), Some("anna"));
    assert_eq!(queues.wake(LINE), None, "she has been told");
    assert_eq!(queues.turn(bert, at(0)), SLEEP);
    assert_eq!(queues.turn(anna, at(0)), Turn::Attempt);
    assert_eq!(queues.turn(anna, at(0)), SLEEP);
    assert_eq!(queues.wake(LINE + 1), None);
}

#[test]
fn who_becomes_first_looks() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, terms(), "anna");
    let bert = sleeper(&mut queues, terms(), "bert");
    let carl = sleeper(&mut queues, terms(), "carl");
    let left = queues.leave(bert);
    assert_eq!((left.own, left.next), (Some("bert"), None), "the first is still the first");
    let left = queues.leave(anna);
    assert_eq!((left.own, left.next), (Some("anna"), Some("carl")));
    assert_eq!(queues.turn(carl, at(0)), Turn::Attempt);
    assert_eq!(queues.leave(carl).next, None);
    assert!(queues.is_empty(LINE));
    assert_eq!(queues.len(), 0);
}

#[test]
fn a_wake_up_that_was_not_used_goes_to_the_next() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, terms(), "anna");
    let bert = sleeper(&mut queues, terms(), "bert");
    assert_eq!(queues.wake(LINE), Some("anna"));
    assert_eq!(queues.leave(anna).next, Some("bert"));
    assert_eq!(queues.turn(bert, at(0)), Turn::Attempt);
}

#[test]
fn ranks_go_first_and_equal_ranks_in_arrival_order() {
    let mut queues = queues();
    let ranks = [0, 5, -1, 5, 0, i64::MAX, i64::MIN];
    let max_waiters =
        ranks.map(|rank| queues.join(&WaitRequest { rank, ..terms() }, None).unwrap());
    let mut left = Vec::new();
    while !queues.is_empty(LINE) {
        queues.wake(LINE);
        let present = (0..ranks.len()).filter(|index| !left.contains(index));
        let turns: Vec<_> = present
            .filter(|index| queues.turn(max_waiters[*index], at(0)) == Turn::Attempt)
            .collect();
        assert_eq!(turns.len(), 1);
        queues.leave(max_waiters[turns[0]]);
        left.extend(turns);
    }
    assert_eq!(left, [5, 1, 3, 0, 4, 2, 6]);
}

#[test]
fn only_a_higher_rank_would_be_first_in_a_line_with_somebody() {
    let mut queues = queues();
    assert!(queues.would_be_first(&terms()));
    queues.join(&terms(), None).unwrap();
    for (rank, first) in [(-1, false), (0, false), (1, true)] {
        assert_eq!(queues.would_be_first(&WaitRequest { rank, ..terms() }), first, "{rank}");
    }
    assert!(queues.would_be_first(&WaitRequest { queue: LINE + 1, ..terms() }));
}

#[test]
fn who_is_overtaken_by_a_rank_forgets_when_to_retry() {
    let mut queues = queues();
    let anna = queues.join(&terms(), Some(at(5))).unwrap();
    let boss = queues.join(&WaitRequest { rank: 1, ..terms() }, None).unwrap();
    assert_eq!(queues.turn(anna, at(9)), SLEEP, "or she would wake for nothing, again and again");
    queues.listen(anna, "anna");
    assert_eq!(queues.next_due(), None);
    assert_eq!(queues.leave(boss).next, Some("anna"));
    assert_eq!(queues.turn(anna, at(9)), Turn::Attempt);
}

#[test]
fn a_line_has_so_many_places_and_no_more() {
    let mut queues = queues();
    let two = WaitRequest { max_waiters: 2, ..terms() };
    let first = queues.join(&two, None).unwrap();
    queues.join(&two, None).unwrap();
    assert_eq!(queues.join(&two, None), None);
    assert!(queues.join(&WaitRequest { queue: LINE + 1, ..two }, None).is_some());
    assert_eq!(queues.len(), 2);
    queues.leave(first);
    assert!(queues.join(&two, None).is_some());
    assert_eq!(queues.join(&WaitRequest { max_waiters: 0, queue: 1, ..two }, None), None);
    assert_eq!(queues.len(), 2, "a refusal leaves no empty line");
}

#[test]
fn at_its_deadline_the_first_looks_once_more_and_others_leave() {
    let mut queues = queues();
    let until = WaitRequest { deadline: Some(at(5)), ..terms() };
    let anna = sleeper(&mut queues, until, "anna");
    let bert = sleeper(&mut queues, until, "bert");
    let carl = sleeper(&mut queues, terms(), "carl");
    assert_eq!(queues.next_due(), Some(at(5)));
    assert_eq!(queues.turn(anna, at(4)), Turn::Sleep { until: Some(at(5)) });
    assert_eq!(queues.turn(anna, at(5)), Turn::LastAttempt);
    assert_eq!(queues.turn(bert, at(5)), Turn::TooLate);
    assert_eq!(queues.turn(carl, at(5)), SLEEP);
    queues.leave(bert);
    assert_eq!(queues.next_due(), Some(at(5)));
    queues.leave(anna);
    assert_eq!(queues.next_due(), None);
}

#[test]
fn a_tick_rings_for_those_whose_time_has_come() {
    let mut queues = queues();
    let until = |secs| WaitRequest { deadline: Some(at(secs)), ..terms() };
    let anna = queues.join(&until(9), Some(at(3))).unwrap();
    queues.listen(anna, "anna");
    let bert = sleeper(&mut queues, until(5), "bert");
    sleeper(&mut queues, until(4), "carl");
    assert!(queues.tick(at(2)).is_empty());
    assert_eq!(queues.next_due(), Some(at(3)));
    assert_eq!(queues.tick(at(5)), ["anna", "carl", "bert"]);
    assert_eq!(queues.next_due(), None, "until they sleep again");
    assert_eq!(queues.turn(bert, at(0)), Turn::TooLate, "a tick counts, whatever the clock says");
    assert_eq!(queues.turn(anna, at(0)), Turn::Attempt);
    queues.put_off(anna, Some(at(7)));
    assert_eq!(queues.turn(anna, at(5)), Turn::Sleep { until: Some(at(7)) });
    queues.listen(anna, "anna");
    assert_eq!(queues.next_due(), Some(at(7)));
    assert_eq!(queues.turn(anna, at(7)), Turn::Attempt, "no tick is needed");
    assert_eq!(queues.turn(anna, at(7)), Turn::Sleep { until: Some(at(9)) });
    assert_eq!(queues.listen(anna, "anna again"), Some("anna"));
    assert_eq!(queues.next_due(), Some(at(9)));
}

#[test]
fn a_time_to_retry_that_has_come_is_not_at_once() {
    let now = at(5);
    let later = Timestamp::from_millis(5_001);
    for (told, next) in [
        (None, None),
        (Some(at(0)), Some(later)),
        (Some(now), Some(later)),
        (Some(at(6)), Some(at(6))),
        (Some(Timestamp::MAX), Some(Timestamp::MAX)),
    ] {
        assert_eq!(next_attempt(told, now), next, "{told:?}");
    }
}

#[test]
fn closing_rings_for_all_and_sends_them_home() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, terms(), "anna");
    let bert = sleeper(&mut queues, terms(), "bert");
    let mut rung = queues.close();
    rung.sort_unstable();
    assert_eq!(rung, ["anna", "bert"]);
    assert!(queues.is_closed());
    assert_eq!(queues.turn(bert, at(0)), Turn::Closed);
    queues.leave(anna);
    queues.leave(bert);
    assert_eq!(queues.len(), 0);
}
