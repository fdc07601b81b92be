//! The sum of all ledger entries.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;
use tidegate::durable::{EntryKind, LedgerEntry};
use tidegate::{Timestamp, hold::HoldId};

use crate::note::{Note, NoteError};
use crate::proposal::{Proposal, ProposalId, Status};
use crate::tally::Tally;

/// The kind of ledger entry of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// Tokens were held.
    Reserve,
    /// Held tokens were spent; or released, if its note is a cancellation.
    Commit,
    /// Held tokens were released.
    Cancel,
    /// Held tokens were released by expiry.
    Expire,
    /// A governor received the first tokens.
    Enrol,
    /// A window was closed.
    WindowClosed,
    /// A standalone note.
    Note,
    /// An entry without effect here.
    Other,
}

/// One event of the desk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The kind of entry.
    pub kind: FactKind,
    /// The reservation that it concerns.
    pub hold: Option<HoldId>,
    /// The desk's note in it.
    pub note: Option<Note>,
}

impl Fact {
    /// The fact of a ledger entry.
    pub fn from_entry(entry: &LedgerEntry) -> Result<Self, NoteError> {
        let kind = match entry.what {
            EntryKind::Reserve => FactKind::Reserve,
            EntryKind::Commit => FactKind::Commit,
            EntryKind::Cancel => FactKind::Cancel,
            EntryKind::Expire => FactKind::Expire,
            EntryKind::Enrol => FactKind::Enrol,
            EntryKind::RoundClosed { .. } => FactKind::WindowClosed,
            EntryKind::Note => FactKind::Note,
            _ => FactKind::Other,
        };
        let note = match (&entry.note, &entry.cause) {
            (Some(text), _) => Some(Note::from_text(text)?),
            // The engine has undone a submission that could not be made durable.
            (None, Some(cause)) if kind == FactKind::Cancel => {
                Some(Note::Cancelled { reason: cause.to_string() })
            }
            _ => None,
        };
        Ok(Self { kind, hold: entry.hold, note })
    }

    /// The fact of a standalone note.
    pub(crate) const fn noted(note: Note) -> Self {
        Self { kind: FactKind::Note, hold: None, note: Some(note) }
    }

    /// The fact of an enrolment.
    pub(crate) const fn enrolled(note: Note) -> Self {
        Self { kind: FactKind::Enrol, hold: None, note: Some(note) }
    }

    /// The fact of an entry about a reservation.
    pub(crate) const fn held(kind: FactKind, hold: HoldId, note: Option<Note>) -> Self {
        Self { kind, hold: Some(hold), note }
    }
}

/// The state of the desk: the sum of facts, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// By number, in the order of submission.
    proposals: BTreeMap<u64, Proposal>,
    numbers: HashMap<ProposalId, u64>,
    last_number: u64,
    /// Proposals in the vote, in the order of confirmation.
    ballot: Vec<u64>,
    /// Final proposals, oldest first.
    finished: VecDeque<u64>,
    /// Governors with tokens, and the digest of the secret of those who were added later.
    enrolled: BTreeMap<String, Option<String>>,
    rounds: Rounds,
    /// A tally whose consequences are not all applied.
    unfinished: Option<Tally>,
    windows: VecDeque<ClosedWindow>,
    /// The number of the last closed window.
    last_closed: u64,
}

/// Rounds of the game.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rounds {
    /// The last round that was played.
    pub last: u64,
    /// The number of rounds played in this window.
    pub in_window: u64,
}

/// A closed governance window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedWindow {
    /// Its number, from 1.
    pub window: u64,
    /// The cap per governor.
    pub proposals_per_window: u64,
}

impl State {
    /// Adds one fact, in the order of the ledger.
    pub fn apply(&mut self, fact: Fact) {
        match (fact.kind, fact.hold, fact.note) {
            (FactKind::Enrol, _, Some(Note::Enrolled { governor, secret_sha256, .. })) => {
                self.enrolled.insert(governor, secret_sha256);
            }
            (FactKind::Reserve, Some(hold), Some(Note::Proposed { governor, draft })) => {
                let id = ProposalId(hold);
                self.last_number += 1;
                self.numbers.insert(id, self.last_number);
                let proposal = Proposal {
                    id,
                    governor,
                    draft,
                    status: Status::Interpreting,
                    reason: None,
                    interpretation: None,
                    votes: BTreeMap::new(),
                    submitted_in: self.last_closed + 1,
                    window: None,
                    expires: None,
                };
                self.proposals.insert(self.last_number, proposal);
            }
            // A commit with this note charges the place under the cap, and no tokens.
            (FactKind::Cancel, Some(hold), note)
            | (FactKind::Commit, Some(hold), note @ Some(Note::Cancelled { .. })) => {
                let reason = match note {
                    Some(Note::Cancelled { reason }) => Some(reason),
                    _ => None,
                };
                self.release(hold, Status::Cancelled, reason);
            }
            (FactKind::Commit, Some(hold), _) => {
                if let Some(number) = self.set_status(ProposalId(hold), Status::Voting) {
                    self.ballot.push(number);
                }
            }
            (FactKind::Expire, Some(hold), _) => self.release(hold, Status::Expired, None),
            (FactKind::Note, _, Some(note)) => self.apply_note(note),
            (FactKind::WindowClosed, _, note) => {
                self.unfinished = None;
                if let Some(Note::WindowClosed { window, proposals_per_window, .. }) = note {
                    self.last_closed = window;
                    self.windows.push_back(ClosedWindow { window, proposals_per_window });
                    self.windows.drain(..self.windows.len().saturating_sub(MOST_KEPT));
                }
            }
            _ => {}
        }
    }

