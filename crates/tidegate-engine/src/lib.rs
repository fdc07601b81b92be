//! The engine of [tidegate](https://github.com/tidegate-rs/tidegate): decisions over all rules of a policy, charged
//! as a whole, in memory or on disk.
//!
//! [`Engine`] has the verbs; every one of them makes a [`Report`], or an [`Answer`] that will be one.
//!
//! `DESIGN.md` of this crate says where to start reading.
//!
//! # What is stable
//!
//! Everything that is public here is re-exported by `tidegate` with its features `engine`, `durable` and
//! `testing`; `tidegate` is the crate to depend on. Depend on the sibling crates `tidegate-policy` and
//! `tidegate-table` with the same version: their parts that this crate uses are not stable.

#![forbid(unsafe_code)]

mod any_limit;
mod decision;
#[cfg(feature = "durable")]
pub mod durable;
mod edits;
mod engine;
mod engine_clock;
mod history;
mod hold_id;
mod mixing;
mod periods;
mod plan;
mod request;
mod request_limit;
pub mod shared;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod transition;

pub use edits::{Ban, Change, Changed, Edit, Overlay};
pub use engine::{
    Applies, BookingTally, CheckError, Commit, CommitReport, EditError, Edited, Engine,
    EngineBuildError, EngineBuilder, Enrolment, Explanation, Lease, NoSuchDomain, NoSuchRule,
    NotGranted, Note, PolicyWatcher, Refund, ReloadError, Report, ReportDetails, RequestDenied,
    Reservation, RuleExplanation, RuleKey, RuleReport, RuleTally, RuleUsage, SettleError,
    StoreEngine, Waiting,
};
pub use hold_id::{HoldId, HoldIdError, Owner};
pub use plan::KeyName;
pub use request::{Domain, Request};
pub use request_limit::RequestLimit;
pub use store::{Answer, AnswerFuture, HoldBound, MemoryStore, Outage, Store};
