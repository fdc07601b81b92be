//! Costs that are known only afterwards.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::get as route;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use tidegate::{Bucket, Limiter, Request as EngineRequest, Window};
use tidegate_tower::{Admission, Header, LimitLayer, PolicyLayer, Settle};
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{TestEngine, TestResponse, engine, get};

const TOKENS: &str = r#"
    [[rule]]
    name        = "tokens"
    key         = ["team"]
    quota       = { max = 1000, per = "day" }
    reserve_for = "1m"
"#;

fn layer(engine: &TestEngine) -> PolicyLayer {
    PolicyLayer::new(engine.clone(), "default")
        .unwrap()
        .attribute("team", Header::new("x-team"))
        .cost(|_| 400)
        .settle(|response| match response.status.is_success() {
            true => Settle::Commit(None),
            false => Settle::Cancel,
        })
}

fn left(engine: &TestEngine) -> u64 {
    let report = engine.peek(&EngineRequest::new("default", &[("team", "red")])).block().unwrap();
    report.remaining().unwrap()
}

fn red() -> Request<Body> {
    get("/", &[("x-team", "red")])
}

fn once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn actual_cost_set_by_the_handler_is_charged() {
    let (engine, _) = engine(TOKENS);
    let handler = |admission: Admission| async move {
        admission.actual_cost().unwrap().set(123);
        "done"
    };
    let app = Router::new().route("/", route(handler)).layer(layer(&engine));
    let response = TestResponse::of(app.oneshot(red()).await.unwrap()).await;
    assert_eq!(response.status, 200);
    // The headers were correct when the request was admitted: 400 were held.
    assert!(response.header("ratelimit").unwrap().starts_with(r#""tokens";r=600;"#));
    assert_eq!(left(&engine), 877);
}

#[tokio::test]
async fn settle_amount_wins_over_the_actual_cost() {
    let (engine, _) = engine(TOKENS);
    let handler = |admission: Admission| async move {
        let cost = admission.actual_cost().unwrap();
        cost.set(u64::MAX);
        assert_eq!(cost.actual(), Some(u64::MAX - 1), "the largest cost");
        cost.set(123);
    };
    let layer = layer(&engine).settle(|_| Settle::Commit(Some(30)));
    let app = Router::new().route("/", route(handler)).layer(layer);
    let response = TestResponse::of(app.oneshot(red()).await.unwrap()).await;
    assert_eq!(response.header("ratelimit-policy"), Some(r#""tokens";q=1000;w=86400"#));
    assert_eq!(left(&engine), 970);
}

#[tokio::test]
async fn without_an_actual_cost_all_held_units_are_charged() {
    let (engine, _) = engine(TOKENS);
    let app = Router::new().route("/", route(|| async { "done" })).layer(layer(&engine));
    app.oneshot(red()).await.unwrap();
    assert_eq!(left(&engine), 600);
}

#[tokio::test]
async fn response_can_cancel_the_charge() {
    let (engine, _) = engine(TOKENS);
    let handler = |admission: Admission| async move {
        admission.actual_cost().unwrap().set(50);
        StatusCode::BAD_GATEWAY.into_response()
    };
    let app = Router::new().route("/", route(handler)).layer(layer(&engine));
    assert_eq!(app.oneshot(red()).await.unwrap().status(), 502);
    assert_eq!(left(&engine), 1000);
}

#[tokio::test]
async fn service_error_releases_the_hold() {
    let (engine, _) = engine(TOKENS);
    let broken = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("broken"));
    let service = layer(&engine).layer(broken);
    assert_eq!(service.oneshot(red()).await.unwrap_err(), "broken");
    assert_eq!(left(&engine), 1000);
}

#[tokio::test]
async fn disconnected_client_releases_the_hold() {
    let (engine, _) = engine(TOKENS);
    let never =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let mut service = layer(&engine).layer(never);
    {
        let mut served = pin!(service.call(red()));
        assert!(once(served.as_mut()).is_pending());
        assert_eq!(left(&engine), 600, "it is held while it is served");
    }
    assert_eq!(left(&engine), 1000);
    // A future that was never polled releases it as well.
    drop(service.call(red()));
    assert_eq!(left(&engine), 1000);
}

#[tokio::test]
async fn client_that_disconnects_after_the_cost_was_set_is_charged_it() {
    let (engine, _) = engine(TOKENS);
    let handler = |admission: Admission| async move {
        admission.actual_cost().unwrap().set(70);
        std::future::pending::<()>().await;
    };
    let mut app = Router::new().route("/", route(handler)).layer(layer(&engine));
    {
        let mut served = pin!(app.call(red()));
        assert!(once(served.as_mut()).is_pending());
    }
    assert_eq!(left(&engine), 930);
}

#[tokio::test]
async fn request_that_cannot_be_held_is_denied() {
    let (engine, _) = engine(TOKENS);
    let app = Router::new().route("/", route(|| async { "done" })).layer(layer(&engine));
    for status in [200, 200, 429] {
        assert_eq!(app.clone().oneshot(red()).await.unwrap().status().as_u16(), status);
    }
    assert_eq!(left(&engine), 200);
}

#[tokio::test]
async fn expired_reservation_is_not_charged() {
    let (engine, clock) = engine(TOKENS);
    let inner = clock.clone();
    let slow = service_fn(move |_: Request<Body>| {
        inner.advance(Duration::from_secs(61));
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }
    });
    layer(&engine).layer(slow).oneshot(red()).await.unwrap();
    engine.tick();
    assert_eq!(left(&engine), 1000);
}

/// A response whose body comes from a channel.
pub(crate) fn streaming() -> (mpsc::UnboundedSender<Bytes>, Router) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let handler = move |admission: Admission| {
        let mut receiver = receiver.lock().unwrap().take().unwrap();
        async move {
            let cost = admission.actual_cost().unwrap().clone();
            let mut sent = 0;
            let frames = std::future::poll_fn(move |context| {
                receiver.poll_recv(context).map(|bytes| {
                    let bytes = bytes?;
                    sent += bytes.len() as u64;
                    cost.set(sent);
                    Some(Ok::<_, Infallible>(http_body::Frame::data(bytes)))
                })
            });
            Response::new(Body::new(StreamBody::new(Polled(frames))))
        }
    };
    (sender, Router::new().route("/", route(handler)))
}

/// A stream from a poll function.
struct Polled<F>(F);

impl<F, T> tokio_stream::Stream for Polled<F>
where
    F: Future<Output = Option<T>> + Unpin,
{
    type Item = T;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        std::pin::Pin::new(&mut self.0).poll(context)
    }
}

