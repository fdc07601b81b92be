//! Ends what commits over several servers have begun: those of this process, and those of others whose
//! intents it meets.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_engine::shared::RecordKey;
use tidegate_table::{Clock, MonotonicClock};

use crate::frame::{self, Cell};
use crate::intent::{Found, Held, Intent, Judgement, Phase, judge};
use crate::servers::{CommandFailure, Replaced, Servers};

/// The intents of a group by their keys, as far as they are known; the primary's first.
pub(crate) type Laid = Vec<(RecordKey, Option<Intent>)>;

/// What is at the keys of a group in the end, to the last byte, as far as it is known.
pub(crate) type Left = Vec<(RecordKey, Cell)>;

/// Ends a group that is committed: marks the primary, replaces all other intents by their records,
/// then the primary's.
pub(crate) async fn finish(servers: &Servers, laid: &Laid) -> Result<Left, CommandFailure> {
    let Some(((primary, first), others)) = laid.split_first() else { return Ok(Left::new()) };
    let mut marked = None;
    if let Some(intent) = first {
        let mark = intent.with_phase(Phase::Committed);
        if replace_phases(servers, primary, intent, New::Intent(&mark)).await?.is_there() {
            marked = Some(mark);
        }
    }
    let replaced = others.iter().filter_map(|(key, intent)| Some((key, intent.as_ref()?)));
    let replaced = join_all(replaced.map(async |(key, intent)| {
        let cell = intent.committed(servers.at_least_ms);
        let replaced = replace_phases(servers, key, intent, New::Cell(&cell)).await?;
        // Another process may have put it there, with another expiry: then it is read again.
        Ok((replaced == Replaced::Yes).then_some((*key, cell)))
    }));
    let mut left = Left::new();
    for replaced in replaced.await {
        left.extend(replaced?);
    }
    if let Some(mark) = marked {
        let cell = mark.committed(servers.at_least_ms);
        let expected = Found::Intent(Box::new(mark));
        if servers.put_cell(primary, &expected, &cell).await? == Replaced::Yes {
            left.push((*primary, cell));
        }
    }
    Ok(left)
}

enum New<'a> {
    Intent(&'a Intent),
    Cell(&'a Cell),
}

/// Replaces an intent, in whatever phase it is; a mark only by a mark.
async fn replace_phases(
    servers: &Servers,
    key: &RecordKey,
    intent: &Intent,
    new: New<'_>,
) -> Result<Replaced, CommandFailure> {
    let mut expected = intent.clone();
    loop {
        let replaced = match new {
            New::Intent(new) => servers.put_intent(key, &expected, new).await?,
            New::Cell(new) => {
                servers.put_cell(key, &Found::Intent(Box::new(expected.clone())), new).await?
            }
        };
        match replaced {
            // Phases only go up, so this ends.
            Replaced::No(Found::Intent(found))
                if found.stamp == intent.stamp
                    && found.phase != expected.phase
                    && (found.phase != Phase::Committed || matches!(new, New::Intent(_))) =>
            {
                expected = *found;
            }
            replaced => return Ok(replaced),
        }
    }
}

/// How a writer gives up a group of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// One intent could not be laid, so the group can never be committed.
    Lost,
    /// It is not known whether all are laid. It is given up if one can be withdrawn that no other
    /// writer has pinned: then no other takes the group for committed.
    Uncertain,
}

/// What became of a group that its writer has given up.
#[derive(Debug)]
pub(crate) struct Withdrawn {
    /// Whether it is certain that the group has changed nothing.
    pub(crate) is_certain: bool,
    pub(crate) left: Left,
    pub(crate) failure: Option<CommandFailure>,
}

/// Puts back what was there before.
pub(crate) async fn withdraw(servers: &Servers, laid: &Laid, how: Withdrawal) -> Withdrawn {
    let replaced = laid.iter().filter_map(|(key, intent)| Some((key, intent.as_ref()?)));
    let replaced = join_all(replaced.map(async |(key, intent)| {
        let cell = intent.withdrawn(frame::new_stamp(), servers.at_least_ms);
        let replaced = match how {
            Withdrawal::Lost => replace_phases(servers, key, intent, New::Cell(&cell)).await?,
            Withdrawal::Uncertain => {
                let expected = Found::Intent(Box::new(intent.clone()));
                servers.put_cell(key, &expected, &cell).await?
            }
        };
        // No other process has this stamp.
        Ok(replaced.is_there().then_some((*key, cell)))
    }));
    let mut withdrawn =
        Withdrawn { is_certain: how == Withdrawal::Lost, left: Left::new(), failure: None };
    for replaced in replaced.await {
        match replaced {
            Ok(left) => withdrawn.left.extend(left),
            Err(failure) => withdrawn.failure = Some(failure),
        }
    }
    withdrawn.is_certain |= !withdrawn.left.is_empty();
    withdrawn
}

