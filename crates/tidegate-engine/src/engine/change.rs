//! Edits at run time, and the log of changes: what was changed, by whom, and what it was before.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_policy::policy::{Effective, Override, Policy, PolicyErrors, Rule, RuleId};
use tidegate_table::locks::lock;

use super::ruleset::{Ruleset, RulesetEdit, RulesetSource};
use super::{EngineInner, StoreEngine};
use crate::edits::{Ban, Change, ChangeLog, Changed, Edit, EditKind, Overlay, field_changes};
use crate::store::{Answer, Outage};

/// The error of an edit that names a rule which does not exist.
#[derive(Clone, PartialEq, Eq)]
pub struct NoSuchRule {
    rule: RuleId,
}

impl NoSuchRule {
    /// The rule that was named.
    #[must_use]
    pub const fn rule(&self) -> &RuleId {
        &self.rule
    }
}

impl fmt::Display for NoSuchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rule `{}` in domain `{}`", self.rule.name(), self.rule.domain())
    }
}

tidegate_core::debug_as_displayed!(NoSuchRule);

impl std::error::Error for NoSuchRule {}

pub(super) type Observer = Arc<dyn Fn(&Change) + Send + Sync>;

/// The log of changes, its observers, and replaced rule sets.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) log: ChangeLog,
    observers: Vec<Observer>,
    /// What the program needs of its rules.
    requirements: Vec<Requirement>,
    /// Rule sets that were replaced and may still be in use. Freed by an edit, never by a decision.
    replaced: Vec<Arc<Ruleset>>,
}

/// Edits at run time.
impl StoreEngine {
    /// Edits the rules in force, and returns what has changed, with the name of who did it.
    ///
    /// An edit is atomic: a decision is made by the rules before it or after it. No decision waits
    /// for an edit.
    pub fn edit(&self, actor: &str, edit: Edit) -> Edited {
        match &edit.kind {
            EditKind::SetOverride(rule, given)
                if edit.effective.is_some() && self.is_waiting(rule, given) =>
            {
                // The same again is no edit, and goes on waiting.
                let removed = self.edit(actor, Edit::remove_override(rule, given.key()).now());
                let (engine, actor): (Self, Box<str>) = (self.clone(), actor.into());
                removed.then(move |made| match made {
                    Err(error) => Answer::Ready(Err(error)),
                    Ok(mut made) => engine.make_edit(&actor, edit).map(|set| {
                        made.extend(set?);
                        Ok(made)
                    }),
                })
            }
            _ => self.make_edit(actor, edit),
        }
    }

    /// Whether an override is set that does not count yet.
    fn is_waiting(&self, rule: &RuleId, given: &Override) -> bool {
        let rules = self.shared.rules.load();
        let is_set = |it: &(RuleId, Override)| (&it.0, &it.1) == (rule, given);
        let waits = |it: &Rule| it.effective() == Effective::Next;
        rules.overlay.overrides.iter().any(is_set) && rules.must_have(rule).is_ok_and(waits)
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

    /// Rejects edits after which the program could not work: the function says why, or returns `None`
    /// where it could. It gets the rules with all edits over them. It is forgotten once its owner is
    /// dropped.
    ///
    /// An edit is rejected ([`EditError::Unfit`]) only for reasons that the rules before it do not
    /// give. Edits that other engines make in a store which they share cannot be rejected: the second
    /// function gets the reasons, once such an edit is in force here.
    pub fn require<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        reasons: impl Fn(&T, &[Rule]) -> Vec<String> + Send + Sync + 'static,
        imposed: impl Fn(&T, &[String]) + Send + Sync + 'static,
    ) {
        let (owner, other) = (Arc::downgrade(owner), Arc::downgrade(owner));
        let requirement = Requirement {
            reasons: Arc::new(move |rules| Some(reasons(&*owner.upgrade()?, rules))),
            imposed: Arc::new(move |reasons| {
                if let Some(owner) = other.upgrade() {
                    imposed(&owner, reasons);
                }
            }),
        };
        let mut changes = lock(&self.shared.changes);
        changes.requirements.retain(|it| (it.reasons)(&[]).is_some());
        changes.requirements.push(requirement);
    }

