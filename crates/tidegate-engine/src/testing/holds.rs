//! Reservations, idempotency keys, and slots.

use tidegate_core::{Timestamp, Wait};
use tidegate_policy::policy::RuleId;

use super::{ADA, BOB, Make, TestEngine, ms, rule};
use crate::{CheckError, HoldId, NotGranted, Owner, Refund, Request, SettleError};

/// Limits of ten units that do not refill while a test runs.
const TEN: [&str; 6] = [
    "bucket = { rate = \"1/day\", burst = 10 }",
    "window = { max = 10, per = \"1h\" }",
    "window = { max = 10, per = \"1h\", align = \"epoch\" }",
    "sliding = { max = 10, per = \"1h\" }",
    "quota = { max = 10, per = \"day\" }",
    "quota = { max = 10, per = \"round\", carry = \"all\" }",
];

pub(super) fn holds_shrink_capacity(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        desk.hold(ADA, 4);
        assert_eq!((desk.left(ADA, "r"), desk.left(BOB, "r")), (6, 10), "{limit}");
        assert!(!desk.reserve(ADA, 7).is_allowed(), "{limit}");
        desk.hold(ADA, 3);
        assert_eq!(desk.admits(ADA), 3, "{limit}");
        assert!(desk.reserve(ADA, 1).hold().is_none(), "{limit}");
    }
    // A bucket refills up to what is not held, and not beyond when the hold is released.
    let desk = TestEngine::new(make, &rule("bucket = { rate = \"1/s\", burst = 10 }"));
    let id = desk.at(0).hold(ADA, 6);
    assert_eq!(desk.at(60_000).left(ADA, "r"), 4);
    assert_eq!(desk.admits(ADA), 4);
    desk.cancel(id);
    assert_eq!(desk.admits(ADA), 6, "no second burst");
}

pub(super) fn settlements_can_be_repeated(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        let id = desk.hold(ADA, 5);
        let commit = |actual| desk.engine.commit(id, actual).block();
        let first = commit(Some(4)).unwrap();
        assert_eq!((first.charged, first.is_repeat), (4, false), "{limit}");
        let again = commit(Some(4)).unwrap();
        assert_eq!((again.charged, again.is_repeat), (4, true), "{limit}");
        assert_eq!(desk.left(ADA, "r"), 6, "charged once: {limit}");
        let settled = Err(SettleError::Committed { units: 4 });
        assert_eq!(commit(Some(3)).map(|done| done.charged), settled);
        assert_eq!(desk.engine.cancel(id, None).block(), settled);
        assert_eq!(desk.engine.refund_hold(id, 1).block(), Ok(1));
        assert_eq!(commit(Some(4)).unwrap(), again, "also after a refund");
        let id = desk.hold(ADA, 2);
        desk.cancel(id);
        assert_eq!(desk.engine.cancel(id, None).block(), Ok(0));
        assert_eq!(desk.engine.commit(id, None).block(), Err(SettleError::Cancelled));
        assert_eq!(desk.left(ADA, "r"), 7, "{limit}");
    }
}

pub(super) fn reserve_and_cancel_is_the_identity(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        for (now, charged) in [(0, 0), (1_000, 3), (2_000, 3), (3_000, 4)] {
            desk.at(now).allows(ADA, charged);
            let before = desk.peek(ADA, 1);
            let Some(id) = desk.reserve(ADA, 2).hold() else { continue };
            desk.cancel(id);
            let after = desk.peek(ADA, 1);
            assert_eq!(before.decision(), after.decision(), "{limit} at {now}");
            assert_eq!(desk.engine.cancel(id, None).block(), Ok(0), "the same again");
            assert_eq!(desk.engine.commit(id, None).block(), Err(SettleError::Cancelled));
        }
    }
}

