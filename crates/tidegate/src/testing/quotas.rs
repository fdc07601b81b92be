//! Amounts per calendar period and per round.

use super::{ADA, BOB, Make, TestEngine, rule};
use crate::{CheckError, Store, Timestamp, Wait};

/// Midnight before 31 March 2024 in Helsinki, when clocks go forward there: 23 hours.
const SHORT_DAY_S: u64 = 1_711_836_000;

pub(super) fn calendar_days_follow_the_zone<S: Store>(make: Make<'_, S>) {
    let limit = rule("quota = { max = 3, per = \"day in Europe/Helsinki\" }");
    let desk = TestEngine::starting(make, &limit, Timestamp::from_secs(SHORT_DAY_S - 1));
    assert_eq!(desk.admits(ADA), 3);
    let wait = desk.check(ADA, 1).wait();
    assert_eq!(wait, Some(Wait::After(std::time::Duration::from_secs(1))));
    desk.clock.set(Timestamp::from_secs(SHORT_DAY_S));
    assert_eq!(desk.admits(ADA), 3);
    desk.clock.set(Timestamp::from_secs(SHORT_DAY_S + 23 * 3_600 - 1));
    assert_eq!(desk.admits(ADA), 0);
    desk.clock.set(Timestamp::from_secs(SHORT_DAY_S + 23 * 3_600));
    assert_eq!(desk.admits(ADA), 3);
    // A month, up to its end; what is over carries as far as it may.
    let limit = rule("quota = { max = 10, per = \"month\", carry = 4 }");
    let february_s = 1_706_745_600;
    let desk = TestEngine::starting(make, &limit, Timestamp::from_secs(february_s));
    assert!(desk.allows(ADA, 1));
    desk.clock.set(Timestamp::from_secs(february_s + 29 * 86_400 - 1));
    assert_eq!(desk.left(ADA, "r"), 9);
    desk.clock.set(Timestamp::from_secs(february_s + 29 * 86_400));
    assert_eq!(desk.admits(ADA), 14);
}

pub(super) fn rounds_carry_over<S: Store>(make: Make<'_, S>) {
    for (carry, after_one, after_three) in [
        ("", 10, 10),
        (", carry = 5", 15, 15),
        (", carry = 100", 17, 37),
        (", carry = \"all\"", 17, 37),
    ] {
        let desk = TestEngine::new(
            make,
            &rule(&format!("quota = {{ max = 10, per = \"round\"{carry} }}")),
        );
        for user in [ADA, BOB] {
            assert!(desk.allows(user, 3));
        }
        assert_eq!(desk.engine.close_round("default").wait().unwrap(), 1);
        desk.engine.close_round("elsewhere").wait().unwrap();
        assert_eq!(desk.admits(ADA), after_one, "{carry}");
        assert_eq!(desk.check(ADA, 1).wait(), Some(Wait::Unknown), "{carry}");
        assert_eq!(desk.refund(ADA, 1), 1);
        desk.engine.close_round("default").wait().unwrap();
        assert_eq!(desk.engine.close_round("default").wait().unwrap(), 3);
        assert_eq!(desk.admits(BOB), after_three, "{carry}");
        assert_eq!(desk.refund(ADA, 5), 0, "a closed round refunds nothing: {carry}");
    }
}

pub(super) fn cost_tables_price<S: Store>(make: Make<'_, S>) {
    let limit = "quota = { max = 10, per = \"round\" }\n\
                 cost = { by = \"tier\", \"1..=4\" = 1, \"5..=6\" = 2, \"7..\" = 3 }";
    let desk = TestEngine::new(make, &rule(limit));
    let of = |tier| [("user", "ada"), ("tier", tier)];
    assert_eq!(desk.check(&of("4"), 1).remaining(), Some(9));
    assert_eq!(desk.check(&of("5"), 9).remaining(), Some(7), "the request's cost is replaced");
    assert_eq!(desk.check(&of("700"), 1).remaining(), Some(4));
    for bad in ["0", "-1", "seven", ""] {
        let error = desk.try_check(&of(bad), 1).map(|_| ());
        assert!(matches!(error, Err(CheckError::CostNotCovered { .. })), "{bad}");
    }
    assert!(matches!(desk.try_check(ADA, 1), Err(CheckError::CostNotCovered { .. })));
    // A cost of the rule stays, whatever the commit reports.
    let id = desk.hold(&of("7"), 1);
    assert_eq!(desk.commit(id, 1), 3);
    assert_eq!(desk.left(&of("1"), "r"), 1);
    assert_eq!(desk.refund(&of("5"), 1), 2);
    assert_eq!(desk.left(&of("1"), "r"), 3);
}

pub(super) fn calendars_can_be_changed<S: Store>(make: Make<'_, S>) {
    let per =
        |per: &str, carry: &str| rule(&format!("quota = {{ max = 10, per = \"{per}\"{carry} }}"));
    let start_s = 1_709_290_800; // 1 March 2024, 11:00 in UTC
    for (from, to, ends_after_s) in
        [("day", "month", 31 * 86_400), ("month", "day", 86_400), ("hour", "day", 86_400)]
    {
        for carry in ["", ", carry = \"all\""] {
            let desk = TestEngine::starting(make, &per(from, carry), Timestamp::from_secs(start_s));
            assert!(desk.allows(ADA, 7));
            desk.edit(&per(to, carry));
            assert_eq!(desk.left(ADA, "r"), 3, "from {from} to {to}{carry}");
            assert!(desk.allows(ADA, 2));
            desk.clock.set(Timestamp::from_secs(start_s - 11 * 3_600 + ends_after_s - 1));
            assert_eq!(desk.left(ADA, "r"), 1, "from {from} to {to}{carry}");
            desk.clock.set(Timestamp::from_secs(start_s - 11 * 3_600 + ends_after_s));
            let left = if carry.is_empty() { 10 } else { 11 };
            assert_eq!(desk.left(ADA, "r"), left, "from {from} to {to}{carry}");
        }
    }
}
