//! Errors of requests as `application/problem+json`.

use std::time::Duration;

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tidegate::{CheckError, SettleError, Wait};
use tidegate_proto::problem::Problem;

use super::response::{HttpResponse, PROBLEM, typed};
use crate::access::AccessDenial;

/// The error of a request, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestProblem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    /// The invalid value, as JSON pointer.
    pub(crate) pointer: Option<Box<str>>,
    /// Line and column of an error in JSON, from 1.
    pub(crate) position: Option<(usize, usize)>,
    /// The methods that the path allows.
    pub(crate) allow: Option<&'static str>,
    /// How a reservation was settled before, and the units that were charged.
    pub(crate) settled: Option<(&'static str, u64)>,
    /// Why the client may not do it.
    pub(crate) denial: Option<Box<AccessDenial>>,
}

/// The JSON form of a problem.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemBody<'a> {
    #[serde(flatten)]
    problem: Problem<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    /// `committed` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<u64>,
}

impl RequestProblem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let detail = shortened(detail.into());
        let (pointer, position, allow, settled, denial) = (None, None, None, None, None);
        Self { status, detail, pointer, position, allow, settled, denial }
    }

    /// A well-formed but invalid request.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// A request that cannot be served at the moment.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn at(self, pointer: impl Into<String>) -> Self {
        Self { pointer: Some(shortened(pointer.into()).into()), ..self }
    }

    /// The problem of a failed check.
    pub(crate) fn of_check(error: &CheckError) -> Self {
        let status = match error {
            CheckError::TooManyHolds(_) | CheckError::Outage(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let problem = Self::new(status, error.to_string());
        match error {
            CheckError::CostNotCovered { attribute, .. }
            | CheckError::EmptyAttribute { attribute, .. } => {
                problem.at(format!("/attributes/{}", escaped(attribute)))
            }
            CheckError::NothingToReserve => problem.at("/cost"),
            CheckError::NeedsAcquire { .. } | CheckError::NoSlots { .. } => problem.at("/domain"),
            _ => problem,
        }
    }

    /// The problem of a failed settlement.
    pub(crate) fn of_settling(error: SettleError) -> Self {
        let (status, settled) = match error {
            SettleError::Outage(_) => (StatusCode::SERVICE_UNAVAILABLE, None),
            SettleError::OtherRequest => (StatusCode::UNPROCESSABLE_ENTITY, None),
            SettleError::Committed { units } => (StatusCode::CONFLICT, Some(("committed", units))),
            SettleError::Cancelled => (StatusCode::CONFLICT, Some(("cancelled", 0))),
            _ => (StatusCode::GONE, None),
        };
        Self { settled, ..Self::new(status, error.to_string()) }
    }

    /// The problem of a client that may not do what it requested.
    pub(crate) fn of_access(denial: AccessDenial) -> Self {
        let status = match &denial {
            denial if denial.is_unauthenticated() => StatusCode::UNAUTHORIZED,
            AccessDenial::Ambiguous(_) => StatusCode::BAD_REQUEST,
            AccessDenial::Owner => StatusCode::GONE,
            AccessDenial::Limit(_) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::FORBIDDEN,
        };
        let detail = denial.to_string();
        Self { denial: Some(Box::new(denial)), ..Self::new(status, detail) }
    }

    /// The same for a proxy, whose client it is not about: a proxy would pass another status, or a
    /// request for credentials, on to that client.
    pub(crate) fn for_proxy(self) -> Self {
        match self.denial {
            Some(_) => Self { status: StatusCode::SERVICE_UNAVAILABLE, ..self },
            None => self,
        }
    }

    pub(crate) fn body(&self) -> ProblemBody<'_> {
        ProblemBody {
            problem: Problem::plain(
                self.status.as_u16(),
                self.status.canonical_reason().unwrap_or_default(),
                &self.detail,
            ),
            pointer: self.pointer.as_deref(),
            line: self.position.map(|(line, _)| line),
            column: self.position.map(|(_, column)| column),
            settled: self.settled.map(|(settled, _)| settled),
            units: self.settled.map(|(_, units)| units),
        }
    }

    pub(crate) fn into_response(self) -> HttpResponse {
        // Texts and numbers only: serializing cannot fail.
        let text = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = typed(self.status, PROBLEM, text.into());
        if let Some(methods) = self.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(AccessDenial::Limit(Wait::After(wait))) = self.denial.as_deref() {
            response.headers_mut().insert(RETRY_AFTER, seconds_up(*wait).into());
        }
        response
    }
}

impl From<AccessDenial> for RequestProblem {
    fn from(denial: AccessDenial) -> Self {
        Self::of_access(denial)
    }
}

impl From<CheckError> for RequestProblem {
    fn from(error: CheckError) -> Self {
        Self::of_check(&error)
    }
}

impl From<SettleError> for RequestProblem {
    fn from(error: SettleError) -> Self {
        Self::of_settling(error)
    }
}

/// Whole seconds, rounded up.
fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// A name escaped for a JSON pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Bounds how much of a client's input is echoed.
fn shortened(mut text: String) -> String {
    if text.len() > MOST_BYTES {
        let end = (0..=MOST_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

const MOST_BYTES: usize = 400;