pub(super) fn commits_of_less_and_more(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        let id = desk.hold(ADA, 6);
        assert_eq!(desk.commit(id, 2), 2, "{limit}");
        assert_eq!(desk.left(ADA, "r"), 8, "{limit}");
        let id = desk.hold(ADA, 1);
        assert_eq!(desk.commit(id, 5), 5, "{limit}");
        assert_eq!(desk.left(ADA, "r"), 3, "{limit}");
        let id = desk.hold(ADA, 2);
        let charged = if limit.contains("quota") { 9 } else { 3 };
        assert_eq!(desk.commit(id, 9), charged, "no more than there is, but for debt: {limit}");
        assert_eq!(desk.admits(ADA), 0, "{limit}");
        let id = desk.hold(BOB, 4);
        assert_eq!(desk.engine.commit(id, None).block().map(|done| done.charged), Ok(4));
        assert_eq!(desk.left(BOB, "r"), 6, "{limit}");
    }
    let desk = TestEngine::new(make, &rule("bucket = { rate = \"1/s\", burst = 10, debt = 5 }"));
    let id = desk.hold(ADA, 10);
    assert_eq!(desk.commit(id, 20), 15, "into debt, and no further");
    assert_eq!(desk.check(ADA, 1).retry_after(), Some(Wait::After(ms(6_000))));
}

pub(super) fn expiry_comes_at_its_own_time(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(&format!("{limit}\nreserve_for = \"30s\"")));
        let report = desk.at(1_000).reserve(ADA, 10);
        assert_eq!(report.details().expires(), Some(Timestamp::from_secs(31)));
        let id = report.hold().unwrap();
        assert!(!desk.at(30_999).allows(ADA, 1), "{limit}");
        assert!(desk.at(31_000).allows(ADA, 9), "{limit}");
        assert_eq!(desk.engine.commit(id, None).block(), Err(SettleError::Gone), "{limit}");
        assert_eq!(desk.left(ADA, "r"), 1, "{limit}");
        // Renewed, it lasts its full length again.
        let id = desk.hold(BOB, 10);
        desk.at(50_000).engine.renew(id).block().unwrap();
        assert!(!desk.at(79_999).allows(BOB, 1), "{limit}");
        assert!(desk.at(80_000).allows(BOB, 10), "{limit}");
        assert_eq!(desk.engine.renew(id).block(), Err(SettleError::Gone), "{limit}");
    }
    // Each of several at its own time: the second is still held when the first is over.
    let desk =
        TestEngine::new(make, &rule("window = { max = 10, per = \"1h\" }\nreserve_for = \"30s\""));
    desk.at(0).hold(ADA, 4);
    let second = desk.at(10_000).hold(ADA, 5);
    assert_eq!(desk.at(30_000).left(ADA, "r"), 5);
    assert_eq!(desk.at(39_999).commit(second, 5), 5);
    assert_eq!(desk.at(90_000).left(ADA, "r"), 5);
    // The rate has changed since: the bucket was full before the change.
    let desk = TestEngine::new(
        make,
        &rule("bucket = { rate = \"1/s\", burst = 10 }\nreserve_for = \"5s\""),
    );
    desk.at(0).hold(ADA, 10);
    desk.at(6_000).edit(&rule("bucket = { rate = \"1/h\", burst = 10 }\nreserve_for = \"5s\""));
    assert_eq!(desk.at(7_000).left(ADA, "r"), 10);
}

