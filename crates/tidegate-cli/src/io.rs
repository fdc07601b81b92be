//! Streams and exit codes of the commands.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;

/// The streams that a command uses.
pub struct Io<'a> {
    /// Read where an argument is `-`.
    pub stdin: &'a mut dyn Read,
    /// Results.
    pub stdout: &'a mut dyn Write,
    /// Messages.
    pub stderr: &'a mut dyn Write,
}

impl fmt::Debug for Io<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").finish_non_exhaustive()
    }
}

/// Exit status of a command. The greatest of several applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: success.
    Success,
    /// 1: problems found.
    Failure,
    /// 2: could not run: invalid usage, or a file that cannot be read.
    Error,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Error => 2,
        })
    }
}

/// A writer that discards output once the reader has closed the pipe.
pub(crate) struct IgnoreBrokenPipe<'a> {
    inner: Option<&'a mut dyn Write>,
}

impl<'a> IgnoreBrokenPipe<'a> {
    pub(crate) fn new(inner: &'a mut dyn Write) -> Self {
        Self { inner: Some(inner) }
    }

    /// The result of `act`, or `otherwise` once the pipe is closed.
    fn unless_closed<T>(
        &mut self,
        otherwise: T,
        act: impl FnOnce(&mut dyn Write) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(inner) = &mut self.inner else { return Ok(otherwise) };
        match act(&mut **inner) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.inner = None;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl Write for IgnoreBrokenPipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_closed(bytes.len(), |inner| inner.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_closed((), |inner| inner.flush())
    }
}
