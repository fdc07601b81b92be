//! Policy, store and clock: what a service or the daemon holds. The verbs are here and in the files
//! below.

use std::fmt;
use std::sync::{Arc, Mutex};

use tidegate_core::Timestamp;
use tidegate_policy::policy::Policy;
use tidegate_table::clock::Clock;
use tidegate_table::waiting::WaitQueues;

pub use builder::{EngineBuildError, EngineBuilder};
pub use change::{EditError, Edited, NoSuchRule};
pub use domain::NoSuchDomain;
pub use error::{CheckError, SettleError};
pub use explain::{Applies, Explanation, RuleExplanation};
pub use in_memory::Engine;
pub use keys::Enrolment;
pub use lease::{Lease, NotGranted, Waiting};
pub use options::{Commit, Note, Refund};
pub use report::{Report, ReportDetails, RequestDenied, RuleReport};
pub use reservation::Reservation;
pub use rule_keys::RuleKey;
pub use settle::CommitReport;
pub use tally::{BookingTally, RuleTally};
pub use usage::RuleUsage;
pub use watch::{PolicyWatcher, ReloadError};

use crate::engine_clock::EngineClock;
#[cfg(feature = "durable")]
use crate::periods::Times;
use crate::request::Request;
use crate::store::answer::Finisher;
use crate::store::{Answer, Store};
use change::Changes;
use current_rules::CurrentRules;
use decide::{Verb, When};
use local::LocalTable;

mod batch;
mod builder;
mod change;
mod current_rules;
mod decide;
mod domain;
mod error;
mod explain;
mod in_memory;
mod keys;
mod lease;
mod local;
mod options;
mod owned_requests;
mod plain;
mod plain_key;
mod planning;
mod report;
mod reservation;
mod rule_keys;
mod ruleset;
mod settle;
mod shared;
mod tally;
mod tickets;
mod usage;
mod waits;
mod watch;

/// A policy at work, as an [`Engine`], with its states in a folder or on a server: verbs return an
/// [`Answer`], which may have to wait for the disk or the network.
///
/// Await an answer under any runtime, or [block](Answer::block) on it.
///
/// ```
/// # #[cfg(feature = "durable")] {
/// # let folder = std::env::temp_dir().join(format!("tidegate-store-{}", std::process::id()));
/// use tidegate::policy::Policy;
/// use tidegate::{Engine, Request, StoreEngine};
///
/// let policy = Policy::from_toml(r#"
///     [[rule]]
///     name  = "calls"
///     key   = ["user"]
///     quota = { max = 2, per = "day" }
/// "#)?;
/// let engine: StoreEngine = Engine::builder(policy).folder(&folder).build()?;
/// assert!(engine.check(&Request::new("default", &[("user", "ada")])).block()?.is_allowed());
/// # drop(engine);
/// # std::fs::remove_dir_all(&folder)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones are handles of the same engine.
#[derive(Clone)]
pub struct StoreEngine {
    shared: Arc<EngineInner>,
    /// The time of this handle's operations; `None`: the clock's.
    given: Option<Timestamp>,
}

struct EngineInner {
    rules: CurrentRules,
    store: Store,
    clock: EngineClock,
    changes: Mutex<Changes>,
    waiting: WaitQueues,
    /// The policy that a shared store has not been given yet.
    proposal: Mutex<Option<Arc<Policy>>>,
    /// What was decided without the store.
    local: Arc<LocalTable>,
    /// Completes what no caller waits for; that of a shared store, if it is one.
    finisher: Finisher,
}

impl StoreEngine {
    /// An engine with its states in memory and the system's clock: [`Engine::new`] as a store's.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::builder(policy).build().expect("an empty store takes a few kilobytes")
    }
}

impl StoreEngine {
    /// A handle whose verbs decide at a given time: see [`Engine::at`].
    #[inline]
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self { shared: Arc::clone(&self.shared), given: Some(now) }
    }

    /// A handle that follows the clock.
    fn by_the_clock(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), given: None }
    }
}

/// Decisions.
impl StoreEngine {
    /// Charges the request to every rule that applies: to all of them, or, if one of them denies
    /// it, to none.
    ///
    /// A cost of 0 is a peek and changes nothing.
    #[inline]
    pub fn check(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        let mut report = Report::new(&self.shared.rules);
        if self.decide_plain(&mut report, request, self.given) {
            return Answer::Ready(Ok(report));
        }
        self.decide_planned(report, std::slice::from_ref(request), Verb::Check, self.when())
    }

    /// Decides several requests of one domain in one decision: all are charged, or none.
    pub fn check_together(&self, requests: &[Request<'_>]) -> Answer<Result<Report, CheckError>> {
        self.decide(requests, Verb::Check, self.when())
    }

    /// Decides several requests independently, at the same time, in their order: each gets what
    /// [`check`](Self::check) would return.
    ///
    /// About twice as fast as one call per request when there are many keys: memory is fetched for
    /// up to 16 of them at once.
    pub fn check_many(&self, requests: &[Request<'_>]) -> Vec<Answer<Result<Report, CheckError>>> {
        let now = When::Read(self.shared.clock.now());
        self.check_each(requests, self.given.map_or(now, When::At))
    }

    /// What [`check`](Self::check) would decide. Charges nothing, so `remaining` does not include
    /// the cost.
    pub fn peek(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Peek, self.when())
    }

    /// [Reserves](Self::reserve) without a guard, for programs that settle the [hold](Report::hold) by
    /// its id: they [commit](Self::commit) or [cancel](Self::cancel) it.
    pub fn hold(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Reserve, self.when())
    }

    /// Books the cost of a request at the postpaid rules that apply, whatever is left, and consults no
    /// other rule: for a cost whose reservation has expired.
    pub fn book(&self, request: &Request<'_>) -> Answer<Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Book, self.when())
    }

    /// Whether every [`Answer`] is ready at once, so that waiting for one never blocks; true in
    /// memory.
    #[inline]
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.shared.store.is_immediate()
    }

    /// The engine's clock.
    #[must_use]
    pub fn clock(&self) -> &(dyn Clock + Send + Sync) {
        &self.shared.clock
    }

    /// How many keys have their own state, in total over all rules: at most `max_keys`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.store.len()
    }

    /// Memory in use, in bytes: states, overflow counters, holds, idempotency keys, and the limits
    /// that rules have had. Partly an estimate.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.store.bytes() + self.shared.local.bytes()
    }

    /// How many idempotency keys were forgotten in less than 24 hours, because there were too many:
    /// a repeat of their requests is charged again.
    #[must_use]
    pub fn evicted_idempotency_keys(&self) -> u64 {
        self.shared.store.evicted_idempotency_keys()
    }

    /// How many operations were dropped before they were complete: no caller waited for them any more,
    /// and there were too many such operations at once.
    ///
    /// What they hold expires. A call whose rules had changed meanwhile may not have happened.
    #[must_use]
    pub fn dropped_operations(&self) -> u64 {
        self.shared.finisher.dropped()
    }

    /// Whether no key has its own state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(feature = "durable")]
impl StoreEngine {
    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn now(&self) -> Times {
        Times { now: self.shared.clock.now(), wall: self.shared.clock.wall() }
    }
}

impl fmt::Debug for StoreEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreEngine")
            .field("rules", &self.shared.rules.load().rules.len())
            .field("keys", &self.shared.store.len())
            .finish_non_exhaustive()
    }
}
