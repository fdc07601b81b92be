//! What differs between two policies, as lines: the audit log of a daemon and `tidegate diff` have the
//! same ones.

use std::collections::{HashMap, HashSet};
use std::fmt;

use toml::de::{DeTable, DeValue};

use super::write::override_table;
use super::{Parsed, Policy, Rule, RuleId};

/// A field of a policy file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldChange {
    /// Its name, with the tables that it is in: `window.max`.
    pub field: String,
    /// Its value before, as in a file; `None`: it was not there.
    pub before: Option<String>,
    /// Its value now; `None`: it is gone.
    pub after: Option<String>,
}

/// A rule that differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RuleDifference {
    /// The rule.
    pub rule: RuleId,
    /// How it differs.
    pub change: RuleChange,
    /// Whether its keys start with fresh states: it is new, or its key or algorithm changed.
    pub starts_fresh: bool,
}

/// How a rule differs.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleChange {
    /// It is new; a description.
    Added(String),
    /// It is gone; a description.
    Removed(String),
    /// These fields differ.
    Changed(Vec<FieldChange>),
}

/// What differs between two policies.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PolicyDifference {
    /// Rules, in the order of the new policy, then those that are gone.
    pub rules: Vec<RuleDifference>,
    /// Fields of the `[server]` table, without secrets.
    pub settings: Vec<FieldChange>,
}

impl FieldChange {
    /// A field with its values, as in a file.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(field: String, before: Option<String>, after: Option<String>) -> Self {
        Self { field, before, after }
    }
}

/// `window.max 3 → 30`.
impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{field} {before} → {after}"),
            (Some(before), None) => write!(f, "{field} {before} removed"),
            (None, Some(after)) => write!(f, "{field} {after} added"),
            (None, None) => write!(f, "{field} changed"),
        }
    }
}

impl PolicyDifference {
    /// Whether there is no difference.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.settings.is_empty()
    }
}

impl Policy {
    /// The rules that differ in a later policy.
    ///
    /// ```
    /// use tidegate::policy::{Policy, RuleChange};
    ///
    /// let old = Policy::from_toml("[[rule]]\nname = 'a'\nwindow = { max = 3, per = '1h' }")?;
    /// let new = Policy::from_toml("[[rule]]\nname = 'a'\nwindow = { max = 30, per = '1h' }")?;
    /// let difference = old.rule_differences(&new);
    /// let RuleChange::Changed(fields) = &difference[0].change else { panic!() };
    /// assert_eq!(fields[0].to_string(), "window.max 3 → 30");
    /// assert!(!difference[0].starts_fresh);
    /// # Ok::<(), tidegate::policy::PolicyErrors>(())
    /// ```
    #[must_use]
    pub fn rule_differences(&self, after: &Self) -> Vec<RuleDifference> {
        fn by_id(policy: &Policy) -> HashMap<&RuleId, &Rule> {
            policy.rules.iter().map(|rule| (&rule.id, rule)).collect()
        }
        fn listed(policy: &Policy) -> impl Iterator<Item = &Rule> {
            policy.rules.iter().filter(|rule| !rule.is_placeholder())
        }
        let (old, new) = (by_id(self), by_id(after));
        let difference = |rule: &Rule, change, starts_fresh| RuleDifference {
            rule: rule.id.clone(),
            change,
            starts_fresh,
        };
        let changed = listed(after).filter_map(|rule| match old.get(&rule.id) {
            None => Some(difference(rule, RuleChange::Added(rule.describe()), true)),
            Some(before) if *before != rule => {
                let fields = before.changed_fields(rule);
                Some(difference(rule, RuleChange::Changed(fields), !before.keeps_state_as(rule)))
            }
            Some(_) => None,
        });
        let gone = listed(self).filter(|rule| !new.contains_key(&rule.id));
        let gone = gone.map(|rule| difference(rule, RuleChange::Removed(rule.describe()), false));
        changed.chain(gone).collect()
    }
}

impl Parsed {
    /// What differs in a later file, its settings included.
    #[must_use]
    pub fn difference(&self, after: &Self) -> PolicyDifference {
        let mut settings = paired(missing_in(&self.settings(), &after.settings()), {
            missing_in(&after.settings(), &self.settings())
        });
        if self.server != after.server && settings.is_empty() {
            settings.push(FieldChange::new("server: secrets".into(), None, None));
        }
        PolicyDifference { rules: self.policy.rule_differences(&after.policy), settings }
    }

    /// The fields of the `[server]` table, without secrets.
    fn settings(&self) -> Vec<(String, String)> {
        let policy = Policy { rules: Vec::new(), ..self.policy.clone() };
        fields_of(&policy.to_toml_with(&self.server.without_secrets()))
    }
}

impl Rule {
    /// The fields that differ in a later version of the rule.
    #[must_use]
    pub fn changed_fields(&self, after: &Self) -> Vec<FieldChange> {
        let (old, new) = (self.fields(), after.fields());
        let (mut earlier, mut later) = (missing_in(&old, &new), missing_in(&new, &old));
        let (old, new) = (self.override_fields(), after.override_fields());
        earlier.extend(missing_in(&old, &new));
        later.extend(missing_in(&new, &old));
        if earlier.is_empty() && later.is_empty() {
            // The same overrides in another order.
            (earlier, later) = (old, new);
        }
        paired(earlier, later)
    }

    /// Whether a later version of the rule continues with its states: it has the same key, and the
    /// same algorithm.
    #[must_use]
    pub fn keeps_state_as(&self, after: &Self) -> bool {
        let is_same_limit = self.limit.has_states_of(&after.limit);
        self.id == after.id && self.key == after.key && is_same_limit
    }

    /// Its fields but its overrides: names with the tables that they are in, and values.
    fn fields(&self) -> Vec<(String, String)> {
        let text = self.clone().with_overrides(Vec::new()).to_toml();
        fields_of(text.strip_prefix("[[rule]]\n").unwrap_or(&text))
    }

    fn override_fields(&self) -> Vec<(String, String)> {
        let table = |it| ("override".to_owned(), override_table(self, it));
        self.overrides.iter().map(table).collect()
    }
}

/// Pairs earlier and later values of fields.
fn paired(earlier: Vec<(String, String)>, mut later: Vec<(String, String)>) -> Vec<FieldChange> {
    let mut changes = Vec::with_capacity(earlier.len());
    for (field, before) in earlier {
        let at = later.iter().position(|(known, _)| *known == field);
        let after = at.map(|at| later.remove(at).1);
        changes.push(FieldChange::new(field, Some(before), after));
    }
    changes.extend(later.into_iter().map(|(field, it)| FieldChange::new(field, None, Some(it))));
    changes
}

fn missing_in(fields: &[(String, String)], others: &[(String, String)]) -> Vec<(String, String)> {
    let others: HashSet<&(String, String)> = others.iter().collect();
    fields.iter().filter(|field| !others.contains(field)).cloned().collect()
}

/// The fields of a text of TOML.
fn fields_of(text: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        add_fields("", table.get_ref(), text, &mut fields);
    }
    fields
}

fn add_fields(prefix: &str, table: &DeTable<'_>, text: &str, fields: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let name = format!("{prefix}{}", name.get_ref().escape_debug());
        match value.get_ref() {
            DeValue::Table(inner) => add_fields(&format!("{name}."), inner, text, fields),
            _ => {
                let value = text.get(value.span()).unwrap_or_default().replace('\n', " ");
                fields.push((name, value));
            }
        }
    }
}

#[cfg(test)]
mod tests;
