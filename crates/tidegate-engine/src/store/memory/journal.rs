//! What has happened, for a store that writes it down.
//!
//! An entry is made while the hold tables are locked, and handed over before they are unlocked. So
//! records are in the order in which things happened.

#![cfg_attr(
    not(feature = "durable"),
    allow(dead_code, reason = "only a file store records changes")
)]

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_policy::policy::Durability;

use super::hold_tables::HoldTables;
use super::{MemoryStore, Width};
use crate::decision::INLINE;
use crate::history::RuleHistory;
use crate::plan::{Charge, KeyName};
use crate::store::HoldId;
use crate::store::actions::{EntryKind, Transfer};

/// Records changes.
pub(crate) trait Sink: fmt::Debug + Send + Sync {
    /// Whether the name of this key has to be recorded, with a hold or without one.
    fn needs_name(&self, hash: u64, is_held: bool) -> bool;

    /// Records what has happened, and returns the number of the record; the hold tables are locked.
    fn write(&self, store: &MemoryStore, tables: &HoldTables, entry: JournalEntry) -> u64;

    /// Records histories of limits that have changed; no decision is made meanwhile.
    fn write_limits(&self, changed: &[LimitsChange]);
}

/// The history of a rule's limits before a change, and after it.
pub(crate) type LimitsChange = (Option<Arc<RuleHistory>>, Arc<RuleHistory>);

/// One action, and everything that it has changed.
#[derive(Clone, Debug)]
pub(crate) struct JournalEntry {
    pub(crate) kind: EntryKind,
    pub(crate) at: Timestamp,
    pub(crate) hold: Option<HoldId>,
    pub(crate) note: Option<Box<str>>,
    /// Whose note it is.
    pub(crate) author: Author,
    pub(crate) bookings: SmallVec<[JournalBooking; INLINE]>,
    /// What has to be looked up for the record: states, holds, idempotency keys.
    pub(crate) states: SmallVec<[(u64, Width); INLINE]>,
    pub(crate) holds: SmallVec<[HoldId; 1]>,
    pub(crate) names: SmallVec<[[u64; 2]; 1]>,
    /// New keys.
    pub(crate) keys: SmallVec<[(u64, KeyName); INLINE]>,
    /// Keys that get another number, should they return.
    pub(crate) erased: SmallVec<[u64; 1]>,
    /// The strictest durability of the changes; `None` if nothing of it is durable.
    pub(crate) durability: Option<Durability>,
}

/// Who has written a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The caller.
    Host,
    /// The engine, which did it by itself.
    Engine,
}

/// Units of a key that moved from one account to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalBooking {
    pub(crate) hash: u64,
    pub(crate) entry: Transfer,
    pub(crate) units: u64,
}

impl JournalEntry {
    pub(crate) fn new(kind: EntryKind, at: Timestamp) -> Self {
        Self {
            kind,
            at,
            hold: None,
            note: None,
            author: Author::Host,
            bookings: SmallVec::new(),
            states: SmallVec::new(),
            holds: SmallVec::new(),
            names: SmallVec::new(),
            keys: SmallVec::new(),
            erased: SmallVec::new(),
            durability: None,
        }
    }

    /// Notes that something has changed which needs this durability. Returns whether it is recorded.
    pub(crate) fn note(&mut self, durability: Durability) -> bool {
        let is_durable = durability > Durability::Memory;
        if is_durable {
            self.durability = self.durability.max(Some(durability));
        }
        is_durable
    }

    /// Notes a changed state.
    pub(crate) fn note_state(&mut self, durability: Durability, hash: u64, width: Width) {
        if self.note(durability) && !self.states.contains(&(hash, width)) {
            self.states.push((hash, width));
        }
    }

    /// Books units that moved from one account to another.
    pub(crate) fn book(&mut self, durability: Durability, booking: JournalBooking) {
        if booking.units > 0 && self.note(durability) {
            self.bookings.push(booking);
        }
    }
}

impl MemoryStore {
    /// Hands an entry to the journal, if there is one and something of it is durable; returns the
    /// number of its record.
    pub(super) fn record(&self, tables: &HoldTables, entry: JournalEntry) -> Option<u64> {
        match (&self.sink, entry.durability) {
            (Some(sink), Some(_)) => Some(sink.write(self, tables, entry)),
            _ => None,
        }
    }

    /// How durable a change has to be before it is acknowledged.
    pub(super) fn durable(&self, durability: Durability) -> Durability {
        match self.sink {
            None => Durability::Memory,
            Some(_) => durability.max(self.least_durability),
        }
    }

    /// How durable a charge has to be before it is acknowledged.
    pub(crate) fn durability(&self, charge: &Charge) -> Durability {
        self.durable(charge.terms.durability)
    }
}
