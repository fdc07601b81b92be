//! Runs transactions: collects what waits, decides it with the values that were last seen, commits it
//! if they are still there, and decides again where they are not.
//!
//! One thread does this for a store. At most two batches are on their way to the server, so that one is
//! decided while the server works on the other. A key is in one of them at most; what else needs it
//! waits, and is committed together in the next.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

mod announce;
mod barrier;
mod connect;
mod contended_keys;
mod edits;
mod listing;
mod responses;
mod send;
mod server_poll;

use barrier::Barriers;
use contended_keys::{Came, ContendedKeys, WaitEnd};
use edits::Edits;
use send::{Uncertain, notice_events};
use server_poll::ServerPoll;

/// Runs the transactions of a store until it is closed.
pub(crate) async fn run(inbox: Arc<Inbox>, route: Arc<Route>) {
    Driver::new(inbox, route).run().await;
}

struct Driver {
    inbox: Arc<Inbox>,
    route: Arc<Route>,
    link: Option<Link>,
    is_connecting: bool,
    connect_after_ns: u64,
    /// Since when there is no connection.
    lost_ns: Option<u64>,
    scripts_are_gone: bool,
    server_poll: ServerPoll,
    /// In the order in which they came.
    waiting: Vec<Job>,
    /// Keys of batches that are on their way, and of commits whose outcome is not known yet.
    busy: KeySet,
    events: FuturesUnordered<Pin<Box<dyn Future<Output = Event> + Send>>>,
    sent: HashMap<u64, Sent>,
    /// Commits whose response was lost: they are sent again.
    uncertain: Vec<Uncertain>,
    edits: Edits,
    barriers: Barriers,
    contended: ContendedKeys,
    nodes: Registry,
    wants_control: bool,
    control_is_foreign: bool,
    polled_ns: u64,
    complaints: LogPace,
    step_logs: LogPace,
    /// The last number given to what is sent.
    last_number: u64,
}

/// What happens beside the arrival of transactions.
enum Event {
    /// The responses to a batch.
    Responses(u64, Result<Vec<Value>, RedisError>),
    /// The responses to a barrier.
    Barrier(u64, Result<Vec<Value>, RedisError>),
    /// What the server says of itself.
    ServerPoll(u64, Result<Vec<Value>, RedisError>),
    /// An attempt to connect has ended.
    Connected(Result<Box<Link>, ConnectFailure>),
}

/// A batch on its way to the server.
struct Sent {
    batch: Batch,
    encoded: Encoded,
    sent_ns: u64,
    is_resend: bool,
}

impl Driver {
    fn new(inbox: Arc<Inbox>, route: Arc<Route>) -> Self {
        let nodes = Registry::new(&inbox.settings.namespace);
        Self {
            inbox,
            route,
            link: None,
            is_connecting: false,
            connect_after_ns: 0,
            lost_ns: Some(local_ns()),
            scripts_are_gone: false,
            server_poll: ServerPoll::default(),
            waiting: Vec::new(),
            busy: KeySet::default(),
            events: FuturesUnordered::new(),
            sent: HashMap::new(),
            uncertain: Vec::new(),
            edits: Edits::default(),
            barriers: Barriers::default(),
            contended: ContendedKeys::default(),
            nodes,
            wants_control: false,
            control_is_foreign: false,
            polled_ns: 0,
            complaints: LogPace::default(),
            step_logs: LogPace::default(),
            last_number: 0,
        }
    }

