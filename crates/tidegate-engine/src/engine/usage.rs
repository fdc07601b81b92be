//! How much of their limits keys have used.

use std::time::Duration;

use tidegate_core::Decision;
use tidegate_policy::policy::{
    Condition, KeyPart, Missing, Mode, NamedAttributes, Override, RuleId,
};
#[cfg(feature = "durable")]
use tidegate_policy::policy::{Durability, Rule};
use tidegate_table::clock::Clock;

use super::StoreEngine;
use super::error::CheckError;
use super::planning::{Charged, Planned};
use super::ruleset::{CompiledRule, Ruleset};
use super::shared::Planning;
use crate::decision::{Decisions, Operation};
use crate::periods::Times;
use crate::plan::KeyName;
use crate::request::Request;
use crate::store::Answer;

/// What a key has used of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleUsage {
    /// The rule.
    pub rule: RuleId,
    /// The key: attributes and their values, as they count.
    pub key: Vec<(Box<str>, Option<Box<str>>)>,
    /// Whether denials of this key are enforced.
    pub mode: Mode,
    /// Units charged that still count, rounded up; more than the limit where it is overdrawn.
    pub used: u64,
    /// Units of open reservations, and slots of leases.
    pub held: u64,
    /// The capacity in force for the key; `None` where an override lifts the limit. Then nothing is
    /// counted.
    pub limit: Option<u64>,
    /// Units left for the next request.
    pub remaining: Option<u64>,
    /// Units used or held beyond the limit, which later time or periods pay.
    pub debt: u64,
    /// The time until the limit is as good as fresh; `None` if it is unknown.
    pub reset: Option<Duration>,
}

impl RuleUsage {
    /// The share of the limit that is used or held, in millionths, rounded to the nearest: above
    /// 1 000 000 where the limit is overdrawn. `None` without a limit.
    #[must_use]
    pub fn share_ppm(&self) -> Option<u64> {
        let limit = u128::from(self.limit?.max(1));
        let taken = u128::from(self.used) + u128::from(self.held);
        Some(u64::try_from((taken * 1_000_000 + limit / 2) / limit).unwrap_or(u64::MAX))
    }

    fn new(compiled: &CompiledRule, request: &Request<'_>, mode: Mode) -> Self {
        Self {
            rule: compiled.rule.id().clone(),
            key: compiled.key_of(&request.attributes),
            mode,
            used: 0,
            held: 0,
            limit: None,
            remaining: None,
            debt: 0,
            reset: Some(Duration::ZERO),
        }
    }

    fn measure(&mut self, decision: &Decision) {
        (self.used, self.held) = (decision.measured_used(), decision.measured_held());
        self.limit = Some(decision.limit());
        self.remaining = Some(decision.remaining());
        self.debt = self.used.saturating_add(self.held).saturating_sub(decision.limit());
        self.reset = decision.reset();
    }
}

