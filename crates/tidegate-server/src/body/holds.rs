//! The response bodies about reservations and leases.

use serde::Serialize;
use tidegate::{Report, Timestamp, hold::CommitReport};
use tidegate_proto::times::ms_until;

use super::{DecisionBody, DecisionId};

/// The response body of `reserve`.
#[derive(Debug, Serialize)]
pub(crate) struct ReservationBody<'a> {
    /// Its id; `None` if it was denied, or allowed by `on_error` in an outage.
    pub(crate) reservation: Option<String>,
    /// Rounded down, so that it ends before the expiry.
    pub(crate) expires_in_ms: Option<u64>,
    #[serde(flatten)]
    pub(crate) decision: DecisionBody<'a>,
}

/// The response body of `acquire`.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseBody<'a> {
    /// Its id; `None` if it was denied.
    pub(crate) lease: Option<String>,
    /// Larger than that of every lease before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
    /// Rounded down, so that it ends before the expiry.
    pub(crate) expires_in_ms: Option<u64>,
    #[serde(flatten)]
    pub(crate) decision: DecisionBody<'a>,
}

/// The response body of a settlement: the units charged, 0 if it was cancelled.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CommitBody {
    pub(crate) charged: u64,
    pub(crate) debt: u64,
    pub(crate) forgiven: u64,
}

impl<'a> ReservationBody<'a> {
    /// The body for a report, at the time of the response.
    pub(crate) fn new(report: &'a Report, id: DecisionId, now: Timestamp) -> Self {
        Self {
            reservation: report.hold().map(|id| id.to_string()),
            expires_in_ms: report.details().expires().map(|at| ms_until(at, now)),
            decision: DecisionBody::new(report, id),
        }
    }
}

impl<'a> LeaseBody<'a> {
    /// The body for a request that got no lease.
    pub(crate) fn none(decision: DecisionBody<'a>) -> Self {
        Self { lease: None, fence: None, expires_in_ms: None, decision }
    }
}

impl From<CommitReport> for CommitBody {
    fn from(report: CommitReport) -> Self {
        let CommitReport { charged, debt, forgiven, .. } = report;
        Self { charged, debt, forgiven }
    }
}
