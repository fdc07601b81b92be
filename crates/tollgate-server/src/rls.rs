//! Envoy's rate limit service: from its messages to a decision, and back.
//!
//! One call is one decision over its descriptors, each with an answer of its own. Nothing that a call
//! can say about descriptors is an error, because Envoy lets through what it got an error for: a missing
//! attribute is for the rule's `missing` to decide, and a key may be as long as a message.

use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;
use tollgate::policy::{DescriptorNames, Mode};
use tollgate::{CheckError, OwnLimit, Report, Request, RuleReport, Unit, Wait};
use tollgate_proto::headers::Line;
use tollgate_proto::rls::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit};
use tollgate_proto::rls::{
    self, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};

use crate::daemon::Daemon;
use crate::door::Door;

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It makes no sense.
    Invalid(String),
    /// The policy has something in that domain that this service cannot do.
    Unfit(String),
    /// The store cannot answer.
    Outage(String),
}

impl Refused {
    /// What is wrong, in words.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Invalid(message) | Self::Unfit(message) | Self::Outage(message) => message,
        }
    }
}

impl From<CheckError> for Refused {
    fn from(error: CheckError) -> Self {
        let message = error.to_string();
        match error {
            CheckError::CostNotCovered { .. } => Self::Invalid(message),
            CheckError::Outage => Self::Outage(message),
            _ => Self::Unfit(message),
        }
    }
}

/// Answers a call in JSON, as `POST /json` of HTTP does: 200, or 429 when over the limit.
pub(crate) async fn json(daemon: &Daemon, bytes: &[u8]) -> (StatusCode, String) {
    let request = match rls::request_from_json(bytes) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()),
    };
    match answer(daemon, Door::Http, &request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            (status, rls::response_to_json(&response))
        }
        Err(refused @ Refused::Outage(_)) => {
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
pub(crate) async fn answer(
    daemon: &Daemon,
    door: Door,
    call: &RateLimitRequest,
) -> Result<RateLimitResponse, Refused> {
    check(call)?;
    let names: Several<_> = call.descriptors.iter().map(names).collect();
    let attributes: Several<_> = (names.iter().zip(&call.descriptors).enumerate())
        .map(|(number, (names, it))| attributes(names, it, number))
        .collect();
    let limits: Several<_> = call.descriptors.iter().map(own_limit).collect();
    let requests: Several<Request<'_>> = (call.descriptors.iter().zip(&attributes).zip(&limits))
        .map(|((descriptor, attributes), limit)| {
            let hits = descriptor.hits_addend.unwrap_or(call.hits_addend.max(1).into());
            let request = Request::new(&call.domain, attributes).cost(hits);
            limit.as_ref().map_or(request, |limit| request.own_limit(limit))
        })
        .collect();
    let is_negative = |descriptor: &RateLimitDescriptor| descriptor.is_negative_hits;
    if call.descriptors.iter().any(is_negative) {
        return answer_with_refunds(daemon, door, call, &requests).await;
    }
    let report = match &*requests {
        [request] => daemon.engine.check(request).await?,
        requests => daemon.engine.check_together(requests).await?,
    };
    let statuses: Vec<_> = (0..requests.len()).map(|place| status(&report, place)).collect();
    let telling = statuses.iter().position(|it| it.code() == Code::OverLimit).unwrap_or(0);
    daemon.observe(door, &requests[telling], &report);
    Ok(response(daemon, Some(&report), statuses))
}

/// Some descriptors give hits back; the others are decided together.
async fn answer_with_refunds(
    daemon: &Daemon,
    door: Door,
    call: &RateLimitRequest,
    requests: &[Request<'_>],
) -> Result<RateLimitResponse, Refused> {
    let is_taking = |place: &usize| !call.descriptors[*place].is_negative_hits;
    let taking: Several<usize> = (0..requests.len()).filter(is_taking).collect();
    let together: Several<Request<'_>> = taking.iter().map(|place| requests[*place]).collect();
    let report = match &*together {
        [] => None,
        together => {
            let report = daemon.engine.check_together(together).await?;
            daemon.observe(door, &together[0], &report);
            Some(report)
        }
    };
    let mut statuses = vec![DescriptorStatus::default(); requests.len()];
    for (number, place) in taking.iter().enumerate() {
        if let Some(report) = &report {
            statuses[*place] = status(report, number);
        }
    }
    for (place, request) in requests.iter().enumerate().filter(|(place, _)| !is_taking(place)) {
        daemon.engine.refund(request).await?;
        let look = daemon.engine.peek(&request.cost(0)).await?;
        statuses[place] = DescriptorStatus { code: Code::Ok.into(), ..status(&look, 0) };
    }
    Ok(response(daemon, report.as_ref(), statuses))
}

/// What is not a call at all.
fn check(call: &RateLimitRequest) -> Result<(), Refused> {
    let count = call.descriptors.len();
    let invalid = |message: String| Err(Refused::Invalid(message));
    if call.domain.is_empty() {
        invalid("rate limit domain must not be empty".into())
    } else if count == 0 {
        invalid("rate limit descriptor list must not be empty".into())
    } else if count > MOST_DESCRIPTORS {
        invalid(format!("{count} descriptors are too many: at most {MOST_DESCRIPTORS} in one call"))
    } else {
        Ok(())
    }
}

fn names(descriptor: &RateLimitDescriptor) -> DescriptorNames {
    DescriptorNames::new(descriptor.entries.iter().map(|entry| entry.key.as_str()))
}

fn attributes<'a>(
    names: &'a DescriptorNames,
    descriptor: &'a RateLimitDescriptor,
    number: usize,
) -> SmallVec<[(&'a str, &'a str); 8]> {
    let entries = descriptor.entries.iter().map(|it| (it.key.as_str(), it.value.as_str()));
    names.attributes(entries, number).collect()
}

/// The limit that a descriptor brings along. One of an unknown unit is none.
fn own_limit(descriptor: &RateLimitDescriptor) -> Option<OwnLimit> {
    let limit = descriptor.limit.as_ref()?;
    let unit = match limit.unit() {
        RateLimitUnit::Unknown => return None,
        RateLimitUnit::Second => Unit::Second,
        RateLimitUnit::Minute => Unit::Minute,
        RateLimitUnit::Hour => Unit::Hour,
        RateLimitUnit::Day => Unit::Day,
        RateLimitUnit::Month => Unit::Month,
        RateLimitUnit::Year => Unit::Year,
    };
    Some(OwnLimit::new(limit.requests_per_unit, unit))
}

/// What is said about one descriptor, by its place.
fn status(report: &Report, place: usize) -> DescriptorStatus {
    if report.refused_request() == Some(place) {
        let duration_until_reset = report.wait().and_then(after).map(seconds);
        let code = Code::OverLimit.into();
        return DescriptorStatus { code, duration_until_reset, ..Default::default() };
    }
    let Some(rule) = report.rules_of(place).max_by_key(weight) else {
        let limit_remaining = if report.is_unlimited(place) { u32::MAX } else { 0 };
        return DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..Default::default() };
    };
    let is_over = !rule.decision.is_allowed() && rule.mode == Mode::Enforce;
    let until = rule.decision.wait().and_then(after).unwrap_or_else(|| rule.decision.reset());
    DescriptorStatus {
        code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
        current_limit: Some(limit(&rule)),
        limit_remaining: if is_over { 0 } else { narrow(rule.decision.remaining()) },
        duration_until_reset: Some(until).filter(|until| *until < Duration::MAX).map(seconds),
    }
}

