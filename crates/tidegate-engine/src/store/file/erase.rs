//! Erases the names of keys: the name goes, the totals stay.
//!
//! Records refer to keys by numbers, and one record has the name of a number. That record is
//! overwritten, with notes about the key, in copies of the segments that have them, and each copy
//! replaces its segment. A marker file with what is being erased makes sure that it is finished
//! after a crash.

use std::collections::HashMap;
use std::io;

use crc32c::crc32c;
use tidegate_core::Timestamp;
use tidegate_policy::policy::Durability;

use super::disk::Disk;
use super::error::OpenError;
use super::frame::{Batches, FileKind, frame};
use super::keys::logged_value;
use super::segments::Segments;
use super::{FileStore, FileStoreInner};
use crate::cycle::Times;
use crate::store::block_on;
use crate::store::memory::CachedResult;
use crate::store::record::{ByteReader, ByteWriter};
use crate::store::record::{KeyRecord, Record};

impl FileStore {
    /// Erases the names of all keys in which an attribute has a value; returns how many. The same
    /// as [`Engine::erase`](crate::Engine::erase), without an engine.
    pub fn erase(&self, attribute: &str, value: &str, now: Timestamp) -> Result<u64, OpenError> {
        let (times, value) = (Times { now, wall: now }, &*logged_value(value));
        let is_named = |key: &KeyRecord| {
            let has = |(name, known): &(Box<str>, Option<Box<str>>)| {
                &**name == attribute && known.as_deref() == Some(value)
            };
            !key.is_erased && key.name.parts.iter().any(has)
        };
        block_on(Box::pin(self.wait_durable(Durability::Fsync))).map_err(erasing_failed)?;
        let found = find_keys(&*self.shared.disk, is_named)?;
        if found.is_empty() {
            self.shared.remove_copies(|bytes| contains(bytes, value.as_bytes()))?;
            return Ok(0);
        }
        let numbers: Vec<u64> = found.keys().copied().collect();
        write_marker(&*self.shared.disk, &numbers).map_err(erasing_failed)?;
        self.shared.erase_keys(&found, times)?;
        Ok(numbers.len() as u64)
    }
}

impl FileStoreInner {
    /// Finishes what an earlier process had begun to erase.
    pub(super) fn finish_erasing(&self, times: Times) -> Result<(), OpenError> {
        let Some(numbers) = read_marker(&*self.disk)? else { return Ok(()) };
        let found = find_keys(&*self.disk, |key| numbers.contains(&key.number))?;
        self.erase_keys(&found, times)
    }

    fn erase_keys(&self, found: &HashMap<u64, u64>, times: Times) -> Result<(), OpenError> {
        for hash in found.values() {
            self.memory.erase(*hash, times);
        }
        let keys = found.keys().copied().collect();
        self.recorder.append(&Record::Erased { at: times.now, keys }, Durability::Fsync);
        // The snapshot has none of them, and no later segment does.
        self.take_snapshot().map_err(erasing_failed)?;
        let chain = Segments::read(&*self.disk, 0)?;
        for link in chain.links() {
            if link.end.len().is_some() {
                let file = FileKind::Log.file_name(link.header.number);
                blank_segment(&*self.disk, &file, link.header.first_batch, found)?;
            }
        }
        self.remove_strays(&chain)?;
        self.remove_copies(|_| true)?;
        let disk = &*self.disk;
        disk.remove(MARKER).and_then(|()| disk.sync_names()).map_err(erasing_failed)
    }
}

impl FileStoreInner {
    /// Removes segments that do not count: they are never read, and may have names.
    fn remove_strays(&self, chain: &Segments) -> Result<(), OpenError> {
        let names = self.disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
        let newest = chain.links().last().map_or(0, |link| link.header.number);
        for name in names {
            let number = FileKind::Log.number_of(&name).filter(|number| *number < newest);
            let is_stray = |number: u64| chain.links().iter().all(|it| it.header.number != number);
            if number.is_some_and(is_stray) {
                self.disk.remove(&name).map_err(erasing_failed)?;
            }
        }
        Ok(())
    }
}

