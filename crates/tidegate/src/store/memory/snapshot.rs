//! All states of an in-memory store, as bytes, for a restart.
//!
//! ```text
//! magic      23 bytes, "tidegate memory states\n", then the version, u32
//! seed       words of the key hash
//! rounds     (domain, number)
//! limits     (tag, family, numbers): what the tags below mean
//! narrow     watermark, then (hash, tag, high, low)
//! wide       watermark, then (hash, tag, nine words)
//! holds      (id, length, expires, fence, items) of those that are open, and the last fence
//! checksum   u64 over everything before
//! ```
//!
//! Numbers are little-endian; every list begins with its length. Idempotency keys and settled
//! reservations are not included.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Timestamp;

use super::hold_tables::{Hold, HoldItem};
use super::limits::{MigratedState, RestoredLimit};
use super::slot::SlotLine;
use super::{HoldId, MemoryStore, Several};
use crate::any_limit::AnyLimit;
use crate::hash::KeyedHash;
use crate::locks::{lock, read};
use crate::policy::Durability;
use crate::table::{KeyLocation, Line, Narrow, SlotTable, Tagged, WIDE_WORDS, WhenFull};

/// Why a snapshot was not restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl std::error::Error for SnapshotError {}

impl MemoryStore {
    /// All states and holds.
    ///
    /// Decisions may continue; each key is as of some time during the call.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = SnapshotWriter(Vec::new());
        out.0.extend_from_slice(MAGIC);
        out.u32(VERSION);
        out.list(self.hash.to_words(), |out, word| out.0.extend_from_slice(&word.to_le_bytes()));
        let rounds = lock(&self.rounds);
        out.list(rounds.iter(), |out, (domain, closed)| {
            out.list(domain.bytes(), |out, byte| out.0.push(byte));
            out.u64(closed.load(Ordering::Acquire));
        });
        let tables = lock(&self.tables);
        let limits = read(&self.limits).restorable();
        out.list(limits, |out, RestoredLimit { tag, family, limit, .. }| {
            out.u32(tag);
            out.u64(family);
            out.limit(&limit);
        });
        self.write_table(&mut out, &self.narrow, |out, Narrow { high, low }| {
            out.u32(high);
            out.u64(low);
        });
        self.write_table(&mut out, &self.wide, |out, words| {
            words.into_iter().for_each(|word| out.u64(word));
        });
        let open = tables.holds().filter(|(_, hold)| hold.settled.is_none());
        out.list(open, |out, (id, hold)| out.hold(*id, hold));
        out.u64(tables.last_fence());
        let checksum = checksum(&out.0);
        out.u64(checksum);
        out.0
    }

    fn write_table<P, L>(
        &self,
        out: &mut SnapshotWriter,
        table: &SlotTable<L>,
        write: fn(&mut SnapshotWriter, P),
    ) where
        L: SlotLine + Line<Packed = Tagged<P>>,
        P: Copy,
    {
        out.u64(table.no_earlier_than_reuse(Timestamp::ZERO).as_nanos());
        let mut slots = Vec::new();
        table.for_each_line(|line| {
            let limits = read(&self.limits);
            for slot in line.occupied() {
                let Tagged { tag, .. } = line.load(slot);
                let Some(limit) = limits.limit(tag) else { continue };
                let state = line.line().load_state(slot, &limit);
                let carried =
                    limits.current(MigratedState { tag, limit, state }, Timestamp::ZERO, None);
                let packed = L::pack(carried.tag, &carried.state, line.line().decided_at(slot));
                slots.push((line.fingerprint(slot), packed));
            }
        });
        out.list(slots, |out, (hash, Tagged { tag, packed })| {
            out.u64(hash);
            out.u32(tag);
            write(out, packed);
        });
    }

    /// A store with the states of a snapshot.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        max_keys: usize,
        when_full: WhenFull,
    ) -> Result<Self, SnapshotError> {
        let mut reader = SnapshotReader(bytes);
        if reader.take(MAGIC.len()).map_err(|_| SnapshotError::NotASnapshot)? != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        match reader.u32()? {
            VERSION => {}
            version => return Err(SnapshotError::Version(version)),
        }
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or(SnapshotError::Damaged)?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err(SnapshotError::Damaged);
        }
        let words = reader.list(|reader| reader.u128())?;
        let hash = KeyedHash::from_words(&words).ok_or(SnapshotError::Damaged)?;
        let mut store = Self::new(max_keys, when_full).ok_or(SnapshotError::TooManyKeys)?;
        store.hash = hash;
        for (domain, closed) in reader.list(SnapshotReader::round)? {
            lock(&store.rounds).insert(domain.into(), AtomicU64::new(closed).into());
        }
        let limits = reader.list(SnapshotReader::limit)?;
        store.limits.get_mut().unwrap_or_else(PoisonError::into_inner).restore(limits);
        store.read_table(
            &mut reader,
            |store| &store.narrow,
            |reader| Ok(Narrow { high: reader.u32()?, low: reader.u64()? }),
        )?;
        store.read_table(
            &mut reader,
            |store| &store.wide,
            |reader| {
                let mut words = [0; WIDE_WORDS];
                for word in &mut words {
                    *word = reader.u64()?;
                }
                Ok(words)
            },
        )?;
        let holds = reader.list(SnapshotReader::hold)?;
        let last_fence = reader.u64()?;
        store.restore_holds(holds, last_fence);
        store.unpin(&store.narrow);
        store.unpin(&store.wide);
        Ok(store)
    }

    /// Unpins keys without holds.
    fn unpin<L: SlotLine>(&self, table: &SlotTable<L>) {
        let tables = lock(&self.tables);
        table.for_each_line(|line| {
            let occupied: Several<usize> = line.occupied().collect();
            for slot in occupied {
                let is_held = tables.held(line.fingerprint(slot)) > 0;
                line.header.set_pinned(slot, is_held);
            }
        });
    }

    fn read_table<P, L>(
        &self,
        reader: &mut SnapshotReader<'_>,
        table: fn(&Self) -> &SlotTable<L>,
        read: fn(&mut SnapshotReader<'_>) -> Result<P, SnapshotError>,
    ) -> Result<(), SnapshotError>
    where
        L: SlotLine + Line<Packed = Tagged<P>>,
    {
        let table = table(self);
        table.note_reuse(Timestamp::from_nanos(reader.u64()?));
        let count = reader.u64()?;
        for _ in 0..count {
            let (hash, tag) = (reader.u64()?.max(1), reader.u32()?);
            let packed = Tagged { tag, packed: read(reader)? };
            match table.enter(hash, Timestamp::ZERO, self) {
                KeyLocation::Claimed(mut chain, at) | KeyLocation::Known(mut chain, at) => {
                    let line = chain.line(at.line);
                    line.set_fingerprint(at.slot, hash);
                    line.store(at.slot, packed);
                    // Not to be evicted before its holds are restored.
                    line.header.set_pinned(at.slot, true);
                }
                KeyLocation::Full(_) => return Err(SnapshotError::TooManyKeys),
            }
        }
        Ok(())
    }

    pub(super) fn restore_holds(&self, holds: Vec<(HoldId, Hold)>, last_fence: u64) {
        let mut tables = lock(&self.tables);
        for (id, hold) in holds {
            for item in &hold.items {
                let units = tables.held(item.hash).saturating_add(item.units);
                let limit = read(&self.limits).limit(item.tag);
                match limit {
                    // A cooldown holds nothing.
                    Some(AnyLimit::Cooldown(_)) | None => continue,
                    Some(AnyLimit::Slots(_)) => {}
                    Some(limit) => {
                        let is_held = self.with_slot(&limit, item.hash, |line, slot| {
                            let is_held = item.is_held_in(&line.load_state(slot, &limit));
                            if is_held {
                                line.set_pinned(slot, true);
                            }
                            is_held
                        });
                        // The hold of a period that has closed is not among the held units.
                        if is_held != Some(true) {
                            continue;
                        }
                    }
                }
                tables.set_held(item.hash, units);
            }
            tables.restore_hold(id, hold);
        }
        tables.set_last_fence(last_fence);
    }
}

