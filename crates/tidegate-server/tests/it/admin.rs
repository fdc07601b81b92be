//! The admin listener: access, and what it serves.

use serde_json::{Value, json};

use crate::running::{Ending, POLICY, Running, ask, exchange};

const TOKENS: &[(&str, &str)] = &[
    ("write-it", "name = 'ops'\nscopes = ['admin']"),
    ("look-only", "name = 'eye'\nscopes = ['inspect']"),
];

fn with_tokens() -> Running {
    Running::start_with_tokens(POLICY, TOKENS)
}

#[test]
fn requests_need_the_token_if_one_is_set() {
    let running = with_tokens();
    for token in ["", "write-i", "write-it ", "write-itx", "WRITE-IT", "look-onl"] {
        let reply = running.ask_as(token, "GET", "/admin/v1/status", "");
        let is_padded = token == "write-it ";
        assert_eq!(reply.status, if is_padded { 200 } else { 401 }, "{token:?}");
    }
    let reply = running.ask("GET", "/admin/v1/status", "").with(401);
    assert!(reply.head.contains("www-authenticate: bearer"), "{reply:?}");
    assert!(reply.head.contains("application/problem+json"), "{reply:?}");
    let basic = [("Authorization", "Basic d3JpdGUtaXQ=")];
    let _ = ask(running.admin(), "GET", "/admin/v1/status", &basic, "").with(401);
    let twice = [("Authorization", "Bearer write-it"), ("Authorization", "Bearer no")];
    let _ = ask(running.admin(), "GET", "/admin/v1/status", &twice, "").with(400);
    // Unknown paths do not differ from known ones without a token.
    let _ = running.ask("GET", "/admin/v1/nothing", "").with(401);
    let _ = running.ask("GET", "/metrics", "").with(401);
    let _ = running.ask_as("look-only", "GET", "/metrics", "").with(200);
}

