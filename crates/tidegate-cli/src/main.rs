//! The `tidegate` command. The library next to it has all the code, so that tests can call it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod memory;

fn main() -> ExitCode {
    memory::start();
    tidegate_cli::main()
}
