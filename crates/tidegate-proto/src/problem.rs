//! The response body of a denial: `application/problem+json`.

use serde::Serialize;
use tidegate_core::Wait;

use crate::times::RetryFields;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// A failed request, described for people and for programs.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::Wait;
/// use tidegate_proto::problem::Problem;
///
/// let wait = Wait::After(Duration::from_micros(1_500));
/// let problem = Problem::quota_exceeded("slow down", ["search"].into_iter(), Some(wait));
/// assert!(problem.to_json().contains(r#""violated-policies":["search"],"retry_after_ms":2"#));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem<'a> {
    /// A URI that identifies the kind of problem.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The kind, as text.
    pub title: &'a str,
    /// The HTTP status of the response.
    pub status: u16,
    /// The description of this occurrence.
    pub detail: &'a str,
    /// The limits that denied the request.
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    pub violated_policies: Vec<&'a str>,
    /// The wait, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// `never` or `unknown`, where there is no wait in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<&'static str>,
}

impl<'a> Problem<'a> {
    /// A request that limits denied.
    #[must_use]
    pub fn quota_exceeded(
        detail: &'a str,
        violated: impl Iterator<Item = &'a str>,
        wait: Option<Wait>,
    ) -> Self {
        let fields = wait.map(RetryFields::denied);
        Self {
            kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
            title: "Request cannot be satisfied as assigned quota has been exceeded",
            status: 429,
            detail,
            violated_policies: violated.collect(),
            retry_after_ms: fields.and_then(|it| it.retry_after_ms),
            retry: fields.and_then(|it| it.retry),
        }
    }

    /// A request that cannot be decided at the moment.
    #[must_use]
    pub fn reduced_capacity(detail: &'a str) -> Self {
        Self {
            kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            title: "Request cannot be satisfied due to temporary server capacity constraints",
            status: 503,
            ..Self::plain(503, "", detail)
        }
    }

    /// Any other problem, described by its status and title.
    #[must_use]
    pub fn plain(status: u16, title: &'a str, detail: &'a str) -> Self {
        Self {
            kind: "about:blank",
            title,
            status,
            detail,
            violated_policies: Vec::new(),
            retry_after_ms: None,
            retry: None,
        }
    }

    /// The problem as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Text and numbers only: serialization cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
