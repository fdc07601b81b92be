//! Responses and errors of the admin API.

use serde_json::{Value, json};
use tidegate::edit::EditError;
use tidegate::policy::{Diagnostic, PolicyErrors};
use tidegate_proto::problem::Problem;

use crate::access::AccessDenial;

/// A response of the admin API.
#[derive(Clone, Debug)]
pub(crate) struct AdminResponse {
    /// A status code of HTTP. From 400 on the body is a problem of RFC 9457.
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Why the client may not do it, for the listener to count.
    pub(crate) denial: Option<AccessDenial>,
}

/// The error of a request.
#[derive(Clone, Debug)]
pub(crate) struct AdminError {
    status: u16,
    title: &'static str,
    detail: String,
    /// All errors in a policy text, with their positions.
    errors: Vec<Value>,
    /// Why the client may not do it.
    denial: Option<AccessDenial>,
    /// The methods of the path, after a wrong one.
    allowed: Vec<String>,
}

impl AdminError {
    pub(crate) fn new(status: u16, title: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, title, detail, errors: Vec::new(), denial: None, allowed: Vec::new() }
    }

    pub(crate) fn not_found() -> Self {
        let detail = "no such path; start with `GET /admin/v1/status`";
        Self::new(404, "Not Found", detail)
    }

    pub(crate) fn method(allowed: &[&str]) -> Self {
        let detail = format!("the path allows only {}", allowed.join(", "));
        let allowed = allowed.iter().map(|&it| it.to_owned()).collect();
        Self { allowed, ..Self::new(405, "Method Not Allowed", detail) }
    }

    /// A body that cannot be decoded.
    pub(crate) fn unreadable(detail: impl Into<String>) -> Self {
        Self::new(400, "Bad Request", detail)
    }

    /// A body that is well-formed but invalid.
    pub(crate) fn unfit(detail: impl Into<String>) -> Self {
        Self::new(422, "Unprocessable Content", detail)
    }

    pub(crate) fn outage() -> Self {
        let detail = "the store cannot write: its disk is full or broken. The change may be in force \
                      all the same; check before a retry";
        Self::new(503, "Service Unavailable", detail)
    }
}

impl From<AccessDenial> for AdminError {
    fn from(denial: AccessDenial) -> Self {
        let (status, title) = match &denial {
            denial if denial.is_unauthenticated() => (401, "Unauthorized"),
            AccessDenial::Ambiguous(_) => (400, "Bad Request"),
            AccessDenial::Limit(_) => (429, "Too Many Requests"),
            _ => (403, "Forbidden"),
        };
        Self { denial: Some(denial.clone()), ..Self::new(status, title, denial.to_string()) }
    }
}

impl From<PolicyErrors> for AdminError {
    fn from(errors: PolicyErrors) -> Self {
        let listed = errors.diagnostics().iter().map(diagnostic).collect();
        Self { errors: listed, ..Self::unfit(errors.to_string()) }
    }
}

impl From<EditError> for AdminError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Invalid(errors) => errors.into(),
            EditError::Outage(_) => Self::outage(),
            // The rule was removed after it was found.
            EditError::NoSuchRule(_) => Self::new(404, "Not Found", error.to_string()),
            _ => Self::new(503, "Service Unavailable", error.to_string()),
        }
    }
}

impl From<AdminError> for AdminResponse {
    fn from(error: AdminError) -> Self {
        let AdminError { status, title, detail, errors, denial, allowed } = error;
        let problem = Problem::plain(status, title, &detail);
        let mut body = serde_json::to_value(problem).unwrap_or_default();
        if !errors.is_empty() {
            body["errors"] = errors.into();
        }
        if !allowed.is_empty() {
            body["allow"] = allowed.into();
        }
        Self { status, body, denial }
    }
}

/// An error of a policy text as JSON.
pub(crate) fn diagnostic(it: &Diagnostic) -> Value {
    json!({
        "severity": it.severity.to_string(), "file": &*it.file, "line": it.line,
        "column": it.column, "message": it.message, "hint": it.hint,
    })
}