pub(super) fn refunds_are_never_more_than_charged(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        assert_eq!(desk.refund(ADA, 5), 0, "{limit}");
        assert!(desk.allows(ADA, 4));
        assert_eq!((desk.refund(ADA, 1), desk.left(ADA, "r")), (1, 7), "{limit}");
        assert_eq!((desk.refund(ADA, 9), desk.left(ADA, "r")), (3, 10), "{limit}");
        let id = desk.hold(ADA, 6);
        assert_eq!(desk.refund(ADA, 9), 0, "held units were not charged: {limit}");
        assert_eq!(desk.engine.refund_hold(id, 1).block(), Err(SettleError::Gone), "{limit}");
        assert_eq!(desk.commit(id, 5), 5);
        let refund = |units| desk.engine.refund_hold(id, units).block().unwrap();
        assert_eq!([refund(2), refund(9), refund(9)], [2, 3, 0], "{limit}");
        assert_eq!(desk.left(ADA, "r"), 10, "{limit}");
        assert_eq!(desk.admits(ADA), 10, "{limit}");
    }
    for (limit, later) in [
        ("window = { max = 10, per = \"10s\" }", 10_000),
        ("window = { max = 10, per = \"10s\", align = \"epoch\" }", 10_000),
        ("sliding = { max = 10, per = \"10s\" }", 11_000),
        ("bucket = { rate = \"1/s\", burst = 10 }", 10_000),
        ("quota = { max = 10, per = \"minute\" }", 60_000),
    ] {
        let desk = TestEngine::new(make, &rule(limit));
        assert!(desk.at(0).allows(ADA, 10));
        assert_eq!(desk.at(later).refund(ADA, 10), 0, "{limit}");
        assert_eq!(desk.admits(ADA), 10, "{limit}");
    }
}

pub(super) fn closed_windows_refund_nothing_to_holds(make: Make<'_>) {
    for (limit, later) in [
        ("window = { max = 10, per = \"10s\" }", 10_000),
        ("window = { max = 10, per = \"10s\", align = \"epoch\" }", 10_000),
        ("sliding = { max = 10, per = \"10s\" }", 11_000),
        ("bucket = { rate = \"1/s\", burst = 10 }", 10_000),
        ("quota = { max = 10, per = \"minute\" }", 60_000),
        ("quota = { max = 10, per = \"round\" }", 1_000),
    ] {
        let desk = TestEngine::new(make, &rule(limit));
        let id = desk.at(0).hold(ADA, 6);
        assert_eq!(desk.commit(id, 6), 6);
        desk.at(later).engine.close_round("default", None).block().unwrap();
        assert_eq!(desk.admits(ADA), 10, "{limit}");
        assert_eq!(desk.engine.refund_hold(id, 6).block(), Ok(0), "{limit}");
        assert_eq!(desk.admits(ADA), 0, "it was of another window: {limit}");
    }
}

pub(super) fn idempotency_keys_make_repeats_free(make: Make<'_>) {
    let desk = TestEngine::new(make, &rule("window = { max = 3, per = \"1d\" }"));
    let check = |name: &str, cost| {
        let request = Request::new("default", ADA).cost(cost).idempotency_key(name);
        desk.engine.check(&request).block()
    };
    assert_eq!(check("one", 2).unwrap().remaining(), Some(1));
    assert_eq!(desk.at(1_000).check(ADA, 1).remaining(), Some(0));
    for _ in 0..3 {
        let again = check("one", 2).unwrap();
        assert!(again.is_allowed());
        assert_eq!(again.remaining(), Some(1), "the same decision");
    }
    assert!(matches!(check("one", 1), Err(CheckError::OtherRequest)));
    assert!(!check("two", 1).unwrap().is_allowed());
    assert_eq!(desk.refund(ADA, 1), 1);
    assert!(check("two", 1).unwrap().is_allowed(), "denials are not cached");
    assert!(check("two", 1).unwrap().is_allowed());
    let day = 24 * 3_600_000;
    assert!(check("three", 1).is_ok_and(|report| !report.is_allowed()));
    assert!(desk.at(day - 1).check(ADA, 1).retry_after().is_some());
    assert_eq!(check("one", 2).unwrap().remaining(), Some(1), "for a day");
    let fresh =
        desk.at(day + 1).engine.check(&Request::new("default", ADA).cost(3).idempotency_key("one"));
    assert!(fresh.block().unwrap().is_allowed(), "and no longer, so another request may have it");
    // Reservations have idempotency keys, too.
    let reserve = || {
        let request = Request::new("default", BOB).cost(2).idempotency_key("four");
        desk.engine.hold(&request).block().unwrap()
    };
    let id = reserve().hold();
    assert_eq!(reserve().hold(), id);
    assert_eq!(desk.left(BOB, "r"), 1);
}

