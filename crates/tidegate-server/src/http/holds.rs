//! Reservations: set aside, charged, given back.

use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tidegate::{Clock, HoldId, Timestamp};

use super::Call;
use super::asked::{Asked, COMMIT, NOTHING, REFUND, RESERVE};
use super::check::idempotency_key;
use super::problem::Problem;
use super::respond::{self, Answer};
use crate::body::{Body, whole_ms};
use crate::daemon::Daemon;

/// What a reservation is answered with.
#[derive(Serialize)]
struct Reserved<'a> {
    /// `None` if it was refused, or if the store cannot answer and the rules let it pass.
    reservation: Option<String>,
    expires_in_ms: Option<u64>,
    #[serde(flatten)]
    body: Body<'a>,
}

/// `POST /v1/reserve`
pub(super) async fn reserve(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, head, body, .. } = call;
    let asked = Asked::read(body, RESERVE, 0)?;
    let pairs = asked.pairs();
    let mut request = asked.request(&pairs);
    if let Some(key) = idempotency_key(&head.headers)? {
        request = request.idempotency_key(key);
    }
    let report = daemon.engine.reserve(&request).await?;
    call.observe(&request, &report);
    let reserved = Reserved {
        reservation: report.hold().map(|id| id.to_string()),
        expires_in_ms: report.expires().and_then(|at| ms_until(daemon, at)),
        body: Body::new(&report),
    };
    Ok(respond::decided(&report, daemon.settings.dialect, &reserved))
}

/// `POST /v1/reservations/{id}/commit`
pub(super) async fn commit(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, id, body, .. } = call;
    let asked = Asked::read_if_any(body, COMMIT)?;
    let charged = daemon.engine.commit(named(id)?, asked.actual).await?;
    Ok(respond::json(StatusCode::OK, &json!({ "charged": charged })))
}

/// `POST /v1/reservations/{id}/cancel`
pub(super) async fn cancel(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, id, body, .. } = call;
    Asked::read_if_any(body, NOTHING)?;
    daemon.engine.cancel(named(id)?).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// `POST /v1/refund`
pub(super) async fn refund(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, head, body, .. } = call;
    let key = idempotency_key(&head.headers)?;
    let asked = Asked::read(body, REFUND, 0)?;
    if asked.amount == Some(0) {
        return Err(Problem::unprocessable("nothing is given back for 0").at("/amount"));
    }
    let refunded = match (&asked.reservation, asked.amount) {
        (Some(_), _) if asked.domain.is_some() || !asked.attributes.is_empty() => {
            let detail = "either a reservation, or a domain and attributes; not both";
            return Err(Problem::unprocessable(detail).at("/reservation"));
        }
        (Some(id), amount) => {
            let id = id.parse().map_err(|error: tidegate::HoldIdError| {
                Problem::unprocessable(error.to_string()).at("/reservation")
            })?;
            let amount = amount.unwrap_or(u64::MAX);
            match key {
                Some(key) => daemon.engine.refund_hold_once(id, amount, key).await?,
                None => daemon.engine.refund_hold(id, amount).await?,
            }
        }
        (None, Some(amount)) => {
            let pairs = asked.pairs();
            let request = asked.request(&pairs).cost(amount);
            match key {
                Some(key) => daemon.engine.refund(&request.idempotency_key(key)).await?,
                None => daemon.engine.refund(&request).await?,
            }
        }
        (None, None) => {
            let detail = "say the `amount` to give back, or which `reservation`";
            return Err(Problem::unprocessable(detail).at("/amount"));
        }
    };
    Ok(respond::json(StatusCode::OK, &json!({ "refunded": refunded })))
}

/// The reservation or lease that a path names.
pub(super) fn named(id: &str) -> Result<HoldId, Problem> {
    id.parse().map_err(|error: tidegate::HoldIdError| {
        Problem::new(StatusCode::NOT_FOUND, error.to_string())
    })
}

/// The whole milliseconds until then: rounded down, since after that it is too late.
pub(super) fn ms_until(daemon: &Daemon, at: Timestamp) -> Option<u64> {
    let left_ns = at.as_nanos().saturating_sub(daemon.engine.clock().now().as_nanos());
    whole_ms(std::time::Duration::from_millis(left_ns / NS_PER_MS))
}

const NS_PER_MS: u64 = 1_000_000;
