//! Decisions over HTTP.

use serde_json::{Value, json};

use crate::http_support::{Reply, Running};

const POLICY: &str = r#"
    [[rule]]
    name   = "per-user"
    domain = "api"
    key    = ["user"]
    window = { max = 3, per = "1h" }

    [[rule]]
    name   = "all-users"
    domain = "api"
    window = { max = 100, per = "1h" }

    [[rule]]
    name   = "priced"
    domain = "shop"
    cost   = { by = "tier", "1..=4" = 1, "5..=6" = 2 }
    window = { max = 10, per = "1h" }

    [[rule]]
    name   = "calls"
    domain = "calls"
    slots  = { max = 1 }
"#;

fn check(daemon: &Running, body: &str) -> Reply {
    daemon.post("/v1/check", body)
}

#[test]
fn a_check_reports_remaining_units_until_it_is_denied() {
    let daemon = Running::new(POLICY);
    let mut client = daemon.client();
    let ask = r#"{"domain":"api","attributes":{"user":"ada"}}"#;
    for left in [2, 1, 0] {
        let reply = client.post("/v1/check", ask);
        assert_eq!(reply.status, 200);
        let json = reply.json();
        assert_eq!(json["allowed"], true);
        assert_eq!((&json["rule"], &json["limit"]), (&json!("per-user"), &json!(3)));
        assert_eq!(json["remaining"], left);
        assert_eq!(json["retry_after_ms"], 0);
        assert_eq!(json.get("reason"), None);
        assert_eq!(json["rules"].as_array().unwrap().len(), 2);
    }
    let reply = client.post("/v1/check", ask);
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let limits = r#""per-user";q=3;w=3600, "all-users";q=100;w=3600"#;
    assert_eq!(reply.header("ratelimit-policy"), Some(limits));
    assert!(reply.header("ratelimit").unwrap().starts_with(r#""per-user";r=0;t="#));
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3_600).contains(&seconds));
    let json = reply.json();
    assert_eq!(json["allowed"], false);
    let wait_ms = json["retry_after_ms"].as_u64().unwrap();
    assert_eq!(wait_ms.div_ceil(1_000), seconds, "rounded up, both from the same wait");
    assert!(json["reason"].as_str().unwrap().contains("per-user"));
    assert_eq!(json["rules"][0]["allowed"], false);
    assert_eq!(json["rules"][1]["remaining"], 97, "a denial is not charged");
}

