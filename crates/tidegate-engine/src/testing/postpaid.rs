//! Rules for costs that are known only afterwards.

use crate::Edit;
use tidegate_core::{Bucket, Wait};
use tidegate_policy::policy::{Grant, Limit, Override, RuleId};

use super::{ADA, BOB, Make, TestEngine, ms, rule};
use crate::Request;

/// Limits of ten units, and when a unit is left again after 25 were booked at the start.
const TEN: [(&str, Wait); 4] = [
    ("bucket = { rate = \"1/s\", burst = 10 }", Wait::After(ms(16_000))),
    ("window = { max = 10, per = \"1m\" }", Wait::After(ms(60_000))),
    ("sliding = { max = 10, per = \"1m\", parts = 6 }", Wait::After(ms(70_000))),
    ("quota = { max = 10, per = \"round\" }", Wait::Unknown),
];

fn postpaid(limit: &str) -> String {
    rule(&format!("{limit}\npostpaid = true"))
}

pub(super) fn costs_are_booked_whatever_is_left(make: Make<'_>) {
    for (limit, wait) in TEN {
        let desk = TestEngine::new(make, &postpaid(limit));
        assert!(desk.allows(ADA, 0) && desk.allows(ADA, 9), "{limit}");
        assert!(desk.allows(ADA, 0), "one is left: {limit}");
        assert!(desk.allows(ADA, 16), "it is booked: {limit}");
        for cost in [0, 1] {
            let denied = desk.check(ADA, cost);
            assert!(!denied.is_allowed(), "{limit}");
        }
        assert!(!desk.allows(ADA, 4), "it is denied, and booked: {limit}");
        assert_eq!(desk.refund(ADA, 5), 5, "{limit}");
        let denied = desk.peek(ADA, 1_000_000);
        assert_eq!(denied.retry_after(), Some(wait), "a large cost is not never: {limit}");
        let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
        assert_eq!((usage[0].used, usage[0].debt), (25, 15), "{limit}");
        if let Wait::After(wait) = wait {
            let back = u64::try_from(wait.as_millis()).unwrap();
            assert!(!desk.at(back - 1).allows(ADA, 0), "{limit}");
            assert!(desk.at(back).allows(ADA, 0), "{limit}");
        }
        assert!(desk.allows(BOB, 1), "{limit}");
    }
}

pub(super) fn debt_bounds_what_is_booked(make: Make<'_>) {
    for (debt, booked) in [(", debt = 5", 15), (", debt = \"all\"", 100), (", debt = \"none\"", 10)]
    {
        let bucket = format!("bucket = {{ rate = \"1/s\", burst = 10{debt} }}");
        let quota = format!("quota = {{ max = 10, per = \"round\"{debt} }}");
        for limit in [bucket, quota] {
            let desk = TestEngine::new(make, &postpaid(&limit));
            assert!(desk.check(ADA, 100).is_allowed(), "{limit}");
            let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
            assert_eq!(usage[0].used, booked, "{limit}");
        }
    }
}

pub(super) fn denied_bookings_are_remembered(make: Make<'_>) {
    for (limit, _) in TEN {
        let desk = TestEngine::new(make, &postpaid(limit));
        let check = |name: &str, cost| {
            let request = Request::new("default", ADA).cost(cost).idempotency_key(name);
            desk.engine.check(&request).block().unwrap().is_allowed()
        };
        assert!(check("first", 12), "{limit}");
        for _ in 0..3 {
            assert!(!check("second", 3), "{limit}");
        }
        assert!(check("first", 12), "as it was: {limit}");
        let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
        assert_eq!(usage[0].used, 15, "{limit}");
    }
}

