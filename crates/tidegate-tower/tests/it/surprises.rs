//! Layers that are set up wrongly, and what callers can replace.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Response, StatusCode};
use tidegate::policy::{Mode, RuleId};
use tidegate::{Bucket, Limiter, Wait};
use tidegate_tower::{
    AttributeError, ClientIp, Denial, DenialKind, Header, LimitLayer, Limits, Outcome, PolicyLayer,
    UpgradeGuard,
};

use crate::support::{Hello, engine, from, get, send};

const BY_USER: &str = r#"
    [[rule]]
    name   = "user"
    domain = "api"
    key    = ["user"]
    window = { max = 1, per = "10s" }
"#;

fn limiter() -> Limiter<IpAddr> {
    Limiter::new(Bucket::per_minute(1))
}

#[test]
fn domain_that_the_policy_does_not_have_is_an_error_at_construction() {
    let (engine, _) = engine(BY_USER);
    assert!(PolicyLayer::new(engine.clone(), "api").is_ok());
    let error = PolicyLayer::new(engine, "apis").unwrap_err();
    let text = "the policy has no rule in the domain `apis`; its domains are: api";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn forgotten_connect_info_is_a_logged_500_and_not_a_429() {
    let (logs, _guard) = logs();
    let hello = Hello::default();
    let layer = LimitLayer::new(limiter(), ClientIp::peer());
    let unlimited = LimitLayer::new(limiter(), ClientIp::peer()).serve_without_key();
    let (engine, _) = engine(&BY_USER.replace("user", "ip"));
    let policy = PolicyLayer::new(engine, "api").unwrap().usual_attributes(ClientIp::peer());
    for _ in 0..3 {
        let statuses = [
            send(&layer, &hello, get("/", &[])).await.status,
            send(&unlimited, &hello, get("/", &[])).await.status,
            send(&policy, &hello, get("/", &[])).await.status,
        ];
        assert_eq!(statuses, [500; 3]);
    }
    assert_eq!(hello.calls(), 0);
    let logs = text(&logs);
    assert_eq!(logs.matches("into_make_service_with_connect_info").count(), 3, "{logs}");
    let response = send(&layer, &hello, from("192.0.2.1:1")).await;
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn upgrade_guard_answers_429_to_an_unknown_address() {
    let layer = UpgradeGuard::default().layer(ClientIp::peer());
    let response = send(&layer, &Hello::default(), get("/", &[])).await;
    assert_eq!(response.status, 429);
}

#[tokio::test]
async fn attribute_that_the_layer_never_supplies_is_a_logged_500() {
    let (logs, _guard) = logs();
    let (engine, _) = engine(BY_USER);
    let layer = PolicyLayer::new(engine.clone(), "api").unwrap();
    let response = send(&layer, &Hello::default(), get("/", &[])).await;
    assert_eq!(response.status, 500);
    assert!(!response.body.contains("user"), "the client learns nothing: {}", response.body);
    assert!(text(&logs).contains("rule `user` needs the attribute `user`"), "{}", text(&logs));
    let layer = layer.attribute("user", Header::new("x-user"));
    let response = send(&layer, &Hello::default(), get("/", &[])).await;
    assert_eq!(response.status, 400, "the layer supplies it, the request lacks it");
}

#[tokio::test]
async fn rule_that_matches_on_an_attribute_never_supplied_is_logged() {
    let (logs, _guard) = logs();
    let (engine, _) = engine(&format!("{BY_USER}\nmatch = {{ plan = \"free\" }}"));
    let layer = PolicyLayer::new(engine, "api").unwrap().attribute("user", Header::new("x-user"));
    let response = send(&layer, &Hello::default(), get("/", &[("x-user", "ada")])).await;
    assert_eq!(response.status, 200);
    assert!(text(&logs).contains("never applies"), "{}", text(&logs));
}

#[tokio::test]
async fn header_that_appears_twice_is_a_422_for_a_limiter_too() {
    let limiter: Limiter<String> = Limiter::new(Bucket::per_minute(5));
    let layer = LimitLayer::new(limiter, Header::new("x-key")).serve_without_key();
    let twice = [("x-key", "a"), ("x-key", "b")];
    assert_eq!(send(&layer, &Hello::default(), get("/", &twice)).await.status, 422);
}

#[tokio::test]
async fn response_of_a_denial_is_the_callers() {
    let (engine, _) = engine(BY_USER);
    let respond = |denial: &Denial, parts: &http::request::Parts| {
        assert_eq!((denial.kind(), denial.reason()), (DenialKind::LimitExceeded, reason()));
        assert_eq!(denial.rules().map(RuleId::name).collect::<Vec<_>>(), ["user"]);
        assert!(matches!(denial.retry_after(), Some(Wait::After(_))));
        assert_eq!(denial.decision().unwrap().limit(), 1);
        let retry_after = denial.response().headers()["retry-after"].clone();
        Response::builder()
            .status(StatusCode::IM_A_TEAPOT)
            .header("retry-after", retry_after)
            .body(Bytes::from(format!("not {} now", parts.uri.path())))
            .unwrap()
    };
    let layer = PolicyLayer::new(engine, "api")
        .unwrap()
        .attribute("user", Header::new("x-user"))
        .on_denial(respond);
    let request = || get("/tea", &[("x-user", "ada")]);
    assert_eq!(send(&layer, &Hello::default(), request()).await.status, 200);
    let response = send(&layer, &Hello::default(), request()).await;
    assert_eq!((response.status, response.header("retry-after")), (418, Some("10")));
    assert_eq!(response.body, "not /tea now");
    assert_eq!(response.header("ratelimit"), None, "nothing is added to it");
}

fn reason() -> &'static str {
    "denied by rule `user`: retry in 10s"
}

#[tokio::test]
async fn every_decision_is_observed_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observe = {
        let seen = Arc::clone(&seen);
        move |outcome: &Outcome<'_>, parts: &http::request::Parts| {
            let what = match outcome {
                Outcome::Allowed => "allowed",
                Outcome::Denied(_) => "denied",
                Outcome::ShadowDenied(_) => "shadow",
                Outcome::Skipped => "skipped",
                _ => "other",
            };
            seen.lock().unwrap().push(format!("{what} {}", parts.uri.path()));
        }
    };
    let layer = LimitLayer::new(limiter(), |_: &_| Some(IpAddr::from([192, 0, 2, 1])))
        .skip(|parts| parts.uri.path() == "/healthz")
        .observe(observe.clone());
    let hello = Hello::default();
    for path in ["/a", "/b", "/healthz"] {
        let _ = send(&layer, &hello, get(path, &[])).await;
    }
    let _ = send(&layer.mode(Mode::Shadow), &hello, get("/c", &[])).await;
    // Over a store or a queue that answers later, too.
    let (engine, _) = engine("[[rule]]\nname = \"calls\"\nslots = { max = 1, queue = 0 }\n");
    let held = engine.acquire(&tidegate::Request::new("default", &[]), None).await.unwrap();
    let slots = PolicyLayer::new(engine, "default").unwrap().slots(None).observe(observe);
    let _ = send(&slots, &hello, get("/d", &[])).await;
    drop(held);
    let _ = send(&slots, &hello, get("/e", &[])).await;
    let wanted =
        ["allowed /a", "denied /b", "skipped /healthz", "shadow /c", "denied /d", "allowed /e"];
    assert_eq!(*seen.lock().unwrap(), wanted);
}

