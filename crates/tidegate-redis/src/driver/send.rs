//! Makes batches of what waits, and sends them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::{Either, ready};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;
use tidegate_table::Clock;

use super::{Driver, Event, Sent, local_ns};
use crate::batch::{Batch, Group, Job, Pending, Placed, Sources};
use crate::control::ControlCopy;
use crate::frame::Cell;
use crate::inbox::Known;
use crate::key_map::{KeyMap, KeySet};
use crate::link::load_scripts;
use crate::locks::lock;

/// A commit whose response was lost.
pub(super) struct Uncertain {
    pub(super) group: Group,
    pub(super) pending: KeyMap<Pending>,
    /// When it can be sent again, by the local clock.
    pub(super) not_before_ns: u64,
}

/// Whether a batch was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    First,
    Again,
}

impl Driver {
    /// Sends what can be sent.
    pub(super) fn send_all(&mut self) {
        self.resend();
        while self.link.is_some() && self.sent.len() < MOST_BATCHES {
            let batch = self.fill();
            if batch.is_empty() && !self.needs_control(local_ns()) {
                return;
            }
            self.send(batch, Sending::First);
        }
    }

    /// Whether the record of the policy has to be read, and is not on its way.
    fn needs_control(&self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.polled_ns.saturating_add(self.poll_every_ns());
        (self.wants_control || is_due)
            && self.sent.values().all(|sent| sent.encoded.control.is_none())
    }

    /// A batch of what waits.
    fn fill(&mut self) -> Batch {
        let mut batch = Batch::with_capacity(self.waiting.len());
        let mut taken = std::mem::take(&mut self.busy);
        let mut claimed: Vec<RecordKey> = Vec::new();
        let (mut edits, mut complete) = (Vec::new(), Vec::new());
        let (mut waiting, mut not_durable) = (Vec::new(), Vec::new());
        let inbox = Arc::clone(&self.inbox);
        let mut known = lock(&inbox.known);
        let Known { cache, control, .. } = &mut *known;
        let latest = inbox.clock.latest();
        let offered = self.offered_durability();
        let mut turns: Vec<RecordKey> = Vec::new();
        for job in std::mem::take(&mut self.waiting) {
            if let Some(key) = self.contended.missing(&job.needs) {
                turns.push(key);
                waiting.push(job);
                continue;
            }
            let copy = control.as_ref().filter(|copy| self.is_usable(copy, &job));
            let control = copy.map(|copy| copy.in_force(latest));
            let mut sources = Sources { cache: &mut *cache, control, offered, taken: &taken };
            match batch.place(job, &mut sources) {
                Placed::Joined => {}
                Placed::Complete(job) => complete.push(job),
                Placed::NeedsControl(job) => {
                    self.wants_control = true;
                    waiting.push(job);
                }
                Placed::Later(job) => {
                    // What comes later must not overtake it.
                    let new = job.needs.iter().filter(|key| !key.is_control());
                    let new = new.copied().filter(|key| taken.insert(*key)).collect::<Vec<_>>();
                    claimed.extend(new);
                    waiting.push(job);
                }
                Placed::Edit(job, write) => edits.push((job, write)),
                Placed::NotDurable(job) => not_durable.push(job),
            }
        }
        drop(known);
        for key in claimed {
            taken.remove(&key);
        }
        (self.busy, self.waiting) = (taken, waiting);
        batch.close();
        turns.into_iter().for_each(|key| self.wait_for_turn(key));
        self.busy.extend(batch.keys());
        self.inbox.counters.commits.add(complete.len());
        complete.into_iter().for_each(|job| self.complete(job, None));
        not_durable.into_iter().for_each(|job| self.fail(job, Outage::Unavailable));
        for (job, write) in edits {
            self.edit(job, write);
        }
        batch
    }

    /// Whether a transaction may decide by a copy of the policy's record.
    fn is_usable(&self, copy: &ControlCopy, job: &Job) -> bool {
        if job.transaction.is_edit() {
            return copy.read_ns >= job.submitted_ns;
        }
        !copy.is_old(local_ns(), self.inbox.settings.edit_lead) || copy.read_ns >= job.submitted_ns
    }

