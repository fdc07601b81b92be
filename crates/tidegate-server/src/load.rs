//! Loads policy files.

use std::fmt;
use std::io;
use std::path::Path;

use tidegate::policy::{Parsed, Policy, PolicyErrors, PolicyFile, TokenFile, YamlOptions};

use crate::file_watch;

/// The error of a policy file that cannot be loaded.
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// It has errors.
    Wrong(PolicyErrors),
    /// Loading failed for another reason.
    Failed {
        /// The reason.
        why: String,
    },
}

/// Loads a policy file, or all of them in a folder.
pub fn load(path: &Path) -> Result<Parsed, LoadError> {
    load_with(path, YamlOptions::default())
}

/// Loads a policy file, or all of them in a folder, with options for files of envoyproxy/ratelimit.
pub fn load_with(path: &Path, options: YamlOptions) -> Result<Parsed, LoadError> {
    parse(&read(path)?, options)
}

/// The content of a file, or of all policy files in a folder.
pub(crate) fn read(path: &Path) -> Result<Vec<PolicyFile>, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.display().to_string(), error };
    // Opening a pipe would wait for a writer.
    let kind = std::fs::metadata(path).map_err(unreadable)?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(unreadable(io::Error::other("it is neither a file nor a folder")));
    }
    PolicyFile::read(path).map_err(unreadable)
}

pub(crate) fn parse(files: &[PolicyFile], options: YamlOptions) -> Result<Parsed, LoadError> {
    Policy::load_files_with(files, options).map_err(LoadError::Wrong)
}

/// The tokens in a file, and its content.
pub(crate) fn load_tokens(path: &Path) -> Result<(TokenFile, Vec<u8>), LoadError> {
    let name = path.display().to_string();
    let content = file_watch::read(path, TOKEN_FILE_BYTES_MAX)
        .map_err(|error| LoadError::Unreadable { path: name.clone(), error })?;
    let file = TokenFile::parse(&name, &content).map_err(LoadError::Wrong)?;
    Ok((file, content))
}

/// The largest token file.
pub(crate) const TOKEN_FILE_BYTES_MAX: u64 = 16 << 20;

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read {path}: {error}"),
            Self::Wrong(errors) => errors.fmt(f),
            Self::Failed { why } => write!(f, "cannot load the policy: {why}"),
        }
    }
}

tidegate::debug_as_displayed!(LoadError);

impl std::error::Error for LoadError {}
