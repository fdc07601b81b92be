//! Envoy's rate limit service: from its messages to a decision, and back.
//!
//! One call is one decision over its descriptors, each with a status of its own. Nothing in a
//! descriptor is an error, because Envoy allows a request when it gets one: the rule's `missing`
//! decides about a missing attribute, a value that a cost table does not cover is over the limit,
//! and a key may be as long as a message and need not be UTF-8.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use smallvec::SmallVec;
use tidegate::policy::{DescriptorNames, Scope};
use tidegate::{CheckError, PathError, Report, Request, RequestLimit, WindowUnit, normalized_path};
use tidegate_proto::percent_utf8::percent_utf8;
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_proto::rls::{
    self, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};

use crate::access::{AccessDenial, Principal};
use crate::daemon::Daemon;
use crate::listener::Listener;
use metadata::DescribedStatus;
use response::{headers, is_over_all_quotas, status};

mod metadata;
mod response;

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RlsError {
    /// It is invalid.
    Invalid(String),
    /// The store is unavailable.
    Outage(String),
    /// The client may not send it.
    Denied(AccessDenial),
}

impl fmt::Display for RlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) | Self::Outage(message) => f.write_str(message),
            Self::Denied(denial) => denial.fmt(f),
        }
    }
}

impl From<AccessDenial> for RlsError {
    fn from(denial: AccessDenial) -> Self {
        Self::Denied(denial)
    }
}

/// Handles a call in JSON, `POST /json` of HTTP: 200, or 429 when over the limit.
pub(crate) async fn json(
    daemon: &Daemon,
    principal: &Principal,
    bytes: &[u8],
) -> Result<(StatusCode, String), AccessDenial> {
    let request = match rls::request_from_json(bytes) {
        Ok(request) => request,
        Err(error) => return Ok((StatusCode::BAD_REQUEST, error.to_string())),
    };
    Ok(match handle(daemon, (Listener::Http, principal), &request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            (status, rls::response_to_json(&response))
        }
        Err(RlsError::Denied(denial)) => return Err(denial),
        Err(RlsError::Outage(message)) => (StatusCode::SERVICE_UNAVAILABLE, message),
        Err(RlsError::Invalid(message)) => (StatusCode::BAD_REQUEST, message),
    })
}

/// The response of `GET /healthcheck` of HTTP.
pub(crate) fn healthcheck(daemon: &Daemon) -> (StatusCode, &'static str) {
    if daemon.readiness().ready {
        (StatusCode::OK, "OK")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the store is unavailable")
    }
}

/// Handles a call of a listener.
pub(crate) async fn handle(
    daemon: &Daemon,
    (listener, principal): (Listener, &Principal),
    call: &RateLimitRequest,
) -> Result<RateLimitResponse, RlsError> {
    check(call)?;
    let domain = percent_utf8(&call.domain);
    principal.may_in(Scope::Check, &domain)?;
    if call.descriptors.iter().any(|descriptor| descriptor.is_negative_hits) {
        // It gives units back.
        principal.may_in(Scope::Settle, &domain)?;
    }
    let entries: Several<_> = call.descriptors.iter().map(entries).collect();
    for descriptor in &entries {
        principal.may_send(descriptor.iter().map(|(key, value)| (&**key, &**value)))?;
    }
    let mut response = decide(daemon, listener, call, (&domain, &entries)).await?;
    if daemon.settings.response_metadata {
        metadata::complete(&mut response, call, (&domain, &entries));
    }
    Ok(response)
}