/// Settles the group of an intent that was met at a key, and returns the record there.
///
/// The writer of the group is likely to do so at the same time, so it gets a moment first. One that
/// has not laid all of its intents gets longer, and then cannot lay them any more.
pub(crate) async fn visit(
    servers: &Servers,
    key: &RecordKey,
    met: Intent,
) -> Result<Cell, CommandFailure> {
    let started_ns = local_ns();
    let mut intent = met;
    let mut since_ns = started_ns;
    for pause_ms in FIRST_PAUSES_MS {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        match servers.get(key).await? {
            Found::Cell(cell) => return Ok(cell),
            Found::Intent(found) => note(&mut intent, *found, &mut since_ns),
        }
    }
    while local_ns() - started_ns < LONGEST_VISIT_NS {
        let has_patience = local_ns() - since_ns < PATIENCE_NS;
        settle(servers, &intent, has_patience).await?;
        match servers.get(key).await? {
            Found::Cell(cell) => return Ok(cell),
            Found::Intent(found) => note(&mut intent, *found, &mut since_ns),
        }
    }
    Err(CommandFailure(format!("the intent at {key} cannot be settled")))
}

/// Takes over what was found; another group is waited for anew.
fn note(intent: &mut Intent, found: Intent, since_ns: &mut u64) {
    if found.stamp != intent.stamp {
        *since_ns = local_ns();
    }
    *intent = found;
}

/// Does what can be done for a group.
async fn settle(
    servers: &Servers,
    intent: &Intent,
    has_patience: bool,
) -> Result<(), CommandFailure> {
    let found = look(servers, intent).await?;
    let members = intent.members.iter().zip(&found);
    let held: Vec<Held> = members.map(|(it, found)| found.held(intent.stamp, it)).collect();
    let of_group = |found: &Found| match found {
        Found::Intent(found) if found.stamp == intent.stamp => Some((**found).clone()),
        _ => None,
    };
    let keys = intent.members.iter().map(|member| member.key);
    let laid: Laid = keys.zip(found.iter().map(of_group)).collect();
    match judge(&held) {
        Judgement::Committed => drop(finish(servers, &laid).await?),
        Judgement::Laid => {
            if pin(servers, &laid).await? {
                finish(servers, &laid).await?;
            }
        }
        Judgement::Aborted => {
            for (key, intent) in &laid {
                let Some(intent) = intent else { continue };
                let cell = intent.withdrawn(frame::new_stamp(), servers.at_least_ms);
                let expected = Found::Intent(Box::new(intent.clone()));
                servers.put_cell(key, &expected, &cell).await?;
            }
        }
        Judgement::Undecided { .. } if has_patience => tokio::time::sleep(LOOK_AGAIN).await,
        Judgement::Undecided { open } => {
            let (member, found) = (&intent.members[open], &found[open]);
            if let Found::Cell(cell) = found {
                let closed = cell.renewed(frame::new_stamp(), servers.at_least_ms);
                servers.put_cell(&member.key, found, &closed).await?;
            }
        }
    }
    Ok(())
}

/// What all keys of a group have; the primary is read last.
async fn look(servers: &Servers, intent: &Intent) -> Result<Vec<Found>, CommandFailure> {
    let Some((primary, others)) = intent.members.split_first() else { return Ok(Vec::new()) };
    let others = join_all(others.iter().map(|member| servers.get(&member.key))).await;
    let others = others.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut found = vec![servers.get(&primary.key).await?];
    found.extend(others);
    Ok(found)
}

/// Keeps the writer of a group from withdrawing it. False if a key has something else by now.
async fn pin(servers: &Servers, laid: &Laid) -> Result<bool, CommandFailure> {
    let Some(((primary, first), others)) = laid.split_first() else { return Ok(false) };
    for (key, intent) in others {
        let Some(intent) = intent else { return Ok(false) };
        let pinned = intent.with_phase(Phase::Pinned);
        if intent.phase == Phase::Laid
            && !servers.put_intent(key, intent, &pinned).await?.is_there()
        {
            return Ok(false);
        }
    }
    let Some(intent) = first else { return Ok(false) };
    let mark = intent.with_phase(Phase::Committed);
    Ok(servers.put_intent(primary, intent, &mark).await?.is_there())
}

fn local_ns() -> u64 {
    MonotonicClock.now().as_nanos()
}

/// How long the writer of a group gets before others settle it, in several steps.
const FIRST_PAUSES_MS: [u64; 4] = [1, 1, 2, 4];

/// How often a group is looked at whose writer may be at work.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a writer gets that has not laid all of its intents.
const PATIENCE_NS: u64 = 100_000_000;

/// How long one visit takes at most.
const LONGEST_VISIT_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests;
