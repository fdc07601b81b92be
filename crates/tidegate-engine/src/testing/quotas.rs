//! Amounts per calendar period and per round.

use tidegate_core::{Timestamp, Wait};

use super::{ADA, BOB, Make, TestEngine, rule};
use crate::{CheckError, Request};

/// Midnight before 31 March 2024 in Helsinki, when clocks go forward there: 23 hours.
const SHORT_DAY_S: u64 = 1_711_836_000;

pub(super) fn calendar_days_follow_the_zone(make: Make<'_>) {
    let limit = rule("quota = { max = 3, per = \"day in Europe/Helsinki\" }");
    let desk = TestEngine::starting(make, &limit, Timestamp::from_secs(SHORT_DAY_S - 1));
    assert_eq!(desk.admits(ADA), 3);
    let wait = desk.check(ADA, 1).retry_after();
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

pub(super) fn rounds_carry_over(make: Make<'_>) {
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
        assert_eq!(desk.engine.close_round("default", None).block().unwrap(), 1);
        desk.engine.close_round("elsewhere", None).block().unwrap();
        assert_eq!(desk.admits(ADA), after_one, "{carry}");
        assert_eq!(desk.check(ADA, 1).retry_after(), Some(Wait::Unknown), "{carry}");
        assert_eq!(desk.refund(ADA, 1), 1);
        desk.engine.close_round("default", None).block().unwrap();
        assert_eq!(desk.engine.close_round("default", None).block().unwrap(), 3);
        assert_eq!(desk.admits(BOB), after_three, "{carry}");
        assert_eq!(desk.refund(ADA, 5), 0, "a closed round refunds nothing: {carry}");
    }
}