async fn decide(
    daemon: &Daemon,
    listener: Listener,
    call: &RateLimitRequest,
    (domain, entries): (&str, &[Entries<'_>]),
) -> Result<RateLimitResponse, RlsError> {
    let names: Several<_> = entries.iter().map(names).collect();
    let limits: Several<_> = call.descriptors.iter().map(request_limit).collect();
    let paths: Several<_> = entries.iter().map(|entries| path(daemon, entries)).collect();
    let attributes: Several<_> = (names.iter().zip(entries).zip(&paths).zip(&limits).enumerate())
        .map(|(number, (((names, entries), path), limit))| {
            // A limit of the request counts the same at every index of its descriptor.
            let number = if limit.is_some() { 0 } else { number };
            attributes(names, (entries, path.as_ref().ok()), number)
        })
        .collect();
    let requests: Several<Request<'_>> = (call.descriptors.iter().zip(&attributes).zip(&limits))
        .map(|((descriptor, attributes), limit)| {
            let hits = descriptor.hits_addend.unwrap_or(call.hits_addend.max(1).into());
            let request = Request::new(domain, attributes).cost(hits);
            limit.as_ref().map_or(request, |limit| request.request_limit(limit))
        })
        .collect();
    let is_invalid = |index: usize| paths[index].is_err();
    if paths.iter().any(Result::is_err) && daemon.engine.reads_path(domain) {
        tracing::debug!("invalid path; over the limit");
        return over_limit(daemon, &requests, |index, _| is_invalid(index)).await;
    }
    let is_negative = |descriptor: &RateLimitDescriptor| descriptor.is_negative_hits;
    let response = if call.descriptors.iter().any(is_negative) {
        handle_with_refunds(daemon, listener, call, &requests).await
    } else {
        handle_charges(daemon, listener, &requests).await
    };
    match response {
        Ok(response) => Ok(response),
        Err(error @ CheckError::Outage(_)) => Err(RlsError::Outage(error.to_string())),
        Err(error) => {
            tracing::debug!(%error, "cannot be decided; over the limit");
            let is_unfit = |_, report: &Report| match &error {
                CheckError::NeedsAcquire { rule } => report.rules().any(|it| it.rule == rule),
                _ => false,
            };
            over_limit(daemon, &requests, is_unfit).await
        }
    }
}

/// Decides all descriptors together.
async fn handle_charges(
    daemon: &Daemon,
    listener: Listener,
    requests: &[Request<'_>],
) -> Result<RateLimitResponse, CheckError> {
    let report = match requests {
        [request] => daemon.engine.check(request).await?,
        requests => daemon.engine.check_together(requests).await?,
    };
    let statuses = (0..requests.len()).map(|index| DescribedStatus::new(daemon, &report, index));
    let statuses = statuses.collect();
    daemon.observe_together(listener, requests, &report);
    Ok(response(daemon, Some(&report), statuses))
}

/// Decides a call in which some descriptors refund hits. All others are decided together, after the
/// refunds that precede the first of them.
async fn handle_with_refunds(
    daemon: &Daemon,
    listener: Listener,
    call: &RateLimitRequest,
    requests: &[Request<'_>],
) -> Result<RateLimitResponse, CheckError> {
    let is_charge = |index: &usize| !call.descriptors[*index].is_negative_hits;
    let charges: Several<usize> = (0..requests.len()).filter(is_charge).collect();
    let first_charge = charges.first().copied().unwrap_or(requests.len());
    let mut statuses = vec![DescribedStatus::default(); requests.len()];
    for (status, request) in statuses.iter_mut().zip(&requests[..first_charge]) {
        *status = refund(daemon, request).await?;
    }
    let together: Several<Request<'_>> = charges.iter().map(|index| requests[*index]).collect();
    let report = match &*together {
        [] => None,
        together => {
            let report = daemon.engine.check_together(together).await?;
            daemon.observe_together(listener, together, &report);
            Some(report)
        }
    };
    for (number, index) in charges.iter().enumerate() {
        if let Some(report) = &report {
            statuses[*index] = DescribedStatus::new(daemon, report, number);
        }
    }
    for index in (first_charge..requests.len()).filter(|index| !is_charge(index)) {
        statuses[index] = refund(daemon, &requests[index]).await?;
    }
    Ok(response(daemon, report.as_ref(), statuses))
}

/// Refunds hits, and returns the status after that.
async fn refund(daemon: &Daemon, request: &Request<'_>) -> Result<DescribedStatus, CheckError> {
    daemon.engine.refund(request).await?;
    let report = daemon.engine.peek(&request.cost(0)).await?;
    let status = DescriptorStatus { code: Code::Ok.into(), ..status(&report, 0) };
    Ok(DescribedStatus::of(daemon, (&report, 0), status))
}

/// The response to a call that cannot be decided: over the limit, and nothing is charged.
/// `is_unfit` says for which descriptors.
async fn over_limit(
    daemon: &Daemon,
    requests: &[Request<'_>],
    is_unfit: impl Fn(usize, &Report) -> bool,
) -> Result<RateLimitResponse, RlsError> {
    let over = DescriptorStatus { code: Code::OverLimit.into(), ..Default::default() };
    let mut statuses = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        statuses.push(match daemon.engine.peek(request).await {
            Ok(report) if is_unfit(index, &report) => over.clone(),
            Ok(report) => status(&report, 0),
            Err(error @ CheckError::Outage(_)) => return Err(RlsError::Outage(error.to_string())),
            Err(_) => over.clone(),
        });
    }
    let overall_code = Code::OverLimit.into();
    Ok(RateLimitResponse { overall_code, statuses, ..Default::default() })
}

/// Rejects invalid calls.
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

/// The path among the entries in its normal form; empty if there is none.
fn path<'a>(daemon: &Daemon, entries: &'a Entries<'_>) -> Result<Cow<'a, str>, PathError> {
    let slashes = daemon.settings.policy.settings().encoded_slash();
    match entries.iter().rfind(|(key, _)| key == PATH) {
        Some((_, path)) => normalized_path(path.as_bytes(), slashes),
        None => Ok(Cow::Borrowed("")),
    }
}

/// The attributes of a descriptor. Rules that find an entry by its key get the path in its normal
/// form; all others get it as it is.
fn attributes<'a>(
    names: &'a DescriptorNames,
    (entries, path): (&'a Entries<'_>, Option<&'a Cow<'_, str>>),
    number: usize,
) -> SmallVec<[(&'a str, &'a str); 8]> {
    let entries = entries.iter().map(|(key, value)| (&**key, &**value));
    let by_key = |key, value| path.filter(|_| key == PATH).map_or(value, |path| &**path);
    names.attributes_with(entries, number, by_key).collect()
}

/// The limit that a descriptor carries. One of an unknown unit is ignored.
fn request_limit(descriptor: &RateLimitDescriptor) -> Option<RequestLimit> {
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
    statuses: Vec<DescribedStatus>,
) -> RateLimitResponse {
    let is_over =
        |report: &Report| !report.is_allowed() || is_over_all_quotas(report, statuses.len());
    let is_allowed = !report.is_some_and(is_over);
    let is_configured = daemon.settings.server.headers().is_some();
    let report = report.filter(|_| is_configured || !is_allowed);
    RateLimitResponse {
        overall_code: if is_allowed { Code::Ok } else { Code::OverLimit }.into(),
        dynamic_metadata: metadata::merged(&statuses),
        statuses: statuses.into_iter().map(|it| it.status).collect(),
        response_headers_to_add: report.map_or_else(Vec::new, |report| headers(daemon, report)),
        ..Default::default()
    }
}

/// The attribute that is normalised.
const PATH: &str = "path";

type Several<T> = SmallVec<[T; 2]>;

/// Keys and values of a descriptor, as texts.
type Entries<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 2]>;

/// The most descriptors in one call.
const MOST_DESCRIPTORS: usize = 32;
/// The most entries in all descriptors of one call. Their number comes from Envoy's configuration,
/// not from clients.
const MOST_ENTRIES: usize = 1_024;
