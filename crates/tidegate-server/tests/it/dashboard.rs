//! What the dashboard needs of the admin listener: its files, logins, events, denials by their ids.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_server::{Bounds, Listener};

use crate::running::{HttpReply, PATIENCE, POLICY, Running, ask, until};

const TOKENS: &[(&str, &str)] = &[
    ("s-read", "name = 'read'\nscopes = ['read']"),
    ("s-inspect", "name = 'inspect'\nscopes = ['inspect']"),
    ("s-admin", "name = 'ops'\nscopes = ['admin']"),
];

fn start() -> Running {
    Running::start_with_tokens(POLICY, TOKENS)
}

/// The response to a login.
fn log_in(running: &Running, token: &str) -> HttpReply {
    let body = json!({ "token": token }).to_string();
    let origin = format!("http://{}", running.admin());
    ask(running.admin(), "POST", "/admin/v1/session", &[("Origin", &origin)], &body)
}

/// The cookie of a login.
#[track_caller]
fn cookie(reply: &HttpReply) -> String {
    let line = reply.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    line.expect("a cookie").split(';').next().unwrap().to_owned()
}

/// Sends a request of a page with a session.
fn browse(running: &Running, cookie: &str, (method, path): (&str, &str), body: &str) -> HttpReply {
    let origin = format!("http://{}", running.admin());
    let headers = [("Cookie", cookie), ("Origin", &origin), ("Sec-Fetch-Site", "same-origin")];
    let headers = if method == "GET" { &headers[..1] } else { &headers[..] };
    ask(running.admin(), method, &format!("/admin/v1/{path}"), headers, body)
}

/// An open stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(running: &Running, headers: &str) -> Self {
        let mut stream = TcpStream::connect(running.admin()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = running.admin();
        let head = format!("GET /admin/v1/events HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// The status of the response.
    fn status(&mut self) -> u16 {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// The content of the next event; `None` if the stream has ended.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(content) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(content).unwrap());
            }
        }
    }
}

#[test]
fn files_of_the_dashboard_allow_nothing_from_elsewhere() {
    let running = start();
    for (path, kind) in [
        ("/", "text/html"),
        ("/dashboard.js", "text/javascript"),
        ("/dashboard.css", "text/css"),
        ("/favicon.svg", "image/svg+xml"),
    ] {
        let reply = running.ask("GET", path, "").with(200);
        assert!(reply.head.contains(&format!("content-type: {kind}")), "{reply:?}");
        assert!(
            reply.head.contains("content-security-policy: default-src 'none'; script-src 'self'")
        );
        assert!(reply.head.contains("frame-ancestors 'none'"), "{}", reply.head);
        assert!(reply.head.contains("x-content-type-options: nosniff"), "{}", reply.head);
        let _ = running.ask("POST", path, "").with(405);
    }
    let page = running.ask("GET", "/", "").body;
    assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("onload="));
}

#[test]
fn nothing_is_shown_before_a_login() {
    let running = start();
    let session = running.admin_ok("GET", "/admin/v1/session", "");
    assert_eq!((&session["login"], &session["may_inspect"]), (&json!("needed"), &json!(false)));
    assert_eq!(session["version"], Value::Null);
    for path in ["status", "rules", "denials", "history", "events", "policy"] {
        let _ = running.ask("GET", &format!("/admin/v1/{path}"), "").with(401);
        let wrong = [("Cookie", "tidegate_session=0123")];
        let _ = ask(running.admin(), "GET", &format!("/admin/v1/{path}"), &wrong, "").with(401);
    }
    let _ = log_in(&running, "wrong").with(401);
    let _ = log_in(&running, "s-read").with(403);
    let _ = running.ask("POST", "/admin/v1/session", "{}").with(422);
    let _ = running.ask("PUT", "/admin/v1/session", "{}").with(405);
}

#[test]
fn a_session_may_do_what_its_token_may() {
    let running = start();
    let reply = log_in(&running, "s-inspect").with(200);
    assert_eq!(
        (&reply.json()["login"], &reply.json()["may_change"]),
        (&json!("done"), &json!(false))
    );
    assert!(reply.head.contains("; httponly; samesite=strict\r"), "{}", reply.head);
    let inspect = cookie(&reply);
    let _ = browse(&running, &inspect, ("GET", "rules"), "").with(200);
    let patch = r#"{"window":{"max":9}}"#;
    let rule = ("PATCH", "rules/default/per-user");
    let _ = browse(&running, &inspect, rule, patch).with(403);

    let reply = log_in(&running, "s-admin").with(200);
    assert_eq!(reply.json()["client"], "token ops");
    let admin = cookie(&reply);
    assert_ne!(inspect, admin);
    let _ = browse(&running, &admin, rule, patch).with(200);
    let audit = browse(&running, &admin, ("GET", "audit"), "").json();
    assert_eq!(audit["changes"][0]["actor"], "token ops at 127.0.0.1");
}

