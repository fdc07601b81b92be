use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::{Parsed, Policy, Scope};
use tidegate::{Rate, StoreEngine};
use tidegate_proto::ipc::{Decoder, IpcError};

use super::{Access, Local, Next, PeerCredentials, SocketLimits, parts, reply};
use crate::access::ConnectionAccess;
use crate::daemon::Daemon;
use crate::settings::{self, Settings};

const POLICY: &str = "[[rule]]\nname = 'all'\nkey = ['user']\nwindow = { max = 1, per = '1h' }";

/// The protocol for user 7 and members of group 70, with `max` requests a day each.
fn service(max: u64) -> Local {
    let policy = Policy::from_toml(POLICY).unwrap();
    let engine = StoreEngine::new(policy.clone());
    let daemon = Arc::new(Daemon::new(engine, Settings::on_free_ports(Parsed::from_code(policy))));
    let access = Access::Only { uids: BTreeSet::from([0, 7]), gids: BTreeSet::from([70]) };
    let per_day = |max| Some(Rate::new(max, Duration::from_secs(86_400)));
    let rates = settings::LocalSettings {
        user_rate: per_day(max),
        rate: per_day(1_000),
        ..settings::LocalSettings::default()
    };
    let mut local = Local::new(daemon, access, SocketLimits::new(&rates).unwrap());
    local.owner = 5;
    local
}

fn peer(uid: u32, name: &str, gids: &[u32]) -> PeerCredentials {
    PeerCredentials { uid, name: name.into(), gids: gids.into() }
}

/// The response to a frame, and whether the connection stays open.
fn response(local: &Local, peer: &PeerCredentials, frame: Result<&str, IpcError>) -> (Value, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reply = runtime.block_on(local.handle(
        peer,
        &ConnectionAccess::default(),
        frame.map(str::to_owned),
    ));
    assert_eq!(reply.frames.len(), 1);
    let mut bytes = &reply.frames[0][..];
    let text = Decoder::new().next(&mut bytes).unwrap().unwrap();
    (serde_json::from_str(&text).unwrap(), reply.next == Next::Request)
}

fn error(local: &Local, peer: &PeerCredentials, frame: &str) -> String {
    let (response, _) = response(local, peer, Ok(frame));
    assert_eq!(response["ok"], false, "{response}");
    assert_eq!(response["protocolVersion"], 1);
    response["error"].as_str().unwrap().to_owned()
}

const PING: &str = r#"{"type":"ping","protocolVersion":1}"#;
const OTHER_VERSION: &str = r#"{"type":"ping","protocolVersion":2}"#;

