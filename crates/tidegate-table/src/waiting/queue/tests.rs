use super::*;

const QUEUE: u64 = 7;

fn request() -> WaitRequest {
    WaitRequest { queue: QUEUE, max_waiters: 100, rank: 0, deadline: None, attempts: Attempts::Now }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

/// Queues whose wakers are names.
fn queues() -> Queues<&'static str> {
    Queues::new()
}

/// A waiter that has joined and sleeps.
fn sleeper(queues: &mut Queues<&'static str>, request: WaitRequest, name: &'static str) -> Ticket {
    let ticket = queues.join(&request, None).expect("there is room");
    assert!(matches!(queues.turn(ticket, at(0)), Turn::Sleep { .. }));
    assert_eq!(queues.listen(ticket, name), None);
    ticket
}

const SLEEP: Turn = Turn::Sleep { until: None };

#[test]
fn a_wake_up_is_for_the_head_and_is_consumed_by_its_attempt() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, request(), "anna");
    let bert = sleeper(&mut queues, request(), "bert");
    assert_eq!(queues.wake(QUEUE), Some("anna"));
    assert_eq!(queues.wake(QUEUE), None, "she has been woken");
    assert_eq!(queues.turn(bert, at(0)), SLEEP);
    assert_eq!(queues.turn(anna, at(0)), Turn::Attempt);
    assert_eq!(queues.turn(anna, at(0)), SLEEP);
    assert_eq!(queues.wake(QUEUE + 1), None);
}

#[test]
fn a_new_head_gets_a_turn() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, request(), "anna");
    let bert = sleeper(&mut queues, request(), "bert");
    let carl = sleeper(&mut queues, request(), "carl");
    let left = queues.leave(bert);
    assert_eq!((left.own, left.next), (Some("bert"), None), "the first is still the first");
    let left = queues.leave(anna);
    assert_eq!((left.own, left.next), (Some("anna"), Some("carl")));
    assert_eq!(queues.turn(carl, at(0)), Turn::Attempt);
    assert_eq!(queues.leave(carl).next, None);
    assert!(queues.is_empty(QUEUE));
    assert_eq!(queues.len(), 0);
}

#[test]
fn an_unused_wake_up_passes_to_the_next_waiter() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, request(), "anna");
    let bert = sleeper(&mut queues, request(), "bert");
    assert_eq!(queues.wake(QUEUE), Some("anna"));
    assert_eq!(queues.leave(anna).next, Some("bert"));
    assert_eq!(queues.turn(bert, at(0)), Turn::Attempt);
}

