//! What callers and the driver share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_engine::Outage;
use tidegate_engine::shared::{RecordKey, Records, Step, Transaction};
use tidegate_policy::policy::Durability;
use tidegate_table::{Clock, MonotonicClock};
use tokio::sync::{Notify, oneshot};

use crate::batch::{Job, JobBody, Needs, Permit};
use crate::cache::Cache;
use crate::control::ControlCopy;
use crate::facts::ServerFacts;
use crate::locks::lock;
use crate::nodes::NodeList;
use crate::server_time::ServerClock;
use crate::settings::Settings;
use crate::stats::Counters;

/// What callers and the driver share.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) settings: Settings,
    submitted: Mutex<Vec<Job>>,
    /// How many transactions wait or are on their way.
    open: Arc<AtomicUsize>,
    listings: Mutex<Vec<ListRequest>>,
    pub(crate) arrived: Notify,
    pub(crate) known: Mutex<Known>,
    /// Whether the server is taken for unreachable.
    is_open: AtomicBool,
    pub(crate) is_closed: AtomicBool,
    /// Why there is no connection.
    pub(crate) failure: Mutex<Option<String>>,
    /// What the server, which responds, has refused since the last commit that succeeded.
    pub(crate) refusal: Mutex<Option<String>>,
    pub(crate) clock: ServerClock,
    /// How many keys the database has, as of the last look; 0 if that is not known.
    pub(crate) keys: AtomicU64,
    pub(crate) counters: Counters,
    /// What this node announces of itself.
    pub(crate) own_node: Mutex<OwnNode>,
    /// The nodes as of the last reading; `None` before it, and where they cannot be read.
    pub(crate) nodes: Mutex<Option<NodeList>>,
}

/// What a node announces of itself.
#[derive(Debug, Default)]
pub(crate) struct OwnNode {
    pub(crate) name: String,
    pub(crate) address: Option<String>,
    /// Whether it is announced no more.
    pub(crate) has_left: bool,
    /// They are dropped when it is in the record no more.
    pub(crate) leaving: Vec<oneshot::Sender<()>>,
}

/// A request for the keys of states, from a place on, and where they go.
pub(crate) type ListRequest = (u64, oneshot::Sender<Listed>);

pub(crate) type Listed = Result<(Vec<RecordKey>, u64), Outage>;

/// What is known of the records on the server.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) cache: Cache,
    /// `None` before it was first read.
    pub(crate) control: Option<ControlCopy>,
    /// The server that it was last connected to.
    pub(crate) server: Option<ServerFacts>,
}

impl Inbox {
    pub(crate) fn new(settings: Settings) -> Self {
        let name = settings.node_name.clone();
        Self {
            settings,
            submitted: Mutex::default(),
            open: Arc::default(),
            listings: Mutex::default(),
            arrived: Notify::new(),
            known: Mutex::default(),
            is_open: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            failure: Mutex::default(),
            refusal: Mutex::default(),
            clock: ServerClock::default(),
            keys: AtomicU64::new(0),
            counters: Counters::default(),
            own_node: Mutex::new(OwnNode { name, ..OwnNode::default() }),
            nodes: Mutex::default(),
        }
    }

    /// Takes a transaction; one that cannot be run has its result at once.
    pub(crate) fn submit(&self, transaction: Transaction) {
        if self.is_breaker_open() {
            return self.answer_without_server(transaction);
        }
        let submitted_ns = MonotonicClock.now().as_nanos();
        let Settings { deadline, edit_lead, .. } = self.settings;
        let longest = if transaction.is_edit() { edit_lead * 2 + EDIT_DEADLINE } else { deadline };
        let due_ns =
            submitted_ns.saturating_add(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
        let Some(permit) = Permit::take(&self.open) else {
            self.counters.unavailable.add(1);
            return transaction.fail(Outage::Unavailable);
        };
        let needs = transaction.first_reads().into();
        let job = Box::new(JobBody { transaction, needs, submitted_ns, due_ns, _permit: permit });
        let mut submitted = lock(&self.submitted);
        let is_first = submitted.is_empty();
        submitted.push(job);
        drop(submitted);
        if is_first {
            self.arrived.notify_one();
        }
    }

    /// Requests keys of states.
    pub(crate) fn list(&self, from: u64) -> oneshot::Receiver<Listed> {
        let (sender, receiver) = oneshot::channel();
        if !self.is_breaker_open() {
            lock(&self.listings).push((from, sender));
            self.arrived.notify_one();
        }
        receiver
    }

    pub(crate) fn take_listings(&self) -> Vec<ListRequest> {
        std::mem::take(&mut *lock(&self.listings))
    }

    /// All that was submitted since the last call.
    pub(crate) fn take(&self, into: &mut Vec<Job>) {
        std::mem::swap(into, &mut *lock(&self.submitted));
    }

    pub(crate) fn is_breaker_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// True if it was not so before.
    pub(crate) fn set_breaker(&self, is_open: bool) -> bool {
        self.is_open.swap(is_open, Ordering::AcqRel) != is_open
    }

    /// A denial needs no write: what is known to be denied stays so. All else fails.
    pub(crate) fn answer_without_server(&self, mut transaction: Transaction) {
        let mut known = lock(&self.known);
        let mut needs = Needs::from(transaction.first_reads());
        while transaction.is_charge()
            && let Some(records) = self.known_records(&mut known, &needs)
        {
            match transaction.step(&records) {
                Step::Read(more) => needs.extend(more),
                Step::Write(_) => break,
                // It repeats what was allowed, and may not be durable.
                Step::Done if transaction.durability() > Durability::Memory => break,
                Step::Done => {
                    drop(known);
                    return transaction.complete();
                }
            }
        }
        drop(known);
        self.counters.unavailable.add(1);
        transaction.fail(Outage::Unavailable);
    }

    fn known_records(&self, known: &mut Known, needs: &[RecordKey]) -> Option<Records> {
        let mut records = Records::default();
        for key in needs {
            let record = if key.is_control() {
                known.control.as_ref()?.in_force(self.clock.latest()).cloned()
            } else {
                known.cache.get(key)?.cell.record.clone()
            };
            records.insert(*key, record);
        }
        Some(records)
    }
}

/// How long an edit may take, besides the time until it takes force.
const EDIT_DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);
