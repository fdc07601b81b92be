//! The keys that a decision counted for, for samples of traffic.

use tidegate_core::Decision;
use tidegate_policy::policy::{Charging, Mode, RuleId};

use super::StoreEngine;
use super::report::Report;
use super::ruleset::CompiledRule;
use crate::plan::KeyName;
use crate::request::Request;

/// What one rule decided, with the key that it counted for.
#[derive(Debug)]
pub struct RuleKey<'r> {
    compiled: &'r CompiledRule,
    request: &'r Request<'r>,
    /// Whether its denial is enforced.
    pub mode: Mode,
    /// Its decision.
    pub decision: &'r Decision,
    /// A hash of the rule and the key, with a secret of the store: the same for all requests of the key,
    /// while neither the rule's key nor its algorithm changes.
    pub hash: u64,
    /// What was charged to it, or would have been.
    pub cost: u64,
}

impl RuleKey<'_> {
    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &RuleId {
        self.compiled.rule.id()
    }

    /// Which requests the rule charges.
    #[must_use]
    pub fn charging(&self) -> Charging {
        self.compiled.rule.charging()
    }

    /// The name of the key.
    #[must_use]
    pub fn name(&self) -> KeyName {
        KeyName { rule: self.rule().clone(), parts: self.compiled.key_of(&self.request.attributes) }
    }
}

impl StoreEngine {
    /// Calls a function for every rule that decided, with the key that it counted for.
    ///
    /// `requests` are those that the report decides, in their order. What [outages](Report::is_outage),
    /// bans and missing attributes decided has no keys.
    pub fn each_rule_key(
        &self,
        report: &Report,
        requests: &[Request<'_>],
        mut see: impl FnMut(RuleKey<'_>),
    ) {
        let (body, rules) = (&report.body, report.ruleset());
        let hash = self.shared.store.hash();
        for (index, (evaluated, decision)) in body.evaluated.iter().zip(&body.decisions).enumerate()
        {
            let compiled = rules.rule(evaluated.rule);
            let charge = u32::try_from(index).ok();
            let hit = body.hits.iter().find(|hit| hit.charge == charge).map(|hit| hit.request);
            let number = if body.is_of_several { hit } else { Some(0) };
            let request = number.and_then(|number| requests.get(usize::try_from(number).ok()?));
            let Some(request) = request.filter(|_| !compiled.rule.is_placeholder()) else {
                continue;
            };
            // Requests with the same key are charged together.
            let of_request = |hit: &&super::planning::RuleHit| hit.charge == charge;
            let sum = || {
                let costs = body.hits.iter().filter(of_request).filter_map(|hit| {
                    let request = requests.get(usize::try_from(hit.request).ok()?)?;
                    Some(cost_under(compiled, request))
                });
                costs.fold(0, u64::saturating_add)
            };
            let cost = if body.is_of_several { sum() } else { cost_under(compiled, request) };
            let (hash, _) = compiled.hash_key(&request.attributes, hash);
            see(RuleKey { compiled, request, mode: evaluated.mode, decision, hash, cost });
        }
    }
}

/// What a request costs under a rule that applies to it.
fn cost_under(compiled: &CompiledRule, request: &Request<'_>) -> u64 {
    match compiled.rule.cost() {
        Some(cost) => cost.cost_of(&request.attributes).unwrap_or(request.cost),
        None => request.cost,
    }
}
