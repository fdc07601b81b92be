//! Checks: single requests and batches.

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tidegate::{CheckError, Report, Request};

use super::BufferedRequest;
use super::problem::{ProblemBody, RequestProblem};
use super::request_body::{AttributePairs, BATCH, CHECK, RequestBody};
use super::response::{self, HttpResponse};
use crate::body::{DecisionBody, DecisionId};
use crate::listener::Listener;

/// `POST /v1/check`
pub(super) async fn check(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, head, body, .. } = call;
    let fields = RequestBody::read(body, CHECK, 0)?;
    let pairs = fields.pairs();
    let mut request = call.request(fields.scope(), fields.request(&pairs))?;
    if let Some(key) = idempotency_key(&head.headers)? {
        request = request.idempotency_key(key);
    }
    if fields.peek {
        // A peek is no decision, so it is not counted.
        let report = daemon.engine.peek(&request).await?;
        return Ok(response::checked(&report, DecisionId::next(), daemon.settings.dialect));
    }
    let report = daemon.engine.check(&request).await?;
    let id = call.observe(&request, &report);
    Ok(response::checked(&report, id, daemon.settings.dialect))
}

/// `POST /v1/check/batch`
pub(super) async fn batch(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, head, body, .. } = call;
    no_idempotency_key(&head.headers)?;
    let fields = RequestBody::read(body, BATCH, daemon.settings.bounds.batch)?;
    let Some(fields) = &fields.requests else {
        return Err(RequestProblem::unprocessable("`requests` is missing: a list of requests"));
    };
    // One of them was charged before the body was read.
    if fields.len() > 1 {
        call.principal.charge(fields.len() as u64 - 1)?;
    }
    let pairs: Vec<AttributePairs<'_>> = fields.iter().map(RequestBody::pairs).collect();
    let mut reports = Vec::with_capacity(pairs.len());
    let mut rest = fields.iter().zip(&pairs).peekable();
    while let Some((first, pairs)) = rest.next() {
        // Consecutive requests of one kind are decided together.
        let mut requests = match call.request(first.scope(), first.request(pairs)) {
            Ok(request) => vec![request],
            Err(denial) => {
                reports.push(Err(denial.into()));
                continue;
            }
        };
        while let Some((fields, pairs)) = rest.peek()
            && fields.peek == first.peek
            && let Ok(request) = call.request(fields.scope(), fields.request(pairs))
        {
            requests.push(request);
            rest.next();
        }
        decide(call, &requests, first.peek, &mut reports).await;
    }
    for denial in reports.iter().filter_map(|it| it.as_ref().err()?.denial.as_ref()) {
        daemon.access.note(Listener::Http, call.peer, denial);
    }
    let results = reports.iter().map(BatchItem::new).collect();
    Ok(response::json(StatusCode::OK, &BatchBody { results }))
}

/// Checks requests, or peeks at them, in their order.
async fn decide(
    call: &BufferedRequest<'_>,
    requests: &[Request<'_>],
    is_peek: bool,
    reports: &mut Vec<BatchResult>,
) {
    let engine = &call.daemon.engine;
    if is_peek {
        for request in requests {
            // A peek is no decision, so it is not counted.
            let report = engine.peek(request).await.map_err(RequestProblem::from);
            reports.push(report.map(|report| (report, DecisionId::next())));
        }
    } else {
        for (request, decision) in requests.iter().zip(engine.check_many(requests)) {
            reports.push(observed(call, request, decision.await));
        }
    }
}

/// Counts a decision.
fn observed(
    call: &BufferedRequest<'_>,
    request: &Request<'_>,
    decided: Result<Report, CheckError>,
) -> BatchResult {
    let report = decided?;
    let id = call.observe(request, &report);
    Ok((report, id))
}

/// A decision of a batch with its id, or its problem.
type BatchResult = Result<(Report, DecisionId), RequestProblem>;

/// The response body of a batch.
#[derive(Serialize)]
struct BatchBody<'a> {
    results: Vec<BatchItem<'a>>,
}

/// The decision on one request of a batch, or its problem.
#[derive(Serialize)]
#[serde(untagged)]
enum BatchItem<'a> {
    Decided(DecisionBody<'a>),
    Problem(ProblemBody<'a>),
}

impl<'a> BatchItem<'a> {
    fn new(result: &'a BatchResult) -> Self {
        match result {
            Ok((report, id)) => Self::Decided(DecisionBody::new(report, *id)),
            Err(problem) => Self::Problem(problem.body()),
        }
    }
}

/// The idempotency key in the headers.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, RequestProblem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(RequestProblem::unprocessable("the header Idempotency-Key appears twice"));
    }
    match std::str::from_utf8(first.as_bytes()) {
        Ok("") => Err(RequestProblem::unprocessable("Idempotency-Key is empty")),
        Ok(key) => Ok(Some(key)),
        Err(_) => Err(RequestProblem::unprocessable("Idempotency-Key is not UTF-8")),
    }
}

/// Rejects an idempotency key where it has no effect: a retry would repeat the operation.
pub(super) fn no_idempotency_key(headers: &HeaderMap) -> Result<(), RequestProblem> {
    match headers.contains_key(IDEMPOTENCY_KEY) {
        false => Ok(()),
        true => Err(RequestProblem::unprocessable(
            "Idempotency-Key is for /v1/check, /v1/reserve and /v1/refund; remove it here",
        )),
    }
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
