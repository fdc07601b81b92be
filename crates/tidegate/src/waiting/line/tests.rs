use super::*;

const LINE: u64 = 7;

fn terms() -> Terms {
    Terms { line: LINE, places: 100, rank: 0, deadline: None }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

/// Lines whose bells are names.
fn lines() -> Lines<&'static str> {
    Lines::new()
}

/// Somebody who has joined and sleeps.
fn sleeper(lines: &mut Lines<&'static str>, terms: Terms, name: &'static str) -> Place {
    let place = lines.join(&terms, None).expect("there is a place");
    assert!(matches!(lines.turn(place, at(0)), Turn::Sleep { .. }));
    assert_eq!(lines.listen(place, name), None);
    place
}

const SLEEP: Turn = Turn::Sleep { until: None };

#[test]
fn a_wake_up_is_for_the_first_and_is_used_up_by_looking() {
    let mut lines = lines();
    let anna = sleeper(&mut lines, terms(), "anna");
    let bert = sleeper(&mut lines, terms(), "bert");
    assert_eq!(lines.wake(LINE), Some("anna"));
    assert_eq!(lines.wake(LINE), None, "she has been told");
    assert_eq!(lines.turn(bert, at(0)), SLEEP);
    assert_eq!(lines.turn(anna, at(0)), Turn::Attempt);
    assert_eq!(lines.turn(anna, at(0)), SLEEP);
    assert_eq!(lines.wake(LINE + 1), None);
}

#[test]
fn who_becomes_first_looks() {
    let mut lines = lines();
    let anna = sleeper(&mut lines, terms(), "anna");
    let bert = sleeper(&mut lines, terms(), "bert");
    let carl = sleeper(&mut lines, terms(), "carl");
    let left = lines.leave(bert);
    assert_eq!((left.own, left.next), (Some("bert"), None), "the first is still the first");
    let left = lines.leave(anna);
    assert_eq!((left.own, left.next), (Some("anna"), Some("carl")));
    assert_eq!(lines.turn(carl, at(0)), Turn::Attempt);
    assert_eq!(lines.leave(carl).next, None);
    assert!(lines.is_empty(LINE));
    assert_eq!(lines.len(), 0);
}

#[test]
fn a_wake_up_that_was_not_used_goes_to_the_next() {
    let mut lines = lines();
    let anna = sleeper(&mut lines, terms(), "anna");
    let bert = sleeper(&mut lines, terms(), "bert");
    assert_eq!(lines.wake(LINE), Some("anna"));
    assert_eq!(lines.leave(anna).next, Some("bert"));
    assert_eq!(lines.turn(bert, at(0)), Turn::Attempt);
}

#[test]
fn ranks_go_first_and_equal_ranks_in_arrival_order() {
    let mut lines = lines();
    let ranks = [0, 5, -1, 5, 0, i64::MAX, i64::MIN];
    let places = ranks.map(|rank| lines.join(&Terms { rank, ..terms() }, None).unwrap());
    let mut left = Vec::new();
    while !lines.is_empty(LINE) {
        lines.wake(LINE);
        let present = (0..ranks.len()).filter(|index| !left.contains(index));
        let turns: Vec<_> =
            present.filter(|index| lines.turn(places[*index], at(0)) == Turn::Attempt).collect();
        assert_eq!(turns.len(), 1);
        lines.leave(places[turns[0]]);
        left.extend(turns);
    }
    assert_eq!(left, [5, 1, 3, 0, 4, 2, 6]);
}

#[test]
fn only_a_higher_rank_would_be_first_in_a_line_with_somebody() {
    let mut lines = lines();
    assert!(lines.would_be_first(&terms()));
    lines.join(&terms(), None).unwrap();
    for (rank, first) in [(-1, false), (0, false), (1, true)] {
        assert_eq!(lines.would_be_first(&Terms { rank, ..terms() }), first, "{rank}");
    }
    assert!(lines.would_be_first(&Terms { line: LINE + 1, ..terms() }));
}

