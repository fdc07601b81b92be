//! What an edit would change, and what it would have changed in the last minutes.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate::policy::{Override, Policy, Rule, RuleChange, RuleDifference, RuleId};
use tidegate::{Timestamp, report::KeyName};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::edits::{domain, nothing_else, text};
use super::estimate::{Estimate, RuleEdit, opening_matters};
use super::policy::{find, patched};
use super::response::diagnostic;
use super::{AdminError, Payload};
use crate::daemon::{Daemon, SharedDaemon};
use crate::traffic::RuleSample;

/// An edit that may be made.
struct Proposal {
    /// What it changes, one line for each field.
    lines: Vec<String>,
    warnings: Vec<Value>,
    rules: Vec<ProposedRule>,
}

/// A rule that would change.
struct ProposedRule {
    id: RuleId,
    description: String,
    starts_fresh: bool,
    /// Before and after, or why there is no estimate.
    edit: Result<(Rule, Rule), &'static str>,
}

/// Waits for the turn of a preview: its body is decoded after that.
pub(super) async fn turn() -> Result<SemaphorePermit<'static>, AdminError> {
    ONE_PREVIEW.acquire().await.map_err(|_| AdminError::outage())
}

/// `POST preview`, in its [turn].
pub(super) async fn preview(daemon: &SharedDaemon, payload: Payload) -> Result<Value, AdminError> {
    let proposal = {
        let daemon = Arc::clone(daemon);
        // A policy may be large, so it must not block a worker of the runtime.
        let read = tokio::task::spawn_blocking(move || Proposal::read(&daemon, payload));
        read.await.map_err(|_| AdminError::outage())??
    };
    let mut rules = Vec::with_capacity(proposal.rules.len());
    for (index, rule) in proposal.rules.into_iter().enumerate() {
        let ProposedRule { id, description, starts_fresh, edit } = rule;
        let edit = if index < MOST_ESTIMATES { edit } else { Err("too many rules would change") };
        let estimate = match edit {
            Ok((before, after)) => estimated(daemon, &id, before, after).await?,
            Err(why) => Err(why.to_owned()),
        };
        let (estimate, why_not) = match estimate {
            Ok(estimate) => (Some(estimate.to_json(daemon)), None),
            Err(why) => (None, Some(why)),
        };
        rules.push(json!({
            "domain": id.domain(), "rule": id.name(), "description": description,
            "starts_fresh": starts_fresh, "estimate": estimate, "why_not": why_not,
        }));
    }
    Ok(json!({ "lines": proposal.lines, "warnings": proposal.warnings, "rules": rules }))
}

impl Proposal {
    fn read(daemon: &Daemon, payload: Payload) -> Result<Self, AdminError> {
        if let Payload::Toml(text) = &payload
            && text.contains("[[rule]]")
        {
            return Self::of_policy(daemon, text);
        }
        let mut table = payload.table()?;
        if let Some(policy) = table.remove("policy") {
            nothing_else(&table)?;
            let Value::String(policy) = policy else {
                return Err(AdminError::unfit("`policy` is not text"));
            };
            return Self::of_policy(daemon, &policy);
        }
        let (domain, name) = (domain(&mut table)?, text(&mut table, "rule")?);
        let change = match table.remove("change") {
            Some(Value::Object(change)) => change,
            _ => {
                let detail =
                    "`change` is missing: a table of fields of the rule; or send a `policy`";
                return Err(AdminError::unfit(detail));
            }
        };
        nothing_else(&table)?;
        let before = find(daemon, &domain, &name)?;
        let after = patched(&before, change)?;
        let lines = before.changed_fields(&after).into_iter();
        let id = before.id().clone();
        Ok(Self {
            lines: lines.map(|field| format!("rule {id}: {field}")).collect(),
            warnings: Vec::new(),
            rules: vec![ProposedRule::changed(before, after)],
        })
    }

