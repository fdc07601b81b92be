//! Reservations and leases over HTTP.

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
fn a_reservation_is_committed_for_its_actual_cost() {
    let daemon = Running::new(POLICY);
    let id = reserve(&daemon, 60);
    assert_eq!(left(&daemon), 40);
    let more = daemon.post("/v1/reserve", r#"{"attributes":{"user":"ada"},"cost":60}"#);
    assert_eq!((more.status, &more.json()["reservation"]), (429, &Value::Null));
    let commit = format!("/v1/reservations/{id}/commit");
    let charged = json!({ "charged": 25, "debt": 0, "forgiven": 0 });
    assert_eq!(daemon.post(&commit, r#"{"actual":25}"#).json(), charged);
    assert_eq!(daemon.post(&commit, r#"{"actual":25}"#).json(), charged, "the same again");
    assert_eq!(left(&daemon), 75);
    let other = daemon.post(&commit, "");
    assert_eq!(other.problem().0, 409);
    assert_eq!(
        (&other.json()["settled"], &other.json()["units"]),
        (&json!("committed"), &json!(25))
    );
    let refund = |body: String| daemon.post("/v1/refund", &body);
    let reply = refund(format!(r#"{{"reservation":"{id}","amount":5}}"#));
    assert_eq!(reply.json(), json!({ "refunded": 5 }));
    let reply = refund(format!(r#"{{"reservation":"{id}"}}"#));
    assert_eq!(reply.json(), json!({ "refunded": 20 }), "all that is left of it");
    assert_eq!(left(&daemon), 100);
}

#[test]
fn a_cancelled_reservation_cannot_be_committed() {
    let daemon = Running::new(POLICY);
    let id = reserve(&daemon, 60);
    let cancel = format!("/v1/reservations/{id}/cancel");
    assert_eq!(daemon.post(&cancel, "{}").status, 204);
    assert_eq!(left(&daemon), 100);
    assert_eq!(daemon.post(&cancel, "").status, 204, "the same again");
    let commit = daemon.post(&format!("/v1/reservations/{id}/commit"), "");
    assert_eq!(commit.problem().0, 409);
    assert_eq!(commit.json()["settled"], "cancelled");
    let unknown = format!("/v1/reservations/{}/cancel", "f".repeat(32));
    assert_eq!(daemon.post(&unknown, "").problem().0, 410);
    assert_eq!(daemon.post("/v1/reservations/0/cancel", "").problem().0, 404);
    let (status, _, pointer) = daemon.post(&cancel, r#"{"actual":1}"#).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/actual")));
}

#[test]
fn a_refund_needs_a_reservation_or_an_amount() {
    let daemon = Running::new(POLICY);
    daemon.post("/v1/check", r#"{"attributes":{"user":"ada"},"cost":10}"#);
    let reply = daemon.post("/v1/refund", r#"{"attributes":{"user":"ada"},"amount":4}"#);
    assert_eq!(reply.json(), json!({ "refunded": 4 }));
    let reply = daemon.post("/v1/refund", r#"{"attributes":{"user":"ada"},"amount":99}"#);
    assert_eq!(reply.json(), json!({ "refunded": 6 }), "never more than was charged");
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
    let unknown = format!(r#"{{"reservation":"{}"}}"#, "0".repeat(32));
    assert_eq!(daemon.post("/v1/refund", &unknown).problem().0, 410);
    let nothing = daemon.post("/v1/reserve", r#"{"attributes":{"user":"ada"},"cost":0}"#);
    assert_eq!(nothing.problem().2.as_deref(), Some("/cost"));
}

#[track_caller]
fn acquire(daemon: &Running, wait_ms: u64) -> Value {
    let ask = format!(r#"{{"domain":"calls","wait_ms":{wait_ms}}}"#);
    daemon.post("/v1/acquire", &ask).json()
}

#[test]
fn a_lease_is_acquired_renewed_and_released() {
    let daemon = Running::new(POLICY);
    let lease = acquire(&daemon, 0);
    assert!((1..=300_000).contains(&lease["expires_in_ms"].as_u64().unwrap()));
    let id = lease["lease"].as_str().unwrap();
    let denied = daemon.post("/v1/acquire", r#"{"domain":"calls","wait_ms":0}"#);
    assert_eq!(denied.status, 429);
    let json = denied.json();
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

/// A client that waits for the one slot.
fn waiter(daemon: &Running) -> Client {
    let mut client = daemon.client();
    client.send(&request("POST", "/v1/acquire", &[], br#"{"domain":"calls","wait_ms":60000}"#));
    client
}

/// A client that is in the queue. The queue holds one, so the next client finds it full.
fn queued_waiter(daemon: &Running) -> Client {
    loop {
        let waiter = waiter(daemon);
        // The probe itself may have been in the queue just then.
        while !waiter.has_response() {
            let json = acquire(daemon, 1);
            if json["reason"].as_str().unwrap().contains("the queue is full") {
                return waiter;
            }
        }
    }
}

#[test]
fn a_waiter_gets_the_released_slot() {
    let daemon = Running::new(POLICY);
    let first = acquire(&daemon, 0);
    let mut waiter = queued_waiter(&daemon);
    let path = format!("/v1/leases/{}", first["lease"].as_str().unwrap());
    assert_eq!(daemon.client().ask("DELETE", &path, &[], b"").status, 204);
    let reply = waiter.receive().unwrap();
    assert_eq!(reply.status, 200);
    assert!(reply.json()["lease"].is_string());
}

#[test]
fn a_disconnected_waiter_leaves_the_queue() {
    let daemon = Running::new(POLICY);
    assert!(acquire(&daemon, 0)["lease"].is_string());
    let gone = queued_waiter(&daemon);
    drop(gone);
    until_the_queue_is_empty(&daemon);
}

/// Probes until the queue is empty.
fn until_the_queue_is_empty(daemon: &Running) {
    loop {
        let json = acquire(daemon, 1);
        if json["reason"].as_str().unwrap().contains("in time") {
            return;
        }
    }
}

#[test]
fn shutdown_ends_a_wait_with_503() {
    let mut daemon = Running::new(POLICY);
    let first = acquire(&daemon, 0);
    assert!(first["lease"].is_string());
    let mut waiter = queued_waiter(&daemon);
    let stopped = daemon.stop();
    let (status, detail, _) = waiter.receive().unwrap().problem();
    assert_eq!(status, 503);
    assert!(detail.contains("shutting down"));
    daemon.wait(stopped).unwrap();
}

#[test]
fn waits_above_one_minute_are_rejected() {
    let daemon = Running::new(POLICY);
    let ask = r#"{"domain":"calls","wait_ms":60001}"#;
    let (status, _, pointer) = daemon.post("/v1/acquire", ask).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/wait_ms")));
    let (status, _, pointer) = daemon.post("/v1/acquire", r#"{"domain":"none"}"#).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/domain")), "the domain has no slots");
}
