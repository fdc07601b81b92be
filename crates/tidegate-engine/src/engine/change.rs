//! Edits at run time, and the log of changes: what was changed, by whom, and what it was before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_policy::policy::{Condition, Effective, Override, Policy, PolicyErrors, Rule};
use tidegate_table::clock::Clock;
use tidegate_table::locks::lock;

use super::ruleset::{Ruleset, RulesetEdit};
use super::{Engine, EngineInner};
use crate::cycle::Times;
use crate::edits::{Ban, Change, Changed, MOST_CHANGES, Overlay, field_changes};
use crate::store::Store;

/// The error of an edit that names a rule which does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchRule {
    domain: Box<str>,
    name: Box<str>,
}

impl fmt::Display for NoSuchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rule `{}` in domain `{}`", self.name, self.domain)
    }
}

impl std::error::Error for NoSuchRule {}

type Observer = Arc<dyn Fn(&Change) + Send + Sync>;

/// The log of changes, its observers, and replaced rule sets.
#[derive(Default)]
pub(super) struct Changes {
    log: VecDeque<Change>,
    last: u64,
    observers: Vec<Observer>,
    /// Rule sets that were replaced and may still be in use. Freed by an edit, never by a decision.
    replaced: Vec<Arc<Ruleset>>,
}

/// Edits at run time.
///
/// Each is atomic: a decision is made by the rules before it or after it. No decision waits for an
/// edit. Edits keep what was consumed.
impl<S: Store, C: Clock> Engine<S, C> {
    /// Puts another policy into force, and returns what has changed.
    ///
    /// Edits that were made over the old one stay, over the new one.
    pub fn replace_policy(&self, actor: &str, policy: Policy) -> Vec<Change> {
        self.edit(actor, None, |rules| (policy.in_place_of(&rules.policy), rules.overlay.clone()))
    }

    /// [`replace_policy`](Self::replace_policy) at a given time.
    pub fn replace_policy_at(&self, actor: &str, policy: Policy, now: Timestamp) -> Vec<Change> {
        let edit = |rules: &Ruleset| (policy.in_place_of(&rules.policy), rules.overlay.clone());
        self.edit(actor, Some(now), edit)
    }

    /// Puts a rule into force over the policy's rule of that name, or as a new one.
    ///
    /// It stays when the policy is replaced, until the overlay is [dropped](Self::drop_overlay).
    pub fn replace_rule(&self, actor: &str, rule: Rule) -> Result<Vec<Change>, PolicyErrors> {
        self.replace_rule_at_times(actor, rule, None)
    }

    /// [`replace_rule`](Self::replace_rule) at a given time.
    pub fn replace_rule_at(
        &self,
        actor: &str,
        rule: Rule,
        now: Timestamp,
    ) -> Result<Vec<Change>, PolicyErrors> {
        self.replace_rule_at_times(actor, rule, Some(now))
    }

    fn replace_rule_at_times(
        &self,
        actor: &str,
        rule: Rule,
        now: Option<Timestamp>,
    ) -> Result<Vec<Change>, PolicyErrors> {
        self.try_edit(actor, (now, None), |rules| {
            let mut overlay = rules.overlay.clone();
            let is_same =
                |it: &Arc<Rule>| (it.domain_name(), it.name()) == (rule.domain_name(), rule.name());
            overlay.rules.retain(|it| !is_same(it));
            overlay.rules.push(Arc::new(rule));
            Policy::new(overlay.over(rules.policy.rules()))?;
            Ok((Arc::clone(&rules.policy), overlay))
        })
    }

    /// Sets another limit for some keys of a rule, before all other overrides of the rule.
    ///
    /// An override for the same keys is replaced. It counts from when the rule's edits count: see
    /// [`Rule::effective`].
    pub fn set_override(
        &self,
        actor: &str,
        rule: (&str, &str),
        given: Override,
    ) -> Result<Vec<Change>, OverrideError> {
        self.set_override_from(actor, rule, given, None)
    }

