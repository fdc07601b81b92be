//! The straight line of a decision: one request to be charged, a few plain rules, known keys.
//!
//! Which rules and domains are plain is known when they are compiled. All that is not plain is left
//! to the general path, with nothing changed.

use smallvec::SmallVec;
use tidegate_policy::policy::{Missing, Mode};
use tidegate_table::clock::Clock;
use tidegate_table::hash::KeyedHash;

use super::domain::FindDomain;
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
        find: &impl FindDomain,
        request: &Request<'_>,
        when: When,
    ) -> bool {
        let store = &self.shared.store;
        if !store.decides_fast() || !is_plain(request) {
            return false;
        }
        let ReportBody { rules, evaluated, decisions, is_allowed, .. } = &mut *report.body;
        let Some(rules) = rules.as_deref() else { return false };
        let Some(domain) = find.number(rules).map(|number| &rules.domains[number]) else {
            return false;
        };
        let times = self.times_when(rules, when);
        let plain = PlainRequest { rules, domain, request, times };
        let decided = plain.with_charges(store.hash(), |list| {
            let charges = FastCharges { version: rules.version, list };
            let allowed = store.decide_fast(charges, times, decisions)?;
            evaluated.clear();
            for charge in list {
                evaluated.push(EvaluatedRule { rule: charge.rule, mode: charge.mode });
            }
            Some(allowed)
        });
        let Some(allowed) = decided else { return false };
        *is_allowed = allowed;
        if !allowed {
            self.correct_wait(report, (find, std::slice::from_ref(request)), (when, times));
        }
        true
    }
}

/// Whether a request charges its rules, and nothing else.
#[inline(always)]
fn is_plain(request: &Request<'_>) -> bool {
    request.cost > 0 && request.idempotency_key.is_none() && request.request_limit.is_none()
}

impl<'a> PlainRequest<'a> {
    /// What a function makes of the charges of all rules; `None` if one of the rules is not plain,
    /// or none applies: whether such a request is allowed is not decided here.
    #[inline(always)]
    fn with_charges(
        &self,
        hash: &KeyedHash,
        mut decide: impl FnMut(&[Charge<'a>]) -> Option<bool>,
    ) -> Option<bool> {
        let Domain { is_plain, is_unconditional, rules, matcher, .. } = self.domain;
        if !is_plain {
            return None;
        }
        if let ([number], true) = (rules.as_slice(), is_unconditional) {
            // The charge of a single rule need not be in memory.
            return decide(&[self.charge(*number, hash)??]);
        }
        let mut charges = Charges::new();
        if *is_unconditional {
            for &number in rules {
                self.add(number, hash, &mut charges)?;
            }
        } else {
            for index in matcher.find(&self.request.attributes).iter() {
                self.add(rules[index], hash, &mut charges)?;
            }
        }
        if charges.is_empty() { None } else { decide(&charges) }
    }

    /// Adds the charge of a rule, if it has one.
    #[inline(always)]
    fn add(&self, number: u32, hash: &KeyedHash, charges: &mut Charges<'a>) -> Option<()> {
        if let Some(charge) = self.charge(number, hash)? {
            if charges.len() == INLINE {
                return None;
            }
            charges.push(charge);
        }
        Some(())
    }

    /// The charge of a rule, if it has one; `None` if the rule is not plain.
    #[inline(always)]
    fn charge(&self, number: u32, hash: &KeyedHash) -> Option<Option<Charge<'a>>> {
        let compiled = self.rules.rule(number);
        if !compiled.is_plain {
            return None;
        }
        let (hash, missing) = compiled.hash_key(&self.request.attributes, hash);
        if missing.is_some() {
            match compiled.rule.missing() {
                Missing::Skip => return Some(None),
                Missing::Refuse => return None,
                Missing::Share => {}
            }
        }
        let is_enforced = compiled.rule.mode() == Mode::Enforce && self.rules.is_enforced(hash);
        Some(Some(Charge {
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
        }))
    }
}