#[test]
fn requests_pass_the_checks_in_their_order() {
    let local = service(1);
    let (ada, eve) = (peer(7, "ada", &[]), peer(8, "eve", &[]));
    // Access comes before decoding, decoding before the version.
    assert!(error(&local, &eve, "{").starts_with("Access denied"));
    assert!(error(&local, &ada, "{").starts_with("Bad request"));
    assert!(error(&local, &eve, OTHER_VERSION).starts_with("Access denied"));
    assert!(error(&local, &ada, OTHER_VERSION).starts_with("Unsupported protocol version"));
    // The version comes before the limits, the limits before the verb.
    assert_eq!(response(&local, &ada, Ok(PING)).0["ok"], true);
    assert!(error(&local, &ada, OTHER_VERSION).starts_with("Unsupported protocol version"));
    assert!(error(&local, &ada, r#"{"type":"nonsense"}"#).starts_with("Rate limit exceeded"));
    assert!(error(&local, &eve, PING).starts_with("Access denied"));
}

#[test]
fn requests_that_fail_before_the_limits_are_not_charged() {
    let local = service(2);
    let ada = peer(7, "ada", &[]);
    for _ in 0..5 {
        assert!(error(&local, &ada, "[]").starts_with("Bad request"));
        assert!(error(&local, &ada, OTHER_VERSION).starts_with("Unsupported"));
        assert!(error(&local, &peer(8, "ada", &[]), PING).starts_with("Access denied"));
        let (reply, goes_on) = response(&local, &ada, Err(IpcError::TooLong { length: 70_000 }));
        assert!(reply["error"].as_str().unwrap().contains("70000 bytes") && !goes_on);
    }
    for version in [r#""protocolVersion":1"#, r#""protocolVersion":0"#] {
        let (reply, goes_on) =
            response(&local, &ada, Ok(&format!(r#"{{"type":"ping",{version}}}"#)));
        assert!(reply["ok"] == true && goes_on, "{reply}");
    }
    let (reply, goes_on) = response(&local, &ada, Ok(r#"{"type":"ping"}"#));
    assert_eq!(reply["error"], "Rate limit exceeded. Please wait before retrying.");
    assert_eq!((&reply["ok"], &reply["limit"], goes_on), (&json!(false), &json!("user"), true));
    assert!((1..=43_200_000).contains(&reply["retryAfterMs"].as_u64().unwrap()), "{reply}");
}

#[test]
fn access_is_by_kernel_ids_and_not_by_fields_of_the_request() {
    let local = service(100);
    let is_admitted = |peer: &PeerCredentials| response(&local, peer, Ok(PING)).0["ok"] == true;
    assert!(is_admitted(&peer(7, "ada", &[])));
    assert!(is_admitted(&peer(0, "root", &[])));
    assert!(is_admitted(&peer(9, "bob", &[1, 70])));
    assert!(!is_admitted(&peer(9, "ada", &[7])));
    assert!(!is_admitted(&peer(7, "", &[70])), "a peer without a name is not admitted");
    let claims = r#"{"type":"ping","user":"ada","uid":7,"gids":[70]}"#;
    let (reply, goes_on) = response(&local, &peer(9, "eve", &[9]), Ok(claims));
    assert!(reply["ok"] == false && !goes_on, "{reply}");
}

#[test]
fn a_listed_user_changes_nothing() {
    let local = service(100);
    let ban = json!({ "type": "admin", "method": "POST", "path": "/admin/v1/bans",
                      "body": { "match": { "user": "x" } } })
    .to_string();
    let read = r#"{"type":"admin","method":"GET","path":"/admin/v1/bans"}"#;
    let may_change = |peer: PeerCredentials| {
        let principal = local.principal(&peer, &ConnectionAccess::default()).unwrap();
        principal.may(Scope::Admin).is_ok()
    };
    assert!(!may_change(peer(7, "ada", &[])));
    assert!(may_change(peer(0, "root", &[])) && may_change(peer(5, "owner", &[])));
    let (reply, goes_on) = response(&local, &peer(7, "ada", &[]), Ok(&ban));
    assert_eq!((&reply["ok"], &reply["status"], goes_on), (&json!(false), &json!(403), true));
    assert_eq!(response(&local, &peer(7, "ada", &[]), Ok(read)).0["body"]["bans"], json!([]));
    let (reply, _) = response(&local, &peer(0, "root", &[]), Ok(&ban));
    assert_eq!((&reply["ok"], &reply["status"]), (&json!(true), &json!(200)));
    let (reply, _) = response(&local, &peer(7, "ada", &[]), Ok(read));
    assert_eq!(reply["body"]["bans"].as_array().unwrap().len(), 1);
}

#[test]
fn names_with_control_characters_are_escaped() {
    let odd = peer(7, "o'brien\n\u{1b}[31m", &[]);
    assert_eq!(odd.user(), r"user o\'brien\n\u{1b}[31m");
}

#[test]
fn a_long_response_is_sent_in_parts_that_join_to_the_whole() {
    let body = json!({ "policy": "\u{7}\"é\\🦀\n".repeat(50_000) });
    let fields = [("status".to_owned(), json!(200)), ("body".to_owned(), body.clone())];
    let sent = reply(true, serde_json::Map::from_iter(fields), Next::Request);
    assert!(sent.frames.len() > 10);
    let mut text = String::new();
    for (number, frame) in (1..).zip(&sent.frames) {
        let mut bytes = &frame[..];
        let reply = Decoder::new().next(&mut bytes).unwrap().unwrap();
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!((&reply["ok"], &reply["status"]), (&json!(true), &json!(200)));
        assert_eq!(reply["more"], number < sent.frames.len(), "{number}");
        text.push_str(reply["part"].as_str().unwrap());
    }
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), body);
    assert_eq!(parts("").count(), 0);
}

#[test]
fn parts_of_single_rules_are_left_out_if_they_do_not_fit() {
    let fields =
        [("allowed".to_owned(), json!(true)), ("rules".to_owned(), json!("x".repeat(70_000)))];
    let sent = reply(true, serde_json::Map::from_iter(fields), Next::Request);
    let mut bytes = &sent.frames[0][..];
    let reply = Decoder::new().next(&mut bytes).unwrap().unwrap();
    assert_eq!(reply, r#"{"allowed":true,"ok":true,"protocolVersion":1}"#);
}
