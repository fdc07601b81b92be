//! The local socket: its file, its verbs, and its own limits.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_proto::ipc::encode_text;
use tidegate_server::local::BindError;
use tidegate_server::{Bounds, Listener, StartError};

use crate::running::{Caller, Folder, POLICY, Running, ping};

#[test]
fn every_ping_gets_a_pong() {
    let running = Running::start(POLICY);
    let mut caller = running.caller();
    for _ in 0..20 {
        let pong = caller.ask(&ping());
        assert_eq!((&pong["ok"], &pong["protocolVersion"]), (&json!(true), &json!(1)));
        assert_eq!(pong["serviceVersion"], env!("CARGO_PKG_VERSION"));
        let time = pong["time"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    }
}

#[test]
fn the_socket_is_private_unless_other_users_are_listed() {
    let mode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
    let running = Running::start(POLICY);
    let socket = running.folder.socket();
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    let shared = Running::start(&format!("[server]\nunix_users = ['uid:12345']\n{POLICY}"));
    let socket = shared.folder.socket();
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o666, 0o711));
}

#[test]
fn the_socket_is_removed_at_the_end_and_a_dead_one_replaced() {
    let mut running = Running::start(POLICY);
    let socket = running.folder.socket();
    assert_eq!(running.server().address_text(Listener::Unix).as_deref(), socket.to_str());
    running.stop();
    assert!(!socket.exists());
    assert_eq!(fs::read_dir(socket.parent().unwrap()).unwrap().count(), 0, "nothing is left");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "a killed process leaves it so");
    let folder = std::mem::replace(&mut running.folder, Folder::new());
    let running = Running::start_in(folder, POLICY, |settings| settings).unwrap();
    assert_eq!(running.caller().ask(&ping())["ok"], true);
}

