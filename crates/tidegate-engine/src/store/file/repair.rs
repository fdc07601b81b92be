//! Checks how far the log can be read, and repairs it.

use std::path::Path;
use std::sync::Arc;

use tidegate_log::{Disk, Folder, RepairAction};
use tidegate_policy::StoreBounds;
use tidegate_table::table::WhenFull;

use super::ledger::{Filter, Ledger};
use super::options::OpenError;
use super::recovery::recover;
use crate::store::record::Record;

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

/// Reads everything in a folder, and changes nothing.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, OpenError> {
    let folder = Folder::open_read_only(path.as_ref())?;
    Ok(check_on(&(Arc::new(folder) as Arc<dyn Disk>)))
}

/// [`check`] on another [`Disk`].
#[must_use]
pub fn check_on(disk: &Arc<dyn Disk>) -> CheckReport {
    let mut checked = CheckReport { entries: 0, ledger: None, start: None, is_torn: false };
    match recover(&**disk, EVERYTHING) {
        Ok(recovered) => checked.is_torn = recovered.end.is_torn,
        Err(error) => checked.start = Some(error),
    }
    match Ledger::on(Arc::clone(disk)).entries(&Filter::new()) {
        Err(error) => checked.ledger = Some(error),
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(_) => checked.entries += 1,
                    Err(error) => {
                        checked.ledger.get_or_insert(error);
                    }
                }
            }
        }
    }
    checked
}

/// Gives up what cannot be read, so that a process starts with all the rest. Files that are changed
/// or removed are kept under other names.
///
/// What is given up is lost: a backup is better, if there is one.
pub fn repair(path: impl AsRef<Path>) -> Result<Vec<RepairAction>, OpenError> {
    repair_on(&(Arc::new(Folder::own(path.as_ref())?) as Arc<dyn Disk>))
}

/// [`repair`] on another [`Disk`].
pub fn repair_on(disk: &Arc<dyn Disk>) -> Result<Vec<RepairAction>, OpenError> {
    let check = || {
        let CheckReport { start, ledger, .. } = check_on(disk);
        match start.or(ledger) {
            None => Ok(None),
            Some(OpenError::Log(error)) => Ok(Some(error)),
            Some(error) => Err(error),
        }
    };
    tidegate_log::repair(&**disk, check, |len| Record::Lost { len }.to_bytes())
}

/// No bounds.
const EVERYTHING: StoreBounds = StoreBounds::new(usize::MAX >> 16, WhenFull::Deny);
