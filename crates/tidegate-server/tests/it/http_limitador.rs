//! Limitador's HTTP API with a file of Limitador, and a file of envoyproxy/ratelimit over HTTP.

use serde_json::{Value, json};
use tidegate::policy::Policy;
use tidegate_server::Settings;

use crate::http_support::{Reply, Running};

fn daemon(text: &str) -> Running {
    let parsed = Policy::load("limits.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
    Running::start(Settings::on_free_ports(parsed))
}

const LIMITS: &str = r#"
- namespace: toystore
  max_value: 2
  seconds: 3600
  name: gets
  conditions:
    - "descriptors[0]['method'] == 'GET'"
    - "descriptors[0].user != 'admin'"
  variables: [user]
- {namespace: toystore, max_value: 5, seconds: 60}
- {namespace: closed, max_value: 0, seconds: 1, conditions: ["int(size) >= 3"]}
"#;

fn ask(daemon: &Running, path: &str, user: &str, delta: u64) -> Reply {
    let values = json!({ "method": "GET", "user": user });
    let body = json!({ "namespace": "toystore", "values": values, "delta": delta });
    daemon.post(path, &body.to_string())
}

#[test]
fn check_charges_nothing_and_check_and_report_does() {
    let daemon = daemon(LIMITS);
    for _ in 0..3 {
        assert_eq!(ask(&daemon, "/check", "ada", 2).status, 200);
    }
    assert_eq!(ask(&daemon, "/check", "ada", 3).status, 429);
    let allowed = ask(&daemon, "/check_and_report", "ada", 2);
    assert_eq!((allowed.status, allowed.json()), (200, Value::Null));
    assert!(allowed.header("x-ratelimit-limit").is_none());
    let denied = ask(&daemon, "/check_and_report", "ada", 1);
    assert_eq!((denied.status, &*denied.body), (429, &b"Too many requests"[..]));
    assert_eq!(ask(&daemon, "/check", "ada", 1).status, 429);
    assert_eq!(ask(&daemon, "/check_and_report", "admin", 1).status, 200, "not in the condition");
}

#[test]
fn status_is_null() {
    let reply = daemon(LIMITS).get("/status");
    assert_eq!((reply.status, reply.json()), (200, Value::Null));
}

#[test]
fn headers_are_sent_on_request() {
    for name in ["DraftVersion03", "DRAFT_VERSION_03"] {
        assert_headers(name);
    }
}

#[track_caller]
fn assert_headers(name: &str) {
    let daemon = daemon(LIMITS);
    let body = json!({
        "namespace": "toystore", "delta": 1, "response_headers": name,
        "values": { "method": "GET", "user": "ada" },
    });
    let reply = daemon.post("/check_and_report", &body.to_string());
    assert_eq!(reply.status, 200);
    let limit = reply.header("x-ratelimit-limit").unwrap();
    assert!(limit.starts_with("2, ") && limit.contains("2;w=3600;name=\"gets\""), "{limit}");
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("1"));
    assert!(reply.header("x-ratelimit-reset").is_some());
}

#[test]
fn array_is_no_request() {
    let daemon = daemon(LIMITS);
    let values = json!({ "method": "GET", "user": "ada" });
    let body = json!(["toystore", values, 1, null]);
    assert_eq!(daemon.post("/check_and_report", &body.to_string()).status, 400);
}

#[test]
fn reports_are_charged_and_never_denied() {
    let daemon = daemon(LIMITS);
    assert_eq!(ask(&daemon, "/report", "ada", 0).status, 200);
    assert_eq!(ask(&daemon, "/report", "ada", 1).json(), Value::Null);
    assert_eq!(ask(&daemon, "/check", "ada", 2).status, 429);
    assert_eq!(ask(&daemon, "/check", "ada", 1).status, 200);
    // A cost beyond the limit is charged up to it.
    assert_eq!(ask(&daemon, "/report", "ada", 3).status, 200);
    assert_eq!(ask(&daemon, "/check", "ada", 1).status, 429);
    assert_eq!(ask(&daemon, "/report", "ada", 1).status, 200);
    // The limit for all has counted 1 and 3.
    assert_eq!(ask(&daemon, "/check", "bob", 1).status, 200);
    assert_eq!(ask(&daemon, "/check", "bob", 2).status, 429);
}

#[test]
fn limits_are_listed_in_the_form_of_limitador() {
    let daemon = daemon(LIMITS);
    let user = "descriptors[0]['user']";
    assert_eq!(
        daemon.get("/limits/toystore").json(),
        json!([
            {
                "id": null, "namespace": "toystore", "max_value": 2, "seconds": 3600, "name": "gets",
                "conditions": [format!("{user} != 'admin'"), "descriptors[0]['method'] == 'GET'"],
                "variables": [user],
            },
            {
                "id": null, "namespace": "toystore", "max_value": 5, "seconds": 60,
                "name": "5 per 60s", "conditions": [], "variables": [],
            },
        ])
    );
    let closed = daemon.get("/limits/%63losed").json();
    assert_eq!(closed[0]["max_value"], 0);
    assert_eq!(closed[0]["conditions"], json!(["int(descriptors[0]['size']) >= 3"]));
    for path in ["/limits/nowhere", "/limits/%ff"] {
        assert_eq!(daemon.get(path).json(), json!([]), "{path}");
    }
    assert_eq!(daemon.get("/counters/toystore").status, 404);
}

#[test]
fn invalid_bodies_are_rejected() {
    let daemon = daemon(LIMITS);
    for path in ["/check", "/report", "/check_and_report"] {
        let post = |body: &str| daemon.post(path, body).status;
        assert_eq!(post(r#"{"namespace":"nowhere","values":{},"delta":1}"#), 200, "{path}");
        assert_eq!(post(r#"{"namespace":"toystore","values":{}}"#), 400);
        assert_eq!(post(r#"{"namespace":"toystore","values":{"a":1},"delta":1}"#), 400);
        assert_eq!(post(r#"{"namespace":"toystore","values":{},"delta":-1}"#), 400);
        assert_eq!(post("["), 400);
        let values: Value = (0..65).map(|it| (format!("k{it}"), json!("v"))).collect();
        let many = json!({ "namespace": "toystore", "values": values, "delta": 1 });
        assert_eq!(post(&many.to_string()), 400);
        assert_eq!(daemon.get(path).status, 405);
    }
    // Paths with the same prefix are not affected.
    assert_eq!(daemon.get("/check/forward").status, 200);
}

#[test]
fn attributes_are_entries_in_a_domain_of_descriptors() {
    let daemon = daemon(
        "domain: ai
descriptors:
  - key: model
    value: banned
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: plan
    descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]
",
    );
    let check = |attributes: &str| {
        let body = format!(r#"{{"domain":"ai","attributes":{attributes}}}"#);
        daemon.post("/v1/check", &body).status
    };
    assert_eq!(check(r#"{"model":"banned"}"#), 429);
    assert_eq!(check(r#"{"plan":"free","user":"ada"}"#), 200);
    assert_eq!(check(r#"{"plan":"free","user":"ada"}"#), 429);
    assert_eq!(check(r#"{"plan":"free","user":"bob"}"#), 200);
}
