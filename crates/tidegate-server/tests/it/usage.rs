//! What keys have used of their limits: for one client, and as a list for operators.

use serde_json::{Value, json};
use tidegate_server::Listener;

use crate::running::{Running, ask};

const POLICY: &str = r#"
[[rule]]
name     = "tokens"
domain   = "llm"
key      = ["customer"]
quota    = { max = 100, per = "round" }
override = [{ key = { customer = "acme" }, max = 50 }, { key = { customer = "big" }, unlimited = true }, { key = { customer = "t*" }, max = 9 }]

[[rule]]
name   = "calls"
domain = "llm"
match  = { method = "POST" }
key    = ["ip"]
window = { max = 10, per = "1h" }

[[rule]]
name   = "watched"
domain = "llm"
key    = ["customer"]
mode   = "shadow"
bucket = { rate = "1/h", burst = 4 }
"#;

fn post(running: &Running, path: &str, body: &Value) -> Value {
    let address = running.server().address(Listener::Http).unwrap();
    ask(address, "POST", path, &[], &body.to_string()).with(200).json()
}

fn charge(running: &Running, customer: &str, cost: u64) {
    let attributes = json!({ "customer": customer });
    post(running, "/v1/check", &json!({ "domain": "llm", "attributes": attributes, "cost": cost }));
}

fn on_disk() -> Running {
    let folder = crate::running::Folder::new();
    let state = folder.path().join("state");
    Running::start_in(folder, POLICY, |settings| settings.store_folder(Some(&state))).unwrap()
}

/// Pages of the list: the customer or address of each key.
fn pages(running: &Running, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/admin/v1/usage?{query}&cursor={cursor}");
        let body = running.admin_ok("GET", &path, "");
        let key = |it: &Value| {
            let key = it["key"].as_object().unwrap().values().next().unwrap();
            format!("{} {}", it["rule"].as_str().unwrap(), key.as_str().unwrap())
        };
        pages.push(body["keys"].as_array().unwrap().iter().map(key).collect());
        match body["cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return pages,
        }
    }
}

