//! Sequences of operations that once admitted too much, or lost a state.

use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::{
    CheckError, Edit, Report, Request, SettleError, StoreEngine, Timestamp,
    clock::{Clock as _, ManualClock},
    hold::{HoldBound, Refund},
};

type TestEngine = StoreEngine;

fn policy(text: &str) -> Policy {
    Policy::from_toml(text).unwrap()
}

/// An engine whose clock starts on a full minute.
fn engine(text: &str) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(MINUTE));
    (StoreEngine::builder(policy(text)).clock(clock.clone()).build().unwrap(), clock)
}

fn check_at(engine: &TestEngine, user: &str, at: Timestamp) -> bool {
    let attributes = [("user", user)];
    engine.at(at).check(&Request::new("default", &attributes)).block().unwrap().is_allowed()
}

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_millis(MINUTE * 1_000 + ms)
}

const MINUTE: u64 = 60 * 1_000_000;

#[test]
fn late_request_does_not_shorten_the_period_of_a_newer_state() {
    let (engine, _) =
        engine("[[rule]]\nname = \"r\"\nkey = [\"user\"]\nquota = { max = 2, per = \"minute\" }\n");
    // The second request carries a time of the period before.
    assert!(check_at(&engine, "key", ms(1)));
    assert!(check_at(&engine, "key", Timestamp::from_millis(MINUTE * 1_000 - 1)));
    for other in 0..500 {
        let _ = check_at(&engine, &format!("other-{other}"), ms(11_000));
    }
    assert!(!check_at(&engine, "key", ms(12_000)), "two were admitted in this minute");
    assert!(!check_at(&engine, "key", ms(12_000)));
}

#[test]
fn hold_refunded_in_parts_returns_no_more_than_was_outstanding() {
    let (engine, clock) =
        engine("[[rule]]\nname = \"r\"\nbucket = { rate = \"1/s\", burst = 10 }\n");
    let request = Request::new("default", &[]);
    let left = |report: &Report| report.remaining().unwrap();
    let hold = engine.hold(&request.cost(5)).block().unwrap().hold().unwrap();
    engine.commit(hold, None).block().unwrap();
    clock.advance(Duration::from_secs(2));
    // Two of the five are back by themselves: three are outstanding.
    assert_eq!(left(&engine.check(&request.cost(3)).block().unwrap()), 4);
    assert_eq!(engine.refund_hold(hold, 3).block().unwrap(), 3);
    assert_eq!(engine.refund_hold(hold, 2).block().unwrap(), 0);
    assert_eq!(left(&engine.peek(&request).block().unwrap()), 7);
}

#[test]
fn refund_of_a_nearly_refilled_charge_returns_only_the_rest_of_it() {
    let (engine, clock) =
        engine("[[rule]]\nname = \"r\"\nbucket = { rate = \"1/s\", burst = 10 }\n");
    let request = Request::new("default", &[]);
    let hold = engine.hold(&request).block().unwrap().hold().unwrap();
    engine.commit(hold, None).block().unwrap();
    clock.advance(Duration::from_millis(990));
    assert!(engine.check(&request.cost(9)).block().unwrap().is_allowed());
    let _ = engine.refund_hold(hold, 1).block().unwrap();
    // 0.01 units were outstanding: the bucket holds 1.00 now, and not 1.99.
    clock.advance(Duration::from_millis(980));
    assert!(!engine.check(&request.cost(2)).block().unwrap().is_allowed());
    clock.advance(Duration::from_millis(20));
    assert!(engine.check(&request.cost(2)).block().unwrap().is_allowed());
}

#[test]
fn forget_after_a_reservation_has_expired_leaves_no_state() {
    let (engine, clock) = engine(
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 3, per = \"1h\" }\n\
         reserve_for = \"1m\"\n",
    );
    let attributes = [("user", "ada")];
    let request = Request::new("default", &attributes);
    assert!(engine.hold(&request).block().unwrap().hold().is_some());
    clock.advance(Duration::from_secs(61));
    assert!(engine.forget(&request).block().unwrap());
    assert_eq!(engine.len(), 0);
}

