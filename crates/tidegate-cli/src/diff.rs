//! `tidegate diff`.
use std::io;
use crate::args::DiffArgs;
use crate::io::{Exit, Io};
pub(crate) fn run(_: &DiffArgs, _: &mut Io<'_>) -> io::Result<Exit> { Ok(Exit::Error) }
