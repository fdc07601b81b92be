//! The desk: every act of the game's governors, over one engine.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::durable::{FileStore, Filter, LedgerEntry, OpenError};
use tidegate::{Clock, Engine, NowOrLater, SettleError};

use crate::governors::Governors;
use crate::interpreter::Interpreter;
use crate::limits::{DOMAIN, Limits};
use crate::note::Note;
use crate::problem::DeskError;
use crate::proposal::{Proposal, ProposalId, Status, Vote};
use crate::settings::Settings;
use crate::state::{Fact, FactKind, State};

mod proposing;
mod start;
mod tallying;
mod views;

pub use start::StartError;
pub use views::{Balance, Window};

/// The proposal desk. Clones are handles of the same one.
#[derive(Clone)]
pub struct Desk {
    parts: Arc<Parts>,
}

struct Parts {
    engine: Engine<FileStore, SharedClock>,
    clock: SharedClock,
    governors: Governors,
    limits: Limits,
    /// How many rounds of the game a window spans.
    interval: u64,
    interpreter: Interpreter,
    state: Mutex<State>,
    /// Held by whoever closes a window.
    closing: Mutex<()>,
}

type SharedClock = Arc<dyn Clock + Send + Sync>;

/// What governors do with their proposals, and all with those of others.
impl Desk {
    /// A governor agrees with how a proposal was understood: its tokens are spent, and all may
    /// vote.
    pub async fn confirm(&self, governor: &str, id: ProposalId) -> Result<Proposal, DeskError> {
        let answer = {
            let mut state = self.state();
            let known = own(&state, governor, id)?;
            if known.status != Status::Interpreted {
                return Err(not_now(known, "confirmed"));
            }
            let note = Note::Confirmed;
            let answer = self.parts.engine.commit_noting(id.0, None, &note.to_text());
            settle(&mut state, &answer, Fact::held(FactKind::Commit, id.0, Some(note)))?;
            answer
        };
        answer.await.map_err(|_| DeskError::Outage)?;
        self.proposal(id)
    }

    /// A governor gives a proposal up before it was confirmed: its tokens come back.
    pub async fn cancel(&self, governor: &str, id: ProposalId) -> Result<Proposal, DeskError> {
        let answer = {
            let mut state = self.state();
            let known = own(&state, governor, id)?;
            if !known.status.is_pending() {
                return Err(not_now(known, "cancelled"));
            }
            self.give_up(&mut state, id, BY_GOVERNOR)?
        };
        answer.await.map_err(|_| DeskError::Outage)?;
        self.proposal(id)
    }

    /// A governor votes, or votes anew: the last vote before the tally counts.
    pub async fn vote(
        &self,
        governor: &str,
        id: ProposalId,
        vote: Vote,
    ) -> Result<Proposal, DeskError> {
        let note = Note::Voted { proposal: id, governor: governor.to_owned(), vote };
        let answer = {
            let mut state = self.state();
            let known = state.get(id).ok_or(DeskError::NoSuchProposal)?;
            if known.status != Status::Voting {
                return Err(not_now(known, "voted about"));
            }
            if known.votes.get(governor) == Some(&vote) {
                return Ok(known.clone());
            }
            self.noted(&mut state, note)?
        };
        answer.await.map_err(|_| DeskError::Outage)?;
        self.proposal(id)
    }
}

/// What everything above is made of.
impl Desk {
    /// What is known, now. Tokens that have come back by themselves are.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.parts.state.lock().unwrap_or_else(PoisonError::into_inner);
        for hold in state.overdue(self.parts.clock.now()) {
            state.apply(Fact::held(FactKind::Expire, hold, None));
        }
        state
    }

    fn window_number(&self) -> u64 {
        self.parts.engine.rounds(DOMAIN) + 1
    }

    /// Writes a note, and knows it from then on. The answer tells when it is safe.
    fn noted<'a>(
        &'a self,
        state: &mut State,
        note: Note,
    ) -> Result<NowOrLater<'a, Result<(), tidegate::Outage>>, DeskError> {
        let answer = self.parts.engine.note(DOMAIN, &note.to_text());
        if let NowOrLater::Now(Err(_)) = answer {
            return Err(DeskError::Outage);
        }
        state.apply(Fact::noted(note));
        Ok(answer)
    }

    /// Gives the tokens of a proposal back.
    fn give_up<'a>(
        &'a self,
        state: &mut State,
        id: ProposalId,
        reason: &str,
    ) -> Result<NowOrLater<'a, Result<u64, SettleError>>, DeskError> {
        let note = Note::Cancelled { reason: reason.to_owned() };
        let answer = self.parts.engine.cancel_noting(id.0, &note.to_text());
        settle(state, &answer, Fact::held(FactKind::Cancel, id.0, Some(note)))?;
        Ok(answer)
    }

    fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<LedgerEntry, OpenError>> + use<>, StartError> {
        let ledger = self.parts.engine.ledger().map_err(|_| StartError::Outage)?;
        Ok(ledger.entries(&Filter::new().domain(DOMAIN))?)
    }
}

/// Knows what became of a reservation, if anything did. It is done when the engine answers, and
/// safe when the answer is there.
fn settle(
    state: &mut State,
    answer: &NowOrLater<'_, Result<u64, SettleError>>,
    fact: Fact,
) -> Result<(), DeskError> {
    match (answer, fact.hold) {
        (NowOrLater::Now(Err(SettleError::Gone)), Some(hold)) => {
            state.apply(Fact::held(FactKind::Expire, hold, None));
            Err(DeskError::Conflict("The proposal has expired, and its tokens are back.".into()))
        }
        (NowOrLater::Now(Err(_)), _) => Err(DeskError::Outage),
        _ => {
            state.apply(fact);
            Ok(())
        }
    }
}

/// A proposal of this governor's own.
fn own<'s>(state: &'s State, governor: &str, id: ProposalId) -> Result<&'s Proposal, DeskError> {
    let known = state.get(id).ok_or(DeskError::NoSuchProposal)?;
    if known.governor == governor {
        Ok(known)
    } else {
        Err(DeskError::Forbidden("The proposal is somebody else's."))
    }
}

fn not_now(known: &Proposal, wanted: &str) -> DeskError {
    let is = match known.status {
        Status::Interpreting => "is still being interpreted",
        Status::Interpreted => "waits for its governor to confirm it",
        Status::Voting => "was confirmed, and is voted about",
        Status::Passed => "has passed",
        Status::Failed => "has failed",
        Status::Cancelled => "was cancelled",
        Status::Expired => "has expired",
    };
    DeskError::Conflict(format!("The proposal cannot be {wanted}: it {is}."))
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("engine", &self.parts.engine).finish_non_exhaustive()
    }
}

/// Why a proposal was given up.
const BY_GOVERNOR: &str = "its governor cancelled it";
