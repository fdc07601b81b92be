//! Allowed and denied requests, with a manual clock.

use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::clock::ManualClock;
use tidegate::policy::Policy;
use tidegate_local_service::{Grant, LimitNumbers, Limits, PeerCredentials, Service, UserOverride};
use tidegate_proto::ipc::{Failure, Response};

use crate::harness::{InProcess, PING, START, Setup, peer, service};

const SECOND: Duration = Duration::from_secs(1);

fn limits(user: u64, global: u64) -> Limits {
    let numbers = |max| LimitNumbers { max, per: 10 * SECOND, burst: None };
    Limits { user: numbers(user), global: numbers(global), overrides: Vec::new() }
}

fn policy(user: u64, global: u64) -> Policy {
    limits(user, global).policy().unwrap()
}

fn ping(service: &Service<ManualClock>, peer: &PeerCredentials) -> Result<(), Failure> {
    match service.handle(peer, Ok(PING)).response {
        Response::Ok(_) => Ok(()),
        Response::Error(failure) => Err(failure),
    }
}

fn pings(service: &Service<ManualClock>, peer: &PeerCredentials, count: usize) -> usize {
    (0..count).filter(|_| ping(service, peer).is_ok()).count()
}

#[test]
fn of_twenty_rapid_pings_ten_are_allowed_and_ten_denied() {
    let server = InProcess::usual();
    let mut caller = server.call();
    let responses: Vec<Value> = (0..20).map(|_| caller.send_request(PING)).collect();
    let pong = json!({
        "ok": true,
        "serviceVersion": env!("CARGO_PKG_VERSION"),
        "time": "2026-01-31T23:59:59.000Z",
        "protocolVersion": 1,
    });
    let denied = json!({
        "ok": false,
        "error": "Rate limit exceeded. Please wait before retrying.",
        "retryAfterMs": 10_000,
        "limit": "user",
        "protocolVersion": 1,
    });
    assert!(responses[..10].iter().all(|response| *response == pong), "{responses:#?}");
    assert!(responses[10..].iter().all(|response| *response == denied), "{responses:#?}");
}

#[test]
fn window_opens_with_the_first_request_and_lasts_ten_seconds() {
    let server = InProcess::usual();
    let mut caller = server.call();
    // The window opens with the first request, not before.
    server.clock.advance(7 * SECOND);
    assert!(caller.ping());
    server.clock.advance(9 * SECOND);
    assert_eq!(caller.pings(20), 9);
    server.clock.advance(SECOND - Duration::from_nanos(1));
    let denied = caller.send_request(PING);
    assert_eq!(denied["retryAfterMs"], 1, "a nanosecond is a millisecond, rounded up");
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(caller.pings(20), 10);
}

#[test]
fn retry_after_the_reported_wait_is_allowed() {
    let server = InProcess::usual();
    let mut caller = server.call();
    assert_eq!(caller.pings(10), 10);
    server.clock.advance(Duration::from_nanos(1_234_567_891));
    let wait_ms = caller.send_request(PING)["retryAfterMs"].as_u64().unwrap();
    assert_eq!(wait_ms, 8_766);
    server.clock.advance(Duration::from_millis(wait_ms));
    assert!(caller.ping());
}

#[test]
fn connections_of_a_user_share_one_budget() {
    let server = InProcess::usual();
    let mut callers: Vec<_> = (0..4).map(|_| server.call()).collect();
    let passed: usize = callers.iter_mut().map(|caller| caller.pings(4)).sum();
    assert_eq!(passed, 10);
    assert!(!server.call().ping(), "a new connection has no new budget");
}

#[test]
fn users_have_separate_budgets() {
    let clock = ManualClock::new(START);
    let service = service(policy(10, 30), &clock);
    assert_eq!(pings(&service, &peer("ada"), 20), 10);
    assert_eq!(pings(&service, &peer("grace"), 20), 10);
}

#[test]
fn global_limit_applies_across_users() {
    let clock = ManualClock::new(START);
    let service = service(policy(10, 30), &clock);
    for name in ["a", "b", "c"] {
        assert_eq!(pings(&service, &peer(name), 10), 10);
    }
    let denied = ping(&service, &peer("d")).unwrap_err();
    assert_eq!(denied.limit.as_deref(), Some("global"));
    assert_eq!(denied.retry_after_ms, Some(10_000));
    clock.advance(10 * SECOND);
    assert_eq!(pings(&service, &peer("d"), 20), 10);
}

#[test]
fn denial_by_the_global_limit_costs_the_user_nothing() {
    let clock = ManualClock::new(START);
    let service = service(policy(10, 10), &clock);
    assert_eq!(pings(&service, &peer("ada"), 10), 10);
    // Grace is denied by the global limit, again and again …
    clock.advance(9 * SECOND);
    assert_eq!(pings(&service, &peer("grace"), 50), 0);
    // … and has her whole budget when it allows her.
    clock.advance(SECOND);
    assert_eq!(pings(&service, &peer("grace"), 20), 10);
}

