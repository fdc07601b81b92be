//! Places in flight, and waiting for them and for anything else that takes its time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tidegate_core::{Timestamp, Wait};

use super::error::{CheckError, SettleError};
use super::report::Report;
use super::{Engine, Verb};
use crate::any_limit::AnyLimit;
use crate::clock::{Clock, SystemClock};
use crate::request::Request;
use crate::store::{Durable, HoldId, MemoryStore, NowOrLater, Outage, Settlement, Store, block_on};
use crate::waiting::{self, Attempt, QueueError};

/// A place in flight. Dropping it gives it back.
///
/// It also comes back by itself when it has [expired](Self::expires), should its holder hang; a
/// holder that needs longer [renews](Self::renew) it.
#[must_use = "dropping a lease gives its place back"]
pub struct Lease<S: Store = MemoryStore, C: Clock + Send + Sync + 'static = SystemClock> {
    engine: Engine<S, C>,
    report: Report,
    id: HoldId,
    is_kept: bool,
}

/// Why somebody who waited got nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// A rule refused, and waiting would not have helped.
    Denied(Box<Report>),
    /// As many wait already as may.
    QueueFull,
    /// The time to wait was over.
    TimedOut,
    /// The engine was closed.
    Closed,
    /// The request cannot be decided.
    Invalid(CheckError),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(report) => f.write_str(&report.reason().unwrap_or_default()),
            Self::QueueFull => f.write_str("as many wait already as may"),
            Self::TimedOut => f.write_str("the time to wait was over"),
            Self::Closed => f.write_str("the engine was closed"),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {}

