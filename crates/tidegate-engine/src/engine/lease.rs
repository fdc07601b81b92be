//! Leases of slots, and queues for them and for any other limit.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tidegate_core::{Timestamp, Wait};
use tidegate_policy::policy::Mode;
use tidegate_table::clock::Clock;
use tidegate_table::waiting::{self, Attempt, AttemptTurn, Attempts, QueueError, Tried};

use super::error::{CheckError, SettleError};
use super::local::LocalFallback;
use super::report::{Report, TicketEnd};
use super::reservation::Held;
use super::ruleset::Ruleset;
use super::tickets::{QueueTicket, TicketAttempt, rank_of};
use super::{StoreEngine, Verb, When};
use crate::any_limit::AnyLimit;
use crate::periods::Times;
use crate::request::Request;
use crate::store::answer::BoxFuture;
use crate::store::settlement::Settlement;
use crate::store::{Answer, HoldId, Outage, TicketOutcome, block_on};

/// A slot of a concurrency limit. Dropping it releases the slot.
///
/// It [expires](Self::expires), should its holder hang; a holder that needs longer
/// [renews](Self::renew) it.
#[must_use = "dropping a lease releases its slot"]
pub struct Lease {
    held: Held,
}

/// Why a request got no units and no slot.
#[non_exhaustive]
pub enum NotGranted {
    /// A rule denied the request, and where it could have waited, that would not have helped.
    Denied(Report),
    /// The queue is full.
    QueueFull,
    /// The deadline passed.
    TimedOut,
    /// The engine was closed.
    Closed,
    /// The request cannot be decided.
    Invalid(CheckError),
}

impl fmt::Display for NotGranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(report) => f.write_str(&report.reason().unwrap_or_default()),
            Self::QueueFull => f.write_str("the queue is full"),
            Self::TimedOut => f.write_str("the wait timed out"),
            Self::Closed => f.write_str("the engine was closed"),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(NotGranted);

impl std::error::Error for NotGranted {}

impl From<CheckError> for NotGranted {
    fn from(error: CheckError) -> Self {
        Self::Invalid(error)
    }
}