pub(super) fn idempotency_keys_make_refunds_happen_once(make: Make<'_>) {
    let desk = TestEngine::new(make, &rule("window = { max = 10, per = \"1d\" }"));
    let refund = |name: &str, units| {
        let request = Request::new("default", ADA).cost(units).idempotency_key(name);
        desk.engine.refund(&request).block()
    };
    assert_eq!(refund("early", 2), Ok(0), "nothing was charged");
    assert!(desk.at(0).check(ADA, 8).is_allowed());
    for _ in 0..3 {
        assert_eq!(refund("one", 2), Ok(2));
        assert_eq!(desk.left(ADA, "r"), 4);
    }
    assert_eq!(refund("early", 2), Ok(2), "an empty refund is not cached");
    assert_eq!(refund("one", 3), Err(CheckError::OtherRequest));
    let check = Request::new("default", ADA).cost(2).idempotency_key("one");
    assert!(matches!(desk.engine.check(&check).block(), Err(CheckError::OtherRequest)));
    assert_eq!(desk.left(ADA, "r"), 6);
    // Of a reservation, too.
    let id = desk.hold(ADA, 5);
    assert_eq!(desk.commit(id, 5), 5);
    let refund = |units, name: &str| {
        desk.engine.refund_hold(id, Refund::units(units).idempotency_key(name)).block()
    };
    for _ in 0..3 {
        assert_eq!(refund(2, "three"), Ok(2));
        assert_eq!(desk.left(ADA, "r"), 3);
    }
    assert_eq!(refund(1, "three"), Err(SettleError::OtherRequest));
    assert_eq!(refund(9, "four"), Ok(3), "no more than is left of it");
    assert_eq!(refund(9, "four"), Ok(3));
    assert_eq!(desk.left(ADA, "r"), 6);
}

pub(super) fn owners_have_their_own_keys_and_holds(make: Make<'_>) {
    let slots = "[[rule]]\nname = \"s\"\ndomain = \"jobs\"\nslots = { max = 2 }\n";
    let limits = rule("window = { max = 9, per = \"1d\" }") + slots;
    let desk = TestEngine::new(make, &limits);
    let owners = [None, Some(Owner::new("billing")), Some(Owner::new("search"))];
    let as_owner = |request: Request<'static>, owner: Option<Owner>| match owner {
        Some(owner) => request.owner(owner),
        None => request,
    };
    let reserve = |owner| {
        let request = Request::new("default", ADA).cost(2).idempotency_key("one");
        desk.engine.hold(&as_owner(request, owner)).block().unwrap().hold().unwrap()
    };
    let ids = owners.map(reserve);
    assert_eq!(desk.left(ADA, "r"), 3, "the same key, of three owners");
    assert_eq!(owners.map(reserve), ids, "repeated by each of them");
    let refund = |owner: Option<Owner>| {
        let request = Request::new("default", ADA).cost(1).idempotency_key("two");
        desk.engine.refund(&as_owner(request, owner)).block()
    };
    assert!(desk.check(ADA, 3).is_allowed());
    assert_eq!(owners.map(refund), [Ok(1), Ok(1), Ok(1)]);
    assert_eq!(owners.map(refund), [Ok(1), Ok(1), Ok(1)], "repeated");
    assert_eq!(desk.left(ADA, "r"), 3);
    let lease = |owner| {
        let request = as_owner(Request::new("jobs", &[]), owner);
        desk.engine.acquire(&request, None).block().unwrap()
    };
    let leases = [lease(owners[1]), lease(owners[2])];
    for ids in [[ids[1], ids[2]], [leases[0].id(), leases[1].id()]] {
        for owner in 0..2 {
            let owns = ids.map(|id| owners[owner + 1].unwrap().owns(id));
            assert_eq!(owns, [owner == 0, owner == 1]);
        }
    }
}

