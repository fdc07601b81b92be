//! Helpers shared by the tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::policy::Policy;
use tidegate::{StoreEngine, Timestamp, clock::ManualClock};
use tower::{Service, ServiceExt};
use tower_layer::Layer;

pub(crate) type TestEngine = StoreEngine;

pub(crate) fn engine(policy: &str) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    (
        StoreEngine::builder(Policy::from_toml(policy).unwrap())
            .clock(clock.clone())
            .build()
            .unwrap(),
        clock,
    )
}

/// A service that counts its calls.
#[derive(Clone, Default)]
pub(crate) struct Hello {
    calls: Arc<AtomicUsize>,
}

impl Hello {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Service<Request<Body>> for Hello {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Body::from("hello"))))
    }
}

/// A request with headers.
pub(crate) fn get(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::get(path);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).unwrap()
}

/// A request from this peer.
pub(crate) fn from(peer: &str) -> Request<Body> {
    let mut request = get("/", &[]);
    request.extensions_mut().insert(tidegate_tower::Peer(address(peer)));
    request
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A received response: status, headers, body.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(bytes.to_vec()).unwrap();
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }
}

/// The response of a service behind a layer.
pub(crate) async fn send<L, S, B>(layer: &L, service: &S, request: Request<Body>) -> TestResponse
where
    L: Layer<S>,
    L::Service: Service<Request<Body>, Response = Response<B>>,
    <L::Service as Service<Request<Body>>>::Error: std::fmt::Debug,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
    S: Clone,
{
    TestResponse::of(layer.layer(service.clone()).oneshot(request).await.unwrap()).await
}
