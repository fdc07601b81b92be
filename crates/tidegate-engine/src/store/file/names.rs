//! The files that a folder should have: notices those that another program has removed.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::frame::FileKind;
use super::marker::MARKER;

/// The names of the ledger's files, and when they were last compared with the folder.
///
/// The system changes the times of a folder with every name in it. So its names are listed only
/// after such a change, and once more a little later: times are coarse, and a second change within
/// one tick leaves the same ones.
#[derive(Debug, Default)]
pub(super) struct ExpectedNames {
    names: BTreeSet<String>,
    /// The times of the folder before it was last listed.
    listed: Option<FolderTimes>,
    /// When it has to be listed again, although its times are the same.
    again_at: Option<Timestamp>,
}

/// When names in a folder changed last: seconds and nanoseconds, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FolderTimes([i64; 4]);

impl FolderTimes {
    pub(super) fn of(folder: &Metadata) -> Self {
        Self([folder.mtime(), folder.mtime_nsec(), folder.ctime(), folder.ctime_nsec()])
    }
}

impl ExpectedNames {
    /// A file of the ledger was created, or got this name. Other names are not watched.
    pub(super) fn add(&mut self, name: &str) {
        let has_number = |kind: FileKind| kind.number_of(name).is_some();
        if name == MARKER || has_number(FileKind::Log) || has_number(FileKind::Snapshot) {
            self.names.insert(name.into());
        }
    }

    /// A file was removed by this process.
    pub(super) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Whether the folder has to be listed: something in it has changed, or may have.
    pub(super) fn is_due(&self, times: FolderTimes, now: Timestamp) -> bool {
        self.listed != Some(times) || self.again_at.is_some_and(|at| at <= now)
    }

    /// The first file that is missing in a list that was made after these times were read.
    pub(super) fn missing(
        &mut self,
        found: &[String],
        times: FolderTimes,
        now: Timestamp,
    ) -> Option<String> {
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let missing = self.names.iter().find(|name| !found.contains(name.as_str())).cloned();
        if missing.is_some() {
            // It may come back.
            self.listed = None;
            return missing;
        }
        self.again_at = (self.listed != Some(times)).then(|| now.saturating_add(ONE_TICK));
        self.listed = Some(times);
        None
    }
}

/// More than the resolution of a file system's times.
const ONE_TICK: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