#[tokio::test]
async fn stream_is_settled_when_it_ends() {
    let (engine, _) = engine(TOKENS);
    let (sender, app) = streaming();
    let app = app.layer(layer(&engine).settle(|_| Settle::AtEnd));
    let response = app.oneshot(red()).await.unwrap();
    assert_eq!(left(&engine), 600, "its cost is not known yet");
    sender.send(Bytes::from_static(b"0123456789")).unwrap();
    drop(sender);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), 10);
    assert_eq!(left(&engine), 990);
}

#[tokio::test]
async fn interrupted_stream_is_charged_its_actual_cost() {
    for (sent, expected) in [("", 1000), ("0123456789", 990)] {
        let (engine, _) = engine(TOKENS);
        let (sender, app) = streaming();
        let app = app.layer(layer(&engine).settle(|_| Settle::AtEnd));
        let response = app.oneshot(red()).await.unwrap();
        let mut body = response.into_body();
        if !sent.is_empty() {
            sender.send(Bytes::from_static(sent.as_bytes())).unwrap();
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        assert_eq!(left(&engine), expected);
    }
}

#[tokio::test]
async fn a_stream_that_outlives_its_reservation_is_charged() {
    let (engine, clock) = engine(TOKENS);
    let (sender, app) = streaming();
    let app = app.layer(layer(&engine).settle(|_| Settle::AtEnd));
    let mut body = app.oneshot(red()).await.unwrap().into_body();
    for _ in 0..10 {
        clock.advance(Duration::from_secs(40));
        sender.send(Bytes::from_static(b"0123456789")).unwrap();
        body.frame().await.unwrap().unwrap();
        assert_eq!(left(&engine), 600, "it is still on hold");
    }
    drop(sender);
    assert!(body.frame().await.is_none());
    assert_eq!(left(&engine), 900);
}

#[tokio::test]
async fn usage_that_was_not_charged_is_reported() {
    for is_dropped in [false, true] {
        let (engine, clock) = engine(TOKENS);
        let (sender, app) = streaming();
        let lost: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&lost);
        let layer = layer(&engine).settle(|_| Settle::AtEnd).on_unsettled(move |it| {
            seen.lock().unwrap().push(format!("{} {:?} {:?}", it.domain, it.units, it.error));
        });
        let mut body = app.layer(layer).oneshot(red()).await.unwrap().into_body();
        sender.send(Bytes::from_static(b"0123456789")).unwrap();
        body.frame().await.unwrap().unwrap();
        // Nobody polls the body for longer than the reservation lasts.
        clock.advance(Duration::from_secs(61));
        drop(sender);
        if !is_dropped {
            assert!(body.frame().await.is_none());
        }
        drop(body);
        let lost = lost.lock().unwrap();
        let error = tidegate::SettleError::Gone;
        assert_eq!(*lost, [format!("default Some(10) {error:?}")], "{is_dropped}");
        assert_eq!(left(&engine), 1000);
    }
}

