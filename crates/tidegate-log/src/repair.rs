//! Repairs a log: what cannot be read is replaced by records that say so, and everything else stays.

use std::collections::BTreeMap;

use crate::disk::Disk;
use crate::error::LogError;
use crate::frame::{
    Batches, FileHeader, HEAD_LEN, HEADER_LEN, MIN_BATCH_LEN, SPACE_AFTER, SegmentEnd, frame,
};
use crate::names::{FileKind, REPAIR_TMP};
use crate::segments::{CountedEnd, SegmentLink, read_header, successor, unmark};
use crate::snapshot::newest_snapshot;

/// One action of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAction {
    /// A file was cut off at a byte: the end of it is missing, or cannot be read. A copy of all of
    /// it has another name.
    Cut {
        /// The file.
        file: String,
        /// How many bytes are left.
        at: u64,
        /// The copy of all of it.
        kept_as: String,
    },
    /// Bytes of a file cannot be read; their records are lost. Everything around them stays.
    GaveUp {
        /// The file.
        file: String,
        /// Where they begin.
        at: u64,
        /// How many they are.
        len: u64,
        /// The copy of all of it.
        kept_as: String,
    },
    /// The header of a file was written again. No record is lost.
    Header {
        /// The file.
        file: String,
        /// The copy of all of it.
        kept_as: String,
    },
    /// A missing file was replaced by one without its records, which are lost.
    Missing {
        /// The file.
        file: String,
    },
    /// The log before this file is missing. From now on the ledger begins with it.
    Begins {
        /// The file.
        file: String,
        /// The copy of all of it.
        kept_as: String,
    },
    /// A file was renamed; nothing of it can be used.
    PutAside {
        /// The file.
        file: String,
        /// Its name now.
        kept_as: String,
    },
    /// Nothing is left of the log: the next start begins a new ledger.
    StartsAnew,
}

/// Gives up what cannot be read, so that a process starts with all the rest. Files that are changed
/// or removed are kept under other names.
///
/// `check` reports what is wrong with the log as it is now. `lost` encodes a record that stands for so many
/// lost bytes, and is longer than they are.
pub fn repair<E: From<LogError>>(
    disk: &dyn Disk,
    check: impl Fn() -> Result<Option<LogError>, E>,
    lost: fn(u64) -> Vec<u8>,
) -> Result<Vec<RepairAction>, E> {
    let mut repair = Repair { disk, lost, done: Vec::new(), copies: BTreeMap::new() };
    repair.headers()?;
    // Every iteration repairs something.
    while let Some(error) = check()? {
        match error {
            LogError::Damaged { file, at, .. } => {
                let before = repair.done.len();
                repair.file(&file, at)?;
                if repair.done.len() == before {
                    let what = "it cannot be repaired";
                    return Err(LogError::Damaged { file, at, what }.into());
                }
            }
            LogError::Missing => {
                unmark(disk)?;
                repair.done.push(RepairAction::StartsAnew);
            }
            error => return Err(error.into()),
        }
    }
    Ok(repair.done)
}

/// A repair, and what it has done so far.
struct Repair<'a> {
    disk: &'a dyn Disk,
    lost: fn(u64) -> Vec<u8>,
    done: Vec<RepairAction>,
    /// The names of copies of files as they were, by the names of the files.
    copies: BTreeMap<String, String>,
}

