//! From a draft to a proposal that its governor can confirm.

use std::pin::pin;
use std::sync::PoisonError;

use tidegate::{NotGranted, Request};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Desk, HoldEnd, Parts};
use crate::limits::{ACT, DOMAIN, GOVERNOR, INTERPRETER, PROPOSE, price};
use crate::note::Note;
use crate::problem::{CallOutcome, DeskError};
use crate::proposal::{Draft, Interpretation, Proposal, ProposalId, Status};
use crate::state::{Fact, FactKind};

impl Desk {
    /// Submits a proposal: holds its tokens, waits in the queue for the interpreter, and interprets
    /// it.
    ///
    /// Dropping the future changes nothing: the proposal goes on by itself, and its governor finds
    /// it among the [proposals](Self::proposals).
    pub async fn propose(&self, governor: &str, draft: Draft) -> Result<Proposal, DeskError> {
        check(&draft)?;
        let (desk, governor) = (self.clone(), governor.to_owned());
        let guard = self.parts.interpreting.subscribe();
        // In its own task: the slot belongs to the call of the interpreter, not to the client.
        let proposing = tokio::spawn(async move {
            let proposed = desk.proposed(governor, draft).await;
            drop(guard);
            proposed
        });
        proposing.await.unwrap_or(Err(DeskError::Outage))
    }

    async fn proposed(self, governor: String, draft: Draft) -> Result<Proposal, DeskError> {
        let submitted = self.submitted(governor, draft).await?;
        match submitted.while_held(submitted.interpreted()).await {
            Ok(interpretation) => submitted.accepted(interpretation).await,
            Err(failed) => Err(submitted.failed(failed).await),
        }
    }

    /// Checks all limits in one decision.
    async fn submitted(self, governor: String, draft: Draft) -> Result<Submitted, DeskError> {
        let note = Note::Proposed { governor: governor.clone(), draft: draft.clone() };
        let text = note.to_text();
        let attributes = [(GOVERNOR, governor.as_str()), (ACT, PROPOSE)];
        let request = Request::new(DOMAIN, &attributes).cost(price(draft.tier)).note(&text);
        let (window, reserved) = {
            // The window does not close meanwhile.
            let _state = self.state();
            (self.window_number(), self.parts.engine.hold(&request))
        };
        let report = reserved.await.map_err(|_| self.outage("propose"))?;
        let Some(hold) = report.hold().filter(|_| report.is_allowed()) else {
            return Err(self.denied(&report));
        };
        let id = ProposalId(hold);
        let mut state = self.state();
        state.apply(Fact::held(FactKind::Reserve, hold, Some(note)));
        state.set_expiry(id, report.details().expires());
        state.set_submitted_in(id, window);
        drop(state);
        Ok(Submitted { desk: self, id, governor, draft, is_over: false })
    }
}

/// A proposal that is being interpreted. Dropping it voids it.
struct Submitted {
    desk: Desk,
    id: ProposalId,
    governor: String,
    draft: Draft,
    /// Whether its outcome is settled.
    is_over: bool,
}

impl Submitted {
    /// Waits in the queue for a slot of the interpreter, and calls it.
    async fn interpreted(&self) -> Result<Interpretation, DeskError> {
        let Parts { engine, interpreter, .. } = &*self.desk.parts;
        let cancelled = self.enter_queue();
        let request = Request::new(INTERPRETER, &[]);
        let slot = tokio::select! {
            slot = engine.acquire(&request, None) => slot,
            _ = cancelled => return Err(gone()),
        };
        // From here on it is a call, which its governor cannot stop any more.
        if self.desk.leave_queue(self.id).is_none() {
            return Err(gone());
        }
        let _slot = slot.map_err(|error| {
            let reason = match error {
                NotGranted::QueueFull => "the interpreter's queue is full",
                _ => "the desk is stopping",
            };
            let call = CallOutcome::NotReached;
            DeskError::NotInterpreted { status: 503, reason: reason.into(), call }
        })?;
        interpreter.interpret((self.id, &self.governor), &self.draft).await
    }

