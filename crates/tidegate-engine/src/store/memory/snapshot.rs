//! All states of an in-memory store, as bytes, for a restart.
//!
//! ```text
//! magic      23 bytes, "tidegate memory states\n", then the version, u32
//! records    as in the log and the snapshots of a file store
//! checksum   u64 over everything before
//! ```
//!
//! A key's number in the records is its hash.

use std::fmt;

use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;
use tidegate_table::locks::{lock, read};

use super::hold_tables::HoldTables;
use super::{MemoryStore, StateImage};
use crate::plan::KeyName;
use crate::store::record::{
    ActionsRecord, ByteReader, ByteWriter, KeyRecord, Record, RoundRecord, RuleImage,
};
use crate::store::replay::{Replay, Threads};

/// Why a snapshot was not restored.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is not a snapshot.
    NotASnapshot,
    /// It was made by another version of tidegate, with this number.
    Version(u32),
    /// It is damaged or cut off.
    Damaged,
    /// It has more keys than the store may keep.
    TooManyKeys,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASnapshot => f.write_str("this is not a snapshot of tidegate's states"),
            Self::Version(version) => write!(
                f,
                "the snapshot has format {version}, and this version of tidegate reads {VERSION}: \
                 start without it, or with the version that wrote it"
            ),
            Self::Damaged => f.write_str("the snapshot is damaged or cut off: start without it"),
            Self::TooManyKeys => {
                f.write_str("the snapshot has more keys than max_keys allows: raise max_keys")
            }
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SnapshotError {}

impl MemoryStore {
    /// All states, holds and cached results.
    ///
    /// Decisions may continue; each key is as of some time during the call.
    pub(crate) fn to_bytes(&self, now: Timestamp) -> Vec<u8> {
        let mut out = ByteWriter(MAGIC.to_vec());
        out.0.extend_from_slice(&VERSION.to_le_bytes());
        Record::Seed(self.hash.to_words()).write(&mut out);
        for (domain, closed) in self.all_rounds() {
            let (at, note) = (Timestamp::ZERO, None);
            Record::Round(RoundRecord { at, domain, closed, note }).write(&mut out);
        }
        // No hold is settled meanwhile, so that states and holds agree.
        let tables = lock(&self.tables);
        for rule in read(&self.history).rules() {
            Record::Rule(Box::new(RuleImage::of_change(None, rule))).write(&mut out);
        }
        let mut states: Vec<(u64, Option<StateImage>)> = Vec::new();
        self.for_each_image(|hash, image| states.push((hash, Some(image))));
        write_keys(&states, &tables, &mut out);
        let fence = tables.last_fence();
        let acts = ActionsRecord {
            acts: Vec::new(),
            states,
            holds: tables.holds().map(|(id, hold)| (*id, Some(hold.clone()))).collect(),
            names: tables.names().map(|(name, known)| (*name, Some(known.clone()))).collect(),
            fence,
        };
        drop(tables);
        Record::Acts(Box::new(acts)).write(&mut out);
        Record::Clock { now, reuse: self.reuse(), fence }.write(&mut out);
        let checksum = checksum(&out.0);
        out.word(checksum);
        out.0
    }

    /// A store with the states of a snapshot, and the snapshot's time.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        bounds: StoreBounds,
    ) -> Result<(Self, Timestamp), SnapshotError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::NotASnapshot)?;
        let (version, _) = rest.split_first_chunk::<4>().ok_or(SnapshotError::Damaged)?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            version => return Err(SnapshotError::Version(version)),
        }
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or(SnapshotError::Damaged)?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err(SnapshotError::Damaged);
        }
        let records = body.get(MAGIC.len() + 4..).ok_or(SnapshotError::Damaged)?;
        let store = Self::with_bounds(bounds).ok_or(SnapshotError::TooManyKeys)?;
        let (mut replay, mut records) = (Replay::new(store, Threads::None), ByteReader(records));
        while !records.is_empty() {
            replay.apply_next(&mut records).map_err(|_| SnapshotError::Damaged)?;
        }
        if !replay.has_seed {
            return Err(SnapshotError::Damaged);
        }
        let last = replay.last;
        Ok((replay.finish().map_err(|_| SnapshotError::TooManyKeys)?, last))
    }
}

/// Writes the numbers of all keys, and the attributes of those with holds.
fn write_keys(states: &[(u64, Option<StateImage>)], tables: &HoldTables, out: &mut ByteWriter) {
    let mut keys: Vec<(u64, u64)> = states.iter().map(|(hash, _)| (*hash, *hash)).collect();
    let items = || tables.holds().flat_map(|(_, hold)| &hold.items);
    keys.extend(items().map(|item| (item.hash, item.hash)));
    keys.extend(tables.names().flat_map(|(_, known)| known.response.hashes()).map(|it| (it, it)));
    Record::Keys { domain: "".into(), rule: "".into(), keys }.write(out);
    for item in items().filter(|item| !item.key.is_empty()) {
        let parts = item.key.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        let name = KeyName { parts: parts.collect(), ..KeyName::default() };
        let (number, hash, is_erased) = (item.hash, item.hash, false);
        Record::Key(KeyRecord { number, hash, name, is_erased }).write(out);
    }
}

/// FNV-1a over words of eight bytes: detects accidental damage.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().map(|word| u64::from_le_bytes(*word)).fold(0xcbf2_9ce4_8422_2325, mix);
    rest.iter().fold(mix(sum, bytes.len() as u64), |sum, byte| mix(sum, u64::from(*byte)))
}

const MAGIC: &[u8] = b"tidegate memory states\n";
const VERSION: u32 = 2;