impl StoreEngine {
    /// What the keys of a request have used of their limits. Changes nothing.
    ///
    /// The request needs only the attributes of the keys. Rules that match on other attributes, or
    /// whose key it lacks, are left out; its cost does not matter.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, Request};
    ///
    /// let engine = Engine::new(Policy::from_toml(r#"
    ///     [[rule]]
    ///     name   = "per-user"
    ///     key    = ["user"]
    ///     window = { max = 10, per = "1h" }
    /// "#)?);
    /// let ada = Request::new("default", &[("user", "ada")]);
    /// assert!(engine.check(&ada.cost(3))?.is_allowed());
    /// let usage = engine.usage(&ada)?;
    /// assert_eq!((usage[0].used, usage[0].remaining), (3, Some(7)));
    /// assert_eq!(usage[0].share_ppm(), Some(300_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn usage(&self, request: &Request<'_>) -> Answer<Result<Vec<RuleUsage>, CheckError>> {
        self.usage_in(request, None)
    }

    /// What one key has used of its limit, by its name; `None` if the policy has no such rule, or its
    /// key has other attributes. The conditions of the rule do not matter.
    pub fn usage_of_key(&self, key: &KeyName) -> Answer<Result<Option<RuleUsage>, CheckError>> {
        let rules = self.shared.rules.load();
        let attributes = rules.rule_named(&key.rule).map(|it| it.attributes_of(&key.parts));
        let Some(Some(attributes)) = attributes else { return Answer::Ready(Ok(None)) };
        let request = Request::with_attributes(key.rule.domain(), attributes.attributes());
        self.usage_in(&request, Some(key.rule.clone())).map(|usage| Ok(usage?.into_iter().next()))
    }

    /// The keys for which an override is in force that names one key, up to so many.
    #[must_use]
    pub fn overridden_keys(&self, most: usize) -> Vec<KeyName> {
        let rules = self.shared.rules.load();
        let wall_ns = self.shared.clock.wall().as_nanos();
        let of_rule = |compiled: &CompiledRule| {
            let rule = &compiled.rule;
            let given = rule.overrides().iter().filter(|given| given.is_on(wall_ns));
            let names = given.filter_map(|given| compiled.only_key(given));
            names.collect::<Vec<_>>()
        };
        rules.rules.iter().flat_map(of_rule).take(most).collect()
    }

    fn usage_in(
        &self,
        request: &Request<'_>,
        rule: Option<RuleId>,
    ) -> Answer<Result<Vec<RuleUsage>, CheckError>> {
        self.run_planned(&request.cost(0), move |engine, request| {
            engine.usage_once(request, rule.as_ref())
        })
    }

    /// Measures, by the rules that are known here.
    fn usage_once(&self, request: &Request<'_>, rule: Option<&RuleId>) -> Planning<Vec<RuleUsage>> {
        let (rules, times) = self.begin(self.given);
        // The store may not know the newest rules yet.
        self.shared.store.adopt(&rules.adoption, &|| self.times(&rules, self.given));
        let numbers = match rule {
            Some(rule) => rules.number_of(rule).into_iter().collect(),
            None => rules.measured_rules(request),
        };
        self.usage_planned(&rules, &numbers, request, times)
    }

    fn usage_planned(
        &self,
        rules: &Ruleset,
        numbers: &[u32],
        request: &Request<'_>,
        times: Times,
    ) -> Planning<Vec<RuleUsage>> {
        let names = self.planned_keys(rules, request, times);
        let mut planned = Planned::new(rules, Operation::Measure);
        planned.plan.names = Some(&names);
        planned.plan.time = self.plan_time_of(rules, request, times);
        // Unlimited keys have no charge, so not every rule has a decision.
        let (mut usage, mut measured) = (Vec::new(), Vec::new());
        for &number in numbers {
            let compiled = rules.rule(number);
            match rules.charge(number, request, self.shared.store.hash(), times) {
                Err(error) => return Answer::Ready(Err(error)),
                Ok(Charged::One(charge)) => {
                    measured.push(usage.len());
                    usage.push(RuleUsage::new(compiled, request, charge.mode));
                    planned.push(compiled, charge, request);
                }
                Ok(Charged::Unlimited) => {
                    usage.push(RuleUsage::new(compiled, request, compiled.rule.mode()));
                }
                Ok(Charged::None | Charged::Missing { .. }) => {}
            }
        }
        let measured = move |decisions: &[Decision]| {
            for (&index, decision) in measured.iter().zip(decisions) {
                usage[index].measure(decision);
            }
            usage
        };
        if let Some(store) = self.shared.store.shared().filter(|_| planned.plan.charges.is_empty())
        {
            // Other rules may be in force.
            let in_force = store.if_in_force(rules.version, true, times);
            return in_force.map(|found| Ok(found.map(|_| measured(&[]))));
        }
        let mut decisions = Decisions::new();
        let decided = self.shared.store.decide(&planned.plan, times, &mut decisions);
        decided.map(move |decided| {
            let decided = decided.map(|it| it.elsewhere.map_or(decisions, |it| it.decisions));
            Ok(decided.map(|decisions| measured(&decisions)))
        })
    }
}

