//! The engine from outside: the verbs, one after the other.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::policy::{Policy, RuleId};
use tidegate::{
    Edit, NotGranted, Request, SettleError, StoreEngine, Timestamp, Wait, clock::ManualClock,
};

type TestEngine = StoreEngine;

fn engine(policy: &str) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    (
        StoreEngine::builder(Policy::from_toml(policy).unwrap())
            .clock(clock.clone())
            .build()
            .unwrap(),
        clock,
    )
}

fn allows(engine: &TestEngine, request: &Request<'_>) -> bool {
    engine.check(request).block().unwrap().is_allowed()
}

const TWO_LIMITS: &str = r#"
    [[rule]]
    name   = "user"
    key    = ["user"]
    window = { max = 2, per = "10s" }

    [[rule]]
    name   = "all"
    window = { max = 3, per = "20s" }
"#;

#[test]
fn denied_request_charges_no_limit_and_names_the_rule() {
    let (engine, clock) = engine(TWO_LIMITS);
    let (ada, bob) = (&[("user", "ada")], &[("user", "bob")]);
    let (ada, bob) = (Request::new("default", ada), Request::new("default", bob));
    assert!(allows(&engine, &ada) && allows(&engine, &ada));
    let denied = engine.check(&ada).block().unwrap();
    assert_eq!((denied.rule().map(RuleId::name), denied.remaining()), (Some("user"), Some(0)));
    assert_eq!(denied.retry_after(), Some(Wait::After(Duration::from_secs(10))));
    let all = denied.rules().nth(1).unwrap();
    assert_eq!((all.rule.name(), all.decision.remaining()), ("all", 1));
    assert!(allows(&engine, &bob));
    let denied = engine.check(&bob).block().unwrap();
    assert_eq!(denied.rule().map(RuleId::name), Some("all"));
    assert_eq!(denied.rules().next().unwrap().decision.remaining(), 1);
    clock.advance(Duration::from_secs(20));
    assert!(allows(&engine, &bob) && allows(&engine, &bob));
}

#[test]
fn a_reservation_shrinks_the_capacity_until_it_expires() {
    let (engine, clock) = engine(
        "[[rule]]\nname = \"tokens\"\nkey = [\"user\"]\nreserve_for = \"1m\"\n\
         bucket = { rate = \"1/s\", burst = 10 }\n",
    );
    let request = Request::new("default", &[("user", "ada")]);
    let held = engine.hold(&request.cost(6)).block().unwrap().hold().unwrap();
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(4));
    clock.advance(Duration::from_secs(30));
    assert_eq!(
        engine.peek(&request).block().unwrap().remaining(),
        Some(4),
        "no refill above a hold"
    );
    clock.advance(Duration::from_secs(30));
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(10), "expired");
    assert_eq!(engine.commit(held, None).block(), Err(SettleError::Gone));

    let held = engine.hold(&request.cost(6)).block().unwrap().hold().unwrap();
    assert_eq!(engine.commit(held, Some(2)).block().map(|done| done.charged), Ok(2));
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(8));
    assert_eq!(engine.refund_hold(held, 5).block(), Ok(2), "never more than was taken");
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(10));
}

#[test]
fn the_same_idempotency_key_is_charged_once() {
    let (engine, _) = engine(TWO_LIMITS);
    let request = Request::new("default", &[("user", "ada")]).idempotency_key("k1");
    assert!(allows(&engine, &request) && allows(&engine, &request));
    let left = engine.peek(&Request::new("default", &[("user", "ada")])).block().unwrap();
    assert_eq!(left.remaining(), Some(1));
    let other = Request::new("default", &[("user", "bob")]).idempotency_key("k1");
    assert!(engine.check(&other).block().is_err());
}

#[test]
fn three_in_flight_and_the_rest_wait_in_order() {
    let (engine, clock) =
        engine("[[rule]]\nname = \"calls\"\nslots = { max = 3, queue = 2, expires = \"5m\" }\n");
    let request = Request::new("default", &[]);
    assert!(engine.check(&request).block().is_err(), "use acquire");
    let mut leases: Vec<_> =
        (0..3).map(|_| engine.acquire(&request, None).block().unwrap()).collect();
    assert!(leases.windows(2).all(|pair| pair[0].fence() < pair[1].fence()));
    let now = Some(Duration::ZERO);
    assert!(matches!(engine.acquire(&request, now).block(), Err(NotGranted::TimedOut)));
    leases.pop();
    leases.push(engine.acquire(&request, now).block().unwrap());
    clock.advance(Duration::from_secs(300));
    let fresh = engine.acquire(&request, now).block().unwrap();
    assert_eq!(leases.pop().unwrap().release().block(), Err(SettleError::Gone), "it has expired");
    drop((leases, fresh));
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(3), "at rest all are free");
}

#[test]
fn waiting_for_a_bucket_takes_the_reported_wait() {
    let (engine, clock) =
        engine("[[rule]]\nname = \"slow\"\nbucket = { rate = \"1/s\", burst = 1 }\n");
    let request = Request::new("default", &[]);
    assert!(engine.ready_within(&request, Duration::ZERO).block().unwrap().is_allowed());
    let denied = engine.ready_within(&request, Duration::ZERO).block();
    assert!(matches!(denied, Err(NotGranted::TimedOut)));
    clock.advance(Duration::from_secs(1));
    assert!(engine.ready_within(&request, Duration::ZERO).block().is_ok());
}

