//! From an interpretation to the vote.

use tidegate::{
    CheckError, Request,
    hold::{Commit, CommitReport},
};

use super::{Desk, not_now, own};
use crate::limits::{ACT, CONFIRM, DOMAIN, GOVERNOR};
use crate::note::Note;
use crate::problem::DeskError;
use crate::proposal::{Proposal, ProposalId, Status};
use crate::state::{Fact, FactKind, State};

impl Desk {
    /// Confirms the interpretation of a proposal: its tokens are spent, and the vote opens.
    ///
    /// A proposal of an earlier window takes a place under the cap of the open one, and is denied
    /// if there is none: no window confirms more than its cap.
    pub async fn confirm(&self, governor: &str, id: ProposalId) -> Result<Proposal, DeskError> {
        loop {
            let window = self.window_number();
            let submitted_in = confirmable(&self.state(), governor, id)?.submitted_in;
            let is_earlier = submitted_in < window;
            if is_earlier {
                self.take_place(governor, (id, window)).await?;
            }
            let committed = {
                let mut state = self.state();
                if self.window_number() != window {
                    None
                } else {
                    Some(self.commit_hold(&mut state, governor, id))
                }
            };
            match committed {
                Some(Ok(result)) => {
                    result.await.map_err(|_| self.outage("confirm"))?;
                    return self.proposal(id);
                }
                // It may have happened.
                Some(Err(DeskError::Outage)) => return Err(DeskError::Outage),
                Some(Err(error)) => {
                    // Another request may have confirmed it, in the same place.
                    let status = self.state().get(id).map(|known| known.status);
                    if is_earlier && matches!(status, Some(Status::Cancelled | Status::Expired)) {
                        self.return_place(governor, (id, window)).await;
                    }
                    return Err(error);
                }
                // The window has closed meanwhile, and what it counted is over.
                None => {}
            }
        }
    }

    fn commit_hold(
        &self,
        state: &mut State,
        governor: &str,
        id: ProposalId,
    ) -> Result<tidegate::Answer<Result<CommitReport, tidegate::SettleError>>, DeskError> {
        confirmable(state, governor, id)?;
        let note = Note::Confirmed;
        let result = self.parts.engine.commit(id.0, Commit::held().note(&note.to_text()));
        self.settle(state, &result, Fact::held(FactKind::Commit, id.0, Some(note)))?;
        Ok(result)
    }

    /// Charges a place under the cap of the open window. The same again, also after a crash, is
    /// charged once.
    async fn take_place(
        &self,
        governor: &str,
        (id, window): (ProposalId, u64),
    ) -> Result<(), DeskError> {
        let attributes = [(GOVERNOR, governor), (ACT, CONFIRM)];
        let key = format!("confirm {id} in {window}");
        let request = Request::new(DOMAIN, &attributes).idempotency_key(&key);
        let checked = self.parts.engine.check(&request).await;
        let report = checked.map_err(|_: CheckError| self.outage("confirm"))?;
        if report.is_allowed() { Ok(()) } else { Err(self.denied(&report)) }
    }

    /// Gives the place back, because the proposal was not confirmed and never will be.
    async fn return_place(&self, governor: &str, (id, window): (ProposalId, u64)) {
        let attributes = [(GOVERNOR, governor), (ACT, CONFIRM)];
        let key = format!("not confirmed {id} in {window}");
        let request = Request::new(DOMAIN, &attributes).idempotency_key(&key);
        if let Err(error) = self.parts.engine.refund(&request).await {
            tracing::warn!("a place under the cap of {governor} is not given back: {error}");
        }
    }
}

/// A proposal that its governor may confirm now.
fn confirmable<'s>(
    state: &'s State,
    governor: &str,
    id: ProposalId,
) -> Result<&'s Proposal, DeskError> {
    let known = own(state, governor, id)?;
    if known.status == Status::Interpreted { Ok(known) } else { Err(not_now(known, "confirmed")) }
}
