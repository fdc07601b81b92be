//! `tidegate replay`: runs access logs through a policy.

use std::io;

use serde_json::Value;
use tidegate::policy::{EngineSettings, Limit, Periods, Policy, Rule};
use tidegate_replay::{AttributePlan, ReadSummary, Replay, ReplayOptions};

use crate::args::{Format, LogArgs, ReplayArgs};
use crate::format;
use crate::input;
use crate::io::{Exit, Io};
use crate::rule_index::RuleIndex;
use crate::simulator;
pub(crate) use logs::{LogRun, read_logs};

mod html;
mod json;
mod logs;
mod text;

/// What was read and decided.
pub(crate) struct Replayed<'a> {
    pub(crate) names: RuleIndex<'a>,
    pub(crate) replay: &'a Replay,
    pub(crate) summary: &'a ReadSummary,
    pub(crate) top: usize,
}

pub(crate) fn run(args: &ReplayArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let policy = match input::policy(&args.policy, args.yaml.options(), io.stdin) {
        Ok(parsed) => parsed.policy,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Error);
        }
    };
    let domain = domain(&policy, &args.reading);
    note_limits(&policy, &domain, &args.reading, io)?;
    let plan = AttributePlan::new(&[(&policy, &domain)], &attributes(&args.reading));
    let (plan, cost_index) = with_cost(plan, &args.reading);
    let options =
        ReplayOptions { max_keys: max_keys(&policy, &args.reading), explained: 5, cost_index };
    let mut replay = match Replay::new(policy.clone(), &domain, &plan, options) {
        Ok(replay) => replay,
        Err(error) => {
            writeln!(io.stderr, "error: {error}")?;
            return Ok(Exit::Error);
        }
    };
    let run = LogRun { args: &args.reading, plan: &plan, logs: &args.logs };
    let Some(summary) = read_logs(&run, &mut |record| replay.decide(record), io)? else {
        return Ok(Exit::Error);
    };
    let names = RuleIndex::new(&policy);
    let replayed = Replayed { names, replay: &replay, summary: &summary, top: args.top as usize };
    note_bounds(&replay, options.max_keys, io)?;
    if let Some(path) = &args.html
        && let Err(error) = std::fs::write(path, html::page(&replayed.json()))
    {
        writeln!(io.stderr, "error: cannot write `{}`: {error}", path.display())?;
        return Ok(Exit::Error);
    }
    match args.format {
        Format::Text => replayed.write_text(io.stdout)?,
        Format::Json => {
            let json: Value = replayed.json();
            writeln!(io.stdout, "{json:#}")?;
        }
    }
    Ok(exit(&summary))
}

/// An input that was not read to its end is an error, whatever else was read.
pub(crate) fn exit(summary: &ReadSummary) -> Exit {
    let is_cut_short = summary.inputs.iter().any(|input| input.cut_short.is_some());
    if is_cut_short { Exit::Error } else { Exit::Success }
}

/// The domain of the requests in a log.
pub(crate) fn domain(policy: &Policy, args: &LogArgs) -> String {
    if let Some(domain) = &args.domain {
        return domain.clone();
    }
    let mut domains: Vec<&str> = policy.rules().iter().map(Rule::domain).collect();
    domains.sort_unstable();
    domains.dedup();
    match &*domains {
        [only] => (*only).to_owned(),
        _ => Rule::DEFAULT_DOMAIN.to_owned(),
    }
}

pub(crate) fn attributes(args: &LogArgs) -> Vec<(String, String)> {
    args.attributes.iter().map(|it| (it.name.clone(), it.value.clone())).collect()
}

pub(crate) fn with_cost(plan: AttributePlan, args: &LogArgs) -> (AttributePlan, Option<usize>) {
    match &args.cost {
        None => (plan, None),
        Some(field) => {
            let (plan, index) = plan.with_cost(field);
            (plan, Some(index))
        }
    }
}

/// The most keys of an engine and of the statistics.
pub(crate) fn max_keys(policy: &Policy, args: &LogArgs) -> usize {
    let by_policy = policy.settings().max_keys().min(MOST_KEYS);
    let most = args.max_keys.map_or(by_policy, u64::from);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Notes what a replay decides in another way than the daemon.
pub(crate) fn note_limits(
    policy: &Policy,
    domain: &str,
    args: &LogArgs,
    io: &mut Io<'_>,
) -> io::Result<()> {
    if policy.settings().enforce_ppm() != EngineSettings::ENFORCE_ALL_PPM {
        simulator::note_enforced(policy, io)?;
    }
    if let Some(hint) = RuleIndex::new(policy).unknown_domain_hint(domain) {
        let domain = format::visible(domain);
        writeln!(io.stderr, "note: no rule in domain `{domain}`; {hint}")?;
    }
    if policy.reads_descriptors(domain) && args.attributes.is_empty() {
        let domain = format::visible(domain);
        writeln!(
            io.stderr,
            "note: domain `{domain}` has limits for descriptors; name their entries in their order, \
             such as --attr remote_address=ip"
        )?;
    }
    for rule in policy.rules().iter().filter(|rule| rule.domain() == domain) {
        let name = rule.name();
        match rule.limit() {
            Limit::Slots(_) => writeln!(
                io.stderr,
                "warning: rule `{name}` is left out: it limits requests in flight, and a log does not \
                 say how long they took"
            )?,
            Limit::Quota(_, Periods::Round) => writeln!(
                io.stderr,
                "warning: the round of rule `{name}` never ends here: a log does not say when it was \
                 closed"
            )?,
            _ => {}
        }
    }
    Ok(())
}

/// Notes which numbers are estimates.
pub(crate) fn note_bounds(replay: &Replay, max_keys: usize, io: &mut Io<'_>) -> io::Result<()> {
    if replay.counts().is_estimate() {
        writeln!(
            io.stderr,
            "warning: there are more than {max_keys} keys; numbers of keys are estimates, and \
             --max-keys raises the bound"
        )?;
    }
    if replay.is_table_full() {
        writeln!(
            io.stderr,
            "warning: the engine's table is full, so that new keys share counters, and may be denied \
             too often; --max-keys raises the bound"
        )?;
    }
    Ok(())
}

/// The most keys, unless the command line sets it.
const MOST_KEYS: u64 = 1 << 22;
