//! The `tidegate-local-service` command. Its code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_local_service::main()
}
