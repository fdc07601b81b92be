use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::Policy;
use tidegate::{Engine, Rate};
use tidegate_proto::ipc::{Decoder, IpcError};

use super::{Access, Local, Next, PeerCredentials, SocketLimits, parts, reply};
use crate::admin::Role;
use crate::daemon::Daemon;
use crate::settings::{self, Settings};

const POLICY: &str = "[[rule]]\nname = 'all'\nkey = ['user']\nwindow = { max = 1, per = '1h' }";

/// A socket's service for user 7 and members of group 70, who may ask `max` times a day each.
fn service(max: u64) -> Local {
    let policy = Policy::from_toml(POLICY).unwrap();
    let engine = Engine::open_any(policy.clone(), None).unwrap();
    let daemon = Arc::new(Daemon::new(engine, Settings::on_free_ports(policy)));
    let access = Access::Only { uids: BTreeSet::from([0, 7]), gids: BTreeSet::from([70]) };
    let per_day = |max| Some(Rate::new(max, Duration::from_secs(86_400)).unwrap());
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

/// The answer to a frame, and whether the connection goes on.
fn response(local: &Local, peer: &PeerCredentials, frame: Result<&str, IpcError>) -> (Value, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reply = runtime.block_on(local.handle(peer, frame.map(str::to_owned)));
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
fn the_steps_are_in_their_order() {
    let local = service(1);
    let (ada, stranger) = (peer(7, "ada", &[]), peer(8, "stranger", &[]));
    // What cannot be read is told so, whoever sent it; who is not on the list hears nothing of versions.
    assert!(error(&local, &stranger, "{").starts_with("Bad request"));
    assert!(error(&local, &stranger, OTHER_VERSION).starts_with("Access denied"));
    assert!(error(&local, &ada, OTHER_VERSION).starts_with("Unsupported protocol version"));
    // The version comes before the limits, the limits before what is asked for.
    assert_eq!(response(&local, &ada, Ok(PING)).0["ok"], true);
    assert!(error(&local, &ada, OTHER_VERSION).starts_with("Unsupported protocol version"));
    assert!(error(&local, &ada, r#"{"type":"nonsense"}"#).starts_with("Rate limit exceeded"));
    assert!(error(&local, &stranger, PING).starts_with("Access denied"));
}

#[test]
fn what_fails_before_the_limits_costs_nothing() {
    let local = service(2);
    let ada = peer(7, "ada", &[]);
    for _ in 0..5 {
        assert!(error(&local, &ada, "[]").starts_with("Bad request"));
        assert!(error(&local, &ada, OTHER_VERSION).starts_with("Unsupported"));
        assert!(error(&local, &peer(8, "ada", &[]), PING).starts_with("Access denied"));
        let (told, goes_on) = response(&local, &ada, Err(IpcError::TooLong { length: 70_000 }));
        assert!(told["error"].as_str().unwrap().contains("70000 bytes") && !goes_on);
    }
    for version in [r#""protocolVersion":1"#, r#""protocolVersion":0"#] {
        let (told, goes_on) =
            response(&local, &ada, Ok(&format!(r#"{{"type":"ping",{version}}}"#)));
        assert!(told["ok"] == true && goes_on, "{told}");
    }
    let (told, goes_on) = response(&local, &ada, Ok(r#"{"type":"ping"}"#));
    assert_eq!(told["error"], "Rate limit exceeded. Please wait before retrying.");
    assert_eq!((&told["ok"], &told["limit"], goes_on), (&json!(false), &json!("user"), true));
    assert!((1..=43_200_000).contains(&told["retryAfterMs"].as_u64().unwrap()), "{told}");
}

#[test]
fn the_list_goes_by_numbers_and_not_by_what_is_said() {
    let local = service(100);
    let is_admitted = |peer: &PeerCredentials| response(&local, peer, Ok(PING)).0["ok"] == true;
    assert!(is_admitted(&peer(7, "ada", &[])));
    assert!(is_admitted(&peer(0, "root", &[])));
    assert!(is_admitted(&peer(9, "bob", &[1, 70])));
    assert!(!is_admitted(&peer(9, "ada", &[7])));
    assert!(!is_admitted(&peer(7, "", &[70])), "without a name nobody is anybody");
    let claims = r#"{"type":"ping","user":"ada","uid":7,"gids":[70]}"#;
    let (told, goes_on) = response(&local, &peer(9, "eve", &[9]), Ok(claims));
    assert!(told["ok"] == false && !goes_on, "{told}");
}

#[test]
fn those_who_may_only_look_change_nothing() {
    let local = service(100);
    let ban = json!({ "type": "admin", "method": "POST", "path": "/admin/v1/bans",
                      "body": { "who": { "user": "x" } } })
    .to_string();
    let look = r#"{"type":"admin","method":"GET","path":"/admin/v1/bans"}"#;
    assert_eq!(local.role(&peer(7, "ada", &[])), Role::Read);
    assert_eq!(local.role(&peer(0, "root", &[])), Role::Full);
    assert_eq!(local.role(&peer(5, "owner", &[])), Role::Full);
    let (told, goes_on) = response(&local, &peer(7, "ada", &[]), Ok(&ban));
    assert_eq!((&told["ok"], &told["status"], goes_on), (&json!(false), &json!(403), true));
    assert_eq!(response(&local, &peer(7, "ada", &[]), Ok(look)).0["body"]["bans"], json!([]));
    let (told, _) = response(&local, &peer(0, "root", &[]), Ok(&ban));
    assert_eq!((&told["ok"], &told["status"]), (&json!(true), &json!(200)));
    let (told, _) = response(&local, &peer(7, "ada", &[]), Ok(look));
    assert_eq!(told["body"]["bans"].as_array().unwrap().len(), 1);
}

#[test]
fn names_with_odd_characters_are_shown_on_one_line() {
    let odd = peer(7, "o'brien\n\u{1b}[31m", &[]);
    assert_eq!(odd.user(), r"user o\'brien\n\u{1b}[31m");
}

#[test]
fn a_long_answer_comes_in_parts_that_make_it_up_again() {
    let body = json!({ "policy": "\u{7}\"é\\🦀\n".repeat(50_000) });
    let fields = [("status".to_owned(), json!(200)), ("body".to_owned(), body.clone())];
    let reply = reply(true, serde_json::Map::from_iter(fields), Next::Request);
    assert!(reply.frames.len() > 10);
    let mut text = String::new();
    for (number, frame) in (1..).zip(&reply.frames) {
        let mut bytes = &frame[..];
        let told = Decoder::new().next(&mut bytes).unwrap().unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["ok"], &told["status"]), (&json!(true), &json!(200)));
        assert_eq!(told["more"], number < reply.frames.len(), "{number}");
        text.push_str(told["part"].as_str().unwrap());
    }
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), body);
    assert_eq!(parts("").count(), 0);
}

#[test]
fn what_many_rules_say_is_left_out_where_it_does_not_fit() {
    let fields =
        [("allowed".to_owned(), json!(true)), ("rules".to_owned(), json!("x".repeat(70_000)))];
    let reply = reply(true, serde_json::Map::from_iter(fields), Next::Request);
    let mut bytes = &reply.frames[0][..];
    let told = Decoder::new().next(&mut bytes).unwrap().unwrap();
    assert_eq!(told, r#"{"allowed":true,"ok":true,"protocolVersion":1}"#);
}
