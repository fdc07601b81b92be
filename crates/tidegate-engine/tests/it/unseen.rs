//! Keys without charges, and what an edit means for them.

use std::time::Duration;

use tidegate::policy::Policy;
use tidegate::{Edit, Request, StoreEngine, Timestamp, Wait, clock::ManualClock};

/// A governor who cannot afford anything yet must be able to one day: a denied key is stored, and
/// carries units over from then on.
#[test]
fn unseen_keys_collect_what_is_carried() {
    let policy = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
                  quota = { max = 2, per = \"round\", carry = \"all\" }";
    let engine = StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .clock(ManualClock::default())
        .build()
        .unwrap();
    let request = Request::new("default", &[("user", "ada")]).cost(3);
    assert!(!engine.check(&request).block().unwrap().is_allowed());
    engine.close_round("default", None).block().unwrap();
    assert!(engine.check(&request).block().unwrap().is_allowed());
}

/// An override that came and went while the key was not charged: its refill is forgotten, so the
/// key has more after the override is dropped than it had a moment before.
#[test]
fn dropping_an_override_refills_nothing_that_was_never_charged_under_it() {
    let policy = |exception: &str| {
        let text = format!(
            "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nbucket = {{ rate = \"10/s\", burst = 100 }}\n\
             override = [{exception}]"
        );
        Policy::from_toml(&text).unwrap()
    };
    let clock = ManualClock::default();
    let engine = StoreEngine::builder(policy("")).clock(clock.clone()).build().unwrap();
    let ada = Request::new("default", &[("user", "ada")]);
    assert!(engine.check(&ada.cost(100)).block().unwrap().is_allowed());
    engine
        .edit("test", Edit::policy(policy("{ key = { user = \"ada\" }, rate = \"1/day\" }")))
        .block()
        .unwrap();
    clock.set(tidegate::Timestamp::from_secs(5));
    assert_eq!(engine.peek(&ada).block().unwrap().remaining(), Some(0));
    engine.edit("test", Edit::policy(policy(""))).block().unwrap();
    assert_eq!(engine.peek(&ada).block().unwrap().remaining(), Some(0));
}

/// A peek at a key that no request has made known reports what a check would. Only where several
/// periods are needed it reports no wait: a key carries nothing over before its first request.
#[test]
fn peek_at_an_unknown_key_of_a_carrying_quota_reports_what_a_check_would() {
    let policy = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\n\
                  quota = { max = 2, per = \"minute\", carry = 5 }";
    let clock = ManualClock::new(Timestamp::from_secs(86_400 * 20_000 + 15));
    let engine = StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .clock(clock.clone())
        .build()
        .unwrap();
    for (cost, wait) in [
        (2, None),
        (3, Some(Wait::After(Duration::from_secs(45)))),
        (7, Some(Wait::After(Duration::from_secs(45 + 60 + 60)))),
        (8, Some(Wait::Never)),
    ] {
        let user = cost.to_string();
        let attributes = [("user", user.as_str())];
        let request = Request::new("default", &attributes).cost(cost);
        let peeked = engine.peek(&request).block().unwrap();
        let needs_carried = matches!(cost, 3 | 7);
        let of_peek = if needs_carried { Some(Wait::Unknown) } else { wait };
        assert_eq!(peeked.retry_after(), of_peek);
        assert_eq!((peeked.remaining(), peeked.limit()), (Some(2), Some(2)));
        assert_eq!(engine.check(&request).block().unwrap().retry_after(), wait, "cost {cost}");
    }
    for (seconds, user, cost) in [(45, "3", 3), (60 + 60, "7", 7)] {
        clock.advance(Duration::from_secs(seconds));
        let attributes = [("user", user)];
        let request = Request::new("default", &attributes).cost(cost);
        assert!(engine.check(&request).block().unwrap().is_allowed(), "the wait was true");
    }
}
