use serde::{Deserialize, Serialize};

use crate::governors::Governors;
use crate::proposal::{Proposal, ProposalId, Vote};

/// The counted votes of a governance window.
///
/// It contains all its consequences, so that an interrupted tally can be finished from the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The window, counted from 1.
    pub window: u64,
    /// The number of governors.
    pub governors: u64,
    /// The results, in the order of confirmation.
    pub proposals: Vec<ProposalTally>,
    /// The cap from the next window on, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposals_per_window: Option<u64>,
}

/// The votes on one proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalTally {
    /// The proposal.
    pub proposal: ProposalId,
    /// Votes for it.
    pub yes: u64,
    /// Votes against it.
    pub no: u64,
    /// Whether it passed.
    pub passed: bool,
}

impl Tally {
    /// Counts the votes on proposals, given in the order of confirmation.
    ///
    /// Of several passed changes of the cap, the last one applies.
    pub(crate) fn count<'p>(
        window: u64,
        proposals: impl Iterator<Item = &'p Proposal>,
        governors: &Governors,
    ) -> Self {
        let mut cap = None;
        let counted = proposals.map(|proposal| {
            let counted = ProposalTally::new(proposal, governors);
            let change = proposal.interpretation.as_ref().and_then(|it| it.proposals_per_window);
            if counted.passed {
                cap = change.or(cap);
            }
            counted
        });
        let proposals = counted.collect();
        Self { window, governors: governors.count(), proposals, proposals_per_window: cap }
    }
}

impl ProposalTally {
    /// Counts the votes of current governors.
    fn new(proposal: &Proposal, governors: &Governors) -> Self {
        let of = |wanted: Vote| {
            let votes = proposal.votes.iter();
            let votes = votes.filter(|(name, vote)| **vote == wanted && governors.has(name));
            votes.fold(0_u64, |sum, _| sum + 1)
        };
        let (yes, no) = (of(Vote::Yes), of(Vote::No));
        let votes = Votes { yes, no, governors: governors.count() };
        Self { proposal: proposal.id, yes, no, passed: votes.pass(proposal.draft.tier) }
    }
}

/// The votes cast, and the number of governors.
struct Votes {
    yes: u64,
    no: u64,
    governors: u64,
}

impl Votes {
    /// Whether they suffice: half of all governors voted, and more for it than against it; from
    /// tier 4 on, two thirds of the votes.
    fn pass(&self, tier: u64) -> bool {
        // A list of governors fits in an environment variable: nothing here overflows.
        let cast = self.yes + self.no;
        let has_quorum = 2 * cast >= self.governors;
        let has_majority = if tier < SUPERMAJORITY_FROM_TIER {
            self.yes > self.no
        } else {
            3 * self.yes >= 2 * cast && self.yes > 0
        };
        has_quorum && has_majority
    }
}

/// From this tier on a simple majority does not suffice.
const SUPERMAJORITY_FROM_TIER: u64 = 4;

#[cfg(test)]
mod tests;
