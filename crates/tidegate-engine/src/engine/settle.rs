//! Verbs that end reservations, and refunds.

use super::decide::RequestIdentity;
use super::shared::Planning;
use super::{CheckError, Commit, Note, Refund, SettleError, StoreEngine};
use crate::plan::PlanTime;
use crate::request::Request;
use crate::store::settlement::{SettleCall, Settlement};
use crate::store::{Answer, Failure, HoldId, Settled};

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

impl CommitReport {
    /// Of a reservation that holds nothing.
    pub(super) const NOTHING: Self = Self { charged: 0, debt: 0, forgiven: 0, is_repeat: false };
}

impl From<Settled> for CommitReport {
    fn from(settled: Settled) -> Self {
        let Settled { units: charged, debt, forgiven, is_repeat, .. } = settled;
        Self { charged, debt, forgiven, is_repeat }
    }
}

/// Settlements.
impl StoreEngine {
    /// Charges a reservation: the units it holds, or [other units](Commit::actual), which may be
    /// fewer or more.
    ///
    /// `commit(id, None)` charges what it holds, `commit(id, Some(3))` three units, and
    /// `commit(id, Commit::actual(3).note("chat 17"))` writes a note with them. The same again
    /// within 24 hours returns the same, and charges nothing.
    pub fn commit<'c>(
        &self,
        id: HoldId,
        commit: impl Into<Commit<'c>>,
    ) -> Answer<Result<CommitReport, SettleError>> {
        let Commit { actual, note } = commit.into();
        let settled = self.settle_whole(id, Settlement::Commit { actual }, note.0);
        settled.map(|settled| Ok(settled?.into()))
    }

    /// Cancels a reservation: its units are available again. The same again is no error.
    pub fn cancel<'n>(
        &self,
        id: HoldId,
        note: impl Into<Note<'n>>,
    ) -> Answer<Result<u64, SettleError>> {
        self.settle(id, Settlement::Cancel, note.into().0)
    }

    /// Cancels a reservation as if it had never been made: a cooldown that it began is over as
    /// well, unless a later request has begun another one.
    ///
    /// [`cancel`](Self::cancel) keeps cooldowns, because the request did happen. Both again, or one
    /// after the other, is no error and changes nothing.
    pub fn void<'n>(
        &self,
        id: HoldId,
        note: impl Into<Note<'n>>,
    ) -> Answer<Result<u64, SettleError>> {
        self.settle(id, Settlement::Void, note.into().0)
    }

    /// Refunds units of a committed reservation, and returns how many.
    ///
    /// `refund_hold(id, 3)`, or `refund_hold(id, Refund::units(3).idempotency_key("order 17"))` to
    /// do it once. Never more than was charged, and nothing from a window or period that has
    /// closed.
    pub fn refund_hold<'r>(
        &self,
        id: HoldId,
        refund: impl Into<Refund<'r>>,
    ) -> Answer<Result<u64, SettleError>> {
        let Refund { units, idempotency_key } = refund.into();
        let name = idempotency_key.map(|key| self.idempotency_key(0, (id, key), ("refund", units)));
        self.settle(id, Settlement::Refund { units, name }, None)
    }

    /// Refunds the cost of a request at every rule that applies, and returns the most that any
    /// of them refunded. Never more than was charged, and under the same
    /// [idempotency key](Request::idempotency_key) only once.
    ///
    /// With [`CheckError::Outage`] the refund may still have happened: a [`peek`](Self::peek) shows
    /// it.
    pub fn refund(&self, request: &Request<'_>) -> Answer<Result<u64, CheckError>> {
        self.run_planned(request, Self::refund_once)
    }

    /// Refunds, by the rules that are known here.
    fn refund_once(&self, request: &Request<'_>) -> Planning<u64> {
        let (rules, times) = self.begin(self.given);
        // The store may not know the newest rules yet.
        self.shared.store.adopt(&rules.adoption, &|| self.times(&rules, self.given));
        let name = request.idempotency_key.map(|key| {
            let body = ("refund", RequestIdentity::of(request));
            let domain = self.domain_hash(std::slice::from_ref(request));
            self.idempotency_key(domain, (request.domain, request.owner, key), body)
        });
        let names = self.planned_keys(&rules, request, times);
        let mut planned = match self.plan(&rules, request, times) {
            Ok(planned) => planned,
            Err(error) => return Answer::Ready(Err(error)),
        };
        planned.plan.names = Some(&names);
        planned.plan.name = name;
        planned.plan.time = self.plan_time_of(&rules, request, times);
        let units = self.shared.store.refund(&planned.plan, times);
        self.after(units, |engine, units| {
            engine.shared.waiting.wake_all();
            Ok(units)
        })
    }

    /// Settles a hold, and returns the units that are charged or were refunded.
    pub(super) fn settle(
        &self,
        id: HoldId,
        settlement: Settlement,
        note: Option<&str>,
    ) -> Answer<Result<u64, SettleError>> {
        self.settle_whole(id, settlement, note).map(|settled| Ok(settled?.units))
    }

    fn settle_whole(
        &self,
        id: HoldId,
        settlement: Settlement,
        note: Option<&str>,
    ) -> Answer<Result<Settled, SettleError>> {
        let settled = self.settle_in_store(id, settlement, note);
        if let Answer::Pending(_) = &settled {
            // It has happened already, even if the result is never awaited.
            self.shared.waiting.wake_all();
        }
        self.after(settled, |engine, settled| {
            let settled = settled?;
            // Wakes the waiters for what was released.
            settled.queues.wake(&engine.shared.waiting);
            Ok(settled)
        })
    }

    /// Settles a hold. The clock of a store that other engines share is known once it has answered.
    pub(super) fn settle_in_store(
        &self,
        id: HoldId,
        settlement: Settlement,
        note: Option<&str>,
    ) -> Answer<Result<Settled, Failure>> {
        let store = &self.shared.store;
        let has_answered = store.shared().is_none_or(|shared| shared.control().version > 0);
        if self.given.is_some() || has_answered {
            let (_, times) = self.begin(self.given);
            let time = PlanTime::of(self.given);
            return store.settle(id, SettleCall { settlement, note, time }, times);
        }
        let (engine, answer) = (self.clone(), self.synchronize());
        self.submit_future(Box::pin(async move {
            answer.await.map_err(Failure::Outage)?;
            let (_, times) = engine.begin(None);
            // No shared store writes notes.
            let (note, time) = (None, PlanTime::of(None));
            engine.shared.store.settle(id, SettleCall { settlement, note, time }, times).await
        }))
    }
}