#[test]
fn slot_of_a_quota_that_carries_since_an_edit_is_not_reused() {
    let rule = |carry: &str| {
        format!(
            "[server]\nmax_keys = 1024\nwhen_full = \"deny\"\n\n[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
             quota = {{ max = 10, per = \"minute\"{carry} }}\n"
        )
    };
    let (engine, clock) = engine(&rule(""));
    let keys: Vec<String> = (0..500).map(|key| format!("key-{key}")).collect();
    for key in &keys {
        assert!(check_at(&engine, key, ms(0)));
    }
    engine.edit("test", Edit::policy(policy(&rule(", carry = \"all\"")))).block().unwrap();
    clock.advance(Duration::from_secs(60));
    for other in 0..2_000 {
        let _ = check_at(&engine, &format!("other-{other}"), ms(61_000));
    }
    for key in &keys {
        let attributes = [("user", key.as_str())];
        let report = engine.at(ms(61_000)).peek(&Request::new("default", &attributes)).block();
        assert_eq!(report.unwrap().remaining(), Some(19), "{key}");
    }
}

#[test]
fn idempotency_keys_belong_to_their_domain_and_their_hold() {
    let (engine, _) = engine(
        "[[rule]]\nname = \"r\"\ndomain = \"a\"\nwindow = { max = 9, per = \"1h\" }\n\n\
         [[rule]]\nname = \"r\"\ndomain = \"b\"\nwindow = { max = 9, per = \"1h\" }\n",
    );
    for domain in ["a", "b", "a", "b"] {
        let request = Request::new(domain, &[]).cost(2).idempotency_key("order 17");
        assert_eq!(engine.check(&request).block().unwrap().remaining(), Some(7), "{domain}");
    }
    let holds: Vec<_> = (0..2)
        .map(|_| {
            let request = Request::new("a", &[]).cost(3);
            let hold = engine.hold(&request).block().unwrap().hold().unwrap();
            engine.commit(hold, None).block().unwrap();
            hold
        })
        .collect();
    for (hold, units) in [(holds[0], 1), (holds[1], 2), (holds[0], 1), (holds[1], 2)] {
        assert_eq!(
            engine
                .refund_hold(hold, Refund::units(units).idempotency_key("refund"))
                .block()
                .unwrap(),
            units
        );
    }
    let left = engine.peek(&Request::new("a", &[])).block().unwrap().remaining();
    assert_eq!(left, Some(4), "7 - 6 + 3");
}

#[test]
fn key_has_a_maximum_of_open_reservations() {
    let (engine, _) = engine(
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nbucket = { rate = \"1/s\", burst = 5000 }\n",
    );
    let ada = Request::new("default", &[("user", "ada")]);
    let first = engine.hold(&ada).block().unwrap().hold().unwrap();
    for _ in 1..1_024 {
        let _ = engine.hold(&ada).block().unwrap();
    }
    let error = engine.hold(&ada).block().unwrap_err();
    assert_eq!(error, CheckError::TooManyHolds(HoldBound::Key { most: 1_024 }));
    let bob = Request::new("default", &[("user", "bob")]);
    assert!(engine.hold(&bob).block().unwrap().is_allowed());
    engine.commit(first, None).block().unwrap();
    assert!(engine.hold(&ada).block().unwrap().is_allowed());
}

#[test]
fn settings_bound_open_reservations_and_idempotency_keys() {
    let rule = |domain| {
        let limit = "key = [\"user\"]\nwindow = { max = 9, per = \"1h\" }";
        format!("[[rule]]\nname = \"r\"\ndomain = \"{domain}\"\n{limit}\n")
    };
    let server = "[server]\nmax_holds = 4\nmax_idempotency_keys = 3\n";
    let rules = ["a", "b", "c"].map(rule).concat();
    let (engine, _) = engine(&format!("{server}{rules}"));
    let reserve = |domain| engine.hold(&Request::new(domain, &[("user", "ada")])).block();
    let charge = |domain, key| {
        let request = Request::new(domain, &[("user", "bob")]).idempotency_key(key);
        engine.check(&request).block().unwrap().remaining()
    };
    for domain in ["a", "a", "b"] {
        assert!(reserve(domain).unwrap().is_allowed());
    }
    let of_domain = CheckError::TooManyHolds(HoldBound::Domain { most: 2 });
    assert_eq!(reserve("a").unwrap_err(), of_domain);
    assert!(reserve("b").unwrap().is_allowed());
    let full = CheckError::TooManyHolds(HoldBound::Store { most: 4 });
    assert_eq!(reserve("c").unwrap_err(), full);
    assert_eq!(charge("a", "1"), Some(8));
    assert_eq!(charge("b", "1"), Some(8));
    assert_eq!(charge("b", "2"), Some(7));
    assert_eq!(charge("b", "3"), Some(6), "the domain with most loses its oldest");
    assert_eq!(engine.evicted_idempotency_keys(), 1);
    assert_eq!(charge("a", "1"), Some(8), "the same again");
    assert_eq!(charge("b", "2"), Some(7), "the same again");
    assert_eq!(charge("b", "1"), Some(5), "charged again");
}

#[test]
fn reservation_that_no_rule_limits_takes_no_memory() {
    let (engine, clock) = engine(
        "[[rule]]\nname = \"r\"\ndomain = \"other\"\nbucket = { rate = \"1/s\", burst = 1 }\n",
    );
    let request = Request::new("default", &[]);
    let before = engine.bytes();
    let holds: Vec<_> =
        (0..10_000).map(|_| engine.hold(&request).block().unwrap().hold().unwrap()).collect();
    assert_eq!(engine.bytes(), before);
    let distinct: std::collections::HashSet<_> = holds.iter().collect();
    assert_eq!(distinct.len(), holds.len());
    assert!(engine.commit(holds[0], Some(3)).block().is_ok());
    assert!(engine.cancel(holds[1], None).block().is_ok());
    clock.advance(Duration::from_secs(601));
    assert_eq!(engine.commit(holds[2], None).block(), Err(SettleError::Gone));
}

#[test]
fn lease_of_an_unlimited_key_can_be_renewed() {
    let (engine, clock) = engine(
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nslots = { max = 1, expires = \"5s\" }\n\
         override = [{ key = { user = \"ada\" }, unlimited = true }]\n",
    );
    let ada = Request::new("default", &[("user", "ada")]);
    let mut lease = engine.acquire(&ada, None).block().unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(4));
        let expires = lease.renew().block().unwrap();
        assert_eq!(expires, clock.now().saturating_add(Duration::from_secs(5)));
    }
}
