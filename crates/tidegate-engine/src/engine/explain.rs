use std::fmt;

use tidegate_core::{Decision, Timestamp};
use tidegate_policy::Attributes;
use tidegate_policy::policy::{Charging, Missing, Mode, Rule, RuleId};

use super::error::CheckError;
use super::owned_requests::OwnedRequests;
use super::planning::Charged;
use super::report::{Report, describe_wait};
use super::ruleset::{CompiledRule, Ruleset};
use super::{StoreEngine, Verb};
use crate::request::Request;
use crate::store::Answer;

/// Why a request is decided as it is: the part of every rule of its domain.
#[derive(Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// What a check would decide now.
    pub report: Report,
    /// Every rule of the domain, in the order of the policy.
    pub rules: Vec<RuleExplanation>,
}

/// The part of one rule in a decision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleExplanation {
    /// The rule.
    pub rule: RuleId,
    /// Whether it applies, and else why not.
    pub applies: Applies,
}

/// Whether a rule applies to a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Applies {
    /// It does.
    Yes {
        /// The key: attributes and their values, as they count.
        key: Vec<(Box<str>, Option<Box<str>>)>,
        /// What the request costs under it.
        cost: u64,
        /// The number of the override that gives the limit, from 0, in the order of the rule.
        override_index: Option<usize>,
        /// Whether denials are enforced.
        mode: Mode,
        /// Which requests are charged.
        charging: Charging,
        /// Its decision.
        decision: Decision,
    },
    /// An attribute does not meet the rule's conditions.
    NoMatch {
        /// The attribute.
        attribute: Box<str>,
        /// Its value, if the request has it.
        value: Option<Box<str>>,
    },
    /// Another rule of its group comes first.
    Grouped {
        /// That rule.
        first: RuleId,
    },
    /// Another rule that applies [replaces](Rule::replaces) it.
    Replaced,
    /// The imported file excludes the request, or has a more specific descriptor for it.
    Excluded,
    /// An attribute that its key needs is missing.
    Missing {
        /// The attribute.
        attribute: Box<str>,
        /// Whether the request is denied for it.
        denies: bool,
    },
    /// Its cost table does not cover the request. It is in shadow mode: enforced, it makes the
    /// request an [error](CheckError::CostNotCovered).
    NotCovered {
        /// The attribute that decides the cost.
        attribute: Box<str>,
        /// Its value, if the request has it.
        value: Option<Box<str>>,
    },
    /// An override lifts the limit.
    Unlimited {
        /// The number of the override, from 0, in the order of the rule.
        override_index: usize,
    },
}

impl StoreEngine {
    /// Why the request would be decided as it would be. Changes nothing.
    pub fn explain(&self, request: &Request<'_>) -> Answer<Result<Explanation, CheckError>> {
        let (requests, now) = (std::slice::from_ref(request), self.given);
        match self.decide(requests, Verb::Peek, self.when()) {
            Answer::Ready(report) => {
                Answer::Ready(report.and_then(|report| self.explained(report, request, now)))
            }
            Answer::Pending(report) => {
                let (engine, requests) = (self.clone(), OwnedRequests::new(requests));
                Answer::Pending(Box::pin(async move {
                    let report = report.await?;
                    requests.with(|it| engine.explained(report, &it[0], now))
                }))
            }
        }
    }

    fn explained(
        &self,
        report: Report,
        request: &Request<'_>,
        now: Option<Timestamp>,
    ) -> Result<Explanation, CheckError> {
        let rules = self.explained_rules(&report, request, now)?;
        Ok(Explanation { rules, report })
    }

    /// The part of every rule in a report.
    fn explained_rules(
        &self,
        report: &Report,
        request: &Request<'_>,
        now: Option<Timestamp>,
    ) -> Result<Vec<RuleExplanation>, CheckError> {
        let rules = report.ruleset();
        let mut explained = Vec::new();
        let mut groups: Vec<(&str, &Rule)> = Vec::new();
        let domain = rules.domain(request.domain);
        let numbers = domain.map_or(&[][..], |domain| &domain.rules);
        let replaced = domain.map(|domain| domain.replaced(std::slice::from_ref(request)));
        let replaced = replaced.unwrap_or_default();
        for &number in numbers {
            let compiled = rules.rule(number);
            let (id, group) = (compiled.rule.id(), compiled.rule.group());
            let attributes = &request.attributes;
            let first = groups.iter().find(|(known, _)| Some(*known) == group);
            let applies = if let Some(failed) = compiled.failed(attributes) {
                failed
            } else if let Some((_, first)) = first {
                match first.is_placeholder() {
                    true => Applies::Excluded,
                    false => Applies::Grouped { first: first.id().clone() },
                }
            } else {
                groups.extend(group.map(|group| (group, &compiled.rule)));
                match replaced.contains(&number) {
                    true => Applies::Replaced,
                    false => self.applies(report, number, request, now)?,
                }
            };
            if compiled.rule.is_placeholder() {
                continue;
            }
            explained.push(RuleExplanation { rule: id.clone(), applies });
        }
        Ok(explained)
    }

