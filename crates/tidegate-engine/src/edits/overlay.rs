//! Edits made at run time, over the policy file.

use std::fmt;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_policy::Attributes;
use tidegate_policy::policy::{Condition, Override, Rule, RuleId};

/// Edits over the policy. They stay when the policy is reloaded, until they are dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlay {
    /// Rules that replace rules of the policy, or are added to them.
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Overrides, each with its rule: domain, name, override. They precede those of the policy.
    pub(crate) overrides: Vec<(RuleId, Override)>,
    pub(crate) bans: Vec<Ban>,
}

/// A ban: requests of a domain that are denied whatever the limits are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ban {
    pub(crate) domain: Box<str>,
    pub(crate) conditions: Vec<Condition>,
    /// When it ends, by the wall clock; `None`: never.
    pub(crate) until: Option<Timestamp>,
    pub(crate) reason: Option<Box<str>>,
}

impl Ban {
    /// A ban of all requests in a domain that meet the conditions.
    #[must_use]
    pub fn new(domain: &str, conditions: Vec<Condition>) -> Self {
        Self { domain: domain.into(), conditions, until: None, reason: None }
    }

    /// The same ban with an end, by the wall clock: `engine.clock().wall()` and some time, or a time since
    /// 1970.
    #[must_use]
    pub fn until(self, until: Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }

    /// The same ban with a reason, which denied clients get.
    #[must_use]
    pub fn reason(self, reason: &str) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// The domain in which it applies.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Which requests are banned: all that meet these conditions.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// When it ends, by the wall clock; `None`: never.
    #[must_use]
    pub const fn ends(&self) -> Option<Timestamp> {
        self.until
    }

    /// Whether it applies to this request, at this time of the wall clock.
    pub(crate) fn applies(&self, attributes: &Attributes<'_>, wall: Timestamp) -> bool {
        self.until.is_none_or(|until| wall < until)
            && self.conditions.iter().all(|condition| condition.holds(attributes))
    }
}

impl Overlay {
    /// The rules of a policy with the edits applied.
    pub(crate) fn over<'a>(&'a self, file: &'a [Rule]) -> impl Iterator<Item = Rule> + 'a {
        let is_same = |a: &Rule, b: &Rule| a.id() == b.id();
        let edited = move |rule: &Rule| self.rules.iter().find(|edited| is_same(edited, rule));
        let added =
            self.rules.iter().filter(move |added| !file.iter().any(|rule| is_same(added, rule)));
        let rules = file.iter().map(move |rule| edited(rule).map_or(rule, |edited| edited));
        rules.chain(added.map(|added| &**added)).map(|rule| {
            let ours = self
                .overrides
                .iter()
                .filter(|(id, _)| id == rule.id())
                // An override that no longer fits the rule is inactive until it does again.
                .filter(|(_, given)| rule.takes(given));
            let mut overrides: Vec<_> = ours.map(|(_, given)| given.clone()).collect();
            overrides.extend_from_slice(rule.overrides());
            rule.clone().with_overrides(overrides)
        })
    }

    pub(crate) fn bans_in(&self, domain: &str) -> Vec<Ban> {
        self.bans.iter().filter(|ban| &*ban.domain == domain).cloned().collect()
    }
}

impl Overlay {
    pub(crate) fn remove_override(&mut self, rule: &RuleId, key: &[Condition]) {
        self.overrides.retain(|(of_rule, given)| (of_rule, given.key()) != (rule, key));
    }

    pub(crate) fn remove_ban(&mut self, domain: &str, conditions: &[Condition]) {
        self.bans.retain(|ban| (&*ban.domain, &*ban.conditions) != (domain, conditions));
    }

    /// Rules that replace rules of the policy, or are added to them.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|rule| &**rule)
    }

    /// Overrides, each with its rule, in their order of precedence.
    ///
    /// One that no longer fits its rule, because the policy was replaced, is not in force.
    pub fn overrides(&self) -> impl Iterator<Item = (&RuleId, &Override)> {
        self.overrides.iter().map(|(rule, given)| (rule, given))
    }

    /// The bans.
    #[must_use]
    pub fn bans(&self) -> &[Ban] {
        &self.bans
    }

    /// Whether there are no edits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain `{}` denies ", self.domain)?;
        for (index, condition) in self.conditions.iter().enumerate() {
            let and = if index == 0 { "" } else { " and " };
            let any_of: Vec<_> = condition.any_of().iter().map(ToString::to_string).collect();
            write!(f, "{and}{} = {any_of:?}", condition.attribute())?;
        }
        if self.conditions.is_empty() {
            f.write_str("every request")?;
        }
        if let Some(until) = self.until {
            match jiff::Timestamp::from_nanosecond(i128::from(until.as_nanos())) {
                Ok(until) => write!(f, " until {until}")?,
                Err(_) => write!(f, " until {until} after 1970")?,
            }
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
