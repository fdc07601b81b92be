//! Calls to others: so many at a time, so many in line, each with an end.

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

/// Calls somebody else, in the background.
#[derive(Clone)]
pub(crate) struct Outbox {
    callee: CallTarget,
    client: Client,
    slots: Engine,
    longest: Duration,
    counts: Arc<CallCounts>,
    /// Every call keeps a receiver until it is over.
    open: Arc<watch::Sender<()>>,
}

/// Who is called.
#[derive(Clone, Debug)]
pub(crate) struct CallTarget {
    /// For the log, which must not tell the address: the chat API's has a secret in it.
    pub(crate) name: &'static str,
    pub(crate) address: Uri,
}

/// How much may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// How many calls at a time.
    pub(crate) calls: u64,
    /// How many more may wait.
    pub(crate) queue: u64,
    /// How long a call may take.
    pub(crate) longest: Duration,
}

#[derive(Debug, Default)]
struct CallCounts {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

/// Room for one call, from now until it is over. Dropping it gives it back.
pub(crate) struct CallPermit {
    _place: Lease,
}

impl Outbox {
    pub(crate) fn new(callee: CallTarget, client: Client, bounds: Bounds) -> Self {
        let Bounds { calls, queue, longest } = bounds;
        let all = calls.saturating_add(queue);
        let (counts, open) = (Arc::default(), Arc::new(watch::Sender::new(())));
        Self { callee, client, slots: call_limits(calls, all), longest, counts, open }
    }

    /// Room for one more call, if there is any.
    pub(crate) async fn permit(&self) -> Option<CallPermit> {
        let nobody_waits = Some(Duration::ZERO);
        let place = self.slots.acquire(&tidegate::Request::new(ROOM, &[]), nobody_waits).await;
        place.ok().map(|place| CallPermit { _place: place })
    }

    /// What a call would send.
    pub(crate) fn post(&self, json: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(json));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.callee.address.clone();
        let is_json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, is_json);
        request
    }

    /// Makes a call in the background, as soon as it is its turn.
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
                    tracing::error!("{} was not reached: {}", outbox.callee.name, chain(&*error));
                    outbox.counts.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
            drop((room, is_open));
        });
    }

    /// One call, to its end.
    async fn called(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let call = async {
            let response = self.client.request(request).await?;
            let status = response.status();
            // The work is done when all of the answer is there. What it says is of no interest, but
            // a connection whose answer was read can be used again.
            let _ = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            Ok::<_, legacy::Error>(status)
        };
        let status = match timeout(self.longest, call).await {
            Ok(status) => status?,
            Err(_) => return Err(format!("no answer within {:?}", self.longest).into()),
        };
        if status.is_success() { Ok(()) } else { Err(format!("it answered {status}").into()) }
    }

    /// Waits until no call is open, for so long at most; reports how many still are.
    pub(crate) async fn drained(&self, patience: Duration) -> usize {
        // Being late is told by the number.
        let _ = timeout(patience, self.open.closed()).await;
        self.open.receiver_count()
    }

    /// How it is going.
    pub(crate) fn health(&self) -> Value {
        json!({
            "open": self.open.receiver_count(),
            "succeeded": self.counts.succeeded.load(Ordering::Relaxed),
            "failed": self.counts.failed.load(Ordering::Relaxed),
        })
    }
}

/// Room for calls that are made or wait, and turns for those that are made.
fn call_limits(calls: u64, all: u64) -> Engine {
    let queue = usize::try_from(all).unwrap_or(usize::MAX);
    let room = Slots::new(all).queue(0).expires(FOR_EVER);
    let turns = Slots::new(calls).queue(queue).expires(FOR_EVER);
    let rules = [
        Rule::new(ROOM, Limit::Slots(room)).domain(ROOM),
        Rule::new(CALLS, Limit::Slots(turns)).domain(CALLS),
    ];
    Engine::new(Policy::new(rules).expect("these rules are in order"))
}

/// An error with everything that caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

const ROOM: &str = "room";
const CALLS: &str = "calls";

/// A call that ends gives its places back, however it ends, so none has to come back by itself.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

const MAX_ANSWER_BYTES: usize = 1 << 20;