impl FileStoreInner {
    /// Removes what a repair kept of files, and unfinished files: they may have names, and damage
    /// hides which.
    fn remove_copies(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<(), OpenError> {
        let disk = &*self.disk;
        let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
        let mut is_changed = false;
        for name in names.iter().filter(|name| is_copy(name)) {
            if is_wanted(&disk.read(name).map_err(erasing_failed)?) {
                disk.remove(name).map_err(erasing_failed)?;
                is_changed = true;
            }
        }
        if is_changed { disk.sync_names().map_err(erasing_failed) } else { Ok(()) }
    }
}

/// Whether a file is what a repair kept, or an unfinished one.
fn is_copy(name: &str) -> bool {
    let of_ledger = |name: &str| {
        let number = FileKind::Log.number_of(name).or_else(|| FileKind::Snapshot.number_of(name));
        number.is_some() || name == MARKER
    };
    let is_unfinished = ["segment.tmp", "snapshot.tmp", "repair.tmp", TEMPORARY].contains(&name);
    is_unfinished || name.split_once(".damaged-").is_some_and(|(file, _)| of_ledger(file))
}

fn contains(bytes: &[u8], value: &[u8]) -> bool {
    !value.is_empty() && bytes.windows(value.len()).any(|window| window == value)
}

/// Numbers and hashes of the matching keys.
fn find_keys(
    disk: &dyn Disk,
    matches: impl Fn(&KeyRecord) -> bool,
) -> Result<HashMap<u64, u64>, OpenError> {
    let mut found = HashMap::new();
    Segments::read(disk, 0)?.for_each(disk, |records, position| {
        if let Record::Key(key) = Record::read(records).map_err(|_| position.broken())?
            && matches(&key)
        {
            found.insert(key.number, key.hash);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Replaces a segment by a copy without the names of some keys.
fn blank_segment(
    disk: &dyn Disk,
    file: &str,
    first_batch: u64,
    erased: &HashMap<u64, u64>,
) -> Result<(), OpenError> {
    let failed = |error| OpenError::disk(format!("rewrite {file}"), error);
    let mut bytes = disk.read(file).map_err(failed)?;
    let original = bytes.clone();
    let mut batches = Batches::new(&original, first_batch);
    let mut is_changed = false;
    let mut at = batches.position();
    while let Some(batch) = batches.next() {
        if let Some(records) = blanked(batch.records, erased) {
            let frame = frame(batch.number, batch.synced, &records);
            bytes[at..at + frame.len()].copy_from_slice(&frame);
            is_changed = true;
        }
        at = batches.position();
    }
    if !is_changed {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        let _ = disk.remove(TEMPORARY);
        let mut copy = disk.create(TEMPORARY)?;
        copy.write_at(0, &bytes)?;
        copy.sync()?;
        disk.rename(TEMPORARY, file)?;
        disk.sync_names()
    };
    write().map_err(failed)
}

/// The records of a batch without some names, at the same length; `None` if they have none of them.
fn blanked(records: &[u8], erased: &HashMap<u64, u64>) -> Option<Vec<u8>> {
    let (mut reader, mut out, mut is_changed) = (ByteReader(records), ByteWriter::default(), false);
    while !reader.is_empty() {
        let before = reader.0;
        let mut record = Record::read(&mut reader).ok()?;
        let is_hit = match &mut record {
            Record::Key(key) if erased.contains_key(&key.number) && !key.is_erased => {
                key.erase();
                true
            }
            Record::Acts(acts) => {
                let mut is_hit = false;
                let of_states = acts.states.iter().any(|(key, _)| erased.contains_key(key));
                let items = acts.holds.iter().filter_map(|(_, hold)| hold.as_ref());
                let of_holds =
                    items.flat_map(|hold| &hold.items).any(|item| erased.contains_key(&item.hash));
                for (_, name) in &mut acts.names {
                    let is_about = |name: &&mut CachedResult| {
                        name.response.hashes().any(|key| erased.contains_key(&key))
                    };
                    if let Some(name) = name.as_mut().filter(|name| is_about(name)) {
                        // It is a hash of the names, among other things.
                        (name.body, is_hit) = (0, true);
                    }
                }
                for act in &mut acts.acts {
                    // An action without bookings is about the states and holds of its record.
                    let is_about = match &*act.bookings {
                        [] => of_states || of_holds,
                        bookings => bookings.iter().any(|(key, ..)| erased.contains_key(key)),
                    };
                    if let Some(note) = act.note.as_mut().filter(|_| is_about) {
                        *note = "\0".repeat(note.len()).into();
                        is_hit = true;
                    }
                }
                is_hit
            }
            _ => false,
        };
        let start = out.0.len();
        if is_hit {
            record.write(&mut out);
        }
        let len = before.len() - reader.0.len();
        if out.0.len() - start != len {
            out.0.truncate(start);
            out.0.extend_from_slice(&before[..len]);
        }
        is_changed |= is_hit;
    }
    is_changed.then_some(out.0)
}

fn write_marker(disk: &dyn Disk, numbers: &[u64]) -> io::Result<()> {
    let mut out = ByteWriter::default();
    out.list(numbers.iter(), |out, number| out.number(*number));
    let crc = crc32c(&out.0);
    out.0.extend_from_slice(&crc.to_le_bytes());
    let _ = disk.remove(TEMPORARY);
    let mut file = disk.create(TEMPORARY)?;
    file.write_at(0, &out.0)?;
    file.sync()?;
    disk.rename(TEMPORARY, MARKER)?;
    disk.sync_names()
}

fn read_marker(disk: &dyn Disk) -> Result<Option<Vec<u64>>, OpenError> {
    let names = disk.names().map_err(|error| OpenError::disk("list the folder", error))?;
    if !names.iter().any(|name| name == MARKER) {
        return Ok(None);
    }
    let bytes =
        disk.read(MARKER).map_err(|error| OpenError::disk(format!("read {MARKER}"), error))?;
    let numbers = bytes
        .split_last_chunk()
        .filter(|(numbers, crc)| crc32c(numbers) == u32::from_le_bytes(**crc))
        .and_then(|(numbers, _)| ByteReader(numbers).list(ByteReader::number).ok());
    numbers.map(Some).ok_or_else(|| OpenError::Damaged {
        file: MARKER.into(),
        at: 0,
        what: "it should list the names being erased",
    })
}

fn erasing_failed(error: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::disk("erase names", io::Error::other(error))
}

/// Lists what is being erased, until that is done.
const MARKER: &str = "erasing";

const TEMPORARY: &str = "erase.tmp";
