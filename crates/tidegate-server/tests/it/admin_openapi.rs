//! Whether requests to the admin listener conform to the OpenAPI document, and need the scopes that
//! it says.

use std::fs;

use serde_json::{Value, json};
use tidegate_server::Listener;

use crate::openapi::{Operation, errors, operation, operations};
use crate::running::{HttpReply, Running, ask};

const POLICY: &str = r#"
    [[rule]]
    name   = "per user/é"
    domain = "api"
    key    = ["user"]
    window = { max = 1, per = "1h" }

    [[rule]]
    name   = "turns"
    domain = "game"
    quota  = { max = 1, per = "round" }
"#;

/// Tokens with the secrets `admin`, `inspect`, `read` and `one`, by their digests.
const TOKENS: &str = r#"
    [[token]]
    name   = "admin"
    sha256 = "8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918"
    scopes = ["admin"]

    [[token]]
    name   = "inspect"
    sha256 = "14a60637758cb026afd2fe447f3648a07965072eeefaa9ee57734959bce8ae2b"
    scopes = ["inspect"]

    [[token]]
    name   = "read"
    sha256 = "3316348dbadfb7b11c7c2ea235949419e23f9fa898ad2c198f999617912a9925"
    scopes = ["read"]

    [[token]]
    name   = "one"
    sha256 = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    scopes = ["inspect"]
    limit  = "1/h"
"#;

/// The paths that only show something.
const READS: [&str; 10] = [
    "status",
    "policy",
    "rules",
    "overrides",
    "bans",
    "audit",
    "top",
    "usage",
    "denials",
    "history",
];

fn start() -> Running {
    Running::start_with(POLICY, |settings| {
        let path = std::env::temp_dir().join(format!("tgo-{}.toml", std::process::id()));
        fs::write(&path, TOKENS).unwrap();
        settings.tokens(path)
    })
    .unwrap()
}

/// Sends a request, and asserts that the document has the request, and does not call a body invalid
/// that the daemon accepts. The client has compared the response with the document.
#[track_caller]
fn send(daemon: &Running, token: &str, (method, path): (&str, &str), body: &Value) -> HttpReply {
    let bearer = format!("Bearer {token}");
    let text = match body {
        Value::Null => String::new(),
        Value::String(toml) => toml.clone(),
        table => table.to_string(),
    };
    let kind = if body.is_string() { "application/toml" } else { "application/json" };
    let mut headers = vec![("Content-Type", kind)];
    if !token.is_empty() {
        headers.push(("Authorization", &bearer));
    }
    let target = format!("/admin/v1/{path}");
    let reply = ask(daemon.admin(), method, &target, &headers, &text);
    let operation = operation(method, &target).unwrap();
    if !body.is_null() {
        let content = format!("{}/requestBody/content", operation.pointer());
        let errors = errors(&format!("{content}/{}/schema", kind.replace('/', "~1")), body);
        assert!(errors.is_empty() || reply.status == 422, "{method} {path}: {errors:?}: {reply:?}");
    }
    if let Some((_, query)) = path.split_once('?') {
        let name = query.split('=').next().unwrap();
        let mut known = operation.value["parameters"].as_array().unwrap().iter();
        assert_eq!(known.any(|it| it["name"] == name), reply.status != 422 || query == "since=x");
    }
    reply
}

/// Every operation, with requests that are allowed and such that are not.
#[test]
pub(crate) fn requests_and_responses_of_the_admin_api_conform_to_the_document() {
    let daemon = start();
    let check = json!({ "type": "check", "domain": "api", "attributes": { "user": "ada" } });
    let mut caller = daemon.caller();
    for _ in 0..3 {
        caller.ask(&check);
    }
    let rule = "rules/api/per%20user%2F%C3%A9";
    let of_rule = json!({ "domain": "api", "rule": "per user/é", "key": { "user": "ada" } });
    let mut set = of_rule.clone();
    set["max"] = json!(7);
    let ban = json!({ "domain": "api", "match": { "user": ["eve", "bob"] } });
    let mut ban_for = ban.clone();
    ban_for["for"] = json!("1h");
    ban_for["reason"] = json!("no");
    let edits = [
        (("PUT", "policy"), json!({ "policy": POLICY.replace("max = 1", "max = 2") })),
        (("PUT", "policy"), json!(format!("[server]\nmax_keys = 1000\n{POLICY}"))),
        (("PUT", "policy"), json!("[[rule]]\nname = 'x'\nburst = 1\n")),
        (("PATCH", rule), json!({ "window": { "max": 3 } })),
        (("PATCH", rule), json!({ "name": "y" })),
        (("PATCH", "rules/api/unknown"), json!({ "mode": "shadow" })),
        (("PUT", "overrides"), set),
        (("PUT", "overrides"), json!({ "rule": 7 })),
        (("DELETE", "overrides"), of_rule.clone()),
        (("DELETE", "overrides"), of_rule),
        (("PATCH", rule), json!("cooldown = '1h'")),
        (("POST", "bans"), ban_for),
        (("POST", "bans"), json!({ "match": 7 })),
    ];
    for ((method, path), body) in &edits {
        send(&daemon, "admin", (method, path), body);
        for path in READS {
            send(&daemon, "admin", ("GET", path), &Value::Null);
        }
    }
    for ((method, path), body) in [
        (("GET", "bans"), Value::Null),
        (("DELETE", "bans"), ban.clone()),
        (("DELETE", "bans"), ban),
        (("POST", "keys/reset"), json!({ "domain": "api", "attributes": { "user": "ada" } })),
        (("POST", "keys/reset"), json!({ "all": true })),
        (("POST", "keys/reset"), json!({ "all": 1 })),
        (("POST", "rounds/close"), json!({ "domain": "game" })),
        (("POST", "rounds/close"), json!({ "domain": "nowhere" })),
        (("POST", "rounds/close"), json!("domain = 'game'")),
        (("POST", "rounds/close"), Value::Null),
        (("DELETE", "overlay"), Value::Null),
        (
            ("POST", "explain"),
            json!({ "domain": "api", "attributes": { "user": "ada" }, "cost": 2 }),
        ),
        (("GET", "audit?since=2"), Value::Null),
        (("GET", "audit?since=x"), Value::Null),
        (("GET", "top?count=1"), Value::Null),
        (("GET", "top?size=1"), Value::Null),
        (("GET", "audit"), Value::Null),
    ] {
        send(&daemon, "admin", (method, path), &body);
    }
    without_the_scope(&daemon);
    looks_at_traffic(&daemon);
}

