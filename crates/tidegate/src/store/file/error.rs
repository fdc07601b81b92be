use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::frame::VERSION;

/// Why states on disk cannot be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has them.
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who has it.
        owner: String,
    },
    /// The disk does not give or take what it should.
    Disk {
        /// What was to be done.
        doing: String,
        /// What it said.
        error: Arc<io::Error>,
    },
    /// Another version of tidegate wrote this file.
    Version {
        /// The file.
        file: String,
        /// The version of its format.
        version: u32,
    },
    /// Something is broken that was safe.
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// There are more keys than there may be.
    TooManyKeys,
    /// The edits that were kept cannot be understood.
    Overlay {
        /// Why.
        errors: String,
    },
}

impl OpenError {
    pub(in crate::store) fn disk(doing: impl Into<String>, error: io::Error) -> Self {
        Self::Disk { doing: doing.into(), error: Arc::new(error) }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, owner } => write!(
                f,
                "{} is in use: {owner}; only one process at a time can keep its states there. Stop \
                 that one, choose another folder, or let both ask one daemon",
                path.display()
            ),
            Self::Disk { doing, error } => write!(f, "cannot {doing}: {error}"),
            Self::Version { file, version } => write!(
                f,
                "{file} has format {version}, and this version of tidegate reads {VERSION}: use the \
                 version that wrote it"
            ),
            Self::Damaged { file, at, what } => write!(
                f,
                "{file} is damaged at byte {at}: {what}. Nothing was changed. Restore the folder from a \
                 backup; or see with `tidegate ledger FOLDER check` what can be read, and cut off the \
                 rest with `tidegate ledger FOLDER repair`"
            ),
            Self::TooManyKeys => {
                f.write_str("there are more keys than max_keys allows: raise max_keys")
            }
            Self::Overlay { errors } => {
                write!(f, "the edits that were kept cannot be understood: {errors}")
            }
        }
    }
}

impl std::error::Error for OpenError {}
