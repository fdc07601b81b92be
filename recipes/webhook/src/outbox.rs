//! Outgoing calls: bounded in concurrency, queue and time.

use std::error::Error;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper_util::client::legacy;
use serde_json::{Value, json};
use tidegate::policy::{Limit, Policy, Rule, Slots};
use tidegate::{Lease, StoreEngine};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::client::Client;

/// Calls one target in the background.
#[derive(Clone)]
pub(crate) struct Outbox {
    callee: CallTarget,
    client: Client,
    slots: StoreEngine,
    /// Memory for the bodies of calls, in KiB.
    room: Arc<Semaphore>,
    longest: Duration,
    unreachable: WhenUnreachable,
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

/// What happens to a call that got no response, because the connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenUnreachable {
    /// It has failed.
    Fail,
    /// It is repeated, in its slot, until there is a response.
    Repeat,
}

/// The bounds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The maximum number of concurrent calls.
    pub(crate) calls: u64,
    /// How many more may be queued.
    pub(crate) queue: u64,
    /// The total size of the bodies of all of them.
    pub(crate) bytes: u64,
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
    _room: OwnedSemaphorePermit,
}

/// How a call ended.
enum CallEnd {
    /// With a response that reports a success.
    Success,
    /// With another response, or without one in time.
    Failure(String),
    /// Without a response.
    Unreachable(String),
}

impl Outbox {
    pub(crate) fn new(
        (callee, client): (CallTarget, Client),
        bounds: Bounds,
        unreachable: WhenUnreachable,
    ) -> Self {
        let Bounds { calls, queue, bytes, longest } = bounds;
        let slots = call_limits(calls, calls.saturating_add(queue));
        let room = usize::try_from(bytes / KIB).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let (room, open) = (Arc::new(Semaphore::new(room)), Arc::new(watch::Sender::new(())));
        Self { callee, client, slots, room, longest, unreachable, counts: Arc::default(), open }
    }

    /// A permit for one more call with a body of this size, if there is one.
    pub(crate) async fn permit(&self, len: usize) -> Option<CallPermit> {
        let size = u32::try_from((len as u64).div_ceil(KIB)).ok()?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(size).ok()?;
        let no_wait = Some(Duration::ZERO);
        let slot = self.slots.acquire(&tidegate::Request::new(ROOM, &[]), no_wait).await;
        slot.ok().map(|slot| CallPermit { _slot: slot, _room: room })
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

    /// Makes a call in the background. It is queued when this returns, behind all earlier ones. When
    /// it has ended, `then` runs, before the permit is released.
    pub(crate) async fn call(
        &self,
        room: Option<CallPermit>,
        request: Request<Full<Bytes>>,
        then: impl Future<Output = ()> + Send + 'static,
    ) {
        let (outbox, slots) = (self.clone(), self.slots.clone());
        let is_open = self.open.subscribe();
        let mut turn =
            Box::pin(async move { slots.acquire(&tidegate::Request::new(CALLS, &[]), None).await });
        // The first poll takes the ticket.
        let first = poll_fn(|context| Poll::Ready(turn.as_mut().poll(context))).await;
        tokio::spawn(async move {
            let turn = match first {
                Poll::Ready(turn) => turn,
                Poll::Pending => turn.await,
            };
            match turn {
                Ok(_turn) => {
                    outbox.called_until_final(request).await;
                    then.await;
                }
                Err(error) => tracing::error!("call to {} not made: {error}", outbox.callee.name),
            }
            drop((room, is_open));
        });
    }

    /// Calls, again if necessary, and counts the result.
    async fn called_until_final(&self, request: Request<Full<Bytes>>) {
        let (name, mut wait) = (self.callee.name, MIN_RETRY);
        loop {
            let why = match self.called(request.clone()).await {
                CallEnd::Success => {
                    self.counts.succeeded.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                CallEnd::Unreachable(why) if self.unreachable == WhenUnreachable::Repeat => why,
                CallEnd::Failure(why) | CallEnd::Unreachable(why) => {
                    tracing::error!("call to {name} failed: {why}");
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            };
            tracing::warn!("no response of {name}, next attempt in {wait:?}: {why}");
            sleep(wait).await;
            wait = wait.saturating_mul(2).min(MAX_RETRY);
        }
    }

    /// One call, until its response is complete.
    async fn called(&self, request: Request<Full<Bytes>>) -> CallEnd {
        let call = async {
            let response = self.client.request(request).await?;
            let status = response.status();
            // The call ends when the whole response was read. Its content is ignored, but the
            // connection can be reused after reading it.
            let _ = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            Ok::<_, legacy::Error>(status)
        };
        match timeout(self.longest, call).await {
            Ok(Ok(status)) if status.is_success() => CallEnd::Success,
            Ok(Ok(status)) => CallEnd::Failure(format!("status {status}")),
            Ok(Err(error)) => CallEnd::Unreachable(chain(&error)),
            Err(_) => CallEnd::Failure(format!("no response within {:?}", self.longest)),
        }
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
fn call_limits(calls: u64, all: u64) -> StoreEngine {
    let queue = usize::try_from(all).unwrap_or(usize::MAX);
    let room = Slots::new(all).queue(0).expires(FOR_EVER);
    let turns = Slots::new(calls).queue(queue).expires(FOR_EVER);
    let rules = [
        Rule::builder(ROOM, Limit::Slots(room)).domain(ROOM),
        Rule::builder(CALLS, Limit::Slots(turns)).domain(CALLS),
    ]
    .map(|rule| rule.build().expect("there is no pattern"));
    StoreEngine::new(Policy::new(rules).expect("these rules are valid"))
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

/// The shortest and the longest wait before a call without a response is repeated.
const MIN_RETRY: Duration = Duration::from_millis(200);
const MAX_RETRY: Duration = Duration::from_secs(30);

const KIB: u64 = 1_024;
