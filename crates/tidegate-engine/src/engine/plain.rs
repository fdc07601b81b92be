//! The straight line of a decision: one request to be charged, a few plain rules.
//!
//! Which rules and domains are plain is known when they are compiled. All that is not plain is left
//! to the general path, with nothing changed.

use tidegate_core::Timestamp;
use tidegate_policy::Attributes;
use tidegate_policy::policy::{Missing, Mode};
use tidegate_table::hash::KeyedHash;

use super::decide::Verb;
use super::planning::{Planned, PlannedKeys};
use super::report::{EvaluatedRule, PlainParts, Report};
use super::ruleset::{CompiledDomain, CompiledRule, Ruleset};
use super::{StoreEngine, When};
use crate::any_limit::NO_PERIOD;
use crate::decision::Operation;
use crate::periods::Times;
use crate::plan::{Charge, ChargeList};
use crate::request::Request;
use crate::store::MemoryStore;

/// A request to be charged, with the rules that it may match.
pub(super) struct PlainRequest<'a, 'r> {
    engine: &'a StoreEngine,
    table: &'a MemoryStore,
    rules: &'r Ruleset,
    domain: &'r CompiledDomain,
    request: &'a Request<'a>,
    /// The time of the decision, once it is known.
    times: Option<Times>,
}

impl StoreEngine {
    /// Makes the decision for the report, if the request and its rules are plain; false if it needs
    /// the general path.
    #[inline(always)]
    pub(super) fn decide_plain(
        &self,
        report: &mut Report,
        request: &Request<'_>,
        given: Option<Timestamp>,
    ) -> bool {
        let Some(parts) = report.body.plain_parts() else { return false };
        let times = given.map(|now| Times { now, wall: now });
        let Some(mut plain) = PlainRequest::new(self, parts.rules, request, times) else {
            return false;
        };
        let mut list: ChargeList = std::array::from_fn(|_| None);
        if !plain.plan(&mut list) {
            return false;
        }
        let (table, times) = (plain.table, plain.times());
        let when = When::given_or_now(given);
        let is_allowed = match decide_list(table, parts, &list, times) {
            Ok(is_allowed) => is_allowed,
            Err(parts) => {
                match self.decide_list_with_locks(table, parts, &list, request, when, times) {
                    Some(is_allowed) => is_allowed,
                    None => return false,
                }
            }
        };
        if !is_allowed {
            let requests = std::slice::from_ref(request);
            self.correct_wait(report, requests, Verb::Check, when, times);
        }
        true
    }

    /// Decides planned charges that the fast path left, and returns whether they are allowed; `None` if they
    /// have to be planned again, also where there are none.
    #[cold]
    #[inline(never)]
    fn decide_list_with_locks(
        &self,
        table: &MemoryStore,
        PlainParts { rules, evaluated, decisions, is_allowed }: PlainParts<'_>,
        list: &ChargeList,
        request: &Request<'_>,
        when: When,
        times: Times,
    ) -> Option<bool> {
        let requests = std::slice::from_ref(request);
        let names = PlannedKeys { rules, requests, hash: self.shared.store.hash(), times };
        let mut planned = Planned::new(rules, Operation::Charge);
        for charge in list.iter().flatten() {
            planned.push(rules.rule(charge.rule), *charge, request);
        }
        let plan = &mut planned.plan;
        if plan.charges.is_empty() {
            return None;
        }
        plan.note = request.note;
        plan.names = Some(&names);
        plan.time = self.plan_time(rules, requests, when, times);
        evaluated.clear();
        evaluated.extend(plan.charges.iter().map(EvaluatedRule::from));
        // Without a hold or an idempotency key there is nothing else to know of the decision.
        let decided = table.decide_with_locks(plan, times, decisions).ok()?;
        *is_allowed = decided.is_allowed;
        Some(decided.is_allowed)
    }
}