/// A reservation that is gone cannot be charged; postpaid rules book its usage instead, once.
#[tokio::test]
async fn usage_that_comes_too_late_is_booked_by_postpaid_rules() {
    let second = "[[rule]]\nname = \"calls\"\ncost = 1\nwindow = { max = 9, per = \"1h\" }\n";
    for (more, units, lost_units) in [("", 10, None), (second, 10, Some(10))] {
        let (engine, clock) = engine(&format!("{TOKENS}\npostpaid = true\n{more}"));
        let (sender, app) = streaming();
        let lost: Arc<Mutex<Vec<Option<u64>>>> = Arc::default();
        let seen = Arc::clone(&lost);
        let layer = layer(&engine)
            .settle(|_| Settle::AtEnd)
            .on_unsettled(move |it| seen.lock().unwrap().push(it.units));
        let mut body = app.layer(layer).oneshot(red()).await.unwrap().into_body();
        sender.send(Bytes::from_static(b"0123456789")).unwrap();
        body.frame().await.unwrap().unwrap();
        clock.advance(Duration::from_secs(61));
        drop(body);
        let usage = engine.usage(&EngineRequest::new("default", &[("team", "red")]));
        assert_eq!(usage.block().unwrap()[0].used, units);
        let lost = lost.lock().unwrap();
        assert_eq!(lost.first().copied().flatten(), lost_units, "what `calls` did not charge");
    }
}

#[tokio::test]
async fn outer_layer_gets_the_actual_cost_through_inner_ones() {
    let (engine, _) = engine(TOKENS);
    let bucket = Bucket::per_second(100);
    let inner = LimitLayer::new(Limiter::new(bucket), Header::new("x-team"));
    let handler = |admission: Admission| async move {
        assert_eq!(admission.decision().unwrap().remaining(), 99, "it is the inner layer's");
        admission.actual_cost().unwrap().set(3);
    };
    let app = Router::new().route("/", route(handler)).layer(inner).layer(layer(&engine));
    app.oneshot(red()).await.unwrap();
    assert_eq!(left(&engine), 997);
}

#[tokio::test]
async fn denial_by_an_inner_layer_costs_nothing() {
    let (engine, _) = engine(TOKENS);
    let window = Window::new(1, Duration::from_secs(10));
    let inner = LimitLayer::new(Limiter::new(window), Header::new("x-team"));
    let app = Router::new().route("/", route(|| async {})).layer(inner).layer(layer(&engine));
    for status in [200, 429, 429] {
        assert_eq!(app.clone().oneshot(red()).await.unwrap().status().as_u16(), status);
        assert_eq!(left(&engine), 600);
    }
}

#[tokio::test]
async fn cost_of_zero_only_looks() {
    let (engine, _) = engine(TOKENS);
    let app = Router::new().route("/", route(|| async {})).layer(layer(&engine).cost(|_| 0));
    assert_eq!(app.oneshot(red()).await.unwrap().status(), 200);
    assert_eq!(left(&engine), 1000);
}

#[tokio::test]
async fn panicking_handler_releases_the_hold() {
    let (engine, _) = engine(TOKENS);
    let broken = service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
        panic!("a bug")
    });
    let service = layer(&engine).layer(broken);
    assert!(tokio::spawn(service.oneshot(red())).await.unwrap_err().is_panic());
    assert_eq!(left(&engine), 1000);
}