impl StoreEngine {
    /// A slot, as soon as one is free. Waiters are served in the order in which they called; where
    /// several engines share the store, over all of them.
    ///
    /// `max_wait` is how long to wait; `None` is the rule's `wait`, which may be for ever. While
    /// a caller waits nothing is charged; at its turn all rules of the domain are decided and
    /// charged at once.
    ///
    /// Await it under any runtime, or [block](Waiting::block) on it. Dropping it leaves the queue.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    /// use tidegate::{Engine, Request};
    ///
    /// let engine = Engine::new(Policy::from_toml(r#"
    ///     [[rule]]
    ///     name  = "calls"
    ///     slots = { max = 3, queue = 100, expires = "5m" }
    /// "#)?);
    /// let lease = engine.acquire(&Request::new("default", &[]), None).block()?;
    /// // … the call …
    /// drop(lease);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire<'a>(
        &'a self,
        request: &Request<'a>,
        max_wait: Option<Duration>,
    ) -> Waiting<'a, Lease> {
        let (rules, times) = self.begin(None);
        let wait = self.wait_for_slot(&rules, request, times, max_wait);
        let wait = match wait {
            Ok(Some(wait)) => wait,
            Ok(None) => return self.cannot_acquire(request),
            Err(error) => return Waiting::over(Err(NotGranted::Invalid(error))),
        };
        let request = *request;
        let store = self.shared.store.shared();
        let ticket = store.map(|store| QueueTicket::new(self, store, request.owner));
        let attempt = move |turn: AttemptTurn| match &ticket {
            Some(ticket) => self.attempt_shared_lease(&request, turn.now, ticket.attempt(turn)),
            None => self.attempt_lease(&request, turn.now),
        };
        Waiting::new(self.shared.waiting.wait(wait, attempt), Lease::confirmed)
    }

    /// Where a request waits for its slot; `None` if no rule limits requests in flight for it.
    fn wait_for_slot(
        &self,
        rules: &Ruleset,
        request: &Request<'_>,
        times: Times,
        max_wait: Option<Duration>,
    ) -> Result<Option<waiting::WaitRequest>, CheckError> {
        let planned = self.plan(rules, request, times)?;
        let slots = planned.slots.and_then(|index| {
            let charge = &planned.plan.charges[index];
            Some((charge.hash, rules.rule(charge.rule).slots()?))
        });
        let Some((queue, slots)) = slots else { return Ok(None) };
        Ok(Some(waiting::WaitRequest {
            queue,
            max_waiters: slots.queue_len(),
            rank: rank_of(slots, request),
            deadline: max_wait.or(slots.longest_wait()).map(|wait| times.now.saturating_add(wait)),
            attempts: match self.is_shared() {
                true => Attempts::Ticketed { renewed_every: RENEWED_EVERY },
                false => Attempts::Now,
            },
        }))
    }

    /// No rule limits requests in flight for this request, or it is denied before that.
    fn cannot_acquire<'a>(&'a self, request: &Request<'a>) -> Waiting<'a, Lease> {
        let decided = self.decide(std::slice::from_ref(request), Verb::Acquire, When::Now);
        Waiting::decided(self.after(decided, |engine, decided| match decided {
            Ok(report) => engine.lease(report),
            Err(error) => Err(NotGranted::Invalid(error)),
        }))
    }

    /// The lease of a report, if it is allowed.
    fn lease(&self, report: Report) -> Result<Lease, NotGranted> {
        match report.hold() {
            Some(id) if report.is_allowed() => {
                Ok(Lease { held: Held::new(self.by_the_clock(), report, id) })
            }
            // A slot that is not durable cannot be granted.
            _ if report.is_allowed() => {
                Err(NotGranted::Invalid(CheckError::Outage(Outage::Unavailable)))
            }
            _ => Err(NotGranted::Denied(report)),
        }
    }

    fn attempt_lease<'a>(
        &'a self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Tried<'a, Result<Lease, NotGranted>> {
        match self.attempt(Report::new(&self.shared.rules), request, Verb::Acquire, now) {
            Answer::Ready(decided) => Tried::Now(self.attempted_lease(decided)),
            Answer::Pending(deciding) => {
                Tried::Pending(Box::pin(async move { self.attempted_lease(deciding.await) }))
            }
        }
    }

    /// Decides for a waiter, before the decision is durable.
    fn attempt(
        &self,
        report: Report,
        request: &Request<'_>,
        verb: Verb,
        now: Timestamp,
    ) -> Answer<Result<Report, CheckError>> {
        let requests = std::slice::from_ref(request);
        let when = When::given_or_now(self.report_time(now));
        self.decide_early(report, requests, verb, when)
    }

    /// An attempt where several engines share the queue: the store keeps the order.
    fn attempt_shared_lease<'a>(
        &'a self,
        request: &Request<'_>,
        now: Timestamp,
        attempt: TicketAttempt,
    ) -> Tried<'a, Result<Lease, NotGranted>> {
        let mut report = Report::new(&self.shared.rules);
        report.body.ticket = Some(Box::new(attempt.ticket));
        match self.attempt(report, request, Verb::Acquire, now) {
            Answer::Ready(decided) => Tried::Now(self.attempted_shared_lease(attempt, decided)),
            Answer::Pending(deciding) => Tried::Pending(Box::pin(async move {
                self.attempted_shared_lease(attempt, deciding.await)
            })),
        }
    }

    /// What an attempt came to where several engines share the queue.
    fn attempted_shared_lease(
        &self,
        attempt: TicketAttempt,
        decided: Result<Report, CheckError>,
    ) -> Attempt<Result<Lease, NotGranted>> {
        let Ok(report) = decided else {
            attempt.end(None);
            return self.attempted_lease(decided);
        };
        let end = report.body.ticket.as_ref().map(|ticket| ticket.end);
        let outlasts = attempt.outlasts(&report);
        attempt.end(Some(&report));
        match end {
            Some(TicketEnd::Known(TicketOutcome::Full)) => {
                Attempt::Done(Err(NotGranted::QueueFull))
            }
            Some(TicketEnd::Known(TicketOutcome::Waits { .. })) => {
                Attempt::NotYet { retry_at: self.next_release(&report) }
            }
            _ if outlasts => Attempt::NotYet { retry_at: self.next_release(&report) },
            _ => self.attempted_lease(Ok(report)),
        }
    }

    /// What an attempt to get a slot came to.
    fn attempted_lease(
        &self,
        decided: Result<Report, CheckError>,
    ) -> Attempt<Result<Lease, NotGranted>> {
        let report = match decided {
            Ok(report) => report,
            Err(error) => return Attempt::Done(Err(NotGranted::Invalid(error))),
        };
        if report.is_allowed() {
            return Attempt::Done(self.lease(report));
        }
        let is_for_slots = report.body.evaluated.iter().zip(&report.body.decisions).any(
            |(evaluated, decision)| {
                let is_slots = matches!(
                    report.ruleset().rule(evaluated.rule).charge.limit,
                    AnyLimit::Slots(_)
                );
                let is_enforced = evaluated.mode == Mode::Enforce;
                is_slots && is_enforced && decision.retry_after() == Some(Wait::Unknown)
            },
        );
        if is_for_slots {
            Attempt::NotYet { retry_at: self.next_release(&report) }
        } else {
            Attempt::Done(Err(NotGranted::Denied(report)))
        }
    }

    /// When units may be released without a call here: a hold expires, or where other engines share
    /// the store, soon.
    fn next_release(&self, report: &Report) -> Option<Timestamp> {
        if !self.is_shared() {
            return self.shared.store.next_due();
        }
        let soon = self.shared.clock.now().saturating_add(POLL_PAUSE);
        Some(report.body.next_expiry.map_or(soon, |expiry| expiry.min(soon)))
    }

    /// Charges the request as soon as every rule allows it. Waiters for the same key of the
    /// first rule are served in the order in which they called.
    pub fn ready<'a>(&'a self, request: &Request<'a>) -> Waiting<'a, Report> {
        self.wait_until_ready(request, None)
    }

    /// [`ready`](Self::ready), or an error after this long.
    pub fn ready_within<'a>(
        &'a self,
        request: &Request<'a>,
        max_wait: Duration,
    ) -> Waiting<'a, Report> {
        self.wait_until_ready(request, Some(max_wait))
    }

    fn wait_until_ready<'a>(
        &'a self,
        request: &Request<'a>,
        max_wait: Option<Duration>,
    ) -> Waiting<'a, Report> {
        let (rules, times) = self.begin(None);
        let first = match self.plan(&rules, request, times) {
            Ok(planned) => planned.plan.charges.first().map(|charge| charge.hash),
            Err(error) => return Waiting::over(Err(NotGranted::Invalid(error))),
        };
        let wait = waiting::WaitRequest {
            queue: first.map_or(0, |hash| !hash),
            max_waiters: MOST_READY,
            rank: 0,
            deadline: max_wait.map(|wait| times.now.saturating_add(wait)),
            attempts: match self.is_shared() {
                true => Attempts::Later,
                false => Attempts::Now,
            },
        };
        let request = *request;
        let attempt = move |AttemptTurn { now, .. }| match self.attempt(
            Report::new(&self.shared.rules),
            &request,
            Verb::Check,
            now,
        ) {
            Answer::Ready(decided) => Tried::Now(self.attempted_check(decided, now)),
            Answer::Pending(deciding) => {
                Tried::Pending(Box::pin(async move { self.attempted_check(deciding.await, now) }))
            }
        };
        Waiting::new(self.shared.waiting.wait(wait, attempt), Report::confirmed)
    }

    /// What an attempt to be ready came to.
    fn attempted_check(
        &self,
        decided: Result<Report, CheckError>,
        now: Timestamp,
    ) -> Attempt<Result<Report, NotGranted>> {
        let report = match decided {
            Ok(report) => report,
            Err(error) => return Attempt::Done(Err(NotGranted::Invalid(error))),
        };
        match report.retry_after() {
            None => Attempt::Done(Ok(report)),
            Some(Wait::After(wait)) => {
                let is_contended = self.is_shared() && !report.is_outage();
                let random = if is_contended { RandomState::new().hash_one(now) } else { 0 };
                let retry_at = now.saturating_add(wait).saturating_add(jitter(wait, random));
                Attempt::NotYet { retry_at: Some(retry_at) }
            }
            Some(Wait::Unknown) => Attempt::NotYet { retry_at: self.next_release(&report) },
            Some(Wait::Never) => Attempt::Done(Err(NotGranted::Denied(report))),
        }
    }

    /// Extends a lease or a reservation by its full length, from now. Returns its new end.
    pub fn renew(&self, id: HoldId) -> Answer<Result<Timestamp, SettleError>> {
        let settled = self.settle_in_store(id, Settlement::Renew, None);
        settled.map(|settled| Ok(settled?.expires))
    }

    /// Releases a slot by the id of its lease.
    pub fn release(&self, id: HoldId) -> Answer<Result<(), SettleError>> {
        self.settle(id, Settlement::Cancel, None).map(|settled| settled.map(drop))
    }

    /// Does what is due by the clock: expires holds, and wakes waiters whose deadline has passed.
    ///
    /// Only needed after moving a [`ManualClock`](tidegate_table::ManualClock): other clocks have a timer.
    pub fn tick(&self) {
        let (_, times) = self.begin(None);
        self.shared.store.expire(times);
        self.shared.waiting.tick(times.now);
    }

    /// Ends all waiting with an error, and stops the timer if one was started.
    ///
    /// The engine continues to decide, but callers can no longer wait. May be called any number of
    /// times.
    pub fn close(&self) {
        self.shared.waiting.close();
    }

    /// The time for the decision: the attempt's own, unless the time of day is needed too.
    fn report_time(&self, now: Timestamp) -> Option<Timestamp> {
        let needs_wall = self.shared.rules.load().needs_wall;
        (!needs_wall).then_some(now)
    }
}

