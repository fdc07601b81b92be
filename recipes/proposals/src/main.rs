//! `tidegate-proposals`: the proposal desk, and its client.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_proposals::main()
}
