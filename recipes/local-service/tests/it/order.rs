//! The order of the steps: read, authorise, version, limit, process, respond. What fails before the
//! limit costs nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate::clock::ManualClock;
use tidegate_local_service::{Access, Limits, Next, PeerCredentials, RequestLimiter, Service};
use tidegate_proto::ipc::{IpcError, Response};

use crate::harness::{InProcess, PING, START, Setup, is_ok, peer};

const OTHER_VERSION: &str = r#"{"type":"ping","protocolVersion":2}"#;

fn no_access() -> Access {
    Access::Only { uids: BTreeSet::new(), gids: BTreeSet::new() }
}

fn service(access: Access) -> Service<ManualClock> {
    let clock = ManualClock::new(START);
    let limiter = RequestLimiter::new(Limits::default().policy().unwrap(), clock.clone());
    Service::new(access, limiter, clock)
}

fn error(service: &Service<ManualClock>, peer: &PeerCredentials, text: &str) -> String {
    match service.handle(peer, Ok(text)).response {
        Response::Error(failure) => failure.error,
        Response::Ok(_) => panic!("{text} succeeded"),
    }
}

#[test]
fn what_fails_before_the_limit_costs_nothing() {
    let server = InProcess::usual();
    for _ in 0..50 {
        assert!(!is_ok(&server.call().send_request("{")));
        assert!(!is_ok(&server.call().send_request("{}")));
        assert!(!is_ok(&server.call().send_request(OTHER_VERSION)));
    }
    assert_eq!(server.call().pings(20), 10);
}

#[test]
fn user_who_is_not_listed_is_not_charged() {
    let service = service(Access::Only { uids: BTreeSet::from([1]), gids: BTreeSet::new() });
    for _ in 0..100 {
        assert!(error(&service, &peer("mallory"), PING).starts_with("Access denied"));
    }
    assert!(service.limiter().is_empty(), "the limits are untouched");
    let ada = PeerCredentials { uid: 1, ..peer("ada") };
    assert!((0..10).all(|_| matches!(service.handle(&ada, Ok(PING)).response, Response::Ok(_))));
}

#[test]
fn empty_identity_is_denied_without_touching_the_limits() {
    let service = service(Access::Everybody);
    assert!(error(&service, &peer(""), PING).starts_with("Access denied"));
    assert!(service.limiter().is_empty());
}

/// Each request fails at two steps; the error is that of the earlier one.
#[test]
fn steps_run_in_order() {
    let closed = service(no_access());
    // Reading comes before authorising …
    assert!(error(&closed, &peer("ada"), "{").starts_with("Bad request: the frame is not JSON"));
    assert_eq!(closed.handle(&peer("ada"), Err(&IpcError::Empty)).next, Next::Close);
    // … authorising before the version …
    assert!(error(&closed, &peer("ada"), OTHER_VERSION).starts_with("Access denied"));
    // … the version before the limit …
    let open = service(Access::Everybody);
    for _ in 0..10 {
        assert!(matches!(open.handle(&peer("ada"), Ok(PING)).response, Response::Ok(_)));
    }
    assert!(error(&open, &peer("ada"), OTHER_VERSION).starts_with("Unsupported protocol version"));
    // … and the limit before processing.
    let unknown = r#"{"type":"unknown"}"#;
    assert!(error(&open, &peer("ada"), unknown).starts_with("Rate limit exceeded"));
    assert!(error(&open, &peer("grace"), unknown).starts_with("Unknown type of request"));
}

/// The limit comes before processing, so an unknown request is charged.
#[test]
fn unknown_request_is_charged() {
    let server = InProcess::usual();
    let mut caller = server.call();
    for _ in 0..10 {
        let response = caller.send_request(r#"{"type":"shutdown","protocolVersion":1}"#);
        let error = "Unknown type of request. Known is: ping.";
        assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    }
    assert!(!caller.ping());
}

#[test]
fn clients_without_a_version_are_served() {
    let server = InProcess::usual();
    let mut caller = server.call();
    for request in [
        r#"{"type":"ping"}"#,
        r#"{"type":"ping","protocolVersion":0}"#,
        r#"{"type":"ping","protocolVersion":null}"#,
        PING,
    ] {
        let response = caller.send_request(request);
        assert!(is_ok(&response), "{request}");
        assert_eq!(response["protocolVersion"], 1);
    }
    for version in ["2", "-1", "100", "9223372036854775807"] {
        let request = format!(r#"{{"type":"ping","protocolVersion":{version}}}"#);
        let response = caller.send_request(&request);
        let error = "Unsupported protocol version. Send 1.";
        assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    }
    assert!(caller.ping(), "the connection stays open");
}

#[test]
fn identity_in_the_request_is_ignored() {
    let server = InProcess::usual();
    let mut caller = server.call();
    let forged = |number: usize| {
        let user = format!("user{number}");
        json!({
            "type": "ping", "protocolVersion": 1, "user": user, "uid": number, "identity": user,
            "client": { "name": user }, "limit": "none", "key": user, "domain": "other",
        })
    };
    let passed =
        (0..20).filter(|number| is_ok(&caller.send_request(&forged(*number).to_string()))).count();
    assert_eq!(passed, 10);
}

#[test]
fn denied_client_gets_an_error_and_is_closed() {
    let server = InProcess::start(Setup { access: no_access(), ..Setup::default() });
    let mut caller = server.call();
    let response: Value = caller.send_request(PING);
    let error = "Access denied. You are not on the list of this service.";
    assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    assert_eq!(caller.next(), None);
}

#[test]
fn primary_and_supplementary_groups_count() {
    let access = Access::Only { uids: BTreeSet::from([1]), gids: BTreeSet::from([50]) };
    let of = |uid, gids: &[u32]| PeerCredentials { uid, name: "ada".into(), gids: gids.into() };
    assert!(access.admits(&of(1, &[])));
    assert!(access.admits(&of(2, &[50])));
    assert!(access.admits(&of(2, &[7, 8, 50])));
    assert!(!access.admits(&of(50, &[1])), "a user id is no group id");
    assert!(!access.admits(&of(2, &[7, 8])));
    assert!(!access.admits(&of(2, &[])));
    assert!(!access.admits(&PeerCredentials { name: String::new(), ..of(1, &[50]) }));
    assert!(!no_access().admits(&of(0, &[0])), "root must be listed too");
}
