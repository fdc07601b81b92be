//! Runs cases and compares their decisions with the expected ones.

use serde_json::{Value, json};
use tidegate::policy::Policy;
use tidegate::{CheckError, Request, Wait};
use tidegate_proto::times::retry_word;
use tidegate_server::explanation::DecisionSummary;

use crate::cases::{Case, Expected, ExpectedVerdict};
use crate::format;
use crate::simulator::Simulator;

/// A case that was run.
#[derive(Debug)]
pub(super) struct CaseOutcome {
    pub(super) case: Case,
    /// Its number in the file, from 1.
    number: usize,
    /// The last decision that was compared.
    decision: Result<DecisionSummary, CheckError>,
    /// How the decision differs from the expected one.
    pub(super) problem: Option<String>,
}

/// Runs cases in order on one fresh engine.
pub(super) fn run(cases: Vec<Case>, policy: &Policy) -> Vec<CaseOutcome> {
    let Some(first) = cases.first() else { return Vec::new() };
    let simulator = Simulator::new(policy.clone(), first.at);
    let numbered = cases.into_iter().zip(1..);
    numbered.map(|(case, number)| run_one(case, number, &simulator)).collect()
}

fn run_one(case: Case, number: usize, simulator: &Simulator) -> CaseOutcome {
    simulator.set_time(case.at);
    if case.closes_round {
        simulator.close_round(&case.domain);
    }
    let attributes: Vec<(&str, &str)> =
        case.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
    let request = Request::new(&case.domain, &attributes).cost(case.cost);
    let mut turn = 1;
    let (decision, problem) = loop {
        let decision = simulator.decide(&request);
        let is_last = turn == case.repeat;
        let problem = problem(&case.expected, &decision, is_last);
        if is_last || problem.is_some() {
            let which = format!("request {turn} of {}: ", case.repeat);
            let which = if case.repeat > 1 { which } else { String::new() };
            break (decision, problem.map(|problem| which + &problem));
        }
        turn += 1;
    };
    CaseOutcome { case, number, decision, problem }
}

/// How a decision differs from the expected one. Numbers are compared after the last request only.
fn problem(
    expected: &Expected,
    decision: &Result<DecisionSummary, CheckError>,
    is_last: bool,
) -> Option<String> {
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => {
            return Some(format!(
                "expected {}, but the request cannot be decided: {error}",
                verdict(expected)
            ));
        }
    };
    let rule_differs = expected.rule.is_some() && expected.rule != decision.rule;
    if (expected.verdict == ExpectedVerdict::Allow) != decision.is_allowed || rule_differs {
        return Some(format!("expected {}, got {}", verdict(expected), describe(decision)));
    }
    if !is_last {
        return None;
    }
    let mut differences = Vec::new();
    if let Some(remaining) = expected.remaining
        && decision.remaining != Some(remaining)
    {
        let got = decision.remaining.map_or("none".into(), |it| it.to_string());
        differences.push(format!("expected remaining = {remaining}, got {got}"));
    }
    if let Some(wait) = expected.wait
        && !decision.wait.is_some_and(|got| is_same(wait, got))
    {
        let got = decision.wait.map_or("none".into(), wait_text);
        differences.push(format!("expected retry_after = {}, got {got}", wait_text(wait)));
    }
    (!differences.is_empty()).then(|| differences.join("; "))
}

/// Compares waits in their wire format: milliseconds, rounded up.
fn is_same(expected: Wait, got: Wait) -> bool {
    match (expected, got) {
        (Wait::After(expected), Wait::After(got)) => {
            format::whole_ms(expected) == format::whole_ms(got)
        }
        (expected, got) => expected == got,
    }
}

/// A wait in the syntax of a test file.
fn wait_text(wait: Wait) -> String {
    format!("\"{}\"", wait_value(wait))
}

/// A wait as the value of `retry_after`: a duration, or a word.
fn wait_value(wait: Wait) -> String {
    match wait {
        Wait::After(wait) => format::duration(wait),
        wait => retry_word(wait).unwrap_or_default().into(),
    }
}

fn verdict(expected: &Expected) -> String {
    let rule = expected.rule.as_ref().map(|rule| format!(" by `{rule}`")).unwrap_or_default();
    match expected.verdict {
        ExpectedVerdict::Allow => format!("allow{rule}"),
        ExpectedVerdict::Deny => format!("deny{rule}"),
    }
}

/// A decision in the terms of a test file.
fn describe(decision: &DecisionSummary) -> String {
    let by = decision.rule.as_ref().map(|rule| format!(" by `{rule}`")).unwrap_or_default();
    let left = match (decision.remaining, decision.limit) {
        (Some(left), Some(limit)) => format!("{left} of {limit} remaining"),
        _ => match (&decision.rule, &decision.reason) {
            (_, Some(reason)) => format::visible(reason),
            (_, None) => "no rule applies".into(),
        },
    };
    match decision.wait {
        None => format!("allow{by} ({left})"),
        Some(wait) => format!("deny{by} ({left}, retry_after = {})", wait_text(wait)),
    }
}

impl CaseOutcome {
    pub(super) const fn passed(&self) -> bool {
        self.problem.is_none()
    }

    /// The name of the case, or its number.
    pub(super) fn title(&self) -> String {
        match &self.case.name {
            Some(name) => format!("`{}`", name.escape_debug()),
            None => format!("case {}", self.number),
        }
    }

    pub(super) fn json(&self) -> Value {
        let Case { name, position, at, domain, expected, .. } = &self.case;
        json!({
            "name": name,
            "number": self.number,
            "line": position.line,
            "column": position.column,
            "ok": self.passed(),
            "at": format::time(*at),
            "domain": domain,
            "expected": {
                "allowed": expected.verdict == ExpectedVerdict::Allow,
                "rule": expected.rule,
                "remaining": expected.remaining,
                "retry_after": expected.wait.map(wait_value),
            },
            "got": self.decision.as_ref().map_or(Value::Null, |it| Value::Object(it.json())),
            "problem": self.problem,
        })
    }
}