struct SnapshotWriter(Vec<u8>);

impl SnapshotWriter {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Self, T)) {
        let at = self.0.len();
        self.u64(0);
        let mut count = 0_u64;
        for item in items {
            write(self, item);
            count += 1;
        }
        self.0[at..at + 8].copy_from_slice(&count.to_le_bytes());
    }

    fn limit(&mut self, limit: &AnyLimit) {
        let (algorithm, words) = limit.to_words();
        self.u32(algorithm.into());
        words.into_iter().for_each(|word| self.u64(word));
    }

    fn hold(&mut self, id: HoldId, hold: &Hold) {
        id.0.into_iter().for_each(|word| self.u64(word));
        self.u64(u64::try_from(hold.length.as_nanos()).unwrap_or(u64::MAX));
        self.u64(hold.expires.as_nanos());
        self.u64(hold.fence);
        self.list(&hold.items, |out, item| {
            out.u32(item.tag);
            out.u64(item.hash);
            out.u64(item.units);
            out.u64(item.period);
            out.u32(u32::from(item.is_by_request));
        });
    }
}

struct SnapshotReader<'a>(&'a [u8]);

impl<'a> SnapshotReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, SnapshotError> {
        self.array().map(u128::from_le_bytes)
    }

    fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, SnapshotError>,
    ) -> Result<Vec<T>, SnapshotError> {
        let count = self.u64()?;
        // No item takes less than a byte, so a wrong length does not cost memory.
        if count > self.0.len() as u64 {
            return Err(SnapshotError::Damaged);
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn round(&mut self) -> Result<(String, u64), SnapshotError> {
        let domain = self.list(|reader| reader.array::<1>().map(|[byte]| byte))?;
        let domain = String::from_utf8(domain).map_err(|_| SnapshotError::Damaged)?;
        Ok((domain, self.u64()?))
    }

    fn limit(&mut self) -> Result<RestoredLimit, SnapshotError> {
        let (tag, family, algorithm) = (self.u32()?, self.u64()?, self.u32()?);
        let words = [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        let algorithm = u8::try_from(algorithm).map_err(|_| SnapshotError::Damaged)?;
        let limit = AnyLimit::from_words(algorithm, words).ok_or(SnapshotError::Damaged)?;
        Ok(RestoredLimit::alone(tag, family, limit))
    }

    fn hold(&mut self) -> Result<(HoldId, Hold), SnapshotError> {
        let id = HoldId([self.u64()?, self.u64()?]);
        let length = Duration::from_nanos(self.u64()?);
        let expires = Timestamp::from_nanos(self.u64()?);
        let fence = self.u64()?;
        let items = self.list(|reader| {
            Ok(HoldItem {
                tag: reader.u32()?,
                hash: reader.u64()?,
                units: reader.u64()?,
                period: reader.u64()?,
                is_by_request: reader.u32()? == 1,
                durability: Durability::Memory,
                charged: None,
            })
        })?;
        let items = SmallVec::from_vec(items);
        Ok((id, Hold { items, length, expires, fence, settled: None, name: None }))
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
const VERSION: u32 = 1;
