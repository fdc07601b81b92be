//! Limits on requests in flight.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get as route;
use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::policy::Mode;
use tidegate::{Limiter, Window};
use tidegate_tower::{Admission, Header, LimitLayer, Permit, PolicyLayer};
use tokio::sync::oneshot;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{TestEngine, TestResponse, engine, get};

const ONE_SLOT: &str = r#"
    [[rule]]
    name  = "calls"
    slots = { max = 1, queue = 2, expires = "5m" }
"#;

fn layer(engine: &TestEngine, max_wait: Option<Duration>) -> PolicyLayer {
    PolicyLayer::new(engine.clone(), "default").unwrap().slots(max_wait)
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A service that responds when its second part is called.
fn controlled_service() -> (
    impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<Body>, Infallible>> + Send,
    > + Clone,
    impl Fn(),
) {
    let waiting: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
    let served = Arc::clone(&waiting);
    let service = service_fn(move |_: Request<Body>| {
        let (sender, receiver) = oneshot::channel();
        served.lock().unwrap().push(sender);
        async move {
            let _ = receiver.await;
            Ok::<_, Infallible>(Response::new(Body::from("done")))
        }
    });
    (service, move || drop(waiting.lock().unwrap().remove(0)))
}

#[tokio::test]
async fn waiters_queue_and_the_slot_passes_on_when_the_body_is_sent() {
    let (engine, _) = engine(ONE_SLOT);
    let (service, finish_one) = controlled_service();
    let mut service = layer(&engine, None).layer(service);
    let mut first = pin!(service.call(get("/", &[])));
    assert!(poll(first.as_mut()).is_pending());
    let mut second = pin!(service.call(get("/", &[])));
    let mut third = pin!(service.call(get("/", &[])));
    assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
    let fourth = service.call(get("/", &[])).await.unwrap();
    assert_eq!(fourth.status(), 503, "the queue holds two");

    finish_one();
    let Poll::Ready(Ok(response)) = poll(first.as_mut()) else { panic!("it is done") };
    assert!(poll(second.as_mut()).is_pending());
    // Its body is not sent yet, so no other request is served.
    let body = response.into_body().collect().await.unwrap();
    assert!(poll(third.as_mut()).is_pending(), "the second is ahead of it");
    assert!(poll(second.as_mut()).is_pending());
    finish_one();
    let Poll::Ready(Ok(response)) = poll(second.as_mut()) else { panic!("it is done") };
    drop(response);
    drop(body);
    assert!(poll(third.as_mut()).is_pending());
    finish_one();
    assert!(poll(third.as_mut()).is_ready());
}

#[tokio::test]
async fn cancelled_waiter_leaves_the_queue() {
    let (engine, _) = engine(ONE_SLOT);
    let (service, finish_one) = controlled_service();
    let mut service = layer(&engine, None).layer(service);
    let mut first = Box::pin(service.call(get("/", &[])));
    assert!(poll(first.as_mut()).is_pending());
    let mut second = Box::pin(service.call(get("/", &[])));
    let mut third = Box::pin(service.call(get("/", &[])));
    assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
    drop(second);
    // A request in service whose client disconnects releases its slot too.
    drop(first);
    assert!(poll(third.as_mut()).is_pending());
    drop(finish_one);
    drop(third);
    let mut last = Box::pin(service.call(get("/", &[])));
    assert!(poll(last.as_mut()).is_pending());
    assert_eq!(service.call(get("/", &[])).now_or_waits(), "waits");
}

/// Whether a future is done at its first poll.
trait NowOrWaits: Future + Sized {
    fn now_or_waits(self) -> &'static str {
        match poll(pin!(self)) {
            Poll::Ready(_) => "now",
            Poll::Pending => "waits",
        }
    }
}

impl<F: Future> NowOrWaits for F {}

#[tokio::test]
async fn wait_ends_at_its_deadline() {
    let (engine, clock) = engine(ONE_SLOT);
    let (service, _finish) = controlled_service();
    let mut service = layer(&engine, Some(Duration::from_secs(2))).layer(service);
    let mut first = Box::pin(service.call(get("/", &[])));
    assert!(poll(first.as_mut()).is_pending());
    let mut second = Box::pin(service.call(get("/", &[])));
    assert!(poll(second.as_mut()).is_pending());
    clock.advance(Duration::from_secs(2));
    engine.tick();
    let Poll::Ready(Ok(response)) = poll(second.as_mut()) else { panic!("its wait is over") };
    let response = TestResponse::of(response).await;
    assert_eq!((response.status, response.header("retry-after")), (503, None));
    assert!(response.body.contains("#temporary-reduced-capacity"), "{}", response.body);
}

#[tokio::test]
async fn handler_can_keep_its_permit() {
    let (engine, _) = engine(ONE_SLOT);
    let taken: Arc<Mutex<Option<Permit>>> = Arc::default();
    let keep = Arc::clone(&taken);
    let handler = move |admission: Admission| {
        let keep = Arc::clone(&keep);
        async move {
            keep.lock().unwrap().get_or_insert_with(|| admission.permit().unwrap().clone());
            "a socket that lives on"
        }
    };
    let no_wait = layer(&engine, Some(Duration::ZERO));
    let app = Router::new().route("/", route(handler)).layer(no_wait);
    let send =
        async || TestResponse::of(app.clone().oneshot(get("/", &[])).await.unwrap()).await.status;
    assert_eq!(send().await, 200);
    assert_eq!(send().await, 503, "the slot is still held");
    // The first permit is kept; it is released with the last handle.
    drop(taken.lock().unwrap().take());
    assert_eq!(send().await, 200);
}

