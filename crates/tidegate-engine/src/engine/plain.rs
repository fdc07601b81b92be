//! The straight line of a decision: one request to be charged, a few plain rules, known keys.
//!
//! Which rules and domains are plain is known when they are compiled. All that is not plain is left
//! to the general path, with nothing changed.

use tidegate_core::Timestamp;
use tidegate_policy::Attributes;
use tidegate_policy::policy::{Missing, Mode};
use tidegate_table::hash::KeyedHash;

use super::decide::Verb;
use super::domain::FindDomain;
use super::report::{EvaluatedRule, PlainParts, Report};
use super::ruleset::{CompiledRule, Domain, Ruleset};
use super::{Engine, When};
use crate::any_limit::NO_PERIOD;
use crate::cycle::Times;
use crate::plan::{FastCharge, FastCharges, FastList};
use crate::request::Request;

/// A request to be charged, with the rules that it may match.
pub(super) struct PlainRequest<'a, 'r> {
    engine: &'a Engine,
    rules: &'r Ruleset,
    domain: &'r Domain,
    request: &'a Request<'a>,
    /// The time of the decision, once it is known.
    times: Option<Times>,
}

impl Engine {
    /// Makes the decision for the report, if the request and its rules are plain; false if it needs
    /// the general path.
    #[inline(always)]
    pub(super) fn decide_plain(
        &self,
        report: &mut Report,
        find: &impl FindDomain,
        request: &Request<'_>,
        given: Option<Timestamp>,
    ) -> bool {
        let Some(parts) = report.body.plain_parts() else { return false };
        let rules = parts.rules;
        let times = given.map(|now| Times { now, wall: now });
        let Some(mut plain) = PlainRequest::new(self, rules, (find, request), times) else {
            return false;
        };
        let mut list: FastList<'_> = std::array::from_fn(|_| None);
        if !plain.plan(&mut list) {
            return false;
        }
        let times = plain.times();
        let Some(is_allowed) = self.charge_plain(parts, &list, times) else { return false };
        if !is_allowed {
            let of = (find as &dyn FindDomain, std::slice::from_ref(request));
            self.correct_wait(report, of, (Verb::Check, When::given_or_now(given), times));
        }
        true
    }

    /// Decides the charges of a plain request, and returns whether it is allowed; `None` if it needs
    /// the general path, also where there are none.
    #[inline(always)]
    pub(super) fn charge_plain(
        &self,
        PlainParts { rules, evaluated, decisions, is_allowed }: PlainParts<'_>,
        list: &FastList<'_>,
        times: Times,
    ) -> Option<bool> {
        let charges = FastCharges { version: rules.version, now: times.now, list };
        let Some(allowed) = self.shared.store.decide_fast(charges, decisions) else {
            decisions.clear();
            return None;
        };
        *is_allowed = allowed;
        evaluated.clear();
        for charge in list.iter().map_while(Option::as_ref) {
            evaluated.push(EvaluatedRule::from(charge));
        }
        Some(allowed)
    }
}

/// Whether a request charges its rules, and nothing else.
#[inline(always)]
fn is_plain(request: &Request<'_>) -> bool {
    request.cost > 0 && request.idempotency_key.is_none() && request.request_limit.is_none()
}

impl<'a, 'r> PlainRequest<'a, 'r> {
    /// A request in the domain that `find` finds; `None` if one of them is not plain.
    #[inline(always)]
    pub(super) fn new(
        engine: &'a Engine,
        rules: &'r Ruleset,
        (find, request): (&impl FindDomain, &'a Request<'a>),
        times: Option<Times>,
    ) -> Option<Self> {
        if !engine.shared.store.decides_fast() || !is_plain(request) {
            return None;
        }
        let domain = &rules.domains[find.number(rules)?];
        domain.is_plain.then_some(Self { engine, rules, domain, request, times })
    }

    /// Plans the charges of all rules that apply; false if one of the rules is not plain, or there
    /// are too many. There may be none: then the general path decides.
    #[inline(always)]
    pub(super) fn plan(&mut self, list: &mut FastList<'r>) -> bool {
        let Domain { is_unconditional, rules, .. } = self.domain;
        if let ([number], true) = (rules.as_slice(), is_unconditional) {
            return self.charge(*number, &mut list[0]).is_some();
        }
        self.plan_several(list)
    }

    #[inline(never)]
    fn plan_several(&mut self, list: &mut FastList<'r>) -> bool {
        let Domain { is_unconditional, rules, matcher, .. } = self.domain;
        let (attributes, mut used) = (&self.request.attributes, 0);
        let mut add = |number: u32| {
            let Some(place) = list.get_mut(used) else {
                // One more than there are places may still turn out not to apply.
                let mut beyond = None;
                self.charge(number, &mut beyond)?;
                return beyond.is_none().then_some(());
            };
            self.charge(number, place)?;
            used += usize::from(place.is_some());
            Some(())
        };
        if *is_unconditional {
            rules.iter().all(|&number| add(number).is_some())
        } else {
            let found = matcher.find(attributes);
            found.iter().all(|index| add(rules[index]).is_some())
        }
    }

    /// The charge of a rule, if it applies, and `None` if the rule is not plain. Its line is
    /// prefetched.
    #[inline(never)]
    fn charge(&mut self, number: u32, charge: &mut Option<FastCharge<'r>>) -> Option<()> {
        let store = &self.engine.shared.store;
        let compiled = self.rules.rules.get(number as usize).filter(|it| it.is_plain)?;
        let CompiledRule { family, plain_key, .. } = compiled;
        let attributes = &self.request.attributes;
        let hash = match plain_key.hash(*family, attributes, store.hash()) {
            Some(hash) => hash,
            None => match compiled.hash_parts(attributes, store.hash())? {
                Some(hash) => hash,
                None => return Some(()),
            },
        };
        let is_enforced = compiled.rule.mode() == Mode::Enforce && self.rules.is_enforced(hash);
        let period = match &compiled.cycle {
            None => NO_PERIOD,
            Some(cycle) => cycle.period(self.times()),
        };
        let charge = charge.insert(FastCharge {
            limit: &compiled.common,
            hash,
            cost: self.request.cost,
            rule: number,
            tag: compiled.tag,
            mode: if is_enforced { Mode::Enforce } else { Mode::Shadow },
            period,
        });
        store.fetch(charge);
        Some(())
    }

    /// The time of the decision. It is read late, when lines are on their way: some processors read
    /// their counter only after earlier loads.
    #[inline(always)]
    fn times(&mut self) -> Times {
        match self.times {
            Some(times) => times,
            None => *self.times.insert(self.engine.times(self.rules, None)),
        }
    }
}

impl CompiledRule {
    /// The hash of a request's key, if the rule applies to it; `None` if the request is denied.
    #[inline(never)]
    fn hash_parts(&self, attributes: &Attributes<'_>, hash: &KeyedHash) -> Option<Option<u64>> {
        let (hash, missing) = self.hash_key(attributes, hash);
        match self.rule.missing() {
            Missing::Skip if missing.is_some() => Some(None),
            Missing::Refuse if missing.is_some() => None,
            Missing::Skip | Missing::Refuse | Missing::Share => Some(Some(hash)),
        }
    }
}

#[cfg(test)]
mod tests;
