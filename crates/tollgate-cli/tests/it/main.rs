//! The `tollgate` command as a shell sees it: arguments, files and stdin in; stdout, stderr and an
//! exit code out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod command;
mod examples;
mod explain;
mod guides;
mod ledger;
mod manual;
mod policy_tests;
mod run;
mod schema;
mod validate;
