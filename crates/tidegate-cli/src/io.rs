//! Where commands read and write, and how they end.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;

/// Where a command reads and writes.
pub struct Io<'a> {
    /// What `-` stands for.
    pub stdin: &'a mut dyn Read,
    /// Takes the data that was asked for.
    pub stdout: &'a mut dyn Write,
    /// Takes everything else that there is to say.
    pub stderr: &'a mut dyn Write,
}

impl fmt::Debug for Io<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").finish_non_exhaustive()
    }
}

/// How a command ended. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: all is well.
    Yes,
    /// 1: something is wrong with what was checked.
    No,
    /// 2: it could not be checked: wrong usage, or something could not be read.
    NoAnswer,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::NoAnswer => 2,
        })
    }
}

/// A writer that falls silent when nobody reads any more.
pub(crate) struct IgnoreBrokenPipe<'a> {
    inner: Option<&'a mut dyn Write>,
}

impl<'a> IgnoreBrokenPipe<'a> {
    pub(crate) fn new(inner: &'a mut dyn Write) -> Self {
        Self { inner: Some(inner) }
    }

    /// What the writer says, or `otherwise` when nobody reads any more.
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