/// Decides the charges of a plain request on the fast path, and returns whether it is allowed; else what
/// the report has for the locked path.
#[inline(always)]
pub(super) fn decide_list<'p>(
    table: &MemoryStore,
    parts: PlainParts<'p>,
    list: &ChargeList,
    times: Times,
) -> Result<bool, PlainParts<'p>> {
    let decided = table.decide_fast(parts.rules.version, times.now, list, parts.decisions);
    let Some(is_allowed) = decided else { return Err(parts) };
    *parts.is_allowed = is_allowed;
    parts.evaluated.clear();
    for charge in list.iter().map_while(Option::as_ref) {
        parts.evaluated.push(EvaluatedRule::from(charge));
    }
    Ok(is_allowed)
}

/// Whether a request charges its rules, and nothing else.
#[inline(always)]
fn is_plain(request: &Request<'_>) -> bool {
    request.cost > 0 && request.idempotency_key.is_none() && request.request_limit.is_none()
}

impl<'a, 'r> PlainRequest<'a, 'r> {
    /// A request and its domain; `None` if one of them is not plain.
    #[inline(always)]
    pub(super) fn new(
        engine: &'a StoreEngine,
        rules: &'r Ruleset,
        request: &'a Request<'a>,
        times: Option<Times>,
    ) -> Option<Self> {
        let table = engine.shared.store.fast_table()?;
        if !is_plain(request) {
            return None;
        }
        let domain = &rules.domains[engine.domain_number(rules, request)?];
        domain.is_plain.then_some(Self { engine, table, rules, domain, request, times })
    }

    /// Plans the charges of all rules that apply; false if one of the rules is not plain, or there
    /// are too many. There may be none: then the general path decides.
    #[inline(always)]
    pub(super) fn plan(&mut self, list: &mut ChargeList) -> bool {
        let CompiledDomain { is_unconditional, rules, .. } = self.domain;
        if let ([number], true) = (rules.as_slice(), is_unconditional) {
            return self.charge(*number, &mut list[0]).is_some();
        }
        self.plan_each(list)
    }

    #[inline(never)]
    fn plan_each(&mut self, list: &mut ChargeList) -> bool {
        let CompiledDomain { is_unconditional, rules, matcher, .. } = self.domain;
        let (attributes, mut used) = (&self.request.attributes, 0);
        let mut add = |number: u32| {
            let Some(place) = list.get_mut(used) else {
                // One more than there are places may still turn out not to apply.
                let mut beyond = None;
                self.charge_one_of(number, &mut beyond)?;
                return beyond.is_none().then_some(());
            };
            self.charge_one_of(number, place)?;
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

    /// As [`charge`](Self::charge), but a function of its own: in a loop its values would be on the stack.
    #[inline(never)]
    fn charge_one_of(&mut self, number: u32, charge: &mut Option<Charge>) -> Option<()> {
        self.charge(number, charge)
    }

    /// The charge of a rule, if it applies, and `None` if the rule is not plain. Its line is
    /// prefetched.
    #[inline(always)]
    fn charge(&mut self, number: u32, charge: &mut Option<Charge>) -> Option<()> {
        let table = self.table;
        let compiled = self.rules.rules.get(number as usize).filter(|it| it.is_plain)?;
        let CompiledRule { charge: Charge { family, .. }, plain_key, .. } = compiled;
        let attributes = &self.request.attributes;
        let hash = match plain_key.hash(*family, attributes, table.hash()) {
            Some(hash) => hash,
            None => match compiled.hash_parts(attributes, table.hash())? {
                Some(hash) => hash,
                None => return Some(()),
            },
        };
        let is_enforced = self.rules.is_enforced(hash);
        let period = match &compiled.periods {
            None => NO_PERIOD,
            Some(periods) => periods.period(self.times()),
        };
        let mode = if is_enforced { compiled.charge.mode } else { Mode::Shadow };
        let cost = self.request.cost;
        let charge = charge.insert(Charge { mode, hash, cost, period, ..compiled.charge });
        table.fetch_line(charge);
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