/// Requests without a token, with another one, and beyond the limit of one.
fn without_the_scope(daemon: &Running) {
    for (token, path, status) in [
        ("", "status", 401),
        ("wrong", "status", 401),
        ("read", "status", 403),
        ("one", "top", 200),
    ] {
        send(daemon, token, ("GET", path), &Value::Null).with(status);
    }
    send(daemon, "one", ("GET", "status"), &Value::Null).with(429);
}

/// Explanations, usage, previews and denials.
fn looks_at_traffic(daemon: &Running) {
    for ((method, path), body) in [
        (("POST", "explain"), json!({ "domain": "api", "cost": "x" })),
        (("POST", "usage"), json!({ "domain": "api", "attributes": { "user": "ada" } })),
        (("POST", "usage"), json!({ "attributes": 7 })),
        (("POST", "preview"), json!({ "policy": POLICY.replace("max = 1,", "max = 2,") })),
        (("POST", "preview"), json!({ "policy": "[[rule]]" })),
        (
            ("POST", "preview"),
            json!({ "domain": "api", "rule": "per user/é", "change": { "window": { "max": 2 } } }),
        ),
        (("POST", "preview"), json!({ "rule": "unknown", "change": {} })),
        (("GET", "denials?decision_id=00000000000000ff"), Value::Null),
        (("GET", "denials?id=1"), Value::Null),
    ] {
        send(daemon, "inspect", (method, path), &body);
    }
}

#[test]
fn the_scope_in_the_document_is_the_one_that_is_needed() {
    let daemon = start();
    let mut count = 0;
    for operation in operations().filter(|it| it.path.starts_with("/admin/")) {
        let path = operation.path.replace("{domain}", "api").replace("{name}", "x");
        let method = operation.method.to_uppercase();
        let scope = match operation.value["security"].as_array().unwrap().as_slice() {
            [bearer, token, certificate] => {
                assert_eq!(bearer["bearer"], token["token"]);
                assert_eq!(bearer["bearer"], certificate["certificate"]);
                bearer["bearer"][0].as_str().unwrap()
            }
            other => panic!("{other:?}"),
        };
        let denied = |token: &str| daemon.ask_as(token, &method, &path, "").status == 403;
        assert!(denied("read"), "{method} {path}");
        assert_eq!(denied("inspect"), scope == "admin", "{method} {path}");
        assert!(!denied("admin"), "{method} {path}");
        count += 1;
    }
    assert_eq!(count, 22);
}

#[test]
pub(crate) fn scopes_of_the_http_api_are_in_the_document() {
    let daemon = start();
    let http = daemon.server().address(Listener::Http).unwrap();
    // The secret of `inspect`, which has no scope that any of these operations needs.
    let inspect = [("Tidegate-Token", "inspect"), ("Content-Type", "application/json")];
    for Operation { method, path, value } in operations() {
        if path.starts_with("/admin/") {
            continue;
        }
        let method = method.to_uppercase();
        let target = path.replace("{id}", &"0".repeat(32)).replace("{namespace}", "x");
        let body = if method == "POST" { "{}" } else { "" };
        let reply = ask(http, &method, &target, &inspect, body);
        let anonymous = ask(http, &method, &target, &inspect[1..], body);
        let security = value["security"].as_array().unwrap();
        let is_for_proxies = path.starts_with("/check/");
        let (no_token, no_scope) = if is_for_proxies { (503, 503) } else { (401, 403) };
        match security.first() {
            None => assert!(![401, 403].contains(&anonymous.status), "{method} {path}"),
            Some(first) => {
                assert_eq!(anonymous.status, no_token, "{method} {path}");
                assert_eq!(first.get("bearer").is_none(), is_for_proxies, "{method} {path}");
                let scopes = first.as_object().unwrap().values().next().unwrap();
                if scopes.as_array().is_some_and(|scopes| !scopes.is_empty()) {
                    assert_eq!(reply.status, no_scope, "{method} {path}: {reply:?}");
                }
            }
        }
    }
}

#[test]
fn both_listeners_serve_the_same_document_to_clients_with_a_token() {
    let daemon = start();
    let http = daemon.server().address(Listener::Http).unwrap();
    let token = [("Authorization", "Bearer read")];
    let of_http = ask(http, "GET", "/openapi.json", &token, "").with(200);
    let of_admin = daemon.ask_as("read", "GET", "/openapi.json", "").with(200);
    assert!(of_admin.head.contains("content-type: application/json"), "{}", of_admin.head);
    assert_eq!(of_http.body, of_admin.body);
    let _ = daemon.ask("GET", "/openapi.json", "").with(401);
}