    /// [`set_override`](Self::set_override), which counts at once whatever the rule says.
    pub fn set_override_now(
        &self,
        actor: &str,
        rule: (&str, &str),
        given: Override,
    ) -> Result<Vec<Change>, OverrideError> {
        let rules = self.shared.rules.load();
        let is_set = |it: &(Box<str>, Box<str>, Override)| {
            (&*it.0, &*it.1, &it.2) == (rule.0, rule.1, &given)
        };
        let waits = |it: &Rule| it.effective_from() == Effective::Next;
        let mut made = Vec::new();
        if rules.overlay.overrides.iter().any(is_set)
            && rules.must_have(rule.0, rule.1).is_ok_and(waits)
        {
            // The same again is no edit, and goes on waiting.
            made = self.drop_override_now(actor, rule, given.key())?;
        }
        made.extend(self.set_override_from(actor, rule, given, Some(Effective::Now))?);
        Ok(made)
    }

    fn set_override_from(
        &self,
        actor: &str,
        (domain, rule): (&str, &str),
        given: Override,
        effective: Option<Effective>,
    ) -> Result<Vec<Change>, OverrideError> {
        self.try_edit(actor, (None, effective), |rules| {
            let overridden = rules.must_have(domain, rule)?.clone();
            Policy::new([overridden.with_overrides(vec![given.clone()])])?;
            let mut overlay = rules.overlay.clone();
            overlay.drop_override((domain, rule), given.key());
            overlay.overrides.insert(0, (domain.into(), rule.into(), given));
            Ok((Arc::clone(&rules.policy), overlay))
        })
    }

    /// Removes an override that was [set](Self::set_override) at run time. It counts until the
    /// rule's edits count: see [`Rule::effective`].
    pub fn drop_override(
        &self,
        actor: &str,
        rule: (&str, &str),
        key: &[Condition],
    ) -> Result<Vec<Change>, NoSuchRule> {
        self.drop_override_from(actor, rule, key, None)
    }

    /// [`drop_override`](Self::drop_override) at once, whatever the rule says.
    pub fn drop_override_now(
        &self,
        actor: &str,
        rule: (&str, &str),
        key: &[Condition],
    ) -> Result<Vec<Change>, NoSuchRule> {
        self.drop_override_from(actor, rule, key, Some(Effective::Now))
    }

    fn drop_override_from(
        &self,
        actor: &str,
        (domain, rule): (&str, &str),
        key: &[Condition],
        effective: Option<Effective>,
    ) -> Result<Vec<Change>, NoSuchRule> {
        self.try_edit(actor, (None, effective), |rules| {
            rules.must_have(domain, rule)?;
            let mut overlay = rules.overlay.clone();
            overlay.drop_override((domain, rule), key);
            Ok((Arc::clone(&rules.policy), overlay))
        })
    }

    /// Bans requests of a domain: they are denied whatever the limits are.
    ///
    /// A ban with the same conditions is replaced.
    pub fn ban(&self, actor: &str, ban: Ban) -> Vec<Change> {
        self.edit(actor, None, |rules| {
            let mut overlay = rules.overlay.clone();
            overlay
                .bans
                .retain(|it| (&it.domain, &it.conditions) != (&ban.domain, &ban.conditions));
            overlay.bans.push(ban);
            (Arc::clone(&rules.policy), overlay)
        })
    }

    /// Removes a ban.
    pub fn unban(&self, actor: &str, domain: &str, banned: &[Condition]) -> Vec<Change> {
        self.edit(actor, None, |rules| {
            let mut overlay = rules.overlay.clone();
            overlay.bans.retain(|it| (&*it.domain, &*it.conditions) != (domain, banned));
            (Arc::clone(&rules.policy), overlay)
        })
    }

    /// Removes all edits, so that the policy alone is in force.
    pub fn drop_overlay(&self, actor: &str) -> Vec<Change> {
        self.edit(actor, None, |rules| (Arc::clone(&rules.policy), Overlay::default()))
    }

