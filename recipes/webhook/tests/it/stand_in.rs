//! A real server in the place of the chat API or the agent.

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

use crate::http::PATIENCE;

/// A server that tells what it was sent.
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    received: UnboundedReceiver<Call>,
    answers: Arc<Semaphore>,
}

/// What it was sent.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Clone)]
struct Shared {
    calls: UnboundedSender<Call>,
    answers: Arc<Semaphore>,
    status: StatusCode,
}

impl StandIn {
    /// One that answers at once.
    pub(crate) async fn new() -> Self {
        Self::answering(StatusCode::OK).await
    }

    pub(crate) async fn answering(status: StatusCode) -> Self {
        let stand_in = Self::silent(status).await;
        stand_in.answer(Semaphore::MAX_PERMITS);
        stand_in
    }

    /// One that receives, but does not answer before it is told to.
    pub(crate) async fn silent(status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, received, answers) = routes(status);
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { address, received, answers }
    }

    /// Lets it answer so many times.
    pub(crate) fn answer(&self, times: usize) {
        self.answers.add_permits(times);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next that it is sent.
    pub(crate) async fn next(&mut self) -> Call {
        timeout(PATIENCE, self.received.recv()).await.expect("a call in time").unwrap()
    }

    /// The text of the next message.
    pub(crate) async fn next_text(&mut self) -> String {
        self.next().await.body["message"]["text"].as_str().unwrap().to_owned()
    }

    /// What it has been sent so far and nobody has asked for.
    pub(crate) fn received(&mut self) -> Option<Call> {
        self.received.try_recv().ok()
    }

    /// Whether it has been sent nothing else so far.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

/// What a stand-in serves, and how to hear of it.
pub(crate) fn routes(status: StatusCode) -> (Router, UnboundedReceiver<Call>, Arc<Semaphore>) {
    let (calls, received) = unbounded_channel();
    let answers = Arc::new(Semaphore::new(0));
    let shared = Shared { calls, answers: Arc::clone(&answers), status };
    (Router::new().fallback(called).with_state(shared), received, answers)
}

async fn called(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let body = serde_json::from_slice(&body).unwrap();
    // The test may be over.
    let _ = shared.calls.send(Call { path: uri.path().to_owned(), headers, body });
    shared.answers.acquire().await.unwrap().forget();
    shared.status
}
