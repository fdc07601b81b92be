//! Envoy's rate limit service: from its messages to a decision, and back.
//!
//! One call is one decision over its descriptors, each with a status of its own. Nothing in a
//! descriptor is an error, because Envoy allows a request when it gets one: the rule's `missing`
//! decides about a missing attribute, a value that a cost table does not cover is over the limit,
//! and a key may be as long as a message and need not be UTF-8.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;

use http::StatusCode;
use smallvec::SmallVec;
use tidegate::policy::{Attributes, Scope};
use tidegate::{
    Answer, CheckError, Report, Request,
    policy::{PathError, RequestLimit, WindowUnit, normalized_path},
};
use tidegate_proto::percent::percent_utf8;
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_proto::rls::{
    self, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};

use crate::access::{AccessDenial, Principal};
use crate::daemon::{Daemon, Readiness};
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
    // A body that is small in bytes can be large in memory.
    if rls::count_json_objects(bytes) > MOST_PARTS {
        let message = format!("more than {MOST_PARTS} descriptors and entries");
        return Ok((StatusCode::BAD_REQUEST, message));
    }
    let request = match rls::request_from_json(bytes) {
        Ok(request) => request,
        Err(error) => return Ok((StatusCode::BAD_REQUEST, error.to_string())),
    };
    Ok(match handle(daemon, Listener::Http, principal, &request).await {
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
pub(crate) fn healthcheck(readiness: &Readiness) -> (StatusCode, &'static str) {
    match readiness.ready {
        true => (StatusCode::OK, "OK"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"),
    }
}

/// Handles a call of a listener.
///
/// What a decision needs of the call is prepared on the stack, and prepared again when the store
/// answers later. A future that kept it would be 2 KiB larger, and the futures of calls are copied
/// several times.
pub(crate) async fn handle(
    daemon: &Daemon,
    listener: Listener,
    principal: &Principal,
    call: &RateLimitRequest,
) -> Result<RateLimitResponse, RlsError> {
    check(call)?;
    let begun = with_requests(daemon, call, |prepared| {
        authorize(principal, prepared.texts)?;
        Ok::<_, RlsError>(begin(daemon, listener, prepared))
    })?;
    let failed = match begun {
        Begun::Done(response) => return Ok(response),
        Begun::Later(report) => match report.await {
            Ok(report) => {
                return Ok(with_requests(daemon, call, |prepared| {
                    charged(daemon, listener, prepared, &report)
                }));
            }
            Err(error) => Some(error),
        },
        Begun::Failed(error) => Some(error),
        Begun::Uncommon => None,
    };
    Box::pin(decide_uncommon(daemon, listener, call, failed)).await
}

/// The texts of a call, and the limits that it carries.
struct CallTexts<'c> {
    call: &'c RateLimitRequest,
    domain: Cow<'c, str>,
    entries: Several<Entries<'c>>,
    limits: Several<Option<RequestLimit>>,
}

impl<'c> CallTexts<'c> {
    fn new(call: &'c RateLimitRequest) -> Self {
        let entries: Several<_> = call.descriptors.iter().map(entries).collect();
        Self {
            call,
            domain: percent_utf8(&call.domain),
            entries,
            limits: call.descriptors.iter().map(request_limit).collect(),
        }
    }

    /// The path of each descriptor.
    fn paths(&self, daemon: &Daemon) -> Several<DescriptorPath<'_>> {
        self.entries.iter().map(|entries| path(daemon, entries)).collect()
    }

    /// The attributes of each descriptor.
    fn attributes<'a>(&'a self, paths: &'a [DescriptorPath<'_>]) -> Several<AttributeList<'a>> {
        let descriptors = self.entries.iter().zip(paths);
        descriptors.map(|(entries, path)| attributes(entries, path.as_ref().ok())).collect()
    }

    /// The request of each descriptor.
    fn requests<'a>(&'a self, attributes: &'a [AttributeList<'_>]) -> Several<Request<'a>> {
        let call = self.call;
        (call.descriptors.iter().zip(attributes).zip(&self.limits))
            .enumerate()
            .map(|(number, ((descriptor, list), limit))| {
                let hits = descriptor.hits_addend.unwrap_or(call.hits_addend.max(1).into());
                // A limit of the request counts the same at every index of its descriptor.
                let number = if limit.is_some() { 0 } else { number };
                let unordered = list.len() - descriptor.entries.len();
                let attributes =
                    Attributes::new(list).with_unordered(unordered).with_number(number);
                let request = Request::with_attributes(&self.domain, attributes).cost(hits);
                limit.as_ref().map_or(request, |limit| request.request_limit(limit))
            })
            .collect()
    }

    /// Whether some path is invalid, and matters.
    fn has_invalid_path(&self, daemon: &Daemon, paths: &[DescriptorPath<'_>]) -> bool {
        paths.iter().any(Result::is_err) && daemon.engine.reads_path(&self.domain)
    }
}

/// What a decision needs of a call.
struct PreparedCall<'p, 'c> {
    texts: &'p CallTexts<'c>,
    paths: &'p [DescriptorPath<'p>],
    requests: &'p [Request<'p>],
}

/// Prepares a call, and passes it to a function.
fn with_requests<R>(
    daemon: &Daemon,
    call: &RateLimitRequest,
    then: impl FnOnce(&PreparedCall<'_, '_>) -> R,
) -> R {
    let texts = &CallTexts::new(call);
    let paths = &texts.paths(daemon);
    let attributes = texts.attributes(paths);
    then(&PreparedCall { texts, paths, requests: &texts.requests(&attributes) })
}

