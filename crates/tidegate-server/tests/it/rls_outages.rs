//! The rate limit service while the disk cannot be written.

use serde_json::{Value, json};
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_server::Listener;

use crate::grpc_client::{Client, call};
use crate::http_support::{self, Apart};

/// By default the window allows in an outage, and the quota denies.
const POLICY: &str = r#"store = "file:state"
[[rule]]
name   = "calls"
domain = "edge"
match  = { path = "*" }
key    = ["path"]
window = { max = 100, per = "1h" }

[[rule]]
name   = "tokens"
domain = "edge"
match  = { user = "*" }
key    = ["user"]
quota  = { max = 100, per = "day" }

[[rule]]
name   = "trial"
domain = "edge"
match  = { trial = "*" }
quota  = { max = 100, per = "day" }
mode   = "shadow"
"#;

/// Keys and values of a descriptor.
type Entries = &'static [(&'static str, &'static str)];

const PATH: Entries = &[("path", "/")];
const USER: Entries = &[("user", "ada")];
const OTHER: Entries = &[("user", "bob")];
const TRIAL: Entries = &[("trial", "x")];

/// Descriptors, and which of them are denied in an outage.
const CASES: [(&[Entries], &[bool]); 7] = [
    (&[USER, PATH], &[true, false]),
    (&[PATH, USER], &[false, true]),
    (&[PATH, USER, OTHER], &[false, true, true]),
    (&[USER, PATH, USER], &[true, false, true]),
    (&[PATH, &[("path", "/"), ("user", "ada")]], &[false, true]),
    (&[USER], &[true]),
    (&[PATH, TRIAL], &[false, false]),
];

#[tokio::test]
async fn only_descriptors_of_denying_rules_are_over_the_limit_in_an_outage() {
    let daemon = Apart::behind(Listener::Grpc, "grpc-outage", POLICY);
    let mut client = Client::at(daemon.address()).await;
    let before = client.ask(&call("edge", &[PATH, USER])).await.unwrap();
    assert_eq!(before.overall_code(), Code::Ok);
    daemon.limit_files("0");
    for (descriptors, denied) in CASES {
        let response = client.ask(&call("edge", descriptors)).await.unwrap();
        let over = |code| code == Code::OverLimit;
        let codes: Vec<_> =
            response.statuses.iter().map(DescriptorStatus::code).map(over).collect();
        assert_eq!(codes, denied, "{descriptors:?}: {response:?}");
        assert_eq!(over(response.overall_code()), denied.contains(&true), "{descriptors:?}");
    }
}

#[test]
fn json_says_which_descriptor_an_outage_denies() {
    let daemon = Apart::behind(Listener::Http, "json-outage", POLICY);
    let mut client = http_support::Client::new(daemon.address());
    let mut ask = |descriptors: &[Entries]| {
        let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
        let entries = |it: &Entries| it.iter().map(entry).collect::<Vec<_>>();
        let descriptors = descriptors.iter().map(|it| json!({ "entries": entries(it) }));
        let descriptors: Vec<_> = descriptors.collect();
        let body = json!({ "domain": "edge", "descriptors": descriptors });
        client.post("/json", &body.to_string())
    };
    assert_eq!(ask(&[PATH, USER]).status, 200);
    daemon.limit_files("0");
    for (descriptors, denied) in CASES {
        let reply = ask(descriptors);
        let is_denied = denied.contains(&true);
        assert_eq!(reply.status, if is_denied { 429 } else { 200 }, "{descriptors:?}");
        let body: Value = reply.json();
        let code = |is_over| if is_over { "OVER_LIMIT" } else { "OK" };
        assert_eq!(body["overallCode"], code(is_denied), "{descriptors:?}: {body}");
        let statuses = body["statuses"].as_array().unwrap();
        let codes: Vec<_> = statuses.iter().map(|it| it["code"].as_str().unwrap()).collect();
        let expected: Vec<_> = denied.iter().map(|is_over| code(*is_over)).collect();
        assert_eq!(codes, expected, "{descriptors:?}: {body}");
    }
}
