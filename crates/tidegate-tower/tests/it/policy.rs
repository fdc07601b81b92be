//! A policy in front of a service.

use std::time::Duration;
use tidegate::Edit;

use axum::Router;
use axum::routing::get as route;
use tidegate::Request as EngineRequest;
use tidegate::policy::Mode;
use tidegate_tower::{Admission, ClientIp, Dialect, Header, PolicyLayer, attribute, path};
use tower::ServiceExt;

use crate::support::{Hello, TestEngine, TestResponse, engine, from, get, send};

const TWO_RULES: &str = r#"
    [[rule]]
    name   = "user"
    domain = "api"
    key    = ["user"]
    window = { max = 2, per = "10s" }
    deny   = "slow down"

    [[rule]]
    name   = "total"
    domain = "api"
    bucket = { rate = "1/s", burst = 30 }

    [[rule]]
    name   = "watched"
    domain = "api"
    key    = ["user"]
    window = { max = 1, per = "1h" }
    mode   = "shadow"
"#;

fn layer(engine: &TestEngine) -> PolicyLayer {
    PolicyLayer::new(engine.clone(), "api").unwrap().attribute("user", Header::new("x-user"))
}

#[tokio::test]
async fn rules_make_one_decision_and_a_denial_charges_none() {
    let (engine, _) = engine(TWO_RULES);
    let (layer, hello) = (layer(&engine), Hello::default());
    let response = send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
    assert_eq!(response.header("ratelimit"), Some(r#""user";r=1;t=10, "total";r=29;t=1"#));
    let policy = r#""user";q=2;w=10, "total";q=30;w=30"#;
    assert_eq!(response.header("ratelimit-policy"), Some(policy), "shadow rules are not reported");
    send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
    for _ in 0..5 {
        let response = send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
        assert_eq!((response.status, response.header("retry-after")), (429, Some("10")));
        assert!(response.body.contains(r#""detail":"slow down","violated-policies":["user"]"#));
        let handler = r#""user";r=0;t=10, "total";r=28;t=2"#;
        assert_eq!(response.header("ratelimit"), Some(handler));
    }
    assert_eq!(hello.calls(), 2);
}

#[tokio::test]
async fn dialects_for_one_limit_report_the_decisive_one() {
    let (engine, _) = engine(TWO_RULES);
    let layer = layer(&engine).dialect(Dialect::Envoy03);
    let response = send(&layer, &Hello::default(), get("/", &[("x-user", "ada")])).await;
    let limit = r#"2, 2;w=10;name="user", 30;w=30;name="total""#;
    assert_eq!(response.header("x-ratelimit-limit"), Some(limit));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("1"));
    // Here the decisive rule is not the first one.
    let (engine, _) = engine_of_thirty_costs();
    let layer = self::layer(&engine).cost(|_| 30).dialect(Dialect::XRateLimit);
    let response = send(&layer, &Hello::default(), get("/", &[("x-user", "ada")])).await;
    assert_eq!(response.header("x-ratelimit-limit"), Some("30"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("0"));
}

fn engine_of_thirty_costs() -> (TestEngine, tidegate::clock::ManualClock) {
    engine(&TWO_RULES.replace("max = 2", "max = 2000"))
}

#[tokio::test]
async fn skipped_requests_meet_no_rule_and_the_first_of_two_attributes_counts() {
    let (engine, _) = engine(TWO_RULES);
    let layer = layer(&engine)
        .attribute("user", Header::new("x-other"))
        .skip(|parts| parts.uri.path() == "/healthz");
    let hello = Hello::default();
    let headers = [("x-user", "ada"), ("x-other", "bob")];
    for _ in 0..5 {
        let response = send(&layer, &hello, get("/healthz", &headers)).await;
        assert_eq!((response.status, response.header("ratelimit")), (200, None));
    }
    for (other, status) in [("bob", 200), ("eve", 200), ("joe", 429)] {
        let headers = [("x-user", "ada"), ("x-other", other)];
        assert_eq!(send(&layer, &hello, get("/", &headers)).await.status, status);
    }
}

#[tokio::test]
async fn missing_attribute_is_handled_by_the_rule() {
    let (engine, _) = engine(TWO_RULES);
    let response = send(&layer(&engine), &Hello::default(), get("/", &[])).await;
    assert_eq!((response.status, response.header("retry-after")), (400, None));
    assert!(response.body.contains("rule `user` needs the attribute `user`"), "{}", response.body);
}

#[tokio::test]
async fn usual_attributes_describe_the_request() {
    let (engine, _) = engine(
        r#"
        [[rule]]
        name   = "search"
        match  = { method = "GET", host = "api.example", path = "/v1/search/*", ip = "192.0.2.0/24" }
        key    = ["ip"]
        window = { max = 1, per = "10s" }
        "#,
    );
    let layer = PolicyLayer::new(engine, "default").unwrap().usual_attributes(ClientIp::peer());
    let app = Router::new().nest("/v1", Router::new().fallback(|| async { "found" }).layer(layer));
    let send = async |path: &str, host: &str, peer: &str| {
        let mut request = from(peer);
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert("host", host.parse().unwrap());
        app.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(send("/v1/search/x?q=1", "API.example:8080", "192.0.2.1:1").await, 200);
    assert_eq!(send("/v1/search/y", "api.example", "192.0.2.1:2").await, 429);
    assert_eq!(send("/v1/search/y", "api.example", "192.0.2.2:1").await, 200);
    for (path, host, peer) in [
        ("/v1/other", "api.example", "192.0.2.1:1"),
        ("/v1/search/x", "www.example", "192.0.2.1:1"),
        ("/v1/search/x", "api.example", "198.51.100.1:1"),
    ] {
        assert_eq!(send(path, host, peer).await, 200, "{path} {host} {peer}");
        assert_eq!(send(path, host, peer).await, 200, "{path} {host} {peer}: no rule matches");
    }
}

#[tokio::test]
async fn attributes_come_from_closures_and_the_cost_too() {
    #[derive(Clone)]
    struct Account {
        name: String,
    }

    let (engine, _) = engine(TWO_RULES);
    let account = attribute(|parts| Some(parts.extensions.get::<Account>()?.name.as_str().into()));
    let layer = PolicyLayer::new(engine, "api").unwrap().attribute("user", account).cost(|_| 2);
    let request = || {
        let mut request = get("/", &[]);
        request.extensions_mut().insert(Account { name: "ada".into() });
        request
    };
    let response = send(&layer, &Hello::default(), request()).await;
    assert_eq!(response.header("ratelimit"), Some(r#""user";r=0;t=10, "total";r=28;t=2"#));
    assert_eq!(send(&layer, &Hello::default(), request()).await.status, 429);
}

#[tokio::test]
async fn repeated_idempotency_key_is_charged_once() {
    let (engine, _) = engine(TWO_RULES);
    let layer = layer(&engine).idempotency_key(Header::new("idempotency-key"));
    let keyed = |name| get("/", &[("x-user", "ada"), ("idempotency-key", name)]);
    for _ in 0..5 {
        assert_eq!(send(&layer, &Hello::default(), keyed("order 17")).await.status, 200);
    }
    assert_eq!(send(&layer, &Hello::default(), keyed("order 18")).await.status, 200);
    assert_eq!(send(&layer, &Hello::default(), keyed("order 19")).await.status, 429);
    let other = layer.cost(|_| 2);
    let response = send(&other, &Hello::default(), keyed("order 17")).await;
    assert_eq!(response.status, 422, "another request has used this key: {response:?}");
}

#[tokio::test]
async fn shadow_mode_serves_every_request() {
    let (engine, _) = engine(TWO_RULES);
    let handler = |admission: Admission| async move {
        let left = admission.decision().unwrap().remaining();
        format!(
            "{} {:?} {left}",
            admission.is_allowed(),
            admission.rule().map(tidegate::policy::RuleId::name)
        )
    };
    let app = Router::new().route("/", route(handler)).layer(layer(&engine).mode(Mode::Shadow));
    for expected in ["true Some(\"user\") 1", "true Some(\"user\") 0", "false Some(\"user\") 0"] {
        let response = app.clone().oneshot(get("/", &[("x-user", "ada")])).await.unwrap();
        let response = TestResponse::of(response).await;
        assert_eq!((response.status, &*response.body), (200, expected));
        assert_eq!(response.header("ratelimit"), None);
    }
}

#[tokio::test]
async fn invalid_request_is_not_a_429() {
    let (engine, _) = engine(
        r#"
        [[rule]]
        name   = "tiers"
        key    = ["user"]
        window = { max = 100, per = "10s" }
        cost   = { by = "tier", "1..=4" = 1, "5.." = 3 }

        [[rule]]
        name   = "slots"
        domain = "slots"
        slots  = { max = 1 }
        "#,
    );
    let tiers = PolicyLayer::new(engine.clone(), "default")
        .unwrap()
        .attribute("user", Header::new("x-user"))
        .attribute("tier", Header::new("x-tier"));
    let hello = Hello::default();
    let tier = |tier| get("/", &[("x-user", "ada"), ("x-tier", tier)]);
    let response = send(&tiers, &hello, tier("9")).await;
    assert_eq!(response.header("ratelimit"), Some(r#""tiers";r=97;t=10"#));
    let response = send(&tiers, &hello, tier("none")).await;
    assert_eq!(
        (response.status, response.header("content-type")),
        (422, Some("application/problem+json"))
    );
    assert!(response.body.contains("tier = \\\"none\\\""), "{}", response.body);
    // A layer that checks where it should acquire is a bug of the server.
    let response = send(&PolicyLayer::new(engine, "slots").unwrap(), &hello, get("/", &[])).await;
    assert_eq!(response.status, 500);
    assert!(response.body.contains(r#""detail":"see the server's log""#), "{}", response.body);
    assert_eq!(hello.calls(), 1);
}

#[tokio::test]
async fn policy_can_change_under_a_running_layer() {
    let (engine, clock) = engine(TWO_RULES);
    let (layer, hello) = (layer(&engine), Hello::default());
    for status in [200, 200, 429] {
        assert_eq!(send(&layer, &hello, get("/", &[("x-user", "ada")])).await.status, status);
    }
    let policy = tidegate::policy::Policy::from_toml(&TWO_RULES.replace("max = 2", "max = 3"));
    engine.edit("ops", Edit::policy(policy.unwrap())).block().unwrap();
    for status in [200, 429] {
        assert_eq!(send(&layer, &hello, get("/", &[("x-user", "ada")])).await.status, status);
    }
    clock.advance(Duration::from_secs(10));
    let left =
        engine.peek(&EngineRequest::new("api", &[("user", "ada")])).block().unwrap().remaining();
    assert_eq!(left, Some(3));
}

/// A client must not get around a rule by another way to write what the rule matches on.
#[tokio::test]
async fn rules_that_match_on_a_path_or_a_header_cannot_be_skipped() {
    let (engine, _) = engine(
        r#"
        [[rule]]
        name   = "sign-ups"
        match  = { path = "/sign-up" }
        window = { max = 1, per = "1h" }

        [[rule]]
        name   = "trial"
        match  = { plan = "trial*" }
        window = { max = 1, per = "1h" }
        "#,
    );
    let layer = PolicyLayer::new(engine, "default")
        .unwrap()
        .attribute("path", path())
        .attribute("plan", Header::new("x-plan"));
    let hello = Hello::default();
    assert_eq!(send(&layer, &hello, get("/sign-up", &[])).await.status, 200);
    for path in ["/%73ign-up", "/x/../sign-up", "//sign-up", "/x%2F..%2Fsign-up?a", "/./sign-up"] {
        assert_eq!(send(&layer, &hello, get(path, &[])).await.status, 429, "{path}");
    }
    for path in ["/sign-up%00", "/%zz"] {
        let response = send(&layer, &hello, get(path, &[])).await;
        assert_eq!(response.status, 422, "{path}");
        assert!(response.body.contains("the path has a"), "{}", response.body);
    }
    assert_eq!(send(&layer, &hello, get("/", &[("x-plan", "trial")])).await.status, 200);
    let twice = get("/", &[("x-plan", "trial"), ("x-plan", "trial")]);
    let response = send(&layer, &hello, twice).await;
    assert_eq!(response.status, 422);
    assert!(response.body.contains("the header `x-plan` appears twice"), "{}", response.body);
    let mut bytes = get("/", &[]);
    let value = http::HeaderValue::from_bytes(b"trial\xff").unwrap();
    bytes.headers_mut().insert("x-plan", value);
    assert_eq!(send(&layer, &hello, bytes).await.status, 429);
    assert_eq!(hello.calls(), 2);
}