impl<S: Store, C: Clock + Send + Sync + 'static> Engine<S, C> {
    /// A place among those in flight, as soon as there is one. Those who wait are served in the
    /// order in which they called.
    ///
    /// `patience` is how long to wait: `None` is what the rule says, which may be for ever. While
    /// somebody waits nothing is charged; at its turn all rules of the domain are decided and
    /// charged together.
    ///
    /// To be awaited under any runtime, or [blocked](Waiting::block) on. Dropping it gives up the
    /// place in the queue.
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
        patience: Option<Duration>,
    ) -> Waiting<'a, Lease<S, C>> {
        let (rules, times) = self.begin(None);
        let planned = match self.plan(&rules, request, times) {
            Ok(planned) => planned,
            Err(error) => return Waiting::over(Err(WaitError::Invalid(error))),
        };
        let slots = planned.slots.and_then(|index| {
            let charge = &planned.plan.charges[index];
            Some((charge.hash, rules.rule(charge.rule).slots()?))
        });
        let Some((queue, slots)) = slots else {
            drop(planned);
            return self.cannot_acquire(request);
        };
        let rank = slots.priority.as_deref().and_then(|name| request.attributes.get(name));
        let wait = waiting::WaitRequest {
            queue,
            max_waiters: slots.queue,
            rank: rank.and_then(|rank| rank.parse().ok()).unwrap_or(0),
            deadline: patience.or(slots.wait).map(|wait| times.now.saturating_add(wait)),
        };
        let request = *request;
        let attempt = move |now| self.attempt_lease(&request, now);
        Waiting::new(self.shared.waiting.wait(wait, attempt), Lease::in_outage)
    }

    /// Nothing limits how many are in flight for this request, or it is refused before that.
    fn cannot_acquire<'a>(&'a self, request: &Request<'a>) -> Waiting<'a, Lease<S, C>> {
        let decided = self.decide(std::slice::from_ref(request), Verb::Acquire, None);
        Waiting::over(match decided.wait() {
            Ok(report) => self.lease(report),
            Err(error) => Err(WaitError::Invalid(error)),
        })
    }

    /// The lease that a report is about, if it is allowed.
    fn lease(&self, report: Report) -> Result<Lease<S, C>, WaitError> {
        match report.hold() {
            Some(id) if report.is_allowed() => {
                Ok(Lease { engine: self.clone(), report, id, is_kept: false })
            }
            // A place that cannot be written down cannot be given.
            _ if report.is_allowed() => Err(WaitError::Invalid(CheckError::Outage)),
            _ => Err(WaitError::Denied(Box::new(report))),
        }
    }

    fn attempt_lease(
        &self,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Attempt<Result<Unconfirmed<'_, Lease<S, C>>, WaitError>> {
        let decided = self.decide_early(request, Verb::Acquire, self.report_time(now));
        let (report, safe) = match decided {
            Ok(decided) => decided,
            Err(error) => return Attempt::Done(Err(WaitError::Invalid(error))),
        };
        if report.is_allowed() {
            return Attempt::Done(self.lease(report).map(|lease| (lease, safe)));
        }
        let is_for_slots =
            report.evaluated.iter().zip(&report.decisions).any(|(evaluated, decision)| {
                let is_slots =
                    matches!(report.rules.rule(evaluated.rule).base.limit, AnyLimit::Slots(_));
                is_slots && decision.wait() == Some(Wait::Unknown)
            });
        if is_for_slots {
            Attempt::NotYet { retry_at: self.shared.store.next_due() }
        } else {
            Attempt::Done(Err(WaitError::Denied(Box::new(report))))
        }
    }

    /// Charges the request as soon as every rule allows it. Those who wait for the same key of the
    /// first rule are served in the order in which they called.
    ///
    /// `patience` is how long to wait; `None` is for ever.
    pub fn until_ready<'a>(
        &'a self,
        request: &Request<'a>,
        patience: Option<Duration>,
    ) -> Waiting<'a, Report> {
        let (rules, times) = self.begin(None);
        let planned = match self.plan(&rules, request, times) {
            Ok(planned) => planned,
            Err(error) => return Waiting::over(Err(WaitError::Invalid(error))),
        };
        let wait = waiting::WaitRequest {
            queue: planned.plan.charges.first().map_or(0, |charge| !charge.hash),
            max_waiters: MOST_READY,
            rank: 0,
            deadline: patience.map(|wait| times.now.saturating_add(wait)),
        };
        let request = *request;
        let attempt = move |now: Timestamp| match self.decide_early(
            &request,
            Verb::Check,
            self.report_time(now),
        ) {
            Err(error) => Attempt::Done(Err(WaitError::Invalid(error))),
            Ok((report, safe)) => match report.wait() {
                None => Attempt::Done(Ok((report, safe))),
                Some(Wait::After(wait)) => {
                    Attempt::NotYet { retry_at: Some(now.saturating_add(wait)) }
                }
                Some(Wait::Unknown) => Attempt::NotYet { retry_at: self.shared.store.next_due() },
                Some(Wait::Never) => Attempt::Done(Err(WaitError::Denied(Box::new(report)))),
            },
        };
        Waiting::new(self.shared.waiting.wait(wait, attempt), Report::in_outage)
    }

    /// Makes a lease or a reservation last as long again, from now. Reports until when.
    pub fn renew(&self, id: HoldId) -> NowOrLater<'_, Result<Timestamp, SettleError>> {
        let (_, times) = self.begin(None);
        let settled = self.shared.store.settle(id, (Settlement::Renew, None), times);
        settled.map(|settled| Ok(settled?.expires))
    }

    /// Gives a place back by the name of its lease.
    pub fn release(&self, id: HoldId) -> NowOrLater<'_, Result<(), SettleError>> {
        self.settle(id, Settlement::Cancel, None).map(|settled| settled.map(drop))
    }

    /// Does what is due at the clock's time: gives back what has expired, and wakes those whose
    /// time to wait is over.
    ///
    /// Nobody has to call this where the clock moves by itself. After moving a
    /// [`ManualClock`](crate::ManualClock), it is what tells those who wait.
    pub fn tick(&self) {
        let (_, times) = self.begin(None);
        self.shared.store.expire(times);
        self.shared.waiting.tick(times.now);
    }

    /// Sends everybody home who waits, and ends the timer if one was started.
    ///
    /// The engine goes on deciding, but nobody can wait any more. May be called any number of
    /// times.
    pub fn close(&self) {
        self.shared.waiting.close();
    }

    /// The time to tell the decision: the attempt's own, unless the time of day is needed too.
    fn report_time(&self, now: Timestamp) -> Option<Timestamp> {
        let needs_wall = self.shared.rules.load().needs_wall;
        (!needs_wall).then_some(now)
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Lease<S, C> {
    fn in_outage(mut self) -> Result<Self, WaitError> {
        let rules = self.engine.shared.rules.load();
        let report = std::mem::replace(&mut self.report, Report::new(rules));
        let hold = report.hold;
        self.report = report.in_outage()?;
        // The place itself was given back; its numbers are still larger than all before.
        self.report.hold = hold;
        Ok(self)
    }

    /// Its name, for [`Engine::renew`] and [`Engine::release`].
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.id
    }

    /// A number larger than that of every lease before it. Whoever writes on behalf of the holder
    /// can refuse numbers lower than the highest it has seen, and so those who come too late.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.report.hold.map_or(0, |hold| hold.fence)
    }

    /// When it comes back by itself, unless it is renewed.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.report.expires()
    }

    /// What the rules said when it was given.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Makes it last as long again, from now; an error if it has expired.
    pub fn renew(&mut self) -> Result<Timestamp, SettleError> {
        let expires = self.engine.renew(self.id).wait()?;
        if let Some(hold) = &mut self.report.hold {
            hold.expires = expires;
        }
        Ok(expires)
    }

    /// Gives the place back; an error if it had expired.
    pub fn release(mut self) -> Result<(), SettleError> {
        self.is_kept = true;
        self.engine.release(self.id).wait()
    }

    /// Keeps the place beyond this value's life, until it is released by its name or expires.
    pub fn into_id(mut self) -> HoldId {
        self.is_kept = true;
        self.id
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> Drop for Lease<S, C> {
    fn drop(&mut self) {
        if !self.is_kept {
            // The place is back when this returns; nobody has to wait until that is safe. If it has
            // expired, it was back before.
            drop(self.engine.release(self.id));
        }
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> fmt::Debug for Lease<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id)
            .field("fence", &self.fence())
            .field("expires", &self.expires())
            .finish_non_exhaustive()
    }
}