#[tokio::test]
async fn slot_is_held_until_the_end_of_the_body_and_not_longer() {
    let (engine, _) = engine(ONE_SLOT);
    let no_wait = layer(&engine, Some(Duration::ZERO));
    let app = Router::new().route("/", route(|| async { "one frame" })).layer(no_wait);
    let send = async || app.clone().oneshot(get("/", &[])).await.unwrap();
    let mut body = send().await.into_body();
    assert_eq!(send().await.status(), 503, "there is a response, but its body is not sent");
    assert!(body.frame().await.is_some());
    assert_eq!(send().await.status(), 200, "all of it was sent, though it is not dropped");
    drop(body);
}

#[tokio::test]
async fn slot_is_held_while_the_body_may_continue() {
    let (engine, _) = engine(ONE_SLOT);
    let no_wait = layer(&engine, Some(Duration::ZERO));
    let chunked = || async { Body::from_stream(tokio_stream::iter([Ok::<_, Infallible>("one")])) };
    let app = Router::new().route("/", route(chunked)).layer(no_wait);
    let send = async || app.clone().oneshot(get("/", &[])).await.unwrap();
    let mut body = send().await.into_body();
    assert!(body.frame().await.is_some());
    assert_eq!(send().await.status(), 503, "there may be more");
    assert!(body.frame().await.is_none());
    assert_eq!(send().await.status(), 200, "it is sent, though not dropped");
    drop(body);
}

#[tokio::test]
async fn request_for_a_slot_is_subject_to_the_other_rules_too() {
    let (engine, _) = engine(
        r#"
        [[rule]]
        name  = "calls"
        slots = { max = 5 }

        [[rule]]
        name   = "user"
        key    = ["user"]
        window = { max = 4, per = "10s" }
        "#,
    );
    let layer =
        layer(&engine, None).attribute("user", tidegate_tower::Header::new("x-user")).cost(|_| 3);
    let hello = crate::support::Hello::default();
    let ada = || get("/", &[("x-user", "ada")]);
    let response = crate::support::send(&layer, &hello, ada()).await;
    assert!(response.header("ratelimit").unwrap().contains(r#""user";r=1;t=10"#), "{response:?}");
    let response = crate::support::send(&layer, &hello, ada()).await;
    assert_eq!((response.status, response.header("retry-after")), (429, Some("10")));
    assert!(response.body.contains(r#""violated-policies":["user"]"#), "{}", response.body);
    let call = crate::gate::grpc("application/grpc", &[("x-user", "ada")]);
    let response = crate::support::send(&layer, &hello, call).await;
    assert_eq!((response.status, response.header("grpc-status")), (200, Some("8")));
    assert_eq!(hello.calls(), 1);
    let bob = crate::support::send(&layer, &hello, get("/", &[("x-user", "bob")])).await;
    assert_eq!(bob.status, 200);
}

#[tokio::test]
async fn slots_need_a_rule_with_slots() {
    let (engine, _) = engine("[[rule]]\nname = \"r\"\nwindow = { max = 1, per = \"1s\" }\n");
    let app = Router::new().route("/", route(|| async { "served" })).layer(layer(&engine, None));
    assert_eq!(app.oneshot(get("/", &[])).await.unwrap().status(), 500);
}

#[tokio::test]
async fn shadow_mode_does_not_wait() {
    let (engine, _) = engine(ONE_SLOT);
    let (service, _finish) = controlled_service();
    let mut service = layer(&engine, None).mode(Mode::Shadow).layer(service);
    let mut first = Box::pin(service.call(get("/", &[])));
    assert!(poll(first.as_mut()).is_pending());
    let app = Router::new()
        .route("/", route(|it: Admission| async move { it.is_allowed().to_string() }))
        .layer(layer(&engine, None).mode(Mode::Shadow));
    let response = TestResponse::of(app.oneshot(get("/", &[])).await.unwrap()).await;
    assert_eq!((response.status, &*response.body), (200, "false"));
}

#[tokio::test]
async fn waiting_or_denied_request_holds_nothing_of_the_inner_service() {
    // The inner service serves one at a time; a ready service holds its permit.
    let (engine, _) = engine(ONE_SLOT);
    let (service, _finish) = controlled_service();
    let one_at_a_time = ConcurrencyLimit::new(service, 1);
    let mut first = layer(&engine, None).layer(one_at_a_time.clone());
    let mut second = layer(&engine, Some(Duration::ZERO)).layer(one_at_a_time.clone());
    let slot = engine.acquire(&tidegate::Request::new("default", &[]), None).await.unwrap();
    let mut waiting = pin!(first.ready().await.unwrap().call(get("/", &[])));
    assert!(poll(waiting.as_mut()).is_pending());
    let denied = second.ready().await.unwrap().call(get("/", &[])).await.unwrap();
    assert_eq!(denied.status(), 503);
    let mut limited = layer_that_denies().layer(one_at_a_time.clone());
    let denied = limited.ready().await.unwrap().call(get("/", &[])).await.unwrap();
    assert_eq!(denied.status(), 400);
    let mut another = one_at_a_time;
    assert!(poll(pin!(another.ready())).is_ready(), "the inner permit is free");
    drop(slot);
}

fn layer_that_denies() -> LimitLayer {
    let window = Window::new(1, Duration::from_secs(1));
    LimitLayer::new(Limiter::new(window), Header::new("x-user"))
}