pub(super) fn repeats_survive_edits(make: Make<'_>) {
    let both = "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nwindow = { max = 9, per = \"1m\" }\n\
                [[rule]]\nname = \"b\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"1m\" }\n";
    let desk = TestEngine::new(make, both);
    let request = Request::new("default", ADA).idempotency_key("one");
    let first = desk.engine.check(&request).block().unwrap();
    let limits = |report: &crate::Report| -> Vec<(String, u64)> {
        report.rules().map(|it| (it.rule.name().into(), it.decision.limit())).collect()
    };
    assert_eq!(limits(&first), [("a".into(), 9), ("b".into(), 5)]);
    desk.edit("[[rule]]\nname = \"b\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"1m\" }\n");
    let again = desk.engine.check(&request).block().unwrap();
    assert!(again.is_allowed());
    for (rule, limit) in limits(&again) {
        assert!(limits(&first).contains(&(rule.clone(), limit)), "`{rule}` never had {limit}");
    }
    assert_eq!(desk.left(ADA, "b"), 4);
}

pub(super) fn slots_are_never_more_than_there_are(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        "[[rule]]\nname = \"places\"\nslots = { max = 2, queue = 0, expires = \"30s\" }\n\
         [[rule]]\nname = \"all\"\nwindow = { max = 5, per = \"1h\" }",
    );
    let request = Request::new("default", ADA);
    let acquire = || desk.engine.acquire(&request, None).block();
    assert!(matches!(desk.try_check(ADA, 1), Err(CheckError::NeedsAcquire { .. })));
    let (first, second) = (acquire().unwrap(), acquire().unwrap());
    assert!(second.fence() > first.fence());
    assert!(matches!(acquire(), Err(NotGranted::QueueFull)));
    assert_eq!(desk.left(ADA, "all"), 3, "a request without a slot was not charged");
    first.release().block().unwrap();
    let mut third = acquire().unwrap();
    let (second, fence) = (second.into_id(), third.fence());
    third.renew().block().unwrap();
    desk.at(29_999);
    assert!(acquire().is_err());
    third.renew().block().unwrap();
    desk.at(30_000);
    let fourth = acquire().unwrap();
    assert!(fourth.fence() > fence);
    assert_eq!(desk.engine.renew(second).block(), Err(SettleError::Gone));
    assert_eq!(desk.engine.release(second).block(), Err(SettleError::Gone));
    assert!(acquire().is_err(), "a late release frees nothing");
    third.release().block().unwrap();
    let fifth = acquire().unwrap();
    assert!(matches!(acquire(), Err(NotGranted::QueueFull | NotGranted::Denied(_))));
    // A store that answers later is released later.
    drop((fourth, fifth));
    let mut looks = 0..1_000_000;
    assert!(looks.any(|_| desk.left(ADA, "places") == 2), "at rest all are free");
    assert_eq!(desk.left(ADA, "all"), 0);
    assert!(matches!(acquire(), Err(NotGranted::Denied(_))), "the other rule denies");
    assert_eq!(desk.left(ADA, "places"), 2);
}

pub(super) fn ended_leases_are_gone(make: Make<'_>) {
    type End = fn(&TestEngine, HoldId) -> Result<u64, SettleError>;

    let desk = TestEngine::new(make, &rule("slots = { max = 1, queue = 0, expires = \"30s\" }"));
    let request = Request::new("default", ADA);
    let ends: [End; 3] = [
        |desk, id| desk.engine.release(id).block().map(|()| 0),
        |desk, id| desk.engine.cancel(id, None).block(),
        |desk, id| desk.engine.void(id, None).block(),
    ];
    for end in ends {
        let id = desk.engine.acquire(&request, None).block().unwrap().into_id();
        assert_eq!(end(&desk, id), Ok(0));
        for again in ends {
            assert_eq!(again(&desk, id), Err(SettleError::Gone), "a slot is held once");
        }
    }
}

