//! One limiter in front of a service.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get as route;
use axum::{Extension, Router};
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use tidegate::policy::Mode;
use tidegate::{Bucket, Limiter, Window, clock::ManualClock};
use tidegate_tower::{Admission, Dialect, Header, LimitLayer, PathParam, extension};
use tower::ServiceExt;

use crate::support::{Hello, TestResponse, get, send};

type Windows = Arc<Limiter<String, Window, ManualClock>>;

/// Two per 10 s and user.
fn two_per_ten_seconds() -> (Windows, ManualClock) {
    let clock = ManualClock::default();
    let window = Window::new(2, Duration::from_secs(10));
    (Arc::new(Limiter::builder(window).clock(clock.clone()).build().unwrap()), clock)
}

fn by_user(limiter: &Windows) -> LimitLayer {
    LimitLayer::new(Arc::clone(limiter), Header::new("x-user")).name("searches")
}

#[tokio::test]
async fn allowed_response_reports_what_is_left() {
    let (limiter, clock) = two_per_ten_seconds();
    let (layer, hello) = (by_user(&limiter), Hello::default());
    let response = send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
    assert_eq!((response.status, &*response.body), (200, "hello"));
    assert_eq!(response.header("ratelimit-policy"), Some(r#""searches";q=2;w=10"#));
    assert_eq!(response.header("ratelimit"), Some(r#""searches";r=1;t=10"#));
    assert_eq!(response.header("retry-after"), None);
    clock.advance(Duration::from_millis(3_500));
    let response = send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
    assert_eq!(response.header("ratelimit"), Some(r#""searches";r=0;t=7"#));
}

#[tokio::test]
async fn denied_request_gets_a_429_with_the_wait() {
    let (limiter, clock) = two_per_ten_seconds();
    let (layer, hello) = (by_user(&limiter), Hello::default());
    for _ in 0..2 {
        assert_eq!(send(&layer, &hello, get("/", &[("x-user", "ada")])).await.status, 200);
    }
    clock.advance(Duration::from_millis(1));
    let response = send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
    assert_eq!(response.status, 429);
    assert_eq!(response.header("retry-after"), Some("10"));
    assert_eq!(response.header("ratelimit"), Some(r#""searches";r=0;t=10"#));
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(
        response.body,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"detail\":\"too many requests: retry later\",\
         \"violated-policies\":[\"searches\"],\"retry_after_ms\":9999}"
    );
    assert_eq!(hello.calls(), 2, "the handler does not run");
    assert_eq!(send(&layer, &hello, get("/", &[("x-user", "bob")])).await.status, 200);
    // The wait is exact: one nanosecond earlier the request is denied.
    clock.advance(Duration::from_nanos(9_998_999_999));
    assert_eq!(send(&layer, &hello, get("/", &[("x-user", "ada")])).await.status, 429);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(send(&layer, &hello, get("/", &[("x-user", "ada")])).await.status, 200);
}

#[tokio::test]
async fn body_of_a_denied_request_is_not_read() {
    /// A body that records whether it was polled.
    struct Watched(Arc<AtomicBool>);

    impl http_body::Body for Watched {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            self.0.store(true, Ordering::SeqCst);
            std::task::Poll::Ready(None)
        }
    }

    let (limiter, _) = two_per_ten_seconds();
    let is_polled = Arc::new(AtomicBool::new(false));
    let hello = Hello::default();
    for _ in 0..4 {
        let body = Body::new(Watched(Arc::clone(&is_polled)));
        let request = Request::post("/").header("x-user", "ada").body(body).unwrap();
        send(&by_user(&limiter), &hello, request).await;
    }
    assert_eq!(hello.calls(), 2);
    assert!(!is_polled.load(Ordering::SeqCst));
}

#[tokio::test]
async fn requests_without_a_key_are_denied_by_default() {
    let (limiter, _) = two_per_ten_seconds();
    let (layer, hello) = (by_user(&limiter), Hello::default());
    let response = send(&layer, &hello, get("/", &[])).await;
    assert_eq!((response.status, response.header("retry-after")), (400, None));
    assert!(response.body.contains("the request has no key"), "{}", response.body);
    assert_eq!(limiter.len(), 0, "nothing was charged");
    let lenient = layer.serve_without_key();
    let response = send(&lenient, &hello, get("/", &[])).await;
    assert_eq!((response.status, response.header("ratelimit")), (200, None));
}

#[tokio::test]
async fn cost_comes_from_a_closure() {
    let clock = ManualClock::default();
    let bucket = Bucket::per_second(1).burst(10);
    let limiter: Limiter<String, _, _> = Limiter::builder(bucket).clock(clock).build().unwrap();
    let layer = LimitLayer::new(limiter, Header::new("x-user")).cost(|parts| {
        let cost = parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok());
        cost.unwrap_or(1)
    });
    let hello = Hello::default();
    let cost = |cost| get("/", &[("x-user", "ada"), ("x-cost", cost)]);
    let response = send(&layer, &hello, cost("7")).await;
    assert_eq!(response.header("ratelimit"), Some(r#""default";r=3;t=7"#));
    let response = send(&layer, &hello, cost("5")).await;
    assert_eq!((response.status, response.header("retry-after")), (429, Some("2")));
    let response = send(&layer, &hello, cost("11")).await;
    assert_eq!((response.status, response.header("retry-after")), (429, None), "never");
    let response = send(&layer, &hello, cost("0")).await;
    assert_eq!(
        response.header("ratelimit"),
        Some(r#""default";r=3;t=7"#),
        "a cost of 0 charges nothing"
    );
}

#[tokio::test]
async fn the_dialect_of_headers_is_a_setting() {
    let (limiter, _) = two_per_ten_seconds();
    let layer = by_user(&limiter).dialect(Dialect::XRateLimit);
    let response = send(&layer, &Hello::default(), get("/", &[("x-user", "ada")])).await;
    let headers = ["limit", "remaining", "reset"].map(|name| format!("x-ratelimit-{name}"));
    assert_eq!(headers.map(|name| response.header(&name).unwrap().to_owned()), ["2", "1", "10"]);
    assert_eq!(response.header("ratelimit"), None);
    let silent = by_user(&limiter).dialect(Dialect::None);
    let response = send(&silent, &Hello::default(), get("/", &[("x-user", "ada")])).await;
    assert!(response.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
}

#[tokio::test]
async fn shadow_mode_serves_every_request_and_the_handler_sees_the_denial() {
    let (limiter, _) = two_per_ten_seconds();
    let layer = by_user(&limiter).mode(Mode::Shadow);
    let app = Router::new()
        .route(
            "/",
            route(|admission: Admission| async move {
                let is_allowed = admission.decision().unwrap().is_allowed();
                assert_eq!(is_allowed, admission.is_allowed());
                is_allowed.to_string()
            }),
        )
        .layer(layer);
    for expected in ["true", "true", "false", "false"] {
        let response = app.clone().oneshot(get("/", &[("x-user", "ada")])).await.unwrap();
        let response = TestResponse::of(response).await;
        assert_eq!((response.status, &*response.body), (200, expected));
        assert_eq!(response.header("ratelimit"), None, "clients notice nothing");
    }
}

#[tokio::test]
async fn a_handler_sees_its_decision() {
    let (limiter, _) = two_per_ten_seconds();
    let handler = |admission: Admission| async move {
        admission.decision().map_or("unlimited".to_owned(), |it| it.remaining().to_string())
    };
    let app = Router::new()
        .route("/limited", route(handler))
        .route_layer(by_user(&limiter))
        .route("/free", route(handler));
    for (path, expected) in [("/limited", "1"), ("/limited", "0"), ("/free", "unlimited")] {
        let response = app.clone().oneshot(get(path, &[("x-user", "ada")])).await.unwrap();
        assert_eq!(TestResponse::of(response).await.body, expected);
    }
}

#[tokio::test]
async fn keys_come_from_paths_extensions_and_closures() {
    #[derive(Clone)]
    struct Account(u64);

    let one = || Window::new(1, Duration::from_secs(10));
    let rooms: Limiter<String, _> = Limiter::new(one());
    let accounts: Limiter<u64, _> = Limiter::new(one());
    let hosts: Limiter<(String, bool), _> = Limiter::new(one());
    let key = |parts: &Parts| {
        let host = parts.headers.get("host")?.to_str().ok()?;
        Some((host.to_owned(), parts.method == http::Method::GET))
    };
    let app = Router::new()
        .nest(
            "/v1",
            Router::new()
                .route("/rooms/{room}/say", route(|| async { "said" }))
                .route("/room-{room}", route(|| async { "read" }))
                .route_layer(LimitLayer::new(rooms, PathParam::new("room"))),
        )
        .route(
            "/account",
            route(|| async { "paid" })
                .layer::<_, Infallible>(LimitLayer::new(
                    accounts,
                    extension(|Account(id): &Account| *id),
                ))
                .layer(Extension(Account(7))),
        )
        .route("/host", route(|| async { "served" }).layer(LimitLayer::new(hosts, key)));
    let cases = [
        ("/v1/rooms/red/say", 200),
        ("/v1/rooms/red/say", 429),
        ("/v1/rooms/r%65d/say", 429),
        ("/v1/rooms/blue/say", 200),
        ("/v1/room-blue", 429),
        ("/v1/room-green", 200),
        ("/account", 200),
        ("/account", 429),
        ("/host", 200),
        ("/host", 429),
    ];
    for (path, status) in cases {
        let response = app.clone().oneshot(get(path, &[("host", "a.example")])).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn two_layers_both_report_what_is_left() {
    let (limiter, _) = two_per_ten_seconds();
    let (other, _) = two_per_ten_seconds();
    let app = Router::new()
        .route("/", route(|| async { "hello" }))
        .layer(by_user(&limiter).name("inner"))
        .layer(by_user(&other).name("outer").cost(|_| 2));
    let response = app.oneshot(get("/", &[("x-user", "ada")])).await.unwrap();
    let lines: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(lines, [r#""inner";r=1;t=10"#, r#""outer";r=0;t=10"#]);
}

#[tokio::test]
async fn skipped_requests_bypass_the_limit() {
    let (limiter, _) = two_per_ten_seconds();
    let layer = by_user(&limiter).skip(|parts| parts.uri.path() == "/healthz");
    let hello = Hello::default();
    for _ in 0..5 {
        assert_eq!(send(&layer, &hello, get("/healthz", &[])).await.status, 200);
    }
    assert_eq!(send(&layer, &hello, get("/", &[])).await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_are_admitted_exactly() {
    let bucket = Bucket::per_second(1).burst(100);
    let clock = ManualClock::default();
    let limiter: Limiter<String, _, _> = Limiter::builder(bucket).clock(clock).build().unwrap();
    let layer = LimitLayer::new(limiter, Header::new("x-user"));
    let hello = Hello::default();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (layer, hello) = (layer.clone(), hello.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    send(&layer, &hello, get("/", &[("x-user", "ada")])).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(hello.calls(), 100);
}