#[cfg(feature = "durable")]
impl StoreEngine {
    /// The rules in force for whose keys the store has no names: all that are not durable, and all
    /// if it is not on disk.
    #[must_use]
    pub fn rules_without_names(&self) -> Vec<RuleId> {
        let rules = self.shared.rules.load();
        let is_on_disk = self.file_store().is_some();
        let has_names = |it: &Rule| is_on_disk && it.durability_on_disk() > Durability::Memory;
        let listed = rules.rules.iter().map(|it| &it.rule).filter(|it| !it.is_placeholder());
        listed.filter(|it| !has_names(it)).map(|it| it.id().clone()).collect()
    }
}

impl Ruleset {
    /// The rules that apply to a request whatever other attributes it might have as well.
    fn measured_rules(&self, request: &Request<'_>) -> Vec<u32> {
        let Some(domain) = self.domain(request.domain) else { return Vec::new() };
        let replaced = domain.replaced(std::slice::from_ref(request));
        let found = domain.matcher.find(&request.attributes);
        let numbers = found.iter().map(|index| domain.rules[index]);
        let is_known = |compiled: &CompiledRule| {
            let is_there = |attribute: &str| request.attributes.get(attribute).is_some();
            let has_key = compiled.missing_part(&request.attributes).is_none();
            let conditions = compiled.rule.conditions();
            has_key && conditions.iter().all(|condition| is_there(condition.attribute()))
        };
        numbers.filter(|it| !replaced.contains(it) && is_known(self.rule(*it))).collect()
    }

    fn number_of(&self, id: &RuleId) -> Option<u32> {
        let numbers = self.domain(id.domain())?.rules.iter().copied();
        numbers.clone().find(|&number| self.rule(number).rule.id() == id)
    }

    fn rule_named(&self, id: &RuleId) -> Option<&CompiledRule> {
        self.number_of(id).map(|number| self.rule(number))
    }
}

impl CompiledRule {
    /// The key that an override is for, if it is for one alone.
    fn only_key(&self, given: &Override) -> Option<KeyName> {
        let parts = self.rule.key().parts();
        let values: Option<Vec<(&str, String)>> =
            given.key().iter().map(Condition::only_value).collect();
        let values = values?;
        let attributes = NamedAttributes::new(values.iter().map(|(name, it)| (*name, &**it)));
        let attributes = attributes.attributes();
        let has = |part: &KeyPart| attributes.get(part.attribute()).is_some();
        let is_one = !parts.is_empty() && parts.iter().all(has);
        is_one.then(|| KeyName::new(self.rule.id().clone(), self.key_of(&attributes)))
    }

    /// The attributes of a request with this key; `None` if the key has others.
    fn attributes_of<'k>(
        &self,
        key: &'k [(Box<str>, Option<Box<str>>)],
    ) -> Option<NamedAttributes<'k>> {
        let parts = self.rule.key().parts();
        let is_same = |(part, given): (&KeyPart, &(Box<str>, Option<Box<str>>))| {
            let may_lack = self.rule.missing() == Missing::Share;
            part.attribute() == &*given.0 && (may_lack || given.1.is_some())
        };
        if parts.len() != key.len() || !parts.iter().zip(key).all(is_same) {
            return None;
        }
        let value = |(part, (name, value)): (&KeyPart, &'k (Box<str>, Option<Box<str>>))| {
            let value = value.as_deref()?;
            // The name of a network has the bits that count; the address is one of it.
            let address = match part {
                KeyPart::Address { .. } => value.rsplit_once('/').map(|(address, _)| address),
                KeyPart::Text(_) => None,
            };
            Some((&**name, address.unwrap_or(value)))
        };
        let attributes = NamedAttributes::new(parts.iter().zip(key).filter_map(value));
        // Its bits may have changed since: then it is another key.
        (self.key_of(&attributes.attributes()) == key).then_some(attributes)
    }
}
