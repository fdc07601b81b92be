//! `tidegate explain`: explains why a request would be allowed or denied.

use std::io;

use serde_json::{Map, Value, json};
use tidegate::policy::{Condition, Cycle, DescriptorNames, Limit, Mode, Policy, Rule};
use tidegate::{
    Applies, CheckError, Clock, Decision, Explanation, Request, RuleExplanation, SystemClock,
    Timestamp, Wait,
};
use tidegate_server::explanation::{DecisionSummary, explanation_fields};

use crate::args::{ExplainArgs, Format};
use crate::format;
use crate::input;
use crate::io::{Exit, Io};
use crate::rule_index::RuleIndex;
use crate::simulator::{self, Simulator};

pub(crate) fn run(args: &ExplainArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let policy = match input::policy(&args.policy, args.yaml.options(), io.stdin) {
        Ok(parsed) => parsed.policy,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Error);
        }
    };
    let now = match args.time {
        Some(time) => format::since_1970(time).unwrap_or(Timestamp::MAX),
        None => SystemClock::new().wall(),
    };
    let mut attributes: Vec<(&str, &str)> =
        args.attributes.iter().map(|it| (&*it.name, &*it.value)).collect();
    let entries = DescriptorNames::new(args.attributes.iter().map(|it| &*it.name));
    if policy.reads_descriptors(&args.domain) {
        // The order of the attributes is the order of the descriptor's entries.
        attributes = entries.attributes(attributes, 0).collect();
    }
    let request = Request::new(&args.domain, &attributes).cost(args.cost);
    let names = RuleIndex::new(&policy);
    note_probable_mistakes(args, &names, io)?;
    simulator::note_enforced(&policy, io)?;
    let input = ExplainInput { args, policy: &policy, names, request, now };
    let explained = match input.explain() {
        Ok(explained) => explained,
        Err(error) => {
            let why = format::visible(&error.to_string());
            writeln!(io.stderr, "error: the request cannot be decided: {why}")?;
            if let Some(hint) = error_hint(&error) {
                writeln!(io.stderr, "  = hint: {}", format::visible(&hint))?;
            }
            return Ok(Exit::Error);
        }
    };
    match args.format {
        Format::Text => input.text(&explained, io)?,
        Format::Json => writeln!(io.stdout, "{:#}", input.json(&explained))?,
    }
    Ok(Exit::Success)
}

/// Notes an unknown domain and repeated attributes.
fn note_probable_mistakes(
    args: &ExplainArgs,
    names: &RuleIndex<'_>,
    io: &mut Io<'_>,
) -> io::Result<()> {
    if let Some(hint) = names.unknown_domain_hint(&args.domain) {
        let domain = format::visible(&args.domain);
        writeln!(io.stderr, "note: no rule in domain `{domain}`; {hint}\n")?;
    }
    for (at, attribute) in args.attributes.iter().enumerate() {
        if args.attributes[..at].iter().any(|other| other.name == attribute.name) {
            let name = format::visible(&attribute.name);
            writeln!(io.stderr, "note: attribute `{name}` appears twice; the first is used\n")?;
        }
    }
    Ok(())
}

fn error_hint(error: &CheckError) -> Option<String> {
    match error {
        CheckError::CostNotCovered { attribute, value: None, .. } => {
            Some(format!("add --attr {attribute}=VALUE"))
        }
        CheckError::CostNotCovered { .. } => {
            Some("use a value that the table covers, or add a row for it".into())
        }
        CheckError::EmptyAttribute { attribute, .. } => {
            Some(format!("give `{attribute}` a value, or let the rule accept an empty one"))
        }
        _ => None,
    }
}

/// The request to explain, its policy and its time.
struct ExplainInput<'a> {
    args: &'a ExplainArgs,
    policy: &'a Policy,
    names: RuleIndex<'a>,
    request: Request<'a>,
    now: Timestamp,
}

/// The explanation, and how many of the previous requests were allowed.
struct Explained {
    explanation: Explanation,
    allowed_before: u32,
}