    fn apply_note(&mut self, note: Note) {
        match note {
            Note::Interpreted { proposal, interpretation } => {
                if let Some(known) = self.get_mut(proposal)
                    && known.status == Status::Interpreting
                {
                    known.status = Status::Interpreted;
                    known.interpretation = Some(interpretation);
                }
            }
            Note::Voted { proposal, governor, vote } => {
                if let Some(known) = self.get_mut(proposal) {
                    known.votes.insert(governor, vote);
                }
            }
            Note::RoundPlayed { round } => {
                self.rounds = Rounds { last: round, in_window: self.rounds.in_window + 1 };
            }
            Note::Tallied(tally) => {
                for counted in &tally.proposals {
                    let status = if counted.passed { Status::Passed } else { Status::Failed };
                    if let Some(known) = self.get_mut(counted.proposal) {
                        known.window = Some(tally.window);
                    }
                    self.finish(counted.proposal, status);
                }
                self.rounds.in_window = 0;
                self.unfinished = Some(tally);
            }
            _ => {}
        }
    }

    /// Ends a reservation without spending it.
    fn release(&mut self, hold: HoldId, status: Status, reason: Option<String>) {
        if let Some(known) = self.get_mut(ProposalId(hold)) {
            known.reason = reason;
            self.finish(ProposalId(hold), status);
        }
    }

    fn set_status(&mut self, id: ProposalId, status: Status) -> Option<u64> {
        let number = *self.numbers.get(&id)?;
        self.proposals.get_mut(&number)?.status = status;
        Some(number)
    }

    /// Ends a proposal. Only the latest of these stay in memory.
    fn finish(&mut self, id: ProposalId, status: Status) {
        let Some(number) = self.set_status(id, status) else { return };
        self.ballot.retain(|known| *known != number);
        self.finished.push_back(number);
        if self.finished.len() > MOST_KEPT
            && let Some(oldest) = self.finished.pop_front()
            && let Some(forgotten) = self.proposals.remove(&oldest)
        {
            self.numbers.remove(&forgotten.id);
        }
    }

    fn get_mut(&mut self, id: ProposalId) -> Option<&mut Proposal> {
        self.proposals.get_mut(self.numbers.get(&id)?)
    }

    /// A proposal.
    #[must_use]
    pub fn get(&self, id: ProposalId) -> Option<&Proposal> {
        self.proposals.get(self.numbers.get(&id)?)
    }

    /// All open proposals and the latest final ones, in the order of submission.
    pub fn proposals(&self) -> impl DoubleEndedIterator<Item = &Proposal> {
        self.proposals.values()
    }

    /// The proposals in the vote, in the order of confirmation.
    pub fn ballot(&self) -> impl Iterator<Item = &Proposal> {
        self.ballot.iter().filter_map(|number| self.proposals.get(number))
    }

    /// Whether a governor has received the first tokens.
    #[must_use]
    pub fn is_enrolled(&self, governor: &str) -> bool {
        self.enrolled.contains_key(governor)
    }

    /// Governors who were added later, with the digests of their secrets.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&str, &str)> {
        self.enrolled.iter().filter_map(|(name, secret)| Some((&**name, secret.as_deref()?)))
    }

    /// Rounds of the game.
    #[must_use]
    pub const fn rounds(&self) -> Rounds {
        self.rounds
    }

    /// A tally whose consequences are not all applied.
    #[must_use]
    pub const fn unfinished(&self) -> Option<&Tally> {
        self.unfinished.as_ref()
    }

    /// The latest closed windows.
    pub fn windows(&self) -> impl Iterator<Item = &ClosedWindow> {
        self.windows.iter()
    }

    /// Sets the window in which a proposal was submitted.
    pub(crate) fn set_submitted_in(&mut self, id: ProposalId, window: u64) {
        if let Some(known) = self.get_mut(id) {
            known.submitted_in = window;
        }
    }

    /// Sets when the tokens of a proposal expire.
    pub(crate) fn set_expiry(&mut self, id: ProposalId, expires: Option<Timestamp>) {
        if let Some(known) = self.get_mut(id) {
            known.expires = expires;
        }
    }

    /// Proposals whose tokens have expired by now.
    pub(crate) fn overdue(&self, now: Timestamp) -> Vec<HoldId> {
        let is_overdue = |it: &&Proposal| {
            it.status.is_pending() && it.expires.is_some_and(|expires| expires <= now)
        };
        self.proposals.values().filter(is_overdue).map(|it| it.id.0).collect()
    }
}

/// The number of final proposals and closed windows in memory.
const MOST_KEPT: usize = 10_000;

#[cfg(test)]
mod tests;