    /// What a matching rule decides.
    fn applies(
        &self,
        report: &Report,
        number: u32,
        request: &Request<'_>,
        now: Option<Timestamp>,
    ) -> Result<Applies, CheckError> {
        let rules: &Ruleset = report.ruleset();
        let compiled = rules.rule(number);
        let times = self.times(rules, now);
        let override_index =
            compiled.override_of(&request.attributes, times, self.shared.store.hash());
        match rules.charge(number, request, self.shared.store.hash(), times)? {
            Charged::Missing { part } => Ok(compiled.missing(part, true)),
            Charged::None => match compiled.missing_part(&request.attributes) {
                Some(part) if compiled.rule.missing() != Missing::Share => {
                    Ok(compiled.missing(part, false))
                }
                _ => Ok(compiled.without_cost(&request.attributes)),
            },
            Charged::Unlimited => {
                Ok(Applies::Unlimited { override_index: override_index.unwrap_or(0) })
            }
            Charged::One(charge) => {
                let evaluated =
                    report.body.evaluated.iter().position(|evaluated| evaluated.rule == number);
                let decision =
                    evaluated.and_then(|index| report.body.decisions.get(index).copied());
                Ok(Applies::Yes {
                    key: compiled.key_of(&request.attributes),
                    cost: charge.cost,
                    override_index,
                    mode: charge.mode,
                    charging: charge.terms.charging,
                    decision: decision.unwrap_or_else(|| charge.peek_fresh(times.now)),
                })
            }
        }
    }
}

impl CompiledRule {
    /// The first condition that does not hold.
    fn failed(&self, attributes: &Attributes<'_>) -> Option<Applies> {
        let failed =
            self.rule.conditions().iter().find(|condition| !condition.holds(attributes))?;
        let value = attributes.get(failed.attribute()).map(Into::into);
        Some(Applies::NoMatch { attribute: failed.attribute().into(), value })
    }

    fn missing(&self, part: usize, denies: bool) -> Applies {
        Applies::Missing { attribute: self.rule.key().parts()[part].attribute().into(), denies }
    }

    /// Its cost table does not cover the request.
    fn without_cost(&self, attributes: &Attributes<'_>) -> Applies {
        let attribute = self.rule.cost().and_then(|cost| cost.attribute());
        let attribute = attribute.unwrap_or_default();
        let value = attributes.get(attribute).map(Into::into);
        Applies::NotCovered { attribute: attribute.into(), value }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for it in &self.rules {
            writeln!(f, "{}: {}", it.rule.name(), it.applies)?;
        }
        if self.report.is_local() {
            writeln!(f, "the store is unavailable: local shares of the limits decide")?;
        } else if self.report.is_outage() {
            writeln!(f, "the store is unavailable: on_error decides")?;
        }
        match (self.report.is_allowed(), self.report.rule()) {
            (true, Some(rule)) => write!(f, "allowed; `{}` has the least remaining", rule.name()),
            (true, None) => f.write_str("allowed; no rule applies"),
            (false, _) => {
                write!(f, "denied: {}", self.report.reason().unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for Applies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes { key, cost, override_index, mode, charging: _, decision } => {
                f.write_str("applies to ")?;
                for (index, (attribute, value)) in key.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    match value {
                        Some(value) => write!(f, "{comma}{attribute} = {value:?}")?,
                        None => write!(f, "{comma}{attribute} absent")?,
                    }
                }
                if key.is_empty() {
                    f.write_str("all requests")?;
                }
                if let Some(override_index) = override_index {
                    write!(f, ", by override {}", override_index + 1)?;
                }
                let (limit, left) = (decision.limit(), decision.remaining());
                write!(f, "; cost {cost}, {left} of {limit} left; ")?;
                match (&decision.retry_after(), mode) {
                    (None, _) => f.write_str("would allow it"),
                    (Some(wait), Mode::Enforce) => {
                        write!(f, "would deny it; retry {}", describe_wait(*wait))
                    }
                    (Some(wait), Mode::Shadow) => {
                        write!(
                            f,
                            "would deny it, but is in shadow mode; retry {}",
                            describe_wait(*wait)
                        )
                    }
                }
            }
            Self::NoMatch { attribute, value: Some(value) } => {
                write!(f, "does not match: {attribute} is {value:?}")
            }
            Self::NoMatch { attribute, value: None } => {
                write!(f, "does not match: {attribute} is absent")
            }
            Self::Grouped { first } => write!(f, "comes after `{}` in its group", first.name()),
            Self::Replaced => f.write_str("does not apply: another rule replaces it"),
            Self::Excluded => f.write_str(
                "does not apply: the file excludes the request, or has a more specific descriptor",
            ),
            Self::Missing { attribute, denies: true } => {
                write!(f, "denies it: its key needs {attribute}")
            }
            Self::Missing { attribute, denies: false } => {
                write!(f, "does not apply: its key needs {attribute}")
            }
            Self::NotCovered { attribute, value: Some(value) } => write!(
                f,
                "does not apply, as it is in shadow mode: its cost table does not cover {attribute} \
                 = {value:?}"
            ),
            Self::NotCovered { attribute, value: None } => write!(
                f,
                "does not apply, as it is in shadow mode: its cost table needs {attribute}"
            ),
            Self::Unlimited { override_index } => {
                write!(f, "does not limit it, by override {}", override_index + 1)
            }
        }
    }
}
