//! A token for one customer, and rules that read descriptors: no text of its client gets to another
//! customer, whatever its names are.

use serde_json::{Value, json};
use tidegate_proto::rls::rate_limit_response::Code;
use tidegate_server::Listener;

use crate::grpc_client::{self, call};
use crate::running::{Ending, Running, ask, exchange};

const POLICY: &str = r#"
[[rule]]
name   = "customers"
domain = "api"
match  = { "entries of the descriptor" = "1" }
key    = ["1.customer"]
window = { max = 100, per = "1h" }

[[rule]]
name   = "jobs"
domain = "jobs"
match  = { "entries of the descriptor" = "1" }
key    = ["1.customer"]
slots  = { max = 100 }
"#;

const TOKENS: &[(&str, &str)] = &[
    (
        "s-acme",
        "name = 'acme'\nscopes = ['check', 'settle', 'lease', 'read']\n\
         attributes = { customer = ['acme'] }",
    ),
    ("s-ops", "name = 'ops'\nscopes = ['check', 'settle', 'lease', 'read', 'inspect', 'admin']"),
];

/// Attributes that claim to be those of the victim's descriptor.
fn forged() -> [Value; 3] {
    [
        json!({ "customer": "acme", "entries of the descriptor": "1", "1.customer": "victim" }),
        json!({ "1.customer": "victim", "entries of the descriptor": "1", "customer": "acme" }),
        json!({ "customer": "acme", "1.customer": "victim", "number of the descriptor": "0" }),
    ]
}

/// A daemon where the victim has used ten units, and holds five slots.
fn start() -> Running {
    let running = Running::start_with_tokens(POLICY, TOKENS);
    let victim = json!({ "customer": "victim" });
    let body = json!({ "domain": "api", "attributes": victim, "cost": 10 });
    assert_eq!(post(&running, "s-ops", "/v1/check", &body), 200);
    let body = json!({ "domain": "jobs", "attributes": victim });
    for _ in 0..5 {
        assert_eq!(post(&running, "s-ops", "/v1/acquire", &body), 200);
    }
    assert_eq!(used(&running), (10, 5));
    running
}

fn post(running: &Running, token: &str, path: &str, body: &Value) -> u16 {
    reply(running, token, path, body).0
}

fn reply(running: &Running, token: &str, path: &str, body: &Value) -> (u16, Value) {
    let http = running.server().address(Listener::Http).unwrap();
    let token = format!("Bearer {token}");
    let reply = ask(http, "POST", path, &[("Authorization", &token)], &body.to_string());
    (reply.status, serde_json::from_str(&reply.body).unwrap_or_default())
}

/// What the victim has used, and how many slots it holds.
fn used(running: &Running) -> (u64, u64) {
    let of = |domain: &str, field: &str| {
        let body = json!({ "domain": domain, "attributes": { "customer": "victim" } });
        reply(running, "s-ops", "/v1/usage", &body).1["rules"][0][field].as_u64().unwrap()
    };
    (of("api", "used"), of("jobs", "held"))
}

#[test]
fn over_http() {
    let running = start();
    for attributes in forged() {
        let with = |domain: &str| json!({ "domain": domain, "attributes": attributes });
        let (api, mut refund) = (with("api"), with("api"));
        refund["amount"] = 5.into();
        let batch = json!({ "requests": [api, api] });
        for (path, body) in [
            ("/v1/check", &api),
            ("/v1/check/batch", &batch),
            ("/v1/reserve", &api),
            ("/v1/refund", &refund),
            ("/v1/acquire", &with("jobs")),
        ] {
            let (status, body) = reply(&running, "s-acme", path, body);
            assert!(status < 500, "{path}: {status} {body}");
            assert_eq!(used(&running), (10, 5), "{path} with {attributes}");
        }
        for path in ["/v1/explain", "/v1/usage"] {
            let (_, body) = reply(&running, "s-acme", path, &api);
            let text = body["rules"].to_string();
            assert!(!text.contains("\"used\":10") && !text.contains("victim"), "{path}: {body}");
        }
    }
}

