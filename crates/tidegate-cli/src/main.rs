//! The `tidegate` command. Everything it does is in the library beside it, so that tests can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_cli::main()
}
