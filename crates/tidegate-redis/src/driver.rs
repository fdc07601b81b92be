//! Runs transactions: collects what waits, decides it with the values that were last seen, commits it
//! if they are still there, and decides again where they are not.
//!
//! One thread does this for a store. At most two batches are on their way to a server, so that one is
//! decided while the server works on the other. A key is in one of them at most; what else needs it
//! waits, and is committed together in the next.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Future;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;
use tidegate_table::{Clock, MonotonicClock};

use crate::batch::{Batch, Job};
use crate::cache::Seen;
use crate::commands::Encoded;
use crate::error::ConnectFailure;
use crate::inbox::Inbox;
use crate::key_map::KeySet;
use crate::link::Link;
use crate::locks::lock;
use crate::nodes::Registry;
use crate::route::Route;
use crate::slots::SlotMap;

mod announce;
mod barrier;
mod connect;
mod edits;
mod lanes;
mod listing;
mod responses;
mod send;
mod several;
mod survey;
mod turns;

use barrier::Barriers;
use edits::Edits;
use lanes::Lanes;
use send::Uncertain;
use several::{Settled, Several, Visited};
use turns::{Came, Turns, WaitEnd};

/// Runs the transactions of a store until it is closed.
pub(crate) async fn run(inbox: Arc<Inbox>, route: Arc<Route>) {
    Driver::new(inbox, route).run().await;
}

struct Driver {
    inbox: Arc<Inbox>,
    route: Arc<Route>,
    lanes: Lanes,
    /// In the order in which they came.
    waiting: Vec<Job>,
    /// Keys of batches that are on their way, and of commits that are not settled yet.
    busy: KeySet,
    events: FuturesUnordered<Pin<Box<dyn Future<Output = Event> + Send>>>,
    sent: HashMap<u64, Sent>,
    /// Transactions that wait for records, by their numbers.
    readers: HashMap<u64, Reader>,
    /// Commits whose response was lost: they are sent again.
    uncertain: Vec<Uncertain>,
    several: Several,
    edits: Edits,
    barriers: Barriers,
    turns: Turns,
    nodes: Registry,
    wants_control: bool,
    control_is_foreign: bool,
    polled_ns: u64,
    last_complaint_ns: u64,
    /// The last number given to a batch or to a transaction that waits for records.
    last_number: u64,
}

/// What happens beside the arrival of transactions.
enum Event {
    /// The responses to a batch.
    Responses(u64, Result<Vec<Value>, RedisError>),
    /// The responses of a server to a barrier.
    Barrier(u64, usize, Result<Vec<Value>, RedisError>),
    /// What a server says of itself.
    Survey(u64, usize, Result<Vec<Value>, RedisError>),
    /// An attempt to connect to a server has ended.
    Connected(usize, Result<Box<Link>, ConnectFailure>),
    /// Which server has which slots.
    Slots(Result<SlotMap, ConnectFailure>),
    /// A commit over several servers is settled, as far as it goes.
    Settled(Settled),
    /// The group of an intent of another writer is settled.
    Visited(Visited),
}

/// A batch on its way to a server.
struct Sent {
    lane: usize,
    batch: Batch,
    encoded: Encoded,
    sent_ns: u64,
    /// The time that expiries were computed from.
    now_ms: u64,
    is_resend: bool,
}

/// A transaction that waits for records.
struct Reader {
    job: Job,
    /// How many of them are on their way.
    missing: usize,
    failure: Option<Outage>,
}

impl Driver {
    fn new(inbox: Arc<Inbox>, route: Arc<Route>) -> Self {
        let (namespace, is_spread) = (&inbox.settings.namespace, inbox.settings.is_spread);
        let lanes = Lanes::new(namespace, is_spread, local_ns());
        let nodes = Registry::new(namespace, is_spread);
        Self {
            inbox,
            route,
            lanes,
            waiting: Vec::new(),
            busy: KeySet::default(),
            events: FuturesUnordered::new(),
            sent: HashMap::new(),
            readers: HashMap::new(),
            uncertain: Vec::new(),
            several: Several::default(),
            edits: Edits::default(),
            barriers: Barriers::default(),
            turns: Turns::default(),
            nodes,
            wants_control: false,
            control_is_foreign: false,
            polled_ns: 0,
            last_complaint_ns: 0,
            last_number: 0,
        }
    }

