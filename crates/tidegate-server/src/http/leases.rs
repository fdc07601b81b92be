//! Leases: acquire, renew and release.

use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use tidegate::policy::Scope;
use tidegate::{NotGranted, Request, Wait};
use tidegate_proto::times::{RetryFields, ms_until};

use super::BufferedRequest;
use super::check::no_idempotency_key;
use super::problem::RequestProblem;
use super::request_body::{ACQUIRE, AttributePairs, NOTHING, RequestBody};
use super::response::{self, HttpResponse};
use crate::body::{DecisionBody, DecisionId, LeaseBody};
use tidegate_listen::{Permit, ShutdownSignal};

/// `POST /v1/acquire`
pub(super) async fn acquire(
    call: &mut BufferedRequest<'_>,
    permit: &Permit,
    mut shutdown: ShutdownSignal,
) -> Result<HttpResponse, RequestProblem> {
    no_idempotency_key(&call.head.headers)?;
    let body = std::mem::take(&mut call.body);
    let fields = RequestBody::read(&body, ACQUIRE, 0)?;
    let wait_ms = fields.wait_ms;
    if wait_ms.is_some_and(|wait_ms| wait_ms > LONGEST_WAIT_MS) {
        let detail =
            format!("the longest wait is {LONGEST_WAIT_MS}; send the request again after that");
        return Err(RequestProblem::unprocessable(detail).at("/wait_ms"));
    }
    let kept = KeptRequest::new(&fields);
    drop(fields);
    // A request in a queue does without it.
    drop(body);
    let daemon = call.daemon;
    let pairs = kept.pairs();
    let request = call.request(Scope::Lease, kept.request(&pairs))?;
    let queued = permit.wait(kept.bytes() + head_bytes(call.head));
    // Without `wait_ms` the wait of the rule applies.
    let waiting = daemon.engine.acquire(&request, wait_ms.map(Duration::from_millis));
    let longest = Duration::from_millis(LONGEST_WAIT_MS);
    let acquired = tokio::select! {
        biased;
        acquired = tokio::time::timeout(longest, waiting) => {
            acquired.unwrap_or(Err(NotGranted::TimedOut))
        }
        () = shutdown.wanted() => Err(NotGranted::Closed),
    };
    drop(queued);
    let why = match acquired {
        Ok(lease) => {
            let id = call.observe(&request, lease.report());
            let acquired = LeaseBody {
                lease: Some(lease.id().to_string()),
                fence: Some(lease.fence()),
                expires_in_ms: lease.expires().map(|at| ms_until(at, daemon.latest())),
                decision: DecisionBody::new(lease.report(), id),
            };
            let response = response::decided(lease.report(), daemon.settings.dialect, &acquired);
            lease.into_id();
            return Ok(response);
        }
        Err(NotGranted::Denied(report)) => {
            let id = call.observe(&request, &report);
            let acquired = LeaseBody::none(DecisionBody::new(&report, id));
            return Ok(response::decided(&report, daemon.settings.dialect, &acquired));
        }
        Err(NotGranted::Invalid(error)) => return Err(error.into()),
        Err(why) => why,
    };
    no_slot(call, &request, &why).await
}

/// What a request in a queue needs of its body, which may be much larger.
struct KeptRequest {
    /// The domain, then names and values of the attributes.
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[usize]>,
    cost: u64,
}

impl KeptRequest {
    fn new(fields: &RequestBody<'_>) -> Self {
        let attributes = fields.attributes.iter();
        let attributes = attributes.flat_map(|(name, value)| [&**name, &**value]);
        let texts = || std::iter::once(fields.domain()).chain(attributes.clone());
        let mut text = String::with_capacity(texts().map(str::len).sum());
        let ends = texts().map(|it| {
            text.push_str(it);
            text.len()
        });
        let ends = ends.collect();
        Self { ends, text: text.into(), cost: fields.cost.unwrap_or(1) }
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }

    /// The attributes for [`Self::request`].
    fn pairs(&self) -> AttributePairs<'_> {
        let mut texts = self.texts().skip(1);
        std::iter::from_fn(|| Some((texts.next()?, texts.next()?))).collect()
    }

    fn request<'a>(&'a self, pairs: &'a [(&'a str, &'a str)]) -> Request<'a> {
        Request::new(self.texts().next().unwrap_or_default(), pairs).cost(self.cost)
    }

    /// Its memory.
    fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * (size_of::<usize>() + size_of::<&str>())
    }
}

/// The bytes of a request's head.
fn head_bytes(head: &Parts) -> usize {
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    target + headers.sum::<usize>()
}

/// The response to a client that got no slot.
async fn no_slot(
    call: &BufferedRequest<'_>,
    request: &Request<'_>,
    why: &NotGranted,
) -> Result<HttpResponse, RequestProblem> {
    let why = match why {
        NotGranted::QueueFull => "no slot is free, and the queue is full",
        NotGranted::TimedOut => "no slot became free in time",
        _ => {
            return Err(RequestProblem::unavailable(
                "the daemon is shutting down; use another one, or retry later",
            ));
        }
    };
    let daemon = call.daemon;
    let report = daemon.engine.peek(request).await?;
    report.details().count_no_slot();
    let RetryFields { retry_after_ms, retry } = RetryFields::denied(Wait::Unknown);
    // A slot that is free by now belongs to the queue.
    let acquired = LeaseBody::none(DecisionBody {
        allowed: false,
        retry_after_ms,
        retry,
        reason: Some(why.into()),
        ..DecisionBody::new(&report, DecisionId::next())
    });
    let mut response = response::json(StatusCode::TOO_MANY_REQUESTS, &acquired);
    response::put_limits(response.headers_mut(), &report, daemon.settings.dialect);
    response.headers_mut().remove(http::header::RETRY_AFTER);
    Ok(response)
}

/// `POST /v1/leases/{id}/renew`
pub(super) async fn renew(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    RequestBody::read_if_any(body, NOTHING)?;
    let expires = daemon.engine.renew(call.hold(Scope::Lease)?).await?;
    let expires_in_ms = ms_until(expires, daemon.latest());
    Ok(response::json(StatusCode::OK, &json!({ "expires_in_ms": expires_in_ms })))
}

/// `DELETE /v1/leases/{id}`
pub(super) async fn release(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    call.daemon.engine.release(call.hold(Scope::Lease)?).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// The longest wait: intermediaries drop connections that are silent for longer.
const LONGEST_WAIT_MS: u64 = 60_000;
