//! Outgoing calls: bounded in concurrency, queue and time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper_util::client::legacy;
use serde_json::{Value, json};
use tidegate::policy::{Limit, Policy, Rule, Slots};
use tidegate::{Engine, Lease};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::Client;

/// Calls one target in the background.
#[derive(Clone)]
pub(crate) struct Outbox {
    callee: CallTarget,
    client: Client,
    slots: Engine,
    longest: Duration,
    counts: Arc<CallCounts>,
    /// Every call holds a receiver until it ends.
    open: Arc<watch::Sender<()>>,
}

/// The target of calls.
#[derive(Clone, Debug)]
pub(crate) struct CallTarget {
    /// For the log, which must not contain the address: that of the chat API includes a secret.
    pub(crate) name: &'static str,
    pub(crate) address: Uri,
}

/// The bounds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The maximum number of concurrent calls.
    pub(crate) calls: u64,
    /// How many more may be queued.
    pub(crate) queue: u64,
    /// The time-out of a call.
    pub(crate) longest: Duration,
}

#[derive(Debug, Default)]
struct CallCounts {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

/// The permit of one call, queued or in progress. Released on drop.
pub(crate) struct CallPermit {
    _slot: Lease,
}

impl Outbox {
    pub(crate) fn new(callee: CallTarget, client: Client, bounds: Bounds) -> Self {
        let Bounds { calls, queue, longest } = bounds;
        let all = calls.saturating_add(queue);
        let (counts, open) = (Arc::default(), Arc::new(watch::Sender::new(())));
        Self { callee, client, slots: call_limits(calls, all), longest, counts, open }
    }

    /// A permit for one more call, if there is one.
    pub(crate) async fn permit(&self) -> Option<CallPermit> {
        let no_wait = Some(Duration::ZERO);
        let slot = self.slots.acquire(&tidegate::Request::new(ROOM, &[]), no_wait).await;
        slot.ok().map(|slot| CallPermit { _slot: slot })
    }

    /// The request of a call.
    pub(crate) fn post(&self, json: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(json));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.callee.address.clone();
        let is_json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, is_json);
        request
    }

    /// Makes a call in the background, in queue order.
    pub(crate) fn call(&self, room: CallPermit, request: Request<Full<Bytes>>) {
        let outbox = self.clone();
        let is_open = self.open.subscribe();
        tokio::spawn(async move {
            let turn = outbox.slots.acquire(&tidegate::Request::new(CALLS, &[]), None).await;
            let called = match turn {
                Ok(_turn) => outbox.called(request).await,
                Err(error) => Err(error.into()),
            };
            match called {
                Ok(()) => outbox.counts.succeeded.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    tracing::error!("call to {} failed: {}", outbox.callee.name, chain(&*error));
                    outbox.counts.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
            drop((room, is_open));
        });
    }

    /// One call, until its response is complete.
    async fn called(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let call = async {
            let response = self.client.request(request).await?;
            let status = response.status();
            // The call ends when the whole response was read. Its content is ignored, but the
            // connection can be reused after reading it.
            let _ = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            Ok::<_, legacy::Error>(status)
        };
        let status = match timeout(self.longest, call).await {
            Ok(status) => status?,
            Err(_) => return Err(format!("no response within {:?}", self.longest).into()),
        };
        if status.is_success() { Ok(()) } else { Err(format!("status {status}").into()) }
    }

    /// Waits until no call is open, at most this long; returns how many still are.
    pub(crate) async fn drained(&self, max_wait: Duration) -> usize {
        // A time-out shows in the number.
        let _ = timeout(max_wait, self.open.closed()).await;
        self.open.receiver_count()
    }

    /// The counters for `/healthz`.
    pub(crate) fn health(&self) -> Value {
        json!({
            "open": self.open.receiver_count(),
            "succeeded": self.counts.succeeded.load(Ordering::Relaxed),
            "failed": self.counts.failed.load(Ordering::Relaxed),
        })
    }
}

/// Two limits: all calls, queued or in progress, and calls in progress.
fn call_limits(calls: u64, all: u64) -> Engine {
    let queue = usize::try_from(all).unwrap_or(usize::MAX);
    let room = Slots::new(all).queue(0).expires(FOR_EVER);
    let turns = Slots::new(calls).queue(queue).expires(FOR_EVER);
    let rules = [
        Rule::new(ROOM, Limit::Slots(room)).domain(ROOM),
        Rule::new(CALLS, Limit::Slots(turns)).domain(CALLS),
    ];
    Engine::new(Policy::new(rules).expect("these rules are valid"))
}

/// An error with all its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

const ROOM: &str = "room";
const CALLS: &str = "calls";

/// A call releases its slots however it ends, so they need no expiry.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

const MAX_RESPONSE_BYTES: usize = 1 << 20;
