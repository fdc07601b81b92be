//! Reservations and places over HTTP.

use serde_json::{Value, json};

use crate::http_support::{Client, Running, request};

const POLICY: &str = r#"
    [[rule]]
    name  = "tokens"
    key   = ["user"]
    quota = { max = 100, per = "day" }

    [[rule]]
    name   = "calls"
    domain = "calls"
    slots  = { max = 1, queue = 1, expires = "5m" }
"#;

#[track_caller]
fn reserve(daemon: &Running, cost: u64) -> String {
    let ask = format!(r#"{{"attributes":{{"user":"ada"}},"cost":{cost}}}"#);
    let reply = daemon.post("/v1/reserve", &ask);
    assert_eq!(reply.status, 200);
    let json = reply.json();
    assert!((1..=600_000).contains(&json["expires_in_ms"].as_u64().unwrap()));
    json["reservation"].as_str().unwrap().to_owned()
}

fn left(daemon: &Running) -> Value {
    daemon.post("/v1/check", r#"{"attributes":{"user":"ada"},"cost":0}"#).json()["remaining"]
        .clone()
}

#[test]
fn a_reservation_is_committed_for_what_it_really_cost() {
    let daemon = Running::new(POLICY);
    let id = reserve(&daemon, 60);
    assert_eq!(left(&daemon), 40);
    let more = daemon.post("/v1/reserve", r#"{"attributes":{"user":"ada"},"cost":60}"#);
    assert_eq!((more.status, &more.json()["reservation"]), (429, &Value::Null));
    let commit = format!("/v1/reservations/{id}/commit");
    assert_eq!(daemon.post(&commit, r#"{"actual":25}"#).json(), json!({ "charged": 25 }));
    assert_eq!(left(&daemon), 75);
    assert_eq!(daemon.post(&commit, "").problem().0, 410);
    let refund = |body: String| daemon.post("/v1/refund", &body);
    let reply = refund(format!(r#"{{"reservation":"{id}","amount":5}}"#));
    assert_eq!(reply.json(), json!({ "refunded": 5 }));
    let reply = refund(format!(r#"{{"reservation":"{id}"}}"#));
    assert_eq!(reply.json(), json!({ "refunded": 20 }), "all that is left of it");
    assert_eq!(left(&daemon), 100);
}

#[test]
fn a_reservation_is_cancelled_and_gone() {
    let daemon = Running::new(POLICY);
    let id = reserve(&daemon, 60);
    let cancel = format!("/v1/reservations/{id}/cancel");
    assert_eq!(daemon.post(&cancel, "{}").status, 204);
    assert_eq!(left(&daemon), 100);
    assert_eq!(daemon.post(&cancel, "").problem().0, 410);
    assert_eq!(daemon.post("/v1/reservations/0/cancel", "").problem().0, 404);
    let (status, _, pointer) = daemon.post(&cancel, r#"{"actual":1}"#).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/actual")));
}

#[test]
fn a_refund_says_of_what_and_how_much() {
    let daemon = Running::new(POLICY);
    daemon.post("/v1/check", r#"{"attributes":{"user":"ada"},"cost":10}"#);
    let reply = daemon.post("/v1/refund", r#"{"attributes":{"user":"ada"},"amount":4}"#);
    assert_eq!(reply.json(), json!({ "refunded": 4 }));
    let reply = daemon.post("/v1/refund", r#"{"attributes":{"user":"ada"},"amount":99}"#);
    assert_eq!(reply.json(), json!({ "refunded": 6 }), "never more than was taken");
    let table = [
        (r#"{"attributes":{"user":"ada"}}"#, "/amount"),
        (r#"{"amount":0}"#, "/amount"),
        (r#"{"reservation":"x"}"#, "/reservation"),
        (r#"{"reservation":"x","domain":"default"}"#, "/reservation"),
    ];
    for (body, expected) in table {
        let (status, _, pointer) = daemon.post("/v1/refund", body).problem();
        assert_eq!((status, pointer.as_deref()), (422, Some(expected)), "{body}");
    }
    let nobody = format!(r#"{{"reservation":"{}"}}"#, "0".repeat(32));
    assert_eq!(daemon.post("/v1/refund", &nobody).problem().0, 410);
    let nothing = daemon.post("/v1/reserve", r#"{"attributes":{"user":"ada"},"cost":0}"#);
    assert_eq!(nothing.problem().2.as_deref(), Some("/cost"));
}

#[track_caller]
fn acquire(daemon: &Running, wait_ms: u64) -> Value {
    let ask = format!(r#"{{"domain":"calls","wait_ms":{wait_ms}}}"#);
    daemon.post("/v1/acquire", &ask).json()
}

#[test]
fn a_place_is_taken_renewed_and_given_back() {
    let daemon = Running::new(POLICY);
    let lease = acquire(&daemon, 0);
    assert!((1..=300_000).contains(&lease["expires_in_ms"].as_u64().unwrap()));
    let id = lease["lease"].as_str().unwrap();
    let refused = daemon.post("/v1/acquire", r#"{"domain":"calls","wait_ms":0}"#);
    assert_eq!(refused.status, 429);
    let json = refused.json();
    assert_eq!((&json["lease"], &json["retry"]), (&Value::Null, &json!("unknown")));
    assert_eq!((&json["rule"], &json["allowed"]), (&json!("calls"), &json!(false)));
    let metrics = String::from_utf8(daemon.get("/metrics").body).unwrap();
    for (outcome, count) in [("allow", 1), ("deny", 1)] {
        let line = format!(
            "tidegate_decisions_total{{domain=\"calls\",rule=\"calls\",\
             outcome=\"{outcome}\",mode=\"enforce\"}} {count}"
        );
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    let renewed = daemon.post(&format!("/v1/leases/{id}/renew"), "");
    assert!(renewed.json()["expires_in_ms"].as_u64().unwrap() <= 300_000);
    let path = format!("/v1/leases/{id}");
    assert_eq!(daemon.client().ask("DELETE", &path, &[], b"").status, 204);
    assert_eq!(daemon.client().ask("DELETE", &path, &[], b"").problem().0, 410);
    assert_eq!(daemon.post(&format!("{path}/renew"), "").problem().0, 410);
    let next = acquire(&daemon, 0);
    assert!(next["fence"].as_u64() > lease["fence"].as_u64());
}

/// Somebody who waits for the one place.
fn waiter(daemon: &Running) -> Client {
    let mut client = daemon.client();
    client.send(&request("POST", "/v1/acquire", &[], br#"{"domain":"calls","wait_ms":60000}"#));
    client
}

/// Somebody who is in the queue by now. It has one place, so whoever comes after that is told that it is
/// full.
fn waiter_in_line(daemon: &Running) -> Client {
    loop {
        let waiter = waiter(daemon);
        // Whoever asks may have been in its place just then.
        while !waiter.has_answer() {
            let json = acquire(daemon, 1);
            if json["reason"].as_str().unwrap().contains("as many wait already as may") {
                return waiter;
            }
        }
    }
}

#[test]
fn who_waits_gets_the_place_that_is_given_back() {
    let daemon = Running::new(POLICY);
    let first = acquire(&daemon, 0);
    let mut waiter = waiter_in_line(&daemon);
    let path = format!("/v1/leases/{}", first["lease"].as_str().unwrap());
    assert_eq!(daemon.client().ask("DELETE", &path, &[], b"").status, 204);
    let reply = waiter.receive().unwrap();
    assert_eq!(reply.status, 200);
    assert!(reply.json()["lease"].is_string());
}

#[test]
fn who_hangs_up_waits_no_longer() {
    let daemon = Running::new(POLICY);
    assert!(acquire(&daemon, 0)["lease"].is_string());
    let gone = waiter_in_line(&daemon);
    drop(gone);
    until_nobody_waits(&daemon);
}

/// Asks until there is room in the queue again.
fn until_nobody_waits(daemon: &Running) {
    loop {
        let json = acquire(daemon, 1);
        if json["reason"].as_str().unwrap().contains("in time") {
            return;
        }
    }
}

#[test]
fn who_waits_when_the_daemon_stops_is_told() {
    let mut daemon = Running::new(POLICY);
    let first = acquire(&daemon, 0);
    assert!(first["lease"].is_string());
    let mut waiter = waiter_in_line(&daemon);
    let stopped = daemon.stop();
    let (status, detail, _) = waiter.receive().unwrap().problem();
    assert_eq!(status, 503);
    assert!(detail.contains("stops"));
    daemon.wait(stopped).unwrap();
}

#[test]
fn nobody_waits_for_longer_than_a_minute() {
    let daemon = Running::new(POLICY);
    let ask = r#"{"domain":"calls","wait_ms":60001}"#;
    let (status, _, pointer) = daemon.post("/v1/acquire", ask).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/wait_ms")));
    let (status, _, pointer) = daemon.post("/v1/acquire", r#"{"domain":"none"}"#).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/domain")), "no places here");
}