#[test]
fn an_edit_keeps_charges_and_is_reported() {
    let (engine, clock) = engine(TWO_LIMITS);
    let ada = Request::new("default", &[("user", "ada")]);
    assert!(allows(&engine, &ada) && allows(&engine, &ada));
    let raised = TWO_LIMITS.replace("max = 2", "max = 3");
    let changes =
        engine.edit("ops", Edit::policy(Policy::from_toml(&raised).unwrap())).block().unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(&*changes[0].actor, "ops");
    assert!(changes[0].before != changes[0].after);
    assert!(allows(&engine, &ada) && !allows(&engine, &ada), "one more, not three");
    clock.advance(Duration::from_secs(20));
    assert!(allows(&engine, &ada));
    assert_eq!(engine.changes_since(0), changes);
}

#[test]
fn a_max_that_is_changed_for_the_next_round_applies_from_it() {
    let policy = |max: u64| {
        format!(
            "[[rule]]\nname = \"cap\"\nkey = [\"governor\"]\neffective = \"next\"\n\
             quota = {{ max = {max}, per = \"round\" }}\n"
        )
    };
    let (engine, _) = engine(&policy(3));
    let (ada, bob) = (&[("governor", "ada")], &[("governor", "bob")]);
    let (ada, bob) = (Request::new("default", ada), Request::new("default", bob));
    assert!(allows(&engine, &ada));
    engine.edit("a vote", Edit::policy(Policy::from_toml(&policy(1)).unwrap())).block().unwrap();
    assert!(allows(&engine, &ada) && allows(&engine, &ada) && !allows(&engine, &ada));
    assert!(
        allows(&engine, &bob) && allows(&engine, &bob),
        "also a key that is new after the vote"
    );
    engine.close_round("default", None).block().unwrap();
    for request in [ada, bob] {
        assert!(allows(&engine, &request) && !allows(&engine, &request));
    }
}

/// Polled in the worst order, with a waker that does nothing: only their own order counts.
#[test]
fn a_thousand_waiters_for_three_slots_are_served_in_arrival_order() {
    let (engine, _) = engine("[[rule]]\nname = \"calls\"\nslots = { max = 3, queue = 1000 }\n");
    let request = Request::new("default", &[]);
    let mut leases: VecDeque<_> =
        (0..3).map(|_| engine.acquire(&request, None).block().unwrap()).collect();
    let mut waiting: Vec<_> =
        (0..1_000).map(|number| (number, engine.acquire(&request, None))).collect();
    let full = engine.acquire(&request, None).block();
    assert!(matches!(full, Err(NotGranted::QueueFull)));
    let mut context = Context::from_waker(Waker::noop());
    let (mut served, mut given_up) = (Vec::new(), 0);
    while !waiting.is_empty() {
        leases.pop_front();
        if waiting.len() % 7 == 0 {
            // A waiter in the middle leaves.
            drop(waiting.remove(waiting.len() / 2));
            given_up += 1;
        }
        let mut polled: Vec<_> = waiting.iter_mut().rev().collect();
        let ready = polled.iter_mut().find_map(|(number, waiter)| {
            match Pin::new(waiter).poll(&mut context) {
                Poll::Ready(lease) => Some((*number, lease.unwrap())),
                Poll::Pending => None,
            }
        });
        if let Some((number, lease)) = ready {
            served.push(number);
            waiting.retain(|(waits, _)| *waits != number);
            leases.push_back(lease);
        }
    }
    assert_eq!(served.len() + given_up, 1_000);
    assert!(served.is_sorted(), "in order");
    drop(leases);
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(3), "at rest all are free");
}

#[test]
fn public_types_are_send() {
    fn travels<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_shared::<StoreEngine>();
    is_shared::<tidegate::Domain>();
    is_shared::<tidegate::Report>();
    travels::<tidegate::Lease>();
    travels::<tidegate::Waiting<'static, tidegate::Report>>();
    travels::<tidegate::Answer<Result<tidegate::Report, tidegate::CheckError>>>();
}

/// Two engines number their domains differently under the same version.
#[test]
fn domain_of_another_engine_is_found_by_its_name() {
    let rule = |domain: &str, max: u64| {
        format!(
            "[[rule]]\nname = \"r\"\ndomain = \"{domain}\"\nwindow = {{ max = {max}, per = \"1h\" }}\n"
        )
    };
    let engine = |rules: [String; 2]| StoreEngine::new(Policy::from_toml(&rules.concat()).unwrap());
    let one = engine([rule("a", 1), rule("b", 2)]);
    let other = engine([rule("b", 20), rule("a", 10)]);
    let domain = one.domain("a").unwrap();
    let limit = |engine: &StoreEngine| engine.check(&domain.request(&[])).block().unwrap().limit();
    for _ in 0..2 {
        assert_eq!((limit(&one), limit(&other)), (Some(1), Some(10)));
    }
    assert!(one.domain("c").is_err());
}
