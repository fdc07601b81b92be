//! Domains and rules of a policy by name.

use std::collections::{BTreeMap, HashMap};

use tidegate::policy::{Policy, Rule};

use crate::similar;

/// The rules of a policy by domain and name.
#[derive(Debug)]
pub(crate) struct RuleIndex<'p> {
    domains: BTreeMap<&'p str, HashMap<&'p str, &'p Rule>>,
}

impl<'p> RuleIndex<'p> {
    pub(crate) fn new(policy: &'p Policy) -> Self {
        let mut domains: BTreeMap<_, HashMap<_, _>> = BTreeMap::new();
        for rule in policy.rules() {
            let rules = domains.entry(rule.domain()).or_default();
            if !rule.is_placeholder() {
                rules.insert(rule.name(), rule);
            }
        }
        Self { domains }
    }

    pub(crate) fn rule(&self, domain: &str, name: &str) -> Option<&'p Rule> {
        self.domains.get(domain)?.get(name).copied()
    }

    /// A hint for an unknown domain; `None` if a rule has it.
    pub(crate) fn unknown_domain_hint(&self, domain: &str) -> Option<String> {
        let known = self.domains.keys().copied();
        (!self.domains.contains_key(domain)).then(|| similar::hint(domain, known, "domains"))
    }

    /// A hint for an unknown rule; `None` if the domain has it.
    pub(crate) fn unknown_rule_hint(&self, domain: &str, name: &str) -> Option<String> {
        if self.rule(domain, name).is_some() {
            return None;
        }
        let known = self.domains.get(domain);
        let mut names: Vec<&str> = known.into_iter().flat_map(|it| it.keys().copied()).collect();
        names.sort_unstable();
        Some(similar::hint(name, names, "rules"))
    }
}
