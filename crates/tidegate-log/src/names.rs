//! The names of a log's files, and which of them a folder should have.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tidegate_core::Timestamp;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Events, one after the other.
    Log,
    /// All states as they were before the segment of the same number.
    Snapshot,
}

impl FileKind {
    const fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Snapshot => "snapshot",
        }
    }

    /// The name of the file with this number.
    pub(crate) fn file_name(self, number: u64) -> String {
        format!("{number:010}.{}", self.extension())
    }

    /// The number in the name of a file, if it is one of these.
    pub(crate) fn number_of(self, name: &str) -> Option<u64> {
        let (digits, extension) = name.split_once('.')?;
        let is_plain = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = (is_plain && extension == self.extension()).then(|| digits.parse().ok())??;
        // No log is that long.
        (number < u64::MAX >> 1).then_some(number)
    }
}

/// The names of the ledger's files, and when they were last compared with the folder.
///
/// The system changes the times of a folder with every name in it. So its names are listed only
/// after such a change, and once more a little later: times are coarse, and a second change within
/// one tick leaves the same ones.
#[derive(Debug, Default)]
pub(crate) struct ExpectedNames {
    names: BTreeSet<String>,
    /// The times of the folder before it was last listed.
    listed: Option<FolderTimes>,
    /// When it has to be listed again, although its times are the same.
    again_at: Option<Timestamp>,
}

/// When names in a folder changed last: seconds and nanoseconds, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderTimes([i64; 4]);

impl FolderTimes {
    pub(crate) fn of(folder: &Metadata) -> Self {
        Self([folder.mtime(), folder.mtime_nsec(), folder.ctime(), folder.ctime_nsec()])
    }
}

impl ExpectedNames {
    /// A file of the ledger was created, or got this name. Other names are not watched.
    pub(crate) fn add(&mut self, name: &str) {
        let has_number = |kind: FileKind| kind.number_of(name).is_some();
        if name == BEGUN || has_number(FileKind::Log) || has_number(FileKind::Snapshot) {
            self.names.insert(name.into());
        }
    }

    /// A file was removed by this process.
    pub(crate) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Whether the folder has to be listed: something in it has changed, or may have.
    pub(crate) fn is_due(&self, times: FolderTimes, now: Timestamp) -> bool {
        self.listed != Some(times) || self.again_at.is_some_and(|at| at <= now)
    }

    /// The first file that is missing in a list that was made after these times were read.
    pub(crate) fn missing(
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

/// The file that says that a ledger has begun in a folder. Its contents do not matter.
pub(crate) const BEGUN: &str = "begun";

/// The file that lists what is being erased, until that is done.
pub(crate) const ERASING: &str = "erasing";

/// The names of files that are being written, and get another name when they are whole.
pub(crate) const SEGMENT_TMP: &str = "segment.tmp";
pub(crate) const SNAPSHOT_TMP: &str = "snapshot.tmp";
pub(crate) const ERASE_TMP: &str = "erase.tmp";
pub(crate) const REPAIR_TMP: &str = "repair.tmp";
pub(crate) const BEGUN_TMP: &str = "begun.tmp";

/// More than the resolution of a file system's times.
const ONE_TICK: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