    /// Replaces all edits, for example by an overlay that was saved before a restart.
    pub fn replace_overlay(&self, actor: &str, overlay: Overlay) -> Vec<Change> {
        self.edit(actor, None, |rules| (Arc::clone(&rules.policy), overlay))
    }

    /// The edits that are in force over the policy.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        self.shared.rules.load().overlay.clone()
    }

    /// The policy in force, without the edits over it.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.shared.rules.load().policy)
    }

    /// Whether a rule or a ban of a domain uses the attribute `path`.
    #[must_use]
    pub fn reads_path(&self, domain: &str) -> bool {
        self.shared.rules.load().domain(domain).is_some_and(|domain| domain.reads_path)
    }

    /// The changes after the one with this number, oldest first. The last 1 024 are kept.
    #[must_use]
    pub fn changes_since(&self, number: u64) -> Vec<Change> {
        let changes = lock(&self.shared.changes);
        changes.log.iter().filter(|change| change.number > number).cloned().collect()
    }

    /// Calls a function for every change from now on.
    ///
    /// It runs on the thread that makes the change, after it.
    pub fn on_change(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        lock(&self.shared.changes).observers.push(Arc::new(observer));
    }

    fn edit(
        &self,
        actor: &str,
        now: Option<Timestamp>,
        change: impl FnOnce(&Ruleset) -> (Arc<Policy>, Overlay),
    ) -> Vec<Change> {
        let changed = self.try_edit(actor, (now, None), |rules| Ok(change(rules)));
        changed.unwrap_or_else(|never: std::convert::Infallible| match never {})
    }

    /// Makes new rules of the old ones and puts them into force.
    fn try_edit<E>(
        &self,
        actor: &str,
        (now, effective): (Option<Timestamp>, Option<Effective>),
        change: impl FnOnce(&Ruleset) -> Result<(Arc<Policy>, Overlay), E>,
    ) -> Result<Vec<Change>, E> {
        let EngineInner { rules, store, clock, changes, .. } = &*self.shared;
        let mut changes = lock(changes);
        let old = rules.load_full();
        let (policy, overlay) = change(&old)?;
        let read = || match now {
            Some(now) => Times { now, wall: now },
            None => Times { now: clock.now(), wall: clock.wall() },
        };
        let times = read();
        let edit = RulesetEdit { times, effective };
        let new = Arc::new(Ruleset::new(policy, overlay, Some(&old), store, edit));
        let made = changes.write(actor, times.wall, differences(&old, &new));
        if !made.is_empty() || old.overlay != new.overlay {
            // Stored first: after a crash before the rest, the next start has the whole edit, not
            // half of it. In an outage it is in force all the same, and stored when the disk is
            // back.
            let _ = store.store_edits(&new.overlay, &made);
        }
        rules.store(Arc::clone(&new));
        store.adopt(&new.adoption, &read);
        changes.replaced.push(old);
        self.shared.waiting.wake_all();
        changes.replaced.retain(|rules| Arc::strong_count(rules) > 1);
        let observers = changes.observers.clone();
        drop(changes);
        for change in &made {
            observers.iter().for_each(|observer| observer(change));
        }
        Ok(made)
    }
}

/// The error of an override that was not set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OverrideError {
    /// Its rule does not exist.
    NoSuchRule(NoSuchRule),
    /// It does not fit the rule.
    Invalid(PolicyErrors),
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRule(error) => error.fmt(f),
            Self::Invalid(errors) => errors.fmt(f),
        }
    }
}

impl std::error::Error for OverrideError {}

impl From<NoSuchRule> for OverrideError {
    fn from(error: NoSuchRule) -> Self {
        Self::NoSuchRule(error)
    }
}

impl From<PolicyErrors> for OverrideError {
    fn from(errors: PolicyErrors) -> Self {
        Self::Invalid(errors)
    }
}