#[test]
fn a_socket_in_use_and_other_files_are_not_replaced() {
    let running = Running::start(POLICY);
    let socket = running.folder.socket();
    let again = Running::start_with(POLICY, |it| it.listen(Listener::Unix, socket.to_str()));
    match again {
        Err(StartError::Socket(BindError::InUse(path))) => assert_eq!(path, socket),
        other => panic!("{:?}", other.err()),
    }
    assert_eq!(running.caller().ask(&ping())["ok"], true);
    let file = running.folder.path().join("file");
    fs::write(&file, "dear diary").unwrap();
    let over = Running::start_with(POLICY, |it| it.listen(Listener::Unix, file.to_str()));
    let error = over.err().unwrap().to_string();
    assert!(error.contains("not a socket") && error.contains("--unix"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "dear diary");
}

#[test]
fn invalid_settings_are_start_errors() {
    let start = |server: &str| {
        let started = Running::start_with(&format!("[server]\n{server}\n{POLICY}"), |it| it);
        started.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let error = start("unix_user_rate = '10/s'\nunix_rate = '9/s'");
    assert!(error.contains("unix_rate") && error.contains("unix_user_rate"), "{error}");
    let error = start("unix_rate = '99/s'");
    assert!(error.contains("unix_rate"), "below the default of a user: {error}");
    let error = start("unix_users = ['no-such-user']");
    assert!(error.starts_with("unix_users: the system does not know"), "{error}");
    let error = start("unix_groups = ['gid:x']");
    assert!(error.starts_with("unix_groups: \"gid:x\" is not gid: and a number"), "{error}");
}

#[test]
fn verbs_decide_as_over_http() {
    let running = Running::start(POLICY);
    let mut caller = running.caller();
    let mut ask = |kind: &str, more: Value| {
        let mut request = json!({ "type": kind, "attributes": { "user": "ada" } });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        caller.ask(&request)
    };
    let peek = ask("peek", json!({}));
    assert_eq!(
        (&peek["ok"], &peek["allowed"], &peek["remaining"]),
        (&json!(true), &json!(true), &json!(2))
    );
    let check = ask("check", json!({ "domain": "default", "cost": 1, "idempotency_key": "a" }));
    assert_eq!((&check["allowed"], &check["rule"]), (&json!(true), &json!("per-user")));
    assert_eq!((&check["remaining"], &check["limit"]), (&json!(1), &json!(2)));
    assert!(check["decision_id"].as_str().unwrap().len() == 16 && check["rules"].is_array());
    let again = ask("check", json!({ "domain": "default", "cost": 1, "idempotency_key": "a" }));
    assert_eq!(again["remaining"], 1, "the same request is charged once");
    let held = ask("reserve", json!({}));
    assert!((1..=600_000).contains(&held["expires_in_ms"].as_u64().unwrap()), "{held}");
    assert_eq!((&held["allowed"], &held["remaining"]), (&json!(true), &json!(0)));
    let denied = ask("check", json!({}));
    assert_eq!((&denied["ok"], &denied["allowed"]), (&json!(true), &json!(false)));
    let why = ask("explain", json!({}));
    assert_eq!((&why["allowed"], &why["rules"][0]["denies"]), (&json!(false), &json!(true)));
    assert_eq!(why["rules"][0]["key"], json!({ "user": "ada" }));
    let cancel = json!({ "type": "cancel", "reservation": held["reservation"] });
    let mut caller = running.caller();
    assert_eq!(caller.ask(&cancel)["ok"], true);
    assert_eq!(caller.ask(&cancel)["ok"], true, "the same again");
    let commit = json!({ "type": "commit", "reservation": held["reservation"] });
    let other = caller.ask(&commit);
    let text = other["error"].as_str().unwrap();
    assert!(other["ok"] == false && text.contains("cancelled"), "{other}");
    let held =
        caller.ask(&json!({ "type": "reserve", "attributes": { "user": "bob" }, "cost": 2 }));
    let id = &held["reservation"];
    let commit = json!({ "type": "commit", "reservation": id, "actual": 1 });
    assert_eq!(caller.ask(&commit)["charged"], 1);
    let invalid = caller.ask(&json!({ "type": "commit", "reservation": "x" }));
    assert!(invalid["error"].as_str().unwrap().contains("32 hexadecimal digits"), "{invalid}");
    let left = caller.ask(&json!({ "type": "peek", "attributes": { "user": "bob" } }));
    assert_eq!(left["remaining"], 1);
    let unknown = caller.ask(&json!({ "type": "shutdown" }));
    assert!(unknown["error"].as_str().unwrap().contains("Known types: ping, check"), "{unknown}");
}

#[test]
fn the_socket_has_limits_of_its_own() {
    let running = Running::start(&format!("[server]\nunix_user_rate = '3/h'\n{POLICY}"));
    let mut caller = running.caller();
    assert!((0..3).all(|_| caller.ask(&ping())["ok"] == true));
    let denied = running.caller().ask(&ping());
    assert_eq!(denied["error"], "Rate limit exceeded. Please wait before retrying.");
    assert_eq!(denied["limit"], "user", "connections of a user share a budget");
    let wait = denied["retryAfterMs"].as_u64().unwrap();
    assert!((1_190_000..=1_200_000).contains(&wait), "{denied}");
    assert!(caller.ask(&ping())["ok"] == false, "and the connection stays open");
}

#[test]
fn responses_longer_than_a_frame_are_sent_in_parts() {
    let many: String = (0..1_500)
        .map(|n| {
            format!(
                "[[rule]]\nname = 'rule-{n}'\ndomain = 'd{n}'\nwindow = {{ max = 1, per = '1h' }}\n"
            )
        })
        .collect();
    let running = Running::start(&many);
    let mut caller = running.caller();
    let mut part = caller.admin("GET", "rules", &Value::Null);
    let mut text = String::new();
    loop {
        text.push_str(part["part"].as_str().unwrap());
        if part["more"] == false {
            break;
        }
        part = serde_json::from_str(&caller.next().unwrap()).unwrap();
    }
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["rules"].as_array().unwrap().len(), 1_500);
    assert_eq!(caller.ask(&ping())["ok"], true, "the next response follows");
}

/// A daemon with short time-outs.
fn impatient() -> Running {
    let mut bounds = Bounds::default();
    bounds.idle_time = Duration::from_millis(50);
    bounds.request_time = Duration::from_millis(50);
    bounds.write_time = Duration::from_millis(50);
    let rates = "[server]\nunix_user_rate = '1000000/s'\nunix_rate = '1000000/s'\n";
    Running::start_with(&format!("{rates}{POLICY}"), |it| it.bounds(bounds)).unwrap()
}

#[test]
fn idle_clients_and_incomplete_frames_time_out() {
    let running = impatient();
    assert_eq!(running.caller().next(), None, "nothing");
    let mut half = running.caller();
    half.send_bytes(&[30, 0]);
    assert_eq!(half.next(), None, "half a length");
    let mut half = running.caller();
    half.send_bytes(&encode_text(&ping().to_string()).unwrap()[..20]);
    assert_eq!(half.next(), None, "half a frame");
    assert_eq!(running.caller().ask(&ping())["ok"], true);
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let running = impatient();
    let mut slow = running.caller();
    slow.stream.set_write_timeout(None).unwrap();
    let frame = encode_text(
        &json!({ "type": "admin", "method": "GET", "path": "/admin/v1/rules" }).to_string(),
    );
    let frame = frame.unwrap();
    // Responses fill the socket's buffers, then requests do, and then the daemon closes the
    // connection.
    while slow.stream.write_all(&frame).is_ok() {}
    assert_eq!(running.caller().ask(&ping())["ok"], true);
}

#[test]
fn shutdown_closes_idle_connections() {
    let mut running = Running::start(POLICY);
    let mut caller = running.caller();
    assert_eq!(caller.ask(&ping())["ok"], true);
    running.stop();
    assert_eq!(caller.next(), None);
}

#[test]
fn a_folder_of_another_user_is_rejected() {
    if !nix_is_root() {
        return;
    }
    let folder = Folder::new();
    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(&theirs, Some(12_345), None).unwrap();
    let socket = theirs.join("s.sock");
    let started = Running::start_with(POLICY, |it| it.listen(Listener::Unix, socket.to_str()));
    let error = started.err().unwrap().to_string();
    assert!(error.contains("belongs to another user"), "{error}");
}

/// Whether the test runs as root. In continuous integration it must.
fn nix_is_root() -> bool {
    let probe = Folder::new();
    let is_root = fs::metadata(probe.path()).unwrap().uid() == 0;
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(is_root || !is_ci, "this test needs root");
    is_root
}

#[test]
fn concurrent_callers_get_exactly_the_limit() {
    let rates = "[server]\nunix_user_rate = '100000/s'\nunix_rate = '100000/s'\n";
    let policy = format!("{rates}{}", POLICY.replace("max = 2", "max = 100"));
    let running = Running::start(&policy);
    let socket = running.folder.socket();
    let allowed: usize = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut caller = Caller::connect(&socket);
                    let check = json!({ "type": "check", "attributes": { "user": "ada" } });
                    (0..50).filter(|_| caller.ask(&check)["allowed"] == true).count()
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(allowed, 100);
}
