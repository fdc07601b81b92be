//! Places in flight: taken, kept, given back.

use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tidegate::{Request, WaitError};

use super::BufferedRequest;
use super::check::no_idempotency_key;
use super::holds::{ms_until, parse_hold};
use super::problem::RequestProblem;
use super::request_body::{ACQUIRE, NOTHING, RequestBody};
use super::response::{self, HttpResponse};
use crate::accept::ShutdownSignal;
use crate::body::DecisionBody;

/// What a place is answered with.
#[derive(Serialize)]
struct LeaseBody<'a> {
    /// `None` if there is none.
    lease: Option<String>,
    /// Larger than that of every lease before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    expires_in_ms: Option<u64>,
    #[serde(flatten)]
    body: DecisionBody<'a>,
}

/// `POST /v1/acquire`
pub(super) async fn acquire(
    call: &BufferedRequest<'_>,
    mut shutdown: ShutdownSignal,
) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, head, body, .. } = call;
    no_idempotency_key(&head.headers)?;
    let fields = RequestBody::read(body, ACQUIRE, 0)?;
    if fields.wait_ms.is_some_and(|wait_ms| wait_ms > LONGEST_WAIT_MS) {
        let detail = format!("at most {LONGEST_WAIT_MS} at a time; ask again after that");
        return Err(RequestProblem::unprocessable(detail).at("/wait_ms"));
    }
    let pairs = fields.pairs();
    let request = fields.request(&pairs);
    // Where nobody says how long, the rule does.
    let waiting = daemon.engine.acquire(&request, fields.wait_ms.map(Duration::from_millis));
    let longest = Duration::from_millis(LONGEST_WAIT_MS);
    let acquired = tokio::select! {
        biased;
        acquired = tokio::time::timeout(longest, waiting) => {
            acquired.unwrap_or(Err(WaitError::TimedOut))
        }
        () = shutdown.wanted() => Err(WaitError::Closed),
    };
    let why = match acquired {
        Ok(lease) => {
            call.observe(&request, lease.report());
            let expires_in_ms = lease.expires().and_then(|at| ms_until(daemon, at));
            let body = DecisionBody::new(lease.report());
            let (id, fence) = (lease.id().to_string(), lease.fence());
            let acquired = LeaseBody { lease: Some(id), fence: Some(fence), expires_in_ms, body };
            let answer = response::decided(lease.report(), daemon.settings.dialect, &acquired);
            lease.into_id();
            return Ok(answer);
        }
        Err(WaitError::Denied(report)) => {
            call.observe(&request, &report);
            let acquired = LeaseBody {
                lease: None,
                fence: None,
                expires_in_ms: None,
                body: DecisionBody::new(&report),
            };
            return Ok(response::decided(&report, daemon.settings.dialect, &acquired));
        }
        Err(WaitError::Invalid(error)) => return Err(error.into()),
        Err(why) => why,
    };
    no_slot(call, &request, &why).await
}

/// The answer to somebody who waited, and got nothing.
async fn no_slot(
    call: &BufferedRequest<'_>,
    request: &Request<'_>,
    why: &WaitError,
) -> Result<HttpResponse, RequestProblem> {
    let why = match why {
        WaitError::QueueFull => "no place is free, and as many wait already as may",
        WaitError::TimedOut => "no place became free in time",
        _ => {
            return Err(RequestProblem::unavailable(
                "the daemon stops; ask another, or again later",
            ));
        }
    };
    let daemon = call.daemon;
    let report = daemon.engine.peek(request).await?;
    report.count_no_slot();
    let acquired = LeaseBody {
        lease: None,
        fence: None,
        expires_in_ms: None,
        // Whatever is free by now, it is the turn of those who wait.
        body: DecisionBody {
            allowed: false,
            retry_after_ms: None,
            retry: Some("unknown"),
            reason: Some(why.into()),
            ..DecisionBody::new(&report)
        },
    };
    let mut answer = response::json(StatusCode::TOO_MANY_REQUESTS, &acquired);
    response::put_limits(answer.headers_mut(), &report, daemon.settings.dialect);
    answer.headers_mut().remove(http::header::RETRY_AFTER);
    Ok(answer)
}

/// `POST /v1/leases/{id}/renew`
pub(super) async fn renew(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, id, body, .. } = call;
    RequestBody::read_if_any(body, NOTHING)?;
    let expires = daemon.engine.renew(parse_hold(id)?).await?;
    let expires_in_ms = ms_until(daemon, expires);
    Ok(response::json(StatusCode::OK, &json!({ "expires_in_ms": expires_in_ms })))
}

/// `DELETE /v1/leases/{id}`
pub(super) async fn release(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    call.daemon.engine.release(parse_hold(call.id)?).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// A connection that is silent for longer is one that something on the way forgets.
pub(super) const LONGEST_WAIT_MS: u64 = 60_000;
