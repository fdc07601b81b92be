//! Makes batches of what waits, and sends to each server what it has the keys of.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;
use tidegate_table::Clock;

use super::lanes::Lane;
use super::{Driver, Event, Reader, Sent, local_ns};
use crate::batch::{Batch, Group, Job, Pending, Placed, Sources};
use crate::control::ControlCopy;
use crate::frame::Cell;
use crate::inbox::Known;
use crate::key_map::{KeyMap, KeySet};
use crate::link::Link;
use crate::locks::lock;

/// A commit whose response was lost.
pub(super) struct Uncertain {
    pub(super) group: Group,
    pub(super) pending: KeyMap<Pending>,
    /// The time that expiries were computed from.
    pub(super) now_ms: u64,
    /// When it can be sent again, by the local clock.
    pub(super) not_before_ns: u64,
}

/// How a batch is sent.
#[derive(Clone, Copy)]
pub(super) struct Sending {
    pub(super) lane: usize,
    pub(super) now_ms: u64,
    pub(super) is_resend: bool,
}

impl Driver {
    /// Sends what can be sent.
    pub(super) fn send_all(&mut self) {
        self.resend();
        while self.lanes.any_is_ready() {
            // The record of the policy is read also while no more can be committed.
            let batch = if self.several.is_full() { Batch::default() } else { self.fill() };
            let poll = self.control_lane_to_poll();
            if batch.is_empty() && poll.is_none() {
                return;
            }
            self.dispatch(batch, poll);
        }
    }

    /// The server of the policy's record, if that is to be read.
    fn control_lane_to_poll(&self) -> Option<usize> {
        let number = self.lanes.of_control().filter(|_| self.needs_control(local_ns()))?;
        self.lanes.all.get(number).is_some_and(Lane::is_ready).then_some(number)
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
        let (mut waiting, mut away, mut not_durable) = (Vec::new(), Vec::new(), Vec::new());
        let inbox = Arc::clone(&self.inbox);
        let mut known = lock(&inbox.known);
        let Known { cache, control, .. } = &mut *known;
        let latest = inbox.clock.latest();
        let times = (local_ns(), self.deadline_ns());
        let most_keys = if self.lanes.cluster.is_some() { MOST_KEYS_SPREAD } else { MOST_KEYS };
        let mut last_number = self.last_number;
        let offered = self.offered_durability();
        let mut turns: Vec<RecordKey> = Vec::new();
        for job in std::mem::take(&mut self.waiting) {
            if let Some(key) = self.turns.missing(&job.needs) {
                turns.push(key);
                waiting.push(job);
                continue;
            }
            let copy = control.as_ref().filter(|copy| self.is_usable(copy, &job));
            let mut sources = Sources {
                cache: &mut *cache,
                control: copy.map(|copy| copy.in_force(latest)),
                offered,
                taken: &taken,
                readiness: &|key| self.lanes.readiness(key, times),
                most_keys,
                next_reader: &mut last_number,
            };
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
                Placed::Away(job) => away.push(job),
                Placed::Edit(job, write) => edits.push((job, write)),
                Placed::NotDurable(job) => not_durable.push(job),
            }
        }
        drop(known);
        for key in claimed {
            taken.remove(&key);
        }
        (self.busy, self.waiting, self.last_number) = (taken, waiting, last_number);
        batch.close();
        turns.into_iter().for_each(|key| self.wait_for_turn(key));
        self.busy.extend(batch.keys());
        self.inbox.counters.commits.add(complete.len());
        for job in complete {
            let keys = job.needs.clone();
            self.complete(job, &keys, None);
        }
        not_durable.into_iter().for_each(|job| self.fail(job, Outage::Unavailable));
        away.into_iter().for_each(|job| self.inbox.answer_without_server(job.transaction));
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

    /// Sends each part of a batch to the server that has its keys.
    fn dispatch(&mut self, mut batch: Batch, poll: Option<usize>) {
        let now_ms = self.now_ms();
        for (number, job, missing) in std::mem::take(&mut batch.readers) {
            self.readers.insert(number, Reader { job, missing, failure: None });
        }
        if self.lanes.cluster.is_none() {
            return self.send(batch, Sending { lane: 0, now_ms, is_resend: false });
        }
        let mut lanes: BTreeMap<usize, Batch> = BTreeMap::new();
        if let Some(number) = poll {
            lanes.entry(number).or_default();
        }
        for (key, reader) in std::mem::take(&mut batch.reads) {
            match self.lanes.of(&key) {
                Some(lane) => lanes.entry(lane).or_default().reads.push((key, reader)),
                None => {
                    self.busy.remove(&key);
                    self.has_read(reader, None);
                }
            }
        }
        for group in std::mem::take(&mut batch.groups) {
            match self.lanes.of_all(&group.keys) {
                Some(lane) => lanes.entry(lane).or_default().add(group, &mut batch.pending),
                None => {
                    for (lane, group, pending) in self.begin(group, &mut batch.pending, now_ms) {
                        lanes.entry(lane).or_default().add_part(group, pending);
                    }
                }
            }
        }
        for (lane, batch) in lanes {
            self.send(batch, Sending { lane, now_ms, is_resend: false });
        }
    }

