//! The order of the steps: read, authorise, version, limit, process, answer. What fails before the
//! limit costs nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate::ManualClock;
use tidegate_local_service::{Access, Limits, Next, PeerCredentials, RequestLimiter, Service};
use tidegate_proto::ipc::{IpcError, Response};

use crate::harness::{InProcess, PING, START, Setup, is_ok, peer};

const OTHER_VERSION: &str = r#"{"type":"ping","protocolVersion":2}"#;

fn nobody() -> Access {
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
        Response::Ok(_) => panic!("{text} was answered"),
    }
}

#[test]
fn what_fails_before_the_limit_costs_nothing() {
    let server = InProcess::usual();
    for _ in 0..50 {
        assert!(!is_ok(&server.call().ask("{")));
        assert!(!is_ok(&server.call().ask("{}")));
        assert!(!is_ok(&server.call().ask(OTHER_VERSION)));
    }
    assert_eq!(server.call().pings(20), 10);
}

#[test]
fn who_is_not_on_the_list_costs_nobody_anything() {
    let service = service(Access::Only { uids: BTreeSet::from([1]), gids: BTreeSet::new() });
    for _ in 0..100 {
        assert!(error(&service, &peer("mallory"), PING).starts_with("Access denied"));
    }
    assert!(service.limiter().is_empty(), "the limits have not been touched");
    let ada = PeerCredentials { uid: 1, ..peer("ada") };
    assert!((0..10).all(|_| matches!(service.handle(&ada, Ok(PING)).response, Response::Ok(_))));
}

#[test]
fn an_empty_identity_is_refused_without_touching_the_limits() {
    let service = service(Access::Everybody);
    assert!(error(&service, &peer(""), PING).starts_with("Access denied"));
    assert!(service.limiter().is_empty());
}

/// Each request fails at two steps; the answer is that of the earlier one.
#[test]
fn the_steps_come_in_their_order() {
    let closed = service(nobody());
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

/// The limit comes before processing, so what cannot be processed is charged.
#[test]
fn a_request_that_nobody_knows_is_charged() {
    let server = InProcess::usual();
    let mut caller = server.call();
    for _ in 0..10 {
        let response = caller.ask(r#"{"type":"shutdown","protocolVersion":1}"#);
        let error = "Unknown type of request. Known is: ping.";
        assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    }
    assert!(!caller.ping());
}

#[test]
fn old_callers_without_a_version_are_answered() {
    let server = InProcess::usual();
    let mut caller = server.call();
    for request in [
        r#"{"type":"ping"}"#,
        r#"{"type":"ping","protocolVersion":0}"#,
        r#"{"type":"ping","protocolVersion":null}"#,
        PING,
    ] {
        let response = caller.ask(request);
        assert!(is_ok(&response), "{request}");
        assert_eq!(response["protocolVersion"], 1);
    }
    for version in ["2", "-1", "100", "9223372036854775807"] {
        let request = format!(r#"{{"type":"ping","protocolVersion":{version}}}"#);
        let response = caller.ask(&request);
        let error = "Unsupported protocol version. Send 1.";
        assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    }
    assert!(caller.ping(), "the connection goes on");
}

#[test]
fn an_identity_in_the_request_is_not_one() {
    let server = InProcess::usual();
    let mut caller = server.call();
    let forged = |number: usize| {
        let user = format!("user{number}");
        json!({
            "type": "ping", "protocolVersion": 1, "user": user, "uid": number, "identity": user,
            "client": { "name": user }, "limit": "none", "key": user, "domain": "other",
        })
    };
    let passed = (0..20).filter(|number| is_ok(&caller.ask(&forged(*number).to_string()))).count();
    assert_eq!(passed, 10);
}

#[test]
fn who_is_denied_is_told_and_dismissed() {
    let server = InProcess::start(Setup { access: nobody(), ..Setup::default() });
    let mut caller = server.call();
    let response: Value = caller.ask(PING);
    let error = "Access denied. You are not on the list of this service.";
    assert_eq!(response, json!({ "ok": false, "error": error, "protocolVersion": 1 }));
    assert_eq!(caller.next(), None);
}

#[test]
fn groups_count_whether_first_or_further() {
    let access = Access::Only { uids: BTreeSet::from([1]), gids: BTreeSet::from([50]) };
    let of = |uid, gids: &[u32]| PeerCredentials { uid, name: "ada".into(), gids: gids.into() };
    assert!(access.admits(&of(1, &[])));
    assert!(access.admits(&of(2, &[50])));
    assert!(access.admits(&of(2, &[7, 8, 50])));
    assert!(!access.admits(&of(50, &[1])), "a user is no group");
    assert!(!access.admits(&of(2, &[7, 8])));
    assert!(!access.admits(&of(2, &[])));
    assert!(!access.admits(&PeerCredentials { name: String::new(), ..of(1, &[50]) }));
    assert!(!nobody().admits(&of(0, &[0])), "root is on the list, or not");
}
