//! The `tidegate` command. The library next to it has all the code, so that tests can call it.

use std::process::ExitCode;

mod memory;

fn main() -> ExitCode {
    memory::start();
    tidegate_cli::main()
}