/// How much a rule has to say: one that refuses before one that does not, one that bites before one
/// that is only watched, and then the longest wait, or the least that is left.
fn weight(rule: &RuleReport<'_>) -> (bool, bool, Duration, u64) {
    let is_binding = rule.mode == Mode::Enforce;
    let refuses = is_binding && !rule.decision.is_allowed();
    let wait = rule.decision.wait().filter(|_| refuses);
    let wait = wait.map_or(Duration::ZERO, |wait| after(wait).unwrap_or(Duration::MAX));
    (refuses, is_binding, wait, u64::MAX - rule.decision.remaining())
}

fn limit(rule: &RuleReport<'_>) -> RateLimit {
    let unit = match rule.span.and_then(Unit::of_length) {
        None => rate_limit::Unit::Unknown,
        Some(Unit::Second) => rate_limit::Unit::Second,
        Some(Unit::Minute) => rate_limit::Unit::Minute,
        Some(Unit::Hour) => rate_limit::Unit::Hour,
        Some(Unit::Day) => rate_limit::Unit::Day,
        Some(Unit::Week) => rate_limit::Unit::Week,
        Some(Unit::Month) => rate_limit::Unit::Month,
        Some(Unit::Year) => rate_limit::Unit::Year,
    };
    let max = rule.decision.limit();
    // A limit that is below what every request costs lets nothing pass.
    let max = if rule.price.is_some_and(|price| price > max) { 0 } else { max };
    RateLimit { requests_per_unit: narrow(max), unit: unit.into(), name: rule.rule.into() }
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

/// What the client is told: when to come again, and the headers of the dialect that is set.
fn headers(daemon: &Daemon, report: &Report) -> Vec<HeaderValue> {
    let mut headers = Vec::new();
    let mut put = |key: &str, value: &[u8]| {
        let value = String::from_utf8_lossy(value).into_owned();
        headers.push(HeaderValue { key: key.into(), value });
    };
    if let Some(wait) = report.wait().and_then(after) {
        put("retry-after", seconds(wait).seconds.to_string().as_bytes());
    }
    let lines: SmallVec<[Line<'_>; 4]> = report
        .rules()
        .map(|it| Line { span: it.span, ..Line::new(it.rule, it.decision) })
        .collect();
    let telling = lines.iter().position(|line| Some(line.name) == report.rule()).unwrap_or(0);
    daemon.settings.dialect.write(&lines, telling, put);
    headers
}

fn after(wait: Wait) -> Option<Duration> {
    match wait {
        Wait::After(wait) => Some(wait),
        Wait::Never | Wait::Unknown => None,
    }
}

/// Whole seconds, rounded up: whoever comes then is not too early.
fn seconds(duration: Duration) -> rls::Duration {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    rls::Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

type Several<T> = SmallVec<[T; 2]>;

/// The most descriptors in one call.
const MOST_DESCRIPTORS: usize = 32;
