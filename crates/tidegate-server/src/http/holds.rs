//! Reservations: reserve, commit, cancel and refund.

use http::StatusCode;
use serde_json::json;
use tidegate::hold::{HoldId, Refund};
use tidegate::policy::Scope;

use super::BufferedRequest;
use super::check::idempotency_key;
use super::problem::RequestProblem;
use super::request_body::{COMMIT, NOTHING, REFUND, RESERVE, RequestBody};
use super::response::{self, HttpResponse};
use crate::body::{CommitBody, ReservationBody};

/// `POST /v1/reserve`
pub(super) async fn reserve(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, head, body, .. } = call;
    let fields = RequestBody::read(body, RESERVE, 0)?;
    let pairs = fields.pairs();
    let mut request = call.request(Scope::Settle, fields.request(&pairs))?;
    if let Some(key) = idempotency_key(&head.headers)? {
        request = request.idempotency_key(key);
    }
    let report = daemon.engine.hold(&request).await?;
    let id = call.observe(&request, &report);
    let reserved = ReservationBody::new(&report, id, daemon.latest());
    Ok(response::decided(&report, daemon.settings.dialect, &reserved))
}

/// `POST /v1/reservations/{id}/commit`
pub(super) async fn commit(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    let fields = RequestBody::read_if_any(body, COMMIT)?;
    let done = daemon.engine.commit(call.hold(Scope::Settle)?, fields.actual).await?;
    Ok(response::json(StatusCode::OK, &CommitBody::from(done)))
}

/// `POST /v1/reservations/{id}/cancel`
pub(super) async fn cancel(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    RequestBody::read_if_any(body, NOTHING)?;
    daemon.engine.cancel(call.hold(Scope::Settle)?, None).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// `POST /v1/refund`
pub(super) async fn refund(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, head, body, .. } = call;
    let key = idempotency_key(&head.headers)?;
    let fields = RequestBody::read(body, REFUND, 0)?;
    if fields.amount == Some(0) {
        return Err(RequestProblem::unprocessable("the amount must be at least 1").at("/amount"));
    }
    let refunded = match (&fields.reservation, fields.amount) {
        (Some(_), _) if fields.domain.is_some() || !fields.attributes.is_empty() => {
            let detail = "send a reservation, or a domain and attributes, not both";
            return Err(RequestProblem::unprocessable(detail).at("/reservation"));
        }
        (Some(id), amount) => {
            let id = id.parse().map_err(|error: tidegate::hold::HoldIdError| {
                RequestProblem::unprocessable(error.to_string()).at("/reservation")
            })?;
            call.principal.hold(Scope::Settle, id)?;
            let amount = amount.unwrap_or(u64::MAX);
            let refund = Refund::units(amount);
            let refund = key.map_or(refund, |key| refund.idempotency_key(key));
            daemon.engine.refund_hold(id, refund).await?
        }
        (None, Some(amount)) => {
            let pairs = fields.pairs();
            let request = call.request(Scope::Settle, fields.request(&pairs))?.cost(amount);
            match key {
                Some(key) => daemon.engine.refund(&request.idempotency_key(key)).await?,
                None => daemon.engine.refund(&request).await?,
            }
        }
        (None, None) => {
            let detail = "send the `amount` to refund, or a `reservation`";
            return Err(RequestProblem::unprocessable(detail).at("/amount"));
        }
    };
    Ok(response::json(StatusCode::OK, &json!({ "refunded": refunded })))
}

/// The id of a reservation or lease in a path.
pub(super) fn parse_hold(id: &str) -> Result<HoldId, RequestProblem> {
    id.parse().map_err(|error: tidegate::hold::HoldIdError| {
        RequestProblem::new(StatusCode::NOT_FOUND, error.to_string())
    })
}
