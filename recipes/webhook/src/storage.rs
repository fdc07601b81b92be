use std::path::{Path, PathBuf};

use tidegate::durable::{FileOptions, FileStore, OpenError};
use tidegate::policy::{Durability, Policy};
use tidegate::{Engine, SystemClock};

/// Where counts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory: a restart begins anew.
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

/// An engine that keeps its counts in a folder, and goes on from what is there.
///
/// Everything is with the operating system before it is answered, so it survives the end of the
/// process, but perhaps not a loss of power. That holds for messages of users without a limit, too:
/// nothing is counted there, but none of them is passed on twice.
pub fn opened(policy: Policy, folder: &Path) -> Result<Engine<FileStore>, OpenError> {
    let store = FileOptions::default().least_durability(Durability::Flush).open(folder)?;
    let clock = SystemClock::no_earlier_than(store.last_time());
    Ok(Engine::with_store(policy, store, clock))
}

#[cfg(test)]
mod tests;