    /// Calls a function for every change from now on.
    ///
    /// It runs on the thread that makes the change, after it.
    pub fn on_change(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        lock(&self.shared.changes).observers.push(Arc::new(observer));
    }

    /// Makes new rules of the old ones and puts them into force: now, or where the rules are
    /// shared, later.
    fn make_edit(&self, actor: &str, edit: Edit) -> Edited {
        match self.shared.store.shared() {
            None => Answer::Ready(self.edit_now(actor, edit)),
            Some(store) => self.edit_shared(store, actor.into(), edit),
        }
    }

    fn edit_now(&self, actor: &str, edit: Edit) -> Result<Vec<Change>, EditError> {
        let EngineInner { rules, store, changes, .. } = &*self.shared;
        let mut changes = lock(changes);
        let old = rules.load_full();
        let (policy, overlay) = edit.of(&old)?;
        let read = || self.read_times();
        let times = read();
        let edit = RulesetEdit { times, effective: edit.effective };
        let source = RulesetSource {
            history: store.history(),
            hash: store.hash(),
            rounds: &|domain| store.rounds(domain),
        };
        let new = Arc::new(Ruleset::new(policy, overlay, Some(&old), &source, edit));
        changes.check(&old, &new)?;
        let made = numbered(changes.log.last(), actor, times.wall, differences(&old, &new));
        let made = changes.log.add(&made);
        if !made.is_empty() || old.overlay != new.overlay {
            // Stored first: after a crash before the rest, the next start has the whole edit, not
            // half of it. In an outage it is in force all the same, and stored when the disk is
            // back.
            let _ = store.store_edits(&new.overlay, &made);
        }
        rules.store(Arc::clone(&new));
        store.adopt(&new.adoption, &read);
        self.shared.waiting.wake_all();
        changes.retire(old);
        let observers = changes.observers();
        drop(changes);
        for change in &made {
            observers.iter().for_each(|observer| observer(change));
        }
        Ok(made)
    }
}

/// Why a part of the program cannot work with rules; `None` once it is gone.
type Reasons = Arc<dyn Fn(&[Rule]) -> Option<Vec<String>> + Send + Sync>;

/// Observes the reasons of rules that are in force all the same.
type Imposed = Arc<dyn Fn(&[String]) + Send + Sync>;

/// What a part of the program needs of its rules.
#[derive(Clone)]
pub(super) struct Requirement {
    reasons: Reasons,
    imposed: Imposed,
}

/// Reasons that new rules give, for the part of the program that cannot work with them.
pub(super) struct Misfit {
    requirement: Requirement,
    reasons: Vec<String>,
}

impl Misfit {
    /// Reports that the rules are in force.
    pub(super) fn report(&self) {
        (self.requirement.imposed)(&self.reasons);
    }
}

impl Changes {
    /// Whether the program can work with new rules, as far as it could with the old ones.
    pub(super) fn check(&mut self, old: &Ruleset, new: &Ruleset) -> Result<(), EditError> {
        let mut reasons: Vec<String> = Vec::new();
        // Layers that were cloned give the same ones.
        for reason in self.misfits(old, new).into_iter().flat_map(|it| it.reasons) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if reasons.is_empty() {
            return Ok(());
        }
        Err(EditError::Unfit { reason: reasons.join("; ").into() })
    }

    /// What the program cannot do with new rules, and could with the old ones.
    pub(super) fn misfits(&mut self, old: &Ruleset, new: &Ruleset) -> Vec<Misfit> {
        if self.requirements.is_empty() {
            return Vec::new();
        }
        let rules_of = |set: &Ruleset| -> Vec<Rule> {
            set.rules.iter().map(|compiled| Rule::clone(&compiled.rule)).collect()
        };
        let (before, after) = (rules_of(old), rules_of(new));
        let mut misfits = Vec::new();
        self.requirements.retain(|requirement| {
            let Some(mut reasons) = (requirement.reasons)(&after) else { return false };
            let known = (requirement.reasons)(&before).unwrap_or_default();
            reasons.retain(|reason| !known.contains(reason));
            if !reasons.is_empty() {
                misfits.push(Misfit { requirement: requirement.clone(), reasons });
            }
            true
        });
        misfits
    }
}

