//! Corners where two features of the engine meet.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::policy::{Condition, Grant, Limit, Override, Policy, RuleId};
use tidegate::{
    CheckError, Edit, NotGranted, Request, SettleError, StoreEngine, Timestamp, Waiting, Window,
    clock::ManualClock,
};

type TestEngine = StoreEngine;

fn policy(text: &str) -> Policy {
    Policy::from_toml(text).unwrap()
}

fn engine(text: &str) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    (StoreEngine::builder(policy(text)).clock(clock.clone()).build().unwrap(), clock)
}

fn allows(engine: &TestEngine, request: &Request<'_>) -> bool {
    engine.check(request).block().unwrap().is_allowed()
}

fn is_ready<T>(waiting: &mut Waiting<'_, T>) -> bool {
    let poll = Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()));
    matches!(poll, Poll::Ready(Ok(_)))
}

const SLOTS: &str = "[[rule]]\nname = \"calls\"\nslots = { max = 1 }\n";

#[test]
fn an_override_that_does_not_fit_the_new_policy_waits_until_it_does() {
    let rule = |limit: &str| format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n");
    let window = rule("window = { max = 1, per = \"10s\" }");
    let (engine, _) = engine(&window);
    let ada = Condition::new("user", ["ada"]).unwrap();
    let seven = Limit::Window(Window::new(7, Duration::from_secs(10)));
    let given = Override::new(vec![ada], Grant::Limit(seven));
    engine.edit("ops", Edit::set_override(&RuleId::named("r"), given)).block().unwrap();
    let request = Request::new("default", &[("user", "ada")]);
    assert_eq!(engine.check(&request).block().unwrap().remaining(), Some(6));
    for limit in [
        "bucket = { rate = \"1/day\", burst = 2 }",
        "sliding = { max = 2, per = \"10s\" }",
        "quota = { max = 2, per = \"day\" }",
        "cooldown = \"1s\"",
    ] {
        engine.edit("reload", Edit::policy(policy(&rule(limit)))).block().unwrap();
        let held = engine.hold(&request).block().unwrap().hold().unwrap();
        assert!(engine.commit(held, None).block().is_ok(), "{limit}");
        assert!(engine.peek(&request).block().unwrap().limit() < Some(7), "{limit}");
    }
    engine
        .edit(
            "reload",
            Edit::policy(policy("[[rule]]\nname = \"r\"\nwindow = { max = 1, per = \"10s\" }")),
        )
        .block()
        .unwrap();
    assert_eq!(engine.peek(&request).block().unwrap().limit(), Some(1), "not the common limit");
    engine.edit("reload", Edit::policy(policy(&window))).block().unwrap();
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(6), "it is back");
    assert_eq!(engine.overlay().overrides().count(), 1);
}

#[test]
fn a_request_takes_one_slot_whatever_it_costs() {
    let (engine, _) = engine("[[rule]]\nname = \"calls\"\nslots = { max = 2 }\n");
    let request = Request::new("default", &[]);
    let now = Some(Duration::ZERO);
    let first = engine.acquire(&request.cost(10), now).block().unwrap();
    let second = engine.acquire(&request.cost(0), now).block().unwrap();
    assert!(matches!(engine.acquire(&request.cost(0), now).block(), Err(NotGranted::TimedOut)));
    drop((first, second));
    assert_eq!(engine.peek(&request).block().unwrap().remaining(), Some(2));
}

#[test]
fn a_denied_request_does_not_wait_for_a_slot_of_a_rule_in_shadow_mode() {
    let (engine, _) = engine(
        "[[rule]]\nname = \"calls\"\nslots = { max = 5 }\n\
         [[rule]]\nname = \"tried\"\nmode = \"shadow\"\nslots = { max = 1 }\n\
         [[rule]]\nname = \"all\"\nwindow = { max = 1, per = \"1h\" }\n",
    );
    let request = Request::new("default", &[]);
    let acquire = || engine.acquire(&request, Some(Duration::ZERO)).block();
    let _first = acquire().unwrap();
    let denied = acquire();
    assert!(matches!(denied, Err(NotGranted::Denied(_))), "{denied:?}");
}

#[test]
fn an_idempotency_key_does_not_share_a_slot_and_ends_with_its_reservation() {
    let (slots, _) = engine(SLOTS);
    let request = Request::new("default", &[]).idempotency_key("k");
    let _first = slots.acquire(&request, None).block().unwrap();
    assert!(slots.acquire(&request, Some(Duration::ZERO)).block().is_err());

    let rule = "[[rule]]\nname = \"r\"\nreserve_for = \"1m\"\nwindow = { max = 5, per = \"1h\" }\n";
    let (engine, clock) = engine(rule);
    let reserve = || engine.hold(&request).block().unwrap().hold().unwrap();
    let (first, again) = (reserve(), reserve());
    assert_eq!(first, again);
    engine.cancel(first, None).block().unwrap();
    let second = reserve();
    assert_ne!(first, second, "a cancelled reservation is not cached");
    clock.advance(Duration::from_secs(60));
    let third = reserve();
    assert_ne!(second, third, "and what has expired");
    engine.commit(third, None).block().unwrap();
    assert_eq!(reserve(), third, "but not what was charged");
    assert_eq!(engine.refund_hold(first, 1).block(), Err(SettleError::Cancelled));
}

