//! Whether every response of the OpenAPI document, and every field of a response, exists.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tidegate::redis::Redis;
use tidegate_server::{Bounds, Listener};

use crate::http_support::Apart;
use crate::openapi::{Operation, operations, unseen};
use crate::running::{Folder, HttpReply, Running, ask, until};

const POLICY: &str = r#"
[[rule]]
name     = "denies"
key      = ["user"]
window   = { max = 100, per = "1h" }
on_error = "deny"

[[rule]]
name     = "shares"
domain   = "shares"
window   = { max = 4, per = "1h" }
on_error = { local = 0.5 }

[[rule]]
name     = "tabled"
domain   = "tabled"
window   = { max = 4, per = "1h" }
cost     = { by = "tier", "1..=4" = 1 }

[[rule]]
name     = "owed"
domain   = "owed"
key      = ["user"]
quota    = { max = 1, per = "day" }
mode     = "shadow"
postpaid = true

[[rule]]
name     = "turns"
domain   = "turns"
quota    = { max = 4, per = "round" }

[[rule]]
name     = "calls"
domain   = "calls"
slots    = { max = 1, expires = "5m" }
on_error = "deny"
"#;

const ALL_SCOPES: &str =
    "scopes = ['check', 'settle', 'lease', 'read', 'inspect', 'admin']\nname = 'all'";

/// Bodies that are JSON.
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Requests and tests of this binary that together receive every response, and every field of every
/// body.
#[test]
fn every_response_and_field_of_the_document_exists() {
    let tests: &[fn()] = &[
        crate::http_openapi::requests_and_responses_conform_to_the_document,
        crate::http_openapi::responses_to_proxies_and_probes_conform_to_the_document,
        crate::admin_openapi::requests_and_responses_of_the_admin_api_conform_to_the_document,
        crate::access::a_revoked_token_loses_its_connections,
        crate::admin::unknown_paths_and_methods_are_errors,
        crate::dashboard::events_follow_the_decisions,
        crate::policy_watcher::a_changed_file_is_reloaded_and_one_with_errors_is_not,
        crate::postpaid::what_was_booked_is_shown,
        crate::shared_store::the_lag_of_replicas_and_the_keys_are_in_the_status_and_in_the_metrics,
        crate::tls::reloads::a_bad_certificate_keeps_the_old_one_and_is_reported,
        crate::usage::in_memory_overrides_and_the_busiest_keys_have_names,
        crate::usage::usage_over_http_has_every_rule_whose_key_is_given,
        without_access,
        with_bad_requests,
        without_the_store,
        with_a_full_disk,
        with_a_debt,
        with_settings_that_need_a_restart,
    ];
    tests.iter().for_each(|test| test());
    let mut missing = unseen();
    missing.retain(|it| !UNSEEN.iter().any(|part| it.contains(part)));
    assert!(missing.is_empty(), "no response of the tests has them: {missing:#?}");
}

/// Sends a request of an operation to its listener.
fn send(daemon: &Running, it: Operation<'_>, headers: &[(&str, &str)], body: &str) -> HttpReply {
    let path = it.path.replace("{id}", &"0".repeat(32));
    let path = path.replace("{domain}", "default").replace("{name}", "denies");
    ask(address(daemon, it), &it.method.to_uppercase(), &path, headers, body)
}

fn address(daemon: &Running, it: Operation<'_>) -> SocketAddr {
    match it.path.starts_with("/admin/") {
        true => daemon.admin(),
        false => daemon.server().address(Listener::Http).unwrap(),
    }
}

fn is_for_proxies(it: Operation<'_>) -> bool {
    it.path.starts_with("/check/")
}

