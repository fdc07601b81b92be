//! The desk: every operation of the game's governors, over one engine.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tidegate::durable::{Filter, LedgerEntry, OpenError};
use tidegate::{Answer, Report, SettleError, StoreEngine, clock::Clock, hold::Commit};
use tidegate_listen::Warnings;
use tokio::sync::{oneshot, watch};

use crate::governors::Governors;
use crate::interpreter::Interpreter;
use crate::limits::{DOMAIN, Limits, denial};
use crate::note::Note;
use crate::problem::DeskError;
use crate::proposal::{Proposal, ProposalId, Status, Vote};
use crate::settings::Settings;
use crate::state::{Fact, FactKind, State};

mod confirming;
mod enrolling;
mod proposing;
mod start;
mod tallying;
mod views;

pub use enrolling::{Enrolled, NewGovernor};
pub use start::StartError;
pub use views::{Balance, Window};

/// The proposal desk. Clones are handles of the same desk.
#[derive(Clone)]
pub struct Desk {
    parts: Arc<Parts>,
}

struct Parts {
    engine: StoreEngine,
    clock: SharedClock,
    governors: RwLock<Governors>,
    limits: Limits,
    /// The number of rounds of the game in a window.
    interval: u64,
    interpreter: Interpreter,
    state: Mutex<State>,
    /// Proposals whose call of the interpreter has not begun. Dropping the sender ends the wait.
    queued: Mutex<HashMap<ProposalId, oneshot::Sender<()>>>,
    /// Every proposal that is being interpreted holds a receiver.
    interpreting: watch::Sender<()>,
    /// Held while a window is closed.
    closing: Mutex<()>,
    outages: Warnings,
}

type SharedClock = Arc<dyn Clock + Send + Sync>;

/// The operations of governors.
impl Desk {
    /// Cancels a proposal before it is confirmed: its tokens are released.
    ///
    /// One that is queued leaves the queue, and leaves no cooldown. A call of the interpreter that
    /// has begun goes on to its end, in its slot, and so does the cooldown.
    pub async fn cancel(&self, governor: &str, id: ProposalId) -> Result<Proposal, DeskError> {
        let result = {
            let mut state = self.state();
            let known = own(&state, governor, id)?;
            if !known.status.is_pending() {
                return Err(not_now(known, "cancelled"));
            }
            // Whether the call has begun is decided here: it begins with leaving the queue.
            let end = match self.leave_queue(id) {
                Some(_) => HoldEnd::Void,
                None => HoldEnd::Cancel,
            };
            self.cancel_hold(&mut state, id, (end, BY_GOVERNOR))?
        };
        result.await.map_err(|_| self.outage("cancel"))?;
        self.proposal(id)
    }

    /// Votes, or changes the vote: the last vote before the tally counts.
    pub async fn vote(
        &self,
        governor: &str,
        id: ProposalId,
        vote: Vote,
    ) -> Result<Proposal, DeskError> {
        let note = Note::Voted { proposal: id, governor: governor.to_owned(), vote };
        let result = {
            let mut state = self.state();
            let known = state.get(id).ok_or(DeskError::NoSuchProposal)?;
            if known.status != Status::Voting {
                return Err(not_now(known, "voted on"));
            }
            if known.votes.get(governor) == Some(&vote) {
                return Ok(known.clone());
            }
            self.noted(&mut state, note)?
        };
        result.await.map_err(|_| self.outage("vote"))?;
        self.proposal(id)
    }
}

