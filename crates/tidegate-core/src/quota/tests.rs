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
        let limit = Quota::new(10, carry);
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
        let limit = Quota::new(10, carry);
        let (mut state, now) = (limit.fresh(open), Timestamp::from_millis(4_250));
        assert!(limit.check(&mut state, 8, open, now).is_allowed());
        let found = limit.peek(&state, cost, peeked_in, now).retry_after();
        assert_eq!(found, wait, "{cost} under {carry:?} in {peeked_in:?}");
    }
}

#[test]
fn closed_period_refunds_nothing() {
    let limit = Quota::new(10, Carry::Nothing);
    let mut state = limit.fresh(period(0));
    assert!(limit.check(&mut state, 8, period(0), Timestamp::ZERO).is_allowed());
    let before = state;
    assert_eq!(limit.refund(&mut state, 8, period(1)), 0);
    assert_eq!(state, before);
    assert_eq!((limit.refund(&mut state, 9, period(0)), state.used), (8, 0));
}

/// Holds `units` and commits `actual` at once.
fn overdraw(limit: &Quota, state: &mut QuotaState, (units, actual): (u64, u64)) -> Committed {
    let now = period(state.period);
    assert!(limit.hold(state, units, now, Timestamp::ZERO).is_allowed());
    limit.commit(state, HeldUnits { units, period: state.period }, actual, now)
}

#[test]
fn commit_by_rule_of_debt() {
    // (rule, actual, charged, debt), for a hold of 4 where 10 are available
    for (debt, actual, charged, owed) in [
        (Debt::All, 3, 3, 0),
        (Debt::All, 10, 10, 0),
        (Debt::All, 17, 17, 7),
        (Debt::UpTo(5), 15, 15, 5),
        (Debt::UpTo(5), 17, 15, 5),
        (Debt::Nothing, 10, 10, 0),
        (Debt::Nothing, 17, 10, 0),
    ] {
        let limit = Quota::new(10, Carry::Nothing).with_debt(debt).unwrap();
        let mut state = limit.fresh(period(0));
        let committed = overdraw(&limit, &mut state, (4, actual));
        let expected = Committed { charged, debt: owed, closed: 0, forgiven: actual - charged };
        assert_eq!(committed, expected, "{actual} under {debt:?}");
        assert_eq!(state.debt, owed);
    }
}

#[test]
fn debt_is_reported_until_it_is_paid() {
    let limit = Quota::new(10, Carry::UpTo(5));
    let mut state = limit.fresh(period(0));
    assert_eq!(overdraw(&limit, &mut state, (1, 27)).debt, 17);
    // (period, is a look allowed, used, remaining, limit, seconds to reset)
    for (index, is_allowed, used, remaining, most, reset) in [
        (0, false, 27, 0, 10, None),
        (1, false, 17, 0, 10, None),
        (2, true, 7, 3, 10, Some(3)),
        (3, true, 0, 13, 13, Some(0)),
    ] {
        assert_eq!(limit.used(&state, period(index)), used, "{index}");
        let look = limit.peek(&state, 0, period(index), Timestamp::ZERO);
        assert_eq!((look.is_allowed(), look.remaining()), (is_allowed, remaining), "{index}");
        assert_eq!(look.limit(), most, "{index}");
        let reset = reset.map(Duration::from_secs);
        assert_eq!(look.reset(), reset, "{index}");
    }
}

#[test]
fn refund_of_a_charge_returns_what_is_still_owed() {
    // (periods later, refunded of a charge of 27)
    for (later, refunded) in [(0, 27), (1, 17), (2, 7), (3, 0)] {
        let limit = Quota::new(10, Carry::Nothing);
        let mut state = limit.fresh(period(0));
        let committed = overdraw(&limit, &mut state, (1, 27));
        let mut charge = QuotaCharge::new(state, &committed);
        let now = period(later);
        let _ = limit.check(&mut state, 2, now, Timestamp::ZERO);
        let given = limit.refund_charge(&mut state, &mut charge, u64::MAX, now);
        assert_eq!(given, refunded, "{later} later");
        assert_eq!(limit.refund_charge(&mut state, &mut charge, u64::MAX, now), 0);
        let before = state;
        assert_eq!(limit.refund_charge(&mut state, &mut charge, 1, period(later + 1)), 0);
        assert_eq!(state, before, "not even the period");
    }
}

/// In a later period nothing of what others have used is returned.
#[test]
fn refund_of_a_part_of_a_charge_takes_debt_first() {
    let limit = Quota::new(10, Carry::Nothing);
    let mut state = limit.fresh(period(0));
    let committed = overdraw(&limit, &mut state, (1, 27));
    let mut charge = QuotaCharge::new(state, &committed);
    assert_eq!(limit.refund_charge(&mut state, &mut charge, 1, period(0)), 1);
    assert_eq!((state.used, state.debt), (10, 16));
    assert_eq!(limit.refund(&mut state, 11, period(1)), 11);
    assert!(limit.check(&mut state, 3, period(1), Timestamp::ZERO).is_allowed());
    for (units, refunded, debt, left) in [(2, 2, 3, 14), (u64::MAX, 3, 0, 11)] {
        assert_eq!(limit.refund_charge(&mut state, &mut charge, units, period(1)), refunded);
        assert_eq!((state.used, state.debt), (3, debt));
        assert_eq!((charge.units, charge.debt, charge.state.debt), (left, left, left));
    }
}

/// Debt took what was to be carried over to the holds: the refund may not leave more used than
/// the period has, as no later period pays for that.
#[test]
fn refund_of_a_charge_beyond_its_period_leaves_the_debt_of_others() {
    let limit = Quota::new(5, Carry::UpTo(7));
    let mut state = limit.fresh(period(0));
    let mut hold = |units, index| {
        assert!(limit.hold(&mut state, units, period(index), Timestamp::ZERO).is_allowed());
        HeldUnits { units, period: index }
    };
    let [first, second, third] = [hold(2, 0), hold(1, 2), hold(4, 2)];
    assert_eq!(limit.commit(&mut state, second, 14, period(2)).debt, 8);
    let committed = limit.commit(&mut state, first, 2, period(3));
    let mut charge = QuotaCharge::new(state, &committed);
    assert_eq!(limit.refund_charge(&mut state, &mut charge, 2, period(3)), 2);
    assert_eq!(limit.commit(&mut state, third, 4, period(3)).debt, 0);
    assert_eq!((state.used, state.debt), (5, 1));
    assert_eq!(limit.current(&state, period(4)).debt, 1);
}
