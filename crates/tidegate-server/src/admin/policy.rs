//! The policy in force, and its rules.

use serde_json::{Value, json};
use tidegate::Edit;
use tidegate::policy::{Limit, Policy, Rule};

use super::payload::{Payload, TomlTable, merge, rule_of, table_of};
use super::response::diagnostic;
use super::{AdminError, RuleName};
use crate::daemon::Daemon;
use crate::reload::{FileSettings, needs_restart};

/// The policy and the overlay as TOML, without secrets.
pub(super) fn show(daemon: &Daemon) -> Value {
    let engine = &daemon.engine;
    json!({
        "policy": engine.policy().to_toml_with(&daemon.file_settings().without_secrets()),
        "overlay": engine.overlay().to_toml(),
        "version": daemon.audit.last(),
        "file": daemon.settings.policy_path,
    })
}

/// Puts another policy into force, until the file changes or the daemon stops.
pub(super) fn apply(daemon: &Daemon, actor: &str, payload: Payload) -> Result<Value, AdminError> {
    let text = match payload {
        Payload::Toml(text) => text,
        Payload::Json(Value::Object(table)) => match table.get("policy") {
            Some(Value::String(text)) if table.len() == 1 => text.clone(),
            _ => {
                return Err(AdminError::unfit(
                    "the body is not a policy: send TOML, or {\"policy\": \"…\"}",
                ));
            }
        },
        Payload::Json(_) | Payload::Nothing => {
            return Err(AdminError::unreadable("the body is missing: send a policy in TOML"));
        }
    };
    let parsed = Policy::parse("policy.toml", text.as_bytes())?;
    let warnings: Vec<_> = parsed.warnings.iter().map(diagnostic).collect();
    // A client that edits the policy from `GET` has no secrets to send.
    let started = &daemon.settings;
    let (before, after) = (started.server.without_secrets(), parsed.server.without_secrets());
    let needs_restart = needs_restart(
        FileSettings { engine: started.policy.settings(), server: &before },
        FileSettings { engine: parsed.policy.settings(), server: &after },
    );
    if let Some(redis) = &started.redis {
        redis.check_durability(&parsed.policy).map_err(|it| AdminError::unfit(it.to_string()))?;
    }
    let replace = || daemon.engine.edit(actor, Edit::policy(parsed.policy)).block();
    let changes = daemon.reload.replace(parsed.server, replace)?;
    if daemon.settings.policy_path.is_some() {
        daemon.reload.replaced();
    }
    Ok(json!({
        "changes": changes.len(), "warnings": warnings, "needs_restart": needs_restart,
        "version": daemon.audit.last(),
        "until": if daemon.settings.policy_path.is_some() {
            "the policy file changes, or the daemon restarts"
        } else {
            "the daemon restarts"
        },
    }))
}

/// The rules in force, in their order.
pub(super) fn rules(daemon: &Daemon) -> Value {
    let tallies = daemon.engine.tallies();
    let rules = in_force(daemon).into_iter().map(|EffectiveRule { rule, origin }| {
        let mut count = (0, 0);
        for tally in tallies.iter().filter(|it| it.rule == *rule.id()) {
            count = (count.0 + tally.allowed, count.1 + tally.denied);
        }
        json!({
            "domain": rule.domain(), "name": rule.name(), "description": rule.describe(),
            "mode": rule.mode().name(),
            "origin": origin, "rule": table_of(&rule),
            "allowed": count.0, "denied": count.1,
        })
    });
    json!({ "rules": rules.collect::<Vec<_>>(), "version": daemon.audit.last() })
}

/// Changes fields of a rule. It is an edit over the policy, so it stays when the file changes.
pub(super) fn patch(
    daemon: &Daemon,
    actor: &str,
    RuleName { domain, name }: &RuleName,
    payload: Payload,
) -> Result<Value, AdminError> {
    let changed = patched(&find(daemon, domain, name)?, payload.table()?)?;
    let description = changed.describe();
    let changes = daemon.engine.edit(actor, Edit::rule(changed)).block()?;
    let starts_fresh = changes
        .iter()
        .any(|it| matches!(it.what, tidegate::edit::Changed::Rule { starts_fresh: true, .. }));
    Ok(json!({
        "changes": changes.len(), "description": description, "starts_fresh": starts_fresh,
        "version": daemon.audit.last(),
    }))
}

/// A rule with some fields changed; null removes one.
pub(super) fn patched(rule: &Rule, over: TomlTable) -> Result<Rule, AdminError> {
    for fixed in ["name", "domain"] {
        if over.contains_key(fixed) {
            return Err(AdminError::unfit(format!(
                "`{fixed}` cannot be changed: it identifies the rule"
            )));
        }
    }
    let mut table = table_of(rule);
    // A rule has one limit, so one of another kind replaces it.
    let is_other = |name: &String| Limit::is_algorithm(name) && !table.contains_key(name);
    if over.keys().any(is_other) {
        table.retain(|name, _| !Limit::is_algorithm(name));
    }
    merge(&mut table, over);
    rule_of(table)
}

/// The rule in force with this name.
pub(super) fn find(daemon: &Daemon, domain: &str, name: &str) -> Result<Rule, AdminError> {
    let rules = in_force(daemon).into_iter().map(|it| it.rule);
    let mut named = rules.filter(|it| (it.domain(), it.name()) == (domain, name));
    named.next().ok_or_else(|| {
        let detail = format!("no rule {name:?} in domain {domain:?}");
        AdminError::new(404, "Not Found", detail)
    })
}

/// A rule in force and its origin, without overrides of the overlay.
struct EffectiveRule {
    rule: Rule,
    origin: &'static str,
}

fn in_force(daemon: &Daemon) -> Vec<EffectiveRule> {
    let (policy, overlay) = (daemon.engine.policy(), daemon.engine.overlay());
    let same =
        |one: &Rule, other: &Rule| (one.domain(), one.name()) == (other.domain(), other.name());
    let of_policy =
        policy.rules().iter().map(|rule| match overlay.rules().find(|edited| same(edited, rule)) {
            Some(edited) => EffectiveRule { rule: edited.clone(), origin: "edited" },
            None => EffectiveRule { rule: rule.clone(), origin: "policy" },
        });
    let is_added = |rule: &&Rule| !policy.rules().iter().any(|known| same(known, rule));
    let added = overlay.rules().filter(is_added);
    let added = added.map(|rule| EffectiveRule { rule: rule.clone(), origin: "added" });
    of_policy.chain(added).filter(|it| !it.rule.is_placeholder()).collect()
}

/// The table of a rule without its overrides.
pub(super) fn without_overrides(mut table: TomlTable) -> TomlTable {
    table.remove("override");
    table
}