/// The shared steps of these operations.
impl Desk {
    /// The current state, including tokens released by expiry.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.parts.state.lock().unwrap_or_else(PoisonError::into_inner);
        for hold in state.overdue(self.parts.clock.now()) {
            state.apply(Fact::held(FactKind::Expire, hold, None));
        }
        state
    }

    /// Takes a proposal out of the queue, if it is in it. Its wait ends when the result is dropped.
    fn leave_queue(&self, id: ProposalId) -> Option<oneshot::Sender<()>> {
        self.parts.queued.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    /// The number of the open window. It changes only while the state is locked.
    fn window_number(&self) -> u64 {
        self.parts.engine.rounds(DOMAIN) + 1
    }

    /// Writes a note and applies it to the state. The result resolves when it is durable.
    fn noted(
        &self,
        state: &mut State,
        note: Note,
    ) -> Result<Answer<Result<(), tidegate::Outage>>, DeskError> {
        let result = self.parts.engine.note(DOMAIN, &note.to_text());
        if let Answer::Ready(Err(_)) = result {
            return Err(self.outage("note"));
        }
        state.apply(Fact::noted(note));
        Ok(result)
    }

    /// Cancels a proposal and releases its tokens.
    fn cancel_hold(
        &self,
        state: &mut State,
        id: ProposalId,
        (end, reason): (HoldEnd, &str),
    ) -> Result<Answer<Result<u64, SettleError>>, DeskError> {
        let note = Note::Cancelled { reason: reason.to_owned() };
        let (engine, text) = (&self.parts.engine, note.to_text());
        let (kind, result) = match end {
            HoldEnd::Cancel => (FactKind::Cancel, engine.cancel(id.0, &text)),
            HoldEnd::Void => (FactKind::Cancel, engine.void(id.0, &text)),
            HoldEnd::Reject => {
                let rejected = engine.commit(id.0, Commit::actual(0).note(&text));
                (FactKind::Commit, rejected.map(|done| done.map(|it| it.charged)))
            }
        };
        self.settle(state, &result, Fact::held(kind, id.0, Some(note)))?;
        Ok(result)
    }

    /// Applies the settlement of a reservation to the state, if it succeeded. It takes effect when
    /// the engine returns, and is durable when the result resolves.
    fn settle<T>(
        &self,
        state: &mut State,
        result: &Answer<Result<T, SettleError>>,
        fact: Fact,
    ) -> Result<(), DeskError> {
        match (result, fact.hold) {
            (Answer::Ready(Err(SettleError::Committed { .. } | SettleError::Cancelled)), _) => {
                Err(DeskError::Conflict("The proposal was settled before.".into()))
            }
            (Answer::Ready(Err(SettleError::Gone)), Some(hold)) => {
                state.apply(Fact::held(FactKind::Expire, hold, None));
                Err(DeskError::Conflict(
                    "The proposal has expired and its tokens were released.".into(),
                ))
            }
            (Answer::Ready(Err(_)), _) => Err(self.outage("settle")),
            _ => {
                state.apply(fact);
                Ok(())
            }
        }
    }

    /// The error of a denied request: the first of the rules that denied it.
    fn denied(&self, report: &Report) -> DeskError {
        denial(report).unwrap_or_else(|| self.outage("decide"))
    }

    /// Logs that the store failed an operation, and returns the error of it.
    fn outage(&self, operation: &str) -> DeskError {
        if let Some(left_out) = self.parts.outages.next() {
            let store = self.parts.engine.file_store();
            let error = store.and_then(|store| store.failure().or_else(|| store.last_failure()));
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            tracing::error!(%error, operation, left_out, "store unavailable");
        }
        DeskError::Outage
    }

    fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<LedgerEntry, OpenError>> + use<>, StartError> {
        let ledger = self.parts.engine.ledger().map_err(|_| StartError::Outage)?;
        Ok(ledger.entries(&Filter::new().domain(DOMAIN))?)
    }
}

/// How the reservation of a proposal ends that is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldEnd {
    /// It was a submission: its cooldown goes on.
    Cancel,
    /// It came to nothing: it leaves no cooldown.
    Void,
    /// The interpreter has answered, but not with an interpretation of it: its cooldown goes on, and
    /// its place under the cap stays taken.
    Reject,
}

/// A proposal of this governor.
fn own<'s>(state: &'s State, governor: &str, id: ProposalId) -> Result<&'s Proposal, DeskError> {
    let known = state.get(id).ok_or(DeskError::NoSuchProposal)?;
    if known.governor == governor {
        Ok(known)
    } else {
        Err(DeskError::Forbidden("The proposal belongs to another governor."))
    }
}

fn not_now(known: &Proposal, wanted: &str) -> DeskError {
    let is = match known.status {
        Status::Interpreting => "is still being interpreted",
        Status::Interpreted => "waits for its governor's confirmation",
        Status::Voting => "was confirmed and is being voted on",
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

/// The reason of a cancellation by the governor.
const BY_GOVERNOR: &str = "cancelled by its governor";
