//! The desk over HTTP, in JSON.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tidegate_proto::json::Object;
use tokio::time::timeout;

use crate::audit::{Audit, Page};
use crate::desk::{Desk, Enrolled, NewGovernor};
use crate::governors::Caller;
use crate::problem::DeskError;
use crate::proposal::{Draft, Proposal, ProposalId, Status, Vote};
use crate::tally::Tally;

impl Desk {
    /// All routes of the desk.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/v1/proposals", post(propose).get(proposals))
            .route("/v1/proposals/{id}", get(proposal))
            .route("/v1/proposals/{id}/confirm", post(confirm))
            .route("/v1/proposals/{id}/cancel", post(cancel))
            .route("/v1/proposals/{id}/vote", post(vote))
            .route("/v1/governors", post(enrol))
            .route("/v1/rounds", post(round))
            .route("/v1/tally", post(tally))
            .route("/v1/window", get(window))
            .route("/v1/balances", get(balances))
            .route("/v1/audit", get(audit))
            .route("/healthz", get(health))
            .fallback(|| async { desk_error(404, "No such path.") })
            .method_not_allowed_fallback(|| async { desk_error(405, "Method not allowed.") })
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(self.clone())
    }
}

async fn propose(
    State(desk): State<Desk>,
    Governor(governor): Governor,
    JsonBody(draft): JsonBody<Draft>,
) -> Result<(StatusCode, Json<Proposal>), DeskError> {
    let proposal = desk.propose(&governor, draft).await?;
    Ok((StatusCode::CREATED, Json(proposal)))
}

async fn enrol(
    State(desk): State<Desk>,
    Host: Host,
    JsonBody(new): JsonBody<NewGovernor>,
) -> Result<(StatusCode, Json<Enrolled>), DeskError> {
    let enrolled = desk.enrol(new).await?;
    let status = if enrolled.is_repeat { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(enrolled)))
}

async fn confirm(
    State(desk): State<Desk>,
    Governor(governor): Governor,
    Id(id): Id,
) -> Result<Json<Proposal>, DeskError> {
    desk.confirm(&governor, id).await.map(Json)
}

