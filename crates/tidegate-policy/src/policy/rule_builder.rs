//! Rules that are built in code.

use std::time::Duration;

use tidegate_core::Debt;

use super::rule::{
    Charging, Durability, Effective, Empty, Missing, Mode, OnError, Rule, RuleError,
};
use super::text::LONGEST;
use super::{Condition, CostTable, Key, Limit, Override};

/// Builds a [`Rule`], as a policy file would have it. Every setting has a default.
///
/// What cannot be parsed is an error of [`build`](Self::build); what does not fit together is one
/// of [`Policy::new`](super::Policy::new).
#[must_use]
#[derive(Clone, Debug)]
pub struct RuleBuilder {
    rule: Rule,
    /// The first pattern or part of a key that could not be parsed.
    error: Option<RuleError>,
}

impl RuleBuilder {
    pub(super) fn new(name: &str, limit: Limit) -> Self {
        Self { rule: Rule::new(name, limit), error: None }
    }

    /// Puts it into another domain.
    pub fn domain(mut self, domain: &str) -> Self {
        self.rule.id.domain = domain.into();
        self
    }

    /// Only for requests whose attribute matches one of the patterns, which are written as in a
    /// policy file.
    pub fn matching<'p>(
        mut self,
        attribute: &str,
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Self {
        match Condition::new(attribute, patterns) {
            Ok(condition) => self.rule.conditions.push(condition),
            Err(error) => self.fail(error),
        }
        self
    }

    /// Counts by these attributes: names, written as in a policy file.
    pub fn key<'p>(mut self, parts: impl IntoIterator<Item = &'p str>) -> Self {
        self.rule.key = Key::default();
        for part in parts {
            if let Err(error) = self.rule.key.add(part) {
                self.fail(error);
            }
        }
        self
    }

    /// Charges its own costs, which replace the request's.
    pub fn cost(mut self, cost: CostTable) -> Self {
        self.rule.cost = Some(cost);
        self
    }

    /// Gives this reason in its denials.
    pub fn deny(mut self, reason: &str) -> Self {
        self.rule.deny = Some(reason.into());
        self
    }

    /// Enforces it, or runs it in shadow mode.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.rule.mode = mode;
        self
    }

    /// Puts it into a group: of its rules only the first that matches applies.
    pub fn group(mut self, group: &str) -> Self {
        self.rule.group = Some(group.into());
        self
    }

    /// Adds an override. The first that matches applies.
    pub fn overridden(mut self, override_rule: Override) -> Self {
        self.rule.overrides.push(override_rule);
        self
    }

    /// Decides otherwise in outages of the store.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.rule.on_error = Some(on_error);
        self
    }

    /// Treats requests that lack an attribute of the key otherwise.
    pub fn missing(mut self, missing: Missing) -> Self {
        self.rule.missing = missing;
        self
    }

    /// Treats requests with an empty attribute of the key otherwise.
    ///
    /// ```
    /// use tidegate::policy::{Empty, Limit, Policy, Rule};
    /// use tidegate::{CheckError, Engine, Request, Window};
    ///
    /// let limit = Limit::Window(Window::new(10, std::time::Duration::from_secs(10)));
    /// let rule = Rule::builder("user", limit).key(["user"]).empty(Empty::Reject).build()?;
    /// let engine = Engine::new(Policy::new([rule])?);
    /// let unknown = engine.check(&Request::new("default", &[("user", "")]));
    /// assert!(matches!(unknown, Err(CheckError::EmptyAttribute { .. })));
    /// assert!(engine.is_empty(), "nothing was charged");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn empty(mut self, empty: Empty) -> Self {
        self.rule.empty = empty;
        self
    }

    /// Makes its charges more or less durable.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.rule.durability = Some(durability);
        self
    }

    /// Reservations hold units for this long; 584 years at most, the longest duration of a policy
    /// file.
    pub fn reserve_for(mut self, reserve_for: Duration) -> Self {
        self.rule.reserve_for = reserve_for.min(LONGEST);
        self
    }

    /// Also charges requests that it or another rule denies: a window counts all of their cost,
    /// past its maximum, and other limits what remains.
    pub fn charge_refused(mut self) -> Self {
        self.rule.charging = Charging::Refused;
        self
    }

    /// Books costs in full, whatever is left, because they are known only afterwards: a request is
    /// allowed if at least one whole unit was left before, and a cost of 0 if one is left.
    ///
    /// A bucket without a debt may be overdrawn by any amount then, as quotas and windows may; those
    /// of overrides as well.
    pub fn postpaid(mut self) -> Self {
        self.rule.charging = Charging::Postpaid;
        self
    }

    /// Puts it into Envoy's quota mode. Its denials are not enforced, as in shadow mode; but the
    /// status of a descriptor that it denies is over the limit, and a call is, if all of its
    /// descriptors with such rules are.
    pub fn quota_mode(mut self) -> Self {
        self.rule.mode = Mode::Shadow;
        self.rule.quota_mode = true;
        self
    }

    /// Applies in place of other rules of its domain: in a decision in which it applies they do
    /// not, also where they match another of several requests.
    pub fn replaces<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.rule.replaces = names.into_iter().map(Into::into).collect();
        self
    }

    /// Its edits apply from another time.
    pub fn effective(mut self, effective: Effective) -> Self {
        self.rule.effective = effective;
        self
    }

    /// The rule, or the first pattern or part of a key that could not be parsed.
    pub fn build(self) -> Result<Rule, RuleError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.rule.with_debt_of_postpaid()),
        }
    }

    fn fail(&mut self, error: impl Into<RuleError>) {
        self.error.get_or_insert(error.into());
    }
}

impl Rule {
    /// Gives the buckets of a postpaid rule a debt, where they have none.
    fn with_debt_of_postpaid(mut self) -> Self {
        if let (Charging::Postpaid, Limit::Bucket(bucket)) = (self.charging, &mut self.limit)
            && bucket.debt() == Debt::Nothing
        {
            // A debt without a bound fits every bucket.
            *bucket = bucket.with_debt(Debt::All).unwrap_or(*bucket);
        }
        let overrides = std::mem::take(&mut self.overrides);
        self.with_overrides(overrides)
    }
}
