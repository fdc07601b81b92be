//! Waits until commits are as durable as their rules want: on replicas, or in the server's log.
//!
//! `WAIT` and `WAITAOF` count from the last write of their own connection, and block it. So they are
//! sent over a second connection to the same process, behind a small write of that connection, the
//! *barrier*. All commits that were acknowledged before the barrier was sent come before it, in the
//! stream to the replicas and in the log. One round of barriers is on its way at a time, for all
//! transactions that wait when it is sent, with a barrier on each server that they concern.
//!
//! If a connection is lost meanwhile, another server may have taken over without the commits: their
//! outcome is unknown.

use std::collections::BTreeMap;

use redis::{RedisError, Value};
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;
use tidegate_policy::policy::Durability;

use super::send::exchange;
use super::{Driver, Event, extract, local_ns};
use crate::batch::Job;
use crate::durability::Waits;
use crate::facts::ServerFacts;

/// Transactions that are committed, and wait to be durable.
#[derive(Default)]
pub(super) struct Barriers {
    /// They wait for the next round.
    queued: Vec<Committed>,
    round: Option<Round>,
    /// How many connections there have been.
    connects: u64,
    /// Whether it was logged, since the last connection, that a default level is not provided.
    has_warned: bool,
    /// Whether it was logged, since the last connection, that `WAITAOF` does not wait for the disk.
    has_warned_of_disk: bool,
}

/// A transaction that is committed, and the servers that have a part of it.
struct Committed {
    job: Job,
    lanes: Vec<usize>,
}

/// Barriers on their way, one for each server.
struct Round {
    id: u64,
    jobs: Vec<Committed>,
    /// What is waited for on each server; `None` once enough have acknowledged.
    lanes: BTreeMap<usize, Option<Waits>>,
    /// Whether too few have acknowledged in time.
    has_failed: bool,
    waits: Waits,
    /// When all must have responded.
    due_ns: u64,
}

impl Barriers {
    pub(super) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.round.is_none()
    }

    pub(super) const fn connects(&self) -> u64 {
        self.connects
    }

    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let round = self.round.iter();
        let jobs = self.queued.iter().chain(round.clone().flat_map(|it| &it.jobs));
        jobs.map(|it| it.job.due_ns).chain(round.map(|it| it.due_ns)).min()
    }

    pub(super) fn connected(&mut self) {
        self.connects += 1;
        (self.has_warned, self.has_warned_of_disk) = (false, false);
    }
}

impl Driver {
    fn facts(&self, lane: usize) -> Option<&ServerFacts> {
        Some(&self.lanes.all.get(lane)?.link.as_ref()?.server)
    }

    /// The highest durability that all servers provide.
    pub(super) fn offered_durability(&self) -> Durability {
        let replicas = self.inbox.settings.replicas;
        let links = self.lanes.all.iter().filter_map(|lane| lane.link.as_ref());
        let offered = links.map(|link| link.server.offers(replicas)).min();
        offered.unwrap_or(Durability::Memory)
    }

    /// Completes a transaction that is committed, with these keys, once it is durable. Where it was
    /// not acknowledged just now, `since` is how many connections there had been then.
    pub(super) fn complete(&mut self, mut job: Job, keys: &[RecordKey], since: Option<u64>) {
        let level = job.transaction.durability();
        if level == Durability::Memory {
            return job.transaction.complete();
        }
        let found: Vec<Option<usize>> = keys.iter().map(|key| self.lanes.of(key)).collect();
        let mut lanes: Vec<usize> = found.iter().copied().flatten().collect();
        lanes.sort_unstable();
        lanes.dedup();
        let facts: Vec<&ServerFacts> = lanes.iter().filter_map(|it| self.facts(*it)).collect();
        if facts.len() < lanes.len() || found.contains(&None) {
            // It was acknowledged by a server that is lost.
            return self.fail_uncertain(job);
        }
        let replicas = self.inbox.settings.replicas;
        let waits = facts.iter().map(|it| it.best_waits(level, replicas));
        let waits = waits.fold(Waits::default(), Waits::and);
        let lacking = facts.iter().find_map(|it| it.waits(level, replicas).err());
        self.warn_of_default(lacking);
        if waits.is_none() {
            return job.transaction.complete();
        }
        if since.is_some_and(|since| since != self.barriers.connects) {
            return self.fail_uncertain(job);
        }
        // The round before may take longer than its own.
        let before = self.barriers.round.as_ref().map_or(waits, |round| round.waits);
        job.due_ns = job.due_ns.max(local_ns() + self.barrier_ns(waits.and(before)));
        self.barriers.queued.push(Committed { job, lanes });
    }

