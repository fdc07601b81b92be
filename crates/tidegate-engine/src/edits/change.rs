//! The log of changes: what was changed, by whom, and what it was before.

use std::collections::VecDeque;

use tidegate_core::Timestamp;
use tidegate_policy::policy::RuleId;

use super::field_changes;

/// One entry of the log of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Changes are numbered upwards from 1.
    pub number: u64,
    /// When, by the wall clock.
    pub at: Timestamp,
    /// By whom, as given by the caller.
    pub actor: Box<str>,
    /// What was changed.
    pub what: Changed,
    /// Description of what it was before; `None`: it did not exist. Of a rule that was changed, the
    /// fields that differ.
    pub before: Option<String>,
    /// Description of what it is now; `None`: it was removed.
    pub after: Option<String>,
}

impl Change {
    /// The change in one line: `rule `a` of domain `b`: window.max 3 → 30`.
    #[must_use]
    pub fn description(&self) -> String {
        match (&self.what, &self.before, &self.after) {
            // The text of the table may contain the password of a store.
            (Changed::Server, ..) => "the [server] table".into(),
            (Changed::Rule { rule, .. }, Some(before), Some(after)) => {
                let fields = field_changes::describe(before, after);
                format!("rule {rule}: {fields}")
            }
            (_, Some(before), Some(after)) => format!("{before} → {after}"),
            (_, None, Some(after)) => format!("added: {after}"),
            (_, Some(before), None) => format!("removed: {before}"),
            (_, None, None) => "something".into(),
        }
    }

    /// The changed rule, if a rule was changed.
    #[must_use]
    pub fn rule(&self) -> Option<&RuleId> {
        match &self.what {
            Changed::Rule { rule, .. } => Some(rule),
            Changed::Bans { .. } | Changed::Server => None,
        }
    }

    /// The domain of the changed rule or ban, if any.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        match &self.what {
            Changed::Rule { rule, .. } => Some(rule.domain()),
            Changed::Bans { domain } => Some(domain),
            Changed::Server => None,
        }
    }
}

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// A rule was added, changed or removed.
    Rule {
        /// The rule.
        rule: RuleId,
        /// Whether its keys start with fresh states, because its key or algorithm changed.
        starts_fresh: bool,
    },
    /// A ban in a domain was added or removed.
    Bans {
        /// The domain.
        domain: Box<str>,
    },
    /// A setting of all rules: what happens to unmatched requests, or what share is enforced.
    Server,
}

/// The last changes, oldest first: those of an engine, of its folder, or of the records that it shares.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeLog(VecDeque<Change>);

impl ChangeLog {
    /// The number of the newest change; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.0.back().map_or(0, |newest| newest.number)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Change> {
        self.0.iter()
    }

    /// Adds the changes that are not in it yet, and returns them.
    pub(crate) fn add<'c>(&mut self, changes: impl IntoIterator<Item = &'c Change>) -> Vec<Change> {
        let last = self.last();
        let new = changes.into_iter().filter(|change| change.number > last);
        let new: Vec<Change> = new.cloned().collect();
        self.0.extend(new.iter().cloned());
        let excess = self.0.len().saturating_sub(MOST_CHANGES);
        self.0.drain(..excess);
        new
    }
}

const MOST_CHANGES: usize = 1_024;
