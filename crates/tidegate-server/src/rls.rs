//! Envoy's rate limit service: from its messages to a decision, and back.
//!
//! One call is one decision over its descriptors, each with an answer of its own. Nothing that a call
//! can say about descriptors is an error, because Envoy lets through what it got an error for: a missing
//! attribute is for the rule's `missing` to decide, what no price list covers is over the limit, a key
//! may be as long as a message, and need not be text.

use std::borrow::Cow;

use http::StatusCode;
use smallvec::SmallVec;
use tidegate::policy::DescriptorNames;
use tidegate::{CheckError, Report, Request, RequestLimit, WindowUnit};
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_proto::rls::{
    self, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};

use crate::daemon::Daemon;
use crate::listener::Listener;
use crate::percent_utf8::percent_utf8;
use response::{headers, status};

mod response;

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RlsError {
    /// It makes no sense.
    Invalid(String),
    /// The store cannot answer.
    Outage(String),
}

impl RlsError {
    /// What is wrong, in words.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Invalid(message) | Self::Outage(message) => message,
        }
    }
}

/// Answers a call in JSON, as `POST /json` of HTTP does: 200, or 429 when over the limit.
pub(crate) async fn json(daemon: &Daemon, bytes: &[u8]) -> (StatusCode, String) {
    let request = match rls::request_from_json(bytes) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()),
    };
    match handle(daemon, Listener::Http, &request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            (status, rls::response_to_json(&response))
        }
        Err(refused @ RlsError::Outage(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, refused.message().into())
        }
        Err(refused) => (StatusCode::BAD_REQUEST, refused.message().into()),
    }
}

/// Whether the daemon can answer calls, as `GET /healthcheck` of HTTP says it.
pub(crate) fn healthcheck(daemon: &Daemon) -> (StatusCode, &'static str) {
    if daemon.readiness().ready {
        (StatusCode::OK, "OK")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the store takes nothing")
    }
}

/// Answers a call that came in by a door.
pub(crate) async fn handle(
    daemon: &Daemon,
    listener: Listener,
    call: &RateLimitRequest,
) -> Result<RateLimitResponse, RlsError> {
    check(call)?;
    let domain = percent_utf8(&call.domain);
    let entries: Several<_> = call.descriptors.iter().map(entries).collect();
    let names: Several<_> = entries.iter().map(names).collect();
    let limits: Several<_> = call.descriptors.iter().map(own_limit).collect();
    let attributes: Several<_> = (names.iter().zip(&entries).zip(&limits).enumerate())
        .map(|(number, ((names, entries), limit))| {
            // A limit that is brought along counts the same wherever its descriptor stands.
            attributes(names, entries, if limit.is_some() { 0 } else { number })
        })
        .collect();
    let requests: Several<Request<'_>> = (call.descriptors.iter().zip(&attributes).zip(&limits))
        .map(|((descriptor, attributes), limit)| {
            let hits = descriptor.hits_addend.unwrap_or(call.hits_addend.max(1).into());
            let request = Request::new(&domain, attributes).cost(hits);
            limit.as_ref().map_or(request, |limit| request.own_limit(limit))
        })
        .collect();
    let is_negative = |descriptor: &RateLimitDescriptor| descriptor.is_negative_hits;
    let answered = if call.descriptors.iter().any(is_negative) {
        answer_with_refunds(daemon, listener, call, &requests).await
    } else {
        handle_charges(daemon, listener, &requests).await
    };
    match answered {
        Ok(response) => Ok(response),
        Err(error @ CheckError::Outage) => Err(RlsError::Outage(error.to_string())),
        Err(error) => {
            tracing::debug!(%error, "over the limit: it cannot be decided");
            over_limit(daemon, &requests, &error).await
        }
    }
}

