//! What is done for a request that has come through.

use serde_json::{Map, Value, json};
use tidegate::{CheckError, Clock, Report, Request, SettleError};
use tidegate_proto::ipc::{self, IpcError};

use super::asked::{AdminAsked, CheckAsked, SettleAsked};
use super::{Peer, time_text};
use crate::admin::{self, Asked, Given, Visitor};
use crate::body::Body;
use crate::daemon::{Daemon, SharedDaemon};
use crate::door::Door;
use crate::http::explain;

/// What a request came to: the fields of the answer, or why there are none.
pub(super) type Done = Result<Map<String, Value>, Failed>;

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Failed {
    /// It cannot be understood.
    Bad(IpcError),
    /// Something else, in words.
    Because(String),
    /// An admin's request was understood and refused; the fields say more.
    Refused(String, Map<String, Value>),
}

pub(super) async fn done(
    daemon: &SharedDaemon,
    visitor: &Visitor<'_>,
    kind: &str,
    text: &str,
) -> Done {
    match kind {
        "ping" => Ok(pong(daemon)),
        "check" | "peek" | "reserve" | "explain" => asked(daemon, kind, text).await,
        "commit" | "cancel" => settle(daemon, kind, text).await,
        "admin" => admin(daemon, visitor, text).await,
        _ => Err(Failed::Because(format!("Unknown type of request. Known are: {KINDS}."))),
    }
}

fn pong(daemon: &Daemon) -> Map<String, Value> {
    let time = time_text(daemon.engine.clock().wall());
    fields(json!({ "serviceVersion": env!("CARGO_PKG_VERSION"), "time": time }))
}

async fn asked(daemon: &Daemon, kind: &str, text: &str) -> Done {
    let asked: CheckAsked = ipc::parse(text)?;
    let attributes = asked.attributes.pairs();
    let mut request = Request::new(&asked.domain, &attributes).cost(asked.cost);
    if let Some(key) = &asked.idempotency_key {
        if key.is_empty() {
            return Err(Failed::Because("The idempotency key is empty.".into()));
        }
        request = request.idempotency_key(key);
    }
    let engine = &daemon.engine;
    match kind {
        "check" => {
            let report = engine.check(&request).await?;
            daemon.observe(Door::Unix, &request, &report);
            Ok(answer(&report))
        }
        "peek" => Ok(answer(&engine.peek(&request).await?)),
        "reserve" => {
            let report = engine.reserve(&request).await?;
            daemon.observe(Door::Unix, &request, &report);
            let mut answer = answer(&report);
            if let Some(hold) = report.hold() {
                answer.insert("reservation".into(), hold.to_string().into());
                // Rounded down: after that it is too late.
                let left = report
                    .expires()
                    .map(|at| at.as_nanos().saturating_sub(daemon.now().as_nanos()) / NS_PER_MS);
                answer.insert("expires_in_ms".into(), left.into());
            }
            Ok(answer)
        }
        _ => {
            let explanation = engine.explain(&request)?;
            Ok(explain::told(&explanation, engine.clock().wall()))
        }
    }
}

fn answer(report: &Report) -> Map<String, Value> {
    fields(serde_json::to_value(Body::new(report)).unwrap_or_default())
}

async fn settle(daemon: &Daemon, kind: &str, text: &str) -> Done {
    let asked: SettleAsked = ipc::parse(text)?;
    let wrong = |error: tidegate::HoldIdError| Failed::Because(format!("reservation: {error}."));
    let hold = asked.reservation.parse().map_err(wrong)?;
    match (kind, asked.actual) {
        ("commit", actual) => {
            Ok(fields(json!({ "charged": daemon.engine.commit(hold, actual).await? })))
        }
        (_, None) => {
            daemon.engine.cancel(hold).await?;
            Ok(Map::new())
        }
        (_, Some(_)) => Err(Failed::Because("`actual` belongs to commit, not to cancel.".into())),
    }
}

async fn admin(daemon: &SharedDaemon, visitor: &Visitor<'_>, text: &str) -> Done {
    let AdminAsked { method, path, body, .. } = ipc::parse(text)?;
    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
    let asked = Asked { method: &method, path, query, given: Given::of_json(body) };
    let answer = admin::answer(daemon, visitor, asked).await;
    let is_done = answer.status < 400;
    let reason = answer.body["detail"].as_str().unwrap_or("It was not done.").to_owned();
    let fields = fields(json!({ "status": answer.status, "body": answer.body }));
    if is_done { Ok(fields) } else { Err(Failed::Refused(reason, fields)) }
}

impl Peer {
    /// The name under which what this peer does is written down.
    pub(super) fn who(&self) -> String {
        format!("user {self}")
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl From<IpcError> for Failed {
    fn from(error: IpcError) -> Self {
        Self::Bad(error)
    }
}

impl From<CheckError> for Failed {
    fn from(error: CheckError) -> Self {
        Self::Because(format!("{error}."))
    }
}

impl From<SettleError> for Failed {
    fn from(error: SettleError) -> Self {
        Self::Because(format!("{error}."))
    }
}

const KINDS: &str = "ping, check, peek, reserve, commit, cancel, explain, admin";

const NS_PER_MS: u64 = 1_000_000;
