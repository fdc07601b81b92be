//! Metadata of responses to Envoy, and quota mode for all descriptors.

use serde_json::{Value, json};
use tidegate::policy::{Policy, PolicyFile, YamlOptions};
use tidegate_proto::rls::rate_limit_descriptor::RateLimitOverride;
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_proto::rls::{self, RateLimitRequest, RateLimitResponse, RateLimitUnit};
use tidegate_server::{Listener, Server, Settings};

use crate::grpc_client::{Client, call, daemon};
use crate::http_support;

const LIMITS: &str = "
domain: edge
descriptors:
  - key: a
    metadata: {kind: a, pool: {name: blue, size: 2.5}, tags: [x, true]}
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: b
    metadata: {kind: b, pool: {name: red, zone: 7}}
    rate_limit: {unit: day, requests_per_unit: 9}
  - {key: free, metadata: {kind: free}, rate_limit: {unlimited: true}}
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 9}}
";

async fn start(limits: &str, options: YamlOptions, has_metadata: bool) -> Server {
    let file = PolicyFile { name: "edge.yaml".into(), bytes: limits.into() };
    let file = Policy::load_files_with(&[file], options).unwrap();
    let settings = Settings::on_free_ports(file).response_metadata(has_metadata);
    Server::start(settings).await.unwrap()
}

/// The metadata as JSON; `None` if there is none.
fn metadata(response: &RateLimitResponse) -> Option<Value> {
    let json: Value = serde_json::from_str(&rls::response_to_json(response)).unwrap();
    json.get("dynamicMetadata").cloned()
}

#[tokio::test]
async fn metadata_has_the_call_and_what_the_descriptors_that_passed_have() {
    let server = start(LIMITS, YamlOptions::default(), true).await;
    let mut client = Client::new(&server).await;
    let both = call("edge", &[&[("a", "1"), ("x", "=")], &[("b", "2")], &[("a", "1")]]);
    let response = client.ask(&both).await.unwrap();
    let descriptors =
        json!([{"entries": ["a=1", "x=="]}, {"entries": ["b=2"]}, {"entries": ["a=1"]}]);
    let expected = json!({
        "domain": "edge",
        "descriptors": descriptors,
        // Of the second and the third, since no limit is for the first; the earlier one counts.
        "metadata": {"kind": "b", "pool": {"name": "red", "size": 2.5, "zone": 7}, "tags": ["x", true]},
    });
    assert_eq!(metadata(&response), Some(expected));
    // Over the limit: only those that passed, and none whose limit comes with the call.
    let mut over = call("edge", &[&[("a", "1")], &[("b", "2")], &[("b", "3")]]);
    over.hits_addend = 2;
    over.descriptors[1].hits_addend = Some(3);
    over.descriptors[2].limit =
        Some(RateLimitOverride { requests_per_unit: 7, unit: RateLimitUnit::Hour.into() });
    let response = client.ask(&over).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    let expected = json!({
        "domain": "edge",
        "hitsAddend": 2,
        "descriptors": [
            {"entries": ["a=1"]},
            {"entries": ["b=2"], "hitsAddend": 3},
            {"entries": ["b=3"], "limit": "requests_per_unit:7 unit:HOUR"},
        ],
        "metadata": {"kind": "b", "pool": {"name": "red", "zone": 7}},
    });
    assert_eq!(metadata(&response), Some(expected));
    // Without metadata of rules, and of bytes that are not text.
    let mut other: RateLimitRequest = call("edge", &[&[("free", "x")], &[("plain", "x")]]);
    other.descriptors[1].entries[0].value = b"\xff".to_vec();
    let response = client.ask(&other).await.unwrap();
    let descriptors = json!([{"entries": ["free=x"]}, {"entries": ["plain=%ff"]}]);
    assert_eq!(metadata(&response), Some(json!({"domain": "edge", "descriptors": descriptors})));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_off_unless_it_is_switched_on() {
    let off = start(LIMITS, YamlOptions::default(), false).await;
    let response = Client::new(&off).await.ask(&call("edge", &[&[("a", "1")]])).await.unwrap();
    assert_eq!(response.dynamic_metadata, None);
    off.stop().await;
    let native = "[server]\nresponse_metadata = true\n[[rule]]\nname = 'n'\ndomain = 'edge'\n\
                  metadata = { pool = 'green' }\nwindow = { max = 9, per = '1h' }\n";
    let on = daemon("policy.toml", native).await;
    let http = on.address(Listener::Http).unwrap();
    let body = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "a", "value": "1"}]}]}"#;
    let reply = tokio::task::spawn_blocking(move || {
        http_support::Client::new(http).post("/json", body).body
    });
    let reply: Value = serde_json::from_slice(&reply.await.unwrap()).unwrap();
    assert_eq!(reply["dynamicMetadata"]["metadata"], json!({"pool": "green"}), "{reply}");
    on.stop().await;
}

#[tokio::test]
async fn all_descriptors_in_quota_mode_deny_together() {
    let limits = "
domain: edge
descriptors:
  - {key: small, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: large, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
";
    let server = start(limits, YamlOptions::default().quota_mode(true), false).await;
    let mut client = Client::new(&server).await;
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let mut own = call("edge", &[&[("own", "x")]]);
    own.descriptors[0].limit =
        Some(RateLimitOverride { requests_per_unit: 1, unit: RateLimitUnit::Day.into() });
    let mut both = own.clone();
    both.descriptors.extend(call("edge", &[&[("large", "z")]]).descriptors);
    let calls: [(RateLimitRequest, Code, &[Code]); 8] = [
        (call("edge", &[&[("small", "x")], &[("large", "x")]]), ok, &[ok, ok]),
        (call("edge", &[&[("small", "x")], &[("large", "x")]]), ok, &[over, ok]),
        (call("edge", &[&[("small", "x")], &[("large", "x")]]), over, &[over, over]),
        // A descriptor without a limit is never over it; one that is unlimited does not count.
        (call("edge", &[&[("small", "x")], &[("unknown", "x")]]), ok, &[over, ok]),
        (call("edge", &[&[("small", "x")], &[("free", "x")]]), over, &[over, ok]),
        // Limits that come with descriptors, too.
        (own.clone(), ok, &[ok]),
        (both, ok, &[over, ok]),
        (own, over, &[over]),
    ];
    for (number, (call, overall, expected)) in calls.into_iter().enumerate() {
        let response = client.ask(&call).await.unwrap();
        let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
        assert_eq!((response.overall_code(), &*codes), (overall, expected), "call {number}");
    }
    server.stop().await;
}
