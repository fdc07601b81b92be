//! The `tollgate-local-service` command. Everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_local_service::main()
}