/// All descriptors are decided together.
async fn handle_charges(
    daemon: &Daemon,
    listener: Listener,
    requests: &[Request<'_>],
) -> Result<RateLimitResponse, CheckError> {
    let report = match requests {
        [request] => daemon.engine.check(request).await?,
        requests => daemon.engine.check_together(requests).await?,
    };
    let statuses: Vec<_> = (0..requests.len()).map(|index| status(&report, index)).collect();
    let dialect = statuses.iter().position(|it| it.code() == Code::OverLimit).unwrap_or(0);
    daemon.observe(listener, &requests[dialect], &report);
    Ok(response(daemon, Some(&report), statuses))
}

/// Some descriptors give hits back; the others are decided together, after those that give back first.
async fn answer_with_refunds(
    daemon: &Daemon,
    listener: Listener,
    call: &RateLimitRequest,
    requests: &[Request<'_>],
) -> Result<RateLimitResponse, CheckError> {
    let is_taking = |index: &usize| !call.descriptors[*index].is_negative_hits;
    let taking: Several<usize> = (0..requests.len()).filter(is_taking).collect();
    let first_take = taking.first().copied().unwrap_or(requests.len());
    let mut statuses = vec![DescriptorStatus::default(); requests.len()];
    for (status, request) in statuses.iter_mut().zip(&requests[..first_take]) {
        *status = refund(daemon, request).await?;
    }
    let together: Several<Request<'_>> = taking.iter().map(|index| requests[*index]).collect();
    let report = match &*together {
        [] => None,
        together => {
            let report = daemon.engine.check_together(together).await?;
            daemon.observe(listener, &together[0], &report);
            Some(report)
        }
    };
    for (number, index) in taking.iter().enumerate() {
        if let Some(report) = &report {
            statuses[*index] = status(report, number);
        }
    }
    for index in (first_take..requests.len()).filter(|index| !is_taking(index)) {
        statuses[index] = refund(daemon, &requests[index]).await?;
    }
    Ok(response(daemon, report.as_ref(), statuses))
}

/// Gives hits back, and tells what is there then.
async fn refund(daemon: &Daemon, request: &Request<'_>) -> Result<DescriptorStatus, CheckError> {
    daemon.engine.refund(request).await?;
    let look = daemon.engine.peek(&request.cost(0)).await?;
    Ok(DescriptorStatus { code: Code::Ok.into(), ..status(&look, 0) })
}

/// What cannot be decided is over the limit, and everything else is as it was.
async fn over_limit(
    daemon: &Daemon,
    requests: &[Request<'_>],
    why: &CheckError,
) -> Result<RateLimitResponse, RlsError> {
    let over = DescriptorStatus { code: Code::OverLimit.into(), ..Default::default() };
    let is_unfit = |report: &Report| match why {
        CheckError::NeedsAcquire { rule } => report.rules().any(|it| *it.rule == **rule),
        _ => false,
    };
    let mut statuses = Vec::with_capacity(requests.len());
    for request in requests {
        statuses.push(match daemon.engine.peek(request).await {
            Ok(report) if is_unfit(&report) => over.clone(),
            Ok(report) => status(&report, 0),
            Err(error @ CheckError::Outage) => return Err(RlsError::Outage(error.to_string())),
            Err(_) => over.clone(),
        });
    }
    let overall_code = Code::OverLimit.into();
    Ok(RateLimitResponse { overall_code, statuses, ..Default::default() })
}

/// What is not a call at all.
fn check(call: &RateLimitRequest) -> Result<(), RlsError> {
    let count = call.descriptors.len();
    let entries: usize = call.descriptors.iter().map(|it| it.entries.len()).sum();
    let invalid = |message: String| Err(RlsError::Invalid(message));
    if call.domain.is_empty() {
        invalid("rate limit domain must not be empty".into())
    } else if count == 0 {
        invalid("rate limit descriptor list must not be empty".into())
    } else if count > MOST_DESCRIPTORS {
        invalid(format!("{count} descriptors are too many: at most {MOST_DESCRIPTORS} in one call"))
    } else if entries > MOST_ENTRIES {
        invalid(format!("{entries} entries are too many: at most {MOST_ENTRIES} in one call"))
    } else {
        Ok(())
    }
}

fn entries(descriptor: &RateLimitDescriptor) -> Entries<'_> {
    descriptor.entries.iter().map(|it| (percent_utf8(&it.key), percent_utf8(&it.value))).collect()
}

fn names(entries: &Entries<'_>) -> DescriptorNames {
    DescriptorNames::new(entries.iter().map(|(key, _)| &**key))
}

fn attributes<'a>(
    names: &'a DescriptorNames,
    entries: &'a Entries<'_>,
    number: usize,
) -> SmallVec<[(&'a str, &'a str); 8]> {
    names.attributes(entries.iter().map(|(key, value)| (&**key, &**value)), number).collect()
}

/// The limit that a descriptor brings along. One of an unknown unit is none.
fn own_limit(descriptor: &RateLimitDescriptor) -> Option<RequestLimit> {
    let limit = descriptor.limit.as_ref()?;
    let unit = match limit.unit() {
        RateLimitUnit::Unknown => return None,
        RateLimitUnit::Second => WindowUnit::Second,
        RateLimitUnit::Minute => WindowUnit::Minute,
        RateLimitUnit::Hour => WindowUnit::Hour,
        RateLimitUnit::Day => WindowUnit::Day,
        RateLimitUnit::Month => WindowUnit::Month,
        RateLimitUnit::Year => WindowUnit::Year,
    };
    Some(RequestLimit::new(limit.requests_per_unit, unit))
}

fn response(
    daemon: &Daemon,
    report: Option<&Report>,
    statuses: Vec<DescriptorStatus>,
) -> RateLimitResponse {
    let is_allowed = report.is_none_or(Report::is_allowed);
    let is_asked_for = daemon.settings.policy.server().headers().is_some();
    let told = report.filter(|_| is_asked_for || !is_allowed);
    RateLimitResponse {
        overall_code: if is_allowed { Code::Ok } else { Code::OverLimit }.into(),
        statuses,
        response_headers_to_add: told.map_or_else(Vec::new, |report| headers(daemon, report)),
        ..Default::default()
    }
}

type Several<T> = SmallVec<[T; 2]>;

/// Keys and values of a descriptor, as texts.
type Entries<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 2]>;

/// The most descriptors in one call.
const MOST_DESCRIPTORS: usize = 32;
/// The most entries in all descriptors of one call. How many there are is for Envoy's configuration to
/// say, not for clients.
const MOST_ENTRIES: usize = 1_024;
