//! Verbs that end reservations, and refunds.

use tidegate_core::Timestamp;
use tidegate_table::clock::Clock;

use super::decide::RequestIdentity;
use super::{CheckError, Engine, SettleError};
use crate::plan::Settlement;
use crate::request::Request;
use crate::store::{HoldId, NowOrLater, Settled, Store};

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

/// Settlements.
impl<S: Store, C: Clock> Engine<S, C> {
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

    pub(super) fn settle(
        &self,
        id: HoldId,
        settlement: Settlement,
        now: Option<Timestamp>,
    ) -> NowOrLater<'_, Result<u64, SettleError>> {
        self.settle_noting(id, (settlement, None), now).map(|settled| Ok(settled?.units))
    }

    pub(super) fn settle_noting(
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
            settled.queues.wake(waiting);
            Ok(settled)
        })
    }
}