/// What an edit has changed: known now, or where the rules are shared, later.
pub type Edited = Answer<Result<Vec<Change>, EditError>>;

/// The error of an edit that was not made.
#[derive(Clone)]
#[non_exhaustive]
pub enum EditError {
    /// It names a rule that does not exist.
    NoSuchRule(NoSuchRule),
    /// The rules would not be valid with it.
    Invalid(PolicyErrors),
    /// So many edits were made that the store cannot keep their history.
    TooManyEdits,
    /// Its revision is lower than that of the policy in force, which other engines share.
    OlderRevision {
        /// The revision in force.
        in_force: u64,
    },
    /// The application that uses the engine cannot work with it, as [`StoreEngine::require`] says.
    Unfit {
        /// Why, in one sentence or several.
        reason: Box<str>,
    },
    /// The store is unavailable, or its answer was lost. With [`Outage::Unknown`] the edit may have
    /// been made.
    Outage(Outage),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRule(error) => error.fmt(f),
            Self::Invalid(errors) => errors.fmt(f),
            Self::TooManyEdits => {
                f.write_str("the store cannot keep the history of more edits of its limits")
            }
            Self::OlderRevision { in_force } => write!(
                f,
                "the policy in force has revision {in_force}; one with a lower revision, or none, does \
                 not replace it"
            ),
            Self::Unfit { reason } => f.write_str(reason),
            Self::Outage(outage) => outage.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(EditError);

impl std::error::Error for EditError {}

impl From<NoSuchRule> for EditError {
    fn from(error: NoSuchRule) -> Self {
        Self::NoSuchRule(error)
    }
}

impl From<PolicyErrors> for EditError {
    fn from(errors: PolicyErrors) -> Self {
        Self::Invalid(errors)
    }
}

impl From<Outage> for EditError {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

impl Edit {
    /// The policy and what lies over it, after the edit of these rules.
    pub(super) fn of(&self, rules: &Ruleset) -> Result<(Arc<Policy>, Overlay), EditError> {
        let mut overlay = rules.overlay.clone();
        match &self.kind {
            EditKind::Policy(policy) => {
                let policy = Policy::clone(policy).in_place_of(&rules.policy);
                return Ok((policy, overlay));
            }
            EditKind::Rule(rule) => {
                overlay.rules.retain(|it| it.id() != rule.id());
                overlay.rules.push(Arc::clone(rule));
                Policy::new(overlay.over(rules.policy.rules()))?;
            }
            EditKind::SetOverride(rule, given) => {
                let overridden = rules.must_have(rule)?.clone();
                Policy::new([overridden.with_overrides(vec![given.clone()])])?;
                overlay.remove_override(rule, given.key());
                overlay.overrides.insert(0, (rule.clone(), given.clone()));
            }
            EditKind::RemoveOverride(rule, key) => {
                rules.must_have(rule)?;
                overlay.remove_override(rule, key);
            }
            EditKind::Ban(ban) => {
                overlay.remove_ban(&ban.domain, &ban.conditions);
                overlay.bans.push(ban.clone());
            }
            EditKind::Unban { domain, conditions } => overlay.remove_ban(domain, conditions),
            EditKind::Overlay(given) => overlay = given.clone(),
        }
        Ok((Arc::clone(&rules.policy), overlay))
    }