impl Report {
    fn in_outage(mut self) -> Result<Self, WaitError> {
        self.set_outage();
        if self.is_allowed() { Ok(self) } else { Err(WaitError::Denied(Box::new(self))) }
    }
}

/// Somebody who waits: to be awaited, or blocked on. Dropping it gives up.
#[must_use = "nobody waits unless it is awaited or blocked on"]
pub struct Waiting<'a, T> {
    stage: LeaseStage<'a, T>,
    /// What is left of it if the store could not keep it: the rules decide.
    in_outage: fn(T) -> Result<T, WaitError>,
}

enum LeaseStage<'a, T> {
    Over(Option<Result<T, WaitError>>),
    Waits(Box<dyn ErasedWaiter<'a, T> + Send + 'a>),
    /// It has what it waited for, and may be told when that is safe.
    Has(Option<T>, Durable<'a>),
}

/// What somebody waited for, and when it may be told.
type Unconfirmed<'a, T> = (T, Option<Durable<'a>>);

/// A waiter whose attempt nobody can name.
trait ErasedWaiter<'a, T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Unconfirmed<'a, T>, WaitError>>;

    fn block(self: Box<Self>) -> Result<Unconfirmed<'a, T>, WaitError>;
}

impl<'a, T, F> ErasedWaiter<'a, T>
    for waiting::QueueWait<'_, Result<Unconfirmed<'a, T>, WaitError>, F>
where
    F: FnMut(Timestamp) -> Attempt<Result<Unconfirmed<'a, T>, WaitError>>,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Unconfirmed<'a, T>, WaitError>> {
        Pin::new(self).poll(context).map(flatten)
    }

    fn block(self: Box<Self>) -> Result<Unconfirmed<'a, T>, WaitError> {
        flatten((*self).block())
    }
}

fn flatten<T>(outcome: Result<Result<T, WaitError>, QueueError>) -> Result<T, WaitError> {
    outcome.unwrap_or_else(|gave_up| {
        Err(match gave_up {
            QueueError::QueueFull => WaitError::QueueFull,
            QueueError::DeadlinePassed => WaitError::TimedOut,
            QueueError::Closed => WaitError::Closed,
        })
    })
}

impl<'a, T> Waiting<'a, T> {
    fn new(
        waiter: impl ErasedWaiter<'a, T> + Send + 'a,
        in_outage: fn(T) -> Result<T, WaitError>,
    ) -> Self {
        Self { stage: LeaseStage::Waits(Box::new(waiter)), in_outage }
    }

    fn over(outcome: Result<T, WaitError>) -> Self {
        Self { stage: LeaseStage::Over(Some(outcome)), in_outage: Ok }
    }

    /// Blocks this thread until the waiting is over.
    pub fn block(self) -> Result<T, WaitError> {
        let (it, safe) = match self.stage {
            LeaseStage::Over(outcome) => return outcome.unwrap_or(Err(WaitError::Closed)),
            LeaseStage::Waits(waiter) => waiter.block()?,
            LeaseStage::Has(it, safe) => (it.ok_or(WaitError::Closed)?, Some(safe)),
        };
        match safe.map_or(Ok(()), block_on) {
            Ok(()) => Ok(it),
            Err(Outage) => (self.in_outage)(it),
        }
    }
}

impl<T> Future for Waiting<'_, T> {
    type Output = Result<T, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stage, in_outage } = self.get_mut();
        loop {
            return match stage {
                LeaseStage::Over(outcome) => {
                    Poll::Ready(outcome.take().unwrap_or(Err(WaitError::Closed)))
                }
                LeaseStage::Waits(waiter) => {
                    *stage = match ready!(waiter.poll(context)) {
                        Ok((it, Some(safe))) => LeaseStage::Has(Some(it), safe),
                        Ok((it, None)) => LeaseStage::Over(Some(Ok(it))),
                        Err(error) => LeaseStage::Over(Some(Err(error))),
                    };
                    continue;
                }
                LeaseStage::Has(it, safe) => {
                    let is_safe = ready!(safe.as_mut().poll(context));
                    let it = it.take().ok_or(WaitError::Closed);
                    Poll::Ready(match is_safe {
                        Ok(()) => it,
                        Err(Outage) => it.and_then(*in_outage),
                    })
                }
            };
        }
    }
}

/// Nothing in it is ever pinned.
impl<T> Unpin for Waiting<'_, T> {}

impl<T> fmt::Debug for Waiting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// How many may wait for the same key to be ready.
const MOST_READY: usize = 1_024;