impl Ruleset {
    fn must_have(&self, domain: &str, name: &str) -> Result<&Rule, NoSuchRule> {
        let numbers = self.domain(domain).map_or(&[][..], |domain| &domain.rules);
        let mut rules = numbers.iter().map(|number| &self.rule(*number).rule);
        let rule = rules.find(|rule| rule.name() == name);
        rule.ok_or_else(|| NoSuchRule { domain: domain.into(), name: name.into() })
    }
}

impl Changes {
    /// The log of an earlier run, as recovered from the store.
    pub(super) fn restored(changes: Vec<Change>) -> Self {
        let mut kept =
            Self { last: changes.last().map_or(0, |last| last.number), ..Self::default() };
        kept.log.extend(changes);
        kept.forget_oldest();
        kept
    }

    fn forget_oldest(&mut self) {
        let excess = self.log.len().saturating_sub(MOST_CHANGES);
        self.log.drain(..excess);
    }

    fn write(
        &mut self,
        actor: &str,
        at: Timestamp,
        differences: Vec<(Changed, Option<String>, Option<String>)>,
    ) -> Vec<Change> {
        let made: Vec<Change> = (self.last + 1..)
            .zip(differences)
            .map(|(number, (what, before, after))| Change {
                number,
                at,
                actor: actor.into(),
                what,
                before,
                after,
            })
            .collect();
        self.last += made.len() as u64;
        self.log.extend(made.iter().cloned());
        self.forget_oldest();
        made
    }
}

/// The differences between two sets of rules.
fn differences(old: &Ruleset, new: &Ruleset) -> Vec<(Changed, Option<String>, Option<String>)> {
    let mut differences = Vec::new();
    let by_name = |rules: &Ruleset| -> HashMap<(Box<str>, Box<str>), usize> {
        let names =
            rules.rules.iter().map(|it| (it.rule.domain_name().into(), it.rule.name().into()));
        names.zip(0..).collect()
    };
    let (old_names, new_names) = (by_name(old), by_name(new));
    let describe = |rules: &Ruleset, index: usize| rules.rules[index].rule.describe().to_string();
    let changed = |rule: &Rule, starts_fresh| Changed::Rule {
        domain: rule.domain_name().into(),
        name: rule.name().into(),
        starts_fresh,
    };
    for (index, it) in new.rules.iter().enumerate().filter(|(_, it)| !it.rule.is_placeholder()) {
        let name = (it.rule.domain_name().into(), it.rule.name().into());
        match old_names.get(&name) {
            None => differences.push((changed(&it.rule, true), None, Some(describe(new, index)))),
            Some(&before) if old.rules[before].rule != it.rule => {
                let starts_fresh = old.rules[before].family != it.family;
                let (earlier, after) = field_changes::between(&old.rules[before].rule, &it.rule);
                differences.push((changed(&it.rule, starts_fresh), Some(earlier), Some(after)));
            }
            Some(_) => {}
        }
    }
    for (index, it) in old.rules.iter().enumerate().filter(|(_, it)| !it.rule.is_placeholder()) {
        if !new_names.contains_key(&(it.rule.domain_name().into(), it.rule.name().into())) {
            differences.push((changed(&it.rule, true), Some(describe(old, index)), None));
        }
    }
    if old.overlay.bans != new.overlay.bans {
        differences.extend(ban_differences(&old.overlay.bans, &new.overlay.bans));
    }
    if old.server != new.server {
        let text = |rules: &Ruleset| Some(format!("{:?}", rules.server));
        differences.push((Changed::Server, text(old), text(new)));
    }
    differences
}

fn ban_differences(
    old: &[Ban],
    new: &[Ban],
) -> impl Iterator<Item = (Changed, Option<String>, Option<String>)> {
    let changed = |ban: &Ban| Changed::Bans { domain: ban.domain.clone() };
    let (before, after): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    let gone = old.iter().filter(move |ban| !after.contains(ban));
    let come = new.iter().filter(move |ban| !before.contains(ban));
    let gone = gone.map(move |ban| (changed(ban), Some(ban.to_string()), None));
    gone.chain(come.map(move |ban| (changed(ban), None, Some(ban.to_string()))))
}