    /// Rejects a policy that is older than the one in force, which other engines share.
    pub(super) fn check_revision(&self, in_force: &Policy) -> Result<(), EditError> {
        let EditKind::Policy(policy) = &self.kind else { return Ok(()) };
        match in_force.settings().revision() {
            Some(in_force) if policy.settings().revision() < Some(in_force) => {
                Err(EditError::OlderRevision { in_force })
            }
            _ => Ok(()),
        }
    }
}

impl Ruleset {
    fn must_have(&self, id: &RuleId) -> Result<&Rule, NoSuchRule> {
        let numbers = self.domain(id.domain()).map_or(&[][..], |domain| &domain.rules);
        let mut rules = numbers.iter().map(|number| &self.rule(*number).rule);
        rules.find(|rule| rule.id() == id).ok_or_else(|| NoSuchRule { rule: id.clone() })
    }
}

impl Changes {
    /// With the log of an earlier run, as recovered from the store.
    pub(super) fn restored(log: ChangeLog) -> Self {
        Self { log, ..Self::default() }
    }

    /// Keeps rules that were replaced, until no decision uses them.
    pub(super) fn retire(&mut self, old: Arc<Ruleset>) {
        self.replaced.push(old);
        self.replaced.retain(|rules| Arc::strong_count(rules) > 1);
    }

    pub(super) fn observers(&self) -> Vec<Observer> {
        self.observers.clone()
    }
}

/// The differences as entries of the log, after the last one.
pub(super) fn numbered(
    last: u64,
    actor: &str,
    at: Timestamp,
    differences: Vec<Difference>,
) -> Vec<Change> {
    let change = |(number, (what, before, after))| Change {
        number,
        at,
        actor: actor.into(),
        what,
        before,
        after,
    };
    (last + 1..).zip(differences).map(change).collect()
}

/// What was changed, what it was before, and what it is now.
pub(super) type Difference = (Changed, Option<String>, Option<String>);

/// The differences between two sets of rules.
pub(super) fn differences(old: &Ruleset, new: &Ruleset) -> Vec<Difference> {
    fn by_name(rules: &Ruleset) -> HashMap<&RuleId, usize> {
        rules.rules.iter().map(|it| it.rule.id()).zip(0..).collect()
    }

    let mut differences = Vec::new();
    let (old_names, new_names) = (by_name(old), by_name(new));
    let describe = |rules: &Ruleset, index: usize| rules.rules[index].rule.describe().to_string();
    let changed =
        |rule: &Rule, starts_fresh| Changed::Rule { rule: rule.id().clone(), starts_fresh };
    for (index, it) in new.rules.iter().enumerate().filter(|(_, it)| !it.rule.is_placeholder()) {
        match old_names.get(it.rule.id()) {
            None => differences.push((changed(&it.rule, true), None, Some(describe(new, index)))),
            Some(&before) if old.rules[before].rule != it.rule => {
                let starts_fresh = old.rules[before].charge.family != it.charge.family;
                let (earlier, after) = field_changes::between(&old.rules[before].rule, &it.rule);
                differences.push((changed(&it.rule, starts_fresh), Some(earlier), Some(after)));
            }
            Some(_) => {}
        }
    }
    for (index, it) in old.rules.iter().enumerate().filter(|(_, it)| !it.rule.is_placeholder()) {
        if !new_names.contains_key(it.rule.id()) {
            differences.push((changed(&it.rule, true), Some(describe(old, index)), None));
        }
    }
    if old.overlay.bans != new.overlay.bans {
        differences.extend(ban_differences(&old.overlay.bans, &new.overlay.bans));
    }
    if old.settings != new.settings {
        let text = |rules: &Ruleset| Some(format!("{:?}", rules.settings));
        differences.push((Changed::Server, text(old), text(new)));
    }
    differences
}

fn ban_differences(old: &[Ban], new: &[Ban]) -> impl Iterator<Item = Difference> {
    let changed = |ban: &Ban| Changed::Bans { domain: ban.domain.clone() };
    let (before, after): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    let gone = old.iter().filter(move |ban| !after.contains(ban));
    let come = new.iter().filter(move |ban| !before.contains(ban));
    let gone = gone.map(move |ban| (changed(ban), Some(ban.to_string()), None));
    gone.chain(come.map(move |ban| (changed(ban), None, Some(ban.to_string()))))
}
