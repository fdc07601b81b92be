//! The `tidegate-local-service` command. Everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_local_service::main()
}
