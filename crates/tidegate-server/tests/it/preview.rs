//! Previews: what an edit would have changed, against what it changes.

use serde_json::{Value, json};
use tidegate_server::Listener;

use crate::running::{Folder, Running, ask};

const POLICY: &str = r#"
[[rule]]
name   = "per-user"
domain = "api"
key    = ["user"]
window = { max = 3, per = "1h" }

[[rule]]
name   = "everyone"
domain = "api"
window = { max = 20, per = "1h" }

[[rule]]
name   = "month"
domain = "llm"
key    = ["customer"]
quota  = { max = 100, per = "month" }

[[rule]]
name   = "by-network"
domain = "net"
key    = ["ip"]
window = { max = 3, per = "1h" }
override = [{ key = { ip = "198.51.100.7" }, max = 1 }]

[[rule]]
name   = "jobs"
domain = "jobs"
slots  = { max = 2 }
"#;

fn check(running: &Running, domain: &str, attribute: (&str, &str), cost: u64) -> bool {
    let http = running.server().address(Listener::Http).unwrap();
    let body = json!({
        "domain": domain, "attributes": { attribute.0: attribute.1 }, "cost": cost,
    });
    ask(http, "POST", "/v1/check", &[], &body.to_string()).json()["allowed"] == true
}

fn preview(running: &Running, domain: &str, rule: &str, change: Value) -> Value {
    let body = json!({ "domain": domain, "rule": rule, "change": change }).to_string();
    running.admin_ok("POST", "/admin/v1/preview", &body)
}

/// The estimate for the only rule.
#[track_caller]
fn estimate(preview: &Value) -> &Value {
    let estimate = &preview["rules"][0]["estimate"];
    assert!(estimate.is_object(), "{preview}");
    estimate
}

#[test]
fn a_preview_has_what_the_edit_would_have_changed() {
    let running = Running::start(POLICY);
    // Five of ada, two of bob; ada's last two are denied.
    for user in ["ada", "bob", "ada", "ada", "ada", "bob", "ada"] {
        check(&running, "api", ("user", user), 1);
    }
    let lower = preview(&running, "api", "per-user", json!({ "window": { "max": 1 } }));
    assert_eq!(lower["lines"], json!(["rule `per-user` of domain `api`: window.max 3 → 1"]));
    let it = estimate(&lower);
    assert_eq!((&it["is_exact"], &it["share"]), (&json!(true), &json!(1.0)));
    assert_eq!((&it["requests"], &it["keys"]), (&json!(7), &json!(2)));
    assert_eq!((&it["denied_before"], &it["denied_after"]), (&json!(2), &json!(5)));
    assert_eq!((&it["newly_denied"], &it["keys_newly_denied"]), (&json!(3), &json!(2)));
    assert_eq!(it["top"][0]["key"], json!({ "user": "ada" }));
    let higher = preview(&running, "api", "per-user", json!({ "window": { "max": 4 } }));
    assert_eq!(estimate(&higher)["no_longer_denied"], 1);
    let shadow = preview(&running, "api", "per-user", json!({ "mode": "shadow" }));
    assert_eq!(estimate(&shadow)["denied_after"], 0);
    // Of the other rule two requests do not count, because this one denied them.
    let other = preview(&running, "api", "everyone", json!({ "window": { "max": 4 } }));
    assert_eq!(estimate(&other)["denied_after"], 1);
    assert_eq!(estimate(&other)["is_exact"], true);
    // Nothing of it is in force, or charged.
    let rules = running.admin_ok("GET", "/admin/v1/rules", "");
    assert_eq!(rules["rules"][0]["rule"]["window"]["max"], 3);
    assert!(check(&running, "api", ("user", "bob"), 1));
}

/// After a restart a quota on disk is as it was, and the sample is empty.
#[test]
fn a_preview_counts_what_was_used_before_the_sample() {
    let store = Folder::new();
    let folder = store.path().join("state");
    let start = || Running::start_with(POLICY, |settings| settings.store_folder(Some(&folder)));
    let mut first = start().unwrap();
    assert!(check(&first, "llm", ("customer", "acme"), 60));
    first.stop();
    let second = start().unwrap();
    assert!(check(&second, "llm", ("customer", "acme"), 30));
    let lower = preview(&second, "llm", "month", json!({ "quota": { "max": 80 } }));
    assert_eq!(estimate(&lower)["newly_denied"], 1, "{lower}");
    let same = preview(&second, "llm", "month", json!({ "quota": { "max": 90 } }));
    assert_eq!(estimate(&same)["newly_denied"], 0, "{same}");
}

