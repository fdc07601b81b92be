//! How every layer treats the inner service and its responses.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, Version};
use http_body::Body as _;
use tidegate::{Limiter, Window, clock::ManualClock};
use tidegate_tower::{Dialect, Header, LimitLayer, PolicyLayer};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Hello, TestResponse, engine, get, send};

const SLOTS: &str = "[[rule]]\nname = \"calls\"\nslots = { max = 1 }\n";

fn one_per_ten_seconds() -> LimitLayer {
    let window = Window::new(1, Duration::from_secs(10));
    let limiter = Limiter::builder(window).clock(ManualClock::default()).build().unwrap();
    LimitLayer::new(limiter, Header::new("x-user"))
}

fn ada() -> Request<Body> {
    get("/", &[("x-user", "ada")])
}

/// A service that must be ready before each call. Its clones are not ready.
#[derive(Default)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without being ready");
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn called_service_is_the_one_that_was_ready() {
    let (engine, _) = engine(SLOTS);
    let mut later =
        PolicyLayer::new(engine, "default").unwrap().slots(None).layer(Strict::default());
    let mut now = one_per_ten_seconds().layer(Strict::default());
    for _ in 0..2 {
        assert_eq!(later.ready().await.unwrap().call(get("/", &[])).await.unwrap().status(), 200);
    }
    assert_eq!(now.ready().await.unwrap().call(ada()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn body_lengths_and_ends_are_known_beforehand() {
    let (layer, hello) = (one_per_ten_seconds(), Hello::default());
    let served = layer.layer(hello.clone()).oneshot(ada()).await.unwrap();
    assert_eq!(served.body().size_hint().exact(), Some(5));
    let denied = layer.layer(hello.clone()).oneshot(ada()).await.unwrap();
    let hint = denied.body().size_hint().exact();
    assert_eq!(hint, Some(TestResponse::of(denied).await.body.len() as u64));
    let call = grpc("application/grpc", &[("x-user", "ada")]);
    let denied = layer.layer(hello).oneshot(call).await.unwrap();
    assert!(denied.body().is_end_stream(), "a denied call ends with its headers");
    let mut empty = ada();
    empty.headers_mut().insert("x-user", "bob".parse().unwrap());
    let served = layer.layer(Strict::default()).oneshot(empty).await.unwrap();
    assert!(served.body().is_end_stream());
}

#[tokio::test]
async fn innermost_layer_sets_single_valued_headers() {
    let inner = one_per_ten_seconds().dialect(Dialect::XRateLimit);
    let window = Window::new(9, Duration::from_secs(10));
    let limiter: Limiter<String, _> = Limiter::new(window);
    let outer = LimitLayer::new(limiter, Header::new("x-user")).dialect(Dialect::XRateLimit);
    let response = send(&outer, &inner.layer(Hello::default()), ada()).await;
    let limits: Vec<_> = response.headers.get_all("x-ratelimit-limit").iter().collect();
    assert_eq!(limits, ["1"]);
}

/// The head of a gRPC call.
pub(crate) fn grpc(content_type: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = get("/", headers);
    (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    request
}

#[tokio::test]
async fn grpc_calls_are_recognized_by_content_type() {
    let (layer, hello) = (one_per_ten_seconds(), Hello::default());
    send(&layer, &hello, ada()).await;
    for content_type in ["application/grpc", "application/grpc+proto"] {
        let response = send(&layer, &hello, grpc(content_type, &[("x-user", "ada")])).await;
        assert_eq!((response.status, response.header("grpc-status")), (200, Some("8")));
        assert_eq!(response.header("content-type"), Some(content_type));
        assert_eq!(response.header("ratelimit"), Some(r#""default";r=0;t=10"#));
        assert_eq!(response.body, "");
    }
    let response = send(&layer, &hello, grpc("application/json", &[("x-user", "ada")])).await;
    assert_eq!((response.status, response.header("grpc-status")), (429, None));
}

#[tokio::test]
async fn grpc_status_tells_the_cause_of_a_denial() {
    let (engine, _) = engine(
        r#"
        [[rule]]
        name   = "tiers"
        window = { max = 100, per = "10s" }
        cost   = { by = "tier", "1..=4" = 1 }

        [[rule]]
        name   = "once"
        domain = "once"
        window = { max = 1, per = "10s" }
        deny   = "100 %: höchstens"

        [[rule]]
        name   = "slots"
        domain = "slots"
        slots  = { max = 1, queue = 0 }
        "#,
    );
    let hello = Hello::default();
    let call = || grpc("application/grpc", &[]);
    let layer = |domain| PolicyLayer::new(engine.clone(), domain).unwrap();
    let tiers = layer("default").attribute("tier", Header::new("x-tier"));
    let invalid = send(&tiers, &hello, grpc("application/grpc", &[("x-tier", "9")])).await;
    assert_eq!(invalid.header("grpc-status"), Some("3"));
    let misconfigured = send(&layer("slots"), &hello, call()).await;
    assert_eq!(misconfigured.header("grpc-status"), Some("13"));
    assert_eq!(misconfigured.header("grpc-message"), Some("see the server's log"));
    let slots = layer("slots").slots(Some(Duration::ZERO));
    let _in_flight = slots.layer(hello.clone()).oneshot(get("/", &[])).await.unwrap();
    let full = send(&slots, &hello, call()).await;
    assert_eq!(full.header("grpc-status"), Some("14"));
    for denied in [invalid, misconfigured, full] {
        assert_eq!(denied.header("grpc-status-details-bin"), None);
        assert_eq!(denied.header("grpc-retry-pushback-ms"), None);
    }
    send(&layer("once"), &hello, call()).await;
    let denied = send(&layer("once"), &hello, call()).await;
    assert_eq!(denied.header("grpc-message"), Some("100 %25: h%C3%B6chstens"));
}
