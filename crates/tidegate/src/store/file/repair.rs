//! Checks how far the log can be read, and repairs it by cutting off the rest.

use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, Folder};
use super::error::OpenError;
use super::frame::FileKind;
use super::ledger::{Filter, Ledger};
use super::own;
use super::recovery::{newest_snapshot, recover};
use crate::store::StoreBounds;
use crate::table::WhenFull;

/// The result of a check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// How many entries of the ledger are readable.
    pub entries: u64,
    /// Where the ledger cannot be read.
    pub ledger: Option<OpenError>,
    /// Why a process would not start on it.
    pub start: Option<OpenError>,
    /// Whether the last process stopped in the middle of a write, which is ignored. It had not been
    /// acknowledged.
    pub is_torn: bool,
}

/// One action of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAction {
    /// A file was cut off at a byte. A copy of all of it has another name.
    Cut {
        /// The file.
        file: String,
        /// How many bytes are left.
        at: u64,
        /// The copy of all of it.
        kept_as: String,
    },
    /// A file was renamed.
    PutAside {
        /// The file.
        file: String,
        /// Its name now.
        kept_as: String,
    },
}

/// Reads everything in a folder, and changes nothing.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, OpenError> {
    let path = path.as_ref();
    let folder = Folder::open_read_only(path)
        .map_err(|error| OpenError::disk(format!("open {}", path.display()), error))?;
    Ok(check_on(&(Arc::new(folder) as Arc<dyn Disk>)))
}

/// [`check`] on another [`Disk`].
#[must_use]
pub fn check_on(disk: &Arc<dyn Disk>) -> CheckReport {
    let mut checked = CheckReport { entries: 0, ledger: None, start: None, is_torn: false };
    match recover(&**disk, EVERYTHING) {
        Ok(recovered) => checked.is_torn = recovered.finish.is_torn,
        Err(error) => checked.start = Some(error),
    }
    match Ledger::on(Arc::clone(disk)).entries(&Filter::new()) {
        Err(error) => checked.ledger = Some(error),
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(_) => checked.entries += 1,
                    Err(error) => checked.ledger = Some(error),
                }
            }
        }
    }
    checked
}

/// Cuts off what cannot be read, so that a process starts with what is before it. Whatever is
/// removed is kept under other names.
///
/// Charges after the cut are lost: a backup is better, if there is one.
pub fn repair(path: impl AsRef<Path>) -> Result<Vec<RepairAction>, OpenError> {
    repair_on(&(Arc::new(own(path.as_ref())?) as Arc<dyn Disk>))
}

/// [`repair`] on another [`Disk`].
pub fn repair_on(disk: &Arc<dyn Disk>) -> Result<Vec<RepairAction>, OpenError> {
    let mut done = Vec::new();
    // Every iteration removes something.
    loop {
        let CheckReport { start, ledger, .. } = check_on(disk);
        match start.or(ledger) {
            None => break,
            Some(OpenError::Damaged { file, at, .. }) => {
                let before = done.len();
                repair_file(&**disk, &file, at, &mut done)?;
                if done.len() == before {
                    return Err(OpenError::Damaged { file, at, what: "it cannot be repaired" });
                }
            }
            Some(error) => return Err(error),
        }
    }
    Ok(done)
}

fn repair_file(
    disk: &dyn Disk,
    file: &str,
    at: u64,
    done: &mut Vec<RepairAction>,
) -> Result<(), OpenError> {
    let Some(number) = FileKind::Log.number_of(file) else { return move_aside(disk, file, done) };
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    let numbers = names.iter().filter_map(|name| FileKind::Log.number_of(name));
    let snapshot = newest_snapshot(disk)?.unwrap_or(0);
    if number < snapshot {
        // A start does not need it, and the ledger can begin after it.
        let older = numbers.filter(|other| *other <= number);
        return move_all_aside(disk, older.collect(), done);
    }
    move_all_aside(disk, numbers.filter(|other| *other > number).collect(), done)?;
    if at > 0 { cut(disk, file, at, done) } else { move_all_aside(disk, vec![number], done) }
}

fn move_all_aside(
    disk: &dyn Disk,
    mut numbers: Vec<u64>,
    done: &mut Vec<RepairAction>,
) -> Result<(), OpenError> {
    // The newest first: should this stop half-way, what is left is still a log.
    numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
    for number in numbers {
        let file = FileKind::Log.file_name(number);
        if disk.names().is_ok_and(|names| names.contains(&file)) {
            move_aside(disk, &file, done)?;
        }
    }
    Ok(())
}

fn move_aside(disk: &dyn Disk, file: &str, done: &mut Vec<RepairAction>) -> Result<(), OpenError> {
    let kept_as = free_name(disk, file)?;
    disk.rename(file, &kept_as)
        .and_then(|()| disk.sync_names())
        .map_err(|error| OpenError::disk(format!("move {file} aside"), error))?;
    done.push(RepairAction::PutAside { file: file.into(), kept_as });
    Ok(())
}

fn cut(
    disk: &dyn Disk,
    file: &str,
    at: u64,
    done: &mut Vec<RepairAction>,
) -> Result<(), OpenError> {
    let failed = |error| OpenError::disk(format!("cut {file}"), error);
    let bytes = disk.read(file).map_err(failed)?;
    let len = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    let kept_as = free_name(disk, file)?;
    let write = |name: &str, bytes: &[u8]| {
        let _ = disk.remove(name);
        let mut copy = disk.create(name)?;
        copy.write_at(0, bytes)?;
        copy.sync()
    };
    write(&kept_as, &bytes).map_err(failed)?;
    write(TEMPORARY, &bytes[..len])
        .and_then(|()| disk.rename(TEMPORARY, file))
        .and_then(|()| disk.sync_names())
        .map_err(failed)?;
    done.push(RepairAction::Cut { file: file.into(), at, kept_as });
    Ok(())
}

/// A name that no file has yet.
fn free_name(disk: &dyn Disk, file: &str) -> Result<String, OpenError> {
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    let name = |number: u64| format!("{file}.damaged-{number}");
    Ok((1..).map(name).find(|name| !names.contains(name)).unwrap_or_else(|| name(0)))
}

/// No bounds.
const EVERYTHING: StoreBounds = StoreBounds::new(usize::MAX >> 16, WhenFull::Deny);

const TEMPORARY: &str = "repair.tmp";