/// Requests without sufficient credentials.
fn without_access() {
    let limited = format!("{ALL_SCOPES}\nlimit = '1/h'").replace("'all'", "'limited'");
    let daemon = Running::start_with_tokens(POLICY, &[("all", ALL_SCOPES), ("limited", &limited)]);
    let none = "name = 'none'\nscopes = ['check']\ndomains = ['elsewhere']";
    let confined = Running::start_with_tokens(POLICY, &[("none", none)]);
    let open = Running::start(POLICY);
    for it in operations().filter(|it| it.value["security"] != json!([])) {
        let body = if it.value["requestBody"].is_object() { "{}" } else { "" };
        let expect = |status: u16| if is_for_proxies(it) { 503 } else { status };
        let both = [JSON, ("Authorization", "Bearer all"), ("Tidegate-Token", "all")];
        let limited = [JSON, ("Tidegate-Token", "limited")];
        let elsewhere = [JSON, ("Tidegate-Token", "none")];
        send(&daemon, it, &[JSON], body).with(expect(401));
        if !is_for_proxies(it) {
            send(&daemon, it, &both, body).with(400);
        }
        let _ = send(&daemon, it, &limited, body);
        send(&daemon, it, &limited, body).with(expect(429));
        let _ = send(&confined, it, &elsewhere, body);
        send(&open, it, &[JSON, ("Host", "a-page.example")], body).with(expect(403));
    }
}

