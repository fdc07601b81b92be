//! Explanations as text, the same for `explain` and `replay`.

use std::io::{self, Write};

use serde_json::{Map, Value};
use tidegate::policy::{Charging, Condition, Limit, Mode, Periods, Rule};
use tidegate::{
    Decision, Timestamp, Wait,
    policy::Attributes,
    report::{Applies, Explanation, RuleExplanation},
};
use tidegate_server::explanation::{DecisionSummary, explanation_fields};

use crate::format;
use crate::rule_index::RuleIndex;

/// A request whose decision is explained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExplainedRequest<'a> {
    pub(crate) names: &'a RuleIndex<'a>,
    pub(crate) domain: &'a str,
    pub(crate) attributes: Attributes<'a>,
    pub(crate) now: Timestamp,
}

impl ExplainedRequest<'_> {
    /// Writes the decision, and the part of every rule in it.
    pub(crate) fn write(&self, explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
        let decision = DecisionSummary::of(&explanation.report);
        let rule = decision.rule.as_deref();
        match (decision.is_allowed, rule) {
            (true, Some(rule)) => {
                writeln!(out, "allowed; lowest remaining: rule `{rule}`")?;
            }
            (true, None) => writeln!(out, "allowed; no rule limits it")?,
            (false, Some(rule)) => writeln!(out, "denied by rule `{rule}`{}", self.why(&decision))?,
            (false, None) => writeln!(out, "denied{}", self.why(&decision))?,
        }
        writeln!(out, "next allowed: {}", self.next(&decision))?;
        let mut rules = explanation.rules.iter().peekable();
        if rules.peek().is_some() {
            writeln!(out, "\nrules of domain `{}`:", format::visible(self.domain))?;
        }
        let mut unmatched = 0;
        for it in rules {
            unmatched += usize::from(matches!(it.applies, Applies::NoMatch { .. }));
            if unmatched <= MOST_UNMATCHED || !matches!(it.applies, Applies::NoMatch { .. }) {
                writeln!(
                    out,
                    "  {}: {}",
                    it.rule.name(),
                    self.applies(it.rule.name(), &it.applies)
                )?;
            }
        }
        match unmatched.saturating_sub(MOST_UNMATCHED) {
            0 => Ok(()),
            more => {
                writeln!(out, "  and {more} more that do not match; --format json lists all")
            }
        }
    }

    /// The fields of the explanation, as every protocol has them.
    pub(crate) fn json(&self, explanation: &Explanation) -> Map<String, Value> {
        let why = |it: &RuleExplanation| self.applies(it.rule.name(), &it.applies);
        explanation_fields(explanation, self.now, why)
    }

    /// The reason of the rule. Without one, the rest of the output is more precise.
    fn why(&self, decision: &DecisionSummary) -> String {
        let rule = decision.rule.as_deref().and_then(|name| self.rule(name));
        match (rule.map(Rule::deny_reason), decision.limit) {
            (Some(None), Some(_)) => String::new(),
            _ => decision
                .reason
                .as_deref()
                .map(|why| format!(": {}", format::visible(why)))
                .unwrap_or_default(),
        }
    }

    fn next(&self, decision: &DecisionSummary) -> String {
        match decision.wait {
            None => "now".into(),
            Some(Wait::After(wait)) => {
                let at = format::time(self.now.saturating_add(wait));
                format!("after {}, at {at}", format::duration(wait))
            }
            Some(Wait::Never) => "never; no wait helps".into(),
            Some(Wait::Unknown) => {
                unknown_wait(decision.rule.as_deref().and_then(|name| self.rule(name))).into()
            }
        }
    }

    fn rule(&self, name: &str) -> Option<&Rule> {
        self.names.rule(self.domain, name)
    }

    /// The conditions of a rule that the request does not meet.
    fn failed(&self, rule: &str) -> Vec<String> {
        let attributes = &self.attributes;
        let conditions = self.rule(rule).map(Rule::conditions).unwrap_or_default();
        let failed = conditions.iter().filter(|condition| !condition.holds(attributes));
        failed
            .map(|condition| {
                let (name, wanted) = (condition.attribute(), wanted(condition));
                // One line per rule, whatever the values contain.
                format::visible(&match attributes.get(name) {
                    Some(value) => format!("`{name}` is {value:?}, not {wanted}"),
                    None => format!("`{name}` is missing, expected {wanted}"),
                })
            })
            .collect()
    }

    fn applies(&self, rule: &str, applies: &Applies) -> String {
        match applies {
            Applies::Yes { key, cost, override_index, mode, charging, decision } => {
                let override_index = override_index
                    .map(|number| format!("\n    override: {}", number + 1))
                    .unwrap_or_default();
                let charging = match charging {
                    Charging::Allowed => "",
                    Charging::Refused => "\n    charges: denied requests as well",
                    Charging::Postpaid => "\n    charges: costs in full, whatever is left",
                };
                format!(
                    "{}\n    key: {}{override_index}{charging}\n    state: {}",
                    verdict(*mode, decision, self.rule(rule)),
                    key_text(key),
                    state(*cost, decision),
                )
            }
            Applies::NoMatch { .. } => {
                format!("does not match: {}", self.failed(rule).join("; "))
            }
            Applies::Grouped { first } => {
                format!("does not apply: `{}` matches first in its group", first.name())
            }
            Applies::Missing { attribute, denies: true } => {
                format!("denies it: `{attribute}`, which its key needs, is missing")
            }
            Applies::Missing { attribute, denies: false } => {
                format!("does not apply: `{attribute}`, which its key needs, is missing")
            }
            Applies::NotCovered { attribute, value } => {
                let why = match value {
                    Some(value) => format!("does not cover `{attribute}` = {value:?}"),
                    None => format!("needs `{attribute}`, which is missing"),
                };
                let why = format::visible(&why);
                format!("does not apply, as it is in shadow mode: its cost table {why}")
            }
            Applies::Unlimited { override_index } => {
                format!("does not limit it: override {} is unlimited", override_index + 1)
            }
            other => other.to_string(),
        }
    }
}

