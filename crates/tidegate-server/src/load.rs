//! Loads policy files and token files.

use std::path::Path;

use tidegate::policy::{LoadError, Parsed, Policy, TokenFile, YamlOptions};

use crate::file_watch;

/// Loads a policy file, or all of them in a folder.
pub fn load(path: &Path) -> Result<Parsed, LoadError> {
    Policy::open_with(path, YamlOptions::default())
}

/// Loads a policy file, or all of them in a folder, with options for files of envoyproxy/ratelimit.
pub fn load_with(path: &Path, options: YamlOptions) -> Result<Parsed, LoadError> {
    Policy::open_with(path, options)
}

/// The tokens in a file, and its content.
pub(crate) fn load_tokens(path: &Path) -> Result<(TokenFile, Vec<u8>), LoadError> {
    let name = path.display().to_string();
    let content = file_watch::read(path, TOKEN_FILE_BYTES_MAX)
        .map_err(|error| LoadError::Unreadable { path: name.clone(), error })?;
    let file = TokenFile::parse(&name, &content).map_err(LoadError::Invalid)?;
    Ok((file, content))
}

/// The largest token file.
pub(crate) const TOKEN_FILE_BYTES_MAX: u64 = 16 << 20;
