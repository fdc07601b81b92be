//! An engine on a clock that is set by hand.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate::policy::{Policy, ServerConfig};
use tidegate::{
    CheckError, Engine, Explanation, ManualClock, MemoryStore, Report, Request, Timestamp, Wait,
    WaitError,
};

use crate::format;
use crate::io::Io;

/// Notes that the simulator enforces more keys than the policy does.
pub(crate) fn note_enforced(policy: &Policy, io: &mut Io<'_>) -> io::Result<()> {
    if policy.server().enforce_ppm() == ServerConfig::ENFORCE_ALL_PPM {
        return Ok(());
    }
    let note = "note: `enforce` in [server] is ignored here; every key is enforced";
    writeln!(io.stderr, "{note}\n")
}

/// A fresh engine and its clock. Every key is enforced, so that decisions are reproducible.
#[derive(Debug)]
pub(crate) struct Simulator {
    engine: Engine<MemoryStore, ManualClock>,
    clock: ManualClock,
}

/// A decision in the fields that are printed.
#[derive(Clone, Debug)]
pub(crate) struct DecisionSummary {
    pub(crate) is_allowed: bool,
    pub(crate) rule: Option<String>,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) wait: Option<Wait>,
    pub(crate) reset: Option<Duration>,
    pub(crate) reason: Option<String>,
}

impl Simulator {
    pub(crate) fn new(policy: Policy, now: Timestamp) -> Self {
        let clock = ManualClock::new(now);
        Self {
            engine: Engine::builder(policy.enforced_for_all())
                .clock(clock.clone())
                .build()
                .expect("an empty store takes a few kilobytes"),
            clock,
        }
    }

    pub(crate) fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
        self.engine.tick();
    }

    pub(crate) fn close_round(&self, domain: &str) {
        // The in-memory store does not fail.
        let _ = self.engine.close_round(domain, None).block();
    }

    /// Decides and charges a request. In a domain with slots it acquires one and keeps it.
    pub(crate) fn decide(&self, request: &Request<'_>) -> Result<DecisionSummary, CheckError> {
        match self.engine.check(request).block() {
            Ok(report) => Ok(DecisionSummary::of(&report)),
            Err(CheckError::NeedsAcquire { .. }) => self.acquire(request),
            Err(error) => Err(error),
        }
    }

    fn acquire(&self, request: &Request<'_>) -> Result<DecisionSummary, CheckError> {
        // There are no other callers, so a slot that is free now stays free, and no queue forms.
        let peek = self.engine.peek(request).block()?;
        if !peek.is_allowed() {
            return Ok(DecisionSummary::of(&peek));
        }
        match self.engine.acquire(request, Some(Duration::ZERO)).block() {
            Ok(lease) => {
                let decision = DecisionSummary::of(lease.report());
                lease.into_id();
                Ok(decision)
            }
            Err(WaitError::Denied(report)) => Ok(DecisionSummary::of(&report)),
            Err(WaitError::Invalid(error)) => Err(error),
            Err(_) => Ok(DecisionSummary {
                is_allowed: false,
                wait: Some(Wait::Unknown),
                ..DecisionSummary::of(&peek)
            }),
        }
    }

    pub(crate) fn explain(&self, request: &Request<'_>) -> Result<Explanation, CheckError> {
        self.engine.explain(request)
    }
}

impl DecisionSummary {
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            is_allowed: report.is_allowed(),
            rule: report.rule().map(|rule| rule.name().to_owned()),
            limit: report.limit(),
            remaining: report.remaining(),
            wait: report.retry_after(),
            reset: report.reset(),
            reason: report.reason(),
        }
    }

    /// The decision in the daemon's JSON format.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let (retry_after_ms, retry) = format::wait_json(self.wait);
        let Value::Object(json) = json!({
            "allowed": self.is_allowed,
            "rule": self.rule,
            "remaining": self.remaining,
            "limit": self.limit,
            "retry_after_ms": retry_after_ms,
            "retry": retry,
            "reset_after_ms": format::reset_json(self.reset),
            "reason": self.reason,
        }) else {
            unreachable!("braces make an object")
        };
        json
    }
}