pub(super) fn prepaid_denials_book_nothing(make: Make<'_>) {
    let second = "[[rule]]\nname = \"requests\"\nkey = [\"user\"]\ncost = 1\n\
                  window = { max = 2, per = \"1d\" }\n";
    for (limit, _) in TEN {
        let desk = TestEngine::new(make, &(postpaid(limit) + second));
        assert!(desk.allows(ADA, 3) && desk.allows(ADA, 4), "{limit}");
        let denied = desk.check(ADA, 5);
        assert_eq!(denied.rule().map(RuleId::name), Some("requests"), "{limit}");
        let unbooked: Vec<_> =
            denied.details().unbooked().map(|(rule, units)| (rule.name(), units)).collect();
        assert_eq!(unbooked, [("r", 5)], "{limit}");
        assert_eq!(desk.left(ADA, "r"), 3, "{limit}");
        // A denial of the postpaid rule alone charges it, and no other.
        let desk = TestEngine::new(make, &(postpaid(limit) + second));
        assert!(desk.allows(ADA, 12), "{limit}");
        assert!(!desk.allows(ADA, 4), "{limit}");
        assert_eq!(desk.left(ADA, "requests"), 1, "{limit}");
        let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
        assert_eq!((usage[0].used, usage[1].used), (16, 1), "{limit}");
    }
}

pub(super) fn commits_book_what_was_not_held(make: Make<'_>) {
    for (limit, _) in TEN {
        let desk = TestEngine::new(make, &postpaid(limit));
        assert!(!desk.reserve(ADA, 11).is_allowed(), "a reservation has to fit: {limit}");
        let id = desk.hold(ADA, 4);
        assert_eq!(desk.commit(id, 27), 27, "{limit}");
        assert_eq!(desk.commit(id, 27), 27, "once: {limit}");
        let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
        assert_eq!((usage[0].used, usage[0].debt), (27, 17), "{limit}");
    }
}

pub(super) fn reservations_wait_until_they_fit(make: Make<'_>) {
    let desk = TestEngine::new(make, &postpaid("quota = { max = 10, per = \"minute\" }"));
    assert!(desk.allows(ADA, 28));
    let denied = desk.reserve(ADA, 8);
    // Two are left in the third minute.
    assert_eq!(denied.retry_after(), Some(Wait::After(ms(180_000))));
    assert_eq!(desk.check(ADA, 0).retry_after(), Some(Wait::After(ms(120_000))));
    assert!(!desk.at(179_999).reserve(ADA, 8).is_allowed());
    assert!(desk.at(180_000).reserve(ADA, 8).is_allowed());
}

pub(super) fn booking_consults_no_other_rule(make: Make<'_>) {
    let second = "[[rule]]\nname = \"requests\"\nkey = [\"user\"]\n\
                  window = { max = 1, per = \"1d\" }\n";
    let desk = TestEngine::new(make, &(second.to_owned() + &postpaid(TEN[0].0)));
    assert!(desk.allows(ADA, 1));
    let request = Request::new("default", ADA).cost(30).idempotency_key("late");
    for _ in 0..2 {
        let booked = desk.engine.book(&request).block().unwrap();
        assert!(booked.is_allowed() && booked.rules().count() == 1);
    }
    let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
    assert_eq!((usage[0].used, usage[1].used), (1, 31));
}

pub(super) fn overrides_owe_what_the_rule_would(make: Make<'_>) {
    let prepaid = rule("bucket = { rate = \"1/s\", burst = 10 }");
    let desk = TestEngine::new(make, &prepaid);
    desk.set_override(
        "bucket = { rate = \"1/s\", burst = 10 }",
        "{ key = { user = \"ada\" }, burst = 20 }",
    );
    desk.edit(&postpaid("bucket = { rate = \"1/s\", burst = 10 }"));
    assert!(desk.allows(ADA, 19) && desk.allows(ADA, 30), "the override is still in force");
    let usage = desk.engine.usage(&Request::new("default", ADA)).block().unwrap();
    assert_eq!((usage[0].used, usage[0].limit), (49, Some(20)));
    // One that a program makes has no debt of its own either.
    let limit = Bucket::per_second(1).burst(5);
    let key =
        super::read(&(prepaid + "override = [{ key = { user = \"bob\" }, unlimited = true }]"));
    let key = key.rules()[0].overrides()[0].key().to_vec();
    let given = Override::new(key, Grant::Limit(Limit::Bucket(limit)));
    desk.engine.edit("test", Edit::set_override(&RuleId::named("r"), given)).block().unwrap();
    assert!(desk.allows(BOB, 12));
    let usage = desk.engine.usage(&Request::new("default", BOB)).block().unwrap();
    assert_eq!((usage[0].used, usage[0].limit), (12, Some(5)));
}
