//! Denials as responses.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use smallvec::SmallVec;
use tidegate::{CheckError, Decision, Report, Wait};
use tidegate_proto::headers::{Dialect, LimitFields};
use tidegate_proto::{grpc, problem};

use crate::GateBody;

/// Headers to be added to a response.
pub(crate) type Headers = SmallVec<[(HeaderName, HeaderValue); 2]>;

/// Why a request is denied.
pub(crate) struct Denial {
    pub(crate) kind: DenialKind,
    pub(crate) reason: Cow<'static, str>,
    /// The limits that denied it.
    pub(crate) rules: Vec<Box<str>>,
    pub(crate) wait: Option<Wait>,
    pub(crate) decision: Option<Decision>,
    pub(crate) headers: Headers,
}

/// The cause of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialKind {
    /// The client: it exceeds a limit.
    LimitExceeded,
    /// The client: a rule cannot use the request.
    Invalid,
    /// Neither: no slot is free, or the store is unavailable.
    Unavailable,
    /// The server: the layer does not fit the policy.
    Misconfigured,
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
        Self::limit_exceeded("the request has no key: its client is unknown", Wait::Never)
    }

    /// The denial of a report.
    pub(crate) fn of_report(report: &Report, dialect: Dialect) -> Self {
        let denies =
            |rule: &tidegate::RuleReport<'_>| is_enforced(rule) && !rule.decision.is_allowed();
        let mut rules: Vec<Box<str>> =
            report.rules().filter(denies).map(|rule| rule.rule.into()).collect();
        if rules.is_empty() {
            rules.extend(report.rule().map(Box::from));
        }
        Self {
            kind: if report.is_outage() {
                DenialKind::Unavailable
            } else {
                DenialKind::LimitExceeded
            },
            reason: report.reason().unwrap_or_default().into(),
            rules,
            wait: report.wait(),
            decision: report.decision().copied(),
            headers: headers_of(report, dialect),
        }
    }

    pub(crate) fn no_slot(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: DenialKind::Unavailable, ..Self::limit_exceeded(reason, Wait::Unknown) }
    }

    /// The denial of a request that cannot be decided.
    pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        let kind = DenialKind::Invalid;
        Self { kind, wait: None, ..Self::limit_exceeded(reason, Wait::Never) }
    }

    pub(crate) fn of_error(error: &CheckError) -> Self {
        let kind = match error {
            CheckError::CostNotCovered { .. }
            | CheckError::OtherRequest
            | CheckError::NothingToReserve => DenialKind::Invalid,
            CheckError::TooManyHolds(_) => DenialKind::Unavailable,
            _ => DenialKind::Misconfigured,
        };
        if kind == DenialKind::Misconfigured {
            tracing::error!(%error, "layer does not fit the policy");
        }
        Self { kind, wait: None, ..Self::limit_exceeded(error.to_string(), Wait::Never) }
    }

    /// The response, in HTTP or gRPC.
    pub(crate) fn into_response<B>(self, grpc: Option<GrpcType>) -> Response<GateBody<B>> {
        match grpc {
            Some(content_type) => self.into_grpc(content_type),
            None => self.into_http(),
        }
    }

    fn into_http<B>(self) -> Response<GateBody<B>> {
        let rules = self.rules.iter().map(|rule| &**rule);
        let problem = match self.kind {
            DenialKind::LimitExceeded => {
                problem::Problem::quota_exceeded(&self.reason, rules, self.wait)
            }
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
        let mut response = Response::new(GateBody::denied(Some(text)));
        *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.wait.and_then(Wait::whole_secs) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        insert_headers(headers, self.headers);
        response
    }

    /// A response that ends with its headers.
    fn into_grpc<B>(self, GrpcType(content_type): GrpcType) -> Response<GateBody<B>> {
        let mut response = Response::new(GateBody::denied(None));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        let (status, message) = match self.kind {
            DenialKind::LimitExceeded => (grpc::RESOURCE_EXHAUSTED, &*self.reason),
            DenialKind::Invalid => (grpc::INVALID_ARGUMENT, &*self.reason),
            DenialKind::Unavailable => (grpc::UNAVAILABLE, &*self.reason),
            DenialKind::Misconfigured => (grpc::INTERNAL, "see the server's log"),
        };
        headers.insert("grpc-status", HeaderValue::from(status));
        if let Some(message) = value(grpc::percent_encoded(message)) {
            headers.insert("grpc-message", message);
        }
        if self.kind == DenialKind::LimitExceeded {
            let rule = self.rules.first().map(|rule| &**rule);
            let details = grpc::GrpcDenial { message, rule, wait: self.wait };
            if let Some(details) = value(details.details()) {
                headers.insert("grpc-status-details-bin", details);
            }
            if let Some(pushback) = details.pushback().and_then(value) {
                headers.insert("grpc-retry-pushback-ms", pushback);
            }
        }
        insert_headers(headers, self.headers);
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
        lines.push(LimitFields { span: rule.span, ..LimitFields::new(rule.rule, rule.decision) });
    }
    dialect.write(&lines, index, |name, text| push(&mut headers, name, text));
    headers
}

fn is_enforced(rule: &tidegate::RuleReport<'_>) -> bool {
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
