use super::*;
use crate::Wait;

fn period(index: u64) -> Period {
    Period { index, ends: Some(Timestamp::from_secs(index + 1)) }
}

#[test]
fn carried_by_rule_and_periods_closed() {
    // (rule, used in period 0, periods later, carried)
    for (carry, used, later, carried) in [
        (Carry::Nothing, 3, 1, 0),
        (Carry::Nothing, 3, 9, 0),
        (Carry::UpTo(5), 3, 1, 5),
        (Carry::UpTo(5), 8, 1, 2),
        (Carry::UpTo(5), 10, 1, 0),
        (Carry::UpTo(5), 10, 2, 5),
        (Carry::UpTo(15), 10, 2, 10),
        (Carry::UpTo(15), 3, 2, 15),
        (Carry::All, 3, 0, 0),
        (Carry::All, 3, 1, 7),
        (Carry::All, 3, 4, 37),
        (Carry::All, 10, u64::MAX, u64::MAX),
    ] {
        let limit = Quota::new(10, carry).unwrap();
        let mut state = limit.fresh(period(0));
        assert!(limit.check(&mut state, used, period(0), Timestamp::ZERO).is_allowed());
        let current = limit.current(&state, Period { index: later, ends: None });
        assert_eq!(current.carried, carried, "{carry:?}, {used} used, {later} later");
    }
}

#[test]
fn waits_by_rule_and_period() {
    let open = period(4);
    let end = open.left(Timestamp::from_millis(4_250)).map(Wait::After);
    assert_eq!(end, Some(Wait::After(Duration::from_millis(750))));
    let by_host = Period { index: 4, ends: None };
    let over = Period { index: 4, ends: Some(Timestamp::from_millis(4_250)) };
    let older = period(3);
    for (carry, cost, peeked_in, wait) in [
        (Carry::Nothing, 2, open, None),
        (Carry::Nothing, 3, open, end),
        (Carry::Nothing, 10, open, end),
        (Carry::Nothing, 11, open, Some(Wait::Never)),
        (Carry::Nothing, 3, by_host, Some(Wait::Unknown)),
        (Carry::Nothing, 3, over, Some(Wait::Unknown)),
        (Carry::Nothing, 3, older, Some(Wait::Unknown)),
        (Carry::UpTo(5), 12, open, end),
        (Carry::UpTo(5), 13, open, Some(Wait::Unknown)),
        (Carry::UpTo(5), 16, open, Some(Wait::Never)),
        (Carry::All, 12, open, end),
        (Carry::All, u64::MAX, open, Some(Wait::Unknown)),
    ] {
        let limit = Quota::new(10, carry).unwrap();
        let (mut state, now) = (limit.fresh(open), Timestamp::from_millis(4_250));
        assert!(limit.check(&mut state, 8, open, now).is_allowed());
        let found = limit.peek(&state, cost, peeked_in, now).wait();
        assert_eq!(found, wait, "{cost} under {carry:?} in {peeked_in:?}");
    }
}

#[test]
fn closed_period_refunds_nothing() {
    let limit = Quota::new(10, Carry::Nothing).unwrap();
    let mut state = limit.fresh(period(0));
    assert!(limit.check(&mut state, 8, period(0), Timestamp::ZERO).is_allowed());
    let before = state;
    assert_eq!(limit.refund(&mut state, 8, period(1)), 0);
    assert_eq!(state, before);
    assert_eq!((limit.refund(&mut state, 9, period(0)), state.used), (8, 0));
}
