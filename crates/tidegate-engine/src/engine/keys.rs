//! Verbs about keys as such, and the rounds of quotas.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::report::EarlyDenialReport;
use super::ruleset::Ruleset;
use super::shared::Planning;
use super::{CheckError, Note, StoreEngine};
use crate::decision::Operation;
use crate::periods::Times;
use crate::request::Request;
use crate::store::{Answer, ForgetScope, Outage};

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

/// Keys and rounds.
impl StoreEngine {
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
    /// assert_eq!(engine.enrol(&ada)?.enrolled, 1);
    /// engine.close_round("default");
    /// assert_eq!(engine.peek(&ada)?.remaining(), Some(4));
    /// assert_eq!(engine.enrol(&ada)?.known, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// With [`CheckError::Outage`] it may still have happened; the same again is no error.
    pub fn enrol(&self, request: &Request<'_>) -> Answer<Result<Enrolment, CheckError>> {
        // What the keys are does not depend on the cost.
        self.run_planned(&request.cost(0), Self::enrol_once)
    }

    /// Enrols, by the rules that are known here.
    fn enrol_once(&self, request: &Request<'_>) -> Planning<Enrolment> {
        let (rules, times) = self.begin(self.given);
        // The store may not know the newest rules yet.
        self.shared.store.adopt(&rules.adoption, &|| self.times(&rules, self.given));
        self.enrol_planned(&rules, request, times)
    }

    fn enrol_planned(
        &self,
        rules: &Ruleset,
        request: &Request<'_>,
        times: Times,
    ) -> Planning<Enrolment> {
        let names = self.planned_keys(rules, request, times);
        let mut planned = match self.plan(rules, request, times) {
            Ok(planned) => planned,
            Err(error) => return Answer::Ready(Err(error)),
        };
        if let Some(denial) = planned.denial {
            let domain = rules.domain(request.domain);
            let EarlyDenialReport { reason, .. } =
                EarlyDenialReport::new(rules, domain, denial, planned.denied, times.wall);
            return Answer::Ready(Err(CheckError::NoKeys { reason }));
        }
        let all = planned.plan.charges.len();
        planned.plan.charges.retain(|charge| charge.limit.knows_from_first_request());
        let carrying = planned.plan.charges.len();
        planned.plan.act = Operation::Enrol;
        planned.plan.names = Some(&names);
        planned.plan.time = self.plan_time_of(rules, request, times);
        let report = move |new: u64| {
            let enrolled = usize::try_from(new).unwrap_or(usize::MAX);
            Enrolment { enrolled, known: carrying - enrolled, without_carry: all - carrying }
        };
        self.shared.store.enrol(&planned.plan, times).map(move |new| Ok(new.map(report)))
    }

    /// Drops the states of a request's keys, at every rule that applies; true if there were any.
    /// Holds stay.
    pub fn forget(&self, request: &Request<'_>) -> Answer<Result<bool, CheckError>> {
        self.run_planned(request, Self::forget_once)
    }

    /// Forgets, by the rules that are known here.
    fn forget_once(&self, request: &Request<'_>) -> Planning<bool> {
        let (rules, times) = self.begin(self.given);
        let names = self.planned_keys(&rules, request, times);
        let mut planned = match self.plan(&rules, request, times) {
            Ok(planned) => planned,
            Err(error) => return Answer::Ready(Err(error)),
        };
        planned.plan.names = Some(&names);
        planned.plan.time = self.plan_time_of(&rules, request, times);
        let forgotten = self.shared.store.forget(&planned.plan, times);
        self.after(forgotten, |engine, forgotten| {
            engine.shared.waiting.wake_all();
            Ok(forgotten)
        })
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
    /// assert!(engine.check(&ada)?.is_allowed());
    /// assert!(!engine.check(&ada)?.is_allowed());
    /// assert_eq!(engine.forget_all(), 1);
    /// assert!(engine.check(&ada)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget_all<'n>(&self, note: impl Into<Note<'n>>) -> Answer<Result<u64, Outage>> {
        self.forget_scope(None, note.into())
    }

    /// [`forget_all`](Self::forget_all) for the rules of one domain; 0 if the policy has no such
    /// domain.
    pub fn forget_domain<'n>(
        &self,
        domain: &str,
        note: impl Into<Note<'n>>,
    ) -> Answer<Result<u64, Outage>> {
        self.forget_scope(Some(domain), note.into())
    }

    fn forget_scope(&self, domain: Option<&str>, note: Note<'_>) -> Answer<Result<u64, Outage>> {
        let (rules, times) = self.begin(self.given);
        let families = domain.map(|domain| rules.families(domain));
        if families.as_ref().is_some_and(HashSet::is_empty) {
            return Answer::Ready(Ok(0));
        }
        let scope = ForgetScope { families: families.as_ref(), note: note.0 };
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
    pub fn close_round<'n>(
        &self,
        domain: &str,
        note: impl Into<Note<'n>>,
    ) -> Answer<Result<u64, Outage>> {
        let (rules, times) = self.begin(self.given);
        if rules.domain(domain).is_none() {
            return Answer::Ready(Ok(0));
        }
        if self.is_shared() {
            return self.close_shared_round(domain, times);
        }
        let closed = self.shared.store.close_round(domain, note.into().0, times);
        self.shared.waiting.wake_all();
        closed
    }

    /// How many rounds of a domain have been closed.
    #[must_use]
    pub fn rounds(&self, domain: &str) -> u64 {
        self.shared.store.rounds(domain).load(Ordering::Acquire)
    }
}