#[test]
fn the_read_only_token_changes_nothing() {
    let running = with_tokens();
    let reads = ["status", "policy", "rules", "overrides", "bans", "audit", "top", "usage"];
    for read in reads {
        let _ = running.ask_as("look-only", "GET", &format!("/admin/v1/{read}"), "").with(200);
    }
    let changes = [
        ("PUT", "policy", POLICY),
        ("DELETE", "overlay", ""),
        ("PATCH", "rules/default/per-user", r#"{"window":{"max":9}}"#),
        ("PUT", "overrides", r#"{"rule":"per-user","key":{"user":"a"},"unlimited":true}"#),
        ("DELETE", "overrides", r#"{"rule":"per-user","key":{"user":"a"}}"#),
        ("POST", "bans", r#"{"match":{"user":"a"}}"#),
        ("DELETE", "bans", r#"{"match":{"user":"a"}}"#),
        ("POST", "keys/reset", r#"{"attributes":{"user":"a"}}"#),
        ("POST", "rounds/close", r#"{"domain":"default"}"#),
    ];
    for (method, path, body) in changes {
        let path = format!("/admin/v1/{path}");
        let reply = running.ask_as("look-only", method, &path, body);
        assert_eq!(reply.status, 403, "{method} {path}: {reply:?}");
    }
    let status = running.ask_as("look-only", "GET", "/admin/v1/status", "").json();
    assert_eq!((&status["changes"], &status["edits"]), (&json!(0), &json!(false)));
}

#[test]
fn with_a_token_that_inspects_alone_no_client_may_write() {
    let running =
        Running::start_with_tokens(POLICY, &[("look", "name = 'a'\nscopes = ['inspect']")]);
    let _ = running.ask_as("look", "GET", "/admin/v1/policy", "").with(200);
    let _ = running.ask_as("look", "PUT", "/admin/v1/policy", POLICY).with(403);
    let _ = running.ask("PUT", "/admin/v1/policy", POLICY).with(401);
}

#[test]
fn requests_of_browser_pages_are_rejected_without_a_token() {
    let running = Running::start(POLICY);
    let get = |headers: &[(&str, &str)]| {
        ask(running.admin(), "GET", "/admin/v1/policy", headers, "").status
    };
    assert_eq!(get(&[]), 200);
    assert_eq!(get(&[("Host", "localhost:9090")]), 200);
    assert_eq!(get(&[("Host", "[::1]:9090")]), 200);
    assert_eq!(get(&[("Host", "rebound.example:9090")]), 403);
    assert_eq!(get(&[("Host", "127.0.0.1.rebound.example")]), 403);
    assert_eq!(get(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(get(&[("Origin", "null")]), 403);
    let tokens = with_tokens();
    let headers =
        [("Host", "admin.example"), ("Origin", "https://x"), ("Authorization", "Bearer write-it")];
    let _ = ask(tokens.admin(), "GET", "/admin/v1/policy", &headers, "").with(200);
}

#[test]
fn health_and_readiness_need_no_token() {
    let running = with_tokens();
    assert_eq!(running.ask("GET", "/healthz", "").with(200).body, "ok\n");
    assert_eq!(running.ask("GET", "/readyz", "").with(200).json()["ready"], true);
}

#[test]
fn secrets_are_not_shown() {
    let policy =
        format!("[server]\nstore_secret = 'hush-hush-hush-hush'\nmax_keys = 1000\n{POLICY}");
    let running = Running::start_with_tokens(&policy, TOKENS);
    let token = |path: &str, accept: &str| {
        let headers = [("Authorization", "Bearer look-only"), ("Accept", accept)];
        ask(running.admin(), "GET", path, &headers, "").with(200)
    };
    let json = token("/admin/v1/policy", "*/*");
    let text = token("/admin/v1/policy", "text/plain");
    for shown in [&json, &text, &token("/admin/v1/status", "*/*")] {
        for secret in ["write-it", "look-only", "hush"] {
            assert!(!shown.body.contains(secret), "{shown:?}");
        }
    }
    assert!(text.head.contains("text/plain"), "{text:?}");
    assert!(text.body.starts_with("[server]\nmax_keys = 1000\n"), "{text:?}");
    assert_eq!(json.json()["policy"].as_str(), Some(&*text.body));
    let status = token("/admin/v1/status", "*/*").json();
    assert_eq!(status["max_keys"], 1000);
    assert_eq!(status["store"]["kind"], "memory");
    assert_eq!(status["reload"]["failed"], 0);
}

#[test]
pub(crate) fn unknown_paths_and_methods_are_errors() {
    let running = Running::start(POLICY);
    for path in
        ["/index.html", "/admin", "/admin/v1/", "/admin/v1/polic", "/admin/v2/policy", "//x"]
    {
        let _ = running.ask("GET", path, "").with(404);
    }
    let reply = running.ask("POST", "/admin/v1/policy", "").with(405);
    assert!(reply.head.contains("allow: get, put"), "{reply:?}");
    let _ = running.ask("DELETE", "/admin/v1/status", "").with(405);
    let _ = running.ask("GET", "/admin/v1/rules/default/per-user", "").with(405);
}

#[test]
fn invalid_bodies_are_explained_and_change_nothing() {
    let running = Running::start(POLICY);
    let cases = [
        ("PUT", "policy", "", 400, "a policy in TOML"),
        ("PUT", "policy", "{", 400, "not JSON"),
        ("PUT", "policy", "{\"policy\": 7}", 422, "not a policy"),
        ("PUT", "policy", "[[rule]]\nname = 'x'\nwindow = { max = 0, per = '1h' }", 422, "max"),
        ("PATCH", "rules/default/none", "{}", 404, "no rule"),
        ("PATCH", "rules/default/per-user", "", 400, "a table"),
        ("PATCH", "rules/default/per-user", "x = ", 400, "not TOML"),
        ("PATCH", "rules/default/per-user", r#"{"name":"y"}"#, 422, "cannot be changed"),
        ("PATCH", "rules/default/per-user", r#"{"window":{"max":-1}}"#, 422, "max"),
        ("PATCH", "rules/default/per-user", r#"{"window":{"max":1e99}}"#, 422, "max"),
        ("PATCH", "rules/default/per-user", r#"{"windows":{}}"#, 422, "did you mean"),
        ("PATCH", "rules/default/per-user", r#"{"window":null}"#, 422, "limit"),
        ("PATCH", "rules/default/per-user", r#"{"key":[null]}"#, 422, "TOML"),
        ("PUT", "overrides", r#"{"rule":"per-user","unlimited":true}"#, 422, "key"),
        ("PUT", "overrides", r#"{"rule":"per-user","key":{"user":"a"}}"#, 422, "override"),
        ("PUT", "overrides", r#"{"rule":"per-user","key":{"ip":"a"},"max":1}"#, 422, "ip"),
        ("PUT", "overrides", r#"{"rule":7}"#, 422, "not text"),
        ("PUT", "overrides", r#"{"rule":"x","key":{"user":"a"},"max":1}"#, 404, "no rule"),
        ("DELETE", "overrides", r#"{"rule":"per-user","key":{"user":"a"}}"#, 404, "no such"),
        ("DELETE", "overrides", r#"{"rule":"per-user","max":7}"#, 422, "unknown field"),
        ("POST", "bans", r#"{"match":7}"#, 422, "match"),
        ("POST", "bans", r#"{"match":{},"for":"x"}"#, 422, "for"),
        (
            "POST",
            "bans",
            r#"{"match":{},"for":"1h","until":"2027-01-01T00:00:00Z"}"#,
            422,
            "exclude",
        ),
        ("POST", "bans", r#"{"matches":{}}"#, 422, "matches"),
        ("DELETE", "bans", r#"{"match":{"user":"a"}}"#, 404, "no such ban"),
        ("POST", "keys/reset", r#"{"attributes":[]}"#, 422, "not a table"),
        ("POST", "keys/reset", r#"{"all":1}"#, 422, "neither true nor false"),
        ("POST", "keys/reset", r#"{"all":true,"attributes":{}}"#, 422, "exclude each other"),
        ("POST", "keys/reset", r#"{"all":true,"domain":"nowhere"}"#, 404, "no rule is in domain"),
        ("POST", "keys/reset", r#"{"attributes":{"user":1.5}}"#, 422, "whole number"),
        ("POST", "rounds/close", r#"{"domain":"nowhere"}"#, 404, "no rule is in"),
        ("POST", "rounds/close", "{}", 422, "`domain` is missing"),
        ("GET", "audit?since=x", "", 422, "not a number"),
        ("GET", "audit?sinc=1", "", 422, "since=N"),
        ("GET", "top?count=-1", "", 422, "not a number"),
    ];
    for (method, path, body, status, says) in cases {
        let reply = running.ask(method, &format!("/admin/v1/{path}"), body);
        assert_eq!(reply.status, status, "{method} {path} {body}: {reply:?}");
        let problem = reply.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{method} {path} {body}: no {says:?} in {detail}");
        assert_eq!(problem["status"], status);
    }
    assert_eq!(running.admin_ok("GET", "/admin/v1/status", "")["changes"], 0);
}

#[test]
fn all_errors_of_a_policy_are_reported_with_their_positions() {
    let running = Running::start(POLICY);
    let policy = "[[rule]]\nname = 'x'\nwindow = { max = 0, per = '1h' }\nfoo = 1\n";
    let problem = running.ask("PUT", "/admin/v1/policy", policy).with(422).json();
    let errors = problem["errors"].as_array().unwrap();
    let lines: Vec<_> = errors.iter().map(|it| it["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [3, 4], "{problem}");
    assert!(errors.iter().all(|it| it["message"].is_string() && it["column"].is_u64()));
}

#[test]
fn malformed_requests_do_not_affect_other_clients() {
    let running = Running::start(POLICY);
    let valid =
        b"PUT /admin/v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd";
    let mut random = Random(1);
    for _ in 0..1_000 {
        let mut bytes = valid.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.byte(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.byte()),
            }
        }
        let _ = exchange(running.admin(), &bytes, Ending::Close);
    }
    let deep = format!("{}{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    let _ = running.ask("PATCH", "/admin/v1/rules/default/per-user", &deep).with(400);
    let long = "x".repeat(2 << 20);
    let _ = running.ask("POST", "/admin/v1/bans", &long).with(413);
    let _ = running.ask("PUT", "/admin/v1/policy", &format!("#{long}\n{POLICY}")).with(200);
    assert_eq!(running.admin_ok("GET", "/admin/v1/rules", "")["rules"][0]["name"], "per-user");
}

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next()).unwrap() % end.max(1)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.next() & 0xff).unwrap()
    }
}

#[test]
fn the_busiest_and_most_denied_keys_are_listed() {
    let running = Running::start(POLICY);
    let mut caller = running.caller();
    let check = |user: &str| json!({ "type": "check", "attributes": { "user": user } });
    for _ in 0..3 {
        caller.ask(&check("ada"));
    }
    caller.ask(&check("bob"));
    let top = running.admin_ok("GET", "/admin/v1/top?count=1", "");
    let first = |list: &str| -> Value { top[list][0]["key"][0][1].clone() };
    assert_eq!((first("busiest"), first("most_denied")), (json!("ada"), json!("ada")));
    assert_eq!(top["busiest"].as_array().unwrap().len(), 1);
    let rules = running.admin_ok("GET", "/admin/v1/rules", "");
    let rule = &rules["rules"][0];
    assert_eq!((&rule["allowed"], &rule["denied"]), (&json!(3), &json!(1)));
}

#[test]
fn metrics_have_admin_requests_wrong_tokens_and_the_process() {
    let running =
        Running::start_with_tokens(POLICY, &[("right", "name = 'a'\nscopes = ['admin']")]);
    for _ in 0..3 {
        running.ask_as("wrong", "GET", "/admin/v1/rules", "").with(401);
    }
    running.ask_as("right", "GET", "/admin/v1/rules", "").with(200);
    let metrics = running.ask_as("right", "GET", "/metrics", "").with(200).body;
    let value = |name: &str| -> String {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).into()
    };
    assert_eq!(value("tidegate_request_duration_seconds_count{listener=\"admin\"}"), "4");
    assert_eq!(value("tidegate_access_denied_total{listener=\"admin\",reason=\"unknown\"}"), "3");
    for name in ["process_resident_memory_bytes", "process_virtual_memory_bytes"] {
        assert!(value(name).parse::<u64>().unwrap() > 1 << 20, "{name}");
    }
    let open: u64 = value("process_open_fds").parse().unwrap();
    assert!((4..value("process_max_fds").parse().unwrap()).contains(&open), "{open}");
    // After 2020.
    let seconds = value("process_start_time_seconds");
    assert!(seconds.split('.').next().unwrap().parse::<u64>().unwrap() > 1_577_836_800);
}
