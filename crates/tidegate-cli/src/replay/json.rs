//! The result of a replay as JSON.

use serde_json::{Map, Value, json};
use tidegate::{Timestamp, policy::Attributes};
use tidegate_replay::record::Position;
use tidegate_replay::{DeniedKey, FirstDenial, RuleCount};

use super::Replayed;
use crate::explanation::ExplainedRequest;
use crate::format;

impl Replayed<'_> {
    /// All numbers, in one object.
    pub(crate) fn json(&self) -> Value {
        let (counts, summary) = (self.replay.counts(), self.summary);
        let totals = counts.totals();
        let is_cut_short = summary.inputs.iter().any(|input| input.cut_short.is_some());
        json!({
            "domain": self.replay.domain(),
            "requests": totals.requests,
            "unreadable": summary.unreadable,
            "late": summary.late,
            "denied": totals.denied,
            "shadow_denied": totals.shadow_denied,
            "unmatched": totals.unmatched,
            "undecided": totals.undecided,
            "keys": counts.keys(),
            "keys_denied": counts.keys_denied(),
            "keys_are_estimates": counts.is_estimate(),
            "cut_short": is_cut_short,
            "first": totals.first_ns.map(time),
            "last": totals.first_ns.map(|_| time(totals.last_ns)),
            "inputs": self.inputs(),
            "rules": counts.rules().map(|rule| rule_json(&rule)).collect::<Value>(),
            "top_denied": counts.top_denied(self.top).iter().map(key_json).collect::<Value>(),
            "worst_minutes": self.minutes(),
            "first_denials":
                self.replay.first_denials().iter().map(|it| self.denial(it)).collect::<Value>(),
            "first_unreadable": self.unreadable(),
            "first_undecided": self.undecided(),
            "over_time": self.over_time(),
        })
    }

    fn inputs(&self) -> Value {
        let input = |it: &tidegate_replay::InputReport| {
            json!({
                "name": it.name,
                "format": it.format.map(tidegate_replay::LogFormat::name),
                "lines": it.lines,
                "cut_short": it.cut_short,
            })
        };
        self.summary.inputs.iter().map(input).collect()
    }

    fn minutes(&self) -> Value {
        let minute = |it: &tidegate_replay::WorstMinute| {
            json!({
                "minute": time(it.start_s.saturating_mul(1_000_000_000)),
                "allowed": it.bucket.allowed,
                "denied": it.bucket.denied,
                "shadow_denied": it.bucket.shadow_denied,
            })
        };
        self.replay.counts().worst_minutes().iter().map(minute).collect()
    }

    fn unreadable(&self) -> Value {
        let line = |it: &tidegate_replay::UnreadableLine| {
            json!({
                "input": self.input_name(it.position),
                "line": it.position.line,
                "reason": it.reason,
                "text": it.text,
            })
        };
        self.summary.first_unreadable.iter().map(line).collect()
    }

    fn undecided(&self) -> Value {
        let line = |(position, why): &(Position, String)| json!({ "input": self.input_name(*position), "line": position.line, "reason": why });
        self.replay.first_errors().iter().map(line).collect()
    }

    /// What a chart needs.
    fn over_time(&self) -> Value {
        let series = self.replay.counts().series();
        let of = |value: fn(&tidegate_replay::Bucket) -> u64| -> Value {
            series.buckets().iter().map(value).collect()
        };
        json!({
            "start": time(series.start_s().saturating_mul(1_000_000_000)),
            "width_s": series.width_s(),
            "allowed": of(|it| it.allowed),
            "denied": of(|it| it.denied),
            "shadow_denied": of(|it| it.shadow_denied),
        })
    }

    fn denial(&self, denial: &FirstDenial) -> Value {
        let mut json = Map::new();
        json.insert("input".into(), json!(self.input_name(denial.position)));
        json.insert("line".into(), json!(denial.position.line));
        json.insert("time".into(), json!(time(denial.time_ns)));
        let attributes = denial.attributes.iter();
        let attributes: Map<_, _> =
            attributes.map(|(name, value)| (name.to_string(), json!(value))).collect();
        json.insert("attributes".into(), Value::Object(attributes));
        json.insert("cost".into(), json!(denial.cost));
        self.explained(denial, |explained| {
            json.extend(explained.json(&denial.explanation));
        });
        Value::Object(json)
    }

    /// Calls a function with a denial as explanations need it.
    pub(super) fn explained<R>(
        &self,
        denial: &FirstDenial,
        then: impl FnOnce(ExplainedRequest<'_>) -> R,
    ) -> R {
        let attributes: Vec<(&str, &str)> =
            denial.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        then(ExplainedRequest {
            names: &self.names,
            domain: self.replay.domain(),
            attributes: Attributes::new(&attributes),
            now: Timestamp::from_nanos(denial.time_ns),
        })
    }

    pub(super) fn input_name(&self, position: Position) -> &str {
        let input = self.summary.inputs.get(position.input as usize);
        input.map_or("", |input| &input.name)
    }
}

fn rule_json(rule: &RuleCount) -> Value {
    json!({
        "name": rule.rule.name(),
        "mode": rule.mode.name(),
        "left_out": rule.is_left_out,
        "denied": rule.denied,
        "keys": rule.keys,
        "keys_denied": rule.keys_denied,
    })
}

pub(crate) fn key_json(key: &DeniedKey) -> Value {
    let parts = key.key.iter().map(|(name, value)| (name.to_string(), json!(value)));
    json!({
        "rule": key.rule.name(),
        "mode": key.mode.name(),
        "key": parts.collect::<Map<_, _>>(),
        "requests": key.requests,
        "denied": key.denied,
        "first": time(key.first_ns),
        "last": time(key.last_ns),
        "over_time": key.over_time.iter().map(|(start_s, denied)| json!([start_s, denied])).collect::<Value>(),
    })
}

/// A time since 1970.
pub(super) fn time(ns: u64) -> String {
    format::exact_time(Timestamp::from_nanos(ns))
}
