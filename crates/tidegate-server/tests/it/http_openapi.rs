//! The OpenAPI document, and whether requests and responses conform to it.

use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::http_support::{Reply, Running};

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

/// `TIDEGATE_BLESS=1` rewrites the committed document.
#[test]
fn the_committed_reference_is_what_is_served() {
    let daemon = Running::new(POLICY);
    let served = daemon.get("/openapi.json");
    assert_eq!(served.header("content-type"), Some("application/json"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &served.body).unwrap();
    }
    let committed: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_default())
            .unwrap_or_default();
    assert!(
        committed == served.json(),
        "docs/reference/openapi.json is out of date: run\n  \
         TIDEGATE_BLESS=1 cargo test -p tidegate-server --test it reference"
    );
}

/// The document of a running daemon.
struct Reference {
    document: Value,
}

impl Reference {
    fn of(daemon: &Running) -> Self {
        Self { document: daemon.get("/openapi.json").json() }
    }

    /// A validator for a schema of the document.
    fn validator(&self, schema: &Value) -> Validator {
        let mut root = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": self.document["components"],
        });
        root.as_object_mut().unwrap().extend(schema.as_object().unwrap().clone());
        jsonschema::validator_for(&root).unwrap()
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        &self.document["paths"][path][method.to_ascii_lowercase()]
    }

    /// Asserts that an exchange conforms to the document, and that its body is valid unless it got
    /// a 422.
    #[track_caller]
    fn assert_agrees(&self, (method, path): (&str, &str), body: Option<&str>, reply: &Reply) {
        let operation = self.operation(method, path);
        if let Some(body) = body.and_then(|body| serde_json::from_str(body).ok()) {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let is_valid = self.validator(schema).is_valid(&body);
            assert_eq!(is_valid, reply.status != 422, "{path}: {body} got {}", reply.status);
        }
        let response = &operation["responses"][reply.status.to_string()];
        assert!(response.is_object(), "{method} {path}: {} is not in the document", reply.status);
        let Some(content) = response.get("content") else { return assert!(reply.body.is_empty()) };
        let kind = reply.header("content-type").unwrap().split(';').next().unwrap();
        if kind != "text/plain" {
            let validator = self.validator(&content[kind]["schema"]);
            let json = reply.json();
            let errors: Vec<_> = validator.iter_errors(&json).map(|it| it.to_string()).collect();
            assert!(errors.is_empty(), "{method} {path}: {json:#}: {errors:?}");
        }
        let Some(headers) = response.get("headers").and_then(Value::as_object) else { return };
        let has_limit = reply.body.is_empty() || !reply.json()["limit"].is_null();
        for name in headers.keys().filter(|_| has_limit) {
            let is_present = reply.header(&name.to_ascii_lowercase()).is_some();
            assert!(is_present || name == "Retry-After", "{method} {path}: {name}");
        }
    }
}

#[test]
fn requests_and_responses_conform_to_the_reference() {
    let daemon = Running::new(POLICY);
    let reference = Reference::of(&daemon);
    let ask = |path: &str, pattern: &str, body: &str| {
        let reply = daemon.post(path, body);
        reference.assert_agrees(("POST", pattern), Some(body), &reply);
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
    same("/v1/explain", r#"{"domain":"calls","attributes":{}}"#);
    same("/v1/explain", r#"{"domain":"tried","attributes":{}}"#);
    for invalid in [r#"{"x":1}"#, r#"{"cost":-1}"#, r#"{"attributes":{"a":null}}"#, "[]", "{"] {
        same("/v1/check", invalid);
        same("/v1/check/batch", &format!(r#"{{"requests":[{{}},{invalid}]}}"#));
    }
    same("/v1/check/batch", &format!(r#"{{"requests":[{ada},{ada},{{}}]}}"#));
    let batch = daemon.post("/v1/check/batch", r#"{"requests":[{"domain":"calls"}]}"#);
    reference.assert_agrees(("POST", "/v1/check/batch"), None, &batch);
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
    let path = format!("/v1/leases/{}", lease["lease"].as_str().unwrap());
    ask(&format!("{path}/renew"), "/v1/leases/{id}/renew", "{}");
    for status in [204, 410] {
        let reply = daemon.client().ask("DELETE", &path, &[], b"");
        assert_eq!(reply.status, status);
        reference.assert_agrees(("DELETE", "/v1/leases/{id}"), None, &reply);
    }
}

#[test]
fn responses_to_proxies_and_probes_conform_to_the_reference() {
    let daemon = Running::new(
        "[[rule]]\nname = \"per-client\"\nkey = [\"ip\"]\nwindow = { max = 1, per = \"1h\" }",
    );
    let reference = Reference::of(&daemon);
    for path in ["/check/forward", "/check/nginx"] {
        let from =
            [("X-Forwarded-For", if path.ends_with('x') { "192.0.2.1" } else { "192.0.2.2" })];
        for _ in 0..2 {
            let reply = daemon.client().ask("GET", path, &from, b"");
            reference.assert_agrees(("GET", path), None, &reply);
        }
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        reference.assert_agrees(("GET", path), None, &daemon.get(path));
    }
}

#[test]
fn every_ref_resolves_and_operation_ids_are_unique() {
    let daemon = Running::new(POLICY);
    let document = Reference::of(&daemon).document;
    let mut names = Vec::new();
    let mut left = vec![&document];
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
