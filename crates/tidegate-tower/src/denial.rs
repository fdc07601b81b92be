//! Denials as responses.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use smallvec::SmallVec;
use tidegate::policy::RuleId;
use tidegate::{CheckError, Decision, Report, Wait};
use tidegate_proto::headers::{Dialect, LimitFields};
use tidegate_proto::{grpc, problem};

use crate::AttributeError;

/// Headers to be added to a response.
pub(crate) type Headers = SmallVec<[(HeaderName, HeaderValue); 2]>;

/// Why a request is denied.
#[derive(Debug)]
pub struct Denial {
    pub(crate) kind: DenialKind,
    pub(crate) reason: Cow<'static, str>,
    /// The limits that denied it.
    pub(crate) rules: Vec<RuleId>,
    pub(crate) wait: Option<Wait>,
    pub(crate) decision: Option<Decision>,
    pub(crate) headers: Headers,
}

/// The cause of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenialKind {
    /// The client: it exceeds a limit. A 429.
    LimitExceeded,
    /// The client: it has no key to be counted by, such as a header. A 400, or `UNAUTHENTICATED`.
    NoKey,
    /// The client: a rule cannot use the request. A 422.
    Invalid,
    /// Neither: no slot is free, or the store is unavailable. A 503.
    Unavailable,
    /// The server: the layer does not fit the policy, or lacks what it needs. A 500, which says no
    /// more; the reason is logged.
    Misconfigured,
}

/// For a response of the caller's own.
impl Denial {
    /// The cause.
    #[must_use]
    pub const fn kind(&self) -> DenialKind {
        self.kind
    }

    /// The reason, as text. It may name rules and attributes.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The rules that denied the request. A limit without a policy has its own name, in the domain
    /// `default`.
    pub fn rules(&self) -> impl Iterator<Item = &RuleId> {
        self.rules.iter()
    }

    /// How long to wait; `None` where a retry makes no difference.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Wait> {
        self.wait
    }

    /// The decision of the decisive limit; `None` if none was made.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }
}

impl Denial {
    pub(crate) fn limit_exceeded(reason: impl Into<Cow<'static, str>>, wait: Wait) -> Self {
        let (rules, headers) = (Vec::new(), Headers::new());
        let reason = reason.into();
        Self {
            kind: DenialKind::LimitExceeded,
            reason,
            rules,
            wait: Some(wait),
            decision: None,
            headers,
        }
    }

    /// The denial of a request without a key.
    pub(crate) fn no_key() -> Self {
        let denial = Self::limit_exceeded("the request has no key", Wait::Never);
        Self { kind: DenialKind::NoKey, wait: None, ..denial }
    }

    /// The denial of a report.
    pub(crate) fn of_report(report: &Report, dialect: Dialect) -> Self {
        let denies = |rule: &tidegate::report::RuleReport<'_>| {
            is_enforced(rule) && !rule.decision.is_allowed()
        };
        let mut rules: Vec<RuleId> =
            report.rules().filter(denies).map(|rule| rule.rule.clone()).collect();
        if rules.is_empty() {
            rules.extend(report.rule().cloned());
        }
        Self {
            kind: if report.is_outage() && !report.details().is_local() {
                DenialKind::Unavailable
            } else if report.missing_attribute().is_some() {
                DenialKind::NoKey
            } else {
                DenialKind::LimitExceeded
            },
            reason: report.reason().unwrap_or_default().into(),
            rules,
            wait: report.retry_after().filter(|_| report.missing_attribute().is_none()),
            decision: report.decision().copied(),
            headers: headers_of(report, dialect),
        }
    }

    /// The same, but the server is to blame.
    pub(crate) fn misconfigured(self) -> Self {
        Self { kind: DenialKind::Misconfigured, wait: None, ..self }
    }

    pub(crate) fn no_slot(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: DenialKind::Unavailable, ..Self::limit_exceeded(reason, Wait::Unknown) }
    }

    /// The denial of a request whose attributes cannot be used.
    pub(crate) fn of_attribute(error: &AttributeError) -> Self {
        let kind = match error.is_misconfigured() {
            true => DenialKind::Misconfigured,
            false => DenialKind::Invalid,
        };
        Self { kind, wait: None, ..Self::limit_exceeded(error.to_string(), Wait::Never) }
    }

    pub(crate) fn of_error(error: &CheckError) -> Self {
        let kind = match error {
            CheckError::CostNotCovered { .. }
            | CheckError::EmptyAttribute { .. }
            | CheckError::OtherRequest
            | CheckError::NothingToReserve => DenialKind::Invalid,
            CheckError::TooManyHolds(_) => DenialKind::Unavailable,
            _ => DenialKind::Misconfigured,
        };
        Self { kind, wait: None, ..Self::limit_exceeded(error.to_string(), Wait::Never) }
    }

    /// The response that the layer would send over HTTP: status, `Retry-After`, rate-limit headers,
    /// and a body of `application/problem+json`.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        let rules = self.rules.iter().map(RuleId::name);
        let problem = match self.kind {
            DenialKind::LimitExceeded => {
                problem::Problem::quota_exceeded(&self.reason, rules, self.wait)
            }
            DenialKind::NoKey => problem::Problem::plain(400, "Bad Request", &self.reason),
            DenialKind::Invalid => {
                problem::Problem::plain(422, "Unprocessable Content", &self.reason)
            }
            DenialKind::Unavailable => problem::Problem::reduced_capacity(&self.reason),
            DenialKind::Misconfigured => {
                problem::Problem::plain(500, "Internal Server Error", "see the server's log")
            }
        };
        let text = Bytes::from(problem.to_json());
        let status = StatusCode::from_u16(problem.status);
        let mut response = Response::new(text);
        *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.with_headers(response)
    }

    /// A response with `Retry-After` and the rate-limit headers, where it has none.
    pub(crate) fn with_headers(&self, mut response: Response<Bytes>) -> Response<Bytes> {
        let headers = response.headers_mut();
        if let Some(seconds) = self.wait.and_then(Wait::whole_secs) {
            headers.entry(RETRY_AFTER).or_insert(HeaderValue::from(seconds));
        }
        insert_headers(headers, self.headers.clone());
        response
    }

    /// A response that ends with its headers.
    pub(crate) fn grpc_response(&self, GrpcType(content_type): GrpcType) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        let (status, message) = match self.kind {
            DenialKind::LimitExceeded => (grpc::RESOURCE_EXHAUSTED, &*self.reason),
            DenialKind::NoKey => (grpc::UNAUTHENTICATED, &*self.reason),
            DenialKind::Invalid => (grpc::INVALID_ARGUMENT, &*self.reason),
            DenialKind::Unavailable => (grpc::UNAVAILABLE, &*self.reason),
            DenialKind::Misconfigured => (grpc::INTERNAL, "see the server's log"),
        };
        headers.insert("grpc-status", HeaderValue::from(status));
        if let Some(message) = value(grpc::percent_encoded(message)) {
            headers.insert("grpc-message", message);
        }
        if self.kind == DenialKind::LimitExceeded {
            let rule = self.rules.first().map(RuleId::name);
            let details = grpc::GrpcDenial { message, rule, wait: self.wait };
            if let Some(details) = value(details.details()) {
                headers.insert("grpc-status-details-bin", details);
            }
            if let Some(pushback) = details.pushback().and_then(value) {
                headers.insert("grpc-retry-pushback-ms", pushback);
            }
        }
        insert_headers(headers, self.headers.clone());
        response
    }
}

