use std::fmt;

use serde::{Deserialize, Serialize};

use crate::proposal::{Draft, Interpretation, ProposalId, Vote};
use crate::tally::Tally;

/// What the desk writes into the ledger, each as the note of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Note {
    /// With a reservation: a governor has got the first tokens.
    Enrolled {
        /// Who.
        governor: String,
        /// How many tokens the first window gives.
        tokens: u64,
    },
    /// With a reservation: a proposal was handed in.
    Proposed {
        /// By whom.
        governor: String,
        /// What.
        #[serde(flatten)]
        draft: Draft,
    },
    /// Alone: the interpreter has answered.
    Interpreted {
        /// About which proposal.
        proposal: ProposalId,
        /// What.
        interpretation: Interpretation,
    },
    /// With a commit: the governor confirmed the proposal.
    Confirmed,
    /// With a cancellation: the proposal was given up.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// Alone: somebody has voted.
    Voted {
        /// About which proposal.
        proposal: ProposalId,
        /// Who.
        governor: String,
        /// How.
        vote: Vote,
    },
    /// Alone: a round of the game is over.
    RoundPlayed {
        /// Its number.
        round: u64,
    },
    /// Alone: the votes of a window were counted. What follows from that is still to be done.
    Tallied(Tally),
    /// With the end of a round of the ledger: a governance window is over.
    WindowClosed {
        /// Its number.
        window: u64,
        /// How many proposals it allowed each governor.
        proposals_per_window: u64,
        /// How many tokens every governor gets.
        tokens: u64,
    },
}

impl Note {
    /// The note as it is written.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Texts, numbers and lists only: nothing in it can fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The note that was written.
    pub fn from_text(text: &str) -> Result<Self, NoteError> {
        serde_json::from_str(text).map_err(|error| NoteError(error.to_string()))
    }
}

/// A note that this version does not understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteError(String);

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoteError {}