#[test]
fn who_is_overtaken_by_a_rank_forgets_when_to_retry() {
    let mut lines = lines();
    let anna = lines.join(&terms(), Some(at(5))).unwrap();
    let boss = lines.join(&Terms { rank: 1, ..terms() }, None).unwrap();
    assert_eq!(lines.turn(anna, at(9)), SLEEP, "or she would wake for nothing, again and again");
    lines.listen(anna, "anna");
    assert_eq!(lines.next_due(), None);
    assert_eq!(lines.leave(boss).next, Some("anna"));
    assert_eq!(lines.turn(anna, at(9)), Turn::Attempt);
}

#[test]
fn a_line_has_so_many_places_and_no_more() {
    let mut lines = lines();
    let two = Terms { places: 2, ..terms() };
    let first = lines.join(&two, None).unwrap();
    lines.join(&two, None).unwrap();
    assert_eq!(lines.join(&two, None), None);
    assert!(lines.join(&Terms { line: LINE + 1, ..two }, None).is_some());
    assert_eq!(lines.len(), 2);
    lines.leave(first);
    assert!(lines.join(&two, None).is_some());
    assert_eq!(lines.join(&Terms { places: 0, line: 1, ..two }, None), None);
    assert_eq!(lines.len(), 2, "a refusal leaves no empty line");
}

#[test]
fn at_its_deadline_the_first_looks_once_more_and_others_leave() {
    let mut lines = lines();
    let until = Terms { deadline: Some(at(5)), ..terms() };
    let anna = sleeper(&mut lines, until, "anna");
    let bert = sleeper(&mut lines, until, "bert");
    let carl = sleeper(&mut lines, terms(), "carl");
    assert_eq!(lines.next_due(), Some(at(5)));
    assert_eq!(lines.turn(anna, at(4)), Turn::Sleep { until: Some(at(5)) });
    assert_eq!(lines.turn(anna, at(5)), Turn::LastAttempt);
    assert_eq!(lines.turn(bert, at(5)), Turn::TooLate);
    assert_eq!(lines.turn(carl, at(5)), SLEEP);
    lines.leave(bert);
    assert_eq!(lines.next_due(), Some(at(5)));
    lines.leave(anna);
    assert_eq!(lines.next_due(), None);
}

#[test]
fn a_tick_rings_for_those_whose_time_has_come() {
    let mut lines = lines();
    let until = |secs| Terms { deadline: Some(at(secs)), ..terms() };
    let anna = lines.join(&until(9), Some(at(3))).unwrap();
    lines.listen(anna, "anna");
    let bert = sleeper(&mut lines, until(5), "bert");
    sleeper(&mut lines, until(4), "carl");
    assert!(lines.tick(at(2)).is_empty());
    assert_eq!(lines.next_due(), Some(at(3)));
    assert_eq!(lines.tick(at(5)), ["anna", "carl", "bert"]);
    assert_eq!(lines.next_due(), None, "until they sleep again");
    assert_eq!(lines.turn(bert, at(0)), Turn::TooLate, "a tick counts, whatever the clock says");
    assert_eq!(lines.turn(anna, at(0)), Turn::Attempt);
    lines.put_off(anna, Some(at(7)));
    assert_eq!(lines.turn(anna, at(5)), Turn::Sleep { until: Some(at(7)) });
    lines.listen(anna, "anna");
    assert_eq!(lines.next_due(), Some(at(7)));
    assert_eq!(lines.turn(anna, at(7)), Turn::Attempt, "no tick is needed");
    assert_eq!(lines.turn(anna, at(7)), Turn::Sleep { until: Some(at(9)) });
    assert_eq!(lines.listen(anna, "anna again"), Some("anna"));
    assert_eq!(lines.next_due(), Some(at(9)));
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
    let mut lines = lines();
    let anna = sleeper(&mut lines, terms(), "anna");
    let bert = sleeper(&mut lines, terms(), "bert");
    let mut rung = lines.close();
    rung.sort_unstable();
    assert_eq!(rung, ["anna", "bert"]);
    assert!(lines.is_closed());
    assert_eq!(lines.turn(bert, at(0)), Turn::Closed);
    lines.leave(anna);
    lines.leave(bert);
    assert_eq!(lines.len(), 0);
}