#[test]
fn a_peek_charges_nothing() {
    let daemon = Running::new(POLICY);
    for body in [
        r#"{"domain":"api","attributes":{"user":"ada"},"cost":3,"peek":true}"#,
        r#"{"domain":"api","attributes":{"user":"ada"},"cost":0}"#,
    ] {
        let reply = check(&daemon, body);
        assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(3)));
    }
    let reply = check(&daemon, r#"{"domain":"api","attributes":{"user":"ada"},"cost":4}"#);
    assert_eq!(reply.status, 429);
    assert_eq!(reply.json()["retry"], "never");
    assert_eq!(reply.json()["retry_after_ms"], Value::Null);
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn integers_are_their_decimal_text() {
    let daemon = Running::new(POLICY);
    for user in ["7", "\"7\"", "\"\\u0037\""] {
        let reply =
            check(&daemon, &format!(r#"{{"domain":"api","attributes":{{"user":{user}}}}}"#));
        assert_eq!(reply.status, 200);
    }
    assert_eq!(check(&daemon, r#"{"domain":"api","attributes":{"user":7}}"#).status, 429);
    assert_eq!(check(&daemon, r#"{"domain":"api","attributes":{"user":-7}}"#).status, 200);
}

#[test]
fn unmatched_requests_are_allowed_and_missing_attributes_denied() {
    let daemon = Running::new(POLICY);
    let reply = check(&daemon, r#"{"domain":"elsewhere"}"#);
    assert_eq!((reply.status, &reply.json()["rule"]), (200, &Value::Null));
    assert_eq!(check(&daemon, "{}").status, 200, "the domain defaults to `default`");
    let reply = check(&daemon, r#"{"domain":"api"}"#);
    assert_eq!((reply.status, &reply.json()["retry"]), (429, &json!("never")));
    assert!(reply.json()["reason"].as_str().unwrap().contains("needs the attribute `user`"));
}

#[test]
fn a_check_repeated_with_its_idempotency_key_is_charged_once() {
    let daemon = Running::new(POLICY);
    let ask = |key: &str, body: &str| {
        daemon.client().ask("POST", "/v1/check", &[("Idempotency-Key", key)], body.as_bytes())
    };
    let body = r#"{"domain":"api","attributes":{"user":"ada"}}"#;
    for _ in 0..5 {
        assert_eq!(ask("once", body).json()["remaining"], 2);
    }
    let other = ask("once", r#"{"domain":"api","attributes":{"user":"bob"}}"#);
    assert_eq!(other.problem().0, 422);
    assert_eq!(ask("", body).problem().0, 422);
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    let reply = daemon.client().ask("POST", "/v1/check", &twice, body.as_bytes());
    assert_eq!(reply.problem().0, 422);
    for path in ["/v1/acquire", "/v1/check/batch"] {
        let reply = daemon.client().ask("POST", path, &[("idempotency-key", "a")], b"{}");
        assert!(reply.problem().1.contains("/v1/reserve and /v1/refund"), "{path}");
    }
}

#[test]
fn a_refund_repeated_with_its_idempotency_key_happens_once() {
    let daemon = Running::new(POLICY);
    let refund = |name: &str, body: &str| {
        daemon.client().ask("POST", "/v1/refund", &[("Idempotency-Key", name)], body.as_bytes())
    };
    let left = || {
        let peek = r#"{"domain":"api","attributes":{"user":"ada"},"peek":true}"#;
        daemon.post("/v1/check", peek).json()["remaining"].as_u64()
    };
    let ask = r#"{"domain":"api","attributes":{"user":"ada"},"cost":2}"#;
    assert_eq!(daemon.post("/v1/check", ask).status, 200);
    let one = r#"{"domain":"api","attributes":{"user":"ada"},"amount":1}"#;
    for _ in 0..3 {
        assert_eq!(refund("once", one).json(), json!({ "refunded": 1 }));
        assert_eq!(left(), Some(2));
    }
    let other = r#"{"domain":"api","attributes":{"user":"ada"},"amount":2}"#;
    assert_eq!(refund("once", other).problem().0, 422);
    let reserved = daemon.post("/v1/reserve", ask).json();
    let id = reserved["reservation"].as_str().unwrap().to_owned();
    assert_eq!(daemon.post(&format!("/v1/reservations/{id}/commit"), "").status, 200);
    let body = format!(r#"{{"reservation":"{id}","amount":1}}"#);
    for _ in 0..3 {
        assert_eq!(refund("of it", &body).json(), json!({ "refunded": 1 }));
        assert_eq!(left(), Some(1));
    }
    let more = format!(r#"{{"reservation":"{id}","amount":2}}"#);
    assert_eq!(refund("of it", &more).problem().0, 422);
    // A key belongs to its reservation, and that of another request to its domain.
    assert_eq!(refund("once", &body).json(), json!({ "refunded": 1 }));
    assert_eq!(left(), Some(2));
}

#[test]
fn a_batch_is_a_list_of_decisions() {
    let daemon = Running::with(POLICY, |bounds| bounds.batch = 7);
    let reply = daemon.post(
        "/v1/check/batch",
        r#"{"requests":[
            {"domain":"api","attributes":{"user":"ada"},"cost":2},
            {"domain":"api","attributes":{"user":"ada"},"cost":2,"peek":true},
            {"domain":"api","attributes":{"user":"ada"}},
            {"domain":"shop","attributes":{"tier":9}},
            {"domain":"calls"},
            {"domain":"api","attributes":{"user":"ada"}},
            {"domain":"api","attributes":{"user":"bob"}}]}"#,
    );
    assert_eq!(reply.status, 200);
    let json = reply.json();
    let results = json["results"].as_array().unwrap();
    let allowed: Vec<_> =
        results.iter().map(|it| it.get("allowed").map(|it| it.as_bool().unwrap())).collect();
    let [yes, no] = [Some(true), Some(false)];
    assert_eq!(allowed, [yes, no, yes, None, None, no, yes]);
    assert_eq!(results[3]["status"], 422);
    assert_eq!(results[3]["pointer"], "/attributes/tier");
    assert!(results[4]["detail"].as_str().unwrap().contains("acquire"));
    let many = format!(r#"{{"requests":[{}{{}}]}}"#, "{},".repeat(7));
    let (status, detail, pointer) = daemon.post("/v1/check/batch", &many).problem();
    assert_eq!((status, pointer.as_deref()), (422, Some("/requests")));
    assert!(detail.contains("more than 7 requests"));
    assert_eq!(daemon.post("/v1/check/batch", r#"{"requests":[]}"#).json()["results"], json!([]));
}

#[test]
fn every_invalid_value_is_reported_with_its_pointer() {
    let daemon = Running::new(POLICY);
    let table = [
        (r#"{"domian":"api"}"#, "/domian", "unknown field `domian`; known fields: `domain`"),
        (r#"{"cost":-1}"#, "/cost", "a whole number from 0"),
        (r#"{"cost":1.5}"#, "/cost", "a whole number from 0"),
        (r#"{"cost":1.0}"#, "/cost", "a whole number from 0"),
        (r#"{"cost":"1"}"#, "/cost", "a whole number from 0"),
        (r#"{"cost":null}"#, "/cost", "a whole number from 0"),
        (r#"{"cost":18446744073709551616}"#, "/cost", "a whole number from 0"),
        (r#"{"peek":1}"#, "/peek", "true or false"),
        (r#"{"domain":["api"]}"#, "/domain", "a string"),
        (r#"{"attributes":[]}"#, "/attributes", "an object of attributes"),
        (r#"{"attributes":{"a/b~c":null}}"#, "/attributes/a~1b~0c", "a string or a whole number"),
        (r#"{"attributes":{"a":1.5}}"#, "/attributes/a", "a string or a whole number"),
        (r#"{"attributes":{"a":{}}}"#, "/attributes/a", "a string or a whole number"),
        (r#"{"attributes":{"a":"1","a":"2"}}"#, "/attributes/a", "twice"),
        (r#"{"cost":1,"cost":1}"#, "/cost", "twice"),
        ("[]", "", "an object"),
        ("null", "", "an object"),
        ("17", "", "an object"),
    ];
    for (body, expected, what) in table {
        let (status, detail, pointer) = check(&daemon, body).problem();
        assert_eq!((status, pointer.as_deref()), (422, Some(expected)), "{body}: {detail}");
        assert!(detail.contains(what), "{body}: {detail}");
    }
    let batch = r#"{"requests":[{},{"cost":-1}]}"#;
    let (_, _, pointer) = daemon.post("/v1/check/batch", batch).problem();
    assert_eq!(pointer.as_deref(), Some("/requests/1/cost"));
    let many: Vec<_> = (0..65).map(|number| format!(r#""a{number}":1"#)).collect();
    let many = format!(r#"{{"attributes":{{{}}}}}"#, many.join(","));
    assert_eq!(check(&daemon, &many).problem().2.as_deref(), Some("/attributes"));
    let shop = check(&daemon, r#"{"domain":"shop","attributes":{"tier":9}}"#);
    assert_eq!(shop.problem().2.as_deref(), Some("/attributes/tier"));
    let calls = check(&daemon, r#"{"domain":"calls"}"#).problem();
    assert_eq!((calls.0, calls.2.as_deref()), (422, Some("/domain")));
}

#[test]
fn json_errors_have_line_and_column() {
    let daemon = Running::new(POLICY);
    let table = [
        ("", 1, 0),
        ("{", 1, 1),
        ("{\"domain\":\n  api}", 2, 3),
        ("{} {}", 1, 4),
        ("{\"domain\":\"\\ud800\"}", 1, 18),
        ("{\"domain\":\"\n\"}", 2, 0),
    ];
    for (body, line, column) in table {
        let reply = daemon.client().ask("POST", "/v1/check", &[], body.as_bytes());
        assert_eq!(reply.problem().0, 400, "{body}");
        let json = reply.json();
        assert_eq!((&json["line"], &json["column"]), (&json!(line), &json!(column)), "{body}");
    }
    let not_utf8 = b"{\"domain\":\"\xff\"}";
    assert_eq!(daemon.client().ask("POST", "/v1/check", &[], not_utf8).problem().0, 400);
}

#[test]
fn unknown_paths_methods_types_and_origins_are_rejected() {
    let daemon = Running::new(POLICY);
    assert_eq!(daemon.get("/v2/check").problem().0, 404);
    assert_eq!(daemon.get("/v1/check/").problem().0, 404);
    assert_eq!(daemon.post("/v1/leases/a/b/renew", "").problem().0, 404);
    let table = [
        ("GET", "/v1/check", "POST"),
        ("POST", "/v1/leases/0123", "DELETE"),
        ("DELETE", "/healthz", "GET, HEAD"),
    ];
    for (method, path, allow) in table {
        let reply = daemon.client().ask(method, path, &[], b"");
        assert_eq!(reply.problem().0, 405);
        assert_eq!(reply.header("allow"), Some(allow));
    }
    let typed = |kind: &str| {
        daemon.client().ask("POST", "/v1/check", &[("Content-Type", kind)], b"{}").status
    };
    assert_eq!(typed("Application/JSON; charset=utf-8"), 200);
    assert_eq!(typed("application/vnd.tidegate+json"), 200);
    assert_eq!(typed("application/x-www-form-urlencoded"), 200, "the type of curl -d");
    assert_eq!(typed("text/plain"), 415);
    assert_eq!(typed("multipart/form-data; boundary=x"), 415);
    let page = [("Origin", "https://example.com")];
    assert_eq!(daemon.client().ask("POST", "/v1/check", &page, b"{}").problem().0, 403);
    let call = br#"{"domain": "elsewhere", "descriptors": [{}], "hitsAddend": 1.0}"#;
    for kind in ["text/plain", "application/octet-stream"] {
        let kind = [("Content-Type", kind)];
        assert_eq!(daemon.client().ask("POST", "/json", &kind, call).status, 200, "{kind:?}");
    }
    assert_eq!(daemon.client().ask("POST", "/json", &page, call).problem().0, 403);
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(daemon.get(path).status, 200, "{path}");
    }
    let mut client = daemon.client();
    client.send(b"HEAD /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
    let head = String::from_utf8(client.rest()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"));
}

#[test]
fn headers_follow_the_dialect_of_the_policy() {
    let policy = format!("[server]\nheaders = \"x-ratelimit\"\n{POLICY}");
    let daemon = Running::new(&policy);
    let reply = check(&daemon, r#"{"domain":"api","attributes":{"user":"ada"}}"#);
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(reply.header("ratelimit"), None);
    let daemon = Running::new(&policy.replace("x-ratelimit", "none"));
    let reply = check(&daemon, r#"{"domain":"api","attributes":{"user":"ada"},"cost":4}"#);
    assert!(!reply.headers.iter().any(|(name, _)| name.contains("ratelimit")));
}

#[test]
fn an_explanation_covers_every_rule() {
    let daemon = Running::new(
        r#"
        [[rule]]
        name   = "posts"
        match  = { method = "POST" }
        window = { max = 1, per = "1h" }

        [[rule]]
        name   = "all"
        key    = ["user"]
        window = { max = 1, per = "1h" }
    "#,
    );
    let ask = r#"{"attributes":{"method":"GET","user":"ada"}}"#;
    assert_eq!(check(&daemon, ask).status, 200);
    let json = daemon.post("/v1/explain", ask).json();
    assert_eq!((&json["allowed"], &json["rule"]), (&json!(false), &json!("all")));
    assert!(json["next_allowed"].as_str().unwrap() > json["time"].as_str().unwrap());
    assert_eq!(json["rules"][0]["applies"], false);
    assert_eq!(json["rules"][0]["why"], r#"does not match: method is "GET""#);
    assert_eq!(json["rules"][1]["key"], json!({ "user": "ada" }));
    assert_eq!(json["rules"][1]["denies"], true);
    assert_eq!(daemon.post("/v1/explain", ask).json()["remaining"], 0, "it changes nothing");
}

#[test]
fn a_cost_table_without_a_row_is_explained_in_shadow_mode_and_an_error_when_enforced() {
    let rule = |name: &str, mode: &str| {
        format!(
            "[[rule]]\nname = '{name}'\ndomain = '{mode}'\nmode = '{mode}'\nkey = ['user']\n\
             missing = 'share'\nwindow = {{ max = 9, per = '1h' }}\n\
             cost = {{ by = 'tier', '1..=4' = 1 }}\n"
        )
    };
    let daemon = Running::new(&[rule("tried", "shadow"), rule("priced", "enforce")].concat());
    for (attributes, table) in [
        (json!({ "user": "ada", "tier": "7" }), r#"does not cover tier = "7""#),
        (json!({ "user": "ada" }), "needs tier"),
        (json!({}), "needs tier"),
    ] {
        let ask = |domain: &str| json!({ "domain": domain, "attributes": attributes }).to_string();
        assert_eq!(check(&daemon, &ask("shadow")).status, 200);
        let reply = daemon.post("/v1/explain", &ask("shadow"));
        assert_eq!(reply.status, 200, "{reply:?}");
        let (json, why) = (reply.json(), "does not apply, as it is in shadow mode: its cost table");
        assert_eq!((&json["allowed"], &json["rule"]), (&json!(true), &json!(null)));
        let expected = json!([
            { "rule": "tried", "applies": false, "denies": false, "why": format!("{why} {table}") },
        ]);
        assert_eq!(json["rules"], expected);
        assert_eq!(check(&daemon, &ask("enforce")).status, 422);
        assert_eq!(daemon.post("/v1/explain", &ask("enforce")).status, 422);
    }
    let covered = r#"{"domain":"shadow","attributes":{"tier":"3"}}"#;
    assert_eq!(daemon.post("/v1/explain", covered).json()["rules"][0]["applies"], true);
}

#[test]
fn decisions_are_counted() {
    let daemon = Running::new(POLICY);
    let ada = r#"{"domain":"api","attributes":{"user":"ada"}}"#;
    let batch = format!(r#"{{"requests":[{ada},{ada}]}}"#);
    assert_eq!(check(&daemon, ada).status, 200);
    assert_eq!(daemon.post("/v1/check/batch", &batch).status, 200);
    assert_eq!(check(&daemon, ada).status, 429);
    assert_eq!(check(&daemon, "{").status, 400);
    let reply = daemon.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(reply.body).unwrap();
    for (outcome, count) in [("\"allow\"", 3), ("\"deny\"", 1)] {
        let is_it = |line: &&str| {
            line.starts_with("tidegate_decisions_total")
                && line.contains("per-user")
                && line.contains(outcome)
        };
        let line = text.lines().find(is_it).unwrap_or_else(|| panic!("{text}"));
        assert!(line.ends_with(&format!(" {count}")), "{line}");
    }
    assert!(!text.contains("ada"), "a key is never a label");
    assert_eq!(daemon.get("/readyz").json(), json!({ "ready": true }));
}