#[test]
fn over_the_local_socket() {
    let running = start();
    let mut caller = running.caller();
    for attributes in forged() {
        for kind in ["check", "reserve"] {
            let frame = json!({ "type": kind, "domain": "api", "attributes": attributes });
            assert_eq!(caller.ask(&frame)["ok"], true);
        }
        let usage =
            caller.ask(&json!({ "type": "usage", "domain": "api", "attributes": attributes }));
        assert_eq!(usage["rules"], json!([]), "{usage}");
        let explained = json!({ "type": "explain", "domain": "api", "attributes": attributes });
        let explained = caller.ask(&explained).to_string();
        assert!(!explained.contains("\"applies\":true"), "{explained}");
        assert_eq!(used(&running), (10, 5), "{attributes}");
    }
}

#[test]
fn over_resp() {
    let running = start();
    let resp = running.server().address(Listener::Resp).unwrap();
    for attributes in forged() {
        let mut commands = b"AUTH s-acme\r\n".to_vec();
        for verb in ["TG.CHECK", "TG.PEEK", "TG.RESERVE", "TG.USAGE", "TG.EXPLAIN"] {
            let pairs = attributes.as_object().unwrap().iter();
            let pairs = pairs.map(|(name, value)| format!("ATTR \"{name}\" {value} "));
            commands.extend(
                format!(
                    "{verb} api {}
",
                    pairs.collect::<String>()
                )
                .bytes(),
            );
        }
        commands.extend(b"QUIT\r\n");
        let replies = String::from_utf8(exchange(resp, &commands, Ending::Wait)).unwrap();
        assert!(!replies.contains("ERR") && replies.starts_with("+OK"), "{replies}");
        assert_eq!(used(&running), (10, 5), "{attributes}: {replies}");
    }
}

#[test]
fn over_envoys_api() {
    let running = start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for attributes in forged() {
        let entries: Vec<_> = attributes.as_object().unwrap().iter().collect();
        let entries = |is_back: bool| {
            let entries = entries.iter().map(|(key, value)| json!({ "key": key, "value": value }));
            let entries =
                json!({ "entries": entries.collect::<Vec<_>>(), "isNegativeHits": is_back });
            json!({ "domain": "api", "descriptors": [entries] })
        };
        for is_back in [false, true] {
            assert_eq!(post(&running, "s-acme", "/json", &entries(is_back)), 200);
        }
        assert_eq!(used(&running), (10, 5), "{attributes}");
    }
    runtime.block_on(async {
        let mut client = grpc_client::Client::new(running.server()).await;
        client.token = Some("s-acme");
        let entries =
            [("customer", "acme"), ("entries of the descriptor", "1"), ("1.customer", "victim")];
        let response = client.ask(&call("api", &[&entries])).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
    });
    assert_eq!(used(&running), (10, 5));
}

/// Lists of keys name the entries of a descriptor by their positions, and these names can be sent
/// back: they are entries, and nothing else.
#[test]
fn an_admin_names_a_key_as_it_is_listed() {
    let running = start();
    let ask = |path: &str, attributes: Value| {
        let body = json!({ "domain": "api", "attributes": attributes }).to_string();
        running.ask_as("s-ops", "POST", &format!("/admin/v1/{path}"), &body).with(200).json()
    };
    for attributes in forged() {
        assert_eq!(ask("usage", attributes.clone())["rules"], json!([]));
        assert_eq!(ask("keys/reset", attributes)["reset"], false);
    }
    let listed = json!({ "1.customer": "victim" });
    assert_eq!(ask("usage", listed.clone())["rules"][0]["used"], 10);
    assert_eq!(ask("keys/reset", listed)["reset"], true);
    assert_eq!(used(&running), (0, 5));
}

#[test]
fn lists_and_previews_find_the_keys_of_descriptors() {
    let running = start();
    let body = json!({ "domain": "api", "attributes": { "customer": "other" }, "cost": 60 });
    assert_eq!(post(&running, "s-ops", "/v1/check", &body), 200);
    let ask = |method: &str, path: &str, body: &str| {
        running.ask_as("s-ops", method, &format!("/admin/v1/{path}"), body).with(200).json()
    };
    let listed = ask("GET", "usage?domain=api&over=0.1", "");
    let used: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|it| &it["used"]).collect();
    assert_eq!(used, [60, 10], "{listed}");
    // Each of both keys has room; one for both would not have.
    let change =
        json!({ "domain": "api", "rule": "customers", "change": { "window": { "max": 65 } } });
    let preview = ask("POST", "preview", &change.to_string());
    let estimate = &preview["rules"][0]["estimate"];
    assert_eq!((&estimate["keys"], &estimate["newly_denied"]), (&json!(2), &json!(0)), "{preview}");
}
