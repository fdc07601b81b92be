//! `tidegate diff`: compares two policies, also by what they do to logged requests.

use std::io;

use tidegate::policy::{Parsed, Policy, PolicyDifference};
use tidegate_replay::{AttributePlan, Replay, ReplayOptions};

use crate::args::{DiffArgs, DiffFormat};
use crate::input;
use crate::io::{Exit, Io};
use crate::replay::{self, LogRun, read_logs};
use effect::Effect;

mod effect;
mod json;
mod markdown;
mod text;

/// What differs.
pub(crate) struct Diff {
    difference: PolicyDifference,
    /// What that does to logged requests, if there are logs.
    effect: Option<Effect>,
    /// How many keys are listed.
    top: usize,
}

pub(crate) fn run(args: &DiffArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let (old, new) = (policy(&args.old, args, io)?, policy(&args.new, args, io)?);
    let (Some(old), Some(new)) = (old, new) else { return Ok(Exit::Error) };
    let difference = old.difference(&new);
    let mut exit = if difference.is_empty() { Exit::Success } else { Exit::Failure };
    let mut effect = None;
    if !args.logs.is_empty() {
        match compare(&old.policy, &new.policy, args, io)? {
            Some((compared, read)) => {
                effect = Some(compared);
                exit = exit.max(read);
            }
            None => return Ok(Exit::Error),
        }
    }
    let diff = Diff { difference, effect, top: args.top as usize };
    match args.format {
        DiffFormat::Text => diff.write_text(io.stdout)?,
        DiffFormat::Markdown => diff.write_markdown(io.stdout)?,
        DiffFormat::Json => writeln!(io.stdout, "{:#}", diff.json())?,
    }
    Ok(exit)
}

fn policy(path: &std::path::Path, args: &DiffArgs, io: &mut Io<'_>) -> io::Result<Option<Parsed>> {
    match input::policy(path, args.yaml.options(), io.stdin) {
        Ok(parsed) => Ok(Some(parsed)),
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            Ok(None)
        }
    }
}

/// Runs both policies over the logs; `None` if they cannot be read.
fn compare(
    old: &Policy,
    new: &Policy,
    args: &DiffArgs,
    io: &mut Io<'_>,
) -> io::Result<Option<(Effect, Exit)>> {
    let reading = &args.reading;
    let domains = [replay::domain(old, reading), replay::domain(new, reading)];
    replay::note_limits(new, &domains[1], reading, io)?;
    let of_policies = [(old, &*domains[0]), (new, &*domains[1])];
    let plan = AttributePlan::new(&of_policies, &replay::attributes(reading));
    let (plan, cost_index) = replay::with_cost(plan, reading);
    let mut replays = Vec::new();
    for (policy, domain) in of_policies {
        let max_keys = replay::max_keys(policy, reading);
        let options = ReplayOptions { max_keys, explained: 0, cost_index };
        match Replay::new(policy.clone(), domain, &plan, options) {
            Ok(replay) => replays.push(replay),
            Err(error) => {
                writeln!(io.stderr, "error: {error}")?;
                return Ok(None);
            }
        }
    }
    let run = LogRun { args: reading, plan: &plan, logs: &args.logs };
    let decide = &mut |record: tidegate_replay::record::Record<'_>| {
        replays.iter_mut().for_each(|replay| replay.decide(record));
    };
    let Some(summary) = read_logs(&run, decide, io)? else { return Ok(None) };
    for (replay, (policy, _)) in replays.iter().zip(of_policies) {
        replay::note_bounds(replay, replay::max_keys(policy, reading), io)?;
    }
    let [old, new] = &*replays else { return Ok(None) };
    Ok(Some((Effect::new(old, new, &summary), replay::exit(&summary))))
}
