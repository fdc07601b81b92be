//! Watches policy files for changes.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::Timestamp;

use super::PolicyFile;
use super::load::read;

/// Finds new content of a policy file, or of a folder of them, by polling its path.
///
/// It does not matter how the file was changed: in place, by renaming another one over it, or by moving a
/// link. New content is polled again soon, and returned once two polls in a row have found the same, so a
/// half-written file is not loaded.
#[derive(Debug)]
pub struct PolicyWatch {
    path: PathBuf,
    hash: RandomState,
    /// The hash of the content that was returned last.
    seen: Option<u64>,
    /// The hash of new content, which is returned if the next poll finds it again.
    pending: Option<u64>,
    /// Since when the file has other content than that, and none that two polls have found.
    changing_since: Option<Timestamp>,
    /// The stamp of the file with the content that was returned, and how many polls have found it.
    stamp: Option<(FileStamp, u8)>,
    /// Whether the last poll found no file. One that is being replaced may be missing for a moment.
    is_missed: bool,
}

/// What a poll found.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchedFile {
    /// The same content as before.
    Same,
    /// Other content, which the next poll has to find again.
    Changing {
        /// Whether it has been changing for so long that somebody should know.
        is_unstable: bool,
    },
    /// New content.
    New {
        /// The file, or all in the folder.
        files: Vec<PolicyFile>,
        /// Whether it is the first that was found, or the first after an error.
        is_first: bool,
    },
    /// It cannot be read, for the second time or more.
    Unreadable {
        /// The error.
        error: io::Error,
        /// Whether it could be read before.
        is_new: bool,
    },
}

impl PolicyWatch {
    /// Watches a path, whose content is not known yet: the first content is new, too.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            hash: RandomState::new(),
            seen: None,
            pending: None,
            changing_since: None,
            stamp: None,
            is_missed: false,
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long to wait before the next poll.
    #[must_use]
    pub const fn poll_after(&self) -> Duration {
        if self.pending.is_some() { CONFIRM_AFTER } else { POLL_EVERY }
    }

    /// Polls the file.
    pub fn poll(&mut self, now: Timestamp) -> WatchedFile {
        let stamp = stamp_of(&self.path);
        if let (Some(now), Some((before, polls))) = (stamp, self.stamp)
            && now == before
            && polls >= POLLS_ENOUGH
        {
            return WatchedFile::Same;
        }
        let files = match read(&self.path) {
            Ok(files) => files,
            Err(error) => {
                (self.pending, self.stamp) = (None, None);
                if std::mem::replace(&mut self.is_missed, true) {
                    return WatchedFile::Unreadable { error, is_new: self.seen.take().is_some() };
                }
                return WatchedFile::Changing { is_unstable: false };
            }
        };
        self.is_missed = false;
        let content = self.content(&files);
        if self.seen == Some(content) {
            (self.pending, self.changing_since) = (None, None);
            let polls = self.stamp.filter(|(known, _)| Some(*known) == stamp);
            self.stamp = stamp.map(|it| (it, polls.map_or(1, |(_, polls)| polls + 1)));
            return WatchedFile::Same;
        }
        if self.pending == Some(content) {
            return self.found(content, files);
        }
        self.pending = Some(content);
        let since = *self.changing_since.get_or_insert(now);
        let changing_ns = now.as_nanos().saturating_sub(since.as_nanos());
        WatchedFile::Changing { is_unstable: u128::from(changing_ns) >= UNSTABLE_AFTER.as_nanos() }
    }

    /// Reads the file now, even if it has not changed.
    pub fn read(&mut self) -> WatchedFile {
        match read(&self.path) {
            Ok(files) => self.found(self.content(&files), files),
            Err(error) => {
                // When the file is back it is new, even with the same content.
                (self.seen, self.stamp) = (None, None);
                WatchedFile::Unreadable { error, is_new: true }
            }
        }
    }

    /// The hash of the content.
    fn content(&self, files: &[PolicyFile]) -> u64 {
        let parts: Vec<_> = files.iter().map(|file| (&file.name, &file.bytes)).collect();
        self.hash.hash_one(parts)
    }

    fn found(&mut self, content: u64, files: Vec<PolicyFile>) -> WatchedFile {
        let is_first = self.seen.is_none();
        (self.seen, self.pending, self.stamp) = (Some(content), None, None);
        self.changing_since = None;
        WatchedFile::New { files, is_first }
    }
}

/// Metadata that changes with the content of a file.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

#[cfg(unix)]
fn stamp_of(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    // The stamp of a folder does not change with its files.
    let it = std::fs::metadata(path).ok().filter(|it| it.is_file())?;
    let (changed, written) = ((it.ctime(), it.ctime_nsec()), (it.mtime(), it.mtime_nsec()));
    Some((it.dev(), it.ino(), it.size(), changed, written))
}

/// Elsewhere every poll reads the file.
#[cfg(not(unix))]
fn stamp_of(_path: &Path) -> Option<FileStamp> {
    None
}

/// The interval between polls.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The time between two polls that have to find the same new content.
const CONFIRM_AFTER: Duration = Duration::from_millis(100);

/// How long a file may change without two equal polls.
const UNSTABLE_AFTER: Duration = Duration::from_secs(5);

/// Polls with the same stamp after which the content is not read again: two writes in one tick of
/// the file system's clock have the same stamp.
const POLLS_ENOUGH: u8 = 3;
