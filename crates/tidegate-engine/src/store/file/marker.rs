//! A file that says that a ledger has begun in a folder.
//!
//! Without it a folder whose only segment was removed would look like a new one, and everything
//! that was charged would be forgotten silently.

use std::io;

use super::disk::Disk;
use super::error::OpenError;

/// Whether a ledger has begun here.
pub(super) fn has_begun(disk: &dyn Disk) -> Result<bool, OpenError> {
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    Ok(names.iter().any(|name| name == MARKER))
}

/// Writes the marker, if there is none. The log must have begun.
pub(super) fn mark_begun(disk: &dyn Disk) -> Result<(), OpenError> {
    if has_begun(disk)? {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        // A loss of power must not leave the marker without the log.
        disk.sync_names()?;
        let _ = disk.remove(TEMPORARY);
        let mut file = disk.create(TEMPORARY)?;
        file.write_at(0, TEXT.as_bytes())?;
        file.sync()?;
        disk.rename(TEMPORARY, MARKER)?;
        disk.sync_names()
    };
    write().map_err(|error| OpenError::disk(format!("write {MARKER}"), error))
}

/// Removes the marker: the next start begins a new ledger.
pub(super) fn unmark(disk: &dyn Disk) -> Result<(), OpenError> {
    (disk.remove(MARKER).and_then(|()| disk.sync_names()))
        .map_err(|error| OpenError::disk(format!("remove {MARKER}"), error))
}

/// The name of the file. Its contents do not matter.
pub(super) const MARKER: &str = "begun";

const TEXT: &str = "A ledger has begun in this folder. If its .log files are gone, so is what they \
                    counted: restore them from a backup.\n";

const TEMPORARY: &str = "begun.tmp";
