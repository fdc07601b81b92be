//! The command line of tidegate: the daemon, and tools that validate, explain and test policies.
//!
//! Results go to stdout, messages to stderr. A command exits with 0 (success), 1 (problems found)
//! or 2 (could not run: invalid usage, or a file that cannot be read).

#![forbid(unsafe_code)]

mod admin;
mod args;
mod call_error;
mod cases;
mod daemon_client;
mod diagnostics;
mod diff;
mod explain;
mod explanation;
mod format;
mod import;
mod input;
mod io;
mod ledger;
mod manual;
mod ping;
mod reference;
mod remote;
mod replay;
mod rule_index;
mod serve;
mod similar;
mod simulator;
mod socket;
mod testing;
mod token;
mod usage;
mod validate;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Command, Tidegate};
use io::IgnoreBrokenPipe;
pub use io::{Exit, Io};
pub use reference::reference;

/// Runs the command with the arguments and streams of this process.
pub fn main() -> ExitCode {
    let mut stdin = std::io::stdin();
    let mut stdout = std::io::stdout();
    let mut stderr = std::io::stderr();
    let mut io = Io { stdin: &mut stdin, stdout: &mut stdout, stderr: &mut stderr };
    run(std::env::args_os(), &mut io).into()
}

/// Runs one command; the first argument is the name of the program.
///
/// A closed pipe (`| head`) is no failure: the command runs to its end without output, so that its
/// exit code stays the same.
pub fn run(args: impl IntoIterator<Item = OsString>, io: &mut Io<'_>) -> Exit {
    let stdin: &mut dyn Read = &mut *io.stdin;
    let mut stdout = IgnoreBrokenPipe::new(&mut *io.stdout);
    let mut stderr = IgnoreBrokenPipe::new(&mut *io.stderr);
    let mut quiet = Io { stdin, stdout: &mut stdout, stderr: &mut stderr };
    let done = dispatch(args, &mut quiet).and_then(|exit| quiet.stdout.flush().map(|()| exit));
    done.unwrap_or_else(|error| {
        let _ = writeln!(stderr, "error: cannot write the output: {error}");
        Exit::Error
    })
}

fn dispatch(
    args: impl IntoIterator<Item = OsString>,
    io: &mut Io<'_>,
) -> Result<Exit, std::io::Error> {
    let command = match Tidegate::try_parse_from(args) {
        Ok(Tidegate { command }) => command,
        Err(output) if output.use_stderr() => {
            write!(io.stderr, "{output}")?;
            note_environment(output.kind(), io)?;
            return Ok(Exit::Error);
        }
        // `--help` or `--version`.
        Err(output) => {
            write!(io.stdout, "{output}")?;
            return Ok(Exit::Success);
        }
    };
    if command.paths().filter(|path| args::is_stdin(path)).count() > 1 {
        writeln!(io.stderr, "error: stdin can be read only once, but `-` is given twice")?;
        return Ok(Exit::Error);
    }
    match command {
        Command::Serve(args) => serve::run(&args, io),
        Command::Ping(args) => ping::run(&args, io),
        Command::Usage(args) => usage::run(&args, io),
        Command::Admin(args) => admin::run(&args, io),
        Command::Token(args) => token::run(&args, io),
        Command::Validate(args) => validate::run(&args, io),
        Command::Explain(args) => explain::run(&args, io),
        Command::Test(args) => testing::run(&args, io),
        Command::Import(args) => import::run(&args, io),
        Command::Schema => {
            io.stdout.write_all(tidegate::policy::schema().as_bytes())?;
            Ok(Exit::Success)
        }
        Command::Replay(args) => replay::run(&args, io),
        Command::Diff(args) => diff::run(&args, io),
        Command::Ledger(args) => ledger::run(&args, io),
        Command::Completions(args) => manual::completions(&args, io),
        Command::Man(args) => manual::pages(&args, io),
    }
}

/// Notes that an invalid value may come from the environment.
fn note_environment(kind: ErrorKind, io: &mut Io<'_>) -> Result<(), std::io::Error> {
    if kind == ErrorKind::InvalidValue
        && let Some(format) = std::env::var_os("TIDEGATE_FORMAT")
    {
        let format = format::visible(&format.to_string_lossy());
        writeln!(io.stderr, "note: TIDEGATE_FORMAT={format} is set in the environment")?;
    }
    Ok(())
}
