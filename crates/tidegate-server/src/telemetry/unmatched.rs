//! Requests that no rule matched, by domain.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use tidegate::policy::Policy;

use super::exposition::Exposition;
use super::{Counter, Metrics};

/// The number of requests that no rule matched, by domain.
///
/// Only domains that a policy has had are distinguished; clients can invent others without end.
#[derive(Debug, Default)]
pub(crate) struct UnmatchedByDomain {
    domains: RwLock<BTreeMap<Box<str>, Counter>>,
    others: Counter,
}

impl UnmatchedByDomain {
    pub(super) fn add(&self, domain: &str) {
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        domains.get(domain).unwrap_or(&self.others).add(1);
    }

    /// The number over all domains.
    pub(crate) fn total(&self) -> u64 {
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        let counts = domains.values().chain([&self.others]).map(Counter::get);
        counts.fold(0, u64::saturating_add)
    }

    /// Adds the domains of a policy.
    fn know(&self, policy: &Policy) {
        let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        for rule in policy.rules() {
            if domains.len() < DOMAINS_MAX && !domains.contains_key(rule.domain()) {
                domains.insert(rule.domain().into(), Counter::default());
            }
        }
    }
}

impl Metrics {
    /// Counts unmatched requests of the policy's domains apart from now on.
    pub(crate) fn know_domains(&self, policy: &Policy) {
        self.unmatched.know(policy);
    }

    pub(super) fn write_unmatched(&self, policy: &Policy, text: &mut Exposition) {
        self.know_domains(policy);
        let name = "tidegate_unmatched_total";
        let help = "Number of requests that no rule matched, by domain; empty: not in the policy.";
        text.family(name, "counter", help);
        let unmatched = &self.unmatched;
        let domains = unmatched.domains.read().unwrap_or_else(PoisonError::into_inner);
        for (domain, count) in &*domains {
            text.sample(name, &[("domain", domain)], count.get());
        }
        text.sample(name, &[("domain", "")], unmatched.others.get());
    }
}

/// Policies are reloaded, and domains of former ones stay.
const DOMAINS_MAX: usize = 10_000;
