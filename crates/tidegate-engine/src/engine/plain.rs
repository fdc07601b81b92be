//! The straight line of a decision: one request to be charged, a few plain rules, known keys.
//!
//! Which rules and domains are plain is known when they are compiled. All that is not plain is left
//! to the general path, with nothing changed.

use smallvec::SmallVec;
use tidegate_policy::policy::{Missing, Mode};
use tidegate_table::clock::Clock;
use tidegate_table::hash::KeyedHash;

use super::report::{EvaluatedRule, Report, ReportBody};
use super::ruleset::{Domain, Ruleset};
use super::{Engine, When};
use crate::any_limit::{INLINE, NO_PERIOD};
use crate::cycle::Times;
use crate::plan::{Charge, FastCharges};
use crate::request::Request;
use crate::store::Store;

/// A request to be charged, with the rules that it may match.
struct PlainRequest<'a> {
    rules: &'a Ruleset,
    domain: &'a Domain,
    request: &'a Request<'a>,
    times: Times,
}

/// The charges of a plain request.
type Charges<'a> = SmallVec<[Charge<'a>; INLINE]>;

impl<S: Store, C: Clock + Send + Sync + 'static> Engine<S, C> {
    /// Makes the decision for the report, if the request and its rules are plain; false if it needs
    /// the general path.
    #[inline(never)]
    pub(super) fn decide_plain(
        &self,
        report: &mut Report,
        find: &impl Fn(&Ruleset) -> Option<usize>,
        request: &Request<'_>,
        when: When,
    ) -> bool {
        let store = &self.shared.store;
        if !store.decides_fast() {
            return false;
        }
        let ReportBody { rules, evaluated, decisions, is_allowed, .. } = &mut *report.body;
        let Some(rules) = rules.as_deref() else { return false };
        let Some(domain) = find(rules).map(|number| &rules.domains[number]) else { return false };
        let times = self.times_when(rules, when);
        let mut charges = Charges::new();
        let plain = PlainRequest { rules, domain, request, times };
        if plain.plan(store.hash(), &mut charges).is_none() {
            return false;
        }
        let list = FastCharges { version: rules.version, list: &charges };
        let Some(allowed) = store.decide_fast(list, times, decisions) else { return false };
        evaluated.clear();
        for charge in &charges {
            evaluated.push(EvaluatedRule { rule: charge.rule, mode: charge.mode });
        }
        *is_allowed = allowed;
        drop(charges);
        if !allowed {
            self.correct_wait(report, (find, std::slice::from_ref(request)), (when, times));
        }
        true
    }
}

impl<'a> PlainRequest<'a> {
    /// Adds the charges of all rules; `None` if one of them is not plain.
    #[inline(always)]
    fn plan(&self, hash: &KeyedHash, charges: &mut Charges<'a>) -> Option<()> {
        let Request { cost, idempotency_key, request_limit, .. } = self.request;
        if !self.domain.is_plain
            || *cost == 0
            || idempotency_key.is_some()
            || request_limit.is_some()
        {
            return None;
        }
        if self.domain.is_unconditional {
            for &number in &self.domain.rules {
                self.add(number, hash, charges)?;
            }
        } else {
            for index in self.domain.matcher.find(&self.request.attributes).iter() {
                self.add(self.domain.rules[index], hash, charges)?;
            }
        }
        // Whether a request without a rule is allowed is not decided here.
        (!charges.is_empty()).then_some(())
    }

    /// Adds the charge of a rule.
    #[inline(always)]
    fn add(&self, number: u32, hash: &KeyedHash, charges: &mut Charges<'a>) -> Option<()> {
        let compiled = self.rules.rule(number);
        if !compiled.is_plain || charges.len() == INLINE {
            return None;
        }
        let (hash, missing) = compiled.hash_key(&self.request.attributes, hash);
        if missing.is_some() {
            match compiled.rule.missing() {
                Missing::Skip => return Some(()),
                Missing::Refuse => return None,
                Missing::Share => {}
            }
        }
        let is_enforced = compiled.rule.mode() == Mode::Enforce && self.rules.is_enforced(hash);
        charges.push(Charge {
            rule: number,
            tag: compiled.tag,
            mode: if is_enforced { Mode::Enforce } else { Mode::Shadow },
            charge_refused: false,
            durability: compiled.durability,
            family: compiled.family,
            hash,
            cost: self.request.cost,
            is_by_request: true,
            limit: &compiled.common,
            period: compiled.cycle.as_ref().map_or(NO_PERIOD, |it| it.period(self.times)),
        });
        Some(())
    }
}
