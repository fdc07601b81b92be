//! `tidegate import`: converts the limits of other programs to policies.

use std::io;

use tidegate::policy::Policy;

use crate::args::{ImportArgs, ImportCommand};
use crate::input;
use crate::io::{Exit, Io};

pub(crate) fn run(args: &ImportArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let ImportCommand::Limitador { file } = &args.program;
    let read = match input::read(file, io.stdin) {
        Ok(read) => read,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Error);
        }
    };
    match Policy::limitador_to_toml(&read.name, &read.bytes) {
        Ok(policy) => {
            write!(io.stdout, "{policy}")?;
            Ok(Exit::Success)
        }
        Err(errors) => {
            writeln!(io.stderr, "{errors}")?;
            Ok(Exit::Failure)
        }
    }
}
