//! Erases the names of keys: the name goes, the totals stay.
//!
//! Records refer to keys by numbers, and one record has the name of a number. That record is
//! overwritten, with notes about the key, in copies of the segments that have them, and each copy
//! replaces its segment. A marker file with what is being erased makes sure that it is finished
//! after a crash.

use std::collections::HashMap;
use std::io;

use tidegate_core::Timestamp;
use tidegate_log::{
    Disk, LogError, Segments, begin_erasing, finish_erasing, remove_copies, unfinished_erasing,
};
use tidegate_policy::policy::Durability;

use super::keys::logged_value;
use super::{FileStore, FileStoreInner, OpenError};
use crate::periods::Times;
use crate::store::block_on;
use crate::store::memory::CachedResult;
use crate::store::record::{ByteReader, ByteWriter, KeyRecord, Record};

impl FileStore {
    /// Erases the names of all keys in which an attribute has a value; returns how many. The same
    /// as [`StoreEngine::erase`](crate::StoreEngine::erase), without an engine.
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
            remove_copies(&*self.shared.disk, |bytes| contains(bytes, value.as_bytes()))?;
            return Ok(0);
        }
        let numbers: Vec<u64> = found.keys().copied().collect();
        let mut out = ByteWriter::default();
        out.list(numbers.iter(), |out, number| out.number(*number));
        begin_erasing(&*self.shared.disk, &out.0)?;
        self.shared.erase_keys(&found, times)?;
        Ok(numbers.len() as u64)
    }
}

impl FileStoreInner {
    /// Finishes what an earlier process had begun to erase.
    pub(super) fn finish_erasing(&self, times: Times) -> Result<(), OpenError> {
        let decode = |bytes: &[u8]| ByteReader(bytes).list(ByteReader::number);
        let Some(numbers) = unfinished_erasing(&*self.disk, decode)? else { return Ok(()) };
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
        Ok(finish_erasing(&*self.disk, |batch| blanked(batch, found))?)
    }
}

fn contains(bytes: &[u8], value: &[u8]) -> bool {
    !value.is_empty() && bytes.windows(value.len()).any(|window| window == value)
}

/// Numbers and hashes of the matching keys.
fn find_keys(
    disk: &dyn Disk,
    matches: impl Fn(&KeyRecord) -> bool,
) -> Result<HashMap<u64, u64>, LogError> {
    let mut found = HashMap::new();
    Segments::read(disk, None)?.for_each(disk, |batch| {
        Record::each(batch, |record| match record {
            Record::Key(key) if matches(&key) => {
                found.insert(key.number, key.hash);
            }
            _ => {}
        })
    })?;
    Ok(found)
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

fn erasing_failed(error: impl std::error::Error + Send + Sync + 'static) -> LogError {
    LogError::disk("erase names", io::Error::other(error))
}