    fn of_policy(daemon: &Daemon, text: &str) -> Result<Self, AdminError> {
        // Clients that may only look must not be able to fill the memory.
        let is_mark = |byte: &&u8| matches!(**byte, b',' | b'=' | b'[' | b'{');
        let marks = text.as_bytes().iter().filter(is_mark).count();
        if text.len() > MOST_POLICY_BYTES || marks > MOST_POLICY_VALUES {
            let detail = format!(
                "a preview has at most {MOST_POLICY_BYTES} bytes and {MOST_POLICY_VALUES} values: compare \
                 larger policies with `tidegate diff`"
            );
            return Err(AdminError::unfit(detail));
        }
        let parsed = Policy::parse("policy.toml", text.as_bytes())?;
        let (policy, overlay) = (daemon.engine.policy(), daemon.engine.overlay());
        let rules_of = |policy: &Policy| -> HashMap<RuleId, Rule> {
            policy.rules().iter().map(|rule| (rule.id().clone(), rule.clone())).collect()
        };
        let (mut before, mut after) = (rules_of(&policy), rules_of(&parsed.policy));
        let mut lines = Vec::new();
        let mut rules = Vec::new();
        for difference in policy.rule_differences(&parsed.policy) {
            lines.extend(lines_of(&difference));
            let RuleDifference { rule: id, starts_fresh, .. } = difference;
            let is_edited = overlay.rules().any(|edited| *edited.id() == id);
            let rule = match (before.remove(&id), after.remove(&id)) {
                (Some(_), Some(after)) if is_edited => {
                    let why = "an edit at run time is in force over this rule, and stays";
                    ProposedRule::unknown(after.describe(), id, starts_fresh, why)
                }
                (Some(before), Some(after)) => ProposedRule::changed(before, after),
                (None, Some(after)) => {
                    let why = "the rule is new: no requests are known that it would have counted";
                    ProposedRule::unknown(after.describe(), id, starts_fresh, why)
                }
                (Some(before), None) => {
                    let why = "the rule would be gone, and deny nothing any more";
                    ProposedRule::unknown(before.describe(), id, starts_fresh, why)
                }
                (None, None) => continue,
            };
            rules.push(rule);
        }
        let warnings = parsed.warnings.iter().map(diagnostic).collect();
        Ok(Self { lines, warnings, rules })
    }
}

impl ProposedRule {
    fn changed(before: Rule, after: Rule) -> Self {
        Self {
            id: before.id().clone(),
            description: after.describe(),
            starts_fresh: !before.keeps_state_as(&after),
            edit: Ok((before, after)),
        }
    }

    fn unknown(description: String, id: RuleId, starts_fresh: bool, why: &'static str) -> Self {
        Self { id, description, starts_fresh, edit: Err(why) }
    }
}

/// The lines of a difference, as `tidegate diff` has them.
fn lines_of(difference: &RuleDifference) -> Vec<String> {
    let rule = &difference.rule;
    match &difference.change {
        RuleChange::Added(text) => vec![format!("rule {rule} added: {text}")],
        RuleChange::Removed(text) => vec![format!("rule {rule} removed: {text}")],
        RuleChange::Changed(fields) => {
            fields.iter().map(|field| format!("rule {rule}: {field}")).collect()
        }
    }
}

/// What an edit would have changed for the requests in the sample.
async fn estimated(
    daemon: &SharedDaemon,
    id: &RuleId,
    before: Rule,
    after: Rule,
) -> Result<Result<Estimate, String>, AdminError> {
    let overrides: Vec<Override> = {
        let overlay = daemon.engine.overlay();
        let of_rule = overlay.overrides().filter(|(rule, _)| *rule == id);
        of_rule.map(|(_, given)| given.clone()).collect()
    };
    let edit = match RuleEdit::new(&before, &after, overrides) {
        Ok(edit) => edit,
        Err(why) => return Ok(Err(why)),
    };
    let Some(sample) = daemon.traffic.sample.of_rule(id) else {
        return Ok(Err("no request of this rule is in the sample".into()));
    };
    let until = daemon.wall();
    let used = match opening_matters(&before) {
        true => used_now(daemon, &sample).await,
        false => HashMap::new(),
    };
    // It takes up to a second, so it must not block a worker of the runtime.
    let run = tokio::task::spawn_blocking(move || edit.estimate(sample, &used, until));
    run.await.map_err(|_| AdminError::outage())
}

