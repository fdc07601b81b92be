//! Whether the document is what is served, and requests to the HTTP listener conform to it.

use serde_json::Value;

use crate::http_support::{Reply, Running};
use crate::openapi::{DOCUMENT, errors, operations};

const POLICY: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    window = { max = 3, per = "1h" }

    [[rule]]
    name   = "watched"
    match  = { plan = "free" }
    mode   = "shadow"
    window = { max = 1, per = "1h" }

    [[rule]]
    name   = "tried"
    domain = "tried"
    mode   = "shadow"
    window = { max = 1, per = "1h" }
    cost   = { by = "tier", "1..=4" = 1 }

    [[rule]]
    name   = "calls"
    domain = "calls"
    slots  = { max = 1, expires = "5m" }
"#;

#[test]
fn the_document_in_the_repository_is_what_is_served() {
    let daemon = Running::new(POLICY);
    let served = daemon.get("/openapi.json");
    assert_eq!(served.header("content-type"), Some("application/json"));
    assert_eq!(String::from_utf8(served.body).unwrap(), include_str!("../../openapi.json"));
}

/// Asserts that the document says which bodies are valid, and which headers a response has. The
/// client has compared the response with the document.
#[track_caller]
fn assert_agrees((method, path): (&str, &str), body: Option<&str>, reply: &Reply) {
    let it = operations().find(|it| it.method.eq_ignore_ascii_case(method) && it.path == path);
    let it = it.unwrap_or_else(|| panic!("{method} {path} is not in the document"));
    if let Some(body) = body.and_then(|body| serde_json::from_str(body).ok()) {
        let schema = format!("{}/requestBody/content/application~1json/schema", it.pointer());
        let is_valid = errors(&schema, &body).is_empty();
        assert_eq!(is_valid, reply.status != 422, "{path}: {body} got {}", reply.status);
    }
    let response = &it.value["responses"][reply.status.to_string()];
    let Some(headers) = response.get("headers").and_then(Value::as_object) else { return };
    let has_limit = reply.body.is_empty() || !reply.json()["limit"].is_null();
    for name in headers.keys().filter(|_| has_limit) {
        let is_present = reply.header(&name.to_ascii_lowercase()).is_some();
        assert!(is_present || name == "Retry-After", "{method} {path}: {name}");
    }
}

#[test]
pub(crate) fn requests_and_responses_conform_to_the_document() {
    let daemon = Running::new(POLICY);
    let ask = |path: &str, pattern: &str, body: &str| {
        let reply = daemon.post(path, body);
        assert_agrees(("POST", pattern), Some(body), &reply);
        reply
    };
    let same = |path: &str, body: &str| ask(path, path, body);
    let ada = r#"{"attributes":{"user":"ada","plan":"free"}}"#;
    for status in [200, 200, 200, 429] {
        assert_eq!(same("/v1/check", ada).status, status);
    }
    same("/v1/check", r#"{"domain":"elsewhere","cost":0,"peek":true}"#);
    same("/v1/check", r#"{"attributes":{"user":7},"cost":18446744073709551615}"#);
    same("/v1/check", "{}");
    same("/v1/explain", ada);
    same("/v1/usage", ada);
    same("/v1/explain", r#"{"domain":"calls","attributes":{}}"#);
    same("/v1/explain", r#"{"domain":"tried","attributes":{}}"#);
    for invalid in [r#"{"x":1}"#, r#"{"cost":-1}"#, r#"{"attributes":{"a":null}}"#, "[]", "{"] {
        same("/v1/check", invalid);
        same("/v1/check/batch", &format!(r#"{{"requests":[{{}},{invalid}]}}"#));
    }
    same("/v1/check/batch", &format!(r#"{{"requests":[{ada},{ada},{{}}]}}"#));
    let batch = daemon.post("/v1/check/batch", r#"{"requests":[{"domain":"calls"}]}"#);
    assert_agrees(("POST", "/v1/check/batch"), None, &batch);
    let ends = [("commit", r#"{"actual":1}"#, 200), ("commit", "{}", 200), ("cancel", "{}", 204)];
    for (end, body, status) in ends {
        let held = same("/v1/reserve", r#"{"attributes":{"user":"bob"}}"#).json();
        let id = held["reservation"].as_str().unwrap();
        let path = format!("/v1/reservations/{id}/{end}");
        let pattern = format!("/v1/reservations/{{id}}/{end}");
        assert_eq!(ask(&path, &pattern, body).status, status);
        assert_eq!(ask(&path, &pattern, body).status, status, "the same again");
        let other = if end == "commit" { "cancel" } else { "commit" };
        let other_path = format!("/v1/reservations/{id}/{other}");
        let other_pattern = format!("/v1/reservations/{{id}}/{other}");
        assert_eq!(ask(&other_path, &other_pattern, "").status, 409);
        assert_eq!(ask(&path, &pattern, r#"{"x":1}"#).status, 422);
        same("/v1/refund", &format!(r#"{{"reservation":"{id}"}}"#));
    }
    assert_eq!(same("/v1/reserve", ada).status, 429);
    same("/v1/refund", r#"{"attributes":{"user":"ada"},"amount":1}"#);
    same("/v1/refund", r#"{"attributes":{"user":"ada"},"amount":0}"#);
    let lease = same("/v1/acquire", r#"{"domain":"calls"}"#).json();
    assert_eq!(same("/v1/acquire", r#"{"domain":"calls","wait_ms":0}"#).status, 429);
    same("/v1/acquire", r#"{"domain":"calls","wait_ms":60001}"#);
    same("/v1/acquire", r#"{"wait_ms":60000}"#);
    let path = format!("/v1/leases/{}", lease["lease"].as_str().unwrap());
    ask(&format!("{path}/renew"), "/v1/leases/{id}/renew", "{}");
    for status in [204, 410] {
        let reply = daemon.client().ask("DELETE", &path, &[], b"");
        assert_eq!(reply.status, status);
        assert_agrees(("DELETE", "/v1/leases/{id}"), None, &reply);
    }
}

#[test]
pub(crate) fn responses_to_proxies_and_probes_conform_to_the_document() {
    let daemon = Running::new(
        "[[rule]]\nname = \"per-client\"\nkey = [\"ip\"]\nwindow = { max = 1, per = \"1h\" }",
    );
    for (method, path, client) in [
        ("GET", "/check/forward", "192.0.2.1"),
        ("POST", "/check/forward", "192.0.2.2"),
        ("GET", "/check/nginx", "192.0.2.3"),
        ("POST", "/check/nginx", "192.0.2.4"),
    ] {
        for _ in 0..2 {
            let reply = daemon.client().ask(method, path, &[("X-Forwarded-For", client)], b"");
            assert_agrees((method, path), None, &reply);
        }
    }
    let call =
        r#"{"domain":"default","descriptors":[{"entries":[{"key":"ip","value":"192.0.2.5"}]}]}"#;
    for status in [200, 429] {
        assert_eq!(daemon.post("/json", call).status, status);
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_agrees(("GET", path), None, &daemon.get(path));
    }
}

#[test]
fn every_ref_resolves_and_operation_ids_are_unique() {
    let document = &*DOCUMENT;
    let mut names = Vec::new();
    let mut left = vec![document];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(pointer)) = object.get("$ref") {
                    let pointer = pointer.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{pointer}");
                }
                names.extend(object.get("operationId"));
                left.extend(object.values());
            }
            Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    let all = names.len();
    names.sort_by_key(|name| name.to_string());
    names.dedup();
    assert_eq!(names.len(), all, "operation ids are unique");
}