#[test]
fn waiters_are_woken_by_every_change_that_may_help() {
    let two = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nslots = { max = 1 }\n\
               [[rule]]\nname = \"all\"\nslots = { max = 1 }\n";
    let (engine, _) = engine(two);
    let (ada, bob) = (&[("user", "ada")], &[("user", "bob")]);
    let lease = engine.acquire(&Request::new("default", ada), None).block().unwrap();
    let mut waits = engine.acquire(&Request::new("default", bob), None);
    assert!(!is_ready(&mut waits));
    drop(lease);
    assert!(is_ready(&mut waits), "a slot of another key");

    let round = "[[rule]]\nname = \"r\"\nquota = { max = 1, per = \"round\" }\n";
    let (engine, _) = self::engine(round);
    let request = Request::new("default", &[]);
    let held = engine.hold(&request).block().unwrap().hold().unwrap();
    let mut waits = engine.ready(&request);
    assert!(!is_ready(&mut waits));
    engine.cancel(held, None).block().unwrap();
    assert!(is_ready(&mut waits), "refunded units");
    let mut waits = engine.ready(&request);
    assert!(!is_ready(&mut waits));
    engine.close_round("default", None).block().unwrap();
    assert!(is_ready(&mut waits), "a new round");
    let mut waits = engine.ready(&request);
    assert!(!is_ready(&mut waits));
    engine.edit("ops", Edit::policy(policy(&round.replace("max = 1", "max = 2")))).block().unwrap();
    assert!(is_ready(&mut waits), "a larger limit");
    assert_eq!(engine.close_round("nowhere", None).block().unwrap(), 0);
}