    async fn run(mut self) {
        loop {
            // Before what was submitted is collected: nothing is submitted afterwards.
            let is_closed = self.inbox.is_closed.load(Ordering::Acquire);
            self.collect();
            self.expire();
            self.finish_edits();
            self.connect();
            if !self.waiting.is_empty() {
                notice_events().await;
            }
            self.send_all();
            self.connect_for_turns();
            self.send_barrier();
            self.leave_where_requested();
            self.send_poll();
            self.list();
            if is_closed && self.is_idle() {
                return self.leave().await;
            }
            let inbox = Arc::clone(&self.inbox);
            let until = Duration::from_nanos(self.next_event_ns().saturating_sub(local_ns()));
            tokio::select! {
                () = inbox.arrived.notified() => {}
                Some(event) = self.events.next() => self.take_event(event),
                Some(end) = self.contended.next() => self.turn_came(end),
                () = tokio::time::sleep(until) => {}
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Responses(id, responses) => self.receive(id, responses),
            Event::Barrier(id, responses) => self.take_barrier(id, responses),
            Event::ServerPoll(id, responses) => self.take_poll(id, responses),
            Event::Connected(link) => self.connected(link),
        }
    }

    /// A number for what is sent.
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Connects to the server once more, where turns are waited for.
    fn connect_for_turns(&mut self) {
        if !self.contended.is_empty() {
            let name = self.inbox.settings.control_name();
            self.contended.connect(&self.route, &name, local_ns());
        }
    }

    /// Waits for the turn at a key, unless a commit of it is on its way.
    fn wait_for_turn(&mut self, key: RecordKey) {
        if let Some(link) = self.link.as_ref().filter(|_| !self.busy.contains(&key)) {
            self.contended.wait(key, link.dialect.turn_name(&key), local_ns());
        }
    }

    fn turn_came(&mut self, end: WaitEnd) {
        match self.contended.came(end, local_ns(), self.deadline_ns()) {
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
            && self.sent.is_empty()
            && self.uncertain.is_empty()
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
        let readers = self.sent.values().flat_map(|sent| &sent.batch.readers);
        let jobs = self.waiting.iter().chain(groups.flat_map(|group| &group.jobs)).chain(readers);
        let due_ns = jobs.map(|job| job.due_ns).min();
        let sent_ns = self.sent.values().map(|sent| sent.sent_ns + self.deadline_ns()).min();
        let edit_ns = (!self.edits.written.is_empty() || !self.edits.queued.is_empty())
            .then(|| now_ns + (self.lead_ns() / 16).clamp(500_000, 20_000_000));
        let connect_ns =
            (self.link.is_none() && !self.is_connecting).then_some(self.connect_after_ns);
        let resend_ns = self.uncertain.iter().map(|it| it.not_before_ns).min();
        let resend_ns = resend_ns.filter(|at_ns| *at_ns > now_ns);
        let (barrier_ns, server_ns) = (self.barriers.next_event_ns(), self.next_poll_ns());
        [Some(poll_ns), due_ns, sent_ns, edit_ns, connect_ns, resend_ns, barrier_ns, server_ns]
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
        let is_late = |job: &Job| job.due_ns <= now_ns;
        let mut late = extract(&mut self.waiting, is_late);
        late.append(&mut extract(&mut self.edits.queued, is_late));
        for sent in self.sent.values_mut() {
            late.append(&mut extract(&mut sent.batch.readers, is_late));
        }
        for job in late {
            self.fail(job, Outage::Unavailable);
        }
        let mut late = Vec::new();
        for Sent { batch, .. } in self.sent.values_mut() {
            let pending = &batch.pending;
            for group in &mut batch.groups {
                let outage = Batch::outage_by(group, pending);
                let jobs = extract(&mut group.jobs, is_late);
                late.extend(jobs.into_iter().map(|job| (job, outage)));
            }
        }
        for uncertain in &mut self.uncertain {
            let jobs = extract(&mut uncertain.group.jobs, is_late);
            late.extend(jobs.into_iter().map(|job| (job, Outage::Unknown)));
        }
        for (job, outage) in late {
            self.fail(job, outage);
        }
        self.expire_barriers(now_ns);
        let deadline_ns = self.deadline_ns();
        if self.sent.values().any(|sent| sent.sent_ns + deadline_ns <= now_ns) {
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

    /// Logs at most every ten seconds.
    fn complain(&mut self, log: impl FnOnce()) {
        if self.complaints.may_log(local_ns()) {
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

/// When a kind of event was last logged.
#[derive(Default)]
struct LogPace(Option<u64>);

impl LogPace {
    /// Whether it is time for another line.
    fn may_log(&mut self, now_ns: u64) -> bool {
        let is_time = self.0.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) > LOG_EVERY_NS);
        if is_time {
            self.0 = Some(now_ns);
        }
        is_time
    }
}

/// How often a kind of event is logged at most.
const LOG_EVERY_NS: u64 = 10_000_000_000;