pub(super) fn guards_settle_what_they_hold(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        let request = Request::new("default", ADA).cost(4);
        let reserve = || desk.engine.reserve(&request).block().unwrap();
        // A store that answers later is settled later.
        let is_left = |units| (0..1_000_000).any(|_| desk.left(ADA, "r") == units);
        drop(reserve());
        assert!(is_left(10), "nothing was used: {limit}");
        let mut held = reserve();
        held.add_used(1);
        held.add_used(1);
        drop(held);
        assert!(is_left(8), "what was used is charged: {limit}");
        let mut held = reserve();
        held.add_used(3);
        assert_eq!(held.commit().block().unwrap().charged, 3, "{limit}");
        assert_eq!(reserve().cancel(None).block(), Ok(0), "{limit}");
        assert_eq!(desk.left(ADA, "r"), 5, "{limit}");
        let (named, id) = (request.idempotency_key("one"), reserve().into_report().hold());
        assert_eq!(desk.commit(id.unwrap(), 4), 4, "a kept one is settled by its id: {limit}");
        let denied = desk.engine.reserve(&named).block().map(drop);
        assert!(matches!(denied, Err(NotGranted::Denied(_))), "{limit}");
        // The guard of the first request settles it, not that of a repeat.
        let one = named.cost(1);
        let first = desk.engine.reserve(&one).block().unwrap();
        drop(desk.engine.reserve(&one).block().unwrap());
        assert_eq!(desk.left(ADA, "r"), 0, "{limit}");
        assert_eq!(first.commit().block().unwrap().charged, 1, "{limit}");
    }
}

pub(super) fn forgetting_keeps_holds(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        assert!(desk.allows(ADA, 3));
        let id = desk.hold(ADA, 4);
        assert!(desk.engine.forget(&Request::new("default", ADA)).block().unwrap());
        assert_eq!(desk.left(ADA, "r"), 6, "{limit}");
        assert_eq!(desk.commit(id, 4), 4);
        assert_eq!(desk.left(ADA, "r"), 6, "{limit}");
    }
}

pub(super) fn forgetting_all_keeps_holds(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(limit));
        assert!(desk.allows(ADA, 3));
        assert!(desk.allows(BOB, 3));
        let ids = [desk.hold(ADA, 4), desk.hold(ADA, 1)];
        assert_eq!(desk.engine.forget_all(None).block(), Ok(2), "{limit}");
        assert_eq!((desk.left(ADA, "r"), desk.left(BOB, "r")), (5, 10), "{limit}");
        assert_eq!(desk.commit(ids[0], 4), 4);
        desk.cancel(ids[1]);
        assert_eq!(desk.left(ADA, "r"), 6, "{limit}");
    }
}

pub(super) fn all_rules_are_held_or_none(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        "[[rule]]\nname = \"a\"\nkey = [\"user\"]\nsliding = { max = 9, per = \"1h\" }\n\
         [[rule]]\nname = \"gap\"\nkey = [\"user\"]\ncooldown = \"1s\"\n\
         [[rule]]\nname = \"b\"\nbucket = { rate = \"1/day\", burst = 5 }\nreserve_for = \"10s\"",
    );
    let left = || (desk.left(ADA, "a"), desk.left(ADA, "b"));
    let id = desk.at(0).hold(ADA, 3);
    assert_eq!(left(), (6, 2));
    assert!(!desk.at(1_000).reserve(ADA, 3).is_allowed());
    assert_eq!(left(), (6, 2));
    assert_eq!(desk.commit(id, 1), 1);
    assert_eq!(left(), (8, 4));
    desk.at(2_000).hold(ADA, 4);
    assert_eq!(
        desk.check(ADA, 1).rule().map(RuleId::name),
        Some("b"),
        "unknown is longer than a second"
    );
    assert_eq!(desk.at(12_000).left(ADA, "a"), 8, "the shortest time counts for all");
    assert_eq!(left(), (8, 4));
}

