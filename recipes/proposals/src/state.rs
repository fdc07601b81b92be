//! What everything that was written down adds up to.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;
use tidegate::durable::{EntryKind, LedgerEntry};
use tidegate::{HoldId, Timestamp};

use crate::note::{Note, NoteError};
use crate::proposal::{Proposal, ProposalId, Status};
use crate::tally::Tally;

/// What kind of entry a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// Tokens were set aside.
    Reserve,
    /// They were spent.
    Commit,
    /// They were given back.
    Cancel,
    /// They were given back because nobody spent them in time.
    Expire,
    /// A window was closed.
    WindowClosed,
    /// Something was noted.
    Note,
    /// Something that changes nothing here.
    Other,
}

/// One thing that happened at the desk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What kind of entry it is.
    pub deed: FactKind,
    /// The reservation that it is about.
    pub hold: Option<HoldId>,
    /// What the desk has written down with it.
    pub note: Option<Note>,
}

impl Fact {
    /// What an entry of the ledger says.
    pub fn from_entry(entry: &LedgerEntry) -> Result<Self, NoteError> {
        let deed = match entry.what {
            EntryKind::Reserve => FactKind::Reserve,
            EntryKind::Commit => FactKind::Commit,
            EntryKind::Cancel => FactKind::Cancel,
            EntryKind::Expire => FactKind::Expire,
            EntryKind::RoundClosed { .. } => FactKind::WindowClosed,
            EntryKind::Note => FactKind::Note,
            _ => FactKind::Other,
        };
        let note = entry.note.as_deref().map(Note::from_text).transpose()?;
        Ok(Self { deed, hold: entry.hold, note })
    }

    /// Something that is only noted.
    pub(crate) const fn noted(note: Note) -> Self {
        Self { deed: FactKind::Note, hold: None, note: Some(note) }
    }

    /// Something that became of a reservation.
    pub(crate) const fn held(deed: FactKind, hold: HoldId, note: Option<Note>) -> Self {
        Self { deed, hold: Some(hold), note }
    }
}

/// Everything that the desk knows: a sum of facts, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// By number, in the order in which they were handed in.
    proposals: BTreeMap<u64, Proposal>,
    numbers: HashMap<ProposalId, u64>,
    last_number: u64,
    /// Those that are voted about, in the order in which they were confirmed.
    ballot: Vec<u64>,
    /// Those that are over, oldest first.
    finished: VecDeque<u64>,
    /// Governors who have tokens, and the reservation that enrolled them while it is open.
    enrolled: BTreeMap<String, Option<HoldId>>,
    rounds: Rounds,
    /// Votes that were counted, while not everything is done that follows.
    unfinished: Option<Tally>,
    windows: VecDeque<ClosedWindow>,
}

/// Rounds of the game.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rounds {
    /// The last one that was played.
    pub last: u64,
    /// How many were played in this window.
    pub in_window: u64,
}

/// A governance window that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedWindow {
    /// Its number, from 1.
    pub window: u64,
    /// How many proposals it allowed each governor.
    pub proposals_per_window: u64,
}

impl State {
    /// Adds one fact. Facts have to come in the order of the ledger.
    pub fn apply(&mut self, fact: Fact) {
        match (fact.deed, fact.hold, fact.note) {
            (FactKind::Reserve, Some(hold), Some(Note::Enrolled { governor, .. })) => {
                self.enrolled.insert(governor, Some(hold));
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
                    window: None,
                    expires: None,
                };
                self.proposals.insert(self.last_number, proposal);
            }
            (FactKind::Commit, Some(hold), _) => {
                if let Some(number) = self.set_status(ProposalId(hold), Status::Voting) {
                    self.ballot.push(number);
                }
            }
            (FactKind::Cancel, Some(hold), note) => {
                let reason = match note {
                    Some(Note::Cancelled { reason }) => Some(reason),
                    _ => None,
                };
                self.give_back(hold, Status::Cancelled, reason);
            }
            (FactKind::Expire, Some(hold), _) => self.give_back(hold, Status::Expired, None),
            (FactKind::Note, _, Some(note)) => self.apply_note(note),
            (FactKind::WindowClosed, _, note) => {
                self.unfinished = None;
                if let Some(Note::WindowClosed { window, proposals_per_window, .. }) = note {
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

    /// A reservation is over, without being spent.
    fn give_back(&mut self, hold: HoldId, status: Status, reason: Option<String>) {
        if let Some(known) = self.enrolled.values_mut().find(|known| **known == Some(hold)) {
            *known = None;
        } else if let Some(known) = self.get_mut(ProposalId(hold)) {
            known.reason = reason;
            self.finish(ProposalId(hold), status);
        }
    }

    fn set_status(&mut self, id: ProposalId, status: Status) -> Option<u64> {
        let number = *self.numbers.get(&id)?;
        self.proposals.get_mut(&number)?.status = status;
        Some(number)
    }

    /// A proposal is over. The oldest of those are only in the ledger.
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

    /// All proposals that are open, and the latest of those that are not, in the order in which
    /// they were handed in.
    pub fn proposals(&self) -> impl DoubleEndedIterator<Item = &Proposal> {
        self.proposals.values()
    }

    /// The proposals that are voted about, in the order in which they were confirmed.
    pub fn ballot(&self) -> impl Iterator<Item = &Proposal> {
        self.ballot.iter().filter_map(|number| self.proposals.get(number))
    }

    /// Whether a governor has got the first tokens.
    #[must_use]
    pub fn is_enrolled(&self, governor: &str) -> bool {
        self.enrolled.contains_key(governor)
    }

    /// Reservations that enrolled somebody and are still open.
    pub(crate) fn open_enrolments(&self) -> Vec<HoldId> {
        self.enrolled.values().copied().flatten().collect()
    }

    /// Rounds of the game.
    #[must_use]
    pub const fn rounds(&self) -> Rounds {
        self.rounds
    }

    /// Votes that were counted, while not everything is done that follows.
    #[must_use]
    pub const fn unfinished(&self) -> Option<&Tally> {
        self.unfinished.as_ref()
    }

    /// The latest windows that are over.
    pub fn windows(&self) -> impl Iterator<Item = &ClosedWindow> {
        self.windows.iter()
    }

    /// Says when tokens of a proposal come back by themselves.
    pub(crate) fn set_expiry(&mut self, id: ProposalId, expires: Option<Timestamp>) {
        if let Some(known) = self.get_mut(id) {
            known.expires = expires;
        }
    }

    /// Proposals whose tokens have come back by themselves by now.
    pub(crate) fn overdue(&self, now: Timestamp) -> Vec<HoldId> {
        let is_overdue = |it: &&Proposal| {
            it.status.is_pending() && it.expires.is_some_and(|expires| expires <= now)
        };
        self.proposals.values().filter(is_overdue).map(|it| it.id.0).collect()
    }
}

/// How many proposals and windows that are over are kept in memory.
const MOST_KEPT: usize = 10_000;

#[cfg(test)]
mod tests;
