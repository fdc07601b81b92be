//! Decisions.

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tidegate::{CheckError, Report, Request};

use super::Call;
use super::asked::{Asked, BATCH, CHECK, Pairs};
use super::problem::{Problem, ProblemBody};
use super::respond::{self, Answer};
use crate::body::Body;

/// `POST /v1/check`
pub(super) async fn check(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, head, body, .. } = call;
    let asked = Asked::read(body, CHECK, 0)?;
    let pairs = asked.pairs();
    let mut request = asked.request(&pairs);
    if let Some(key) = idempotency_key(&head.headers)? {
        request = request.idempotency_key(key);
    }
    if asked.peek {
        // Nothing was decided, so nothing is counted.
        let report = daemon.engine.peek(&request).await?;
        return Ok(respond::checked(&report, daemon.settings.dialect));
    }
    let report = daemon.engine.check(&request).await?;
    call.observe(&request, &report);
    Ok(respond::checked(&report, daemon.settings.dialect))
}

/// `POST /v1/check/batch`
pub(super) async fn batch(call: &Call<'_>) -> Result<Answer, Problem> {
    let Call { daemon, head, body, .. } = call;
    no_idempotency_key(&head.headers)?;
    let asked = Asked::read(body, BATCH, daemon.settings.bounds.batch)?;
    let Some(asked) = &asked.requests else {
        return Err(Problem::unprocessable("`requests` is missing: a list of requests"));
    };
    let pairs: Vec<Pairs<'_>> = asked.iter().map(Asked::pairs).collect();
    let mut reports = Vec::with_capacity(pairs.len());
    let mut rest = asked.iter().zip(&pairs).peekable();
    while let Some((first, _)) = rest.peek() {
        let is_peek = first.peek;
        let mut requests = Vec::new();
        while let Some((asked, pairs)) = rest.next_if(|(asked, _)| asked.peek == is_peek) {
            requests.push(asked.request(pairs));
        }
        decide(call, &requests, is_peek, &mut reports).await;
    }
    let results = reports.iter().map(One::new).collect();
    Ok(respond::json(StatusCode::OK, &Results { results }))
}

/// Decides about requests, or looks at them, in their order.
async fn decide(
    call: &Call<'_>,
    requests: &[Request<'_>],
    is_peek: bool,
    reports: &mut Vec<Result<Report, Problem>>,
) {
    let engine = &call.daemon.engine;
    if is_peek {
        for request in requests {
            reports.push(observed(call, request, engine.peek(request).await));
        }
    } else {
        for (request, answer) in requests.iter().zip(engine.check_many(requests)) {
            reports.push(observed(call, request, answer.await));
        }
    }
}

/// A decision that was counted.
fn observed(
    call: &Call<'_>,
    request: &Request<'_>,
    decided: Result<Report, CheckError>,
) -> Result<Report, Problem> {
    decided.inspect(|report| call.observe(request, report)).map_err(Problem::from)
}

/// What a batch is answered with.
#[derive(Serialize)]
struct Results<'a> {
    results: Vec<One<'a>>,
}

/// The answer to a request, or what is wrong with it.
#[derive(Serialize)]
#[serde(untagged)]
enum One<'a> {
    Decided(Body<'a>),
    Problem(ProblemBody<'a>),
}

impl<'a> One<'a> {
    fn new(report: &'a Result<Report, Problem>) -> Self {
        match report {
            Ok(report) => Self::Decided(Body::new(report)),
            Err(problem) => Self::Problem(problem.body()),
        }
    }
}

/// The name under which a request may be sent again.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::unprocessable("Idempotency-Key is there twice"));
    }
    match std::str::from_utf8(first.as_bytes()) {
        Ok("") => Err(Problem::unprocessable("Idempotency-Key is empty")),
        Ok(key) => Ok(Some(key)),
        Err(_) => Err(Problem::unprocessable("Idempotency-Key is not UTF-8")),
    }
}

/// Refuses the name where sending again would do it again: better now than then.
pub(super) fn no_idempotency_key(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.contains_key(IDEMPOTENCY_KEY) {
        false => Ok(()),
        true => Err(Problem::unprocessable(
            "Idempotency-Key counts for /v1/check, /v1/reserve and /v1/refund; leave it out here",
        )),
    }
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