#[test]
fn denial_by_the_user_limit_costs_the_global_limit_nothing() {
    let clock = ManualClock::new(START);
    let service = service(policy(10, 30), &clock);
    assert_eq!(pings(&service, &peer("ada"), 1_000), 10);
    assert_eq!(pings(&service, &peer("grace"), 10), 10);
    assert_eq!(pings(&service, &peer("edsger"), 10), 10);
}

#[test]
fn longer_wait_is_reported_when_both_deny() {
    let clock = ManualClock::new(START);
    let service = service(policy(10, 10), &clock);
    assert!(ping(&service, &peer("grace")).is_ok());
    clock.advance(5 * SECOND);
    assert_eq!(pings(&service, &peer("ada"), 9), 9);
    clock.advance(5 * SECOND);
    // A new global window; Ada's own lasts 5 more seconds, with one request left.
    assert_eq!(pings(&service, &peer("grace"), 9), 9);
    assert!(ping(&service, &peer("ada")).is_ok());
    let denied = ping(&service, &peer("ada")).unwrap_err();
    assert_eq!((denied.limit.as_deref(), denied.retry_after_ms), (Some("global"), Some(10_000)));
}

#[test]
fn threads_get_exactly_the_limit() {
    for _ in 0..20 {
        let clock = ManualClock::new(START);
        let service = service(policy(100, 250), &clock);
        let names = ["ada", "grace", "edsger"];
        let barrier = Barrier::new(9);
        let passed: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..9)
                .map(|number| {
                    let (service, barrier) = (&service, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        pings(service, &peer(names[number % 3]), 200)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(passed.iter().sum::<usize>(), 250);
        for user in 0..3 {
            let of_user: usize = passed.iter().skip(user).step_by(3).sum();
            assert!(of_user <= 100, "{passed:?}");
        }
    }
}

#[test]
fn concurrent_connections_get_exactly_the_limit() {
    let setup = Setup { policy: Some(policy(100, 100)), ..Setup::default() };
    let server = InProcess::start(setup);
    let callers: Vec<_> = (0..16).map(|_| server.call()).collect();
    let barrier = Barrier::new(callers.len());
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = callers
            .into_iter()
            .map(|mut caller| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    caller.pings(20)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 100);
}

#[test]
fn zero_is_an_error_that_names_the_setting() {
    let per_zero = LimitNumbers { max: 10, per: Duration::ZERO, burst: None };
    let burst_zero = LimitNumbers { max: 10, per: SECOND, burst: Some(0) };
    let usual = limits(10, 30);
    for (limits, setting) in [
        (limits(0, 30), "--user-max"),
        (limits(10, 0), "--global-max"),
        (limits(0, 0), "--user-max"),
        (Limits { user: per_zero, ..usual.clone() }, "--user-per"),
        (Limits { global: per_zero, ..usual.clone() }, "--global-per"),
        (Limits { user: burst_zero, ..usual.clone() }, "--user-burst"),
        (Limits { global: burst_zero, ..usual }, "--global-burst"),
    ] {
        assert_eq!(limits.policy().unwrap_err().setting(), setting);
    }
}

#[test]
fn global_limit_below_the_user_limit_is_an_error() {
    let numbers = |max, seconds, burst| LimitNumbers { max, per: seconds * SECOND, burst };
    for (user, global, setting) in [
        (numbers(10, 10, None), numbers(9, 10, None), "--global-max"),
        // The same count in a longer time.
        (numbers(10, 10, None), numbers(10, 11, None), "--global-per"),
        (numbers(10, 10, Some(20)), numbers(30, 10, Some(19)), "--global-burst"),
        (numbers(10, 10, Some(20)), numbers(30, 31, Some(20)), "--global-per"),
        (numbers(10, 10, Some(31)), numbers(30, 10, None), "--global-max"),
        (numbers(10, 10, None), numbers(30, 10, Some(9)), "--global-burst"),
    ] {
        let limits = Limits { user, global, overrides: Vec::new() };
        let denied = limits.policy().expect_err(&format!("{limits:?}"));
        assert_eq!(denied.setting(), setting, "{limits:?}: {denied}");
    }
    assert!(limits(30, 30).policy().is_ok(), "equal is not below");
}

#[test]
fn large_limits_are_exact() {
    let most = u64::from(u32::MAX);
    let clock = ManualClock::new(START);
    let large = service(policy(most, most), &clock);
    assert_eq!(pings(&large, &peer("ada"), 10_000), 10_000);
    assert_eq!(limits(most + 1, most + 1).policy().unwrap_err().setting(), "--user-max");
    let service = service(policy(100_000, 150_000), &clock);
    assert_eq!(pings(&service, &peer("ada"), 100_100), 100_000);
    assert_eq!(pings(&service, &peer("grace"), 50_100), 50_000);
}

#[test]
fn names_with_odd_characters_are_distinct() {
    let clock = ManualClock::new(START);
    let service = service(policy(2, 1_000), &clock);
    let long = "x".repeat(10_000);
    let names = [
        "ada",
        "Ada",
        "ADA",
        "ada ",
        " ada",
        "DOMAIN\\ada",
        "ada@host",
        "a/b",
        "a:b",
        "*",
        "1..5",
        "10.0.0.1",
        "łukasz",
        "Łukasz",
        "é",
        "e\u{301}",
        "o'brien",
        "\"",
        "a\nb",
        "a\r\nb",
        "\u{202e}ada",
        "\u{0}",
        "🦀",
        "uid:7",
        &long,
        &long[1..],
    ];
    for name in names {
        assert_eq!(pings(&service, &peer(name), 5), 2, "{name:?} has its own budget");
    }
}

#[test]
fn idle_users_are_evicted_as_others_arrive() {
    let clock = ManualClock::new(START);
    let service = service(policy(1, 1_000_000), &clock);
    let mut bytes_after_first = 0;
    for round in 0..40 {
        for number in 0..2_000 {
            assert!(ping(&service, &peer(&format!("{round}-{number}"))).is_ok());
        }
        clock.advance(11 * SECOND);
        if round == 3 {
            bytes_after_first = service.limiter().bytes();
        }
    }
    assert!(
        service.limiter().len() < 20_000,
        "{} of 80 000 users are in the table",
        service.limiter().len()
    );
    assert!(service.limiter().bytes() <= 2 * bytes_after_first);
}

#[test]
fn bucket_allows_a_burst_and_refills_steadily() {
    let user = LimitNumbers { max: 1, per: SECOND, burst: Some(5) };
    let global = LimitNumbers { max: 100, per: SECOND, burst: Some(100) };
    let clock = ManualClock::new(START);
    let service = service(Limits { user, global, overrides: Vec::new() }.policy().unwrap(), &clock);
    assert_eq!(pings(&service, &peer("ada"), 20), 5);
    assert_eq!(ping(&service, &peer("ada")).unwrap_err().retry_after_ms, Some(1_000));
    clock.advance(2 * SECOND);
    assert_eq!(pings(&service, &peer("ada"), 20), 2);
}

#[test]
fn overrides_change_the_limit_of_some_users() {
    let numbers = |max, per, burst| Grant::Numbers { max, per, burst };
    let exception = |users: &str, grant| UserOverride { users: users.into(), grant };
    let overrides = vec![
        exception("backup", numbers(25, None, None)),
        exception("ci-*", numbers(3, Some(5 * SECOND), None)),
        exception("root", Grant::Unlimited),
    ];
    let clock = ManualClock::new(START);
    let service = service(Limits { overrides, ..limits(10, 100) }.policy().unwrap(), &clock);
    assert_eq!(pings(&service, &peer("ada"), 30), 10);
    assert_eq!(pings(&service, &peer("backup"), 30), 25);
    assert_eq!(pings(&service, &peer("ci-1"), 30), 3);
    assert_eq!(pings(&service, &peer("ci-2"), 30), 3);
    assert_eq!(pings(&service, &peer("root"), 100), 59, "the global limit applies to all users");
    clock.advance(5 * SECOND);
    assert_eq!(ping(&service, &peer("ci-1")).unwrap_err().limit.as_deref(), Some("global"));
}

#[test]
fn invalid_overrides_are_errors() {
    let numbers = |max, burst| Grant::Numbers { max, per: None, burst };
    for (users, grant) in [
        ("ada", numbers(31, None)),
        ("ada", numbers(0, None)),
        ("ada", numbers(5, Some(5))),
        ("9..1", numbers(5, None)),
    ] {
        let overrides = vec![UserOverride { users: users.into(), grant }];
        let denied = Limits { overrides, ..limits(10, 30) }.policy().unwrap_err();
        assert_eq!(denied.setting(), "--user-override", "{users} {grant:?}");
    }
    let twice =
        ["a*", "ada"].map(|users| UserOverride { users: users.into(), grant: Grant::Unlimited });
    let denied = Limits { overrides: twice.into(), ..limits(10, 30) }.policy().unwrap_err();
    assert_eq!(denied.setting(), "--user-override");
}

#[test]
fn everything_is_allowed_without_limits() {
    let server = InProcess::start(Setup { policy: None, ..Setup::default() });
    assert_eq!(server.call().pings(500), 500);
}
