//! Policy, store and clock: what a service or the daemon holds. Long, because every verb is here.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;
use tidegate_core::Timestamp;

#[cfg(feature = "durable")]
pub(crate) use change::MOST_CHANGES;
pub use change::{Change, Changed, NoSuchRule, OverrideError};
pub use domain::PreparedDomain;
pub use error::{CheckError, SettleError};
pub use explain::{Applies, Explanation, RuleExplanation};
pub use lease::{Lease, WaitError, Waiting};
pub use overlay::{Ban, Overlay};
pub use report::{Report, RuleReport};
pub use tally::RuleTally;

use crate::any_limit::Operation;
use crate::clock::{Clock, SystemClock};
use crate::cycle::Times;
use crate::policy::Policy;
use crate::request::Request;
use crate::store::{
    Charge, DecideError, Deciding, Durable, EnrolFailure, ForgetScope, HoldFor, HoldId,
    IdempotencyKey, MemoryStore, NowOrLater, Outage, Settled, Settlement, SnapshotError, Store,
    StoredEdits,
};
use crate::waiting::WaitQueues;
use change::Changes;
use planning::{Planned, PlannedKeys};
use report::{EarlyDenialReport, EvaluatedRule};
use ruleset::{Domain, Ruleset, RulesetEdit};

mod change;
mod domain;
mod error;
mod explain;
mod field_changes;
mod lease;
mod overlay;
mod overlay_text;
mod planning;
mod report;
mod ruleset;
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
/// assert!(engine.check(&ada).wait()?.is_allowed());
/// assert!(engine.check(&ada).wait()?.is_allowed());
/// let denied = engine.check(&ada).wait()?;
/// assert_eq!(denied.rule(), Some("per-user"));
///
/// // The denied request charged neither rule.
/// let bob = Request::new("default", &[("user", "bob")]);
/// assert!(engine.check(&bob).wait()?.is_allowed());
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
        let store = MemoryStore::with_bounds(policy.server.bounds())
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
        let store = MemoryStore::from_bytes(snapshot, policy.server.bounds())?;
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

/// What a commit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitReport {
    /// The units charged: of the limits that charge the request's cost, the fewest.
    pub charged: u64,
    /// What of them exceeds the period of a quota, and is owed by the next ones.
    pub debt: u64,
    /// What was not charged, because a limit has no room for it.
    pub forgiven: u64,
    /// Whether the reservation was committed so before; nothing was charged again.
    pub is_repeat: bool,
}

impl From<Settled> for CommitReport {
    fn from(settled: Settled) -> Self {
        let Settled { units: charged, debt, forgiven, is_repeat, .. } = settled;
        Self { charged, debt, forgiven, is_repeat }
    }
}

/// What an enrolment came to, in keys: one for each rule that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enrolment {
    /// Keys that are known from now on.
    pub enrolled: usize,
    /// Keys that were known before; nothing has changed for them.
    pub known: usize,
    /// Keys of limits that carry nothing over, which do not need to know them; nothing was done.
    pub without_carry: usize,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Check,
    Peek,
    Reserve,
    Acquire,
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
enum When {
    /// The clock's.
    Now,
    /// This one, which is also the time of day.
    At(Timestamp),
    /// In the future: what would be decided if nothing happened until then.
    Ahead(Times),
}

impl When {
    fn given_or_now(given: Option<Timestamp>) -> Self {
        given.map_or(Self::Now, Self::At)
    }

    /// The time that the caller gave.
    const fn given(self) -> Option<Timestamp> {
        match self {
            Self::At(now) => Some(now),
            Self::Now | Self::Ahead(_) => None,
        }
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

    /// Charges a reservation: the units it holds, or `actual` units, which may be fewer or more.
    ///
    /// Returns the units charged: fewer than `actual` where a limit has no room for more. The same
    /// again within 24 hours returns the same, and charges nothing.
    pub fn commit(
        &self,
        id: HoldId,
        actual: Option<u64>,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Commit { actual }, None)
    }

