//! Runs transactions: collects what waits, decides it with the values that were last seen, commits it
//! if they are still there, and decides again where they are not.
//!
//! One thread does this for a store. At most two batches are on their way, so that one is decided
//! while the server works on the other. A key is in one of them at most; what else needs it waits,
//! and is committed together in the next.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, Future, pending};
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tidegate::shared::RecordKey;
use tidegate::{Clock, MonotonicClock, Outage};

use crate::batch::{Batch, Group, Job, Pending, Placed, Sources};
use crate::commands::Encoded;
use crate::control::ControlCopy;
use crate::error::ConnectFailure;
use crate::frame::{self, Cell};
use crate::inbox::{Inbox, Known};
use crate::key_map::{KeyMap, KeySet};
use crate::link::Link;
use crate::locks::lock;
use crate::route::Route;

mod edits;
mod responses;

use edits::Edits;

/// Runs the transactions of a store until it is closed.
pub(crate) async fn run(inbox: Arc<Inbox>, route: Arc<Route>) {
    Driver::new(inbox, route).run().await;
}

struct Driver {
    inbox: Arc<Inbox>,
    route: Arc<Route>,
    link: Option<Link>,
    /// The attempt to connect, and when the next one may begin.
    connecting: Option<Connecting>,
    connect_after_ns: u64,
    /// Since when there is no connection.
    lost_ns: Option<u64>,
    /// In the order in which they came.
    waiting: Vec<Job>,
    /// Keys of batches that are on their way.
    busy: KeySet,
    responses: FuturesUnordered<Response>,
    sent: HashMap<u64, Sent>,
    /// Commits whose response was lost: they are sent again.
    uncertain: Vec<Sent>,
    edits: Edits,
    scripts_are_gone: bool,
    wants_control: bool,
    control_is_foreign: bool,
    polled_ns: u64,
    last_complaint_ns: u64,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Link, ConnectFailure>> + Send>>;
type Response = Pin<Box<dyn Future<Output = (u64, Result<Vec<Value>, RedisError>)> + Send>>;

/// A batch on its way.
struct Sent {
    batch: Batch,
    encoded: Encoded,
    stamp: u64,
    sent_ns: u64,
    /// The time that expiries were computed from.
    now_ms: u64,
    is_resend: bool,
}

impl Driver {
    fn new(inbox: Arc<Inbox>, route: Arc<Route>) -> Self {
        Self {
            inbox,
            route,
            link: None,
            connecting: None,
            connect_after_ns: 0,
            lost_ns: Some(local_ns()),
            waiting: Vec::new(),
            busy: KeySet::default(),
            responses: FuturesUnordered::new(),
            sent: HashMap::new(),
            uncertain: Vec::new(),
            edits: Edits::default(),
            scripts_are_gone: false,
            wants_control: false,
            control_is_foreign: false,
            polled_ns: 0,
            last_complaint_ns: 0,
        }
    }

