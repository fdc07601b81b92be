//! Edits by admins: in force at once, in the audit log, and without a reset of states.

use serde_json::{Value, json};
use tidegate_server::Settings;

use crate::running::{Caller, Folder, POLICY, Running};

fn check(running: &Running, user: &str) -> Value {
    running.caller().ask(&json!({ "type": "check", "attributes": { "user": user } }))
}

fn is_allowed(running: &Running, user: &str) -> bool {
    check(running, user)["allowed"].as_bool().unwrap()
}

#[test]
fn editing_a_rule_keeps_what_was_consumed() {
    let running = Running::start(POLICY);
    assert!(is_allowed(&running, "ada") && is_allowed(&running, "ada"));
    assert!(!is_allowed(&running, "ada"));
    let path = "/admin/v1/rules/default/per-user";
    let reply = running.admin_ok("PATCH", path, r#"{"window":{"max":3}}"#);
    assert_eq!((&reply["changes"], &reply["starts_fresh"]), (&json!(1), &json!(false)));
    assert!(is_allowed(&running, "ada"), "one more");
    assert!(!is_allowed(&running, "ada"), "and not three");
    let rules = running.admin_ok("GET", "/admin/v1/rules", "");
    let rule = &rules["rules"][0];
    assert_eq!(rule["origin"], "edited");
    assert_eq!(rule["rule"]["window"], json!({ "max": 3, "per": "1h" }));
    // In TOML as well, and with another kind of limit, which starts fresh.
    let reply = running.admin_ok("PATCH", path, "cooldown = '1h'\ndeny = 'later'");
    assert_eq!(reply["starts_fresh"], true);
    assert!(is_allowed(&running, "ada"));
    assert_eq!(check(&running, "ada")["reason"], "later");
    // Null removes a field.
    running.admin_ok("PATCH", path, r#"{"deny":null}"#);
    assert_ne!(check(&running, "ada")["reason"], "later");
    let policy = running.admin_ok("GET", "/admin/v1/policy", "");
    assert!(policy["policy"].as_str().unwrap().contains("max = 2"), "the policy itself: {policy}");
    assert!(policy["overlay"].as_str().unwrap().contains("cooldown = \"1h\""), "{policy}");
    assert_eq!(running.admin_ok("DELETE", "/admin/v1/overlay", "")["changes"], 1);
    assert!(!is_allowed(&running, "ada"), "as before the edits");
    assert_eq!(running.admin_ok("GET", "/admin/v1/policy", "")["overlay"], "");
}

#[test]
fn edits_stay_when_the_policy_is_replaced() {
    let running = Running::start(POLICY);
    running.admin_ok("POST", "/admin/v1/bans", r#"{"match":{"user":"eve"},"reason":"no"}"#);
    let changed = POLICY.replace("max = 2", "max = 1");
    let reply =
        running.admin_ok("PUT", "/admin/v1/policy", &format!("[server]\nhttp = 'off'\n{changed}"));
    assert_eq!(reply["needs_restart"], json!(["http"]));
    assert_eq!(reply["until"], "the daemon restarts");
    assert!(is_allowed(&running, "ada") && !is_allowed(&running, "ada"));
    assert!(!is_allowed(&running, "eve"));
    // The shown policy can be sent back.
    let shown = running.admin_ok("GET", "/admin/v1/policy", "");
    let shown = shown["policy"].as_str().unwrap();
    assert!(shown.starts_with("[server]\nhttp = \"off\"\n"), "with all settings: {shown}");
    let reply = running.admin_ok("PUT", "/admin/v1/policy", shown);
    assert_eq!((&reply["changes"], &reply["needs_restart"]), (&json!(0), &json!(["http"])));
    let as_json = json!({ "policy": POLICY }).to_string();
    assert_eq!(running.admin_ok("PUT", "/admin/v1/policy", &as_json)["needs_restart"], json!([]));
    assert!(is_allowed(&running, "ada"));
}

#[test]
fn overrides_are_set_listed_and_removed() {
    let running = Running::start(POLICY);
    let set = r#"{"rule":"per-user","key":{"user":"ada"},"max":4}"#;
    running.admin_ok("PUT", "/admin/v1/overrides", set);
    assert_eq!((0..9).filter(|_| is_allowed(&running, "ada")).count(), 4);
    assert_eq!((0..9).filter(|_| is_allowed(&running, "bob")).count(), 2);
    running.admin_ok(
        "PUT",
        "/admin/v1/overrides",
        "rule = 'per-user'\nkey = { user = 'bob' }\nunlimited = true\nuntil = 2200-01-01T00:00:00Z",
    );
    assert!((0..9).all(|_| is_allowed(&running, "bob")));
    let listed = running.admin_ok("GET", "/admin/v1/overrides", "");
    let listed = listed["overrides"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["key"], json!({ "user": "bob" }));
    assert_eq!(listed[0]["until"], "2200-01-01T00:00:00Z");
    assert_eq!(listed[1]["window"], json!({ "max": 4, "per": "1h" }));
    let drop = r#"{"rule":"per-user","key":{"user":"ada"}}"#;
    assert_eq!(running.admin_ok("DELETE", "/admin/v1/overrides", drop)["changes"], 1);
    assert!(!is_allowed(&running, "ada"), "four of two were consumed");
    let _ = running.ask("DELETE", "/admin/v1/overrides", drop).with(404);
}

/// A rule whose edits wait for the next period.
const NEXT: &str = r#"
[[rule]]
name      = "tokens"
key       = ["user"]
quota     = { max = 2, per = "round" }
effective = "next"
"#;

#[test]
fn override_takes_effect_with_the_next_period_or_at_once() {
    let running = Running::start(NEXT);
    let allowed = |user: &str| (0..9).filter(|_| is_allowed(&running, user)).count();
    let put = |body: Value| running.admin_ok("PUT", "/admin/v1/overrides", &body.to_string());
    let drop = |body: Value| running.admin_ok("DELETE", "/admin/v1/overrides", &body.to_string());
    let of = |user: &str| json!({ "rule": "tokens", "key": { "user": user } });
    let with = |user: &str, fields: Value| {
        let (Value::Object(mut body), Value::Object(fields)) = (of(user), fields) else {
            unreachable!()
        };
        body.extend(fields);
        Value::Object(body)
    };
    put(with("ada", json!({ "max": 5 })));
    put(with("bob", json!({ "max": 5, "effective": "next" })));
    put(with("eve", json!({ "max": 5, "effective": "now" })));
    assert_eq!(["ada", "bob", "eve"].map(allowed), [2, 2, 5]);
    // One that counts at once precedes one that waits.
    put(with("ada", json!({ "max": 6, "effective": "now" })));
    assert_eq!(allowed("ada"), 4, "two were charged before");
    let listed = running.admin_ok("GET", "/admin/v1/overrides", "");
    assert_eq!(listed["overrides"].as_array().unwrap().len(), 3);
    assert_eq!(listed["overrides"][0].get("effective"), None, "the overrides alone");
    // Dropping one waits as well, or does not.
    put(with("ada", json!({ "max": 8, "effective": "now" })));
    put(with("eve", json!({ "max": 8, "effective": "now" })));
    drop(of("ada"));
    drop(with("eve", json!({ "effective": "now" })));
    assert_eq!(["ada", "eve"].map(allowed), [2, 0]);
    running.admin_ok("POST", "/admin/v1/rounds/close", r#"{"domain":"default"}"#);
    assert_eq!(["ada", "bob", "eve"].map(allowed), [2, 5, 2]);
}

#[test]
fn override_that_takes_effect_at_another_time_is_rejected() {
    let running = Running::start(NEXT);
    for effective in [json!("later"), json!("Now"), json!(true), json!(null), json!(["now"])] {
        let body = json!({
            "rule": "tokens", "key": { "user": "ada" }, "max": 5, "effective": effective,
        });
        let reply = running.ask("PUT", "/admin/v1/overrides", &body.to_string()).with(422);
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(detail, "`effective` must be \"now\" or \"next\"", "{effective}");
        let body = json!({ "rule": "tokens", "key": { "user": "ada" }, "effective": effective });
        let _ = running.ask("DELETE", "/admin/v1/overrides", &body.to_string()).with(422);
    }
    let listed = running.admin_ok("GET", "/admin/v1/overrides", "");
    assert_eq!(listed["overrides"], json!([]));
}

#[test]
fn bans_expire_or_are_removed() {
    let running = Running::start(POLICY);
    let reply =
        running.admin_ok("POST", "/admin/v1/bans", r#"{"match":{"user":["eve","mallory"]}}"#);
    assert!(reply["description"].as_str().unwrap().contains("eve"), "{reply}");
    let denied = check(&running, "mallory");
    assert_eq!((&denied["allowed"], &denied["retry"]), (&json!(false), &json!("never")));
    assert!(is_allowed(&running, "ada"));
    running.admin_ok(
        "POST",
        "/admin/v1/bans",
        r#"{"match":{"user":"ada"},"for":"1h","reason":"break"}"#,
    );
    let denied = check(&running, "ada");
    assert_eq!(denied["reason"], "break");
    let wait = denied["retry_after_ms"].as_u64().unwrap();
    assert!((3_590_000..=3_600_001).contains(&wait), "{denied}");
    let listed = running.admin_ok("GET", "/admin/v1/bans", "");
    assert_eq!(listed["bans"].as_array().unwrap().len(), 2);
    assert_eq!(listed["bans"][1]["reason"], "break");
    running.admin_ok("DELETE", "/admin/v1/bans", r#"{"match":{"user":"ada"}}"#);
    assert!(is_allowed(&running, "ada"));
    running.admin_ok(
        "POST",
        "/admin/v1/bans",
        r#"{"match":{"user":"ada"},"until":"1999-01-01T00:00:00Z"}"#,
    );
    assert!(!is_allowed(&running, "ada"), "both units of ada are consumed");
    assert_eq!(check(&running, "ada")["rule"], "per-user", "and the ban has expired");
}

#[test]
fn all_keys_are_reset_of_a_domain_or_of_all() {
    let policy = format!(
        "{POLICY}\n[[rule]]\nname = 'gap'\ndomain = 'game'\nkey = ['user']\ncooldown = '1h'\n"
    );
    let running = Running::start(&policy);
    let play = json!({ "type": "check", "domain": "game", "attributes": { "user": 7 } });
    let mut caller = running.caller();
    let reset = |body: &str| running.admin_ok("POST", "/admin/v1/keys/reset", body);
    let charge_all = |caller: &mut Caller| {
        while is_allowed(&running, "ada") {}
        while caller.ask(&play)["allowed"] == true {}
    };
    charge_all(&mut caller);
    let reply = reset(r#"{"all":true,"domain":"game"}"#);
    assert_eq!((&reply["reset"], &reply["keys"]), (&json!(true), &json!(1)));
    assert_eq!(caller.ask(&play)["allowed"], true);
    assert!(!is_allowed(&running, "ada"), "another domain");
    assert!(reset(r#"{"all":true}"#)["keys"].as_u64().unwrap() >= 2);
    assert_eq!(caller.ask(&play)["allowed"], true);
    assert!(is_allowed(&running, "ada"));
    let audit = running.admin_ok("GET", "/admin/v1/audit", "").to_string();
    assert!(audit.contains("in domain `game` reset all keys (1)"), "{audit}");
}

#[test]
fn a_key_is_reset_and_a_round_is_closed() {
    let policy = format!(
        "{POLICY}\n[[rule]]\nname = 'tokens'\ndomain = 'game'\nkey = ['user']\n\
         quota = {{ max = 1, per = 'round' }}\n"
    );
    let running = Running::start(&policy);
    assert!(is_allowed(&running, "ada") && is_allowed(&running, "ada"));
    let ada = r#"{"attributes":{"user":"ada"}}"#;
    assert_eq!(running.admin_ok("POST", "/admin/v1/keys/reset", ada)["reset"], true);
    assert!(is_allowed(&running, "ada"));
    let unknown = r#"{"attributes":{"user":"unknown"}}"#;
    assert_eq!(running.admin_ok("POST", "/admin/v1/keys/reset", unknown)["reset"], false);
    let spend = json!({ "type": "check", "domain": "game", "attributes": { "user": 7 } });
    let mut caller = running.caller();
    assert_eq!(caller.ask(&spend)["allowed"], true);
    assert_eq!(caller.ask(&spend)["allowed"], false);
    let reply = running.admin_ok("POST", "/admin/v1/rounds/close", r#"{"domain":"game"}"#);
    assert_eq!(reply["rounds"], 1);
    assert_eq!(caller.ask(&spend)["allowed"], true);
    let audit = running.admin_ok("GET", "/admin/v1/audit", "");
    let whats: Vec<_> =
        audit["changes"].as_array().unwrap().iter().map(|it| it["what"].clone()).collect();
    assert_eq!(whats, ["reset", "reset", "round"]);
}

#[test]
fn every_change_is_audited_with_its_actor() {
    let running =
        Running::start_with_tokens(POLICY, &[("write-it", "name = 'ops'\nscopes = ['admin']")]);
    let actor = |audit: &Value, at: usize| audit["changes"][at]["actor"].clone();
    let path = "/admin/v1/rules/default/per-user";
    let _ = running.ask_as("write-it", "PATCH", path, r#"{"window":{"max":7}}"#).with(200);
    running.caller().admin("POST", "bans", &json!({ "match": { "user": "eve" } }));
    let audit = running.ask_as("write-it", "GET", "/admin/v1/audit", "").json();
    assert_eq!(actor(&audit, 0), "token ops at 127.0.0.1");
    assert_eq!(actor(&audit, 1), format!("user {}", own_name()));
    assert_eq!(audit["changes"][0]["rule"], "per-user");
    assert!(audit["changes"][0]["before"].as_str().unwrap().contains('2'), "{audit}");
    assert!(audit["changes"][0]["after"].as_str().unwrap().contains('7'), "{audit}");
    assert_eq!(audit["version"], 2);
    let later = running.ask_as("write-it", "GET", "/admin/v1/audit?since=1", "").json();
    assert_eq!(later["changes"].as_array().unwrap().len(), 1);
    assert_eq!(later["changes"][0]["number"], 2);
}

fn own_name() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn edits_and_states_survive_a_restart_with_a_file_store() {
    let folder = Folder::new();
    let state = folder.path().join("state");
    let with_state = |settings: Settings| settings.store_folder(Some(&state));
    let quota = "[[rule]]\nname = 'calls'\nkey = ['user']\nquota = { max = 2, per = 'day' }\n";
    let mut running = Running::start_with(quota, with_state).unwrap();
    assert!(is_allowed(&running, "ada") && is_allowed(&running, "ada"));
    running.admin_ok("PATCH", "/admin/v1/rules/default/calls", r#"{"quota":{"max":3}}"#);
    running.stop();
    let running = Running::start_with(quota, with_state).unwrap();
    assert!(is_allowed(&running, "ada") && !is_allowed(&running, "ada"));
    let status = running.admin_ok("GET", "/admin/v1/status", "");
    assert_eq!((&status["store"]["kind"], &status["edits"]), (&json!("file"), &json!(true)));
    let audit = running.admin_ok("GET", "/admin/v1/audit", "");
    assert_eq!(audit["changes"][0]["rule"], "calls", "{audit}");
}

#[test]
fn an_edited_number_is_described_in_one_line() {
    let running = Running::start(POLICY);
    let path = "/admin/v1/rules/default/per-user";
    running.admin_ok("PATCH", path, r#"{"window":{"max":30}}"#);
    let audit = running.admin_ok("GET", "/admin/v1/audit", "");
    let change = &audit["changes"][0];
    let expected = "rule `per-user` of domain `default`: window.max 2 → 30";
    assert_eq!(change["description"], expected, "{audit}");
    assert_eq!(change["before"], "window.max = 2");
}

#[test]
fn overrides_of_imported_rules_name_entries_as_bans_do() {
    let text = "domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]}
";
    let policy = tidegate::policy::Policy::load("edge.yaml", text.as_bytes()).unwrap().policy;
    let running = Running::start(&policy.to_toml());
    for key in ["user", "1.user"] {
        let body =
            json!({ "domain": "edge", "rule": "user", "key": { key: "ada" }, "unlimited": true });
        running.admin_ok("PUT", "/admin/v1/overrides", &body.to_string());
        let listed = running.admin_ok("GET", "/admin/v1/overrides", "");
        assert_eq!(listed["overrides"][0]["key"], json!({ "1.user": "ada" }), "{listed}");
        let body = json!({ "domain": "edge", "rule": "user", "key": { key: "ada" } });
        running.admin_ok("DELETE", "/admin/v1/overrides", &body.to_string());
    }
    let body = json!({ "domain": "edge", "rule": "a.a", "key": { "a": "x" }, "unlimited": true });
    // Two entries have that name.
    running.ask("PUT", "/admin/v1/overrides", &body.to_string()).with(422);
}

#[test]
fn a_ban_on_a_path_that_no_request_has_is_rejected() {
    let running = Running::start(POLICY);
    let body = r#"{"match":{"path":"/%73ign-up"}}"#;
    let reply = running.ask("POST", "/admin/v1/bans", body).with(422).json();
    assert!(reply.to_string().contains("write `/sign-up`"), "{reply}");
    running.admin_ok("POST", "/admin/v1/bans", r#"{"match":{"path":"/sign-up"}}"#);
}