    fn warn_of_default(&mut self, lacking: Option<String>) {
        let Some(reason) = lacking else { return };
        if !std::mem::replace(&mut self.barriers.has_warned, true) {
            tracing::warn!(
                reason,
                "the server cannot make charges as durable as is the default of their rules: they are \
                 acknowledged once it has done what it can"
            );
        }
    }

    /// How long a barrier may take. A log that is synced once per second takes that long.
    fn barrier_ns(&self, waits: Waits) -> u64 {
        self.deadline_ns().saturating_add(if waits.log { LOG_SYNC_NS } else { 0 })
    }

    /// Sends barriers for all that wait.
    pub(super) fn send_barriers(&mut self) {
        if self.barriers.round.is_some() || self.barriers.queued.is_empty() {
            return;
        }
        let mut jobs = std::mem::take(&mut self.barriers.queued);
        let replicas = self.inbox.settings.replicas;
        let mut lanes: BTreeMap<usize, Option<Waits>> = BTreeMap::new();
        for Committed { job, lanes: its } in &jobs {
            for lane in its {
                let facts = self.facts(*lane);
                let waits = facts.map(|it| it.best_waits(job.transaction.durability(), replicas));
                let known = lanes.entry(*lane).or_default().get_or_insert_default();
                *known = known.and(waits.unwrap_or_default());
            }
        }
        let waits = lanes.values().flatten().fold(Waits::default(), |all, it| all.and(*it));
        let timeout_ns = self.barrier_ns(waits);
        for Committed { job, .. } in &mut jobs {
            job.due_ns = job.due_ns.max(local_ns() + timeout_ns);
        }
        self.last_number += 1;
        let id = self.last_number;
        for (lane, waits) in lanes.iter().filter_map(|(lane, waits)| Some((*lane, (*waits)?))) {
            self.send_barrier(lane, id, (waits, timeout_ns));
        }
        // Each command has the time to respond, and the way to and fro.
        let due_ns = local_ns() + timeout_ns.saturating_mul(2) + self.deadline_ns();
        self.barriers.round = Some(Round { id, jobs, lanes, has_failed: false, waits, due_ns });
    }

    fn send_barrier(&mut self, number: usize, id: u64, (waits, timeout_ns): (Waits, u64)) {
        let name = self.barrier_name(number);
        let link = self.lanes.all.get(number).and_then(|lane| lane.link.as_ref());
        let (Some(link), Some(name)) = (link, name) else {
            let lost = RedisError::from(std::io::Error::other("the server is gone"));
            let event = Event::Barrier(id, number, Err(lost));
            return self.events.push(Box::pin(std::future::ready(event)));
        };
        if waits.log && !link.server.waits_for_disk() && !self.barriers.has_warned_of_disk {
            self.barriers.has_warned_of_disk = true;
            tracing::warn!(
                server = %link.server,
                "WAITAOF of this server may return before its log is synced: if its machine loses power, \
                 charges of the last second may be lost; set appendfsync always"
            );
        }
        let timeout_ms = (timeout_ns / 1_000_000).max(1);
        let mut pipeline = redis::pipe();
        // It is of no use afterwards.
        pipeline.cmd("SET").arg(name).arg("").arg("PX").arg(BARRIER_MS);
        let mut count = 1;
        if waits.replicas > 0 {
            pipeline.cmd("WAIT").arg(waits.replicas).arg(timeout_ms);
            count += 1;
        }
        if waits.log {
            pipeline.cmd("WAITAOF").arg(1).arg(0).arg(timeout_ms);
            count += 1;
        }
        let connection = link.waiting.clone();
        self.events.push(Box::pin(async move {
            Event::Barrier(id, number, exchange(connection, (pipeline, count), false).await)
        }));
        self.inbox.counters.barriers.add(1);
    }

    /// The name of a record that a server has. In a cluster it is in the slot of a key that the server
    /// has: what is in braces counts.
    fn barrier_name(&mut self, number: usize) -> Option<String> {
        let prefix = format!("{}:", self.inbox.settings.namespace);
        if self.lanes.cluster.is_none() {
            return Some(format!("{prefix}barrier"));
        }
        let known = self.lanes.all.get(number)?.barrier_key;
        let known = known.filter(|key| self.lanes.of(key) == Some(number));
        let key = known.or_else(|| {
            let mut tried = (0..MOST_TRIED).map(RecordKey::numbered);
            tried.find(|key| self.lanes.of(key) == Some(number))
        })?;
        self.lanes.all.get_mut(number)?.barrier_key = Some(key);
        Some(format!("{prefix}barrier:{{{prefix}{key}}}"))
    }

