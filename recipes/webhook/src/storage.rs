use std::path::{Path, PathBuf};

use tidegate::durable::FileOptions;
use tidegate::policy::{Durability, Policy};
use tidegate::{StoreEngine, store::EngineBuildError};

/// Where counts are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory: lost on a restart.
    InMemory,
    /// In a folder: they survive the process, however it ends.
    InFolder(PathBuf),
}

impl Storage {
    /// `memory`, or `file:` and the path of a folder.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        match text.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Some(Self::InFolder(path.into())),
            None if text == "memory" => Some(Self::InMemory),
            _ => None,
        }
    }
}

/// An engine that stores its counts in a folder, and continues from what is there.
///
/// Everything is handed to the operating system before the result is returned, so it survives the
/// end of the process, but perhaps not a loss of power. That includes messages of unlimited users:
/// they are not counted, but none is dispatched twice.
pub fn opened(policy: Policy, folder: &Path) -> Result<StoreEngine, EngineBuildError> {
    let store = FileOptions::default().least_durability(Durability::Flush).open(folder)?;
    StoreEngine::builder(policy).store(store).build()
}

#[cfg(test)]
mod tests;