pub(super) fn voided_holds_leave_no_cooldown(make: Make<'_>) {
    let policy = "[[rule]]\nname = \"gap\"\nkey = [\"user\"]\ncooldown = \"1m\"\n\
                  [[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 2, per = \"1h\" }\n\
                  reserve_for = \"1h\"\n";
    let desk = TestEngine::new(make, policy);
    let void = |id| desk.engine.void(id, None).block();
    // A cancelled request did happen; a voided one did not.
    let cancelled = desk.at(1).hold(ADA, 1);
    desk.cancel(cancelled);
    assert_eq!(desk.check(ADA, 1).rule().map(RuleId::name), Some("gap"));
    let id = desk.at(60_001).hold(ADA, 1);
    assert_eq!(desk.left(ADA, "r"), 1);
    void(id).unwrap();
    assert_eq!(desk.left(ADA, "r"), 2);
    // The same again changes nothing, and neither does the other one of both.
    let kept = desk.hold(ADA, 1);
    assert_eq!(
        (void(id), void(cancelled), desk.engine.cancel(id, None).block()),
        (Ok(0), Ok(0), Ok(0))
    );
    assert!(!desk.allows(ADA, 1));
    // A cooldown that a later request began stays.
    let later = desk.at(120_001).hold(ADA, 1);
    void(kept).unwrap();
    assert_eq!(desk.check(ADA, 1).rule().map(RuleId::name), Some("gap"));
    assert_eq!(desk.at(180_001).commit(later, 1), 1);
    assert_eq!(void(later), Err(SettleError::Committed { units: 1 }));
    assert_eq!(desk.left(ADA, "r"), 1);
}

pub(super) fn repeats_are_reported(make: Make<'_>) {
    let desk = TestEngine::new(make, &rule("window = { max = 3, per = \"1h\" }"));
    let request = Request::new("default", ADA).idempotency_key("one");
    let first = desk.engine.hold(&request).block().unwrap();
    assert!(first.is_allowed() && !first.is_repeat());
    let again = desk.engine.hold(&request).block().unwrap();
    assert!(again.is_allowed() && again.is_repeat());
    assert_eq!(first.hold(), again.hold());
    assert!(!desk.check(ADA, 1).is_repeat());
    let denied = desk.engine.check(&Request::new("default", ADA).cost(9).idempotency_key("two"));
    assert!(!denied.block().unwrap().is_repeat(), "a denial is not cached");
}

pub(super) fn waits_end_with_the_first_expiry_that_suffices(make: Make<'_>) {
    for limit in [
        "bucket = { rate = \"1/day\", burst = 10 }",
        "window = { max = 10, per = \"1d\" }",
        "sliding = { max = 10, per = \"1d\" }",
        "quota = { max = 10, per = \"month\" }",
        "quota = { max = 10, per = \"month\", carry = 3 }",
        "quota = { max = 10, per = \"round\", carry = \"all\" }",
    ] {
        let desk = TestEngine::new(make, &rule(&format!("{limit}\nreserve_for = \"20s\"")));
        desk.at(0).hold(ADA, 4);
        desk.at(1_000).hold(ADA, 3);
        let last = desk.at(2_000).hold(ADA, 3);
        let wait = |cost| desk.check(ADA, cost).retry_after();
        assert_eq!(wait(1), Some(Wait::After(ms(18_000))), "the first expiry: {limit}");
        assert_eq!(wait(5), Some(Wait::After(ms(19_000))), "the second: {limit}");
        assert_eq!(wait(10), Some(Wait::After(ms(20_000))), "all of them: {limit}");
        assert_eq!(desk.peek(ADA, 5).retry_after(), Some(Wait::After(ms(19_000))), "{limit}");
        assert!(!desk.at(20_999).allows(ADA, 5), "{limit}");
        assert!(desk.at(21_000).allows(ADA, 5), "{limit}");
        // What was charged stays, and a settlement is another request.
        assert_eq!(wait(3), Some(Wait::After(ms(1_000))), "{limit}");
        desk.cancel(last);
        assert!(desk.allows(ADA, 3), "{limit}");
    }
    // Its own wait is shorter.
    let policy = rule("bucket = { rate = \"1/s\", burst = 10 }\nreserve_for = \"20s\"");
    let desk = TestEngine::new(make, &policy);
    desk.at(0).hold(ADA, 4);
    assert!(desk.allows(ADA, 6));
    assert_eq!(desk.check(ADA, 2).retry_after(), Some(Wait::After(ms(2_000))));
    assert_eq!(desk.check(ADA, 7).retry_after(), Some(Wait::After(ms(20_000))));
}

