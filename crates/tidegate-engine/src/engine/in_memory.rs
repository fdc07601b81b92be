//! The engine whose states are in memory: every answer is ready, so its verbs return values.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_policy::policy::Policy;
use tidegate_table::clock::Clock;

use super::{
    CheckError, CommitReport, EditError, EngineBuilder, Enrolment, Explanation, Lease,
    NoSuchDomain, NotGranted, Report, Reservation, RuleUsage, SettleError, StoreEngine, Waiting,
};
use crate::edits::{Change, Edit, Overlay};
use crate::request::{Domain, Request};
use crate::store::HoldId;

/// A policy at work: decides requests by its rules, all of them at once, with its states in memory.
///
/// ```
/// use tidegate::policy::{Policy, RuleId};
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
/// assert!(engine.check(&ada)?.is_allowed());
/// assert!(engine.check(&ada)?.is_allowed());
/// let denied = engine.check(&ada)?;
/// assert_eq!(denied.rule().map(RuleId::name), Some("per-user"));
///
/// // The denied request charged neither rule.
/// let bob = Request::new("default", &[("user", "bob")]);
/// assert!(engine.check(&bob)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A [`StoreEngine`] is the same with states in a folder or on a server, where verbs return an
/// [`Answer`](crate::Answer). An `Engine` is [one of them](Self::as_store_engine), too: that has the verbs
/// that are needed less often.
///
/// Clones are handles of the same engine.
#[derive(Clone)]
pub struct Engine(StoreEngine);

