use std::sync::Arc;

use tidegate_policy::policy::{Condition, Effective, Override, Policy, Rule, RuleId};

use super::{Ban, Overlay};

/// An edit of the rules in force, for [`Engine::edit`](crate::Engine::edit).
///
/// Edits keep what was consumed.
///
/// ```
/// use tidegate::policy::Policy;
/// use tidegate::{Edit, Engine, Request};
///
/// let policy = |max| Policy::from_toml(&format!(
///     "[[rule]]\nname = \"searches\"\nkey = [\"user\"]\nwindow = {{ max = {max}, per = \"1h\" }}"
/// ));
/// let engine = Engine::new(policy(2)?);
/// let ada = Request::new("default", &[("user", "ada")]);
/// assert!(engine.check(&ada)?.is_allowed());
/// let changes = engine.edit("ops", Edit::policy(policy(3)?))?;
/// assert_eq!(changes.len(), 1);
/// assert_eq!(engine.peek(&ada)?.remaining(), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Edit {
    pub(crate) kind: EditKind,
    /// From when it counts; `None`: as its rule says.
    pub(crate) effective: Option<Effective>,
}

#[derive(Clone, Debug)]
pub(crate) enum EditKind {
    Policy(Arc<Policy>),
    Rule(Arc<Rule>),
    SetOverride(RuleId, Override),
    RemoveOverride(RuleId, Vec<Condition>),
    Ban(Ban),
    Unban { domain: Box<str>, conditions: Vec<Condition> },
    Overlay(Overlay),
}

impl Edit {
    const fn new(kind: EditKind) -> Self {
        Self { kind, effective: None }
    }

    /// Puts another policy into force. Edits that were made over the old one stay, over the new one.
    pub fn policy(policy: impl Into<Arc<Policy>>) -> Self {
        Self::new(EditKind::Policy(policy.into()))
    }

    /// Puts a rule into force over the policy's rule of that name, or as a new one.
    ///
    /// It stays when the policy is replaced, until the overlay is [replaced](Self::overlay).
    pub fn rule(rule: impl Into<Arc<Rule>>) -> Self {
        Self::new(EditKind::Rule(rule.into()))
    }

    /// Sets another limit for some keys of a rule, before all other overrides of the rule.
    ///
    /// An override for the same keys is replaced. It counts from when the rule's edits count (see
    /// [`Rule::effective`]), or [now](Self::now).
    pub fn set_override(rule: &RuleId, given: Override) -> Self {
        Self::new(EditKind::SetOverride(rule.clone(), given))
    }

    /// Removes an override that was [set](Self::set_override) at run time. It counts until the
    /// rule's edits count (see [`Rule::effective`]), or until [now](Self::now).
    pub fn remove_override(rule: &RuleId, key: &[Condition]) -> Self {
        Self::new(EditKind::RemoveOverride(rule.clone(), key.to_vec()))
    }

    /// Bans requests of a domain: they are denied whatever the limits are. A ban with the same
    /// conditions is replaced.
    pub const fn ban(ban: Ban) -> Self {
        Self::new(EditKind::Ban(ban))
    }

    /// Removes a ban.
    pub fn unban(domain: &str, banned: &[Condition]) -> Self {
        Self::new(EditKind::Unban { domain: domain.into(), conditions: banned.to_vec() })
    }

    /// Replaces all edits over the policy, for example by some that were saved before a restart; by
    /// those of an empty [`Overlay`] the policy alone is in force.
    pub const fn overlay(overlay: Overlay) -> Self {
        Self::new(EditKind::Overlay(overlay))
    }

    /// The same edit of an override, which counts at once whatever the rule says.
    pub fn now(self) -> Self {
        Self { effective: Some(Effective::Now), ..self }
    }
}
