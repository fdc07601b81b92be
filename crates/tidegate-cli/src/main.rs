//! The `tidegate` command. The library next to it has all the code, so that tests can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_cli::main()
}