impl Engine {
    /// An engine with the system's clock: the short form of [`builder`](Self::builder).
    ///
    /// # Panics
    ///
    /// If there is no memory for an empty table.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::builder(policy).build().expect("an empty store takes a few kilobytes")
    }

    /// An engine with another clock or other bounds, or with another store: that is a [`StoreEngine`].
    pub fn builder(policy: Policy) -> EngineBuilder {
        EngineBuilder::new(policy)
    }

    /// An engine that is known to have its states in memory.
    pub(super) const fn over(engine: StoreEngine) -> Self {
        Self(engine)
    }

    /// The same engine, with verbs that return an [`Answer`](crate::Answer), which is always ready.
    #[must_use]
    pub const fn as_store_engine(&self) -> &StoreEngine {
        &self.0
    }

    /// A handle whose verbs decide at a given time, which is also the time of day.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, Request, Timestamp};
    ///
    /// let engine = Engine::new(Policy::from_toml(r#"
    ///     [[rule]]
    ///     name     = "once-a-minute"
    ///     key      = ["user"]
    ///     cooldown = "60s"
    /// "#)?);
    /// let ada = Request::new("default", &[("user", "ada")]);
    /// assert!(engine.at(Timestamp::from_secs(1_000)).check(&ada)?.is_allowed());
    /// assert!(!engine.at(Timestamp::from_secs(1_059)).check(&ada)?.is_allowed());
    /// assert!(engine.at(Timestamp::from_secs(1_060)).check(&ada)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Waits ([`acquire`](Self::acquire), [`ready`](Self::ready)) follow the engine's clock alone. Times
    /// of both kinds may be mixed when they come from the same clock.
    #[inline]
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self(self.0.at(now))
    }

    /// A domain for frequent requests; an error if the policy has no rule in it.
    pub fn domain(&self, name: &str) -> Result<Domain, NoSuchDomain> {
        self.0.domain(name)
    }

    /// Charges the request to every rule that applies: to all of them, or, if one of them denies
    /// it, to none.
    ///
    /// A cost of 0 is a peek and changes nothing.
    #[inline]
    pub fn check(&self, request: &Request<'_>) -> Result<Report, CheckError> {
        self.0.check(request).block()
    }

    /// Decides several requests of one domain in one decision: all are charged, or none.
    pub fn check_together(&self, requests: &[Request<'_>]) -> Result<Report, CheckError> {
        self.0.check_together(requests).block()
    }

    /// Decides several requests independently, at the same time, in their order: each gets what
    /// [`check`](Self::check) would return.
    ///
    /// About twice as fast as one call per request when there are many keys: memory is fetched for
    /// up to 16 of them at once.
    pub fn check_many(&self, requests: &[Request<'_>]) -> Vec<Result<Report, CheckError>> {
        self.0.check_many(requests).into_iter().map(crate::Answer::block).collect()
    }

    /// What [`check`](Self::check) would decide. Charges nothing, so `remaining` does not include
    /// the cost.
    pub fn peek(&self, request: &Request<'_>) -> Result<Report, CheckError> {
        self.0.peek(request).block()
    }

    /// Why the request would be decided as it would be. Changes nothing.
    pub fn explain(&self, request: &Request<'_>) -> Result<Explanation, CheckError> {
        self.0.explain(request).block()
    }

    /// What the keys of a request have used of their limits. Changes nothing.
    pub fn usage(&self, request: &Request<'_>) -> Result<Vec<RuleUsage>, CheckError> {
        self.0.usage(request).block()
    }

    /// Reserves the cost of a request at every rule that applies, or at none.
    ///
    /// Unless it is [renewed](Reservation::renew) it expires after the shortest `reserve_for` of the
    /// rules.
    pub fn reserve(&self, request: &Request<'_>) -> Result<Reservation, NotGranted> {
        self.0.reserve(request).block()
    }

    /// Charges a reservation that was [kept](Reservation::into_report), by its id.
    pub fn commit(
        &self,
        id: HoldId,
        actual: impl Into<Option<u64>>,
    ) -> Result<CommitReport, SettleError> {
        self.0.commit(id, actual.into()).block()
    }

    /// Cancels a reservation that was [kept](Reservation::into_report), by its id.
    pub fn cancel(&self, id: HoldId) -> Result<u64, SettleError> {
        self.0.cancel(id, None).block()
    }

    /// Refunds the cost of a request at every rule that applies, and returns the most that any
    /// of them refunded. Never more than was charged, and under the same
    /// [idempotency key](Request::idempotency_key) only once.
    pub fn refund(&self, request: &Request<'_>) -> Result<u64, CheckError> {
        self.0.refund(request).block()
    }

    /// A slot, as soon as one is free: see [`StoreEngine::acquire`].
    pub fn acquire<'a>(
        &'a self,
        request: &Request<'a>,
        max_wait: Option<Duration>,
    ) -> Waiting<'a, Lease> {
        self.0.acquire(request, max_wait)
    }

    /// Charges the request as soon as every rule allows it. Waiters for the same key of the
    /// first rule are served in the order in which they called.
    pub fn ready<'a>(&'a self, request: &Request<'a>) -> Waiting<'a, Report> {
        self.0.ready(request)
    }

    /// [`ready`](Self::ready), or an error after this long.
    pub fn ready_within<'a>(
        &'a self,
        request: &Request<'a>,
        max_wait: Duration,
    ) -> Waiting<'a, Report> {
        self.0.ready_within(request, max_wait)
    }

    /// Makes a request's keys known to the quotas that carry unused units over: see
    /// [`StoreEngine::enrol`].
    pub fn enrol(&self, request: &Request<'_>) -> Result<Enrolment, CheckError> {
        self.0.enrol(request).block()
    }

    /// Drops the states of a request's keys, at every rule that applies; true if there were any.
    /// Holds stay.
    pub fn forget(&self, request: &Request<'_>) -> Result<bool, CheckError> {
        self.0.forget(request).block()
    }

    /// Drops the states of all keys of all rules, and returns how many keys had one: see
    /// [`StoreEngine::forget_all`].
    pub fn forget_all(&self) -> u64 {
        self.0.forget_all(None).block().unwrap_or_default()
    }

    /// Closes the round of a domain, and returns how many were closed: quotas per round start over, with
    /// what they carry over. It is 0 if the policy has no such domain.
    pub fn close_round(&self, domain: &str) -> u64 {
        self.0.close_round(domain, None).block().unwrap_or_default()
    }

    /// Edits the rules in force, and returns what has changed, with the name of who did it.
    ///
    /// An edit is atomic: a decision is made by the rules before it or after it. No decision waits
    /// for an edit.
    pub fn edit(&self, actor: &str, edit: Edit) -> Result<Vec<Change>, EditError> {
        self.0.edit(actor, edit).block()
    }

    /// The policy in force, without the edits over it.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.0.policy()
    }

    /// The edits that are in force over the policy.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        self.0.overlay()
    }

    /// The engine's clock.
    #[must_use]
    pub fn clock(&self) -> &(dyn Clock + Send + Sync) {
        self.0.clock()
    }

    /// How many keys have their own state, in total over all rules: at most `max_keys`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key has its own state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Memory in use, in bytes: see [`StoreEngine::bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Does what is due by the clock: see [`StoreEngine::tick`].
    pub fn tick(&self) {
        self.0.tick();
    }

    /// Ends all waiting with an error, and stops the timer if one was started.
    ///
    /// The engine continues to decide, but callers can no longer wait. May be called any number of
    /// times.
    pub fn close(&self) {
        self.0.close();
    }
}

impl From<Engine> for StoreEngine {
    fn from(engine: Engine) -> Self {
        engine.0
    }
}

impl From<&Engine> for StoreEngine {
    fn from(engine: &Engine) -> Self {
        engine.0.clone()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