fn verdict(mode: Mode, decision: &Decision, rule: Option<&Rule>) -> String {
    let denies = match mode {
        Mode::Enforce => "denies it",
        Mode::Shadow => "would deny it, but is in shadow mode",
    };
    match decision.retry_after() {
        None => "allows it".into(),
        Some(Wait::After(wait)) => format!("{denies}; retry after {}", format::duration(wait)),
        Some(Wait::Never) => format!("{denies}; no wait helps"),
        Some(Wait::Unknown) => format!("{denies}; retry {}", unknown_wait(rule)),
    }
}

fn key_text(key: &[(Box<str>, Option<Box<str>>)]) -> String {
    if key.is_empty() {
        return "none; one state for all requests".into();
    }
    let part = |(name, value): &(Box<str>, Option<Box<str>>)| match value {
        Some(value) => format!("{name} = {value:?}"),
        None => format!("{name} is missing"),
    };
    format::visible(&key.iter().map(part).collect::<Vec<_>>().join(", "))
}

fn state(cost: u64, decision: &Decision) -> String {
    let (left, limit) = (decision.remaining(), decision.limit());
    let reset = match decision.reset() {
        None => String::new(),
        Some(reset) if reset.is_zero() => ", full".into(),
        Some(reset) => format!(", full again after {}", format::duration(reset)),
    };
    format!("{left} of {limit} remaining{reset}; the request costs {cost}")
}

/// The values that a condition accepts.
fn wanted(condition: &Condition) -> String {
    const MOST: usize = 5;
    let patterns = condition.any_of();
    let mut listed: Vec<_> = patterns.iter().take(MOST).map(|it| format!("`{it}`")).collect();
    match patterns.len().saturating_sub(MOST) {
        0 => {}
        more => listed.push(format!("{more} more")),
    }
    listed.join(" or ")
}

/// What ends a wait of unknown length.
fn unknown_wait(rule: Option<&Rule>) -> &'static str {
    match rule.map(Rule::limit) {
        Some(Limit::Slots(_)) => "when a slot is released; time unknown",
        Some(Limit::Quota(_, Periods::Round)) => "when the round is closed; time unknown",
        _ => "when a hold is released; time unknown",
    }
}

/// The most rules that are listed as not matching; more would bury those that apply.
const MOST_UNMATCHED: usize = 20;