async fn cancel(
    State(desk): State<Desk>,
    Governor(governor): Governor,
    Id(id): Id,
) -> Result<Json<Proposal>, DeskError> {
    desk.cancel(&governor, id).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VoteBody {
    vote: Vote,
}

async fn vote(
    State(desk): State<Desk>,
    Governor(governor): Governor,
    Id(id): Id,
    JsonBody(VoteBody { vote }): JsonBody<VoteBody>,
) -> Result<Json<Proposal>, DeskError> {
    desk.vote(&governor, id, vote).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundBody {
    round: u64,
}

async fn round(
    State(desk): State<Desk>,
    Host: Host,
    JsonBody(RoundBody { round }): JsonBody<RoundBody>,
) -> Result<Json<crate::desk::Window>, DeskError> {
    desk.round(round).await.map(Json)
}

async fn tally(State(desk): State<Desk>, Host: Host) -> Result<Json<Tally>, DeskError> {
    desk.tally().await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    status: Option<Status>,
    governor: Option<String>,
}

async fn proposals(
    State(desk): State<Desk>,
    _: Caller,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, DeskError> {
    let Query(ListQuery { status, governor }) = query.map_err(bad_query)?;
    let listed = desk.proposals(status, governor.as_deref());
    Ok(Json(json!({ "proposals": listed })).into_response())
}

async fn proposal(
    State(desk): State<Desk>,
    _: Caller,
    Id(id): Id,
) -> Result<Json<Proposal>, DeskError> {
    desk.proposal(id).map(Json)
}

async fn window(
    State(desk): State<Desk>,
    _: Caller,
) -> Result<Json<crate::desk::Window>, DeskError> {
    desk.window().map(Json)
}

async fn balances(State(desk): State<Desk>, _: Caller) -> Result<Response, DeskError> {
    Ok(Json(json!({ "balances": desk.balances()? })).into_response())
}

async fn audit(
    State(desk): State<Desk>,
    _: Caller,
    query: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Audit>, DeskError> {
    let Query(page) = query.map_err(bad_query)?;
    desk.audit(page).await.map(Json)
}

async fn health(State(desk): State<Desk>) -> Response {
    if desk.is_healthy() {
        Json(json!({ "ok": true })).into_response()
    } else {
        DeskError::Outage.into_response()
    }
}

/// The caller, authenticated by a secret.
impl FromRequestParts<Desk> for Caller {
    type Rejection = DeskError;

    async fn from_request_parts(parts: &mut Parts, desk: &Desk) -> Result<Self, DeskError> {
        let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(DeskError::Unauthorized);
        };
        let (scheme, secret) =
            value.to_str().ok().and_then(|it| it.split_once(' ')).ok_or(DeskError::Unauthorized)?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        let caller = desk.caller(secret.trim()).filter(|_| is_bearer);
        caller.ok_or(DeskError::Unauthorized)
    }
}

/// A governor, by name.
struct Governor(String);

impl FromRequestParts<Desk> for Governor {
    type Rejection = DeskError;

    async fn from_request_parts(parts: &mut Parts, desk: &Desk) -> Result<Self, DeskError> {
        match Caller::from_request_parts(parts, desk).await? {
            Caller::Governor(name) => Ok(Self(name)),
            Caller::Host => Err(DeskError::Forbidden("Only governors may do that.")),
        }
    }
}

/// The game itself.
struct Host;

impl FromRequestParts<Desk> for Host {
    type Rejection = DeskError;

    async fn from_request_parts(parts: &mut Parts, desk: &Desk) -> Result<Self, DeskError> {
        match Caller::from_request_parts(parts, desk).await? {
            Caller::Host => Ok(Self),
            Caller::Governor(_) => Err(DeskError::Forbidden("Only the game itself may do that.")),
        }
    }
}

/// The proposal in the path.
struct Id(ProposalId);

impl FromRequestParts<Desk> for Id {
    type Rejection = DeskError;

    async fn from_request_parts(parts: &mut Parts, desk: &Desk) -> Result<Self, DeskError> {
        let path: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, desk).await;
        let Path(text) = path.map_err(|_| DeskError::NoSuchProposal)?;
        text.parse().map(Self).map_err(|_| DeskError::NoSuchProposal)
    }
}

/// The body of a request: a JSON object that arrives in time.
struct JsonBody<T>(T);

impl<T: DeserializeOwned> axum::extract::FromRequest<Desk> for JsonBody<T> {
    type Rejection = DeskError;

    async fn from_request(request: axum::extract::Request, desk: &Desk) -> Result<Self, DeskError> {
        let arrived = timeout(MAX_BODY_TIME, Bytes::from_request(request, desk)).await;
        let body: Result<Bytes, BytesRejection> = arrived
            .map_err(|_| desk_error(408, "The body of the request did not arrive within 10 s."))?;
        let body = body.map_err(|rejection| DeskError::Invalid {
            status: rejection.status().as_u16(),
            why: rejection.body_text(),
        })?;
        let sent = serde_json::from_slice(&body).map(|Object(body)| Self(body));
        sent.map_err(|error| DeskError::Invalid {
            status: if error.is_data() { 422 } else { 400 },
            why: format!("Invalid body: {error}"),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn bad_query(rejection: QueryRejection) -> DeskError {
    DeskError::invalid(rejection.body_text())
}

fn desk_error(status: u16, why: &str) -> DeskError {
    DeskError::Invalid { status, why: why.to_owned() }
}

/// A text, encoded as JSON.
const MAX_BODY_BYTES: usize = 32_768;

/// The time-out of a body. The head has its own.
const MAX_BODY_TIME: Duration = Duration::from_secs(10);
