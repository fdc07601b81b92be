//! An engine on a clock that is set by hand.

use std::io;
use std::time::Duration;

use tidegate::policy::{EngineSettings, Policy};
use tidegate::{
    CheckError, NotGranted, Request, StoreEngine, Timestamp, Wait, clock::ManualClock,
    report::Explanation,
};
use tidegate_server::explanation::DecisionSummary;

use crate::io::Io;

/// Notes that the simulator enforces more keys than the policy does.
pub(crate) fn note_enforced(policy: &Policy, io: &mut Io<'_>) -> io::Result<()> {
    if policy.settings().enforce_ppm() == EngineSettings::ENFORCE_ALL_PPM {
        return Ok(());
    }
    let note = "note: `enforce` in [server] is ignored here; every key is enforced";
    writeln!(io.stderr, "{note}\n")
}

/// A fresh engine and its clock. Every key is enforced, so that decisions are reproducible.
#[derive(Debug)]
pub(crate) struct Simulator {
    engine: StoreEngine,
    clock: ManualClock,
}

impl Simulator {
    pub(crate) fn new(policy: Policy, now: Timestamp) -> Self {
        let clock = ManualClock::new(now);
        Self {
            engine: StoreEngine::builder(policy.enforced_for_all())
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
            Err(NotGranted::Denied(report)) => Ok(DecisionSummary::of(&report)),
            Err(NotGranted::Invalid(error)) => Err(error),
            Err(_) => Ok(DecisionSummary {
                is_allowed: false,
                wait: Some(Wait::Unknown),
                ..DecisionSummary::of(&peek)
            }),
        }
    }

    pub(crate) fn explain(&self, request: &Request<'_>) -> Result<Explanation, CheckError> {
        self.engine.explain(request).block()
    }
}