pub(super) fn cost_tables_price(make: Make<'_>) {
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

pub(super) fn debt_is_paid_by_the_next_rounds(make: Make<'_>) {
    // (rule, charged of 27, then what each round has for one unit at a time)
    for (debt, charged, rounds) in [
        ("", 27, [0, 0, 3, 10]),
        (", debt = \"all\", carry = 5", 27, [0, 0, 3, 10]),
        (", debt = 4", 14, [0, 6, 10, 10]),
        (", debt = \"none\"", 10, [0, 10, 10, 10]),
    ] {
        let limit = format!("quota = {{ max = 10, per = \"round\"{debt} }}");
        let desk = TestEngine::new(make, &rule(&limit));
        let id = desk.hold(ADA, 4);
        assert_eq!(desk.commit(id, 27), charged, "{limit}");
        for (round, admits) in rounds.into_iter().enumerate() {
            let is_overdrawn = charged > 10 * (u64::try_from(round).unwrap_or(0) + 1);
            assert_eq!(desk.peek(ADA, 0).is_allowed(), !is_overdrawn, "{limit} in round {round}");
            assert_eq!(desk.admits(ADA), admits, "{limit} in round {round}");
            desk.engine.close_round("default", None).block().unwrap();
        }
    }
    // Refunds reduce the debt first; of one charge, what is still owed.
    let desk = TestEngine::new(make, &rule("quota = { max = 10, per = \"round\" }"));
    let (ada, bob) = (desk.hold(ADA, 4), desk.hold(BOB, 4));
    assert_eq!((desk.commit(ada, 27), desk.commit(bob, 27)), (27, 27));
    assert_eq!(desk.refund(ADA, 18), 18);
    assert_eq!(desk.admits(ADA), 1);
    desk.engine.close_round("default", None).block().unwrap();
    assert_eq!(desk.engine.refund_hold(bob, 10).block(), Ok(10));
    assert_eq!(desk.admits(BOB), 3);
    assert_eq!(desk.engine.refund_hold(bob, 20).block(), Ok(7), "what is used is not Bob's charge");
    assert_eq!(desk.left(BOB, "r"), 7);
}

pub(super) fn holds_end_with_their_round(make: Make<'_>) {
    let desk = TestEngine::new(make, &rule("quota = { max = 10, per = \"round\" }"));
    let [all, less, more, none] = [4, 3, 2, 1].map(|units| desk.hold(ADA, units));
    assert!(!desk.allows(ADA, 1));
    desk.engine.close_round("default", None).block().unwrap();
    assert_eq!(desk.left(ADA, "r"), 10, "before anything is stored in the new round");
    assert!(desk.allows(ADA, 5));
    let open = desk.hold(ADA, 2);
    assert_eq!((desk.commit(all, 4), desk.commit(less, 1)), (4, 1));
    desk.cancel(none);
    assert_eq!(desk.left(ADA, "r"), 3, "the closed round paid");
    assert_eq!(desk.engine.refund_hold(all, 4).block(), Ok(0), "and gets nothing back");
    assert_eq!(desk.commit(more, 4), 4);
    assert_eq!(desk.left(ADA, "r"), 1, "what is beyond the hold is charged to the open round");
    assert_eq!(desk.engine.refund_hold(more, 4).block(), Ok(2));
    assert_eq!(desk.commit(open, 2), 2);
    assert_eq!(desk.admits(ADA), 3);
    // With carry they go on.
    let carrying = rule("quota = { max = 10, per = \"round\", carry = 2 }");
    let desk = TestEngine::new(make, &carrying);
    let id = desk.hold(ADA, 4);
    desk.engine.close_round("default", None).block().unwrap();
    assert_eq!(desk.left(ADA, "r"), 8);
    assert_eq!(desk.commit(id, 5), 5);
    assert_eq!(desk.engine.refund_hold(id, 9).block(), Ok(5));
    assert_eq!(desk.admits(ADA), 12);
}

pub(super) fn forgotten_keys_keep_holds_of_earlier_rounds(make: Make<'_>) {
    for (carry, left) in [("", 10), (", carry = \"all\"", 6)] {
        let limit = rule(&format!("quota = {{ max = 10, per = \"round\"{carry} }}"));
        let desk = TestEngine::new(make, &limit);
        let id = desk.hold(ADA, 4);
        desk.engine.close_round("default", None).block().unwrap();
        assert_eq!(desk.engine.forget(&Request::new("default", ADA)).block(), Ok(true));
        assert_eq!(desk.left(ADA, "r"), left, "{carry}");
        assert_eq!(desk.commit(id, 7), 7, "{carry}");
        assert_eq!(desk.left(ADA, "r"), if carry.is_empty() { 7 } else { 3 }, "{carry}");
    }
}

pub(super) fn calendars_can_be_changed(make: Make<'_>) {
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

pub(super) fn enrolled_keys_carry_over(make: Make<'_>) {
    for (carry, after_three) in [(", carry = \"all\"", 12), (", carry = 5", 8)] {
        let limit = rule(&format!(
            "quota = {{ max = 3, per = \"round\"{carry} }}\ncost = {{ by = \"tier\", \"1..\" = 1 }}"
        ));
        let desk = TestEngine::new(make, &limit);
        let enrol = |user| desk.engine.enrol(&Request::new("default", user)).block().unwrap();
        let close = || desk.engine.close_round("default", None).block().unwrap();
        // A peek makes no key known.
        assert_eq!(desk.left(ADA, "r"), 3, "{carry}");
        // It needs no attribute for the cost.
        let first = enrol(ADA);
        assert_eq!((first.enrolled, first.known, first.without_carry), (1, 0, 0), "{carry}");
        assert_eq!(desk.left(ADA, "r"), 3, "nothing is charged: {carry}");
        for _ in 0..2 {
            close();
            let again = enrol(ADA);
            assert_eq!((again.enrolled, again.known), (0, 1), "{carry}");
        }
        close();
        assert_eq!(desk.left(ADA, "r"), after_three, "{carry}");
        assert_eq!(desk.left(BOB, "r"), 3, "not enrolled: {carry}");
        assert_eq!(enrol(BOB).enrolled, 1);
        close();
        assert_eq!(desk.left(BOB, "r"), 6, "from its enrolment on: {carry}");
        // A key that is on hold is known.
        let cy = &[("user", "cy"), ("tier", "1")];
        let hold = desk.hold(cy, 1);
        assert_eq!(enrol(cy).known, 1);
        desk.cancel(hold);
        assert_eq!(desk.left(cy, "r"), 3);
    }
}

pub(super) fn enrolling_leaves_other_limits_alone(make: Make<'_>) {
    let policy = "[[rule]]\nname = \"tokens\"\nkey = [\"user\"]\n\
                  quota = { max = 2, per = \"round\", carry = \"all\" }\n\
                  [[rule]]\nname = \"cap\"\nkey = [\"user\"]\nquota = { max = 1, per = \"round\" }\n\
                  [[rule]]\nname = \"gap\"\nkey = [\"user\"]\ncooldown = \"1m\"\n";
    let desk = TestEngine::new(make, policy);
    let enrol = |attributes| desk.engine.enrol(&Request::new("default", attributes)).block();
    let done = enrol(ADA).unwrap();
    assert_eq!((done.enrolled, done.known, done.without_carry), (1, 0, 2));
    assert!(desk.allows(ADA, 1), "neither cap nor cooldown is charged");
    assert_eq!((desk.left(ADA, "tokens"), desk.left(ADA, "cap")), (1, 0));
    // A request without a key has nothing to make known.
    let missing = enrol(&[]).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "the request has no keys: rule `tokens` needs the attribute `user`"
    );
    let elsewhere = desk.engine.enrol(&Request::new("elsewhere", ADA)).block().unwrap();
    assert_eq!((elsewhere.enrolled, elsewhere.without_carry), (0, 0));
    // An edit of the rule is no new enrolment.
    desk.edit(&policy.replace("max = 2", "max = 5"));
    assert_eq!(enrol(ADA).unwrap().known, 1);
}