#[test]
fn a_change_by_a_cookie_needs_the_origin_of_the_dashboard() {
    let running = start();
    let cookie = cookie(&log_in(&running, "s-admin").with(200));
    let (path, body) = ("/admin/v1/rules/default/per-user", r#"{"window":{"max":9}}"#);
    let own = format!("http://{}", running.admin());
    let send = |headers: &[(&str, &str)]| {
        let mut all = vec![("Cookie", &*cookie)];
        all.extend(headers);
        ask(running.admin(), "PATCH", path, &all, body).status
    };
    assert_eq!(send(&[]), 403, "no origin");
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(send(&[("Origin", origin)]), 403, "{origin}");
    }
    assert_eq!(send(&[("Origin", &own), ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(send(&[("Origin", &own), ("Host", "evil.example")]), 403);
    assert_eq!(send(&[("Origin", &own), ("Cookie", &cookie)]), 400, "two cookies");
    assert_eq!(send(&[("Origin", &own)]), 200);
    // A login is a change, too.
    let login = json!({ "token": "s-admin" }).to_string();
    let evil = [("Origin", "http://evil.example")];
    let _ = ask(running.admin(), "POST", "/admin/v1/session", &evil, &login).with(403);
    // Elsewhere the cookie of a session is nothing.
    let http = running.server().address(Listener::Http).unwrap();
    let _ = ask(http, "POST", "/v1/check", &[("Cookie", &cookie)], "{}").with(401);
}

#[test]
fn without_tokens_pages_of_the_dashboard_may_do_everything_and_others_nothing() {
    let running = Running::start(POLICY);
    let session = running.admin_ok("GET", "/admin/v1/session", "");
    assert_eq!((&session["login"], &session["may_change"]), (&json!("not_needed"), &json!(true)));
    let own = format!("http://{}", running.admin());
    let named = format!("http://evil.example:{}", running.admin().port());
    let host = named.trim_start_matches("http://").to_owned();
    let body = r#"{"window":{"max":9}}"#;
    for (status, headers) in [
        (200, vec![("Origin", &*own)]),
        (403, vec![("Origin", "http://evil.example")]),
        (403, vec![("Sec-Fetch-Site", "same-site")]),
        // A name that an attacker has made to resolve to this machine.
        (403, vec![("Origin", &*named), ("Host", &*host)]),
    ] {
        let path = "/admin/v1/rules/default/per-user";
        assert_eq!(
            ask(running.admin(), "PATCH", path, &headers, body).status,
            status,
            "{headers:?}"
        );
    }
}

#[test]
fn a_session_ends_with_a_logout_and_with_its_token() {
    let running = start();
    let first = cookie(&log_in(&running, "s-admin").with(200));
    let second = cookie(&log_in(&running, "s-admin").with(200));
    let mut events = Events::open(&running, &format!("Cookie: {first}\r\n"));
    assert_eq!(events.status(), 200);
    assert!(events.next().is_some());
    let reply = browse(&running, &first, ("DELETE", "session"), "").with(204);
    assert!(reply.head.contains("set-cookie: tidegate_session=; path=/; max-age=0"), "{reply:?}");
    let _ = browse(&running, &first, ("GET", "status"), "").with(401);
    while events.next().is_some() {}
    let _ = browse(&running, &second, ("GET", "status"), "").with(200);
    running.folder.tokens(&TOKENS[..2]);
    until("the token is revoked", || {
        browse(&running, &second, ("GET", "status"), "").status == 401
    });
}

#[test]
pub(crate) fn events_follow_the_decisions() {
    let mut running = Running::start(POLICY);
    let http = running.server().address(Listener::Http).unwrap();
    let mut events = Events::open(&running, "");
    assert_eq!(events.status(), 200);
    let first = events.next().unwrap();
    assert_eq!((&first["step_ms"], &first["degraded"]), (&json!(1000), &json!([])));
    for _ in 0..3 {
        ask(http, "POST", "/v1/check", &[], r#"{"attributes":{"user":"ada"}}"#);
    }
    let (mut allowed, mut denied) = (0, 0);
    while (allowed, denied) != (2, 1) {
        let event = events.next().unwrap();
        allowed += event["allowed"].as_u64().unwrap();
        denied += event["denied"].as_u64().unwrap();
        if event["denied"] != 0 {
            assert_eq!(event["rules"][0]["name"], "per-user", "{event}");
            assert!(event["p99_us"].is_u64(), "{event}");
        }
    }
    let history = running.admin_ok("GET", "/admin/v1/history", "");
    let sum = |list: &Value| list.as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((sum(&history["allowed"]), sum(&history["denied"])), (2, 1));
    // The stream does not hold up the end of the daemon.
    running.stop();
    while events.next().is_some() {}
}

#[test]
fn streams_of_events_are_bounded() {
    let running = Running::start_with(POLICY, |settings| {
        let mut bounds = Bounds::default();
        bounds.admin_connections = 200;
        settings.bounds(bounds)
    })
    .unwrap();
    let mut open: Vec<Events> = (0..40).map(|_| Events::open(&running, "")).collect();
    let statuses: Vec<u16> = open.iter_mut().map(Events::status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 32, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    drop(open);
    until("there is room again", || Events::open(&running, "").status() == 200);
}

#[test]
fn a_denial_is_found_by_the_id_of_its_decision() {
    let mut running = Running::start(POLICY);
    let http = running.server().address(Listener::Http).unwrap();
    let hostile = "<img src=x onerror=alert(1)>";
    let body = json!({ "attributes": { "user": hostile, "plan": "free" } }).to_string();
    let check = || ask(http, "POST", "/v1/check", &[], &body).json();
    let [_, _, last] = [check(), check(), check()];
    assert_eq!(last["allowed"], false);
    let id = last["decision_id"].as_str().unwrap();
    let find = |query: &str| running.admin_ok("GET", &format!("/admin/v1/denials?{query}"), "");
    let found = find(&format!("decision_id={id}"));
    let denial = &found["denials"][0];
    assert_eq!((&denial["decision_id"], &denial["rule"]), (&json!(id), &json!("per-user")));
    assert_eq!(denial["attributes"], json!({ "user": hostile, "plan": "free" }));
    assert_eq!(
        (&denial["key"], &denial["listener"]),
        (&json!({ "user": hostile }), &json!("http"))
    );
    assert_eq!(denial["rules"], last["rules"], "as in the response");
    let count = |query: &str| find(query)["denials"].as_array().unwrap().len();
    assert_eq!((count("text=ONERROR"), count("text=bob"), count("rule=x")), (1, 0, 0));
    assert_eq!((count("decision_id=00000000000000ff"), count("limit=1")), (0, 1));

    // Every protocol: here the local socket, in a batch, and RESP.
    let user = json!({ "type": "check", "attributes": { "user": hostile } });
    let of_socket = running.caller().ask(&user);
    let batch = json!({ "requests": [{ "attributes": { "user": hostile } }] }).to_string();
    let of_batch = ask(http, "POST", "/v1/check/batch", &[], &batch).json()["results"][0].clone();
    let mut resp = TcpStream::connect(running.server().address(Listener::Resp).unwrap()).unwrap();
    resp.set_read_timeout(Some(PATIENCE)).unwrap();
    let words = ["TG.CHECK", "default", "ATTR", "user", hostile];
    let command = words.iter().fold(format!("*{}\r\n", words.len()), |text, word| {
        text + &format!("${}\r\n{word}\r\n", word.len())
    });
    resp.write_all(command.as_bytes()).unwrap();
    let mut reply = vec![0; 4096];
    let length = resp.read(&mut reply).unwrap();
    let reply = String::from_utf8_lossy(&reply[..length]).into_owned();
    let after = reply.split("decision_id\r\n").nth(1).unwrap_or_else(|| panic!("{reply}"));
    let of_resp = json!({ "decision_id": after.lines().nth(1).unwrap() });
    for (listener, of) in [("unix", &of_socket), ("http", &of_batch), ("resp", &of_resp)] {
        let id = of["decision_id"].as_str().unwrap_or_else(|| panic!("{of}"));
        assert_eq!(find(&format!("decision_id={id}"))["denials"][0]["listener"], listener);
    }
    running.stop();
}

#[test]
fn a_flood_of_denials_leaves_room_for_other_keys() {
    let running = Running::start(POLICY);
    let http = running.server().address(Listener::Http).unwrap();
    let check = |user: &str| {
        let requests = vec![json!({ "attributes": { "user": user } }); 500];
        let batch = json!({ "requests": requests }).to_string();
        ask(http, "POST", "/v1/check/batch", &[], &batch).with(200)
    };
    let _ = check("flood");
    let _ = check("ada");
    let found = running.admin_ok("GET", "/admin/v1/denials?text=ada", "");
    assert!(!found["denials"].as_array().unwrap().is_empty(), "{found}");
    assert!(found["not_kept"].as_u64().unwrap() > 0 && found["kept"].as_u64().unwrap() < 500);
}

#[test]
fn values_of_denials_are_hidden_where_keys_are() {
    let running = Running::start(&format!("[server]\nlog_keys = \"hashed\"\n{POLICY}"));
    let http = running.server().address(Listener::Http).unwrap();
    for _ in 0..3 {
        ask(http, "POST", "/v1/check", &[], r#"{"attributes":{"user":"secret-ada"}}"#);
    }
    let text = running.ask("GET", "/admin/v1/denials", "").with(200).body;
    assert!(text.contains("decision_id") && !text.contains("secret-ada"), "{text}");
}

/// A peek in a batch is no decision, so it is neither counted nor in a sample.
#[test]
fn peeks_in_a_batch_are_not_counted() {
    let running = Running::start(POLICY);
    let http = running.server().address(Listener::Http).unwrap();
    let batch = json!({ "requests": [{ "attributes": { "user": "ada" }, "peek": true }] });
    let _ = ask(http, "POST", "/v1/check/batch", &[], &batch.to_string()).with(200);
    let rules = running.admin_ok("GET", "/admin/v1/rules", "");
    assert_eq!(
        (&rules["rules"][0]["allowed"], &rules["rules"][0]["denied"]),
        (&json!(0), &json!(0))
    );
}
