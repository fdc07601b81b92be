//! The audit log: changes at run time, and who made them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tidegate::policy::RuleId;
use tidegate::{
    StoreEngine, Timestamp,
    edit::{Change, Changed},
};
use tidegate_proto::times::time_text;

/// The last changes, numbered upwards from 1: edits of the policy, resets of keys, ends of rounds.
///
/// Numbers start anew with each start of the daemon; edits recovered from the store come first.
#[derive(Debug, Default)]
pub(crate) struct AuditTrail {
    log: Mutex<AuditRing>,
}

#[derive(Debug, Default)]
struct AuditRing {
    entries: VecDeque<AuditEntry>,
    last: u64,
}

/// One entry of the audit log.
#[derive(Clone, Debug)]
pub(crate) struct AuditEntry {
    number: u64,
    at: Timestamp,
    actor: Box<str>,
    act: AuditAction,
}

/// What was done.
#[derive(Clone, Debug)]
pub(crate) enum AuditAction {
    /// A rule, bans, or settings of all rules were changed.
    Edit(Box<Change>),
    /// The state of a key was dropped.
    Reset { domain: Box<str>, key: String },
    /// The states of all keys were dropped, of one domain or of all.
    ResetAll { domain: Option<Box<str>>, keys: u64 },
    /// A round was closed.
    Round { domain: Box<str>, closed: u64 },
}

impl AuditTrail {
    /// A log of the engine's stored edits and of every edit from now on.
    pub(crate) fn of(engine: &StoreEngine) -> Arc<Self> {
        let audit = Arc::new(Self::default());
        for change in engine.changes_since(0) {
            audit.push(change.at, &change.actor, AuditAction::Edit(Box::new(change.clone())));
        }
        let listener = Arc::clone(&audit);
        engine.on_change(move |change| {
            listener.add(change.at, &change.actor, AuditAction::Edit(Box::new(change.clone())));
        });
        audit
    }

    /// Adds an entry, and logs it.
    pub(crate) fn add(&self, at: Timestamp, actor: &str, act: AuditAction) {
        tracing::info!(actor, change = act.describe(), "changed");
        self.push(at, actor, act);
    }

    fn push(&self, at: Timestamp, actor: &str, act: AuditAction) {
        let mut log = self.lock();
        log.last += 1;
        let entry = AuditEntry { number: log.last, at, actor: actor.into(), act };
        if log.entries.len() == MOST {
            log.entries.pop_front();
        }
        log.entries.push_back(entry);
    }

    /// The number of the last change; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// The changes after the one with this number, oldest first.
    pub(crate) fn since(&self, number: u64) -> Vec<AuditEntry> {
        self.lock().entries.iter().filter(|entry| entry.number > number).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AuditRing> {
        // No panic leaves the log half changed.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditEntry {
    pub(crate) fn to_json(&self) -> Value {
        let mut json = json!({
            "number": self.number, "at": time_text(self.at), "actor": &*self.actor,
            "description": self.act.describe(),
        });
        match &self.act {
            AuditAction::Edit(change) => {
                json["what"] = match change.what {
                    Changed::Rule { .. } => "rule",
                    Changed::Bans { .. } => "bans",
                    _ => "server",
                }
                .into();
                json["domain"] = change.domain().into();
                json["rule"] = change.rule().map(RuleId::name).into();
                if !matches!(change.what, Changed::Server) {
                    json["before"] = change.before.clone().into();
                    json["after"] = change.after.clone().into();
                }
                if let Changed::Rule { starts_fresh, .. } = change.what {
                    json["starts_fresh"] = starts_fresh.into();
                }
            }
            AuditAction::Reset { domain, .. } => {
                json["what"] = "reset".into();
                json["domain"] = (**domain).into();
            }
            AuditAction::ResetAll { domain, keys } => {
                json["what"] = "reset".into();
                json["domain"] = domain.as_deref().into();
                json["keys"] = (*keys).into();
            }
            AuditAction::Round { domain, closed } => {
                json["what"] = "round".into();
                json["domain"] = (**domain).into();
                json["after"] = (*closed).into();
            }
        }
        json
    }
}

impl AuditAction {
    /// What was done, in one line.
    fn describe(&self) -> String {
        match self {
            Self::Reset { domain, key } => format!("in domain `{domain}` reset {key}"),
            Self::ResetAll { domain: Some(domain), keys } => {
                format!("in domain `{domain}` reset all keys ({keys})")
            }
            Self::ResetAll { domain: None, keys } => format!("reset all keys ({keys})"),
            Self::Round { domain, closed } => format!("round {closed} of domain `{domain}` closed"),
            Self::Edit(change) => change.description(),
        }
    }
}

/// The most entries; the engine keeps as many.
const MOST: usize = 1_024;
