//! The proposal desk: governors of a game propose changes, an AI interprets them, and all vote.
//!
//! Each proposal costs a call of an AI and the voters' attention, so several limits apply in one
//! decision: PROPOSE tokens, a cap per governance window, a cooldown.
//!
//! - [`Limits`] are the numbers, and their policy;
//! - [`Desk`] has the operations: propose, confirm, cancel, vote, tally;
//! - [`Desk::router`] is the same over HTTP;
//! - [`State`] is the sum of all ledger entries, and [`audit`] renders them.
//!
//! The desk stores nothing but the ledger of its engine. Proposals, votes and tallies are notes in
//! that ledger, each written in one record with its decision, so that a crash loses both or
//! neither.
#![forbid(unsafe_code)]

pub mod audit;
mod client;
mod commands;
mod desk;
mod governors;
mod http;
mod interpreter;
mod limits;
mod note;
mod problem;
mod proposal;
mod server;
mod settings;
mod state;
mod tally;

pub use client::{Client, TrustError, client};
pub use commands::main;
pub use desk::{Balance, Desk, Enrolled, NewGovernor, StartError, Window};
pub use governors::{Caller, Governors};
pub use interpreter::Interpreter;
pub use limits::{CAP_MAX, Limits, TOKENS_PER_WINDOW};
pub use note::{Note, NoteError};
pub use problem::{CallOutcome, DeskError};
pub use proposal::{Draft, Interpretation, Proposal, ProposalId, Status, Vote};
pub use server::{ConnectionLimits, serve};
pub use settings::Settings;
pub use state::{ClosedWindow, Fact, FactKind, Rounds, State};
pub use tally::{ProposalTally, Tally};

/// The code of the guide, as doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guides/replace-a-proposal-desk.md")]
    struct ReplaceAProposalDesk;
}
