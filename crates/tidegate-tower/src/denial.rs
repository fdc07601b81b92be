//! Refusals as responses.

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

/// Headers that are yet to be put into a response.
pub(crate) type Headers = SmallVec<[(HeaderName, HeaderValue); 2]>;

/// Why a request is not served.
pub(crate) struct Denial {
    pub(crate) kind: DenialKind,
    pub(crate) reason: Cow<'static, str>,
    /// The limits that refused.
    pub(crate) rules: Vec<Box<str>>,
    pub(crate) wait: Option<Wait>,
    pub(crate) decision: Option<Decision>,
    pub(crate) headers: Headers,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialKind {
    /// The client's: it asks for too much.
    TooMuch,
    /// The client's: no rule understands the request.
    NotUnderstood,
    /// Nobody's: there is no room, or nobody can decide at the moment.
    NoRoom,
    /// The server's: the layer and the policy do not fit.
    Misfit,
}

impl Denial {
    pub(crate) fn too_much(reason: impl Into<Cow<'static, str>>, wait: Wait) -> Self {
        let (rules, headers) = (Vec::new(), Headers::new());
        let reason = reason.into();
        Self { kind: DenialKind::TooMuch, reason, rules, wait: Some(wait), decision: None, headers }
    }

    /// The refusal of a request that cannot be counted under anybody.
    pub(crate) fn no_key() -> Self {
        Self::too_much("nobody can tell whose request this is", Wait::Never)
    }

    /// The refusal that a report is.
    pub(crate) fn of_report(report: &Report, dialect: Dialect) -> Self {
        let is_refuser =
            |rule: &tidegate::RuleReport<'_>| is_enforced(rule) && !rule.decision.is_allowed();
        let mut rules: Vec<Box<str>> =
            report.rules().filter(is_refuser).map(|rule| rule.rule.into()).collect();
        if rules.is_empty() {
            rules.extend(report.rule().map(Box::from));
        }
        Self {
            kind: if report.is_outage() { DenialKind::NoRoom } else { DenialKind::TooMuch },
            reason: report.reason().unwrap_or_default().into(),
            rules,
            wait: report.wait(),
            decision: report.decision().copied(),
            headers: headers_of(report, dialect),
        }
    }

    pub(crate) fn no_slot(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: DenialKind::NoRoom, ..Self::too_much(reason, Wait::Unknown) }
    }

    pub(crate) fn of_error(error: &CheckError) -> Self {
        let kind = match error {
            CheckError::CostNotCovered { .. }
            | CheckError::OtherRequest
            | CheckError::NothingToReserve => DenialKind::NotUnderstood,
            CheckError::TooManyHolds => DenialKind::NoRoom,
            _ => DenialKind::Misfit,
        };
        if kind == DenialKind::Misfit {
            tracing::error!(%error, "the layer does not fit the policy");
        }
        Self { kind, wait: None, ..Self::too_much(error.to_string(), Wait::Never) }
    }

    /// The response, as HTTP or as gRPC.
    pub(crate) fn into_response<B>(self, grpc: Option<GrpcType>) -> Response<GateBody<B>> {
        match grpc {
            Some(content_type) => self.into_grpc(content_type),
            None => self.into_http(),
        }
    }

    fn into_http<B>(self) -> Response<GateBody<B>> {
        let rules = self.rules.iter().map(|rule| &**rule);
        let problem = match self.kind {
            DenialKind::TooMuch => problem::Problem::quota_exceeded(&self.reason, rules, self.wait),
            DenialKind::NotUnderstood => {
                problem::Problem::plain(422, "Unprocessable Content", &self.reason)
            }
            DenialKind::NoRoom => problem::Problem::reduced_capacity(&self.reason),
            DenialKind::Misfit => {
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

    /// A response that is over with its headers.
    fn into_grpc<B>(self, GrpcType(content_type): GrpcType) -> Response<GateBody<B>> {
        let mut response = Response::new(GateBody::denied(None));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        let (status, message) = match self.kind {
            DenialKind::TooMuch => (grpc::RESOURCE_EXHAUSTED, &*self.reason),
            DenialKind::NotUnderstood => (grpc::INVALID_ARGUMENT, &*self.reason),
            DenialKind::NoRoom => (grpc::UNAVAILABLE, &*self.reason),
            DenialKind::Misfit => (grpc::INTERNAL, "see the server's log"),
        };
        headers.insert("grpc-status", HeaderValue::from(status));
        if let Some(message) = value(grpc::percent_encoded(message)) {
            headers.insert("grpc-message", message);
        }
        if self.kind == DenialKind::TooMuch {
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

/// The content type of a call of gRPC, or of gRPC-Web: the answer has the same.
pub(crate) struct GrpcType(HeaderValue);

impl GrpcType {
    /// The content type of a request, if it is a call of gRPC: a POST, and over HTTP/2 unless it is of
    /// gRPC-Web. Anybody else who claims to be one hears HTTP.
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

/// The headers that one limit makes.
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

/// The headers that a report makes: of the rules that bite.
pub(crate) fn headers_of(report: &Report, dialect: Dialect) -> Headers {
    let mut headers = Headers::new();
    if dialect == Dialect::None {
        return headers;
    }
    let telling = report.rule();
    let mut lines: SmallVec<[LimitFields<'_>; 3]> = SmallVec::new();
    let mut permit = 0;
    for rule in report.rules().filter(is_enforced) {
        if Some(rule.rule) == telling {
            permit = lines.len();
        }
        lines.push(LimitFields { span: rule.span, ..LimitFields::new(rule.rule, rule.decision) });
    }
    dialect.write(&lines, permit, |name, text| push(&mut headers, name, text));
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

/// Puts headers into a response. Lists grow: another layer may have said something as well. Of what
/// can be said only once, the innermost layer's word stays.
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

/// Names that are read once, at compile time.
fn header_name(name: &'static str) -> HeaderName {
    match name {
        "ratelimit" => RATELIMIT,
        "ratelimit-policy" => RATELIMIT_POLICY,
        name => HeaderName::from_static(name),
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