impl Repair<'_> {
    /// Writes broken headers again, the oldest first: each refers to the segment before it.
    fn headers(&mut self) -> Result<(), LogError> {
        for number in self.disk.numbers(FileKind::Log)? {
            if let Err(LogError::Damaged { file, .. }) = read_header(self.disk, number) {
                let mut bytes = self.disk.contents(&file)?;
                bytes.resize(bytes.len().max(HEADER_LEN + SPACE_AFTER), 0);
                let header = self.header(number, &bytes)?;
                bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
                let kept_as = self.replace(&file, &bytes)?;
                self.done.push(RepairAction::Header { file, kept_as });
            }
        }
        Ok(())
    }

    /// A header for the segment with this number and these bytes.
    fn header(&self, number: u64, bytes: &[u8]) -> Result<FileHeader, LogError> {
        let (first, mut first_batch) = match Batches::new(bytes, 0).next_whole() {
            None => (HEADER_LEN, None),
            Some((at, batch)) => (at, Some(batch)),
        };
        if first > HEADER_LEN {
            // One batch stands for all that are missing before it.
            first_batch = first_batch.map(|batch| batch.saturating_sub(1));
        }
        let older = self.disk.numbers(FileKind::Log)?.into_iter().filter(|older| *older < number);
        let Some(older) = older.max() else {
            let (after, first_batch) = (SegmentEnd::default(), first_batch.unwrap_or(1));
            return Ok(FileHeader { kind: FileKind::Log, number, after, first_batch });
        };
        let bytes = self.disk.contents(&FileKind::Log.file_name(older))?;
        let mut batches = Batches::new(&bytes, read_header(self.disk, older)?.first_batch);
        while first_batch != Some(batches.next_number) && batches.next().is_some() {}
        let is_whole = first_batch.is_none_or(|first| first == batches.next_number);
        let len = match is_whole {
            true => batches.position,
            // The rest of it cannot be read.
            false => (bytes.len() & !7).max(batches.position + MIN_BATCH_LEN),
        };
        let first_batch = first_batch.unwrap_or(batches.next_number);
        let after = SegmentEnd { number: older, len: len as u64 };
        Ok(FileHeader { kind: FileKind::Log, number, after, first_batch })
    }

    fn file(&mut self, file: &str, at: u64) -> Result<(), LogError> {
        let Some(number) = FileKind::Log.number_of(file) else { return self.move_aside(file) };
        let numbers = self.disk.numbers(FileKind::Log)?;
        if !numbers.contains(&number) {
            self.missing(number, &numbers)
        } else if at > 0 {
            self.batches(number, at)
        } else {
            // Nothing can be used without the beginning of the log, or a snapshot.
            let newest_first = numbers.iter().rev();
            newest_first
                .map(|number| FileKind::Log.file_name(*number))
                .try_for_each(|file| self.move_aside(&file))
        }
    }

    /// Replaces a segment that is missing, or lets the ledger begin after it.
    fn missing(&mut self, number: u64, numbers: &[u64]) -> Result<(), LogError> {
        let file = FileKind::Log.file_name(number);
        let next = successor(self.disk, number)?;
        let is_needed = newest_snapshot(self.disk)?.is_some_and(|snapshot| snapshot <= number);
        if let (Some(next), false) = (next, is_needed || numbers.iter().any(|it| *it < number)) {
            let file = FileKind::Log.file_name(next.number);
            let mut bytes = self.disk.contents(&file)?;
            let header = FileHeader { after: SegmentEnd::default(), ..next };
            bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
            let kept_as = self.replace(&file, &bytes)?;
            self.done.push(RepairAction::Begins { file, kept_as });
            return Ok(());
        }
        let mut header = self.header(number, &[])?;
        let mut bytes = header.to_bytes().to_vec();
        match next {
            None => bytes.resize(HEADER_LEN + SPACE_AFTER, 0),
            Some(next) => {
                let len = usize::try_from(next.after.len).unwrap_or(0).saturating_sub(HEADER_LEN);
                let lost = u64::from(len > 0);
                header.first_batch = next.first_batch.saturating_sub(lost);
                bytes = header.to_bytes().to_vec();
                bytes.extend(self.fillers(header.first_batch, lost, len));
            }
        }
        self.write(&file, &bytes)?;
        self.done.push(RepairAction::Missing { file });
        Ok(())
    }

    /// Replaces all batches of a segment that cannot be read, and the one at an offset.
    fn batches(&mut self, number: u64, at: u64) -> Result<(), LogError> {
        let file = FileKind::Log.file_name(number);
        let mut bytes = self.disk.contents(&file)?;
        let header = read_header(self.disk, number)?;
        let end = CountedEnd::of(successor(self.disk, number)?);
        let link = SegmentLink { header, end };
        let (mut lost, mut cut_at) = (Vec::new(), None);
        if let Some(len) = end.len().and_then(|len| usize::try_from(len).ok()) {
            bytes.resize(len, 0);
        }
        loop {
            let mut batches = link.batches(&bytes);
            // The records of the one at the offset cannot be read, even if it is whole.
            let is_first = lost.is_empty();
            while !(is_first && batches.position as u64 == at) && batches.next().is_some() {}
            let (from, next) = (batches.position, batches.next_number);
            if !is_first && link.damage(&batches).is_none() {
                break;
            }
            let (to, count) = match (batches.next_whole(), end.len()) {
                _ if batches.next().is_some() => (batches.position, 1),
                (Some((to, number)), _) => (to, number - next),
                (None, Some(_)) => (bytes.len(), 1),
                (None, None) => {
                    cut_at = Some(from);
                    bytes.truncate(from);
                    bytes.resize(from + SPACE_AFTER, 0);
                    break;
                }
            };
            if to < from + MIN_BATCH_LEN {
                return Ok(());
            }
            bytes[from..to].copy_from_slice(&self.fillers(next, count, to - from));
            lost.push((from, to));
        }
        let kept_as = self.replace(&file, &bytes)?;
        for (from, to) in lost {
            let (file, kept_as) = (file.clone(), kept_as.clone());
            let (at, len) = (from as u64, (to - from) as u64);
            self.done.push(RepairAction::GaveUp { file, at, len, kept_as });
        }
        let cut = cut_at.map(|at| RepairAction::Cut { file, at: at as u64, kept_as });
        self.done.extend(cut);
        Ok(())
    }

    /// Batches of this many bytes in total that stand for batches which are lost.
    fn fillers(&self, first: u64, count: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        for number in first..first + count {
            let is_last = number + 1 == first + count;
            let frame_len = if is_last { len - bytes.len() } else { MIN_BATCH_LEN };
            let mut lost_len = (frame_len - HEAD_LEN) as u64;
            let record = loop {
                let record = (self.lost)(lost_len);
                if HEAD_LEN + record.len() <= frame_len {
                    break record;
                }
                lost_len -= 1;
            };
            bytes.extend(frame(number, number.saturating_sub(1), &record));
        }
        bytes
    }

    fn move_aside(&mut self, file: &str) -> Result<(), LogError> {
        let kept_as = self.free_name(file)?;
        (self.disk.rename(file, &kept_as))
            .and_then(|()| self.disk.sync_names())
            .map_err(|error| LogError::disk(format!("move {file} aside"), error))?;
        self.done.push(RepairAction::PutAside { file: file.into(), kept_as });
        Ok(())
    }

    /// Replaces the contents of a file, and returns the name of a copy of what it had before this
    /// repair.
    fn replace(&mut self, file: &str, bytes: &[u8]) -> Result<String, LogError> {
        if !self.copies.contains_key(file) {
            let (kept_as, original) = (self.free_name(file)?, self.disk.contents(file)?);
            self.write(&kept_as, &original)?;
            self.copies.insert(file.into(), kept_as);
        }
        self.write(file, bytes)?;
        Ok(self.copies[file].clone())
    }

    /// Writes a file, all of it or nothing.
    fn write(&self, file: &str, bytes: &[u8]) -> Result<(), LogError> {
        (self.disk.replace(file, REPAIR_TMP, bytes))
            .map_err(|error| LogError::disk(format!("write {file}"), error))
    }

    /// A name that no file has yet.
    fn free_name(&self, file: &str) -> Result<String, LogError> {
        let names = self.disk.list()?;
        let name = |number: u64| format!("{file}.damaged-{number}");
        Ok((1..).map(name).find(|name| !names.contains(name)).unwrap_or_else(|| name(0)))
    }
}
