//! The `tidegate` command as a process: arguments, files and stdin in; stdout, stderr and an exit
//! code out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod admin;
mod command;
mod core_dumps;
mod dashboard_page;
mod diff;
mod examples;
mod explain;
#[path = "../../../../scripts/guide.rs"]
mod guide;
mod guide_access;
mod guide_many_machines;
mod guide_operating;
mod guide_redis_cell;
mod guide_tls;
mod guides;
mod ledger;
mod manual;
mod policy_tests;
mod remote;
mod remote_errors;
mod replay;
mod replay_page;
mod run;
mod schema;
mod serve;
mod serve_logs;
mod serve_store;
mod serve_tls;
mod token;
mod validate;