/// What the keys of a sample have used by now.
async fn used_now(daemon: &Daemon, sample: &RuleSample) -> HashMap<KeyName, u64> {
    let mut used = HashMap::new();
    for key in sample.keys.iter().take(MOST_KEYS_USED) {
        if let Ok(Some(usage)) = daemon.engine.usage_of_key(&key.name).await {
            used.insert((*key.name).clone(), usage.used.saturating_add(usage.held));
        }
    }
    used
}

impl Estimate {
    fn to_json(&self, daemon: &Daemon) -> Value {
        let time = |at: Timestamp| tidegate_proto::times::time_text(at);
        let top = self.top.iter().map(|key| {
            let shown = daemon.metrics.top.printable(&key.name);
            let shown: serde_json::Map<_, _> =
                shown.key.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
            json!({
                "key": shown, "requests": key.requests,
                "denied_before": key.denied_before, "denied_after": key.denied_after,
            })
        });
        json!({
            "since": time(self.since), "until": time(self.until),
            "sampled_keys": self.sampled_keys, "keys": self.keys,
            "share": self.share(), "is_exact": self.is_exact,
            "requests": self.requests,
            "denied_before": self.denied_before, "denied_after": self.denied_after,
            "newly_denied": self.newly_denied, "no_longer_denied": self.no_longer_denied,
            "keys_newly_denied": self.keys_newly_denied,
            "keys_no_longer_denied": self.keys_no_longer_denied,
            "top": top.collect::<Vec<_>>(),
        })
    }
}

/// A preview decides up to a million requests twice; one at a time is enough.
static ONE_PREVIEW: Semaphore = Semaphore::const_new(1);

/// How large a policy may be: thousands of rules. In memory a value takes some hundred bytes.
const MOST_POLICY_BYTES: usize = 1 << 20;
const MOST_POLICY_VALUES: usize = 65_536;

/// How many rules of a policy get an estimate.
const MOST_ESTIMATES: usize = 16;
/// How many keys are looked up in the store.
const MOST_KEYS_USED: usize = 2_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidegate::policy::{Parsed, Policy};

    use super::{MOST_POLICY_VALUES, Payload, preview};
    use crate::admin::payload::tests::while_blocking_threads_are_busy;
    use crate::daemon::Daemon;
    use crate::settings::Settings;

    const RULE: &str = "[[rule]]\nname = 'r'\nwindow = { max = 1, per = '1h' }\n";

    fn daemon() -> Arc<Daemon> {
        let policy = Policy::from_toml(RULE).unwrap();
        let engine = tidegate::StoreEngine::new(policy.clone());
        Arc::new(Daemon::new(engine, Settings::on_free_ports(Parsed::from_code(policy))))
    }

    #[tokio::test]
    async fn a_policy_of_too_many_values_is_not_parsed() {
        let daemon = daemon();
        let large = format!("{RULE}key = [{}]\n", "'a',".repeat(MOST_POLICY_VALUES));
        for payload in [Payload::Toml(large.clone()), Payload::Json(json!({ "policy": large }))] {
            let error = preview(&daemon, payload).await.expect_err("it is too large");
            assert!(format!("{error:?}").contains("a preview has at most"), "{error:?}");
        }
        let long = format!("{RULE}# {}\n", "x".repeat(super::MOST_POLICY_BYTES));
        assert!(preview(&daemon, Payload::Toml(long)).await.is_err());
    }

    #[test]
    fn a_policy_is_read_on_a_thread_that_may_block() {
        let (daemon, text) = (daemon(), RULE);
        let done = while_blocking_threads_are_busy(preview(&daemon, Payload::Toml(text.into())));
        assert_eq!(done.expect("a preview")["lines"], json!([]));
    }
}
