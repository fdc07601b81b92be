//! The one way from a policy file to a policy.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tollgate::policy::{Parsed, Policy, PolicyErrors};

/// Why a file is no policy.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    Unreadable {
        /// Its path.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// It can be read, but has errors.
    Wrong(PolicyErrors),
}

/// Reads a policy file.
pub fn load(path: &Path) -> Result<Parsed, LoadError> {
    parse(path, &read(path)?)
}

/// The bytes of a file, up to one more than a policy may have.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.display().to_string(), error };
    let mut bytes = Vec::new();
    // Opening a pipe would wait for somebody to write into it.
    let is_file = std::fs::metadata(path).map_err(unreadable)?.is_file();
    if !is_file {
        return Err(unreadable(io::Error::other("it is not a file")));
    }
    let file = File::open(path).map_err(unreadable)?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Parsed, LoadError> {
    Policy::parse(&path.display().to_string(), bytes).map_err(LoadError::Wrong)
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read {path}: {error}"),
            Self::Wrong(errors) => errors.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

/// The largest policy file.
const BYTES_MAX: u64 = 16 << 20;
