//! A real server that simulates the chat API or the agent.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::http::TIMEOUT;

/// A server that records what it receives.
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    received: UnboundedReceiver<Call>,
    responses: Arc<Semaphore>,
}

/// A received request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Clone)]
struct Shared {
    calls: UnboundedSender<Call>,
    responses: Arc<Semaphore>,
    status: StatusCode,
}

impl StandIn {
    /// One that responds at once.
    pub(crate) async fn new() -> Self {
        Self::responding(StatusCode::OK).await
    }

    pub(crate) async fn responding(status: StatusCode) -> Self {
        let stand_in = Self::silent(status).await;
        stand_in.respond(Semaphore::MAX_PERMITS);
        stand_in
    }

    /// One at this address that responds at once.
    pub(crate) async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (router, received, responses) = routes(StatusCode::OK);
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        let stand_in = Self { address, received, responses };
        stand_in.respond(Semaphore::MAX_PERMITS);
        stand_in
    }

    /// One that receives, but does not respond until `respond` is called.
    pub(crate) async fn silent(status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, received, responses) = routes(status);
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { address, received, responses }
    }

    /// Lets it respond this many times.
    pub(crate) fn respond(&self, times: usize) {
        self.responses.add_permits(times);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Call {
        timeout(TIMEOUT, self.received.recv()).await.expect("a call in time").unwrap()
    }

    /// The text of the next message.
    pub(crate) async fn next_text(&mut self) -> String {
        self.next().await.body["message"]["text"].as_str().unwrap().to_owned()
    }

    /// A request that has arrived and was not read yet.
    pub(crate) fn received(&mut self) -> Option<Call> {
        self.received.try_recv().ok()
    }

    /// Whether no other request has arrived.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

/// The routes of a stand-in, the receiver of its requests, and the permits to respond.
pub(crate) fn routes(status: StatusCode) -> (Router, UnboundedReceiver<Call>, Arc<Semaphore>) {
    let (calls, received) = unbounded_channel();
    let responses = Arc::new(Semaphore::new(0));
    let shared = Shared { calls, responses: Arc::clone(&responses), status };
    (Router::new().fallback(called).with_state(shared), received, responses)
}

async fn called(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let body = serde_json::from_slice(&body).unwrap();
    // The test may have ended.
    let _ = shared.calls.send(Call { path: uri.path().to_owned(), headers, body });
    shared.responses.acquire().await.unwrap().forget();
    shared.status
}
