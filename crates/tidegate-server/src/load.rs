//! The one way from a policy file to a policy.

use std::fmt;
use std::io;
use std::path::Path;

use tidegate::policy::{Parsed, Policy, PolicyErrors, PolicyFile};

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
    /// It could not be told whether it has errors.
    Failed {
        /// What happened instead.
        why: String,
    },
}

/// Reads a policy file, or all of them in a folder.
pub fn load(path: &Path) -> Result<Parsed, LoadError> {
    parse(&read(path)?)
}

/// What is in a file, or in all policies of a folder.
pub(crate) fn read(path: &Path) -> Result<Vec<PolicyFile>, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.display().to_string(), error };
    // Opening a pipe would wait for somebody to write into it.
    let kind = std::fs::metadata(path).map_err(unreadable)?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(unreadable(io::Error::other("it is neither a file nor a folder")));
    }
    PolicyFile::read(path).map_err(unreadable)
}

pub(crate) fn parse(files: &[PolicyFile]) -> Result<Parsed, LoadError> {
    Policy::load_files(files).map_err(LoadError::Wrong)
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read {path}: {error}"),
            Self::Wrong(errors) => errors.fmt(f),
            Self::Failed { why } => write!(f, "cannot load the policy: {why}"),
        }
    }
}

impl std::error::Error for LoadError {}