#[test]
fn ranks_go_first_and_equal_ranks_in_arrival_order() {
    let mut queues = queues();
    let ranks = [0, 5, -1, 5, 0, i64::MAX, i64::MIN];
    let max_waiters =
        ranks.map(|rank| queues.join(&WaitRequest { rank, ..request() }, None).unwrap());
    let mut left = Vec::new();
    while !queues.is_empty(QUEUE) {
        queues.wake(QUEUE);
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
fn only_a_higher_rank_would_be_first_in_a_queue_with_waiters() {
    let mut queues = queues();
    assert!(queues.would_be_first(&request()));
    queues.join(&request(), None).unwrap();
    for (rank, first) in [(-1, false), (0, false), (1, true)] {
        assert_eq!(queues.would_be_first(&WaitRequest { rank, ..request() }), first, "{rank}");
    }
    assert!(queues.would_be_first(&WaitRequest { queue: QUEUE + 1, ..request() }));
}

#[test]
fn a_waiter_that_is_overtaken_by_rank_drops_its_retry_time() {
    let mut queues = queues();
    let anna = queues.join(&request(), Some(at(5))).unwrap();
    let boss = queues.join(&WaitRequest { rank: 1, ..request() }, None).unwrap();
    assert_eq!(queues.turn(anna, at(9)), SLEEP, "or she would wake for nothing, again and again");
    queues.listen(anna, "anna");
    assert_eq!(queues.next_due(), None);
    assert_eq!(queues.leave(boss).next, Some("anna"));
    assert_eq!(queues.turn(anna, at(9)), Turn::Attempt);
}

#[test]
fn a_full_queue_rejects_waiters() {
    let mut queues = queues();
    let two = WaitRequest { max_waiters: 2, ..request() };
    let first = queues.join(&two, None).unwrap();
    queues.join(&two, None).unwrap();
    assert_eq!(queues.join(&two, None), None);
    assert!(queues.join(&WaitRequest { queue: QUEUE + 1, ..two }, None).is_some());
    assert_eq!(queues.len(), 2);
    queues.leave(first);
    assert!(queues.join(&two, None).is_some());
    assert_eq!(queues.join(&WaitRequest { max_waiters: 0, queue: 1, ..two }, None), None);
    assert_eq!(queues.len(), 2, "a rejected waiter leaves no empty queue");
}

#[test]
fn at_its_deadline_the_head_attempts_once_more_and_others_leave() {
    let mut queues = queues();
    let until = WaitRequest { deadline: Some(at(5)), ..request() };
    let anna = sleeper(&mut queues, until, "anna");
    let bert = sleeper(&mut queues, until, "bert");
    let carl = sleeper(&mut queues, request(), "carl");
    assert_eq!(queues.next_due(), Some(at(5)));
    assert_eq!(queues.turn(anna, at(4)), Turn::Sleep { until: Some(at(5)) });
    assert_eq!(queues.turn(anna, at(5)), Turn::LastAttempt);
    let patience = Timestamp::from_millis(5_010);
    assert_eq!(queues.turn(bert, at(5)), Turn::Sleep { until: Some(patience) });
    assert_eq!(queues.turn(bert, patience), Turn::TooLate, "anna takes her time");
    assert_eq!(queues.turn(carl, at(5)), SLEEP);
    assert_eq!(queues.listen(bert, "bert"), Some("bert"));
    assert_eq!(queues.next_due(), Some(at(5)));
    assert_eq!(queues.leave(anna).next, Some("bert"));
    assert_eq!(queues.turn(bert, at(5)), Turn::LastAttempt, "what is released at 5 s is his too");
    queues.leave(bert);
    assert_eq!(queues.next_due(), None);
}

#[test]
fn after_its_deadline_a_waiter_leaves_when_the_head_gets_nothing() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, request(), "anna");
    let bert = sleeper(&mut queues, WaitRequest { deadline: Some(at(5)), ..request() }, "bert");
    assert_eq!(queues.turn(bert, at(4)), Turn::Sleep { until: Some(at(5)) });
    queues.wake(QUEUE);
    assert!(matches!(queues.turn(bert, at(5)), Turn::Sleep { .. }), "anna attempts first");
    queues.listen(bert, "bert");
    assert_eq!(queues.turn(anna, at(5)), Turn::Attempt);
    assert_eq!(queues.put_off(anna, None), ["bert"]);
    assert_eq!(queues.turn(bert, at(5)), Turn::TooLate);
}

#[test]
fn a_tick_wakes_the_waiters_that_are_due() {
    let mut queues = queues();
    let until = |secs| WaitRequest { deadline: Some(at(secs)), ..request() };
    let anna = queues.join(&until(9), Some(at(3))).unwrap();
    queues.listen(anna, "anna");
    let bert = sleeper(&mut queues, until(5), "bert");
    sleeper(&mut queues, until(4), "carl");
    assert!(queues.tick(at(2)).is_empty());
    assert_eq!(queues.next_due(), Some(at(3)));
    assert_eq!(queues.tick(at(5)), ["anna", "carl", "bert"]);
    assert_eq!(queues.next_due(), None, "until they sleep again");
    assert_eq!(queues.turn(anna, at(0)), Turn::Attempt);
    assert_eq!(queues.turn(bert, at(0)), Turn::TooLate, "a tick counts, whatever the clock shows");
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
fn a_retry_time_in_the_past_is_not_immediate() {
    let now = at(5);
    let later = Timestamp::from_millis(5_001);
    for (retry_at, next) in [
        (None, None),
        (Some(at(0)), Some(later)),
        (Some(now), Some(later)),
        (Some(at(6)), Some(at(6))),
        (Some(Timestamp::MAX), Some(Timestamp::MAX)),
    ] {
        assert_eq!(next_attempt(retry_at, now), next, "{retry_at:?}");
    }
}

#[test]
fn closing_wakes_all_waiters_and_ends_their_waits() {
    let mut queues = queues();
    let anna = sleeper(&mut queues, request(), "anna");
    let bert = sleeper(&mut queues, request(), "bert");
    let mut woken = queues.close();
    woken.sort_unstable();
    assert_eq!(woken, ["anna", "bert"]);
    assert!(queues.is_closed());
    assert_eq!(queues.turn(bert, at(0)), Turn::Closed);
    queues.leave(anna);
    queues.leave(bert);
    assert_eq!(queues.len(), 0);
}