impl ExplainInput<'_> {
    fn explain(&self) -> Result<Explained, CheckError> {
        let simulator = Simulator::new(self.policy.clone(), self.now);
        let mut allowed_before = 0;
        for _ in 0..self.args.repeat {
            allowed_before += u32::from(simulator.decide(&self.request)?.is_allowed);
        }
        Ok(Explained { explanation: simulator.explain(&self.request)?, allowed_before })
    }

    fn text(&self, explained: &Explained, io: &mut Io<'_>) -> io::Result<()> {
        let Explained { explanation, allowed_before } = explained;
        let decision = DecisionSummary::of(&explanation.report);
        if self.args.repeat > 0 {
            let before = format::count(self.args.repeat as usize, "identical request");
            writeln!(io.stdout, "before: {before}, {allowed_before} allowed")?;
        }
        let rule = decision.rule.as_deref();
        match (decision.is_allowed, rule) {
            (true, Some(rule)) => {
                writeln!(io.stdout, "allowed; lowest remaining: rule `{rule}`")?;
            }
            (true, None) => writeln!(io.stdout, "allowed; no rule limits it")?,
            (false, Some(rule)) => {
                writeln!(io.stdout, "denied by rule `{rule}`{}", self.why(&decision))?
            }
            (false, None) => writeln!(io.stdout, "denied{}", self.why(&decision))?,
        }
        writeln!(io.stdout, "next allowed: {}", self.next(&decision))?;
        let mut rules = explanation.rules.iter().peekable();
        if rules.peek().is_some() {
            writeln!(io.stdout, "\nrules of domain `{}`:", format::visible(&self.args.domain))?;
        }
        let mut unmatched = 0;
        for it in rules {
            unmatched += usize::from(matches!(it.applies, Applies::NoMatch { .. }));
            if unmatched <= MOST_UNMATCHED || !matches!(it.applies, Applies::NoMatch { .. }) {
                writeln!(
                    io.stdout,
                    "  {}: {}",
                    it.rule.name(),
                    self.applies(it.rule.name(), &it.applies)
                )?;
            }
        }
        match unmatched.saturating_sub(MOST_UNMATCHED) {
            0 => Ok(()),
            more => {
                writeln!(io.stdout, "  and {more} more that do not match; --format json lists all")
            }
        }
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
        self.names.rule(&self.args.domain, name)
    }

    /// The conditions of a rule that the request does not meet.
    fn failed(&self, rule: &str) -> Vec<String> {
        let attributes = self.request.attributes();
        let conditions = self.rule(rule).map(Rule::conditions).unwrap_or_default();
        let failed = conditions.iter().filter(|condition| !condition.holds(&attributes));
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
            Applies::Yes { key, cost, override_index, mode, decision } => {
                let override_index = override_index
                    .map(|number| format!("\n    override: {}", number + 1))
                    .unwrap_or_default();
                format!(
                    "{}\n    key: {}{override_index}\n    state: {}",
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

    fn json(&self, explained: &Explained) -> Value {
        let Explained { explanation, allowed_before } = explained;
        let mut json = Map::new();
        json.insert("domain".into(), json!(self.args.domain));
        json.insert("time".into(), json!(format::time(self.now)));
        let attributes = self.request.attributes();
        let attributes: Map<_, _> =
            attributes.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        json.insert("attributes".into(), Value::Object(attributes));
        json.insert("cost".into(), json!(self.args.cost));
        json.insert("requests_before".into(), json!(self.args.repeat));
        json.insert("allowed_before".into(), json!(allowed_before));
        let why = |it: &RuleExplanation| self.applies(it.rule.name(), &it.applies);
        json.extend(explanation_fields(explanation, self.now, why));
        Value::Object(json)
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
        std::time::Duration::ZERO => ", full".into(),
        std::time::Duration::MAX => String::new(),
        reset => format!(", full again after {}", format::duration(reset)),
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
        Some(Limit::Quota(_, Cycle::Round)) => "when the round is closed; time unknown",
        _ => "when a hold is released; time unknown",
    }
}

/// The most rules that are listed as not matching; more would bury those that apply.
const MOST_UNMATCHED: usize = 20;