    /// A server has responded to a barrier.
    pub(super) fn take_barrier(
        &mut self,
        id: u64,
        number: usize,
        responses: Result<Vec<Value>, RedisError>,
    ) {
        let Some(round) = self.barriers.round.as_mut().filter(|round| round.id == id) else {
            return;
        };
        let Some(Some(waits)) = round.lanes.get(&number).copied() else { return };
        let responses = match responses {
            Ok(responses) => responses,
            Err(error) => {
                self.lose_barriers(number);
                return self.lose_lane(number, &error.to_string());
            }
        };
        match passed(waits, &responses) {
            Ok(is_passed) => {
                round.has_failed |= !is_passed;
                round.lanes.insert(number, None);
                self.end_round();
            }
            Err(error) => {
                self.lose_barriers(number);
                self.refused(number, &error, None);
            }
        }
    }

    /// Ends a round when all servers have responded.
    fn end_round(&mut self) {
        let is_over = |round: &mut Round| round.lanes.values().all(Option::is_none);
        let Some(Round { jobs, has_failed, .. }) = self.barriers.round.take_if(is_over) else {
            return;
        };
        if !has_failed {
            return jobs.into_iter().for_each(|it| it.job.transaction.complete());
        }
        // Those that have time wait for the next one.
        let now_ns = local_ns();
        for it in jobs {
            if it.job.due_ns <= now_ns {
                self.fail_uncertain(it.job);
            } else {
                self.barriers.queued.push(it);
            }
        }
    }

    /// Ends transactions that are not durable in time.
    pub(super) fn expire_barriers(&mut self, now_ns: u64) {
        let is_late = |it: &Committed| it.job.due_ns <= now_ns;
        let mut late = extract(&mut self.barriers.queued, is_late);
        let mut silent = Vec::new();
        if let Some(round) = &mut self.barriers.round {
            late.append(&mut extract(&mut round.jobs, is_late));
            if round.due_ns <= now_ns {
                let open = round.lanes.iter().filter(|(_, waits)| waits.is_some());
                silent.extend(open.map(|(lane, _)| *lane));
            }
        }
        late.into_iter().for_each(|it| self.fail_uncertain(it.job));
        for lane in silent {
            self.lose_barriers(lane);
            self.lose_lane(lane, "the server does not respond on its second connection");
        }
    }

    /// A server may be another one now, without what was committed.
    pub(super) fn lose_barriers(&mut self, number: usize) {
        let has = |it: &Committed| it.lanes.contains(&number);
        let mut lost = extract(&mut self.barriers.queued, has);
        if let Some(round) = &mut self.barriers.round {
            lost.append(&mut extract(&mut round.jobs, has));
            round.lanes.remove(&number);
        }
        lost.into_iter().for_each(|it| self.fail_uncertain(it.job));
        self.end_round();
    }

    /// It is committed, and may be lost.
    fn fail_uncertain(&mut self, job: Job) {
        self.inbox.counters.not_durable.add(1);
        self.fail(job, Outage::Unknown);
    }
}

/// Whether enough have acknowledged, or why that is not known.
fn passed(waits: Waits, responses: &[Value]) -> Result<bool, String> {
    let error = |value: &Value| match value {
        Value::ServerError(error) => {
            Some(format!("{} {}", error.code(), error.details().unwrap_or_default()))
        }
        _ => None,
    };
    if let Some(error) = responses.iter().find_map(error) {
        return Err(error);
    }
    let mut acknowledged = responses.iter().skip(1);
    let mut count = |is_wanted: bool| match is_wanted.then(|| acknowledged.next()) {
        None => Some(u64::MAX),
        Some(Some(Value::Int(count))) => u64::try_from(*count).ok(),
        // The first number is that of the server itself.
        Some(Some(Value::Array(counts))) => match counts.first() {
            Some(Value::Int(count)) => u64::try_from(*count).ok(),
            _ => None,
        },
        Some(_) => None,
    };
    let replicas = count(waits.replicas > 0).ok_or("WAIT has no number as its response")?;
    let log = count(waits.log).ok_or("WAITAOF has no number as its response")?;
    Ok(replicas >= waits.replicas.into() && log >= 1)
}

/// How long a log takes to be synced, at most, that is synced once per second.
const LOG_SYNC_NS: u64 = 3_000_000_000;

/// How many keys are tried to find one that a server has.
const MOST_TRIED: u64 = 1 << 16;

/// How long the record of a barrier is kept, in milliseconds.
const BARRIER_MS: u64 = 10_000;

#[cfg(test)]
mod tests;
