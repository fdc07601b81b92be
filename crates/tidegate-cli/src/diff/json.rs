//! A difference as JSON.

use serde_json::{Map, Value, json};
use tidegate::policy::{FieldChange, RuleChange, RuleDifference};

use super::Diff;
use super::effect::{Effect, KeyChange, KeyEffect, PolicyEffect};

impl Diff {
    pub(crate) fn json(&self) -> Value {
        json!({
            "same": self.difference.is_empty(),
            "rules": self.difference.rules.iter().map(rule).collect::<Value>(),
            "settings": self.difference.settings.iter().map(field).collect::<Value>(),
            "effect": self.effect.as_ref().map(|it| effect(it, self.top)),
        })
    }
}

fn rule(rule: &RuleDifference) -> Value {
    let (change, description, fields) = match &rule.change {
        RuleChange::Added(text) => ("added", Some(text), &[][..]),
        RuleChange::Removed(text) => ("removed", Some(text), &[][..]),
        RuleChange::Changed(fields) => ("changed", None, &**fields),
    };
    json!({
        "domain": rule.rule.domain(),
        "rule": rule.rule.name(),
        "change": change,
        "starts_fresh": rule.starts_fresh,
        "description": description,
        "fields": fields.iter().map(field).collect::<Value>(),
    })
}

fn field(change: &FieldChange) -> Value {
    json!({
        "field": change.field,
        "before": change.before,
        "after": change.after,
        "line": change.to_string(),
    })
}

fn effect(effect: &Effect, top: usize) -> Value {
    let mut json = json!({
        "requests": effect.new.totals.requests,
        "unreadable": effect.unreadable,
        "late": effect.late,
        "cut_short": effect.is_cut_short,
        "keys_are_estimates": effect.is_estimate,
        "old": policy(&effect.old),
        "new": policy(&effect.new),
    });
    for kind in KeyChange::ALL {
        let keys = effect.keys(kind).take(top).map(key);
        json[kind.name()] =
            json!({ "keys": effect.keys(kind).count(), "top": keys.collect::<Value>() });
    }
    json
}

fn policy(effect: &PolicyEffect) -> Value {
    json!({
        "denied": effect.totals.denied,
        "shadow_denied": effect.totals.shadow_denied,
        "keys_denied": effect.keys_denied,
    })
}

fn key(key: &KeyEffect) -> Value {
    let parts = key.key.iter().map(|(name, value)| (name.to_string(), json!(value)));
    json!({
        "key": parts.collect::<Map<_, _>>(),
        "old_denied": key.old_denied,
        "new_denied": key.new_denied,
    })
}