    async fn run(mut self) {
        loop {
            self.collect();
            self.expire();
            self.finish_edits();
            self.connect();
            self.send_all();
            self.connect_for_turns();
            self.send_barriers();
            self.leave_where_requested();
            self.send_surveys();
            self.list();
            if self.inbox.is_closed.load(std::sync::atomic::Ordering::Acquire) && self.is_idle() {
                return self.leave().await;
            }
            let inbox = Arc::clone(&self.inbox);
            let until = Duration::from_nanos(self.next_event_ns().saturating_sub(local_ns()));
            tokio::select! {
                () = inbox.arrived.notified() => {}
                Some(event) = self.events.next() => self.take_event(event),
                Some(end) = self.turns.next() => self.turn_came(end),
                () = tokio::time::sleep(until) => {}
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Responses(id, responses) => self.receive(id, responses),
            Event::Barrier(id, lane, responses) => self.take_barrier(id, lane, responses),
            Event::Survey(id, lane, responses) => self.take_survey(id, lane, responses),
            Event::Connected(number, link) => self.connected(number, link),
            Event::Slots(slots) => self.take_slots(slots),
            Event::Settled(settled) => self.settled(settled),
            Event::Visited(visited) => self.visited(visited),
        }
    }

    /// Connects to the server once more, where turns are waited for.
    fn connect_for_turns(&mut self) {
        if !self.turns.is_empty() {
            let name = format!("{}:{}", self.inbox.settings.namespace, RecordKey::control());
            self.turns.connect(&self.route, &name, local_ns());
        }
    }

    /// Waits for the turn at a key, unless a commit of it is on its way.
    fn wait_for_turn(&mut self, key: RecordKey) {
        let link = self.lanes.of(&key).and_then(|number| self.lanes.all.get(number)?.link.as_ref());
        if let Some(link) = link.filter(|_| !self.busy.contains(&key)) {
            self.turns.wait(key, link.dialect.turn_name(&key), local_ns());
        }
    }

    fn turn_came(&mut self, end: WaitEnd) {
        match self.turns.came(end, local_ns(), self.deadline_ns()) {
            Came::Turn(key, cell) => {
                self.inbox.counters.turns.add(1);
                // It may have changed since, so a denial has to be confirmed.
                lock(&self.inbox.known).cache.insert(key, Seen { cell, at_ns: 0 });
            }
            Came::Nothing => self.inbox.counters.turns_missed.add(1),
            Came::Connection => {}
            Came::Refused(error) => {
                self.complain(|| tracing::warn!(error, "the store refuses turns at busy keys"));
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.readers.is_empty()
            && self.sent.is_empty()
            && self.uncertain.is_empty()
            && self.several.is_idle()
            && self.barriers.is_idle()
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

    /// When there is something to do though nothing comes.
    fn next_event_ns(&self) -> u64 {
        let now_ns = local_ns();
        let poll_ns = self.polled_ns.saturating_add(self.poll_every_ns());
        let of_batches = self.sent.values().flat_map(|sent| &sent.batch.groups);
        let groups = of_batches.chain(self.uncertain.iter().map(|it| &it.group));
        let jobs = self.waiting.iter().chain(groups.flat_map(|group| &group.jobs));
        let readers = self.readers.values().map(|reader| &reader.job);
        let due_ns = jobs.chain(readers).chain(self.several.jobs()).map(|job| job.due_ns).min();
        let sent_ns = self.sent.values().map(|sent| sent.sent_ns + self.deadline_ns()).min();
        let edit_ns = (!self.edits.written.is_empty() || !self.edits.queued.is_empty())
            .then(|| now_ns + (self.lead_ns() / 16).clamp(500_000, 20_000_000));
        let unconnected = self
            .lanes
            .all
            .iter()
            .filter(|lane| lane.is_used && lane.link.is_none() && !lane.is_connecting);
        let connect_ns = unconnected.map(|lane| lane.connect_after_ns).min();
        let refresh_ns = self
            .lanes
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.refresh_at_ns.filter(|_| !cluster.is_refreshing));
        let resend_ns = self.uncertain.iter().map(|it| it.not_before_ns).min();
        let resend_ns = resend_ns.filter(|at_ns| *at_ns > now_ns);
        let paused_ns = self.lanes.paused_until_ns(now_ns);
        let (barrier_ns, survey_ns) = (self.barriers.next_event_ns(), self.next_survey_ns());
        [Some(poll_ns), due_ns, sent_ns, edit_ns, connect_ns, refresh_ns, resend_ns, paused_ns]
            .into_iter()
            .chain([barrier_ns, survey_ns])
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

    /// Ends transactions whose time is over, and gives up connections that are silent.
    fn expire(&mut self) {
        let now_ns = local_ns();
        let mut late = extract(&mut self.waiting, |job| job.due_ns <= now_ns);
        late.append(&mut extract(&mut self.edits.queued, |job| job.due_ns <= now_ns));
        let is_late = |reader: &mut Reader| reader.job.due_ns <= now_ns;
        let readers = self.readers.extract_if(|_, reader| is_late(reader));
        late.extend(readers.map(|(_, reader)| reader.job));
        for job in late {
            self.fail(job, Outage::Unavailable);
        }
        let mut late = Vec::new();
        for Sent { batch, .. } in self.sent.values_mut() {
            let pending = &batch.pending;
            for group in &mut batch.groups {
                let outage = Batch::outage_by(group, pending);
                let jobs = extract(&mut group.jobs, |job| job.due_ns <= now_ns);
                late.extend(jobs.into_iter().map(|job| (job, outage)));
            }
        }
        for uncertain in &mut self.uncertain {
            let jobs = extract(&mut uncertain.group.jobs, |job| job.due_ns <= now_ns);
            late.extend(jobs.into_iter().map(|job| (job, Outage::Unknown)));
        }
        for (job, outage) in late {
            self.fail(job, outage);
        }
        self.expire_several(now_ns);
        self.expire_barriers(now_ns);
        let deadline_ns = self.deadline_ns();
        let silent = self.sent.values().filter(|sent| sent.sent_ns + deadline_ns <= now_ns);
        for number in silent.map(|sent| sent.lane).collect::<Vec<_>>() {
            self.lose_lane(number, "the server does not respond");
        }
        if self.lanes.lost_ns().is_some_and(|lost_ns| lost_ns + deadline_ns <= now_ns) {
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

    /// Logs at most every ten seconds.
    fn complain(&mut self, log: impl FnOnce()) {
        let now_ns = local_ns();
        if self.last_complaint_ns == 0 || now_ns - self.last_complaint_ns > COMPLAIN_EVERY_NS {
            self.last_complaint_ns = now_ns;
            log();
        }
    }

    /// Lets transactions wait before all others.
    fn wait_first(&mut self, mut jobs: Vec<Job>) {
        jobs.append(&mut self.waiting);
        self.waiting = jobs;
    }
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

/// How often a failure is logged at most.
const COMPLAIN_EVERY_NS: u64 = 10_000_000_000;