    /// The latest time that it can be, in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        self.inbox.clock.latest().as_nanos() / 1_000_000
    }

    /// Sends a batch to a server.
    pub(super) fn send(&mut self, mut batch: Batch, sending: Sending) {
        let Sending { lane: number, now_ms, is_resend } = sending;
        let is_control = self.lanes.of_control() == Some(number);
        let sent_ns = local_ns();
        let polls = is_control && self.needs_control(sent_ns);
        let Some(lane) = self.lanes.all.get_mut(number) else { return };
        let Some(link) = &lane.link else { return };
        let turns = if is_resend { KeySet::default() } else { self.turns.send(&mut batch.groups) };
        let mut encoded = link.dialect.encode((&batch, &turns), now_ms);
        if polls {
            let known = lock(&self.inbox.known).control.as_ref().map(|copy| copy.cell.clone());
            let known = known.unwrap_or(Cell::ABSENT);
            let key = RecordKey::control();
            encoded.control = Some(encoded.add(link.dialect.read_if_changed(&key, &known)));
            encoded.time = Some(encoded.add(redis::cmd("TIME")));
            self.polled_ns = sent_ns;
            self.wants_control = false;
        }
        let connection = link.connection.clone();
        let load = std::mem::take(&mut lane.scripts_are_gone);
        lane.in_flight += 1;
        let (pipeline, count) = (std::mem::take(&mut encoded.pipeline), encoded.count());
        self.last_number += 1;
        let id = self.last_number;
        self.events.push(Box::pin(async move {
            Event::Responses(id, exchange(connection, (pipeline, count), load).await)
        }));
        self.inbox.counters.round_trips.add(1);
        let sent = Sent { lane: number, batch, encoded, sent_ns, now_ms, is_resend };
        self.sent.insert(id, sent);
    }

    /// A commit may have happened: it is sent again when its server responds.
    pub(super) fn keep_uncertain(
        &mut self,
        group: Group,
        pending: &mut KeyMap<Pending>,
        now_ms: u64,
    ) {
        let keys = group.keys.iter();
        let pending = keys.filter_map(|key| Some((*key, pending.remove(key)?))).collect();
        let not_before_ns = local_ns() + RESEND_AFTER_NS;
        self.uncertain.push(Uncertain { group, pending, now_ms, not_before_ns });
    }

    /// Sends again what may have happened, with the stamps that it had.
    pub(super) fn resend(&mut self) {
        let now_ns = local_ns();
        for uncertain in std::mem::take(&mut self.uncertain) {
            if !self.is_wanted(&uncertain.group) {
                self.forget(&uncertain.group);
                continue;
            }
            let lane = self.lanes.of_all(&uncertain.group.keys).filter(|number| {
                self.lanes.all.get(*number).is_some_and(|lane| lane.link.is_some())
            });
            let Some(lane) = lane.filter(|_| uncertain.not_before_ns <= now_ns) else {
                self.uncertain.push(uncertain);
                continue;
            };
            self.inbox.counters.resends.add(1);
            let Uncertain { group, mut pending, now_ms, .. } = uncertain;
            let mut batch = Batch::default();
            batch.add(group, &mut pending);
            self.send(batch, Sending { lane, now_ms, is_resend: true });
        }
    }

    /// Whether the outcome of a commit still matters to a transaction.
    fn is_wanted(&self, group: &Group) -> bool {
        match group.part_of {
            Some(id) => self.several.is_open(id),
            None => !group.jobs.is_empty(),
        }
    }

    /// What is at these keys is not known any more.
    fn forget(&mut self, group: &Group) {
        if group.part_of.is_some() {
            // They are those of a commit that is being settled.
            return;
        }
        let mut known = lock(&self.inbox.known);
        for key in &group.keys {
            known.cache.remove(key);
            self.busy.remove(key);
        }
    }
}

impl Batch {
    /// Adds a group, and what becomes of its keys.
    pub(super) fn add(&mut self, group: Group, from: &mut KeyMap<Pending>) {
        for key in &group.keys {
            if let Some(pending) = from.remove(key) {
                self.pending.insert(*key, pending);
            }
        }
        self.groups.push(group);
    }

    /// Adds a part of a commit over several servers.
    pub(super) fn add_part(&mut self, group: Group, pending: Pending) {
        if let Some(key) = group.keys.first() {
            self.pending.insert(*key, pending);
        }
        self.groups.push(group);
    }

    /// What is known of a group whose response is lost.
    pub(super) fn outage_of(&self, group: &Group) -> Outage {
        Self::outage_by(group, &self.pending)
    }

    pub(super) fn outage_by(group: &Group, pending: &KeyMap<Pending>) -> Outage {
        let writes = |key: &RecordKey| pending.get(key).is_some_and(Pending::writes);
        if group.keys.iter().any(writes) { Outage::Unknown } else { Outage::Unavailable }
    }
}

/// Sends commands, and waits for the responses.
pub(super) async fn exchange(
    mut connection: MultiplexedConnection,
    (pipeline, count): (redis::Pipeline, usize),
    loads_scripts: bool,
) -> Result<Vec<Value>, RedisError> {
    if loads_scripts {
        Link::load_scripts(connection.clone()).await?;
    }
    connection.send_packed_commands(&pipeline, 0, count).await
}

/// How many keys a commit has at most: with very many it would stop a server for long.
const MOST_KEYS: usize = 128;

/// How many keys a commit over several servers has at most: each of them gets all their names.
const MOST_KEYS_SPREAD: usize = 32;

/// How long after a response was lost a commit is sent again at the earliest.
const RESEND_AFTER_NS: u64 = 1_000_000;
