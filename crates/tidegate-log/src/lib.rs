//! The log of [tidegate](https://github.com/tidegate-rs/tidegate): records as bytes, in a folder.
//!
//! [`Log`] accepts records from any thread, and reports when they are durable. [`Segments`] reads what it
//! has written, and finds where the next [`Log`] continues. What a record means is its caller's business.
//!
//! To read the code: `disk` has the six operations that a log needs of a folder, `frame` how bytes are laid
//! out in a file, and `writer` what is written when; `log` is the queue in front of the writer. `segments`
//! reads all of it back, `snapshot` the state that a start begins with. `rewrite` and `repair` are the only
//! ones that change what was written. `docs/internals/ledger.md` of the repository has the format.

#![forbid(unsafe_code)]

mod disk;
mod error;
mod frame;
mod log;
mod names;
mod repair;
mod rewrite;
mod segments;
mod snapshot;
mod writer;

pub use disk::{Disk, DiskFile, FileIdentity, Folder, NamedFile};
pub use error::LogError;
pub use log::{Log, LogCounts, NotDurable, WaitDurable};
pub use repair::{RepairAction, repair};
pub use rewrite::{begin_erasing, finish_erasing, remove_copies, unfinished_erasing};
pub use segments::{LogEnd, LogReader, Segments, mark_begun};
pub use snapshot::{SnapshotReader, SnapshotWriter, newest_snapshot};
pub use writer::{Level, SegmentSizes};
