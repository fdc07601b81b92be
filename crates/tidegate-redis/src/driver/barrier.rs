//! Waits until commits are as durable as their rules want: on replicas, or in the server's log.
//!
//! `WAIT` and `WAITAOF` count from the last write of their own connection, and block it. So they are
//! sent over a second connection to the same process, behind a small write of that connection, the
//! *barrier*. All commits that were acknowledged before the barrier was sent come before it, in the
//! stream to the replicas and in the log. One barrier is on its way at a time, for all transactions
//! that wait when it is sent.
//!
//! If the connection is lost meanwhile, another server may have taken over without the commits: their
//! outcome is unknown.

use redis::{Pipeline, RedisError, Value};
use tidegate_engine::Outage;
use tidegate_policy::policy::Durability;

use super::send::exchange;
use super::{Driver, Event, extract, local_ns};
use crate::batch::Job;
use crate::commands::refusal;
use crate::durability::Waits;

/// Transactions that are committed, and wait to be durable.
#[derive(Default)]
pub(super) struct Barriers {
    /// They wait for the next barrier.
    queued: Vec<Job>,
    sent: Option<Barrier>,
    /// How many connections there have been.
    connects: u64,
    /// Whether it was logged, since the last connection, that a default level is not provided.
    has_warned: bool,
    /// Whether it was logged, since the last connection, that `WAITAOF` does not wait for the disk.
    has_warned_of_disk: bool,
}

/// A barrier on its way.
struct Barrier {
    id: u64,
    jobs: Vec<Job>,
    waits: Waits,
    /// When the server must have responded.
    due_ns: u64,
}

impl Barriers {
    pub(super) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.sent.is_none()
    }

    pub(super) const fn connects(&self) -> u64 {
        self.connects
    }

    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let sent = self.sent.iter();
        let jobs = self.queued.iter().chain(sent.clone().flat_map(|it| &it.jobs));
        jobs.map(|job| job.due_ns).chain(sent.map(|it| it.due_ns)).min()
    }

    pub(super) fn connected(&mut self) {
        self.connects += 1;
        (self.has_warned, self.has_warned_of_disk) = (false, false);
    }
}

impl Driver {
    /// The highest durability that the server provides.
    pub(super) fn offered_durability(&self) -> Durability {
        let replicas = self.inbox.settings.replicas;
        self.link.as_ref().map_or(Durability::Memory, |link| link.server.offers(replicas))
    }

