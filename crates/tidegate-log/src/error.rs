//! What goes wrong with a log.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::frame::VERSION;
use crate::names::FileKind;

/// Why a log cannot be read or continued.
#[derive(Clone)]
#[non_exhaustive]
pub enum LogError {
    /// Another process uses it.
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process that uses it.
        owner: String,
    },
    /// An operation on the disk failed.
    Disk {
        /// The operation.
        doing: String,
        /// The error.
        error: Arc<io::Error>,
    },
    /// Another version of tidegate wrote this file.
    Version {
        /// The file.
        file: String,
        /// The version of its format.
        version: u32,
    },
    /// Something that was durable is damaged.
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A ledger had begun, and neither a segment of its log nor a snapshot is left.
    Missing,
}

impl LogError {
    /// The error of an operation on the disk.
    pub fn disk(doing: impl Into<String>, error: io::Error) -> Self {
        Self::Disk { doing: doing.into(), error: Arc::new(error) }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, owner } => write!(
                f,
                "{} is in use: {owner}; only one process at a time can use it. Stop \
                 that process, choose another folder, or let both use one daemon",
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
                 backup; or see with `tidegate ledger FOLDER check` what can be read, and give up the \
                 rest with `tidegate ledger FOLDER repair`"
            ),
            Self::Missing => f.write_str(
                "a ledger has begun in this folder, and all of its .log and .snapshot files are gone. \
                 Nothing was changed. Restore the folder from a backup; or give up everything that was \
                 charged with `tidegate ledger FOLDER repair`, and the next start begins a new ledger",
            ),
        }
    }
}

tidegate_core::debug_as_displayed!(LogError);

impl std::error::Error for LogError {}

/// The position of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) file: String,
    pub(crate) at: u64,
}

impl Position {
    /// The start of a segment.
    pub(crate) fn start_of(number: u64) -> Self {
        Self { file: FileKind::Log.file_name(number), at: 0 }
    }

    pub(crate) fn broken(&self) -> LogError {
        self.damaged(UNREADABLE)
    }

    pub(crate) fn failed(&self, error: io::Error) -> LogError {
        LogError::disk(format!("read {}", self.file), error)
    }

    pub(crate) fn damaged(&self, what: &'static str) -> LogError {
        LogError::Damaged { file: self.file.clone(), at: self.at, what }
    }
}

pub(crate) const UNREADABLE: &str = "a durable batch cannot be read";
