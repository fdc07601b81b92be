//! The response bodies that HTTP, RESP and the local socket share: one for each kind of response.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tidegate::policy::{Mode, RuleId};
use tidegate::{Decision, Report};
use tidegate_proto::times::{RetryFields, reset_after_ms};

pub(crate) use holds::{CommitBody, LeaseBody, ReservationBody};

pub mod explanation;
mod holds;
pub(crate) mod usage;
mod write;

/// The response body of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DecisionBody<'a> {
    pub(crate) allowed: bool,
    /// The decisive rule; `None` if no rule matches.
    pub(crate) rule: Option<&'a str>,
    pub(crate) remaining: Option<u64>,
    pub(crate) limit: Option<u64>,
    /// 0 when allowed; `None` if the time is unknown or no wait helps.
    pub(crate) retry_after_ms: Option<u64>,
    /// `never` or `unknown`, where `retry_after_ms` is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<&'static str>,
    pub(crate) reset_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// What decided in place of the store, where it was unavailable: `on_error` or `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outage: Option<&'static str>,
    /// For correlation: a recent denial can be found by it, while it is in the sample.
    pub(crate) decision_id: DecisionId,
    pub(crate) rules: Vec<RuleBody<'a>>,
}

/// The part of one rule in a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RuleBody<'a> {
    pub(crate) rule: &'a str,
    pub(crate) mode: &'static str,
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    pub(crate) limit: u64,
    pub(crate) retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<&'static str>,
    pub(crate) reset_after_ms: Option<u64>,
}

impl<'a> DecisionBody<'a> {
    /// The body for a report.
    pub(crate) fn new(report: &'a Report, decision_id: DecisionId) -> Self {
        let RetryFields { retry_after_ms, retry } = RetryFields::new(report.retry_after());
        Self {
            allowed: report.is_allowed(),
            rule: report.rule().map(RuleId::name),
            remaining: report.remaining(),
            limit: report.limit(),
            retry_after_ms,
            retry,
            reset_after_ms: reset_after_ms(report.reset()),
            reason: report.reason(),
            outage: outage(report),
            decision_id,
            rules: report
                .rules()
                .map(|it| RuleBody::new(it.rule.name(), it.mode, it.decision))
                .collect(),
        }
    }
}

impl<'a> RuleBody<'a> {
    fn new(rule: &'a str, mode: Mode, decision: &Decision) -> Self {
        let RetryFields { retry_after_ms, retry } = RetryFields::new(decision.retry_after());
        Self {
            rule,
            mode: mode.name(),
            allowed: decision.is_allowed(),
            remaining: decision.remaining(),
            limit: decision.limit(),
            retry_after_ms,
            retry,
            reset_after_ms: reset_after_ms(decision.reset()),
        }
    }
}

/// What decided in place of the store, where it was unavailable.
pub(crate) fn outage(report: &Report) -> Option<&'static str> {
    report.is_outage().then(|| if report.details().is_local() { "local" } else { "on_error" })
}

/// The id of a decision, to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionId(u64);

impl DecisionId {
    /// The next id: unique in this process, and very likely among all.
    pub(crate) fn next() -> Self {
        static FIRST: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = FIRST.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        // A bijection, so that ids stay unique but neighbours do not look alike.
        Self(number.wrapping_mul(ODD).rotate_left(32).wrapping_mul(ODD))
    }

    /// The id of sixteen hexadecimal digits.
    pub(crate) fn of_digits(digits: &str) -> Option<Self> {
        let is_plain = digits.len() == 16 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| is_plain).map(Self)
    }

    /// Sixteen hexadecimal digits.
    pub(crate) fn digits(self) -> [u8; 16] {
        let mut digits = [0; 16];
        for (index, digit) in digits.iter_mut().enumerate() {
            let nibble = (self.0 >> (60 - 4 * index)) & 0xf;
            *digit = b"0123456789abcdef"[usize::try_from(nibble).unwrap_or(0)];
        }
        digits
    }
}

impl Serialize for DecisionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// Half of the golden ratio's bits: multiplying by it spreads small numbers over all of them.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests;
