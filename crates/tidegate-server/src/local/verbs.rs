//! The verbs of the local socket.

use serde::Serialize;
use serde_json::{Map, Value};
use tidegate::policy::Scope;
use tidegate::{CheckError, Report, Request, SettleError};
use tidegate_proto::ipc::{self, IpcError, Pong};
use tidegate_proto::times::time_text;

use super::PeerCredentials;
use super::request::{CheckRequest, LocalAdminRequest, SettleRequest, UsageRequest};
use crate::access::{AccessDenial, Principal};
use crate::admin::{self, AdminClient, AdminRequest, Payload, RawPayload};
use crate::body::explanation::explained;
use crate::body::usage::UsageBody;
use crate::body::{CommitBody, DecisionBody, DecisionId, ReservationBody};
use crate::daemon::{Daemon, SharedDaemon};
use crate::listener::Listener;

/// The fields of a response, or an error.
pub(super) type VerbResult = Result<Map<String, Value>, VerbError>;

/// The error of a request.
#[derive(Debug)]
pub(super) enum VerbError {
    /// It cannot be decoded.
    Bad(IpcError),
    /// It failed, with a message.
    Failed(String),
    /// The client may not do it.
    Denied(AccessDenial),
    /// The admin API rejected it; the fields have the details.
    Refused(String, Map<String, Value>),
}

pub(super) async fn handle(
    daemon: &SharedDaemon,
    client: AdminClient<'_>,
    kind: &str,
    text: &str,
) -> VerbResult {
    let principal = client.principal;
    principal.charge(1)?;
    match kind {
        "ping" => Ok(pong(daemon)),
        "check" | "peek" | "reserve" | "explain" => dispatch(daemon, principal, kind, text).await,
        "usage" => usage(daemon, principal, text).await,
        "commit" | "cancel" => settle(daemon, principal, kind, text).await,
        "admin" => admin(daemon, client, text).await,
        _ => Err(VerbError::Failed(format!("Unknown request type. Known types: {KINDS}."))),
    }
}

fn pong(daemon: &Daemon) -> Map<String, Value> {
    let time = time_text(daemon.engine.clock().wall());
    fields_of(&Pong { service_version: env!("CARGO_PKG_VERSION").into(), time })
}

async fn dispatch(daemon: &Daemon, principal: &Principal, kind: &str, text: &str) -> VerbResult {
    let body: CheckRequest = ipc::parse(text)?;
    let attributes = body.attributes.pairs();
    let scope = match kind {
        "check" => Scope::Check,
        "reserve" => Scope::Settle,
        _ => Scope::Read,
    };
    let request = Request::new(&body.domain, &attributes).cost(body.cost);
    let mut request = principal.request(scope, request)?;
    if let Some(key) = &body.idempotency_key {
        if key.is_empty() {
            return Err(VerbError::Failed("The idempotency key is empty.".into()));
        }
        request = request.idempotency_key(key);
    }
    let engine = &daemon.engine;
    match kind {
        "check" => {
            let report = engine.check(&request).await?;
            let id = daemon.observe(Listener::Unix, &request, &report);
            Ok(decision_fields(&report, id))
        }
        "peek" => Ok(decision_fields(&engine.peek(&request).await?, DecisionId::next())),
        "reserve" => {
            let report = engine.hold(&request).await?;
            let id = daemon.observe(Listener::Unix, &request, &report);
            Ok(reservation_fields(ReservationBody::new(&report, id, daemon.latest())))
        }
        _ => {
            let explanation = engine.explain(&request).await?;
            Ok(explained(&explanation, engine.clock().wall()))
        }
    }
}

async fn usage(daemon: &Daemon, principal: &Principal, text: &str) -> VerbResult {
    let body: UsageRequest = ipc::parse(text)?;
    let attributes = body.attributes.pairs();
    let request = principal.request(Scope::Read, Request::new(&body.domain, &attributes))?;
    Ok(fields_of(&UsageBody::new(&daemon.engine.usage(&request).await?)))
}

fn decision_fields(report: &Report, id: DecisionId) -> Map<String, Value> {
    fields_of(&DecisionBody::new(report, id))
}

/// The decision, followed by the reservation if there is one.
fn reservation_fields(body: ReservationBody<'_>) -> Map<String, Value> {
    let mut response = fields_of(&body.decision);
    if let Some(id) = body.reservation {
        response.insert("reservation".into(), id.into());
        response.insert("expires_in_ms".into(), body.expires_in_ms.into());
    }
    response
}

async fn settle(daemon: &Daemon, principal: &Principal, kind: &str, text: &str) -> VerbResult {
    let body: SettleRequest = ipc::parse(text)?;
    let wrong =
        |error: tidegate::hold::HoldIdError| VerbError::Failed(format!("reservation: {error}."));
    let hold = body.reservation.parse().map_err(wrong)?;
    principal.hold(Scope::Settle, hold)?;
    match (kind, body.actual) {
        ("commit", actual) => {
            let done = daemon.engine.commit(hold, actual).await?;
            Ok(fields_of(&CommitBody::from(done)))
        }
        (_, None) => {
            daemon.engine.cancel(hold, None).await?;
            Ok(Map::new())
        }
        (_, Some(_)) => Err(VerbError::Failed("`actual` is for commit, not for cancel.".into())),
    }
}

async fn admin(daemon: &SharedDaemon, client: AdminClient<'_>, text: &str) -> VerbResult {
    let LocalAdminRequest { method, path, body, .. } = ipc::parse(text)?;
    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
    let payload = RawPayload::Decoded(Payload::of_json(body));
    let request = AdminRequest { method: &method, path, query, payload };
    let response = admin::handle(daemon, client, request).await;
    if let Some(denial) = &response.denial {
        daemon.access.note(Listener::Unix, client.actor, denial);
    }
    let is_done = response.status < 400;
    let reason = response.body["detail"].as_str().unwrap_or("The request failed.").to_owned();
    let outcome =
        Map::from_iter([("status".into(), response.status.into()), ("body".into(), response.body)]);
    if is_done { Ok(outcome) } else { Err(VerbError::Refused(reason, outcome)) }
}

impl PeerCredentials {
    /// The actor in the audit log.
    pub(super) fn user(&self) -> String {
        format!("user {self}")
    }
}

/// The fields of a response body.
pub(super) fn fields_of(body: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(body) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

impl From<AccessDenial> for VerbError {
    fn from(denial: AccessDenial) -> Self {
        Self::Denied(denial)
    }
}

impl From<IpcError> for VerbError {
    fn from(error: IpcError) -> Self {
        Self::Bad(error)
    }
}

impl From<CheckError> for VerbError {
    fn from(error: CheckError) -> Self {
        Self::Failed(format!("{error}."))
    }
}

impl From<SettleError> for VerbError {
    fn from(error: SettleError) -> Self {
        Self::Failed(format!("{error}."))
    }
}

const KINDS: &str = "ping, check, peek, reserve, commit, cancel, explain, usage, admin";