#[test]
fn an_unlimited_request_is_not_unmatched() {
    let unlimited = "override = [{ key = { user = \"vip\" }, unlimited = true }]";
    let (engine, _) = engine(&format!(
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = {{ max = 1, per = \"1h\" }}\n{unlimited}\n\
         [[rule]]\nname = \"calls\"\ndomain = \"calls\"\nkey = [\"user\"]\nslots = {{ max = 1 }}\n{unlimited}\n\
         [server]\nunmatched = \"deny\"\n"
    ));
    let vip = &[("user", "vip")];
    let request = Request::new("default", vip);
    assert!(allows(&engine, &request) && allows(&engine, &request));
    let held = engine.hold(&request).block().unwrap().hold().unwrap();
    assert!(engine.commit(held, None).block().is_ok());
    let calls = Request::new("calls", vip);
    let leases: Vec<_> =
        (0..5).map(|_| engine.acquire(&calls, Some(Duration::ZERO)).block().unwrap()).collect();
    assert_eq!(leases.len(), 5);
    assert!(!allows(&engine, &Request::new("elsewhere", vip)));
}

#[test]
fn keys_of_closed_rounds_make_room() {
    let (engine, _) = engine(
        "[[rule]]\nname = \"cap\"\nkey = [\"governor\"]\nquota = { max = 1, per = \"round\" }\n\
         [server]\nmax_keys = 1000\n",
    );
    for round in 0..6 {
        let mut denied = 0;
        for governor in 0..900 {
            let name = format!("{round} {governor}");
            let attributes = [("governor", name.as_str())];
            denied += usize::from(!allows(&engine, &Request::new("default", &attributes)));
        }
        assert!(denied <= 20, "{denied} in round {round}");
        engine.close_round("default", None).block().unwrap();
    }
}

#[test]
fn a_rule_in_shadow_mode_denies_nothing() {
    let rules = "[[rule]]\nname = \"missing\"\nkey = [\"user\"]\nwindow = { max = 1, per = \"1h\" }\nMODE\n\
                 [[rule]]\nname = \"cost\"\ncost = { by = \"tier\", \"1..=4\" = 1 }\n\
                 window = { max = 1, per = \"1h\" }\nMODE\n\
                 [[rule]]\nname = \"calls\"\nslots = { max = 1 }\nMODE\n";
    let shadow = rules.replace("MODE", "mode = \"shadow\"");
    let none = format!(
        "{}\n[server]\nenforce = \"none\"\nunmatched = \"deny\"\n",
        rules.replace("MODE", "")
    );
    for text in [shadow, none] {
        let (engine, _) = engine(&text);
        let request = Request::new("default", &[]);
        assert!(allows(&engine, &request) && allows(&engine, &request), "{text}");
        assert!(allows(&engine, &Request::new("elsewhere", &[])));
        let now = Some(Duration::ZERO);
        let leases = [engine.acquire(&request, now).block(), engine.acquire(&request, now).block()];
        assert!(leases.iter().all(Result::is_ok));
    }
    let (engine, _) = engine(&rules.replace("MODE", ""));
    let request = Request::new("default", &[("user", "ada"), ("tier", "9")]);
    assert!(matches!(engine.check(&request).block(), Err(CheckError::CostNotCovered { .. })));
}

#[test]
fn a_change_observer_may_call_the_engine() {
    let (engine, _) = engine(SLOTS);
    let seen = Arc::new(std::sync::Mutex::new(0));
    let (inner, count) = (engine.clone(), Arc::clone(&seen));
    engine.on_change(move |change| {
        *count.lock().unwrap() = inner.changes_since(0).len() + change.number as usize
    });
    engine.edit("ops", Edit::policy(policy(&SLOTS.replace('1', "2")))).block().unwrap();
    assert_eq!(*seen.lock().unwrap(), 2);
}

#[test]
fn a_commit_reports_what_the_tightest_limit_has_charged() {
    let (engine, _) = engine(
        "[[rule]]\nname = \"bucket\"\nbucket = { rate = \"1/day\", burst = 5 }\n\
         [[rule]]\nname = \"gap\"\ncooldown = \"1s\"\n\
         [[rule]]\nname = \"wide\"\nquota = { max = 1000, per = \"day\" }\n",
    );
    let held = engine.hold(&Request::new("default", &[])).block().unwrap().hold().unwrap();
    assert_eq!(engine.commit(held, Some(100)).block().map(|done| done.charged), Ok(5));
}

/// Overrides and bans are found as rules are where there are many: the first that applies counts.
#[test]
fn of_many_overrides_and_bans_the_first_that_applies_counts() {
    let many: Vec<String> = (0..200)
        .map(|user| format!("{{ key = {{ user = \"u{user}\" }}, max = {} }}", user + 10))
        .collect();
    let text = format!(
        "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = {{ max = 1, per = \"1h\" }}\noverride = [\
         {{ key = {{ user = \"u7\" }}, max = 3, until = \"1970-01-01T00:20:00Z\" }}, {}, \
         {{ key = {{ user = \"u*\" }}, max = 5 }}]\n",
        many.join(", ")
    );
    let (engine, clock) = engine(&text);
    let limit = |user: &str| {
        engine.peek(&Request::new("default", &[("user", user)])).block().unwrap().limit()
    };
    assert_eq!([limit("u7"), limit("u8"), limit("u900"), limit("x")], [3, 18, 5, 1].map(Some));
    clock.set(Timestamp::from_secs(1_200));
    assert_eq!(limit("u7"), Some(17), "the first one has ended");
    for user in 0..50 {
        let condition = Condition::new("user", [format!("u{user}").as_str()]).unwrap();
        engine
            .edit(
                "ops",
                Edit::ban(
                    tidegate::edit::Ban::new("default", vec![condition])
                        .until(Timestamp::from_secs(1_300)),
                ),
            )
            .block()
            .unwrap();
    }
    let is_allowed = |user: &str| allows(&engine, &Request::new("default", &[("user", user)]));
    assert!(!is_allowed("u49") && is_allowed("u50"));
    clock.set(Timestamp::from_secs(1_300));
    assert!(is_allowed("u49"));
}

#[test]
fn every_rule_reports_the_span_of_its_capacity() {
    let rules = [
        ("bucket = { rate = \"10/s\", burst = 25 }", Some(2_500)),
        ("bucket = { rate = \"3/s\", burst = 1 }", Some(334)),
        ("window = { max = 5, per = \"10s\" }", Some(10_000)),
        ("sliding = { max = 100, per = \"1m\", parts = 10 }", Some(60_000)),
        ("cooldown = \"3s\"", Some(3_000)),
        ("quota = { max = 9, per = \"day in Europe/Helsinki\" }", Some(86_400_000)),
        ("quota = { max = 9, per = \"month\" }", None),
        ("quota = { max = 9, per = \"round\" }", None),
        (
            "window = { max = 5, per = \"10s\" }\n\
             override = [{ key = { user = \"ada\" }, max = 7, per = \"20s\" }]",
            Some(20_000),
        ),
    ];
    for (limit, span_ms) in rules {
        let (engine, _) = engine(&format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n"));
        let report = engine.peek(&Request::new("default", &[("user", "ada")])).block().unwrap();
        let spans: Vec<_> = report.rules().map(|rule| rule.span).collect();
        // Rounded up to whole milliseconds.
        let ms = |span: Duration| u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap();
        assert_eq!(spans.iter().map(|span| span.map(ms)).collect::<Vec<_>>(), [span_ms], "{limit}");
    }
}
