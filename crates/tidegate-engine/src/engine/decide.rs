//! The path of every decision: plan, decide, report.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_policy::policy::Charging;
use tidegate_table::clock::Clock;

use super::current_rules::GuardedRules;
use super::local::LocalFallback;
use super::planning::{Planned, PlannedKeys};
use super::report::{EarlyDenialReport, EvaluatedRule, Report, ReportBody};
use super::ruleset::{CompiledDomain, Ruleset};
use super::{CheckError, StoreEngine};
use crate::decision::Operation;
use crate::hold_id::Owner;
use crate::periods::Times;
use crate::plan::{HoldFor, IdempotencyKey};
use crate::request::Request;
use crate::store::answer::BoxFuture;
use crate::store::{Answer, Decided, Durable, Failure};

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verb {
    Check,
    Peek,
    Reserve,
    Acquire,
    /// Looks whether the units could be reserved.
    PeekReserve,
    /// Charges postpaid rules alone.
    Book,
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// The clock's.
    Now,
    /// This one, which was read from the clock.
    Read(Timestamp),
    /// This one, which is also the time of day.
    At(Timestamp),
    /// In the future: what would be decided if nothing happened until then.
    Ahead(Times),
}

impl When {
    pub(super) fn given_or_now(given: Option<Timestamp>) -> Self {
        given.map_or(Self::Now, Self::At)
    }

    /// The time that the caller gave.
    pub(super) const fn given(self) -> Option<Timestamp> {
        match self {
            Self::At(now) => Some(now),
            Self::Now | Self::Read(_) | Self::Ahead(_) => None,
        }
    }
}

/// The path of every decision.
impl StoreEngine {
    #[inline]
    pub(super) fn begin(&self, now: Option<Timestamp>) -> (GuardedRules, Times) {
        let rules = self.shared.rules.load();
        let times = self.times(&rules, now);
        (rules, times)
    }

