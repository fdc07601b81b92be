use std::fmt;

use serde::{Deserialize, Serialize};

use crate::proposal::{Draft, Interpretation, ProposalId, Vote};
use crate::tally::Tally;

/// The desk's records in the ledger, each the note of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Note {
    /// With an enrolment: a governor received the first tokens.
    Enrolled {
        /// The governor's name.
        governor: String,
        /// The tokens of the first window.
        tokens: u64,
        /// The SHA-256 of the secret, if the governor is not one of the settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret_sha256: Option<String>,
    },
    /// With a reservation: a proposal was submitted.
    Proposed {
        /// The governor's name.
        governor: String,
        /// The draft.
        #[serde(flatten)]
        draft: Draft,
    },
    /// Alone: a proposal was interpreted.
    Interpreted {
        /// The proposal.
        proposal: ProposalId,
        /// The interpretation.
        interpretation: Interpretation,
    },
    /// With a commit: the governor confirmed the proposal.
    Confirmed,
    /// With a cancellation: the proposal was cancelled.
    Cancelled {
        /// The reason.
        reason: String,
    },
    /// Alone: a governor voted.
    Voted {
        /// The proposal.
        proposal: ProposalId,
        /// The governor's name.
        governor: String,
        /// The vote.
        vote: Vote,
    },
    /// Alone: a round of the game was played.
    RoundPlayed {
        /// Its number.
        round: u64,
    },
    /// Alone: the votes of a window were counted. The consequences are yet to be applied.
    Tallied(Tally),
    /// With the end of a round of the ledger: a governance window closed.
    WindowClosed {
        /// Its number.
        window: u64,
        /// The cap per governor.
        proposals_per_window: u64,
        /// The tokens that each governor gets.
        tokens: u64,
    },
}

impl Note {
    /// Encodes the note.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Strings, numbers and lists only: serialization cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a note.
    pub fn from_text(text: &str) -> Result<Self, NoteError> {
        serde_json::from_str(text).map_err(|error| NoteError(error.to_string()))
    }
}

/// A note that this version cannot parse.
#[derive(Clone, PartialEq, Eq)]
pub struct NoteError(String);

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NoteError {}
