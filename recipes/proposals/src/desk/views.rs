//! Views: proposals, balances, the window, the log.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tidegate::{Decision, Request};
use tokio::time::timeout;

use super::{Desk, Parts, StartError};
use crate::audit::{Audit, Page};
use crate::limits::{ACT, CAP, COOLDOWN, DOMAIN, GOVERNOR, PROPOSE, TOKENS};
use crate::problem::DeskError;
use crate::proposal::{Proposal, ProposalId, Status};
use crate::state::{ClosedWindow, Rounds};

/// What a governor has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// The governor's name.
    pub governor: String,
    /// PROPOSE tokens that are neither spent nor held.
    pub tokens: u64,
    /// Proposals left in this window.
    pub proposals_left: u64,
    /// The cap of this window.
    pub proposals_per_window: u64,
    /// The wait until the next proposal, rounded up.
    pub cooldown_ms: u64,
}

/// The open governance window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its number, from 1.
    pub window: u64,
    /// The cap per governor.
    pub proposals_per_window: u64,
    /// Rounds of the game.
    pub rounds: Rounds,
    /// The number of rounds in a window.
    pub interval: u64,
    /// Whether the tally is due.
    pub due: bool,
    /// Closed windows, the latest ones.
    pub closed: Vec<ClosedWindow>,
}

/// The views.
impl Desk {
    /// A proposal.
    pub fn proposal(&self, id: ProposalId) -> Result<Proposal, DeskError> {
        self.state().get(id).cloned().ok_or(DeskError::NoSuchProposal)
    }

    /// Proposals with this status and of this governor, or all; of final ones the latest.
    #[must_use]
    pub fn proposals(&self, status: Option<Status>, governor: Option<&str>) -> Vec<Proposal> {
        let state = self.state();
        let is_wanted = |it: &&Proposal| {
            status.is_none_or(|status| it.status == status)
                && governor.is_none_or(|governor| it.governor == governor)
        };
        let latest = state.proposals().rev().filter(is_wanted).take(MOST_LISTED);
        let mut listed: Vec<_> = latest.cloned().collect();
        listed.reverse();
        listed
    }

    /// The balance of each governor, by the engine.
    pub fn balances(&self) -> Result<Vec<Balance>, DeskError> {
        self.governors().iter().map(|name| self.balance(name)).collect()
    }

    /// What a governor has left.
    pub(super) fn balance(&self, governor: &str) -> Result<Balance, DeskError> {
        let attributes = [(GOVERNOR, governor), (ACT, PROPOSE)];
        let report = self.parts.engine.peek(&Request::new(DOMAIN, &attributes)).block();
        let report = report.map_err(|_| self.outage("balance"))?;
        let of = |name| report.rules().find(|it| it.rule.name() == name).map(|it| it.decision);
        let left = |name| of(name).map_or(0, Decision::remaining);
        Ok(Balance {
            governor: governor.to_owned(),
            tokens: left(TOKENS),
            proposals_left: left(CAP),
            proposals_per_window: of(CAP).map_or(0, Decision::limit),
            cooldown_ms: of(COOLDOWN).and_then(|it| it.retry_after()?.whole_ms()).unwrap_or(0),
        })
    }

    /// The open window.
    pub fn window(&self) -> Result<Window, DeskError> {
        let Parts { interval, .. } = &*self.parts;
        let any_governor = self.governors().into_iter().next().unwrap_or_default();
        let proposals_per_window = self.balance(&any_governor)?.proposals_per_window;
        let state = self.state();
        let rounds = state.rounds();
        Ok(Window {
            window: self.window_number(),
            proposals_per_window,
            rounds,
            interval: *interval,
            due: rounds.in_window >= *interval,
            closed: state.windows().copied().collect(),
        })
    }

    /// Part of the event log, of one governor or of all.
    pub async fn audit(&self, page: Page) -> Result<Audit, DeskError> {
        let desk = self.clone();
        let read = move || {
            // Holds that have expired are in the log before it is read.
            desk.parts.engine.tick();
            let audit = desk.entries().and_then(|entries| Ok(Audit::of(entries, &page)?));
            audit.map_err(|error| match error {
                StartError::Outage => desk.outage("audit"),
                error => unreadable(&error),
            })
        };
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(DeskError::Outage))
    }

    /// Whether the disk accepts writes.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.parts.engine.file_store().is_none_or(|store| store.failure().is_none())
    }

    /// Cancels the waits for the interpreter, because the desk stops.
    pub fn close(&self) {
        self.parts.engine.close();
    }

    /// Waits until no proposal is being interpreted, at most this long. Those that are left are
    /// voided by the end of the process, or by the next start.
    pub async fn finish(&self, max_wait: Duration) {
        if timeout(max_wait, self.parts.interpreting.closed()).await.is_err() {
            let calls = self.parts.interpreting.receiver_count();
            tracing::warn!(calls, "stopped with calls of the interpreter in flight");
        }
    }
}

fn unreadable(error: &dyn fmt::Display) -> DeskError {
    tracing::error!("cannot read the ledger: {error}");
    DeskError::Outage
}

/// The maximum number of listed proposals.
const MOST_LISTED: usize = 1_000;
