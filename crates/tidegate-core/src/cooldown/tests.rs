use super::*;
use crate::Wait;

#[test]
fn gap_counts_from_the_latest_admission_or_extending_denial() {
    let plain = Cooldown::new(Duration::from_nanos(10));
    let extended = plain.extended_by_refusals();
    // (time, cost, since + 1 and wait of the plain one, the same of the extended one)
    let after = |nanos| Some(Wait::After(Duration::from_nanos(nanos)));
    let table = [
        (0, 0, (0, None), (0, None)),
        (0, 1, (1, None), (1, None)),
        (4, 1, (1, after(6)), (5, after(10))),
        (4, 0, (1, after(6)), (5, after(10))),
        (2, 7, (1, after(8)), (5, after(12))),
        (9, 1, (1, after(1)), (10, after(10))),
        (10, 1, (11, None), (11, after(10))),
        (20, 1, (21, None), (21, None)),
    ];
    let (mut state, mut extended_state) = (plain.fresh(), extended.fresh());
    for (now, cost, expected, expected_of_extended) in table {
        let now = Timestamp::from_nanos(now);
        let wait = plain.check(&mut state, cost, now).retry_after();
        assert_eq!((state.since_ns_plus_1, wait), expected, "{cost} at {now}");
        let wait = extended.check(&mut extended_state, cost, now).retry_after();
        let found = (extended_state.since_ns_plus_1, wait);
        assert_eq!(found, expected_of_extended, "{cost} at {now}, extended");
    }
}

#[test]
fn a_cooldown_is_used_while_the_gap_lasts() {
    let limit = Cooldown::new(Duration::from_nanos(10));
    let (mut state, at) = (limit.fresh(), Timestamp::from_nanos);
    assert_eq!(limit.used(&state, at(3)), 0);
    assert!(limit.check(&mut state, 5, at(3)).is_allowed());
    let used = [3, 12, 13].map(|now| limit.used(&state, at(now)));
    assert_eq!(used, [1, 1, 0]);
}

#[test]
fn peek_reports_the_gap_and_does_not_extend_it() {
    let limit = Cooldown::new(Duration::from_nanos(10)).extended_by_refusals();
    let mut state = limit.fresh();
    assert!(limit.check(&mut state, 1, Timestamp::ZERO).is_allowed());
    for (now, wait) in [(1, Some(9)), (9, Some(1)), (10, None), (2, Some(8))] {
        let wait = wait.map(|nanos| Wait::After(Duration::from_nanos(nanos)));
        assert_eq!(
            limit.peek(&state, 1, Timestamp::from_nanos(now)).retry_after(),
            wait,
            "at {now}"
        );
    }
}

#[test]
fn cancel_and_refund_of_a_cooldown_return_nothing() {
    let limit = Cooldown::new(Duration::from_nanos(10));
    let (mut state, now) = (limit.fresh(), Timestamp::ZERO);
    assert!(limit.hold(&mut state, 3, now).is_allowed());
    let held = state;
    limit.cancel(&mut state, 3, now);
    assert_eq!((limit.refund(&mut state, 3, now), limit.commit(&mut state, 3, 5, now)), (0, 5));
    assert_eq!(state, held);
}

#[test]
fn voiding_ends_the_cooldown_that_was_begun_and_no_later_one() {
    let limit = Cooldown::new(Duration::from_nanos(10));
    let mut state = limit.fresh();
    let at = Timestamp::from_nanos;
    assert!(limit.hold(&mut state, 1, at(0)).is_allowed());
    let first = state;
    limit.void(&mut state, &first);
    assert!(limit.hold(&mut state, 1, at(3)).is_allowed());
    let second = state;
    limit.void(&mut state, &first);
    assert_eq!(state, second);
    assert!(!limit.check(&mut state, 1, at(12)).is_allowed());
}
