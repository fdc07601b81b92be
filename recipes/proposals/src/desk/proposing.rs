//! From a draft to a proposal that its governor can confirm.

use std::pin::pin;

use tidegate::{CheckError, Request, WaitError};
use tokio::time::timeout;

use super::{Desk, Parts};
use crate::limits::{ACT, DOMAIN, GOVERNOR, INTERPRETER, PROPOSE, TIER, denial};
use crate::note::Note;
use crate::problem::DeskError;
use crate::proposal::{Draft, Interpretation, Proposal, ProposalId, Status};
use crate::state::{Fact, FactKind};

impl Desk {
    /// A governor hands in a proposal: its tokens are set aside, and it is interpreted, as soon as
    /// it is its turn.
    ///
    /// Whoever drops this gives up: the tokens come back, and the next in line moves up.
    pub async fn propose(&self, governor: &str, draft: Draft) -> Result<Proposal, DeskError> {
        check(&draft)?;
        let (desk, governor) = (self.clone(), governor.to_owned());
        // In a task of its own, so that nobody can stop between the reservation and its guard.
        let submitting = tokio::spawn(async move { desk.submitted(governor, draft).await });
        let submitted = submitting.await.unwrap_or(Err(DeskError::Outage))?;
        match submitted.while_kept(submitted.interpreted()).await {
            Ok(interpretation) => submitted.accepted(interpretation).await,
            Err(refused) => Err(submitted.refused(refused).await),
        }
    }

    /// Asks all limits, in one decision.
    async fn submitted(self, governor: String, draft: Draft) -> Result<Submitted, DeskError> {
        let tier = draft.tier.to_string();
        let note = Note::Proposed { governor: governor.clone(), draft: draft.clone() };
        let text = note.to_text();
        let attributes = [(GOVERNOR, governor.as_str()), (TIER, &tier), (ACT, PROPOSE)];
        let request = Request::new(DOMAIN, &attributes).note(&text);
        let report = self.parts.engine.reserve(&request).await.map_err(|error| match error {
            CheckError::CostNotCovered { .. } => DeskError::invalid(error.to_string()),
            _ => DeskError::Outage,
        })?;
        let Some(hold) = report.hold().filter(|_| report.is_allowed()) else {
            return Err(denial(&report));
        };
        let id = ProposalId(hold);
        let mut state = self.state();
        state.apply(Fact::held(FactKind::Reserve, hold, Some(note)));
        state.set_expiry(id, report.expires());
        drop(state);
        Ok(Submitted { desk: self, id, governor, draft, is_over: false })
    }
}

/// A proposal that is being interpreted. Dropping it gives it up.
struct Submitted {
    desk: Desk,
    id: ProposalId,
    governor: String,
    draft: Draft,
    /// Whether somebody has decided what becomes of it.
    is_over: bool,
}

impl Submitted {
    /// Waits in line for a place at the interpreter, and asks it.
    async fn interpreted(&self) -> Result<Interpretation, DeskError> {
        let Parts { engine, interpreter, .. } = &*self.desk.parts;
        let place = engine.acquire(&Request::new(INTERPRETER, &[]), None).await;
        let _place = place.map_err(|error| {
            let reason = match error {
                WaitError::QueueFull => "too many proposals wait for the interpreter",
                _ => "the desk stops",
            };
            DeskError::NotInterpreted { status: 503, reason: reason.into() }
        })?;
        interpreter.interpret((self.id, &self.governor), &self.draft).await
    }

    /// Keeps tokens set aside for as long as something takes.
    async fn while_kept(
        &self,
        work: impl Future<Output = Result<Interpretation, DeskError>>,
    ) -> Result<Interpretation, DeskError> {
        let every = self.desk.parts.limits.confirm_within / 3;
        let mut work = pin!(work);
        loop {
            match timeout(every, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.renew().await?,
            }
        }
    }

    async fn renew(&self) -> Result<(), DeskError> {
        let expires = self.desk.parts.engine.renew(self.id.0).await;
        // In an outage they may come back too early. Then whoever confirms is told so.
        let expires = match expires {
            Ok(expires) => expires,
            Err(tidegate::SettleError::Gone) => return Err(gone()),
            Err(_) => return Ok(()),
        };
        self.desk.state().set_expiry(self.id, Some(expires));
        Ok(())
    }

    /// The interpreter has answered: now it is the governor's turn.
    async fn accepted(mut self, interpretation: Interpretation) -> Result<Proposal, DeskError> {
        self.renew().await?;
        let note = Note::Interpreted { proposal: self.id, interpretation };
        let noted = {
            let mut state = self.desk.state();
            if state.get(self.id).is_none_or(|known| known.status != Status::Interpreting) {
                // Its governor has cancelled it meanwhile.
                self.is_over = true;
                return Err(gone());
            }
            let noted = self.desk.noted(&mut state, note);
            self.is_over = noted.is_ok();
            noted?
        };
        noted.await.map_err(|_| DeskError::Outage)?;
        self.desk.proposal(self.id)
    }

    /// There is no interpretation: the tokens come back, and the ledger says why.
    async fn refused(mut self, refused: DeskError) -> DeskError {
        let DeskError::NotInterpreted { reason, .. } = &refused else { return refused };
        let given_up = self.give_up(reason);
        match given_up {
            Some(answer) => match answer.await {
                Ok(_) => refused,
                Err(_) => DeskError::Outage,
            },
            None => refused,
        }
    }

    fn give_up(
        &mut self,
        reason: &str,
    ) -> Option<tidegate::NowOrLater<'_, Result<u64, tidegate::SettleError>>> {
        self.is_over = true;
        let mut state = self.desk.state();
        let is_open = state.get(self.id).is_some_and(|known| known.status.is_pending());
        // If it is not, somebody has given them back; in an outage they come back when they expire.
        if is_open { self.desk.give_up(&mut state, self.id, reason).ok() } else { None }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if !self.is_over {
            // It is done, and written down in its order. Nobody is there who waits until it is
            // safe.
            drop(self.give_up(GAVE_UP));
        }
    }
}

fn check(draft: &Draft) -> Result<(), DeskError> {
    if draft.tier == 0 {
        return Err(DeskError::invalid("`tier` is 1 or more."));
    }
    if draft.text.trim().is_empty() || draft.text.len() > MAX_TEXT_BYTES {
        return Err(DeskError::invalid(format!("`text` has 1 to {MAX_TEXT_BYTES} bytes.")));
    }
    Ok(())
}

fn gone() -> DeskError {
    DeskError::Conflict(
        "The proposal was cancelled or has expired before it was interpreted, and its tokens are \
         back."
            .into(),
    )
}

const GAVE_UP: &str = "its governor did not wait for the interpreter";

const MAX_TEXT_BYTES: usize = 4_096;