#[test]
pub(crate) fn usage_over_http_has_every_rule_whose_key_is_given() {
    let running = Running::start(POLICY);
    charge(&running, "acme", 3);
    let request = json!({ "domain": "llm", "attributes": { "customer": "acme" } });
    let body = post(&running, "/v1/usage", &request);
    assert_eq!(
        body["rules"][0],
        json!({
            "rule": "tokens", "used": 3, "held": 0, "limit": 50, "remaining": 47, "share": 0.06,
            "reset_after_ms": null,
        })
    );
    let watched = &body["rules"][1];
    assert_eq!((&watched["rule"], &watched["mode"]), (&json!("watched"), &json!("shadow")));
    assert_eq!((&watched["used"], &watched["share"]), (&json!(3), &json!(0.75)));
    assert!(watched["reset_after_ms"].as_u64() > Some(10_000_000), "{watched}");
    assert_eq!(body["rules"].as_array().unwrap().len(), 2);
    assert_eq!(post(&running, "/v1/usage", &request)["rules"][0]["used"], 3, "it charges nothing");
    let unlimited = json!({ "domain": "llm", "attributes": { "customer": "big" } });
    let unlimited = &post(&running, "/v1/usage", &unlimited)["rules"][0];
    for field in ["limit", "remaining", "share"] {
        assert_eq!(unlimited[field], Value::Null, "{unlimited}");
    }
    assert_eq!(post(&running, "/v1/usage", &json!({ "domain": "other" })), json!({ "rules": [] }));
    let address = running.server().address(Listener::Http).unwrap();
    let _ = ask(address, "POST", "/v1/usage", &[], r#"{"cost":1}"#).with(422);
    let _ = ask(address, "GET", "/v1/usage", &[], "").with(405);
}

#[test]
fn usage_over_the_local_socket_is_that_of_http() {
    let running = Running::start(POLICY);
    charge(&running, "acme", 3);
    let mut caller = running.caller();
    let attributes = json!({ "customer": "acme" });
    let reply = caller.ask(&json!({ "type": "usage", "domain": "llm", "attributes": attributes }));
    let request = json!({ "domain": "llm", "attributes": attributes });
    let rules = post(&running, "/v1/usage", &request)["rules"].clone();
    assert_eq!((&reply["rules"][0], reply["rules"][1]["used"].clone()), (&rules[0], json!(3)));
    let wrong = caller.ask(&json!({ "type": "usage", "cost": 1 }));
    assert_eq!(wrong["ok"], false, "{wrong}");
}

#[test]
fn keys_of_a_file_store_are_listed_by_share_in_pages() {
    let running = on_disk();
    for (customer, cost) in [("a", 10), ("b", 80), ("c", 90), ("d", 95), ("e", 80), ("acme", 45)] {
        charge(&running, customer, cost);
    }
    let all = pages(&running, "domain=llm&rule=tokens");
    let mut names = all[0].clone();
    assert_eq!(names.len(), 6, "{names:?}");
    assert_eq!(names[0], "tokens d", "{names:?}");
    names[1..3].sort();
    names[3..5].sort();
    let expected = ["tokens d", "tokens acme", "tokens c", "tokens b", "tokens e", "tokens a"];
    assert_eq!(names, expected);
    let two = pages(&running, "domain=llm&rule=tokens&limit=2");
    assert_eq!(two.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(two.concat(), all[0], "pages are the list");
    assert_eq!(pages(&running, "domain=llm&rule=tokens&over=0.9")[0].len(), 3);
    assert_eq!(pages(&running, "domain=other"), [Vec::<String>::new()]);
    let first = running.admin_ok("GET", "/admin/v1/usage?rule=tokens&limit=1", "");
    let key = &first["keys"][0];
    assert_eq!((&key["share"], &key["source"]), (&json!(0.95), &json!("ledger")));
    assert_eq!((&key["domain"], &key["key"]), (&json!("llm"), &json!({ "customer": "d" })));
    assert_eq!((&first["complete"], &first["note"]), (&json!(true), &Value::Null));
    let second = running.admin_ok("GET", "/admin/v1/usage?rule=tokens&over=0.9&limit=3", "");
    let acme = second["keys"].as_array().unwrap().iter().find(|it| it["limit"] == 50).unwrap();
    assert_eq!(acme["source"], "override");
    // Rules that are not durable have no names on disk.
    let body = running.admin_ok("GET", "/admin/v1/usage?limit=1", "");
    assert_eq!(body["complete"], false);
    assert!(body["note"].as_str().unwrap().contains("`calls` of domain `llm`"), "{body}");
}

#[test]
fn names_survive_a_restart_and_resets_end_them() {
    let mut running = on_disk();
    charge(&running, "ada", 60);
    charge(&running, "bob", 70);
    running.stop();
    let state = running.folder.path().join("state");
    let again =
        Running::start_with(POLICY, |settings| settings.store_folder(Some(&state))).unwrap();
    let of_tokens = "rule=tokens&over=0.01";
    assert_eq!(pages(&again, of_tokens), [["tokens bob", "tokens ada"]]);
    let reset = json!({ "domain": "llm", "attributes": { "customer": "bob" } });
    again.admin_ok("POST", "/admin/v1/keys/reset", &reset.to_string());
    assert_eq!(pages(&again, of_tokens), [["tokens ada"]]);
}

#[test]
pub(crate) fn in_memory_overrides_and_the_busiest_keys_have_names() {
    let running = Running::start(POLICY);
    let call = |ip: &str| {
        let attributes = json!({ "ip": ip, "method": "POST", "customer": "x" });
        post(&running, "/v1/check", &json!({ "domain": "llm", "attributes": attributes }));
    };
    // The first decisions are all sampled.
    (0..4).for_each(|_| call("192.0.2.1"));
    charge(&running, "acme", 25);
    let listed = running.admin_ok("GET", "/admin/v1/usage?rule=tokens&over=0.5", "");
    let [acme] = &**listed["keys"].as_array().unwrap() else { panic!("{listed}") };
    assert_eq!((&acme["source"], &acme["share"]), (&json!("override"), &json!(0.5)));
    assert_eq!(listed["complete"], false);
    let body = running.admin_ok("GET", "/admin/v1/usage", "");
    let keys = body["keys"].as_array().unwrap();
    assert!(keys.iter().any(|it| it["source"] == "busiest"), "{body}");
    assert!(keys.iter().all(|it| it["key"]["customer"] != "big"), "without a limit: {body}");
}

#[test]
fn a_wrong_query_is_an_error() {
    let running = Running::start(POLICY);
    for wrong in ["limit=0", "limit=1001", "over=80%25", "cursor=x", "user=ada"] {
        let reply = running.ask("GET", &format!("/admin/v1/usage?{wrong}"), "").with(422);
        assert!(reply.body.contains(wrong.split('=').next().unwrap()), "{reply:?}");
    }
}
