use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate::{HoldId, HoldIdError, Timestamp};

/// The name of a proposal: that of the reservation which it began with.
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

/// What a governor hands in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// How far it reaches, from 1 up. It decides on the price.
    pub tier: u64,
    /// The proposal in words.
    pub text: String,
}

/// How the interpreter understands a proposal: what its governor confirms, and all vote about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpretation {
    /// What the proposal would do, in words.
    pub summary: String,
    /// The tier that it has.
    pub tier: u64,
    /// The cap that it would set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposals_per_window: Option<u64>,
}

/// What a governor says about a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// For it.
    Yes,
    /// Against it.
    No,
}

/// How far a proposal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for the interpreter, or for its answer.
    Interpreting,
    /// It waits for its governor, who confirms the interpretation or cancels the proposal.
    Interpreted,
    /// It was confirmed, and is voted about until the next tally.
    Voting,
    /// The tally found enough votes for it.
    Passed,
    /// The tally did not.
    Failed,
    /// It was given up, for the reason that it tells.
    Cancelled,
    /// Nobody confirmed it in time.
    Expired,
}

impl Status {
    /// Whether nothing can become of it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Passed | Self::Failed | Self::Cancelled | Self::Expired)
    }

    /// Whether its tokens are set aside, and not spent yet.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Interpreting | Self::Interpreted)
    }
}

/// A proposal, with everything that is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// Its name.
    pub id: ProposalId,
    /// Whose it is.
    pub governor: String,
    /// What was handed in.
    #[serde(flatten)]
    pub draft: Draft,
    /// How far it has come.
    pub status: Status,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How it was understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpretation: Option<Interpretation>,
    /// Who has voted how.
    pub votes: BTreeMap<String, Vote>,
    /// The window whose tally decided about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// When its tokens come back by themselves, unless it is confirmed.
    #[serde(skip)]
    pub expires: Option<Timestamp>,
}