impl Lease {
    /// The lease, once it is durable. If it does not become durable, the rules decide.
    fn confirmed(mut self) -> Answer<Result<Self, NotGranted>> {
        let Some(durable) = self.held.report.body.take_durable() else {
            return Answer::Ready(Ok(self));
        };
        Answer::Pending(Box::pin(async move {
            match durable.await {
                Ok(()) => Ok(self),
                Err(_) => self.in_outage(),
            }
        }))
    }

    fn in_outage(mut self) -> Result<Self, NotGranted> {
        let rules = &self.held.engine.shared.rules;
        let mut report = std::mem::replace(&mut self.held.report, Report::new(rules));
        let hold = report.body.hold;
        let local = report.body.local.take();
        report.body.local = local.map(LocalFallback::of_granted);
        self.held.report = report.in_outage()?;
        // The slot itself was released; its fence is still larger than all before.
        self.held.report.body.hold = hold;
        Ok(self)
    }

    /// Its id, for [`StoreEngine::renew`] and [`StoreEngine::release`].
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.held.id()
    }

    /// A number larger than that of every lease before it. A resource that the holder writes to
    /// can reject numbers lower than the highest it has seen, and so writes of expired holders.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.held.report.body.hold.map_or(0, |hold| hold.fence)
    }

    /// When it expires, unless it is renewed.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.held.expires()
    }

    /// The decision that granted it.
    pub fn report(&self) -> &Report {
        &self.held.report
    }

    /// Extends it by its full length, from now; an error if it has expired.
    pub fn renew(&mut self) -> Answer<Result<Timestamp, SettleError>> {
        self.held.renew()
    }

    /// Releases the slot; an error if it had expired.
    pub fn release(mut self) -> Answer<Result<(), SettleError>> {
        self.held.keep();
        let (engine, id) = (self.held.engine.clone(), self.id());
        engine.submit(move |engine| engine.release(id))
    }

    /// Keeps the slot beyond this value's life, until it is released by its id or expires.
    pub fn into_id(mut self) -> HoldId {
        self.held.keep();
        self.id()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(engine) = self.held.keep() {
            // The slot is free when this returns; that need not be durable first. If the lease has
            // expired, the slot was free before.
            drop(engine.release(self.id()));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id())
            .field("fence", &self.fence())
            .field("expires", &self.expires())
            .finish_non_exhaustive()
    }
}

