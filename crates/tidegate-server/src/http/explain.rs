//! Explanations of decisions, in the JSON form of `tidegate explain`.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate::policy::{Mode, RuleId};
use tidegate::{Applies, Clock, Explanation, RuleExplanation, Timestamp, Wait};

use super::BufferedRequest;
use super::problem::RequestProblem;
use super::request_body::{RESERVE, RequestBody};
use super::response::{self, HttpResponse};
use crate::body::{retry, whole_ms};

/// `POST /v1/explain`
pub(super) fn explain(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, body, .. } = call;
    let fields = RequestBody::read(body, RESERVE, 0)?;
    let pairs = fields.pairs();
    let now = daemon.engine.clock().wall();
    let explanation = daemon.engine.explain(&fields.request(&pairs))?;
    let mut json = Map::new();
    json.insert("domain".into(), json!(fields.domain()));
    json.insert("time".into(), json!(time(now)));
    let attributes: Map<_, _> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json.insert("attributes".into(), Value::Object(attributes));
    json.insert("cost".into(), json!(fields.cost.unwrap_or(1)));
    json.extend(explanation_fields(&explanation, now));
    Ok(response::json(StatusCode::OK, &json))
}

/// The decision of a check, and the part of every rule in it.
pub(crate) fn explanation_fields(explanation: &Explanation, now: Timestamp) -> Map<String, Value> {
    let report = &explanation.report;
    let next = match report.retry_after() {
        None => Some(now),
        Some(Wait::After(wait)) => Some(now.saturating_add(wait)),
        Some(Wait::Never | Wait::Unknown) => None,
    };
    let (retry_after_ms, retry) = retry(report.retry_after());
    object(json!({
        "allowed": report.is_allowed(),
        "rule": report.rule().map(RuleId::name),
        "remaining": report.remaining(),
        "limit": report.limit(),
        "retry_after_ms": retry_after_ms,
        "retry": retry,
        "reset_after_ms": report.reset().and_then(whole_ms),
        "reason": report.reason(),
        "next_allowed": next.map(time),
        "rules": explanation.rules.iter().map(rule).collect::<Vec<_>>(),
    }))
}

fn rule(it: &RuleExplanation) -> Value {
    let Applies::Yes { key, cost, override_index, mode, decision } = &it.applies else {
        return json!({
            "rule": it.rule.name(),
            "applies": false,
            "denies": matches!(it.applies, Applies::Missing { denies: true, .. }),
            "why": it.applies.to_string(),
        });
    };
    let (retry_after_ms, retry) = retry(decision.retry_after());
    let key: Map<_, _> = key.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    json!({
        "rule": it.rule.name(),
        "applies": true,
        "denies": !decision.is_allowed() && *mode == Mode::Enforce,
        "allowed": decision.is_allowed(),
        "mode": if *mode == Mode::Shadow { "shadow" } else { "enforce" },
        "key": key,
        "cost": cost,
        "override": override_index.map(|number| number + 1),
        "remaining": decision.remaining(),
        "limit": decision.limit(),
        "retry_after_ms": retry_after_ms,
        "retry": retry,
        "reset_after_ms": whole_ms(decision.reset()),
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// A time since 1970 as in RFC 3339, in whole milliseconds, rounded up.
fn time(at: Timestamp) -> String {
    let ms = i64::try_from(at.as_nanos().div_ceil(NS_PER_MS)).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX).to_string()
}

const NS_PER_MS: u64 = 1_000_000;
