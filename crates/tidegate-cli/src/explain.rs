//! `tidegate explain`: explains why a request would be allowed or denied.

use std::io;

use serde_json::{Map, Value, json};
use tidegate::policy::Policy;
use tidegate::{
    CheckError, Request, Timestamp,
    clock::{Clock, SystemClock},
    report::Explanation,
};

use crate::args::{ExplainArgs, Format};
use crate::explanation::ExplainedRequest;
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
    let attributes: Vec<(&str, &str)> =
        args.attributes.iter().map(|it| (&*it.name, &*it.value)).collect();
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
        if self.args.repeat > 0 {
            let before = format::count(self.args.repeat as usize, "identical request");
            writeln!(io.stdout, "before: {before}, {allowed_before} allowed")?;
        }
        self.explained_request().write(explanation, io.stdout)
    }

    const fn explained_request(&self) -> ExplainedRequest<'_> {
        let (names, domain) = (&self.names, self.args.domain.as_str());
        ExplainedRequest { names, domain, attributes: self.request.attributes(), now: self.now }
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
        json.extend(self.explained_request().json(explanation));
        Value::Object(json)
    }
}