impl Report {
    /// The result of a wait, once the decision is durable. If it does not become durable, the rules decide.
    fn confirmed(mut self) -> Answer<Result<Self, NotGranted>> {
        let Some(durable) = self.body.take_durable() else { return Answer::Ready(Ok(self)) };
        Answer::Pending(Box::pin(async move {
            match durable.await {
                Ok(()) => Ok(self),
                Err(_) => self.in_outage(),
            }
        }))
    }

    fn in_outage(mut self) -> Result<Self, NotGranted> {
        self.set_outage();
        if self.is_allowed() { Ok(self) } else { Err(NotGranted::Denied(self)) }
    }
}

/// A wait in a queue: await it, or block on it. Dropping it leaves the queue.
#[must_use = "nothing waits unless it is awaited or blocked on"]
pub struct Waiting<'a, T> {
    stage: WaitStage<'a, T>,
    /// The result as it may be returned: once it is durable.
    confirmed: fn(T) -> Answer<Result<T, NotGranted>>,
}

enum WaitStage<'a, T> {
    Queued(Box<dyn ErasedWaiter<T> + Send + 'a>),
    /// It does not wait in a queue, but for its decision or until that is durable.
    Decides(BoxFuture<Result<T, NotGranted>>),
    Over(Option<Result<T, NotGranted>>),
}

