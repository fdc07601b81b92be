//! Policy, store and clock: what a service or the daemon holds. The verbs are here and in the files
//! below.

use std::fmt;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tidegate_core::Timestamp;
use tidegate_policy::policy::Policy;
use tidegate_table::clock::{Clock, SystemClock};
use tidegate_table::waiting::WaitQueues;

pub use change::{NoSuchRule, OverrideError};
pub use domain::PreparedDomain;
pub use error::{CheckError, SettleError};
pub use explain::{Applies, Explanation, RuleExplanation};
pub use keys::Enrolment;
pub use lease::{Lease, WaitError, Waiting};
pub use report::{Report, RuleReport};
pub use settle::CommitReport;
pub use tally::RuleTally;

use crate::cycle::Times;
use crate::request::Request;
use crate::store::{MemoryStore, NowOrLater, SnapshotError, Store, StoredEdits};
use change::Changes;
use decide::{Verb, When};
use ruleset::{Ruleset, RulesetEdit};

mod change;
mod decide;
mod domain;
mod error;
mod explain;
mod keys;
mod lease;
mod planning;
mod report;
mod ruleset;
mod settle;
mod tally;
mod waits;

/// A policy at work: decides requests by its rules, all of them at once.
///
/// ```
/// use tidegate::policy::Policy;
/// use tidegate::{Engine, Request};
///
/// let policy = Policy::from_toml(r#"
///     [[rule]]
///     name   = "per-user"
///     key    = ["user"]
///     window = { max = 2, per = "10s" }
///
///     [[rule]]
///     name   = "all-users"
///     window = { max = 3, per = "10s" }
/// "#)?;
/// let engine = Engine::new(policy);
///
/// let ada = Request::new("default", &[("user", "ada")]);
/// assert!(engine.check(&ada).block()?.is_allowed());
/// assert!(engine.check(&ada).block()?.is_allowed());
/// let denied = engine.check(&ada).block()?;
/// assert_eq!(denied.rule(), Some("per-user"));
///
/// // The denied request charged neither rule.
/// let bob = Request::new("default", &[("user", "bob")]);
/// assert!(engine.check(&bob).block()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones are handles of the same engine.
pub struct Engine<S = MemoryStore, C = SystemClock> {
    shared: Arc<EngineInner<S, C>>,
}

struct EngineInner<S, C> {
    rules: ArcSwap<Ruleset>,
    store: S,
    clock: Arc<C>,
    changes: Mutex<Changes>,
    waiting: WaitQueues,
}

impl<S, C> Clone for Engine<S, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Engine {
    /// An engine with an in-memory store.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::with_clock(policy, SystemClock::new())
    }
}

impl<C: Clock + Send + Sync + 'static> Engine<MemoryStore, C> {
    /// An engine with an in-memory store and this clock.
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn with_clock(policy: Policy, clock: C) -> Self {
        let store = MemoryStore::with_bounds(policy.server().bounds())
            .expect("an empty store takes a few kilobytes");
        Self::with_store(policy, store, clock)
    }
}

impl<C: Clock + Send + Sync + 'static> Engine<MemoryStore, C> {
    /// An engine that continues from a [snapshot](Self::snapshot), with its charges and its holds.
    ///
    /// The clock has to continue from the snapshot's, as [`SystemClock`] does. Rules are
    /// recognised by domain and name.
    pub fn restore(policy: Policy, clock: C, snapshot: &[u8]) -> Result<Self, SnapshotError> {
        let store = MemoryStore::from_bytes(snapshot, policy.server().bounds())?;
        Ok(Self::with_store(policy, store, clock))
    }

    /// All states, holds and idempotency keys, as bytes: for [`restore`](Self::restore) after a
    /// restart.
    ///
    /// Keep it secret: it contains the seed of the key hashes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.shared.store.to_bytes(self.shared.clock.now())
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Engine<S, C> {
    /// An engine over this store and this clock.
    ///
    /// The capacity for keys, and what happens beyond it, are settings of the store.
    #[must_use]
    pub fn with_store(policy: Policy, store: S, clock: C) -> Self {
        let times = Times { now: clock.now(), wall: clock.wall() };
        let StoredEdits { overlay, changes } = store.stored_edits();
        let edit = RulesetEdit { times, effective: None };
        let rules = Ruleset::new(Arc::new(policy), overlay, None, &store, edit);
        store.adopt(&rules.adoption, &|| times);
        let clock = Arc::new(clock);
        let shared = EngineInner {
            rules: ArcSwap::from_pointee(rules),
            store,
            waiting: WaitQueues::new(Arc::clone(&clock) as Arc<dyn Clock + Send + Sync>),
            clock,
            changes: Mutex::new(Changes::restored(changes)),
        };
        Self { shared: Arc::new(shared) }
    }
}

