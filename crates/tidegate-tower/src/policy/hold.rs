use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::response;
use tidegate::{Cooldown, Limiter, SettleError, StoreEngine, Timestamp, hold::HoldId};

use super::Settle;
use super::decider::LateBooking;
use crate::ActualCost;
use crate::body::BoxFuture;
use crate::body::{EndAction, SettleAtEnd};
use crate::gate::{HeldUnits, SettleOutcome};

/// How held units are settled, once there is a response.
pub(super) type SettleBy = Arc<dyn Fn(&response::Parts) -> Settle + Send + Sync>;

/// Usage that was not charged, because its reservation was not settled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsettled<'a> {
    /// The domain of the layer.
    pub domain: &'a str,
    /// What was to be charged; `None`: what was reserved.
    pub units: Option<u64>,
    /// Why it was not: the reservation has expired, or the store is away.
    pub error: SettleError,
}

/// Observes usage that was not charged.
pub(super) type OnUnsettled = Arc<dyn Fn(&Unsettled<'_>) + Send + Sync>;

/// Reports usage that was not charged.
#[derive(Clone)]
pub(super) struct UnsettledReports {
    pub(super) domain: Arc<str>,
    pub(super) observe: Option<OnUnsettled>,
    /// Log lines: one per second.
    pub(super) log: Arc<Limiter<(), Cooldown>>,
}

impl UnsettledReports {
    fn report(&self, units: Option<u64>, error: SettleError) {
        let domain = &*self.domain;
        if self.log.allow(&()) {
            tracing::warn!(domain, units, %error, "the usage of a request was not charged");
        }
        if let Some(observe) = &self.observe {
            observe(&Unsettled { domain, units, error });
        }
    }
}

/// How held units are settled, and what becomes of usage that comes too late for that.
pub(super) struct Settlement {
    pub(super) settle: SettleBy,
    pub(super) reports: UnsettledReports,
    pub(super) late: Option<LateBooking>,
}

/// Units held for a request.
pub(super) struct RequestHold {
    engine: StoreEngine,
    id: HoldId,
    /// Half of its time: after that it is extended.
    half_life: Duration,
    renew_from: Timestamp,
    /// The renewal that is on its way.
    renewal: Option<BoxFuture<Result<Timestamp, SettleError>>>,
    actual_cost: ActualCost,
    settle: SettleBy,
    reports: UnsettledReports,
    late: Option<Arc<LateBooking>>,
    /// Whether the body of the response is not sent.
    is_head: bool,
    is_open: bool,
}

impl RequestHold {
    pub(super) fn new(
        engine: StoreEngine,
        id: HoldId,
        expires: Timestamp,
        actual_cost: ActualCost,
        is_head: bool,
        settlement: Settlement,
    ) -> Self {
        let Settlement { settle, reports, late } = settlement;
        let now = engine.clock().now();
        let half_life = expires.saturating_duration_since(now) / 2;
        Self {
            engine,
            id,
            half_life,
            renew_from: now.saturating_add(half_life),
            renewal: None,
            actual_cost,
            settle,
            reports,
            late: late.map(Arc::new),
            is_head,
            is_open: true,
        }
    }

    /// Charges this many units, or the actual cost, or all.
    fn commit(&mut self, actual: Option<u64>) -> Option<BoxFuture<()>> {
        let commit = BackgroundCommit(Some(self.usage(actual.or(self.actual_cost.actual()))));
        if self.engine.is_immediate() {
            // Dropping it commits.
            return None;
        }
        Some(Box::pin(commit.run()))
    }

    /// What is committed; the hold is settled by that.
    fn usage(&mut self, units: Option<u64>) -> Usage {
        self.is_open = false;
        let (engine, reports) = (self.engine.clone(), self.reports.clone());
        Usage { engine, id: self.id, units, reports, late: self.late.clone() }
    }
}

/// The usage of a request, to be charged to its reservation.
#[derive(Clone)]
struct Usage {
    engine: StoreEngine,
    id: HoldId,
    /// `None`: what was reserved.
    units: Option<u64>,
    reports: UnsettledReports,
    late: Option<Arc<LateBooking>>,
}

impl Usage {
    /// Commits it, or books it where the reservation is gone, and waits until that is durable.
    async fn commit(&self) {
        let Err(error) = self.engine.commit(self.id, self.units).await else { return };
        let is_booked = match (&self.late, error) {
            (Some(late), SettleError::Gone) => late.book(&self.engine, self.id, self.units).await,
            _ => false,
        };
        if !is_booked {
            self.reports.report(self.units, error);
        }
    }

    /// Commits it, although nothing waits for the result.
    fn commit_unattended(self) {
        let engine = self.engine.clone();
        engine.complete_in_background(async move { self.commit().await });
    }
}

/// A commit that happens even if its future is dropped.
struct BackgroundCommit(Option<Usage>);

impl BackgroundCommit {
    async fn run(mut self) {
        if let Some(usage) = &self.0 {
            usage.commit().await;
        }
        self.0 = None;
    }
}

impl Drop for BackgroundCommit {
    fn drop(&mut self) {
        // If it was committed before, this repeats it, and charges nothing.
        self.0.take().into_iter().for_each(Usage::commit_unattended);
    }
}

impl HeldUnits for RequestHold {
    fn settle(mut self: Box<Self>, response: &response::Parts) -> SettleOutcome {
        let settle = (self.settle)(response);
        let later = match settle {
            Settle::Commit(actual) => self.commit(actual),
            Settle::Cancel => {
                self.actual_cost.clear();
                // Dropping it cancels the hold.
                None
            }
            Settle::AtEnd if self.is_head => self.commit(None),
            Settle::AtEnd => return SettleOutcome::AtEnd(EndAction::Settle(self)),
        };
        later.map_or(SettleOutcome::Done, SettleOutcome::Later)
    }
}

impl SettleAtEnd for RequestHold {
    fn keep(&mut self) {
        let now = self.engine.clock().now();
        if self.renewal.is_none() {
            if now < self.renew_from {
                return;
            }
            // It takes effect whether or not the result is waited for.
            let (engine, id) = (self.engine.clone(), self.id);
            self.renewal = Some(Box::pin(async move { engine.renew(id).await }));
        }
        // It is not waited for: the next call looks again.
        let mut context = Context::from_waker(Waker::noop());
        let ended = self.renewal.as_mut().map(|it| it.as_mut().poll(&mut context));
        let Some(Poll::Ready(renewed)) = ended else { return };
        self.renewal = None;
        let next = match renewed {
            Ok(_) => self.half_life,
            Err(SettleError::Outage(_)) => (self.half_life / 5).max(SHORTEST_RETRY),
            // The commit reports that it is gone.
            Err(_) => Duration::MAX,
        };
        self.renew_from = now.saturating_add(next);
    }

    fn settle(mut self: Box<Self>) -> Option<BoxFuture<()>> {
        self.commit(None)
    }
}

/// Dropped without settling, it charges the actual cost, or nothing.
impl Drop for RequestHold {
    fn drop(&mut self) {
        if self.is_open {
            match self.actual_cost.actual() {
                Some(actual) => self.usage(Some(actual)).commit_unattended(),
                // A reservation that has expired was released before.
                None => drop(self.engine.cancel(self.id, None)),
            }
        }
    }
}

/// How long after a renewal that failed the next one begins, at least.
const SHORTEST_RETRY: Duration = Duration::from_millis(5);