pub(super) fn looking_ahead_changes_nothing(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(&format!("{limit}\nreserve_for = \"30s\"")));
        let id = desk.at(1_000).hold(ADA, 7);
        let later = desk.engine.at(Timestamp::from_secs(60));
        let request = Request::new("default", ADA);
        let seen = later.peek(&request.cost(9)).block().unwrap();
        assert!(seen.is_allowed(), "it has expired by then: {limit}");
        drop(later.explain(&request).block().unwrap());
        let used = later.usage(&request).block().unwrap();
        assert_eq!(used[0].held, 0, "{limit}");
        assert_eq!(desk.left(ADA, "r"), 3, "it is still on hold: {limit}");
        assert_eq!(desk.commit(id, 5), 5, "{limit}");
        assert_eq!(desk.left(ADA, "r"), 5, "{limit}");
    }
}

pub(super) fn denials_that_charge_are_remembered(make: Make<'_>) {
    let policy = rule("window = { max = 3, per = \"1d\" }\ncharge_refused = true")
        + "[[rule]]\nname = \"none\"\nkey = [\"user\"]\nwindow = { max = 1, per = \"1d\" }\n";
    let desk = TestEngine::new(make, &policy);
    let check = |name: &str| {
        let request = Request::new("default", ADA).idempotency_key(name);
        desk.engine.check(&request).block().unwrap()
    };
    assert!(check("first").is_allowed());
    for _ in 0..3 {
        let denied = check("second");
        assert!(!denied.is_allowed());
        assert_eq!((denied.rule().unwrap().name(), desk.left(ADA, "r")), ("none", 1));
    }
    assert!(!check("third").is_allowed());
    assert_eq!(desk.left(ADA, "r"), 0);
    assert!(check("first").is_allowed(), "as it was");
}

pub(super) fn an_idempotency_key_used_again_is_the_later_holds(make: Make<'_>) {
    for limit in TEN {
        let desk = TestEngine::new(make, &rule(&format!("{limit}\nreserve_for = \"20h\"")));
        let reserve = || {
            let request = Request::new("default", ADA).idempotency_key("one");
            desk.engine.hold(&request).block().unwrap().hold().unwrap()
        };
        let hour = 3_600_000;
        let first = desk.at(0).engine.hold(&Request::new("default", ADA).idempotency_key("one"));
        let first = first.block().unwrap().hold().unwrap();
        desk.at(19 * hour).engine.renew(first).block().unwrap();
        let second = desk.at(25 * hour);
        let second = second.engine.hold(&Request::new("default", ADA).idempotency_key("one"));
        let second = second.block().unwrap().hold().unwrap();
        assert_ne!(first, second, "after a day the key names another request: {limit}");
        desk.cancel(first);
        assert_eq!(reserve(), second, "{limit}");
        desk.cancel(second);
        assert_ne!(reserve(), second, "{limit}");
    }
}