    async fn run(mut self) {
        loop {
            self.collect();
            self.expire();
            self.finish_edits();
            self.connect();
            self.send_all();
            self.list();
            if self.inbox.is_closed.load(std::sync::atomic::Ordering::Acquire) && self.is_idle() {
                return;
            }
            let inbox = Arc::clone(&self.inbox);
            let until = Duration::from_nanos(self.next_event_ns().saturating_sub(local_ns()));
            let connecting = match &mut self.connecting {
                Some(connecting) => Either::Left(connecting),
                None => Either::Right(pending()),
            };
            tokio::select! {
                () = inbox.arrived.notified() => {}
                Some((id, response)) = self.responses.next() => self.receive(id, response),
                connected = connecting => self.connected(connected),
                () = tokio::time::sleep(until) => {}
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty() && self.uncertain.is_empty()
    }

    fn collect(&mut self) {
        let mut arrived = Vec::new();
        self.inbox.take(&mut arrived);
        if self.inbox.is_breaker_open() {
            for job in arrived {
                self.inbox.answer_without_server(job.transaction);
            }
        } else {
            self.waiting.append(&mut arrived);
        }
    }

    /// Lists keys, beside the batches.
    fn list(&self) {
        for (from, listed) in self.inbox.take_listings() {
            // Without a connection it is dropped, which is a failure.
            let Some(link) = &self.link else { continue };
            let (connection, prefix) = (link.connection.clone(), link.dialect.prefix.clone());
            tokio::spawn(async move {
                let keys = scan(connection, &prefix, from).await;
                let _ = listed.send(keys.map_err(|error| {
                    tracing::warn!(%error, "cannot list the records of the store");
                    Outage::Unavailable
                }));
            });
        }
    }

    /// When there is something to do though nothing comes.
    fn next_event_ns(&self) -> u64 {
        let now_ns = local_ns();
        let poll_ns = self.polled_ns.saturating_add(self.poll_every_ns());
        let batches = self.sent.values().chain(&self.uncertain).flat_map(|sent| {
            let of_groups = sent.batch.groups.iter().flat_map(|group| &group.jobs);
            of_groups.chain(&sent.batch.readers)
        });
        let due_ns = self.waiting.iter().chain(batches).map(|job| job.due_ns).min();
        let sent_ns = self.sent.values().map(|sent| sent.sent_ns + self.deadline_ns()).min();
        let edit_ns = (!self.edits.written.is_empty() || !self.edits.queued.is_empty())
            .then(|| now_ns + (self.lead_ns() / 16).clamp(500_000, 20_000_000));
        let connect_ns =
            (self.link.is_none() && self.connecting.is_none()).then_some(self.connect_after_ns);
        [Some(poll_ns), due_ns, sent_ns, edit_ns, connect_ns]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(poll_ns)
            .max(now_ns + 100_000)
    }

    fn deadline_ns(&self) -> u64 {
        nanos(self.inbox.settings.deadline)
    }

    fn lead_ns(&self) -> u64 {
        nanos(self.inbox.settings.edit_lead)
    }

    /// How often the record of the policy is read though nothing needs it.
    fn poll_every_ns(&self) -> u64 {
        (self.lead_ns() / 4).max(50_000_000)
    }

    /// Ends transactions whose time is over, and gives up a connection that is silent.
    fn expire(&mut self) {
        let now_ns = local_ns();
        let mut late = extract(&mut self.waiting, |job| job.due_ns <= now_ns);
        late.append(&mut extract(&mut self.edits.queued, |job| job.due_ns <= now_ns));
        for job in late {
            self.fail(job, Outage::Unavailable);
        }
        let mut late = Vec::new();
        for sent in self.sent.values_mut().chain(&mut self.uncertain) {
            let batch = &mut sent.batch;
            let readers = extract(&mut batch.readers, |job| job.due_ns <= now_ns);
            late.extend(readers.into_iter().map(|job| (job, Outage::Unavailable)));
            for group in &mut batch.groups {
                let outage = outage_of(group, &batch.pending);
                let jobs = extract(&mut group.jobs, |job| job.due_ns <= now_ns);
                late.extend(jobs.into_iter().map(|job| (job, outage)));
            }
        }
        for (job, outage) in late {
            self.fail(job, outage);
        }
        let deadline_ns = self.deadline_ns();
        let is_silent = self.sent.values().any(|sent| sent.sent_ns + deadline_ns <= now_ns);
        if is_silent && self.link.is_some() {
            self.lose_link("the server does not respond");
        }
        if self.lost_ns.is_some_and(|lost_ns| lost_ns + deadline_ns <= now_ns) {
            self.open_breaker();
        }
    }

    fn fail(&mut self, job: Job, outage: Outage) {
        match outage {
            Outage::Unknown => self.inbox.counters.unknown.add(1),
            Outage::Corrupt(key) => {
                let prefix = self.inbox.settings.namespace.clone();
                self.inbox.counters.unavailable.add(1);
                self.complain(|| {
                    tracing::error!(key = %format!("{prefix}:{key}"), "a value in the store is not of this program");
                });
            }
            _ => self.inbox.counters.unavailable.add(1),
        }
        job.transaction.fail(outage);
    }

    fn open_breaker(&mut self) {
        if self.inbox.set_breaker(true) {
            self.inbox.counters.breaker_opened.add(1);
            tracing::warn!("the store does not respond; decisions follow on_error until it does");
        }
        for job in std::mem::take(&mut self.waiting) {
            self.inbox.answer_without_server(job.transaction);
        }
    }

    fn connect(&mut self) {
        let is_time = local_ns() >= self.connect_after_ns;
        if self.link.is_none() && self.connecting.is_none() && is_time {
            let (route, inbox) = (Arc::clone(&self.route), Arc::clone(&self.inbox));
            self.connecting =
                Some(Box::pin(async move { Link::connect(&route, &inbox.settings).await }));
        }
    }

    fn connected(&mut self, connected: Result<Link, ConnectFailure>) {
        self.connecting = None;
        self.connect_after_ns = local_ns() + RECONNECT_AFTER_NS;
        match connected {
            Ok(link) => {
                tracing::info!(server = %link.server, "connected to the store");
                lock(&self.inbox.known).server = Some(link.server.clone());
                if !matches!(&*link.server.eviction, "" | "noeviction") {
                    let policy = &link.server.eviction;
                    tracing::warn!(%policy, "the server may evict records: set maxmemory-policy noeviction");
                }
                self.link = Some(link);
                self.lost_ns = None;
                *lock(&self.inbox.failure) = None;
                self.inbox.set_breaker(false);
                self.inbox.counters.connects.add(1);
                // What the new server has may be another thing.
                if let Some(control) = &mut lock(&self.inbox.known).control {
                    control.read_ns = 0;
                }
                self.polled_ns = 0;
                for sent in std::mem::take(&mut self.uncertain) {
                    self.inbox.counters.resends.add(sent.batch.groups.len());
                    self.send(sent.batch, Some((sent.stamp, sent.now_ms)));
                }
            }
            Err(ConnectFailure(error)) => {
                self.complain(|| tracing::warn!(%error, "cannot connect to the store"));
                *lock(&self.inbox.failure) = Some(error);
            }
        }
    }

    /// Logs at most every ten seconds.
    fn complain(&mut self, log: impl FnOnce()) {
        let now_ns = local_ns();
        if self.last_complaint_ns == 0 || now_ns - self.last_complaint_ns > COMPLAIN_EVERY_NS {
            self.last_complaint_ns = now_ns;
            log();
        }
    }

    /// The connection is of no use any more. What was sent over it may have happened.
    fn lose_link(&mut self, error: &str) {
        if self.link.take().is_none() {
            return;
        }
        self.complain(|| tracing::warn!(error, "lost the connection to the store"));
        *lock(&self.inbox.failure) = Some(error.to_owned());
        self.lost_ns = Some(local_ns());
        self.connect_after_ns = local_ns();
        // Their responses do not count any more.
        self.responses.clear();
        for (_, sent) in std::mem::take(&mut self.sent) {
            self.give_back(sent);
        }
    }

    /// A batch whose responses are lost: what writes nothing is done again.
    fn give_back(&mut self, mut sent: Sent) {
        let mut again = std::mem::take(&mut sent.batch.readers);
        let is_write = |group: &Group| outage_of(group, &sent.batch.pending) == Outage::Unknown;
        let (writes, reads): (Vec<Group>, Vec<Group>) =
            std::mem::take(&mut sent.batch.groups).into_iter().partition(is_write);
        for group in reads {
            group.keys.iter().for_each(|key| {
                self.busy.remove(key);
            });
            again.extend(group.jobs);
        }
        for key in std::mem::take(&mut sent.batch.reads) {
            self.busy.remove(&key);
        }
        self.wait_first(again);
        sent.batch.groups = writes;
        if !sent.batch.groups.is_empty() {
            self.uncertain.push(sent);
        }
    }

    /// Lets transactions wait before all others.
    fn wait_first(&mut self, mut jobs: Vec<Job>) {
        jobs.append(&mut self.waiting);
        self.waiting = jobs;
    }

    /// Sends what can be sent.
    fn send_all(&mut self) {
        while self.link.is_some() && self.sent.len() < MOST_BATCHES {
            let batch = self.fill();
            let poll = self.wants_control
                || local_ns() >= self.polled_ns.saturating_add(self.poll_every_ns());
            if batch.is_empty() && !poll {
                return;
            }
            self.send(batch, None);
        }
    }

    /// A batch of what waits.
    fn fill(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut taken = std::mem::take(&mut self.busy);
        let mut claimed: Vec<RecordKey> = Vec::new();
        let mut edits = Vec::new();
        let mut complete = Vec::new();
        let mut waiting = Vec::new();
        let inbox = Arc::clone(&self.inbox);
        let mut known = lock(&inbox.known);
        let Known { cache, control, .. } = &mut *known;
        let latest = inbox.clock.latest();
        for job in std::mem::take(&mut self.waiting) {
            let copy = control.as_ref().filter(|copy| self.is_usable(copy, &job));
            let control = copy.map(|copy| copy.in_force(latest));
            let mut sources = Sources { cache: &mut *cache, control, taken: &taken };
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
            }
        }
        drop(known);
        for key in claimed {
            taken.remove(&key);
        }
        self.busy = taken;
        self.waiting = waiting;
        batch.close();
        self.busy.extend(batch.keys());
        self.inbox.counters.commits.add(complete.len());
        complete.into_iter().for_each(|job| job.transaction.complete());
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

    /// Sends a batch; one that is sent again has the stamp that it had.
    fn send(&mut self, batch: Batch, again: Option<(u64, u64)>) {
        let Some(link) = &self.link else { return };
        let now_ms = self.inbox.clock.latest().as_nanos() / 1_000_000;
        let (stamp, now_ms) = again.unwrap_or_else(|| (frame::new_stamp(), now_ms));
        let mut encoded = link.dialect.encode(&batch, stamp, now_ms);
        let sent_ns = local_ns();
        if self.wants_control || sent_ns >= self.polled_ns.saturating_add(self.poll_every_ns()) {
            let known = lock(&self.inbox.known).control.as_ref().map(|copy| copy.cell.clone());
            let known = known.unwrap_or(Cell::ABSENT);
            let key = RecordKey::control();
            encoded.control = Some(encoded.add(link.dialect.read_if_changed(&key, &known)));
            encoded.time = Some(encoded.add(redis::cmd("TIME")));
            self.polled_ns = sent_ns;
            self.wants_control = false;
        }
        let connection = link.connection.clone();
        let load = std::mem::take(&mut self.scripts_are_gone);
        let (pipeline, count) = (std::mem::take(&mut encoded.pipeline), encoded.count());
        self.responses.push(Box::pin(exchange(connection, (stamp, pipeline, count), load)));
        self.inbox.counters.round_trips.add(1);
        let is_resend = again.is_some();
        let sent = Sent { batch, encoded, stamp, sent_ns, now_ms, is_resend };
        self.sent.insert(stamp, sent);
    }
}

/// Sends commands, and waits for the responses.
async fn exchange(
    mut connection: MultiplexedConnection,
    (id, pipeline, count): (u64, redis::Pipeline, usize),
    loads_scripts: bool,
) -> (u64, Result<Vec<Value>, RedisError>) {
    if loads_scripts && let Err(error) = Link::load_scripts(connection.clone()).await {
        return (id, Err(error));
    }
    (id, connection.send_packed_commands(&pipeline, 0, count).await)
}

/// Some keys of states, and where the next ones are.
async fn scan(
    mut connection: MultiplexedConnection,
    prefix: &str,
    from: u64,
) -> Result<(Vec<RecordKey>, u64), RedisError> {
    let mut command = redis::cmd("SCAN");
    // Braces and the like are no pattern; the namespace has no other special characters.
    command.arg(from).arg("MATCH").arg(format!("{prefix}state:*")).arg("COUNT").arg(512);
    let (next, names): (u64, Vec<String>) = command.query_async(&mut connection).await?;
    let key = |name: &String| RecordKey::state_from_text(name.strip_prefix(prefix)?);
    Ok((names.iter().filter_map(key).collect(), next))
}

/// What is known of a group whose response is lost.
fn outage_of(group: &Group, pending: &KeyMap<Pending>) -> Outage {
    let writes = |key: &RecordKey| pending.get(key).is_some_and(|it| it.change.is_some());
    if group.keys.iter().any(writes) { Outage::Unknown } else { Outage::Unavailable }
}

/// Takes those out that a condition holds for; the others keep their order.
fn extract<T>(from: &mut Vec<T>, is_out: impl Fn(&T) -> bool) -> Vec<T> {
    if !from.iter().any(&is_out) {
        return Vec::new();
    }
    let (out, rest) = std::mem::take(from).into_iter().partition(is_out);
    *from = rest;
    out
}

fn local_ns() -> u64 {
    MonotonicClock.now().as_nanos()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How many batches are on their way at most.
const MOST_BATCHES: usize = 2;

/// How long after an attempt to connect the next one begins.
const RECONNECT_AFTER_NS: u64 = 100_000_000;

/// How often a failure is logged at most.
const COMPLAIN_EVERY_NS: u64 = 10_000_000_000;