#[test]
fn error_of_an_attribute_says_whose_fault_it_is() {
    assert!(!AttributeError::new("the header is not valid").is_misconfigured());
    assert!(AttributeError::misconfigured("no peer").is_misconfigured());
}

/// What is logged in this thread.
fn logs() -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    let logs = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let logs = Arc::clone(&logs);
        move || Log(Arc::clone(&logs))
    };
    let subscriber = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).finish();
    (logs, tracing::subscriber::set_default(subscriber))
}

fn text(logs: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&logs.lock().unwrap()).into_owned()
}

struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn limits_without_a_policy_are_one_decision() {
    let layer = Limits::new()
        .limit("per-ip", ClientIp::peer(), Bucket::per_minute(2))
        .limit("per-key", Header::new("x-api-key"), Bucket::per_minute(1))
        .layer()
        .on_limited(|denial| {
            let rules = denial.rules().map(RuleId::name).collect::<Vec<_>>().join(" ");
            (StatusCode::TOO_MANY_REQUESTS, [("x-rules", rules.clone())], format!("over {rules}"))
        });
    let hello = Hello::default();
    let request = |peer: &str, key: Option<&str>| {
        let mut request = from(peer);
        if let Some(key) = key {
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
        }
        request
    };
    let status = async |peer, key| send(&layer, &hello, request(peer, key)).await.status;
    assert_eq!(status("192.0.2.1:1", Some("ada")).await, 200);
    let limited = send(&layer, &hello, request("192.0.2.1:1", Some("ada"))).await;
    assert_eq!((limited.status, limited.header("x-rules")), (429, Some("per-key")));
    assert_eq!(
        (limited.body.as_str(), limited.header("retry-after")),
        ("over per-key", Some("60"))
    );
    assert!(limited.header("ratelimit").is_some());
    assert_eq!(status("192.0.2.1:1", Some("bob")).await, 200, "the denied one charged no address");
    assert_eq!(status("192.0.2.1:1", Some("eve")).await, 429);
    // An IPv6 network is one client, as everywhere.
    assert_eq!(status("[2001:db8::1]:1", Some("a")).await, 200);
    assert_eq!(status("[2001:db8::2]:1", Some("b")).await, 200);
    assert_eq!(status("[2001:db8::3]:1", Some("c")).await, 429);
    // A request without a key is no rate limit, and nothing of the caller's runs for it.
    let unknown = send(&layer, &hello, request("192.0.2.9:1", None)).await;
    assert_eq!((unknown.status, unknown.header("x-rules")), (400, None));
    assert!(unknown.header("retry-after").is_none() && unknown.body.contains("per-key"));
}

#[tokio::test]
async fn grpc_calls_stay_grpc() {
    let limiter: Limiter<String> = Limiter::new(Bucket::per_minute(1));
    let layer = LimitLayer::new(limiter, Header::new("x-key")).on_limited(|_| "not for gRPC");
    let call = |key: &str| {
        let mut call =
            get("/service/method", &[("content-type", "application/grpc"), ("x-key", key)]);
        (*call.method_mut(), *call.version_mut()) = (http::Method::POST, http::Version::HTTP_2);
        if key.is_empty() {
            call.headers_mut().remove("x-key");
        }
        call
    };
    let hello = Hello::default();
    assert_eq!(send(&layer, &hello, call("a")).await.status, 200);
    let limited = send(&layer, &hello, call("a")).await;
    assert_eq!(limited.header("grpc-status"), Some("8"));
    assert_eq!(send(&layer, &hello, call("")).await.header("grpc-status"), Some("16"));
}