/// Rejects a call that its client may not send.
fn authorize(principal: &Principal, texts: &CallTexts<'_>) -> Result<(), AccessDenial> {
    principal.may_in(Scope::Check, &texts.domain)?;
    if has_refunds(texts.call) {
        principal.may_in(Scope::Settle, &texts.domain)?;
    }
    for descriptor in &texts.entries {
        principal.may_send(descriptor.iter().map(|(key, value)| (&**key, &**value)))?;
    }
    Ok(())
}

/// Whether some descriptor gives units back.
fn has_refunds(call: &RateLimitRequest) -> bool {
    call.descriptors.iter().any(|descriptor| descriptor.is_negative_hits)
}

/// How far a decision has come at once.
enum Begun<'d> {
    Done(RateLimitResponse),
    /// The store answers later.
    Later(Pin<Box<dyn Future<Output = Result<Report, CheckError>> + Send + 'd>>),
    Failed(CheckError),
    /// It has refunds or an invalid path, and nothing is decided yet.
    Uncommon,
}

/// Decides all descriptors of a usual call together.
fn begin<'d>(daemon: &'d Daemon, listener: Listener, prepared: &PreparedCall<'_, '_>) -> Begun<'d> {
    let PreparedCall { texts, paths, .. } = prepared;
    if has_refunds(texts.call) || texts.has_invalid_path(daemon, paths) {
        return Begun::Uncommon;
    }
    let report = match prepared.requests {
        [request] => daemon.engine.check(request),
        requests => daemon.engine.check_together(requests),
    };
    match report {
        Answer::Ready(Ok(report)) => Begun::Done(charged(daemon, listener, prepared, &report)),
        Answer::Ready(Err(error)) => Begun::Failed(error),
        Answer::Pending(report) => Begun::Later(report),
    }
}

/// The response to a call whose descriptors were decided together.
fn charged(
    daemon: &Daemon,
    listener: Listener,
    PreparedCall { texts, requests, .. }: &PreparedCall<'_, '_>,
    report: &Report,
) -> RateLimitResponse {
    let statuses = (0..requests.len()).map(|index| DescribedStatus::new(daemon, report, index));
    let statuses = statuses.collect();
    daemon.observe_together(listener, requests, report);
    completed(daemon, texts, response(daemon, Some(report), statuses))
}

/// A response with the metadata of its call, if that is wanted.
fn completed(
    daemon: &Daemon,
    texts: &CallTexts<'_>,
    mut response: RateLimitResponse,
) -> RateLimitResponse {
    if daemon.settings.response_metadata {
        metadata::complete(&mut response, texts.call, &texts.domain, &texts.entries);
    }
    response
}

/// Decides a call with refunds or an invalid path, or responds to one that failed.
async fn decide_uncommon(
    daemon: &Daemon,
    listener: Listener,
    call: &RateLimitRequest,
    failed: Option<CheckError>,
) -> Result<RateLimitResponse, RlsError> {
    let texts = &CallTexts::new(call);
    let paths = &texts.paths(daemon);
    let attributes = texts.attributes(paths);
    let requests = &texts.requests(&attributes);
    let decided = match failed {
        Some(error) => Err(error),
        None if texts.has_invalid_path(daemon, paths) => {
            tracing::debug!("invalid path; over the limit");
            let is_invalid = |index: usize, _: &Report| paths[index].is_err();
            let response = over_limit(daemon, requests, is_invalid).await?;
            return Ok(completed(daemon, texts, response));
        }
        None => handle_with_refunds(daemon, listener, call, requests).await,
    };
    let response = match decided {
        Ok(response) => response,
        Err(error @ CheckError::Outage(_)) => return Err(RlsError::Outage(error.to_string())),
        Err(error) => {
            tracing::debug!(%error, "cannot be decided; over the limit");
            let is_unfit = |_, report: &Report| match &error {
                CheckError::NeedsAcquire { rule } => report.rules().any(|it| it.rule == rule),
                _ => false,
            };
            over_limit(daemon, requests, is_unfit).await?
        }
    };
    Ok(completed(daemon, texts, response))
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
    Ok(DescribedStatus::of(daemon, &report, 0, status))
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

/// The path among the entries in its normal form; empty if there is none.
fn path<'a>(daemon: &Daemon, entries: &'a Entries<'_>) -> DescriptorPath<'a> {
    let slashes = daemon.settings.policy.settings().encoded_slash();
    match entries.iter().rfind(|(key, _)| key == PATH) {
        Some((_, path)) => normalized_path(path.as_bytes(), slashes),
        None => Ok(Cow::Borrowed("")),
    }
}

/// The attributes of a descriptor: as rules find them by their keys, and then in their order. Of entries
/// with the same key the last counts, and the path in its normal form.
fn attributes<'a>(entries: &'a Entries<'_>, path: Option<&'a Cow<'_, str>>) -> AttributeList<'a> {
    let entries = entries.iter().map(|(key, value)| (&**key, &**value));
    let by_key = entries
        .clone()
        .rev()
        .map(|(key, value)| (key, path.filter(|_| key == PATH).map_or(value, |path| &**path)));
    by_key.chain(entries).collect()
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

/// The path of a descriptor in its normal form.
type DescriptorPath<'a> = Result<Cow<'a, str>, PathError>;

/// The attributes of a descriptor.
type AttributeList<'a> = SmallVec<[(&'a str, &'a str); 8]>;

/// Keys and values of a descriptor, as texts.
type Entries<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 2]>;

/// The most descriptors and entries of a call that is decoded.
pub(crate) const MOST_PARTS: usize = 2_048;
/// The most descriptors in one call.
const MOST_DESCRIPTORS: usize = 32;
/// The most entries in all descriptors of one call. Their number comes from Envoy's configuration,
/// not from clients.
const MOST_ENTRIES: usize = 1_024;