/// A waiter with the type of its attempt erased.
trait ErasedWaiter<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T, NotGranted>>;

    fn block(self: Box<Self>) -> Result<T, NotGranted>;
}

impl<'a, T, F> ErasedWaiter<T> for waiting::QueueWait<'a, Result<T, NotGranted>, F>
where
    F: FnMut(AttemptTurn) -> Tried<'a, Result<T, NotGranted>>,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T, NotGranted>> {
        Pin::new(self).poll(context).map(flatten)
    }

    fn block(self: Box<Self>) -> Result<T, NotGranted> {
        flatten((*self).block())
    }
}

fn flatten<T>(outcome: Result<Result<T, NotGranted>, QueueError>) -> Result<T, NotGranted> {
    outcome.unwrap_or_else(|error| {
        Err(match error {
            QueueError::QueueFull => NotGranted::QueueFull,
            QueueError::DeadlinePassed => NotGranted::TimedOut,
            QueueError::Closed => NotGranted::Closed,
        })
    })
}

impl<'a, T> Waiting<'a, T> {
    fn new(
        waiter: impl ErasedWaiter<T> + Send + 'a,
        confirmed: fn(T) -> Answer<Result<T, NotGranted>>,
    ) -> Self {
        Self { stage: WaitStage::Queued(Box::new(waiter)), confirmed }
    }

    fn over(outcome: Result<T, NotGranted>) -> Self {
        Self::decided(Answer::Ready(outcome))
    }

    fn decided(outcome: Answer<Result<T, NotGranted>>) -> Self {
        let confirmed = |it| Answer::Ready(Ok(it));
        Self { stage: outcome.into(), confirmed }
    }

    /// Blocks this thread until the waiting is over.
    pub fn block(self) -> Result<T, NotGranted> {
        match self.stage {
            WaitStage::Queued(waiter) => (self.confirmed)(waiter.block()?).block(),
            WaitStage::Decides(outcome) => block_on(outcome),
            WaitStage::Over(outcome) => outcome.unwrap_or(Err(NotGranted::Closed)),
        }
    }
}

impl<T> From<Answer<Result<T, NotGranted>>> for WaitStage<'_, T> {
    fn from(answer: Answer<Result<T, NotGranted>>) -> Self {
        match answer {
            Answer::Ready(outcome) => Self::Over(Some(outcome)),
            Answer::Pending(outcome) => Self::Decides(outcome),
        }
    }
}

impl<T> Future for Waiting<'_, T> {
    type Output = Result<T, NotGranted>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stage, confirmed } = self.get_mut();
        if let WaitStage::Queued(waiter) = stage {
            *stage = match ready!(waiter.poll(context)) {
                Ok(it) => confirmed(it).into(),
                Err(error) => WaitStage::Over(Some(Err(error))),
            };
        }
        match stage {
            WaitStage::Decides(outcome) => outcome.as_mut().poll(context),
            WaitStage::Over(outcome) => {
                Poll::Ready(outcome.take().unwrap_or(Err(NotGranted::Closed)))
            }
            WaitStage::Queued(_) => Poll::Pending,
        }
    }
}

/// Nothing in it is pinned.
impl<T> Unpin for Waiting<'_, T> {}

impl<T> fmt::Debug for Waiting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// How much later than its wait a waiter attempts again where other engines share the limit, so that not all
/// of them do at once: up to an eighth of the wait.
fn jitter(wait: Duration, random: u64) -> Duration {
    let most_ns = u64::try_from((wait / 8).min(MOST_JITTER).as_nanos()).unwrap_or(u64::MAX);
    let jitter_ns = (u128::from(random) * u128::from(most_ns)) >> 64;
    Duration::from_nanos(u64::try_from(jitter_ns).unwrap_or(most_ns))
}

/// The longest jitter.
const MOST_JITTER: Duration = Duration::from_millis(50);

/// How soon an attempt is repeated where other engines may release what it waits for.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// How often a waiter renews its ticket in a queue that several engines share.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// How many may wait for the same key to be ready.
const MOST_READY: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_up_to_an_eighth_of_the_wait_and_bounded() {
        let second = Duration::from_secs(1);
        assert_eq!(jitter(second, 0), Duration::ZERO);
        assert_eq!(jitter(second, u64::MAX).as_nanos(), MOST_JITTER.as_nanos() - 1);
        assert_eq!(jitter(Duration::from_nanos(160), u64::MAX / 2 + 1), Duration::from_nanos(10));
        assert_eq!(jitter(Duration::ZERO, u64::MAX), Duration::ZERO);
    }
}