/// Decisions.
impl<S: Store, C: Clock> Engine<S, C> {
    /// Charges the request to every rule that applies: to all of them, or, if one of them denies
    /// it, to none.
    ///
    /// A cost of 0 is a peek and changes nothing.
    #[inline]
    pub fn check(&self, request: &Request<'_>) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Check, When::Now)
    }

    /// [`check`](Self::check) at a given time, which is also the time of day.
    pub fn check_at(
        &self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Check, When::At(now))
    }

    /// Decides several requests of one domain in one decision: all are charged, or none.
    pub fn check_together(
        &self,
        requests: &[Request<'_>],
    ) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(requests, Verb::Check, When::Now)
    }

    /// Decides several requests independently, at the same time.
    pub fn check_many(
        &self,
        requests: &[Request<'_>],
    ) -> Vec<NowOrLater<'_, Result<Report, CheckError>>> {
        let now = self.shared.clock.now();
        let check =
            |request| self.decide(std::slice::from_ref(request), Verb::Check, When::At(now));
        requests.iter().map(check).collect()
    }

    /// What [`check`](Self::check) would decide. Charges nothing, so `remaining` does not include
    /// the cost.
    pub fn peek(&self, request: &Request<'_>) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Peek, When::Now)
    }

    /// [`peek`](Self::peek) at a given time.
    pub fn peek_at(
        &self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Peek, When::At(now))
    }

    /// Holds the cost of a request at every rule that applies, or at none.
    ///
    /// [Commit](Self::commit) or [cancel](Self::cancel) the [hold](Report::hold);
    /// it expires after the shortest `reserve_for` of the rules.
    pub fn reserve(&self, request: &Request<'_>) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Reserve, When::Now)
    }

    /// [`reserve`](Self::reserve) at a given time.
    pub fn reserve_at(
        &self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<Report, CheckError>> {
        self.decide(std::slice::from_ref(request), Verb::Reserve, When::At(now))
    }

    /// Whether every [`NowOrLater`] is ready at once, so that waiting for one never blocks; true in
    /// memory.
    #[inline]
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        S::IS_IMMEDIATE
    }

    /// The engine's clock.
    #[must_use]
    pub fn clock(&self) -> &C {
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
        self.shared.store.bytes()
    }

    /// How many idempotency keys were forgotten in less than 24 hours, because there were too many:
    /// a repeat of their requests is charged again.
    #[must_use]
    pub fn evicted_idempotency_keys(&self) -> u64 {
        self.shared.store.evicted_idempotency_keys()
    }

    /// Whether no key has its own state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(feature = "durable")]
impl<S: Store, C: Clock> Engine<S, C> {
    pub(crate) fn store(&self) -> &S {
        &self.shared.store
    }

    pub(crate) fn now(&self) -> Times {
        Times { now: self.shared.clock.now(), wall: self.shared.clock.wall() }
    }
}

impl<S: Store, C> fmt::Debug for Engine<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("rules", &self.shared.rules.load().rules.len())
            .field("keys", &self.shared.store.len())
            .finish_non_exhaustive()
    }
}