    #[inline(always)]
    pub(super) fn times(&self, rules: &Ruleset, now: Option<Timestamp>) -> Times {
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

    #[inline(always)]
    pub(super) fn times_when(&self, rules: &Ruleset, when: When) -> Times {
        match when {
            When::Ahead(times) => times,
            When::Read(now) if rules.needs_wall => Times { now, wall: self.shared.clock.wall() },
            When::Read(now) => Times { now, wall: now },
            When::Now | When::At(_) => self.times(rules, when.given()),
        }
    }

    pub(super) fn planned_keys<'r>(
        &'r self,
        rules: &'r Ruleset,
        request: &'r Request<'r>,
        times: Times,
    ) -> PlannedKeys<'r> {
        let (requests, hash) = (std::slice::from_ref(request), self.shared.store.hash());
        PlannedKeys { rules, requests, hash, times }
    }

    /// A plan that charges one request.
    pub(super) fn plan<'r>(
        &self,
        rules: &'r Ruleset,
        request: &'r Request<'r>,
        times: Times,
    ) -> Result<Planned<'r>, CheckError> {
        let mut planned = Planned::new(rules, Operation::Charge).keeping_keys(true);
        planned.plan.note = request.note;
        let domain = self.domain_of(rules, std::slice::from_ref(request));
        let hash = self.shared.store.hash();
        planned.add(rules, domain, std::slice::from_ref(request), hash, times)?;
        Ok(planned)
    }

    /// The time of a decision by this handle.
    pub(super) fn when(&self) -> When {
        When::given_or_now(self.given)
    }

    pub(super) fn decide(
        &self,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> Answer<Result<Report, CheckError>> {
        self.decide_planned(Report::new(&self.shared.rules), requests, verb, when)
    }

    /// Decides requests by a plan.
    #[inline(never)]
    pub(super) fn decide_planned(
        &self,
        report: Report,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> Answer<Result<Report, CheckError>> {
        self.decide_early(report, requests, verb, when).then(|decided| match decided {
            Ok(report) => report.when_durable(),
            Err(error) => Answer::Ready(Err(error)),
        })
    }

    /// Decides, and returns the report before it is durable.
    pub(super) fn decide_early(
        &self,
        mut report: Report,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> Answer<Result<Report, CheckError>> {
        match self.decide_into(&mut report, requests, verb, when) {
            Ok(None) => Answer::Ready(Ok(report)),
            Err(error) => Answer::Ready(Err(error)),
            Ok(Some(pending)) => {
                Answer::Pending(self.finish_pending(report, pending, requests, verb, when))
            }
        }
    }

    /// Makes the decision for the report.
    pub(super) fn decide_into(
        &self,
        report: &mut Report,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
    ) -> Result<Option<PendingDecision>, CheckError> {
        loop {
            let body = &mut *report.body;
            let ReportBody { rules: guard, evaluated, decisions, is_of_several, .. } = body;
            let ReportBody { hits, local, ticket, .. } = body;
            let rules: &Ruleset = guard.get_or_insert_with(|| self.shared.rules.load());
            let times = self.times_when(rules, when);
            let domain = self.domain_of(rules, requests);
            let names = PlannedKeys { rules, requests, hash: self.shared.store.hash(), times };
            let keeps_keys = verb.holds() || self.shared.store.has_log();
            let mut planned = Planned::new(rules, verb.act()).keeping_keys(keeps_keys);
            if let Err(error) = self.plan_verb(rules, domain, requests, verb, times, &mut planned) {
                drop(planned);
                return self.error_if_in_force(report, times, error);
            }
            if let Some(denial) = planned.denial {
                let denial =
                    EarlyDenialReport::new(rules, domain, denial, planned.denied, times.wall);
                drop(planned);
                report.deny(denial);
                return self.denied_early(report, requests, verb, when, times);
            }
            evaluated.clear();
            evaluated.extend(planned.plan.charges.iter().map(EvaluatedRule::from));
            (*is_of_several, *hits) = (requests.len() > 1, std::mem::take(&mut planned.hits));
            if evaluated.is_empty() && planned.plan.hold.is_none() {
                drop(planned);
                return self.if_in_force(report, times);
            }
            planned.add_ticket(rules, requests, ticket.as_deref_mut());
            planned.plan.names = Some(&names);
            planned.plan.time = self.plan_time(rules, requests, when, times);
            if rules.has_local && !self.is_immediate() {
                *local = LocalFallback::new(&self.shared.local, rules, &planned.plan, times.now);
            }
            let decided = match self.shared.store.decide(&planned.plan, times, decisions) {
                Answer::Ready(Err(Failure::Superseded)) => {
                    drop(planned);
                    *guard = Some(self.shared.rules.load());
                    continue;
                }
                Answer::Ready(Err(Failure::NotAdopted)) => {
                    let read = || self.times(rules, when.given());
                    self.shared.store.adopt(&rules.adoption, &read);
                    continue;
                }
                Answer::Pending(future) => {
                    drop(planned);
                    return Ok(Some(PendingDecision { future, times, error: None }));
                }
                Answer::Ready(decided) => decided,
            };
            drop(planned);
            if let Some(durable) = report.set(decided)? {
                report.body.wait_for(self.wake_on_outage(durable));
            }
            if !report.body.is_allowed && !report.body.is_repeat {
                self.correct_wait(report, requests, verb, when, times);
            }
            return Ok(None);
        }
    }

    /// A request that is denied before any limit is looked at.
    fn denied_early(
        &self,
        report: &mut Report,
        requests: &[Request<'_>],
        verb: Verb,
        when: When,
        times: Times,
    ) -> Result<Option<PendingDecision>, CheckError> {
        if self.is_shared() {
            return self.if_in_force(report, times);
        }
        self.correct_wait(report, requests, verb, when, times);
        Ok(None)
    }

    /// In an outage the charge is undone, and the waiters are woken.
    pub(super) fn wake_on_outage(&self, durable: Durable) -> Durable {
        let engine = self.clone();
        Box::pin(async move {
            let synced = durable.await;
            if synced.is_err() {
                engine.shared.waiting.wake_all();
            }
            synced
        })
    }

    /// Plans the requests, and checks that the verb fits the plan.
    #[inline(always)]
    pub(super) fn plan_verb<'r>(
        &self,
        rules: &'r Ruleset,
        domain: Option<&'r CompiledDomain>,
        requests: &'r [Request<'r>],
        verb: Verb,
        times: Times,
        planned: &mut Planned<'r>,
    ) -> Result<(), CheckError> {
        planned.add(rules, domain, requests, self.shared.store.hash(), times)?;
        if let [request] = requests {
            if request.cost == 0 && verb != Verb::Acquire {
                planned.plan.act = Operation::Look;
            }
            planned.plan.note = request.note;
            if let Some(key) = request.idempotency_key
                && matches!(verb, Verb::Check | Verb::Reserve | Verb::Book)
                && request.cost > 0
            {
                let domain = self.domain_hash(requests);
                let body = (RequestIdentity::of(request), verb);
                let scoped = (request.domain, request.owner, key);
                planned.plan.name = Some(self.idempotency_key(domain, scoped, body));
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

    pub(super) fn check_verb(
        &self,
        rules: &Ruleset,
        requests: &[Request<'_>],
        verb: Verb,
        planned: &mut Planned<'_>,
    ) -> Result<(), CheckError> {
        let slots = planned.slots.map(|index| rules.rule(planned.plan.charges[index].rule));
        match (verb, slots) {
            (Verb::Peek, _) => {}
            (Verb::PeekReserve, _) => {
                // A reservation has to fit, also where a charge would be booked whatever is left.
                for charge in &mut planned.plan.charges {
                    charge.terms.charging = Charging::Allowed;
                }
            }
            (Verb::Book, _) => planned.leave(|charge| charge.terms.charging != Charging::Postpaid),
            (Verb::Acquire, _) => match planned.in_flight.and_then(|it| rules.rule(it).slots()) {
                Some(slots) => {
                    let (length, domain) = (slots.expiry(), self.domain_hash(requests));
                    let owner = owner_of(requests);
                    planned.plan.hold = Some(HoldFor { length, domain, owner });
                }
                None if planned.denial.is_some() => {}
                None => {
                    let domain = requests.first().map_or("", |request| request.domain).into();
                    return Err(CheckError::NoSlots { domain });
                }
            },
            (Verb::Check | Verb::Reserve, Some(rule)) => {
                return Err(CheckError::NeedsAcquire { rule: rule.rule.id().clone() });
            }
            (Verb::Check, None) => planned.leave_slots(),
            (Verb::Reserve, None) => {
                if planned.plan.act == Operation::Look {
                    return Err(CheckError::NothingToReserve);
                }
                planned.leave_slots();
                let lengths =
                    planned.plan.charges.iter().map(|it| rules.rule(it.rule).rule.reserve_for());
                let length = lengths.min().unwrap_or(RESERVED_FOR);
                let domain = self.domain_hash(requests);
                let owner = owner_of(requests);
                planned.plan.hold = Some(HoldFor { length, domain, owner });
            }
        }
        Ok(())
    }

    /// A number for the domain of requests.
    pub(super) fn domain_hash(&self, requests: &[Request<'_>]) -> u64 {
        self.shared.store.hash().hash_one(requests.first().map_or("", |request| request.domain))
    }

    /// An idempotency key within its scope (a domain and an owner, or a hold), and the body that it belongs to.
    pub(super) fn idempotency_key(
        &self,
        domain: u64,
        scoped: impl Hash,
        body: impl Hash,
    ) -> IdempotencyKey {
        let hash = self.shared.store.hash();
        IdempotencyKey {
            domain,
            name: [hash.hash_one((1, &scoped)), hash.hash_one((2, &scoped))],
            body: hash.hash_one(body),
        }
    }
}

/// The owner of what is put on hold for requests, which are decided as one.
pub(super) fn owner_of(requests: &[Request<'_>]) -> Option<Owner> {
    requests.first().and_then(|request| request.owner)
}

/// Everything that distinguishes one request from another.
#[derive(Hash)]
pub(super) struct RequestIdentity<'a> {
    domain: &'a str,
    /// Sorted by name.
    attributes: SmallVec<[(&'a str, &'a str); 8]>,
    cost: u64,
}

impl<'a> RequestIdentity<'a> {
    pub(super) fn of(request: &Request<'a>) -> Self {
        let mut attributes: SmallVec<_> = request.attributes.iter().collect();
        attributes.sort_unstable();
        Self { domain: request.domain, attributes, cost: request.cost }
    }
}

/// A decision that is on its way to records that engines share, for this time. Its report is as far as
/// the plan.
pub(super) struct PendingDecision {
    pub(super) future: BoxFuture<Result<Decided, Failure>>,
    pub(super) times: Times,
    /// The result, if it is an error by the rules that it was planned by.
    pub(super) error: Option<CheckError>,
}

impl Verb {
    const fn act(self) -> Operation {
        match self {
            Self::Check | Self::Acquire | Self::Book => Operation::Charge,
            Self::Peek | Self::PeekReserve => Operation::Look,
            Self::Reserve => Operation::Hold,
        }
    }

    /// Whether it puts units on hold.
    const fn holds(self) -> bool {
        matches!(self, Self::Reserve | Self::Acquire)
    }

    /// The look that is denied as long as this is.
    pub(super) const fn look(self) -> Self {
        match self {
            Self::Check | Self::Acquire | Self::Peek | Self::Book => Self::Peek,
            Self::Reserve | Self::PeekReserve => Self::PeekReserve,
        }
    }
}

/// How long a reservation lasts where no rule limits it.
const RESERVED_FOR: Duration = Duration::from_secs(600);
