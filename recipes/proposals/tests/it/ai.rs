//! The AI: a real HTTP server that responds when the test says so.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::support::TIMEOUT;

pub(crate) struct Ai {
    pub(crate) address: SocketAddr,
    calls: UnboundedReceiver<Call>,
    in_flight: watch::Receiver<usize>,
}

/// A call that waits for its response.
pub(crate) struct Call {
    pub(crate) body: Value,
    reply: oneshot::Sender<(StatusCode, Value)>,
}

#[derive(Clone)]
struct Shared {
    calls: UnboundedSender<Call>,
    in_flight: watch::Sender<usize>,
}

/// A call in flight, counted down when dropped.
struct InFlight(watch::Sender<usize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Ai {
    /// One that responds when the test says so.
    pub(crate) async fn slow() -> Self {
        let (sender, calls) = unbounded_channel();
        let (in_flight, watched) = watch::channel(0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared { calls: sender, in_flight };
        let router = Router::new().route("/interpret", post(called)).with_state(shared);
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { address, calls, in_flight: watched }
    }

    /// The address of one that responds at once: `cap N` in a text changes the cap.
    pub(crate) async fn quick() -> SocketAddr {
        let mut ai = Self::slow().await;
        let address = ai.address;
        tokio::spawn(async move {
            while let Some(call) = ai.calls.recv().await {
                call.agree();
            }
        });
        address
    }

    /// The next call.
    pub(crate) async fn next(&mut self) -> Call {
        timeout(TIMEOUT, self.calls.recv()).await.expect("a call in time").unwrap()
    }

    pub(crate) fn has_more_calls(&mut self) -> bool {
        !self.calls.is_empty()
    }

    /// Waits until this many calls are in flight.
    pub(crate) async fn until_in_flight(&mut self, wanted: usize) {
        let waiting = self.in_flight.wait_for(|count| *count == wanted);
        timeout(TIMEOUT, waiting).await.expect("the calls in time").unwrap();
    }
}

impl Call {
    pub(crate) fn text(&self) -> &str {
        self.body["text"].as_str().unwrap()
    }

    /// Interprets the proposal as stated.
    pub(crate) fn agree(self) {
        let text = self.text().to_owned();
        let cap = text.strip_prefix("cap ").map(|cap| cap.parse::<u64>().unwrap());
        let tier = self.body["tier"].clone();
        let summary = format!("{text}, as I see it");
        self.respond(
            StatusCode::OK,
            match cap {
                Some(cap) => {
                    json!({ "tier": tier, "summary": summary, "proposals_per_window": cap })
                }
                None => json!({ "tier": tier, "summary": summary }),
            },
        );
    }

    pub(crate) fn respond(self, status: StatusCode, body: Value) {
        // The client may be gone.
        let _ = self.reply.send((status, body));
    }
}

async fn called(
    State(shared): State<Shared>,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    shared.in_flight.send_modify(|count| *count += 1);
    let in_flight = InFlight(shared.in_flight.clone());
    let (reply, response) = oneshot::channel();
    // The test may have ended.
    let _ = shared.calls.send(Call { body, reply });
    let (status, body) = response.await.unwrap_or((StatusCode::GONE, Value::Null));
    drop(in_flight);
    (status, Json(body))
}
