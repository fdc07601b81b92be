//! Takes something out of records that were written: segments are replaced by copies of the same length.
//!
//! A marker file with what is being erased makes sure that it is finished after a crash.

use std::io;

use crc32c::crc32c;

use crate::disk::Disk;
use crate::error::LogError;
use crate::frame::{Batches, frame};
use crate::names::{ERASE_TMP, ERASING, FileKind, REPAIR_TMP, SEGMENT_TMP, SNAPSHOT_TMP};
use crate::segments::Segments;

/// Notes what is going to be erased.
pub fn begin_erasing(disk: &dyn Disk, what: &[u8]) -> Result<(), LogError> {
    let marker = [what, &crc32c(what).to_le_bytes()].concat();
    disk.replace(ERASING, ERASE_TMP, &marker).map_err(failed)
}

/// What an earlier process had begun to erase. An error of the function says that this cannot be decoded.
pub fn unfinished_erasing<T, E>(
    disk: &dyn Disk,
    decode: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<Option<T>, LogError> {
    if !disk.list()?.iter().any(|name| name == ERASING) {
        return Ok(None);
    }
    let bytes = disk.contents(ERASING)?;
    let what = bytes
        .split_last_chunk()
        .filter(|(what, crc)| crc32c(what) == u32::from_le_bytes(**crc))
        .and_then(|(what, _)| decode(what).ok());
    what.map(Some).ok_or_else(|| LogError::Damaged {
        file: ERASING.into(),
        at: 0,
        what: "it should list the names being erased",
    })
}

/// Replaces the records of batches in all segments but the last one, and removes whatever else may have
/// them: segments that do not count, unfinished files and what a repair kept. Then the note of
/// [`begin_erasing`] is removed.
///
/// `changed` returns other records of the same length for those of a batch, if they have to be replaced.
pub fn finish_erasing(
    disk: &dyn Disk,
    changed: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<(), LogError> {
    let segments = Segments::read(disk, None)?;
    for link in segments.links.iter().filter(|link| link.end.len().is_some()) {
        let file = FileKind::Log.file_name(link.header.number);
        rewrite(disk, &file, link.header.first_batch, &changed)
            .map_err(|error| LogError::disk(format!("rewrite {file}"), error))?;
    }
    remove_strays(disk, &segments)?;
    remove_copies(disk, |_| true)?;
    disk.remove(ERASING).and_then(|()| disk.sync_names()).map_err(failed)
}

/// Replaces a segment by a copy with other records.
fn rewrite(
    disk: &dyn Disk,
    file: &str,
    first_batch: u64,
    changed: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let original = disk.read(file)?;
    let mut bytes = original.clone();
    let mut batches = Batches::new(&original, first_batch);
    let mut is_changed = false;
    let mut at = batches.position;
    while let Some(batch) = batches.next() {
        if let Some(records) = changed(batch.records) {
            let frame = frame(batch.number, batch.synced, &records);
            bytes[at..at + frame.len()].copy_from_slice(&frame);
            is_changed = true;
        }
        at = batches.position;
    }
    if is_changed { disk.replace(file, ERASE_TMP, &bytes) } else { Ok(()) }
}

/// Removes segments that do not count: they are never read.
fn remove_strays(disk: &dyn Disk, segments: &Segments) -> Result<(), LogError> {
    let newest = segments.links.last().map_or(0, |link| link.header.number);
    let is_stray = |number: u64| {
        number < newest && segments.links.iter().all(|link| link.header.number != number)
    };
    for name in disk.list()? {
        if FileKind::Log.number_of(&name).is_some_and(is_stray) {
            disk.remove(&name).map_err(failed)?;
        }
    }
    Ok(())
}

/// Removes those of the copies that a repair kept, and of unfinished files, whose contents are wanted
/// gone. Damage may hide what they have.
pub fn remove_copies(disk: &dyn Disk, is_unwanted: impl Fn(&[u8]) -> bool) -> Result<(), LogError> {
    let mut is_changed = false;
    for name in disk.list()?.iter().filter(|name| is_copy(name)) {
        if is_unwanted(&disk.read(name).map_err(failed)?) {
            disk.remove(name).map_err(failed)?;
            is_changed = true;
        }
    }
    if is_changed { disk.sync_names().map_err(failed) } else { Ok(()) }
}

/// Whether a file is what a repair kept, or an unfinished one.
fn is_copy(name: &str) -> bool {
    let of_ledger = |name: &str| {
        let number = FileKind::Log.number_of(name).or_else(|| FileKind::Snapshot.number_of(name));
        number.is_some() || name == ERASING
    };
    let is_unfinished = [SEGMENT_TMP, SNAPSHOT_TMP, REPAIR_TMP, ERASE_TMP].contains(&name);
    is_unfinished || name.split_once(".damaged-").is_some_and(|(file, _)| of_ledger(file))
}

fn failed(error: io::Error) -> LogError {
    LogError::disk("erase names", error)
}
