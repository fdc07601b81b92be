//! Responses of HTTP.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tidegate::policy::Mode;
use tidegate::{Report, Wait, report::RuleReport};
use tidegate_proto::headers::{Dialect, LimitFields};

use crate::body::{DecisionBody, DecisionId};
use crate::openapi;

/// A response with its whole body.
pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// A response in JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    // Texts and numbers only: serializing cannot fail.
    if serde_json::to_writer(&mut text, body).is_err() {
        text.clear();
    }
    typed(status, JSON, text.into())
}

/// A response of a given content type.
pub(crate) fn typed(status: StatusCode, content_type: HeaderValue, text: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}

/// A response in plain text.
pub(crate) fn text(status: StatusCode, text: &'static str) -> HttpResponse {
    typed(status, TEXT, Bytes::from_static(text.as_bytes()))
}

/// The OpenAPI document.
pub(crate) fn openapi() -> HttpResponse {
    typed(StatusCode::OK, JSON, Bytes::from_static(openapi::TEXT.as_bytes()))
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> HttpResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// The status of a decision.
pub(crate) fn status_of(report: &Report) -> StatusCode {
    match (report.is_allowed(), is_denied_by_outage(report)) {
        (true, _) => StatusCode::OK,
        (false, false) => StatusCode::TOO_MANY_REQUESTS,
        (false, true) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Whether a request is denied because the store is unavailable, and not by a limit.
pub(crate) fn is_denied_by_outage(report: &Report) -> bool {
    !report.is_allowed() && report.is_outage() && !report.details().is_local()
}

/// The response to a check, with rate-limit headers.
pub(crate) fn checked(report: &Report, id: DecisionId, dialect: Dialect) -> HttpResponse {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    DecisionBody::new(report, id).write(&mut text);
    let mut response = typed(status_of(report), JSON, text.into());
    put_limits(response.headers_mut(), report, dialect);
    response
}

/// A decision with further fields, with rate-limit headers.
pub(crate) fn decided(report: &Report, dialect: Dialect, body: &impl Serialize) -> HttpResponse {
    let mut response = json(status_of(report), body);
    put_limits(response.headers_mut(), report, dialect);
    response
}

/// Adds the rate-limit headers of the enforced rules.
pub(crate) fn put_limits(headers: &mut HeaderMap, report: &Report, dialect: Dialect) {
    if let Some(seconds) = report.retry_after().and_then(Wait::whole_secs) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if dialect == Dialect::None {
        return;
    }
    let decisive = report.rule();
    let mut lines: smallvec::SmallVec<[LimitFields<'_>; 4]> = smallvec::SmallVec::new();
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
    dialect.write(&lines, index, |name, text| {
        if let Ok(value) = HeaderValue::from_bytes(text) {
            headers.insert(header_name(name), value);
        }
    });
}

pub(crate) fn is_enforced(rule: &RuleReport<'_>) -> bool {
    rule.mode == Mode::Enforce
}

/// A header name; the common ones are constants.
fn header_name(name: &'static str) -> HeaderName {
    const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
    const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    match name {
        "ratelimit" => RATELIMIT,
        "ratelimit-policy" => RATELIMIT_POLICY,
        name => HeaderName::from_static(name),
    }
}

/// Decisions must not be cached.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const PROBLEM: HeaderValue =
    HeaderValue::from_static(tidegate_proto::problem::CONTENT_TYPE);
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The usual size of a response to a check.
const USUAL_BYTES: usize = 512;
