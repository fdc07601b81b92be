//! What the daemon remembers of its traffic: a sample of requests by key, recent denials, and counts
//! over time. All of it is bounded, whatever the traffic is.

use tidegate::{Report, Request, StoreEngine};

use crate::body::DecisionId;
use crate::listener::Listener;
pub(crate) use denials::{DenialFilter, Denials};
pub(crate) use feed::{Feed, Follower};
pub(crate) use history::{History, Point, RULE_STEPS, RuleCounts, STEP_MS};
pub(crate) use sample::{KeySample, RuleSample, Sample, SampledRequest};

mod denials;
mod feed;
mod history;
mod sample;

/// What the daemon remembers of its traffic.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// Requests of some keys of each rule, for previews of edits.
    pub(crate) sample: Sample,
    /// Recent denials, by the ids of their decisions.
    pub(crate) denials: Denials,
    /// Counts over time.
    pub(crate) history: History,
    /// What open pages of the dashboard get.
    pub(crate) feed: Feed,
}

impl Traffic {
    /// Values of attributes are kept as hashes if keys are to be hidden.
    pub(crate) fn new(hides_keys: bool) -> Self {
        Self {
            sample: Sample::default(),
            denials: Denials::new(hides_keys),
            history: History::default(),
            feed: Feed::default(),
        }
    }

    /// Takes note of a decision, as far as it is in the samples. `requests` are those that the report
    /// decides.
    pub(crate) fn observe(
        &self,
        engine: &StoreEngine,
        id: DecisionId,
        listener: Listener,
        requests: &[Request<'_>],
        report: &Report,
    ) {
        self.sample.observe(engine, requests, report);
        if !report.is_allowed() {
            self.denials.observe(engine, id, listener, requests, report);
        }
    }
}