/// Requests whose id, type or body is not what it should be.
fn with_bad_requests() {
    let daemon = Running::start_with(POLICY, |settings| {
        let mut bounds = Bounds::default();
        bounds.body_bytes = 1000;
        settings.bounds(bounds)
    })
    .unwrap();
    for it in operations() {
        let _ = send(&daemon, it, &[JSON], "");
        if it.path.contains("{id}") {
            let malformed = Operation { path: &it.path.replace("{id}", "x"), ..it };
            send(&daemon, malformed, &[JSON], "").with(404);
        }
        if is_for_proxies(it) {
            let header =
                if it.path.ends_with("nginx") { "X-Original-Uri" } else { "X-Forwarded-Uri" };
            let _ = send(&daemon, it, &[(header, "/%zz")], "");
            let tabled = Operation { path: &format!("{}?domain=tabled", it.path), ..it };
            send(&daemon, tabled, &[], "").with(422);
        }
        if it.value["requestBody"].is_null() {
            continue;
        }
        let _ = send(&daemon, it, &[JSON], "{");
        let _ = send(&daemon, it, &[JSON], r#"{"domain":"nowhere","cost":-1}"#);
        let _ = send(&daemon, it, &[JSON], r#"{"domain":"nowhere","rule":"x","key":{}}"#);
        let most = match it.path {
            "/admin/v1/policy" | "/admin/v1/preview" => 16 << 20,
            _ => 3000,
        };
        send(&daemon, it, &[JSON], &" ".repeat(most + 1)).with(413);
        if !it.path.starts_with("/admin/") && it.path != "/json" {
            send(&daemon, it, &[("Content-Type", "text/plain")], "{}").with(415);
        }
        fields_are_the_known_ones(&daemon, it);
    }
}

/// The error of an unknown field lists the fields of a body: those of its schema.
fn fields_are_the_known_ones(daemon: &Running, it: Operation<'_>) {
    let schema = &it.value["requestBody"]["content"]["application/json"]["schema"];
    let Some(fields) = schema["properties"].as_object() else { return };
    let reply = send(daemon, it, &[JSON], r#"{"not a field":1}"#).with(422);
    let fields: Vec<_> = fields.keys().map(|name| format!("`{name}`")).collect();
    let expected = match &*fields {
        [] => "unknown field `not a field`; no fields are allowed here".to_owned(),
        some => format!("unknown field `not a field`; known fields: {}", some.join(", ")),
    };
    assert_eq!(reply.json()["detail"], expected, "{}", it.path);
}

/// Requests to a daemon whose store is away.
fn without_the_store() {
    let redis = Redis::builder("redis://127.0.0.1:1/").secret("a secret");
    let redis = redis.deadline(Duration::from_millis(100)).build().unwrap();
    let daemon = Running::start_with(POLICY, |settings| settings.redis(redis)).unwrap();
    for it in operations() {
        for domain in ["default", "shares", "calls"] {
            let body = json!({ "domain": domain, "attributes": { "user": "ada" } }).to_string();
            let body = if it.value["requestBody"].is_object() { &body } else { "" };
            let _ = send(&daemon, it, &[JSON], body);
        }
        if it.path.starts_with("/v1/") {
            let _ = send(&daemon, it, &[JSON], "{}");
        }
    }
    let refund = json!({ "reservation": "0".repeat(32) }).to_string();
    let address = daemon.server().address(Listener::Http).unwrap();
    ask(address, "POST", "/v1/refund", &[], &refund).with(503);
    ask(address, "GET", "/readyz?strict", &[], "").with(503);
}

/// Edits of a daemon whose disk is full.
fn with_a_full_disk() {
    let daemon = format!("store = \"file:state\"\n{POLICY}");
    let daemon = Apart::behind(Listener::Admin, "openapi-disk", &daemon);
    let rule = json!({ "rule": "denies", "key": { "user": "ada" } });
    let mut set = rule.clone();
    set["max"] = json!(7);
    let ban = json!({ "match": { "user": "eve" } });
    let edits = [
        ("PUT", "overrides", set),
        ("DELETE", "overrides", rule),
        ("POST", "bans", ban.clone()),
        ("DELETE", "bans", ban),
        ("PUT", "policy", json!({ "policy": POLICY })),
        ("PATCH", "rules/default/denies", json!({ "window": { "max": 7 } })),
        ("POST", "rounds/close", json!({ "domain": "turns" })),
        ("POST", "keys/reset", json!({ "all": true })),
    ];
    let send = |method: &str, path: &str, body: &str| {
        ask(daemon.address(), method, &format!("/admin/v1/{path}"), &[JSON], body)
    };
    send("GET", "status", "").with(200);
    daemon.limit_files("0");
    for (method, path, body) in edits {
        send(method, path, &body.to_string()).with(503);
    }
    send("GET", "status", "").with(200);
}

/// A key that has used more than its limit, of a rule that denies nothing.
fn with_a_debt() {
    let daemon = Running::start(POLICY);
    let body = json!({ "domain": "owed", "attributes": { "user": "ada" }, "cost": 7 }).to_string();
    let http = daemon.server().address(Listener::Http).unwrap();
    for _ in 0..2 {
        ask(http, "POST", "/v1/check", &[], &body).with(200);
    }
    let listed = daemon.admin_ok("GET", "/admin/v1/usage?domain=owed", "");
    assert_eq!(listed["keys"][0]["debt"], 13, "{listed}");
    daemon.ask("GET", "/admin/v1/usage?limit=x", "").with(422);
    let refund = json!({ "reservation": "0".repeat(32) }).to_string();
    ask(http, "POST", "/v1/refund", &[], &refund).with(410);
    let reset = json!({ "domain": "nowhere", "all": true }).to_string();
    daemon.ask("POST", "/admin/v1/keys/reset", &reset).with(404);
}

/// A policy file whose settings have changed.
fn with_settings_that_need_a_restart() {
    let folder = Folder::new();
    let path = folder.path().join("policy.toml");
    fs::write(&path, POLICY).unwrap();
    let daemon = Running::start_in(folder, POLICY, |it| it.policy_path(&path)).unwrap();
    fs::write(&path, format!("[server]\nhttp = \"127.0.0.1:1\"\n{POLICY}")).unwrap();
    until("the change is seen", || {
        !daemon.admin_ok("GET", "/readyz", "")["needs_restart"].is_null()
    });
}

/// Responses and fields that these tests do not provoke, as parts of their pointers.
const UNSEEN: &[&str] = &[
    // The time-out of the connection may end it before this response.
    "/responses/408",
    // Between the begin of a stop and the end of the connection.
    "/paths/~1healthcheck/get/responses/503",
    // Outages that `on_error` does not decide.
    "/paths/~1json/post/responses/503",
    "/paths/~1v1~1check~1batch/post/responses/503",
    "/paths/~1v1~1explain/post/responses/503",
    // A step of the rules takes ten seconds; a unit test of the history compares these fields.
    "/schemas/admin-history/properties/rules/properties/rules/items",
];