/// The content type of a gRPC or gRPC-Web call; the response has the same.
pub(crate) struct GrpcType(HeaderValue);

impl GrpcType {
    /// The content type of a request, if it is a gRPC call: a POST, over HTTP/2 unless it is
    /// gRPC-Web. Other requests with such a content type get HTTP.
    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        const NAME: &[u8] = b"application/grpc";
        let content_type = parts.headers.get(CONTENT_TYPE)?;
        let (name, rest) = content_type.as_bytes().split_at_checked(NAME.len())?;
        let is_grpc = name.eq_ignore_ascii_case(NAME)
            && match rest.first() {
                None | Some(b'+' | b';') => parts.version >= Version::HTTP_2,
                Some(b'-') => true,
                Some(_) => false,
            };
        (is_grpc && parts.method == Method::POST).then(|| Self(content_type.clone()))
    }
}

/// The headers of one limit.
pub(crate) fn headers_of_one<'a>(
    dialect: Dialect,
    line: impl FnOnce() -> LimitFields<'a>,
) -> Headers {
    let mut headers = Headers::new();
    if dialect != Dialect::None {
        dialect.write(&[line()], 0, |name, text| push(&mut headers, name, text));
    }
    headers
}

/// The headers of a report: of the rules that are enforced.
pub(crate) fn headers_of(report: &Report, dialect: Dialect) -> Headers {
    let mut headers = Headers::new();
    if dialect == Dialect::None {
        return headers;
    }
    let decisive = report.rule();
    let mut lines: SmallVec<[LimitFields<'_>; 3]> = SmallVec::new();
    let mut index = 0;
    for rule in report.rules().filter(is_enforced) {
        if Some(rule.rule) == decisive {
            index = lines.len();
        }
        lines.push(LimitFields {
            span: rule.span,
            ..LimitFields::new(rule.rule.name(), rule.decision)
        });
    }
    dialect.write(&lines, index, |name, text| push(&mut headers, name, text));
    headers
}

fn is_enforced(rule: &tidegate::report::RuleReport<'_>) -> bool {
    rule.mode == tidegate::policy::Mode::Enforce
}

fn push(headers: &mut Headers, name: &'static str, text: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(text) {
        headers.push((header_name(name), value));
    }
}

fn value(text: String) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

/// Adds headers to a response. Lists are extended, because another layer may have added members.
/// For headers with a single value, the innermost layer's stays.
pub(crate) fn insert_headers(response: &mut HeaderMap, headers: Headers) {
    if headers.is_empty() {
        return;
    }
    for (name, value) in headers {
        if name == RATELIMIT || name == RATELIMIT_POLICY {
            response.append(name, value);
        } else {
            response.entry(name).or_insert(value);
        }
    }
}

/// The header's name; the common ones are constants.
fn header_name(name: &'static str) -> HeaderName {
    match name {
        "ratelimit" => RATELIMIT,
        "ratelimit-policy" => RATELIMIT_POLICY,
        name => HeaderName::from_static(name),
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