    /// [`commit`](Self::commit), with all that it came to.
    pub fn commit_report(
        &self,
        id: HoldId,
        actual: Option<u64>,
    ) -> NowOrLater<'_, Result<CommitReport, SettleError>> {
        let settlement = (Settlement::Commit { actual }, None);
        self.settle_noting(id, settlement, None).map(|settled| Ok(settled?.into()))
    }

    /// [`commit_report`](Self::commit_report), with a note for the ledger of a file store. A repeat
    /// writes no note.
    pub fn commit_report_noting(
        &self,
        id: HoldId,
        actual: Option<u64>,
        note: &str,
    ) -> NowOrLater<'_, Result<CommitReport, SettleError>> {
        let settlement = (Settlement::Commit { actual }, Some(note));
        self.settle_noting(id, settlement, None).map(|settled| Ok(settled?.into()))
    }

    /// [`commit`](Self::commit) at a given time.
    pub fn commit_at(
        &self,
        id: HoldId,
        actual: Option<u64>,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Commit { actual }, Some(now))
    }

    /// Cancels a reservation: its units are available again. The same again is no error.
    pub fn cancel(&self, id: HoldId) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Cancel, None)
    }

    /// [`cancel`](Self::cancel) at a given time.
    pub fn cancel_at(
        &self,
        id: HoldId,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Cancel, Some(now))
    }

    /// [`commit`](Self::commit), with a note for the ledger of a file store.
    pub fn commit_noting(
        &self,
        id: HoldId,
        actual: Option<u64>,
        note: &str,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        let settlement = (Settlement::Commit { actual }, Some(note));
        self.settle_noting(id, settlement, None).map(|settled| Ok(settled?.units))
    }

    /// Cancels a reservation as if it had never been made: a cooldown that it began is over as
    /// well, unless a later request has begun another one.
    ///
    /// [`cancel`](Self::cancel) keeps cooldowns, because the request did happen. Both again, or one
    /// after the other, is no error and changes nothing.
    pub fn void(&self, id: HoldId) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Void, None)
    }

    /// [`void`](Self::void), with a note for the ledger of a file store.
    pub fn void_noting(&self, id: HoldId, note: &str) -> NowOrLater<'_, Result<u64, SettleError>> {
        let settlement = (Settlement::Void, Some(note));
        self.settle_noting(id, settlement, None).map(|settled| Ok(settled?.units))
    }

    /// [`cancel`](Self::cancel), with a note for the ledger of a file store.
    pub fn cancel_noting(
        &self,
        id: HoldId,
        note: &str,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        let settlement = (Settlement::Cancel, Some(note));
        self.settle_noting(id, settlement, None).map(|settled| Ok(settled?.units))
    }

    /// Refunds units of a committed reservation, and returns how many.
    ///
    /// Never more than was charged, and nothing from a window or period that has closed.
    pub fn refund_hold(&self, id: HoldId, units: u64) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Refund { units, name: None }, None)
    }

    /// [`refund_hold`](Self::refund_hold) at a given time.
    pub fn refund_hold_at(
        &self,
        id: HoldId,
        units: u64,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle(id, Settlement::Refund { units, name: None }, Some(now))
    }

    /// [`refund_hold`](Self::refund_hold) under an idempotency key: repeated, it refunds nothing
    /// more and returns the same number.
    pub fn refund_hold_once(
        &self,
        id: HoldId,
        units: u64,
        idempotency_key: &str,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        let name = Some(self.idempotency_key(0, (id, idempotency_key), ("refund", units)));
        self.settle(id, Settlement::Refund { units, name }, None)
    }

    /// Refunds the cost of a request at every rule that applies, and returns the most that any
    /// of them refunded. Never more than was charged, and under the same
    /// [idempotency key](Request::idempotency_key) only once.
    ///
    /// With [`CheckError::Outage`] the refund may still have happened: a [`peek`](Self::peek) shows
    /// it.
    pub fn refund(&self, request: &Request<'_>) -> NowOrLater<'_, Result<u64, CheckError>> {
        self.refund_at_times(request, None)
    }

    /// [`refund`](Self::refund) at a given time.
    pub fn refund_at(
        &self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> NowOrLater<'_, Result<u64, CheckError>> {
        self.refund_at_times(request, Some(now))
    }

    fn refund_at_times(
        &self,
        request: &Request<'_>,
        now: Option<Timestamp>,
    ) -> NowOrLater<'_, Result<u64, CheckError>> {
        let (rules, times) = self.begin(now);
        // The store may not know the newest rules yet.
        self.shared.store.adopt(&rules.adoption, &|| self.times(&rules, now));
        let names = self.planned_keys(&rules, request, times);
        match self.plan(&rules, request, times) {
            Ok(mut planned) => {
                planned.plan.requests = Some(&names);
                planned.plan.name = request.idempotency_key.map(|key| {
                    let body = ("refund", RequestIdentity::of(request));
                    let domain = self.domain_hash(std::slice::from_ref(request));
                    self.idempotency_key(domain, (request.domain, key), body)
                });
                let waiting = &self.shared.waiting;
                self.shared.store.refund(&planned.plan, times).map(|units| {
                    waiting.wake_all();
                    Ok(units?)
                })
            }
            Err(error) => NowOrLater::Now(Err(error)),
        }
    }

    /// Makes a request's keys known to the quotas that carry unused units over, and charges nothing.
    ///
    /// Such a quota adds up what a key leaves unused from its first request on. A key that is
    /// enrolled has the units of the open period, and of every one that closes after it, whether or
    /// not it requests anything. Enrolling it again changes nothing. Other limits do not need to
    /// know a key in advance, and are left alone. The request needs no cost, and the note is written
    /// only if a key was not known.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, Request};
    ///
    /// let engine = Engine::new(Policy::from_toml(r#"
    ///     [[rule]]
    ///     name  = "tokens"
    ///     key   = ["governor"]
    ///     quota = { max = 2, per = "round", carry = "all" }
    /// "#)?);
    /// let ada = Request::new("default", &[("governor", "ada")]);
    /// assert_eq!(engine.enrol(&ada).wait()?.enrolled, 1);
    /// engine.close_round("default").wait()?;
    /// assert_eq!(engine.peek(&ada).wait()?.remaining(), Some(4));
    /// assert_eq!(engine.enrol(&ada).wait()?.known, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// With [`CheckError::Outage`] it may still have happened; the same again is no error.
    pub fn enrol(&self, request: &Request<'_>) -> NowOrLater<'_, Result<Enrolment, CheckError>> {
        // What the keys are does not depend on the cost.
        let request = request.cost(0);
        loop {
            let (rules, times) = self.begin(None);
            // The store may not know the newest rules yet.
            self.shared.store.adopt(&rules.adoption, &|| self.times(&rules, None));
            let names = self.planned_keys(&rules, &request, times);
            let mut planned = match self.plan(&rules, &request, times) {
                Ok(planned) => planned,
                Err(error) => return NowOrLater::Now(Err(error)),
            };
            if let Some(denial) = planned.denial {
                let domain = rules.domain(request.domain);
                let denial = (denial, planned.denied);
                let EarlyDenialReport { reason, .. } =
                    EarlyDenialReport::new(&rules, domain, denial, times.wall);
                return NowOrLater::Now(Err(CheckError::NoKeys { reason }));
            }
            let all = planned.plan.charges.len();
            planned.plan.charges.retain(|charge| charge.limit.knows_from_first_request());
            let carrying = planned.plan.charges.len();
            planned.plan.act = Operation::Enrol;
            planned.plan.requests = Some(&names);
            let report = move |new: u64| {
                let enrolled = usize::try_from(new).unwrap_or(usize::MAX);
                Enrolment { enrolled, known: carrying - enrolled, without_carry: all - carrying }
            };
            match self.shared.store.enrol(&planned.plan, times) {
                NowOrLater::Now(Err(EnrolFailure::Superseded)) => {}
                result => return result.map(move |new| Ok(report(new?))),
            }
        }
    }

    /// Drops the states of a request's keys, at every rule that applies; true if there were any.
    /// Holds stay.
    pub fn forget(&self, request: &Request<'_>) -> NowOrLater<'_, Result<bool, CheckError>> {
        let (rules, times) = self.begin(None);
        let names = self.planned_keys(&rules, request, times);
        match self.plan(&rules, request, times) {
            Ok(mut planned) => {
                planned.plan.requests = Some(&names);
                let waiting = &self.shared.waiting;
                self.shared.store.forget(&planned.plan, times).map(|forgotten| {
                    waiting.wake_all();
                    Ok(forgotten?)
                })
            }
            Err(error) => NowOrLater::Now(Err(error)),
        }
    }

    /// Drops the states of all keys of all rules, and returns how many keys had one. Holds, slots,
    /// overrides, bans, rounds and idempotency keys stay.
    ///
    /// Decisions continue meanwhile; a key that is charged before this returns may be forgotten or
    /// not.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, Request};
    ///
    /// let engine = Engine::new(Policy::from_toml(r#"
    ///     [[rule]]
    ///     name     = "one-a-day"
    ///     key      = ["user"]
    ///     cooldown = "1d"
    /// "#)?);
    /// let ada = Request::new("default", &[("user", "ada")]);
    /// assert!(engine.check(&ada).wait()?.is_allowed());
    /// assert!(!engine.check(&ada).wait()?.is_allowed());
    /// assert_eq!(engine.forget_all().wait()?, 1);
    /// assert!(engine.check(&ada).wait()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget_all(&self) -> NowOrLater<'_, Result<u64, Outage>> {
        self.forget_scope(None, None)
    }

    /// [`forget_all`](Self::forget_all) for the rules of one domain; 0 if the policy has no such
    /// domain.
    pub fn forget_domain(&self, domain: &str) -> NowOrLater<'_, Result<u64, Outage>> {
        self.forget_scope(Some(domain), None)
    }

    /// [`forget_all`](Self::forget_all), with a note for the ledger of a file store.
    pub fn forget_all_noting(&self, note: &str) -> NowOrLater<'_, Result<u64, Outage>> {
        self.forget_scope(None, Some(note))
    }

    /// [`forget_domain`](Self::forget_domain), with a note for the ledger of a file store.
    pub fn forget_domain_noting(
        &self,
        domain: &str,
        note: &str,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        self.forget_scope(Some(domain), Some(note))
    }

    fn forget_scope(
        &self,
        domain: Option<&str>,
        note: Option<&str>,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        let (rules, times) = self.begin(None);
        let families = domain.map(|domain| rules.families(domain));
        if families.as_ref().is_some_and(HashSet::is_empty) {
            return NowOrLater::Now(Ok(0));
        }
        let scope = ForgetScope { families: families.as_ref(), note };
        let forgotten = self.shared.store.forget_all(scope, times);
        self.shared.waiting.wake_all();
        forgotten
    }

    /// Closes the round of a domain: quotas per round start over, with what they carry over.
    ///
    /// Returns how many rounds of the domain have been closed; 0 if the policy has no such domain.
    ///
    /// In an [`Outage`] the round may still have been closed: before a retry, check whether
    /// [`rounds`](Self::rounds) has changed.
    pub fn close_round(&self, domain: &str) -> NowOrLater<'_, Result<u64, Outage>> {
        self.close_round_maybe_noting(domain, None)
    }

    /// [`close_round`](Self::close_round), with a note for the ledger of a file store.
    pub fn close_round_noting(
        &self,
        domain: &str,
        note: &str,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        self.close_round_maybe_noting(domain, Some(note))
    }

    fn close_round_maybe_noting(
        &self,
        domain: &str,
        note: Option<&str>,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        let (rules, times) = self.begin(None);
        if rules.domain(domain).is_none() {
            return NowOrLater::Now(Ok(0));
        }
        let closed = self.shared.store.close_round(domain, note, times);
        self.shared.waiting.wake_all();
        closed
    }

    /// How many rounds of a domain have been closed.
    #[must_use]
    pub fn rounds(&self, domain: &str) -> u64 {
        self.shared.store.rounds(domain).load(Ordering::Acquire)
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

/// The path of every decision.
impl<S: Store, C: Clock> Engine<S, C> {
    #[inline]
    fn begin(&self, now: Option<Timestamp>) -> (Guard<Arc<Ruleset>>, Times) {
        let rules = self.shared.rules.load();
        let times = self.times(&rules, now);
        (rules, times)
    }

    #[inline]
    fn times(&self, rules: &Ruleset, now: Option<Timestamp>) -> Times {
        let clock = &self.shared.clock;
        match now {
            Some(now) => Times { now, wall: now },
            None if rules.needs_wall => Times { now: clock.now(), wall: clock.wall() },
            None => {
                let now = clock.now();
                Times { now, wall: now }
            }
        }
    }

    fn planned_keys<'r>(
        &'r self,
        rules: &'r Ruleset,
        request: &'r Request<'r>,
        times: Times,
    ) -> PlannedKeys<'r> {
        let (requests, hash) = (std::slice::from_ref(request), self.shared.store.hash());
        PlannedKeys { rules, requests, hash, times }
    }

    /// A plan that charges one request.
    fn plan<'r>(
        &self,
        rules: &'r Ruleset,
        request: &'r Request<'r>,
        times: Times,
    ) -> Result<Planned<'r>, CheckError> {
        let mut planned = Planned::new(rules, Operation::Charge);
        planned.plan.note = request.note;
        let domain = rules.domain(request.domain);
        let hash = self.shared.store.hash();
        planned.add((rules, domain), std::slice::from_ref(request), hash, times)?;
        Ok(planned)
    }

    #[inline]
    fn decide(
        &self,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> NowOrLater<'_, Result<Report, CheckError>> {
        let find = |rules: &Ruleset| rules.domain_number(requests.first()?.domain);
        self.decide_in(find, requests, verb, when)
    }

    /// Decides requests in the domain that `find` returns.
    #[inline]
    fn decide_in(
        &self,
        find: impl Fn(&Ruleset) -> Option<usize>,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> NowOrLater<'_, Result<Report, CheckError>> {
        // A report is large: it is created in the caller's return slot, and filled there.
        let mut decision = NowOrLater::Now(Ok(Report::new(self.shared.rules.load())));
        if let NowOrLater::Now(Ok(report)) = &mut decision {
            match self.decide_into(report, &find, requests, (verb, when)) {
                DecideProgress::Now => {}
                DecideProgress::Error(error) => decision = NowOrLater::Now(Err(error)),
                DecideProgress::WhenDurable(durable) => {
                    let report = std::mem::replace(report, Report::new(self.shared.rules.load()));
                    decision = NowOrLater::Later(Box::pin(report.when(durable)));
                }
            }
        }
        decision
    }

    /// Decides, and returns the report before it is durable.
    fn decide_early(
        &self,
        request: &Request<'_>,
        verb: Verb,
        now: Option<Timestamp>,
    ) -> Result<(Report, Option<Durable<'_>>), CheckError> {
        let mut report = Report::new(self.shared.rules.load());
        let find = |rules: &Ruleset| rules.domain_number(request.domain);
        let when = When::given_or_now(now);
        match self.decide_into(&mut report, &find, std::slice::from_ref(request), (verb, when)) {
            DecideProgress::Now => Ok((report, None)),
            DecideProgress::Error(error) => Err(error),
            DecideProgress::WhenDurable(durable) => Ok((report, Some(durable))),
        }
    }

    /// Makes the decision for the report.
    #[inline]
    fn decide_into(
        &self,
        report: &mut Report,
        find: &(impl Fn(&Ruleset) -> Option<usize> + ?Sized),
        requests: &[Request<'_>],
        (verb, when): (Verb, When),
    ) -> DecideProgress<'_> {
        loop {
            let Report { rules, evaluated, decisions, is_of_several, hits, .. } = report;
            let times = match when {
                When::Ahead(times) => times,
                When::Now | When::At(_) => self.times(rules, when.given()),
            };
            let names = PlannedKeys { rules, requests, hash: self.shared.store.hash(), times };
            let mut planned = Planned::new(rules, verb.act());
            let domain = find(rules).map(|number| &rules.domains[number]);
            if let Err(error) =
                self.plan_verb((rules, domain), requests, (verb, times), &mut planned)
            {
                return DecideProgress::Error(error);
            }
            if let Some(denial) = planned.denial {
                let denial = (denial, planned.denied);
                let denial = EarlyDenialReport::new(rules, domain, denial, times.wall);
                drop(planned);
                report.deny(denial);
                self.correct_wait(report, (&|rules| find(rules), requests), (when, times));
                return DecideProgress::Now;
            }
            evaluated.clear();
            let evaluate =
                |charge: &Charge<'_>| EvaluatedRule { rule: charge.rule, mode: charge.mode };
            evaluated.extend(planned.plan.charges.iter().map(evaluate));
            *is_of_several = requests.len() > 1;
            *hits = std::mem::take(&mut planned.hits);
            if evaluated.is_empty() && planned.plan.hold.is_none() {
                return DecideProgress::Now;
            }
            planned.plan.requests = Some(&names);
            planned.plan.looks_ahead = matches!(when, When::Ahead(_));
            let (decided, durable) = match self.shared.store.decide(&planned.plan, times, decisions)
            {
                Deciding::Now(Err(DecideError::Superseded)) => {
                    drop(planned);
                    *rules = self.shared.rules.load();
                    continue;
                }
                Deciding::Now(Err(DecideError::NotAdopted)) => {
                    let read = || self.times(rules, when.given());
                    self.shared.store.adopt(&rules.adoption, &read);
                    continue;
                }
                Deciding::Now(decided) => (decided, None),
                Deciding::WhenDurable(decided, durable) => {
                    (Ok(decided), Some(self.wake_on_outage(durable)))
                }
            };
            drop(planned);
            if let Err(error) = report.set(decided) {
                return DecideProgress::Error(error);
            }
            if !report.is_allowed {
                self.correct_wait(report, (&|rules| find(rules), requests), (when, times));
            }
            return durable.map_or(DecideProgress::Now, DecideProgress::WhenDurable);
        }
    }

    /// In an outage the charge is undone, and the waiters are woken.
    fn wake_on_outage<'s>(&'s self, durable: Durable<'s>) -> Durable<'s> {
        let waiting = &self.shared.waiting;
        Box::pin(async move {
            let synced = durable.await;
            if synced.is_err() {
                waiting.wake_all();
            }
            synced
        })
    }

    /// Plans the requests, and checks that the verb fits the plan.
    #[inline(always)]
    fn plan_verb<'r>(
        &self,
        (rules, domain): (&'r Ruleset, Option<&'r Domain>),
        requests: &'r [Request<'r>],
        (verb, times): (Verb, Times),
        planned: &mut Planned<'r>,
    ) -> Result<(), CheckError> {
        planned.add((rules, domain), requests, self.shared.store.hash(), times)?;
        if let [request] = requests {
            if request.cost == 0 && verb != Verb::Acquire {
                planned.plan.act = Operation::Look;
            }
            planned.plan.note = request.note;
            if let Some(key) = request.idempotency_key
                && matches!(verb, Verb::Check | Verb::Reserve)
                && request.cost > 0
            {
                let domain = self.domain_hash(requests);
                let body = (RequestIdentity::of(request), verb);
                planned.plan.name = Some(self.idempotency_key(domain, (request.domain, key), body));
            }
        } else if let [first, rest @ ..] = requests
            && rest.iter().any(|request| request.domain != first.domain)
        {
            return Err(CheckError::SeveralDomains);
        }
        if verb == Verb::Check && planned.in_flight.is_none() {
            return Ok(());
        }
        self.check_verb(rules, requests, verb, planned)
    }

    fn check_verb(
        &self,
        rules: &Ruleset,
        requests: &[Request<'_>],
        verb: Verb,
        planned: &mut Planned<'_>,
    ) -> Result<(), CheckError> {
        let slots = planned.slots.map(|index| rules.rule(planned.plan.charges[index].rule));
        match (verb, slots) {
            (Verb::Peek, _) => {}
            (Verb::Acquire, _) => match planned.in_flight.and_then(|it| rules.rule(it).slots()) {
                Some(slots) => {
                    let (length, domain) = (slots.expires, self.domain_hash(requests));
                    planned.plan.hold = Some(HoldFor { length, domain });
                }
                None if planned.denial.is_some() => {}
                None => {
                    let domain = requests.first().map_or("", |request| request.domain).into();
                    return Err(CheckError::NoSlots { domain });
                }
            },
            (Verb::Check | Verb::Reserve, Some(rule)) => {
                return Err(CheckError::NeedsAcquire { rule: rule.rule.name.clone() });
            }
            (Verb::Check, None) => planned.leave_slots(),
            (Verb::Reserve, None) => {
                if planned.plan.act == Operation::Look {
                    return Err(CheckError::NothingToReserve);
                }
                planned.leave_slots();
                let lengths =
                    planned.plan.charges.iter().map(|it| rules.rule(it.rule).rule.reserve_for);
                let length = lengths.min().unwrap_or(RESERVED_FOR);
                let domain = self.domain_hash(requests);
                planned.plan.hold = Some(HoldFor { length, domain });
            }
        }
        Ok(())
    }

    /// A number for the domain of requests.
    fn domain_hash(&self, requests: &[Request<'_>]) -> u64 {
        self.shared.store.hash().hash_one(requests.first().map_or("", |request| request.domain))
    }

    /// An idempotency key within its scope (a domain, or a hold), and the body that it belongs to.
    fn idempotency_key(&self, domain: u64, scoped: impl Hash, body: impl Hash) -> IdempotencyKey {
        let hash = self.shared.store.hash();
        IdempotencyKey {
            domain,
            name: [hash.hash_one((1, &scoped)), hash.hash_one((2, &scoped))],
            body: hash.hash_one(body),
        }
    }

    fn settle(
        &self,
        id: HoldId,
        settlement: Settlement,
        now: Option<Timestamp>,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle_noting(id, (settlement, None), now).map(|settled| Ok(settled?.units))
    }

    fn settle_noting(
        &self,
        id: HoldId,
        settlement: (Settlement, Option<&str>),
        now: Option<Timestamp>,
    ) -> NowOrLater<'_, Result<Settled, SettleError>> {
        let (_, times) = self.begin(now);
        let settled = self.shared.store.settle(id, settlement, times);
        let waiting = &self.shared.waiting;
        if let NowOrLater::Later(_) = &settled {
            // It has happened already, even if the result is never awaited.
            waiting.wake_all();
        }
        settled.map(move |settled| {
            let settled = settled?;
            // Wakes the waiters for what was released.
            waiting.notify(settled.queues);
            Ok(settled)
        })
    }
}

/// Everything that distinguishes one request from another.
#[derive(Hash)]
struct RequestIdentity<'a> {
    domain: &'a str,
    /// Sorted by name.
    attributes: SmallVec<[(&'a str, &'a str); 8]>,
    cost: u64,
}

impl<'a> RequestIdentity<'a> {
    fn of(request: &Request<'a>) -> Self {
        let mut attributes: SmallVec<_> = request.attributes.iter().collect();
        attributes.sort_unstable();
        Self { domain: request.domain, attributes, cost: request.cost }
    }
}

/// How far a decision is.
enum DecideProgress<'a> {
    Now,
    Error(CheckError),
    WhenDurable(Durable<'a>),
}

impl Verb {
    const fn act(self) -> Operation {
        match self {
            Self::Check | Self::Acquire => Operation::Charge,
            Self::Peek => Operation::Look,
            Self::Reserve => Operation::Hold,
        }
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

/// How long a reservation lasts where no rule limits it.
const RESERVED_FOR: Duration = Duration::from_secs(600);