    /// Sends a batch.
    pub(super) fn send(&mut self, mut batch: Batch, sending: Sending) {
        let sent_ns = local_ns();
        let (polls, is_resend) = (self.needs_control(sent_ns), sending == Sending::Again);
        let Some(link) = &self.link else { return };
        let turns =
            if is_resend { KeySet::default() } else { self.contended.send(&mut batch.groups) };
        let longer = self.inbox.settings.kept_longer.saturating_add(self.inbox.clock.ahead());
        let scripts = match std::mem::take(&mut self.scripts_are_gone) {
            true => load_scripts(),
            false => Pipeline::new(),
        };
        let mut encoded = link.dialect.encode(scripts, &batch, &turns, longer);
        if polls {
            let known = lock(&self.inbox.known).control.as_ref().map(|copy| copy.cell.clone());
            let known = known.unwrap_or(Cell::ABSENT);
            let key = RecordKey::control();
            encoded.control = Some(encoded.add(link.dialect.read_if_changed(&key, &known)));
            encoded.time = Some(encoded.add(redis::cmd("TIME")));
            self.polled_ns = sent_ns;
            self.wants_control = false;
        }
        let (pipeline, skipped) = (std::mem::take(&mut encoded.pipeline), encoded.skipped);
        let exchange = exchange(link.connection.clone(), pipeline, skipped);
        let sent = Sent { batch, encoded, sent_ns, is_resend };
        match hand_over(exchange) {
            Ok(responses) => {
                let id = self.next_number();
                self.events.push(Box::pin(async move { Event::Responses(id, responses.await) }));
                self.inbox.counters.round_trips.add(1);
                self.sent.insert(id, sent);
            }
            Err(error) => {
                self.take_back(sent);
                self.lose_link(&error.to_string());
            }
        }
    }

    /// A commit may have happened: it is sent again when the server responds.
    pub(super) fn keep_uncertain(&mut self, group: Group, pending: &mut KeyMap<Pending>) {
        let keys = group.keys.iter();
        let pending = keys.filter_map(|key| Some((*key, pending.remove(key)?))).collect();
        let not_before_ns = local_ns() + RESEND_AFTER_NS;
        self.uncertain.push(Uncertain { group, pending, not_before_ns });
    }

    /// Sends again what may have happened, with the stamps that it had.
    pub(super) fn resend(&mut self) {
        let now_ns = local_ns();
        for uncertain in std::mem::take(&mut self.uncertain) {
            if uncertain.group.jobs.is_empty() {
                self.forget(&uncertain.group);
                continue;
            }
            if self.link.is_none() || uncertain.not_before_ns > now_ns {
                self.uncertain.push(uncertain);
                continue;
            }
            self.inbox.counters.resends.add(1);
            let Uncertain { group, pending, .. } = uncertain;
            self.send(Batch::of(group, pending), Sending::Again);
        }
    }

    /// What is at these keys is not known any more.
    fn forget(&mut self, group: &Group) {
        let mut known = lock(&self.inbox.known);
        for key in &group.keys {
            known.cache.remove(key);
            self.busy.remove(key);
        }
    }
}

impl Batch {
    /// What is known of a group whose response is lost.
    pub(super) fn outage_of(&self, group: &Group) -> Outage {
        Self::outage_by(group, &self.pending)
    }

    pub(super) fn outage_by(group: &Group, pending: &KeyMap<Pending>) -> Outage {
        let writes = |key: &RecordKey| pending.get(key).is_some_and(Pending::writes);
        if group.keys.iter().any(writes) { Outage::Unknown } else { Outage::Unavailable }
    }
}

/// Sends commands, and waits for the responses to all but the first ones, which are skipped.
pub(super) async fn exchange(
    mut connection: MultiplexedConnection,
    pipeline: Pipeline,
    skipped: usize,
) -> Result<Vec<Value>, RedisError> {
    let count = pipeline.len() - skipped;
    connection.send_packed_commands(&pipeline, skipped, count).await
}

/// Hands commands to their connection. Fails if that has ended: then nothing was sent.
///
/// They are put into the queue of the connection's task when the exchange is first polled. That task runs
/// on the same thread, so it can neither respond nor end meanwhile.
pub(super) fn hand_over<F>(
    exchange: F,
) -> Result<impl Future<Output = F::Output> + Send, RedisError>
where
    F: Future<Output = Result<Vec<Value>, RedisError>> + Send,
{
    let mut exchange = Box::pin(exchange);
    match exchange.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Ok(Either::Left(exchange)),
        Poll::Ready(Ok(responses)) => Ok(Either::Right(ready(Ok(responses)))),
        Poll::Ready(Err(error)) => Err(error),
    }
}

/// Lets the tasks of connections find out what has happened to them.
///
/// A task that yields goes on when the system was asked for events; by the second time, the tasks that wait
/// for them have run. So a connection that was closed before is not taken for an open one.
pub(super) async fn notice_events() {
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
}

/// How many batches are on their way at most.
const MOST_BATCHES: usize = 2;

/// How long after a response was lost a commit is sent again at the earliest.
const RESEND_AFTER_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
