use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate::{
    Timestamp,
    hold::{HoldId, HoldIdError},
};

/// The id of a proposal: that of its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProposalId(pub HoldId);

impl fmt::Display for ProposalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProposalId {
    type Err = HoldIdError;

    fn from_str(text: &str) -> Result<Self, HoldIdError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for ProposalId {
    type Error = HoldIdError;

    fn try_from(text: String) -> Result<Self, HoldIdError> {
        text.parse()
    }
}

impl From<ProposalId> for String {
    fn from(id: ProposalId) -> Self {
        id.to_string()
    }
}

/// A submitted proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// The tier, from 1 up. It determines the cost.
    pub tier: u64,
    /// The text of the proposal.
    pub text: String,
}

/// The interpretation of a proposal: its governor confirms it, and all vote on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpretation {
    /// What the proposal would do, as text.
    pub summary: String,
    /// The tier of the proposal.
    pub tier: u64,
    /// The cap that it would set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposals_per_window: Option<u64>,
}

/// A governor's vote on a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// For it.
    Yes,
    /// Against it.
    No,
}

/// The status of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is queued for the interpreter, or being interpreted.
    Interpreting,
    /// It waits for its governor to confirm or cancel it.
    Interpreted,
    /// It was confirmed, and is voted on until the next tally.
    Voting,
    /// The tally found enough votes for it.
    Passed,
    /// The tally did not.
    Failed,
    /// It was cancelled, with a reason.
    Cancelled,
    /// It was not confirmed in time.
    Expired,
}

impl Status {
    /// Whether it cannot change any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Passed | Self::Failed | Self::Cancelled | Self::Expired)
    }

    /// Whether its tokens are held, and not spent yet.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Interpreting | Self::Interpreted)
    }
}

/// A proposal and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// Its id.
    pub id: ProposalId,
    /// Its governor.
    pub governor: String,
    /// The draft.
    #[serde(flatten)]
    pub draft: Draft,
    /// Its status.
    pub status: Status,
    /// The reason of its cancellation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its interpretation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpretation: Option<Interpretation>,
    /// The votes, by governor.
    pub votes: BTreeMap<String, Vote>,
    /// The window in which it was submitted.
    pub submitted_in: u64,
    /// The window whose tally decided it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// When its tokens are released, unless it is confirmed.
    #[serde(skip)]
    pub expires: Option<Timestamp>,
}
