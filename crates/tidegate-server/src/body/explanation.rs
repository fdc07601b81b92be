//! Explanations of decisions as JSON: over HTTP, RESP, the local socket, and from `tidegate explain`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate::policy::{Charging, Mode};
use tidegate::{
    Report, Request, Timestamp, Wait,
    report::{Applies, Explanation, RuleExplanation},
};
use tidegate_proto::times::{RetryFields, reset_after_ms, time_text_rounded_up};

/// A decision in the fields that are printed.
#[derive(Clone, Debug)]
pub struct DecisionSummary {
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// The decisive rule.
    pub rule: Option<String>,
    /// The capacity of its limit.
    pub limit: Option<u64>,
    /// The remaining units.
    pub remaining: Option<u64>,
    /// How long to wait; `None` when allowed.
    pub wait: Option<Wait>,
    /// The time until the limit is full again; `None` if it is unknown.
    pub reset: Option<Duration>,
    /// Why it is denied.
    pub reason: Option<String>,
}

impl DecisionSummary {
    /// The decision of a report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        Self {
            is_allowed: report.is_allowed(),
            rule: report.rule().map(|rule| rule.name().to_owned()),
            limit: report.limit(),
            remaining: report.remaining(),
            wait: report.retry_after(),
            reset: report.reset(),
            reason: report.reason(),
        }
    }

    /// The fields as JSON. What does not apply is null.
    #[must_use]
    pub fn json(&self) -> Map<String, Value> {
        let RetryFields { retry_after_ms, retry } = RetryFields::new(self.wait);
        object(json!({
            "allowed": self.is_allowed,
            "rule": self.rule,
            "remaining": self.remaining,
            "limit": self.limit,
            "retry_after_ms": retry_after_ms,
            "retry": retry,
            "reset_after_ms": reset_after_ms(self.reset),
            "reason": self.reason,
        }))
    }
}

/// The decision of a check, and the part of every rule in it.
///
/// `why` describes why a rule does not apply.
pub fn explanation_fields(
    explanation: &Explanation,
    now: Timestamp,
    why: impl Fn(&RuleExplanation) -> String,
) -> Map<String, Value> {
    let decision = DecisionSummary::of(&explanation.report);
    let next = match decision.wait {
        None => Some(now),
        Some(Wait::After(wait)) => Some(now.saturating_add(wait)),
        Some(Wait::Never | Wait::Unknown) => None,
    };
    let mut fields = decision.json();
    if let Some(outage) = super::outage(&explanation.report) {
        fields.insert("outage".into(), json!(outage));
    }
    fields.insert("next_allowed".into(), json!(next.map(time_text_rounded_up)));
    let rules = explanation.rules.iter().map(|it| rule(it, &why));
    fields.insert("rules".into(), rules.collect());
    fields
}

/// The same, with the engine's own words for rules that do not apply.
pub(crate) fn explained(explanation: &Explanation, now: Timestamp) -> Map<String, Value> {
    explanation_fields(explanation, now, |it| it.applies.to_string())
}

/// The same, after the request that it is about.
pub(crate) fn explained_request(
    request: &Request<'_>,
    cost: u64,
    explanation: &Explanation,
    now: Timestamp,
) -> Map<String, Value> {
    let attributes = request.attributes();
    let pairs = attributes.iter().map(|(name, value)| (name.to_owned(), json!(value)));
    let mut fields = object(json!({
        "domain": request.domain(),
        "time": time_text_rounded_up(now),
        "attributes": pairs.collect::<Map<_, _>>(),
        "cost": cost,
    }));
    fields.extend(explained(explanation, now));
    fields
}

fn rule(it: &RuleExplanation, why: &impl Fn(&RuleExplanation) -> String) -> Value {
    let Applies::Yes { key, cost, override_index, mode, charging, decision } = &it.applies else {
        return json!({
            "rule": it.rule.name(),
            "applies": false,
            "denies": matches!(it.applies, Applies::Missing { denies: true, .. }),
            "why": why(it),
        });
    };
    let RetryFields { retry_after_ms, retry } = RetryFields::new(decision.retry_after());
    let key: Map<_, _> = key.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    let mut body = json!({
        "rule": it.rule.name(),
        "applies": true,
        "denies": !decision.is_allowed() && *mode == Mode::Enforce,
        "allowed": decision.is_allowed(),
        "mode": mode.name(),
        "key": key,
        "cost": cost,
        "override": override_index.map(|number| number + 1),
        "remaining": decision.remaining(),
        "limit": decision.limit(),
        "retry_after_ms": retry_after_ms,
        "retry": retry,
        "reset_after_ms": reset_after_ms(decision.reset()),
    });
    if *charging != Charging::Allowed {
        body["charging"] = charging.name().into();
    }
    body
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
