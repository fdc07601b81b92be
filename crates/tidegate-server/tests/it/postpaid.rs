//! Costs that are known only afterwards: as AI gateways send them, over HTTP, and in what is shown.

use serde_json::{Value, json};
use tidegate_proto::rls::rate_limit_response::Code;
use tidegate_server::Listener;

use crate::grpc_client::{Client, call, daemon};
use crate::running::{Running, ask};

const POLICY: &str = r#"
[[rule]]
name     = "tokens"
domain   = "llm"
key      = ["user"]
quota    = { max = 100, per = "month" }
postpaid = true

[[rule]]
name   = "calls"
domain = "llm"
match  = { path = "/slow" }
cost   = 1
window = { max = 1, per = "1d" }

[[rule]]
name     = "large"
domain   = "large"
quota    = { max = 5000000000, per = "month" }
"#;

/// A query of 0 when a stream begins, and its tokens when it is done.
#[tokio::test]
async fn a_gateway_that_sends_tokens_afterwards_is_limited() {
    let server = daemon("policy.toml", POLICY).await;
    let mut client = Client::new(&server).await;
    let mut ask = async |hits| {
        let mut request = call("llm", &[&[("user", "ada")]]);
        request.descriptors[0].hits_addend = Some(hits);
        client.ask(&request).await.unwrap().overall_code()
    };
    for tokens in [60, 30] {
        assert_eq!(ask(0).await, Code::Ok);
        assert_eq!(ask(tokens).await, Code::Ok);
    }
    assert_eq!(ask(0).await, Code::Ok, "ten are left");
    assert_eq!(ask(200).await, Code::Ok, "this stream began while some were left");
    assert_eq!(ask(0).await, Code::OverLimit);
    assert_eq!(ask(70).await, Code::OverLimit, "a stream that ran beside it is booked as well");
    assert_eq!(ask(0).await, Code::OverLimit);
    // What does not fit into the fields of a response is the most that they can say.
    let response = client.ask(&call("large", &[&[("user", "ada")]])).await.unwrap();
    let status = &response.statuses[0];
    assert_eq!(status.limit_remaining, u32::MAX);
    assert_eq!(status.current_limit.as_ref().unwrap().requests_per_unit, u32::MAX);
}

fn post(running: &Running, path: &str, body: &Value) -> Value {
    let address = running.server().address(Listener::Http).unwrap();
    ask(address, "POST", path, &[], &body.to_string()).json()
}

fn check(running: &Running, attributes: &Value, cost: u64) -> Value {
    post(running, "/v1/check", &json!({ "domain": "llm", "attributes": attributes, "cost": cost }))
}

#[test]
pub(crate) fn what_was_booked_is_shown() {
    let running = Running::start(POLICY);
    let (ada, slow) = (json!({ "user": "ada" }), json!({ "user": "ada", "path": "/slow" }));
    assert_eq!(check(&running, &slow, 60)["allowed"], true);
    assert_eq!(check(&running, &slow, 7)["rule"], "calls", "nothing is booked");
    assert_eq!(check(&running, &ada, 75)["allowed"], true);
    let denied = check(&running, &ada, 5);
    assert_eq!((&denied["allowed"], &denied["rule"]), (&json!(false), &json!("tokens")));
    assert!(denied["retry_after_ms"].as_u64().unwrap() > 0);
    let usage = post(&running, "/v1/usage", &json!({ "domain": "llm", "attributes": ada }));
    assert_eq!((&usage["rules"][0]["used"], &usage["rules"][0]["debt"]), (&json!(140), &json!(40)));
    let metrics = running.ask("GET", "/metrics", "").with(200).body;
    for (name, units) in [("booked", 140), ("overdrawn", 40), ("forgiven", 0), ("unbooked", 7)] {
        let line =
            format!("\ntidegate_{name}_units_total{{domain=\"llm\",rule=\"tokens\"}} {units}\n");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    let explained = post(&running, "/v1/explain", &json!({ "domain": "llm", "attributes": ada }));
    assert!(explained.to_string().contains("postpaid"), "{explained}");
}

/// The rule as it is decides the sampled requests as they were decided.
#[test]
fn a_preview_counts_what_denied_requests_booked() {
    let running = Running::start(POLICY);
    let ada = json!({ "user": "ada" });
    for _ in 0..20 {
        check(&running, &ada, 30);
        check(&running, &ada, 0);
    }
    let body = json!({ "domain": "llm", "rule": "tokens",
                       "change": { "quota": { "max": 300, "per": "month" } } });
    let preview = running.admin_ok("POST", "/admin/v1/preview", &body.to_string());
    let estimate = &preview["rules"][0]["estimate"];
    // The fourth booking exceeds 100; the tenth reaches 300.
    let denied = (&estimate["denied_before"], &estimate["denied_after"]);
    assert_eq!(denied, (&json!(33), &json!(21)), "{preview}");
    assert_eq!(estimate["is_exact"], true, "{preview}");
}
