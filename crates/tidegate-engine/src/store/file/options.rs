//! How a file store is opened.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use tidegate_log::{Disk, Folder, Log, LogError, SegmentSizes, mark_begun};
use tidegate_policy::StoreBounds;
use tidegate_policy::policy::Durability;
use tidegate_table::table::WhenFull;

use super::recorder::Recorder;
use super::recovery::{Recovered, recover};
use super::snapshot::SnapshotSchedule;
use super::{FileStore, FileStoreInner};
use crate::periods::Times;

/// How a [`FileStore`] is opened.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    bounds: StoreBounds,
    least_durability: Durability,
    sizes: SegmentSizes,
    /// A snapshot is taken after this many bytes of log.
    snapshot_after_len: u64,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            bounds: StoreBounds::new(1 << 20, WhenFull::Share),
            least_durability: Durability::Memory,
            sizes: SegmentSizes::default(),
            snapshot_after_len: 64 << 20,
        }
    }
}

impl FileOptions {
    /// The maximum number of keys, in total over all rules. Default: a million.
    #[must_use]
    pub const fn max_keys(mut self, max_keys: usize) -> Self {
        self.bounds.max_keys = max_keys;
        self
    }

    /// All bounds together.
    #[must_use]
    pub const fn bounds(mut self, bounds: StoreBounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// What happens to new keys beyond the maximum. Keys of durable rules are denied then, unless
    /// they are allowed: they cannot share counters.
    #[must_use]
    pub const fn when_full(mut self, when_full: WhenFull) -> Self {
        self.bounds.when_full = when_full;
        self
    }

    /// The least durability of all charges, whatever their rules demand.
    #[must_use]
    pub const fn least_durability(mut self, least: Durability) -> Self {
        self.least_durability = least;
        self
    }

    /// How many bytes of log precede a snapshot and a new segment. Default: 64 MiB.
    #[must_use]
    pub const fn snapshot_every(mut self, bytes: u64) -> Self {
        (self.snapshot_after_len, self.sizes.segment_len) = (bytes, bytes);
        self
    }

    /// How many bytes of space are allocated ahead of what is written, up to 1 GiB. Default: 1 MiB.
    #[must_use]
    pub const fn fill_ahead(mut self, bytes: u64) -> Self {
        self.sizes.fill_len = if bytes < MOST_AHEAD { bytes } else { MOST_AHEAD };
        self
    }

    /// Opens the store in a folder; an empty or missing one starts a new store.
    pub fn open(self, path: &Path) -> Result<FileStore, OpenError> {
        self.open_on(Arc::new(Folder::own(path)?))
    }

    /// Opens the store on another [`Disk`].
    pub fn open_on(self, disk: Arc<dyn Disk>) -> Result<FileStore, OpenError> {
        let Recovered { memory, keys, edits, end, last, is_new } = recover(&*disk, self.bounds)?;
        let (after_len, is_torn) = (self.snapshot_after_len, end.is_torn);
        let growth = Arc::new(SnapshotSchedule::new(end.len > after_len));
        let of_log = Arc::clone(&growth);
        let on_growth = move |len| of_log.note(len, after_len);
        let log = Log::open(Arc::clone(&disk), self.sizes, end, on_growth)?;
        let recorder = Arc::new(Recorder {
            log,
            keys: Mutex::new(keys),
            last: Mutex::new(last),
            least_durability: self.least_durability,
        });
        let mut memory = memory;
        memory.attach_journal(Arc::clone(&recorder) as _, self.least_durability);
        let shared = Arc::new(FileStoreInner {
            memory,
            recorder,
            disk,
            least_durability: self.least_durability,
            edits: Mutex::new(edits),
            snapshots: Mutex::new(()),
            growth,
            recovered_last: last,
            is_torn,
        });
        if is_new {
            shared.begin()?;
        }
        mark_begun(&*shared.disk)?;
        shared.finish_erasing(Times { now: last, wall: last })?;
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tidegate-snapshots".into())
            .spawn(move || of_thread.take_snapshots())
            .map_err(|error| LogError::disk("start a thread", error))?;
        Ok(FileStore { shared, thread: Some(thread) })
    }
}

/// Why a file store cannot be opened, or its ledger cannot be read.
#[derive(Clone)]
#[non_exhaustive]
pub enum OpenError {
    /// Its log cannot be read or continued.
    Log(LogError),
    /// There are more keys than the maximum.
    TooManyKeys,
    /// The stored edits are invalid.
    Overlay {
        /// Why.
        errors: String,
    },
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => fmt::Display::fmt(error, f),
            Self::TooManyKeys => {
                f.write_str("there are more keys than max_keys allows: raise max_keys")
            }
            Self::Overlay { errors } => write!(f, "the stored edits are invalid: {errors}"),
        }
    }
}

tidegate_core::debug_as_displayed!(OpenError);

impl std::error::Error for OpenError {}

/// The most space that is allocated ahead.
const MOST_AHEAD: u64 = 1 << 30;
