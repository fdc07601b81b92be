//! `tollgate-proposals`: the proposal desk, and its client.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_proposals::main()
}
