//! Places in flight: taken, kept, given back.

use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tidegate::{Request, WaitError};

use super::Call;
use super::asked::{ACQUIRE, Asked, NOTHING};
use super::check::no_idempotency_key;
use super::holds::{ms_until, named};
use super::problem::Problem;
use super::respond::{self, Answer};
use crate::accept::Stopping;
use crate::body::Body;

/// What a place is answered with.
#[derive(Serialize)]
struct Acquired<'a> {
    /// `None` if there is none.
    lease: Option<String>,
    /// Larger than that of every lease before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    expires_in_ms: Option<u64>,
    #[serde(flatten)]
    body: Body<'a>,
}

/// `POST /v1/acquire`
pub(super) async fn acquire(call: &Call<'_>, mut stopping: Stopping) -> Result<Answer, Problem> {
    let Call { daemon, head, body, .. } = call;
    no_idempotency_key(&head.headers)?;
    let asked = Asked::read(body, ACQUIRE, 0)?;
    if asked.wait_ms.is_some_and(|wait_ms| wait_ms > LONGEST_WAIT_MS) {
        let detail = format!("at most {LONGEST_WAIT_MS} at a time; ask again after that");
        return Err(Problem::unprocessable(detail).at("/wait_ms"));
    }
    let pairs = asked.pairs();
    let request = asked.request(&pairs);
    // Where nobody says how long, the rule does.
    let waiting = daemon.engine.acquire(&request, asked.wait_ms.map(Duration::from_millis));
    let longest = Duration::from_millis(LONGEST_WAIT_MS);
    let acquired = tokio::select! {
        biased;
        acquired = tokio::time::timeout(longest, waiting) => {
            acquired.unwrap_or(Err(WaitError::TimedOut))
        }
        () = stopping.wanted() => Err(WaitError::Closed),
    };
    let why = match acquired {
        Ok(lease) => {
            call.observe(&request, lease.report());
            let expires_in_ms = lease.expires().and_then(|at| ms_until(daemon, at));
            let body = Body::new(lease.report());
            let (id, fence) = (lease.id().to_string(), lease.fence());
            let acquired = Acquired { lease: Some(id), fence: Some(fence), expires_in_ms, body };
            let answer = respond::decided(lease.report(), daemon.settings.dialect, &acquired);
            lease.keep();
            return Ok(answer);
        }
        Err(WaitError::Denied(report)) => {
            call.observe(&request, &report);
            let acquired = Acquired {
                lease: None,
                fence: None,
                expires_in_ms: None,
                body: Body::new(&report),
            };
            return Ok(respond::decided(&report, daemon.settings.dialect, &acquired));
        }
        Err(WaitError::Invalid(error)) => return Err(error.into()),
        Err(why) => why,
    };
    no_place(call, &request, &why).await
}

/// The answer to somebody who waited, and got nothing.
async fn no_place(
    call: &Call<'_>,
    request: &Request<'_>,
    why: &WaitError,
) -> Result<Answer, Problem> {
    let why = match why {
        WaitError::QueueFull => "no place is free, and as many wait already as may",
        WaitError::TimedOut => "no place became free in time",
        _ => return Err(Problem::unavailable("the daemon stops; ask another, or again later")),
    };
    let daemon = call.daemon;
    let report = daemon.engine.peek(request).await?;
    report.count_no_place();
    let acquired = Acquired {
        lease: None,
        fence: None,
        expires_in_ms: None,
        // Whatever is free by now, it is the turn of those who wait.
        body: Body {
            allowed: false,
            retry_after_ms: None,
            retry: Some("unknown"),
            reason: Some(why.into()),
            ..Body::new(&report)
        },
    };
    let mut answer = respond::json(StatusCode::TOO_MANY_REQUESTS, &acquired);
    respond::put_limits(answer.headers_mut(), &report, daemon.settings.dialect);
    answer.headers_mut().remove(http::header::RETRY_AFTER);
    Ok(answer)
}

/// `POST /v1/leases/{id}/renew`
pub(super) async fn renew(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, id, body, .. } = call;
    Asked::read_if_any(body, NOTHING)?;
    let expires = daemon.engine.renew(named(id)?).await?;
    let expires_in_ms = ms_until(daemon, expires);
    Ok(respond::json(StatusCode::OK, &json!({ "expires_in_ms": expires_in_ms })))
}

/// `DELETE /v1/leases/{id}`
pub(super) async fn release(call: &Call<'_>) -> Result<Answer, Problem> {
    call.daemon.engine.release(named(call.id)?).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// A connection that is silent for longer is one that something on the way forgets.
pub(super) const LONGEST_WAIT_MS: u64 = 60_000;
