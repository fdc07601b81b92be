//! The `tollgate` command as a shell sees it: arguments, files and stdin in; stdout, stderr and an
//! exit code out.

mod command;
mod examples;
mod explain;
mod manual;
mod policy_tests;
mod run;
mod validate;