#[test]
fn overrides_and_networks_count_in_a_preview() {
    let running = Running::start(POLICY);
    for ip in ["198.51.100.7", "203.0.113.9", "2001:db8::1", "2001:db8::2"] {
        check(&running, "net", ("ip", ip), 1);
        check(&running, "net", ("ip", ip), 1);
    }
    let lower = preview(&running, "net", "by-network", json!({ "window": { "max": 2 } }));
    let it = estimate(&lower);
    // The overridden address had one of two denied before, too; the two of the network share.
    assert_eq!((&it["keys"], &it["is_exact"]), (&json!(3), &json!(true)), "{lower}");
    assert_eq!((&it["denied_before"], &it["denied_after"]), (&json!(2), &json!(3)), "{lower}");
    let set = r#"{"domain":"net","rule":"by-network","key":{"ip":"203.0.113.9"},"max":1}"#;
    running.admin_ok("PUT", "/admin/v1/overrides", set);
    let after = preview(&running, "net", "by-network", json!({ "window": { "max": 2 } }));
    // The override at run time is over both; the rule as it is now decides otherwise than it did.
    let it = estimate(&after);
    assert_eq!((&it["denied_before"], &it["is_exact"]), (&json!(3), &json!(false)), "{after}");
}

#[test]
fn what_cannot_be_estimated_says_why() {
    let running = Running::start(POLICY);
    check(&running, "api", ("user", "ada"), 1);
    for (domain, rule, change, why) in [
        ("api", "per-user", json!({ "key": ["ip"] }), "other keys"),
        ("api", "per-user", json!({ "match": { "plan": "free" } }), "other requests"),
        ("api", "per-user", json!({ "cost": 2 }), "other units"),
        ("api", "per-user", json!({ "group": "g" }), "group"),
        ("jobs", "jobs", json!({ "slots": { "max": 3 } }), "slots"),
        ("llm", "month", json!({ "quota": { "max": 3 } }), "no request"),
    ] {
        let preview = preview(&running, domain, rule, change);
        let text = preview["rules"][0]["why_not"].as_str().unwrap_or_default();
        assert!(text.contains(why), "{preview}");
        assert_eq!(preview["rules"][0]["estimate"], Value::Null);
    }
    let fresh = preview(&running, "api", "per-user", json!({ "key": ["ip"] }));
    assert_eq!(fresh["rules"][0]["starts_fresh"], true);
    let body = r#"{"domain":"api","rule":"per-user","change":{"window":{"max":-1}}}"#;
    let _ = running.ask("POST", "/admin/v1/preview", body).with(422);
    let body = r#"{"domain":"api","rule":"per-user","change":{"bucket":{"rate":"1/s"}}}"#;
    let other = running.admin_ok("POST", "/admin/v1/preview", body);
    assert_eq!(other["rules"][0]["starts_fresh"], true, "another algorithm");
}

#[test]
fn a_whole_policy_can_be_previewed() {
    let running = Running::start(POLICY);
    for _ in 0..3 {
        check(&running, "api", ("user", "ada"), 1);
    }
    let edited = POLICY.replace("max = 3, per = \"1h\" }\n\n[[rule]]\nname   = \"everyone\"", {
        "max = 2, per = \"1h\" }\n\n[[rule]]\nname   = \"everyone\""
    });
    let edited = edited.replace("name   = \"jobs\"", "name   = \"new-jobs\"");
    let body = json!({ "policy": edited }).to_string();
    let preview = running.admin_ok("POST", "/admin/v1/preview", &body);
    let lines: Vec<_> = preview["lines"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("window.max 3 → 2") && lines[1].contains("added"), "{lines:?}");
    assert_eq!(preview["rules"][0]["estimate"]["newly_denied"], 1, "{preview}");
    let of_toml = running.admin_ok("POST", "/admin/v1/preview", &edited);
    assert_eq!(of_toml["lines"], preview["lines"], "as TOML, too");
    let broken = json!({ "policy": POLICY.replace("max = 20", "max = 0") }).to_string();
    let reply = running.ask("POST", "/admin/v1/preview", &broken).with(422).json();
    assert_eq!(reply["errors"][0]["line"], 11, "{reply}");
}