    /// Enters the queue. The result is ready when the proposal is taken out of it.
    fn enter_queue(&self) -> oneshot::Receiver<()> {
        let (sender, cancelled) = oneshot::channel();
        // It may have been cancelled before; then the sender is dropped here.
        let state = self.desk.state();
        if state.get(self.id).is_some_and(|known| known.status == Status::Interpreting) {
            let queued = &self.desk.parts.queued;
            queued.lock().unwrap_or_else(PoisonError::into_inner).insert(self.id, sender);
        }
        cancelled
    }

    /// Renews the hold on the tokens while the work runs. The work always runs to its end: a call
    /// of the interpreter keeps its slot also when its proposal is cancelled.
    async fn while_held(
        &self,
        work: impl Future<Output = Result<Interpretation, DeskError>>,
    ) -> Result<Interpretation, DeskError> {
        let every = self.desk.parts.limits.confirm_within / 3;
        let mut work = pin!(work);
        loop {
            match timeout(every, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    if let Err(gone) = self.renew().await {
                        return work.await.and(Err(gone));
                    }
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), DeskError> {
        let expires = self.desk.parts.engine.renew(self.id.0).await;
        // In an outage the hold may expire too early. Then the confirmation fails.
        let expires = match expires {
            Ok(expires) => expires,
            Err(tidegate::SettleError::Gone) => return Err(gone()),
            Err(_) => {
                self.desk.outage("renew");
                return Ok(());
            }
        };
        self.desk.state().set_expiry(self.id, Some(expires));
        Ok(())
    }

    /// Records the interpretation; the governor confirms next.
    async fn accepted(mut self, interpretation: Interpretation) -> Result<Proposal, DeskError> {
        self.renew().await?;
        let note = Note::Interpreted { proposal: self.id, interpretation };
        let noted = {
            let mut state = self.desk.state();
            if state.get(self.id).is_none_or(|known| known.status != Status::Interpreting) {
                // Its governor has cancelled it in the meantime.
                self.is_over = true;
                return Err(gone());
            }
            let noted = self.desk.noted(&mut state, note);
            self.is_over = noted.is_ok();
            noted?
        };
        noted.await.map_err(|_| self.desk.outage("interpret"))?;
        self.desk.proposal(self.id)
    }

    /// Without an interpretation the tokens are released, and the ledger records the reason.
    async fn failed(mut self, failed: DeskError) -> DeskError {
        let DeskError::NotInterpreted { reason, call, .. } = &failed else { return failed };
        let end = match call {
            CallOutcome::NotReached => HoldEnd::Void,
            CallOutcome::Reached => HoldEnd::Reject,
        };
        let desk = self.desk.clone();
        let cancelled = self.cancel_hold((end, reason));
        match cancelled {
            Some(result) => match result.await {
                Ok(_) => failed,
                Err(_) => desk.outage("cancel"),
            },
            None => failed,
        }
    }

    fn cancel_hold(
        &mut self,
        (end, reason): (HoldEnd, &str),
    ) -> Option<tidegate::Answer<Result<u64, tidegate::SettleError>>> {
        self.is_over = true;
        let mut state = self.desk.state();
        let is_open = state.get(self.id).is_some_and(|known| known.status.is_pending());
        // If not, they are already released; in an outage they are released when they expire.
        if is_open { self.desk.cancel_hold(&mut state, self.id, (end, reason)).ok() } else { None }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        drop(self.desk.leave_queue(self.id));
        if !self.is_over {
            // It is applied and written in order. Waiting until it is durable is not needed.
            drop(self.cancel_hold((HoldEnd::Void, STOPPED)));
        }
    }
}

fn check(draft: &Draft) -> Result<(), DeskError> {
    if draft.tier == 0 {
        return Err(DeskError::invalid("`tier` must be at least 1."));
    }
    if draft.text.trim().is_empty() || draft.text.len() > MAX_TEXT_BYTES {
        return Err(DeskError::invalid(format!("`text` must have 1 to {MAX_TEXT_BYTES} bytes.")));
    }
    Ok(())
}

fn gone() -> DeskError {
    DeskError::Conflict(
        "The proposal was cancelled or expired before it was interpreted, and its tokens were \
         released."
            .into(),
    )
}

const STOPPED: &str = "the desk failed or stopped before it was interpreted";

const MAX_TEXT_BYTES: usize = 4_096;