    /// Completes a transaction that is committed, once it is durable. Where it was not acknowledged just
    /// now, `since` is how many connections there had been then.
    pub(super) fn complete(&mut self, mut job: Job, since: Option<u64>) {
        let level = job.transaction.durability();
        if level == Durability::Memory {
            return job.transaction.complete();
        }
        let Some(link) = &self.link else {
            // It was acknowledged by a server that is lost.
            return self.fail_uncertain(job);
        };
        let replicas = self.inbox.settings.replicas;
        let waits = link.server.best_waits(level, replicas);
        let lacking = link.server.waits(level, replicas).err();
        self.warn_of_default(lacking);
        if waits.is_none() {
            return job.transaction.complete();
        }
        if since.is_some_and(|since| since != self.barriers.connects) {
            return self.fail_uncertain(job);
        }
        // The barrier before may take longer than its own.
        let before = self.barriers.sent.as_ref().map_or(waits, |barrier| barrier.waits);
        job.due_ns = job.due_ns.max(local_ns() + self.barrier_ns(waits.and(before)));
        self.barriers.queued.push(job);
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

    /// Sends a barrier for all that wait.
    pub(super) fn send_barrier(&mut self) {
        if self.barriers.sent.is_some() || self.barriers.queued.is_empty() {
            return;
        }
        let id = self.next_number();
        let Some(link) = &self.link else { return };
        let mut jobs = std::mem::take(&mut self.barriers.queued);
        let replicas = self.inbox.settings.replicas;
        let waits = jobs.iter().fold(Waits::default(), |all, job| {
            all.and(link.server.best_waits(job.transaction.durability(), replicas))
        });
        let timeout_ns = self.barrier_ns(waits);
        for job in &mut jobs {
            job.due_ns = job.due_ns.max(local_ns() + timeout_ns);
        }
        if waits.log && !link.server.waits_for_disk() && !self.barriers.has_warned_of_disk {
            self.barriers.has_warned_of_disk = true;
            tracing::warn!(
                server = %link.server,
                "WAITAOF of this server may return before its log is synced: if its machine loses power, \
                 charges of the last second may be lost; set appendfsync always"
            );
        }
        let name = format!("{}barrier", link.dialect.prefix);
        let (pipeline, connection) = (commands(&name, waits, timeout_ns), link.waiting.clone());
        self.events.push(Box::pin(async move {
            Event::Barrier(id, exchange(connection, pipeline, 0).await)
        }));
        self.inbox.counters.barriers.add(1);
        // Each command has the time to respond, and the way to and fro.
        let due_ns = local_ns() + timeout_ns.saturating_mul(2) + self.deadline_ns();
        self.barriers.sent = Some(Barrier { id, jobs, waits, due_ns });
    }

    /// The server has responded to a barrier.
    pub(super) fn take_barrier(&mut self, id: u64, responses: Result<Vec<Value>, RedisError>) {
        let Some(barrier) = self.barriers.sent.take_if(|barrier| barrier.id == id) else { return };
        let is_passed = match responses {
            Ok(responses) => passed(barrier.waits, &responses),
            Err(error) => {
                barrier.jobs.into_iter().for_each(|job| self.fail_uncertain(job));
                return self.lose_link(&error.to_string());
            }
        };
        match is_passed {
            Ok(true) => barrier.jobs.into_iter().for_each(|job| job.transaction.complete()),
            // Those that have time wait for the next one.
            Ok(false) => {
                self.barriers.queued.extend(barrier.jobs);
                self.expire_barriers(local_ns());
            }
            Err(error) => {
                barrier.jobs.into_iter().for_each(|job| self.fail_uncertain(job));
                self.refused(&error);
            }
        }
    }

    /// Ends transactions that are not durable in time.
    pub(super) fn expire_barriers(&mut self, now_ns: u64) {
        let is_late = |job: &Job| job.due_ns <= now_ns;
        let mut late = extract(&mut self.barriers.queued, is_late);
        let mut is_silent = false;
        if let Some(barrier) = &mut self.barriers.sent {
            late.append(&mut extract(&mut barrier.jobs, is_late));
            is_silent = barrier.due_ns <= now_ns;
        }
        late.into_iter().for_each(|job| self.fail_uncertain(job));
        if is_silent {
            self.lose_link("the server does not respond on its second connection");
        }
    }

    /// The server may be another one now, without what was committed.
    pub(super) fn lose_barriers(&mut self) {
        let mut lost = std::mem::take(&mut self.barriers.queued);
        lost.extend(self.barriers.sent.take().into_iter().flat_map(|barrier| barrier.jobs));
        lost.into_iter().for_each(|job| self.fail_uncertain(job));
    }

    /// It is committed, and may be lost.
    fn fail_uncertain(&mut self, job: Job) {
        self.inbox.counters.not_durable.add(1);
        self.fail(job, Outage::Unknown);
    }
}

/// A small write, and the commands that wait for it and for all before it.
fn commands(name: &str, waits: Waits, timeout_ns: u64) -> Pipeline {
    let timeout_ms = (timeout_ns / 1_000_000).max(1);
    let mut pipeline = redis::pipe();
    // It is of no use afterwards.
    pipeline.cmd("SET").arg(name).arg("").arg("PX").arg(BARRIER_MS);
    if waits.replicas > 0 {
        pipeline.cmd("WAIT").arg(waits.replicas).arg(timeout_ms);
    }
    if waits.log {
        pipeline.cmd("WAITAOF").arg(1).arg(0).arg(timeout_ms);
    }
    pipeline
}

/// Whether enough have acknowledged, or why that is not known.
fn passed(waits: Waits, responses: &[Value]) -> Result<bool, String> {
    let error = |value: &Value| match value {
        Value::ServerError(error) => Some(refusal(error)),
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

/// How long the record of a barrier is kept, in milliseconds.
const BARRIER_MS: u64 = 10_000;

#[cfg(test)]
mod tests;
