//! `TG.*`: the policy over the Redis protocol.

use std::collections::HashMap;

use redis::{Value, from_redis_value};

use tidegate_server::Listener;

use super::{Client, Daemon, array, array_of_bytes, error};

/// A reply as a map, whatever the version.
fn map(value: Value) -> HashMap<String, Value> {
    from_redis_value(value).unwrap()
}

fn text(value: &Value) -> String {
    from_redis_value(value.clone()).unwrap()
}

fn ask(client: &mut Client, words: &[&str]) -> HashMap<String, Value> {
    map(client.ask(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_have_the_fields_of_the_http_body() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let check = ["TG.CHECK", "default", "ATTR", "user", "ada"];
    let two = client.ask(&check);
    assert!(matches!(two, Value::Array(_)), "{two:?}");
    let two = map(two);
    let mut names: Vec<&str> = two.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "allowed",
            "decision_id",
            "limit",
            "remaining",
            "reset_after_ms",
            "retry_after_ms",
            "rule",
            "rules"
        ]
    );
    assert_eq!((&two["allowed"], &two["remaining"]), (&Value::Int(1), &Value::Int(2)));
    client.ask(&["HELLO", "3"]);
    let three = client.ask(&check);
    assert!(matches!(three, Value::Map(_)), "{three:?}");
    let three = map(three);
    assert_eq!((&three["allowed"], &three["remaining"]), (&Value::Boolean(true), &Value::Int(1)));
    // One is left, for a cost of 2: denied.
    let denied = ask(&mut client, &["TG.CHECK", "default", "ATTR", "user", "ada", "COST", "2"]);
    assert_eq!(denied["allowed"], Value::Boolean(false));
    assert_eq!(text(&denied["reason"]), "three an hour");
    let never = ask(&mut client, &["TG.CHECK", "default", "ATTR", "user", "ada", "COST", "4"]);
    assert_eq!((&never["retry_after_ms"], text(&never["retry"])), (&Value::Nil, "never".into()));
    let rules: Vec<HashMap<String, Value>> = from_redis_value(never["rules"].clone()).unwrap();
    assert_eq!(text(&rules[0]["rule"]), "per-user");
    // No rule matches.
    assert_eq!(ask(&mut client, &["TG.CHECK", "nowhere"])["rule"], Value::Nil);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peek_charges_nothing_and_an_idempotency_key_once() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let ada = ["default", "ATTR", "user", "ada"];
    let with = |verb: &'static str, more: &[&'static str]| -> Vec<&'static str> {
        [verb].iter().chain(&ada).chain(more).copied().collect()
    };
    for _ in 0..3 {
        let keyed = ask(&mut client, &with("TG.CHECK", &["IDEMPOTENCY", "order 17"]));
        assert_eq!(keyed["remaining"], Value::Int(2));
        assert_eq!(ask(&mut client, &with("TG.PEEK", &[]))["remaining"], Value::Int(2));
        assert_eq!(ask(&mut client, &with("TG.CHECK", &["COST", "0"]))["remaining"], Value::Int(2));
    }
    let other = client.ask(&with("TG.CHECK", &["IDEMPOTENCY", "order 17", "COST", "2"]));
    assert!(error(&other).contains("idempotency key was already used"), "{other:?}");
    let explained = ask(&mut client, &with("TG.EXPLAIN", &[]));
    assert_eq!(explained["allowed"], Value::Int(1));
    let rules: Vec<HashMap<String, Value>> = from_redis_value(explained["rules"].clone()).unwrap();
    let key: HashMap<String, String> = from_redis_value(rules[0]["key"].clone()).unwrap();
    assert_eq!((&rules[0]["applies"], &*key["user"]), (&Value::Int(1), "ada"));
    let usage = ask(&mut client, &with("TG.USAGE", &[]));
    let rules: Vec<HashMap<String, Value>> = from_redis_value(usage["rules"].clone()).unwrap();
    assert_eq!((&rules[0]["used"], &rules[0]["held"]), (&Value::Int(1), &Value::Int(0)));
    assert_eq!((&rules[0]["limit"], &*text(&rules[0]["share"])), (&Value::Int(3), "0.333333"));
    let costly = client.ask(&with("TG.USAGE", &["COST", "1"]));
    assert!(error(&costly).contains("expected ATTR name value, not 'COST'"), "{costly:?}");
    assert_eq!(ask(&mut client, &with("TG.PEEK", &[]))["remaining"], Value::Int(2));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_is_committed_or_cancelled_once() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let reserve = ["TG.RESERVE", "tokens", "ATTR", "team", "search", "COST", "60"];
    let reserved = ask(&mut client, &reserve);
    let id = text(&reserved["reservation"]);
    assert!(matches!(reserved["expires_in_ms"], Value::Int(1..=600_000)), "{reserved:?}");
    let denied = ask(&mut client, &reserve);
    assert_eq!((&denied["allowed"], &denied["reservation"]), (&Value::Int(0), &Value::Nil));
    assert_eq!(ask(&mut client, &["TG.COMMIT", &id, "10"])["charged"], Value::Int(10));
    assert_eq!(ask(&mut client, &["TG.COMMIT", &id, "10"])["charged"], Value::Int(10));
    let other = error(&client.ask(&["TG.COMMIT", &id]));
    assert!(other.starts_with("SETTLED "), "{other}");
    let id = text(&ask(&mut client, &reserve)["reservation"]);
    assert_eq!(ask(&mut client, &["TG.CANCEL", &id])["charged"], Value::Int(0));
    let peek = ask(&mut client, &["TG.PEEK", "tokens", "ATTR", "team", "search"]);
    assert_eq!(peek["remaining"], Value::Int(90));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_about_limits_is_measured_also_in_pipelines() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    let throttle = array(&["CL.THROTTLE", "k", "9", "1", "60"]);
    let check = array(&["TG.CHECK", "default", "ATTR", "user", "ada"]);
    client.send(&[&*throttle, &throttle, &throttle, &check, &check].concat());
    (0..5).for_each(|_| drop(client.reply()));
    client.ask(&["TG.PEEK", "default", "ATTR", "user", "ada"]);
    client.ask(&["PING"]);
    let address = daemon.server.address(Listener::Http).unwrap();
    let metrics = crate::http_support::Client::new(address).ask("GET", "/metrics", &[], b"");
    let metrics = String::from_utf8(metrics.body).unwrap();
    for line in [
        "tidegate_request_duration_seconds_count{listener=\"resp\"} 6",
        "tidegate_throttle_keys 1",
        "tidegate_throttle_total{outcome=\"allow\"} 3",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_are_explained() {
    let daemon = Daemon::start().await;
    let mut client = daemon.client();
    for (words, expected) in [
        (vec!["TG.CHECK"], "wrong number of arguments for 'tg.check' command"),
        (vec!["TG.CHECK", "d", "ATTR", "a"], "ATTR needs a name and a value"),
        (vec!["TG.CHECK", "d", "COST"], "COST needs a number"),
        (vec!["TG.CHECK", "d", "COST", "-1"], "COST must be at least 0"),
        (vec!["TG.CHECK", "d", "COST", "1.5"], "COST is not an integer"),
        (vec!["TG.CHECK", "d", "user", "ada"], "expected ATTR name value"),
        (vec!["TG.PEEK", "d", "IDEMPOTENCY", "x"], "expected ATTR name value"),
        (vec!["TG.RESERVE", "tokens", "ATTR", "team", "a", "COST", "0"], "at least 1"),
        (vec!["TG.CHECK", "d", "COST", "1", "cost", "2"], "COST appears twice"),
        (vec!["TG.CHECK", "d", "ATTR", "a", "b", "ATTR", "a", "c"], "\"a\" appears twice"),
        (vec!["TG.CHECK", "d", "IDEMPOTENCY", ""], "key is empty"),
        (vec!["TG.CHECK", "d", "IDEMPOTENCY", "a", "IDEMPOTENCY", "a"], "appears twice"),
        (vec!["TG.CHECK", "calls"], "use acquire"),
        (vec!["TG.COMMIT", "17"], "32 hexadecimal digits"),
        (vec!["TG.COMMIT", &"0".repeat(32), "x"], "actual is not an integer"),
        (vec!["TG.CANCEL", &"0".repeat(32)], "GONE"),
        (vec!["TG.CANCEL", &"0".repeat(32), "1"], "wrong number of arguments"),
    ] {
        let reply = error(&client.ask(&words));
        assert!(reply.contains(expected), "{words:?}: {reply}");
    }
    // A policy is text.
    client.send(&array_of_bytes(&[b"TG.CHECK", b"default", b"ATTR", b"user", b"\xff"]));
    assert_eq!(error(&client.reply()), "ERR the value of an attribute must be UTF-8");
    daemon.stop().await;
}
