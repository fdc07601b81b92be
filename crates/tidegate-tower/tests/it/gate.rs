//! What every layer does with the service behind it, and with its answers.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, Version};
use http_body::Body as _;
use tidegate::{Limiter, ManualClock, Window};
use tidegate_tower::{Dialect, Header, LimitLayer, PolicyLayer};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Answer, Hello, ask, engine, get};

const SLOTS: &str = "[[rule]]\nname = \"calls\"\nslots = { max = 1 }\n";

fn one_per_ten_seconds() -> LimitLayer {
    let window = Window::new(1, Duration::from_secs(10)).unwrap();
    let limiter = Limiter::builder(window).clock(ManualClock::default()).build().unwrap();
    LimitLayer::new(limiter, Header::new("x-user"))
}

fn ada() -> Request<Body> {
    get("/", &[("x-user", "ada")])
}

/// A service that has to be ready before each call. Its clones are not.
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
async fn the_service_that_is_called_is_the_one_that_was_ready() {
    let (engine, _) = engine(SLOTS);
    let mut later = PolicyLayer::new(engine, "default").slots(None).layer(Strict::default());
    let mut now = one_per_ten_seconds().layer(Strict::default());
    for _ in 0..2 {
        assert_eq!(later.ready().await.unwrap().call(get("/", &[])).await.unwrap().status(), 200);
    }
    assert_eq!(now.ready().await.unwrap().call(ada()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn lengths_and_ends_of_bodies_are_known_beforehand() {
    let (layer, hello) = (one_per_ten_seconds(), Hello::default());
    let served = layer.layer(hello.clone()).oneshot(ada()).await.unwrap();
    assert_eq!(served.body().size_hint().exact(), Some(5));
    let refused = layer.layer(hello.clone()).oneshot(ada()).await.unwrap();
    let told = refused.body().size_hint().exact();
    assert_eq!(told, Some(Answer::of(refused).await.body.len() as u64));
    let call = grpc("application/grpc", &[("x-user", "ada")]);
    let refused = layer.layer(hello).oneshot(call).await.unwrap();
    assert!(refused.body().is_end_stream(), "a refused call is over with its headers");
    let mut empty = ada();
    empty.headers_mut().insert("x-user", "bob".parse().unwrap());
    let served = layer.layer(Strict::default()).oneshot(empty).await.unwrap();
    assert!(served.body().is_end_stream());
}

#[tokio::test]
async fn of_what_can_be_said_once_the_innermost_word_stays() {
    let inner = one_per_ten_seconds().dialect(Dialect::XRateLimit);
    let window = Window::new(9, Duration::from_secs(10)).unwrap();
    let limiter: Limiter<String, _> = Limiter::new(window);
    let outer = LimitLayer::new(limiter, Header::new("x-user")).dialect(Dialect::XRateLimit);
    let answer = ask(&outer, &inner.layer(Hello::default()), ada()).await;
    let limits: Vec<_> = answer.headers.get_all("x-ratelimit-limit").iter().collect();
    assert_eq!(limits, ["1"]);
}

/// A call, as far as its head goes.
pub(crate) fn grpc(content_type: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = get("/", headers);
    (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    request
}

#[tokio::test]
async fn a_call_of_grpc_is_known_by_its_content_type() {
    let (layer, hello) = (one_per_ten_seconds(), Hello::default());
    ask(&layer, &hello, ada()).await;
    for content_type in ["application/grpc", "application/grpc+proto"] {
        let answer = ask(&layer, &hello, grpc(content_type, &[("x-user", "ada")])).await;
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("8")));
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(answer.header("ratelimit"), Some(r#""default";r=0;t=10"#));
        assert_eq!(answer.body, "");
    }
    let answer = ask(&layer, &hello, grpc("application/json", &[("x-user", "ada")])).await;
    assert_eq!((answer.status, answer.header("grpc-status")), (429, None));
}

#[tokio::test]
async fn calls_are_told_whose_fault_it_is() {
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
        name   = "places"
        domain = "places"
        slots  = { max = 1, queue = 0 }
        "#,
    );
    let hello = Hello::default();
    let call = || grpc("application/grpc", &[]);
    let layer = |domain| PolicyLayer::new(engine.clone(), domain);
    let tiers = layer("default").attribute("tier", Header::new("x-tier"));
    let misread = ask(&tiers, &hello, grpc("application/grpc", &[("x-tier", "9")])).await;
    assert_eq!(misread.header("grpc-status"), Some("3"));
    let misfit = ask(&layer("places"), &hello, call()).await;
    assert_eq!(misfit.header("grpc-status"), Some("13"));
    assert_eq!(misfit.header("grpc-message"), Some("see the server's log"));
    let places = layer("places").slots(Some(Duration::ZERO));
    let _in_flight = places.layer(hello.clone()).oneshot(get("/", &[])).await.unwrap();
    let full = ask(&places, &hello, call()).await;
    assert_eq!(full.header("grpc-status"), Some("14"));
    for told in [misread, misfit, full] {
        assert_eq!(told.header("grpc-status-details-bin"), None);
        assert_eq!(told.header("grpc-retry-pushback-ms"), None);
    }
    ask(&layer("once"), &hello, call()).await;
    let refused = ask(&layer("once"), &hello, call()).await;
    assert_eq!(refused.header("grpc-message"), Some("100 %25: h%C3%B6chstens"));
}
