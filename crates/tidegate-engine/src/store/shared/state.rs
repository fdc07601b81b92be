//! The record of a key: its state, and the units of it that are on hold.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;

use super::records::{Kind, Write};
use super::tickets::Tickets;
use crate::history::{History, StoredState};
use crate::periods::Times;
use crate::store::HoldId;
use crate::store::record::{
    ByteReader, ByteWriter, Malformed, read_item, read_pair, read_state, read_time, time,
    write_item, write_pair, write_state,
};
use crate::transition::{self, EndingHold, HoldItem, KeyState};

/// A key's record.
#[derive(Clone, Debug, Default)]
pub(super) struct StateRecord {
    /// `None` if the key is unknown, and only its fence is kept.
    pub(super) stored: Option<StoredState>,
    /// Units on hold, each with its own end, so that it ends by itself.
    pub(super) held: Vec<HeldEntry>,
    /// The largest fence of a hold so far.
    pub(super) fence: u64,
    /// Those that wait for its slots.
    pub(super) tickets: Tickets,
}

/// Units of a key that a hold has.
#[derive(Clone, Debug)]
pub(super) struct HeldEntry {
    pub(super) id: HoldId,
    pub(super) expires: Timestamp,
    pub(super) fence: u64,
    pub(super) item: HoldItem,
}

impl StateRecord {
    /// Releases what has expired, each at its own time, and drops the tickets that have lapsed.
    pub(super) fn expire(&mut self, history: &History, times: Times) -> bool {
        self.tickets.lapse(times.now);
        let mut due: Vec<HeldEntry> = Vec::new();
        self.held.retain(|entry| {
            let is_due = entry.expires <= times.now;
            if is_due {
                due.push(entry.clone());
            }
            !is_due
        });
        due.sort_by_key(|entry| (entry.expires, entry.id));
        let counted = due.iter().filter(|entry| !history.is_of_slots(entry.item.tag));
        let counted = counted.map(|entry| (entry.expires, &entry.item));
        self.stored =
            transition::released(history, times, KeyState::new(self.stored), counted).stored;
        !due.is_empty()
    }

    /// What its holds release by themselves, in the order of their ends.
    pub(super) fn ending_holds(&self) -> impl Iterator<Item = EndingHold<'_>> {
        let mut held: Vec<&HeldEntry> = self.held.iter().collect();
        held.sort_by_key(|entry| entry.expires);
        held.into_iter().map(|entry| EndingHold { expires: entry.expires, item: &entry.item })
    }

    /// When the next of its holds expires.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.held.iter().map(|entry| entry.expires).min()
    }

    /// The change that writes it. A fence outlives the key.
    pub(super) fn write(&self, hash: u64, history: &History, times: Times) -> Write {
        let is_empty = self.stored.is_none()
            && self.held.is_empty()
            && self.fence == 0
            && self.tickets.is_empty();
        let value = (!is_empty).then(|| self.to_bytes());
        let waits_for = self.tickets.last_expiry().unwrap_or(times.now);
        let waits_for = waits_for.saturating_duration_since(times.now);
        let keep_for = self.needed_for(hash, history, times).map(|it| it.max(waits_for));
        Write { keep_for, ..Write::new(Kind::State(hash), value) }
    }

    /// How long it may be needed, but for its tickets: until all its holds have expired, and the state is as good as a
    /// fresh one. Fences follow the time, so a fence is not needed for longer.
    fn needed_for(&self, hash: u64, history: &History, times: Times) -> Option<Duration> {
        let Some(last) = self.held.iter().map(|entry| entry.expires).max() else {
            return self
                .stored
                .map_or(Some(Duration::ZERO), |stored| history.needed_for(stored, hash, times));
        };
        let last = last.max(times.now);
        let mut after = self.clone();
        after.expire(history, times.at(last));
        let held_for = last.saturating_duration_since(times.now);
        Some(held_for.saturating_add(after.needed_for(hash, history, times.at(last))?))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = ByteWriter(Vec::with_capacity(64));
        out.bytes(STATE_MAGIC);
        out.option(self.stored, |out, StoredState { tag, state }| {
            out.number(tag.into());
            write_state(out, &state);
        });
        out.number(self.fence);
        out.list(self.held.iter(), |out, entry| {
            write_pair(out, entry.id.0);
            time(out, entry.expires);
            out.number(entry.fence);
            write_item(out, &entry.item);
            write_key(out, &entry.item);
        });
        self.tickets.write(&mut out);
        out.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = ByteReader(bytes);
        if from.bytes()? != STATE_MAGIC {
            return Err(Malformed);
        }
        let stored = from.option(|from| {
            let (tag, state) = (from.small()?, read_state(from)?);
            Ok(StoredState { tag, state })
        })?;
        let fence = from.number()?;
        let held = from.list(|from| {
            Ok(HeldEntry {
                id: HoldId(read_pair(from)?),
                expires: read_time(from)?,
                fence: from.number()?,
                item: read_keyed_item(from)?,
            })
        })?;
        let tickets = Tickets::read(&mut from)?;
        if from.is_empty() { Ok(Self { stored, held, fence, tickets }) } else { Err(Malformed) }
    }
}

/// The attributes of an item's key, which overrides by pattern need.
pub(super) fn write_key(out: &mut ByteWriter, item: &HoldItem) {
    out.list(item.key.iter(), |out, (name, value)| {
        out.text(name);
        out.text(value);
    });
}

/// An item, with the attributes of its key.
pub(super) fn read_keyed_item(from: &mut ByteReader<'_>) -> Result<HoldItem, Malformed> {
    let item = read_item(from)?;
    let key = from.list(|from| Ok((from.text()?.into(), from.text()?.into())))?;
    Ok(HoldItem { key: Arc::from(key), ..item })
}

/// What every state begins with: what it is, and the version of the format.
const STATE_MAGIC: &[u8] = b"tgs1";
