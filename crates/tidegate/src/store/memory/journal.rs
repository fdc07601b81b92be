//! What a store on disk has to write down: collected while the side tables are locked, and handed over
//! before anybody else can lock them.
//!
//! So what was written down is in the order in which it happened.

#![cfg_attr(not(feature = "durable"), allow(dead_code, reason = "nothing is written down"))]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use smallvec::SmallVec;
use tidegate_core::Timestamp;

#[cfg(feature = "durable")]
use super::hold_tables::HoldItem;
use super::hold_tables::HoldTables;
use super::limits::LimitRegistry;
use super::{MemoryStore, Width};
use crate::any_limit::{AnyLimit, INLINE};
use crate::policy::Durability;
use crate::store::{Charge, HoldId, KeyName, Settlement};

/// Writes down what has changed.
pub(crate) trait Sink: fmt::Debug + Send + Sync {
    /// Whether it has written down whose state this is.
    fn knows(&self, hash: u64) -> bool;

    /// Writes down changes; the side tables are locked.
    fn write(&self, store: &MemoryStore, tables: &HoldTables, journal: Journal);

    /// Writes down limits that have come into force, or changed; nobody decides meanwhile.
    fn adopted(&self, limits: &LimitRegistry, tags: &[u32]);
}

/// Changes that were made and are not written down yet.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) acts: Vec<JournalAction>,
    /// What has to be looked up to be written down: states, holds, names of requests.
    pub(crate) states: SmallVec<[(u64, Width); INLINE]>,
    pub(crate) holds: SmallVec<[HoldId; 1]>,
    pub(crate) names: SmallVec<[[u64; 2]; 1]>,
    /// Keys that nobody has heard of before.
    pub(crate) keys: SmallVec<[(u64, KeyName); INLINE]>,
    /// Keys that get another number, should they come again.
    pub(crate) erased: SmallVec<[u64; 1]>,
    /// As safe as the strictest of them has to be.
    pub(crate) durability: Option<Durability>,
    /// Of the act that is under way.
    bookings: SmallVec<[JournalBooking; INLINE]>,
    /// Whether it has changed anything that is written down.
    is_under_way: bool,
    /// How many holds and names were there before it.
    before: [usize; 2],
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalAction {
    pub(crate) kind: ActionKind,
    pub(crate) at: Timestamp,
    pub(crate) hold: Option<HoldId>,
    pub(crate) note: Option<Box<str>>,
    pub(crate) bookings: SmallVec<[JournalBooking; INLINE]>,
}

/// What it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionKind {
    Check,
    Reserve,
    Commit,
    Cancel,
    Expire,
    Renew,
    Refund,
    Forget,
    /// A key goes on under another limit.
    Carry,
}

impl ActionKind {
    pub(crate) const fn of(settlement: Settlement) -> Self {
        match settlement {
            Settlement::Commit { .. } => Self::Commit,
            Settlement::Cancel => Self::Cancel,
            Settlement::Renew => Self::Renew,
            Settlement::Refund { .. } => Self::Refund,
        }
    }
}

/// Units of a key that went from one account to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalBooking {
    pub(crate) hash: u64,
    pub(crate) entry: JournalTransfer,
    pub(crate) units: u64,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalTransfer {
    /// Granted and spent at once.
    Charged,
    /// Granted and set aside.
    Held,
    /// Set aside, and now spent.
    Committed,
    /// Set aside, and given back.
    Cancelled,
    /// Set aside, and given back because nobody came.
    Expired,
    /// Spent, and given back.
    Refunded,
}

impl Journal {
    fn is_empty(&self) -> bool {
        self.durability.is_none()
    }

    /// Something has changed that has to be so safe.
    fn note(&mut self, durability: Durability) {
        self.durability = self.durability.max(Some(durability));
        self.is_under_way = true;
    }
}

impl JournalAction {
    pub(crate) fn new(kind: ActionKind, at: Timestamp) -> Self {
        Self { kind, at, hold: None, note: None, bookings: SmallVec::new() }
    }
}

/// The side tables of a store that writes down its changes.
impl HoldTables {
    /// A state has changed.
    pub(crate) fn note_state(&mut self, durability: Durability, (limit, hash): (&AnyLimit, u64)) {
        if let Some(journal) = self.journal.as_mut().filter(|_| durability > Durability::Memory) {
            journal.note(durability);
            let state = (hash, Width::of(limit));
            if !journal.states.contains(&state) {
                journal.states.push(state);
            }
        }
    }

    /// Units went from one account to another.
    pub(crate) fn book(&mut self, durability: Durability, booking: JournalBooking) {
        let is_kept = durability > Durability::Memory && booking.units > 0;
        if let Some(journal) = self.journal.as_mut().filter(|_| is_kept) {
            journal.note(durability);
            journal.bookings.push(booking);
        }
    }

    /// A key is gone, and nobody may hear of it again.
    #[cfg(feature = "durable")]
    pub(crate) fn note_erased(&mut self, hash: u64) {
        if let Some(journal) = &mut self.journal {
            journal.note(Durability::Fsync);
            journal.states.extend([(hash, Width::Narrow), (hash, Width::Wide)]);
            journal.erased.push(hash);
        }
    }

    /// An item's units were given back.
    #[cfg(feature = "durable")]
    pub(crate) fn book_refund(&mut self, item: &HoldItem, units: u64) {
        let booking = JournalBooking { hash: item.hash, entry: JournalTransfer::Refunded, units };
        self.book(item.durability, booking);
    }

    /// Something about a hold has changed that has to be so safe.
    pub(crate) fn note(&mut self, durability: Durability) {
        if let Some(journal) = self.journal.as_mut().filter(|_| durability > Durability::Memory) {
            journal.note(durability);
        }
    }

    /// A hold has changed, and with it the name of the request that made it.
    pub(crate) fn note_hold(&mut self, id: HoldId, name: Option<[u64; 2]>) {
        if let Some(journal) = &mut self.journal {
            journal.holds.push(id);
            journal.names.extend(name);
        }
    }

    /// The name of a request has changed.
    pub(crate) fn note_name(&mut self, name: [u64; 2]) {
        if let Some(journal) = &mut self.journal {
            journal.names.push(name);
        }
    }

    /// What was noted since the last act was one.
    pub(crate) fn end_act(&mut self, act: JournalAction) {
        let Some(journal) = &mut self.journal else { return };
        if journal.is_under_way {
            journal.is_under_way = false;
            let bookings = std::mem::take(&mut journal.bookings);
            journal.acts.push(JournalAction { bookings, ..act });
        } else {
            // Nothing about it is kept, so its hold and its name are not, either.
            let [holds, names] = journal.before;
            journal.holds.truncate(holds);
            journal.names.truncate(names);
        }
        journal.before = [journal.holds.len(), journal.names.len()];
    }
}

/// The side tables, locked. Before they are unlocked, changes are written down.
pub(super) struct HoldTablesGuard<'a> {
    store: &'a MemoryStore,
    tables: MutexGuard<'a, HoldTables>,
}

impl<'a> HoldTablesGuard<'a> {
    pub(super) fn new(store: &'a MemoryStore, tables: MutexGuard<'a, HoldTables>) -> Self {
        Self { store, tables }
    }
}

impl Deref for HoldTablesGuard<'_> {
    type Target = HoldTables;

    fn deref(&self) -> &HoldTables {
        &self.tables
    }
}

impl DerefMut for HoldTablesGuard<'_> {
    fn deref_mut(&mut self) -> &mut HoldTables {
        &mut self.tables
    }
}

impl Drop for HoldTablesGuard<'_> {
    fn drop(&mut self) {
        if let (Some(sink), Some(journal)) = (&self.store.sink, &mut self.tables.journal) {
            let journal = std::mem::take(journal);
            // What concerns nothing that has to be safe is not written down.
            if !journal.is_empty() {
                sink.write(self.store, &self.tables, journal);
            }
        }
    }
}

impl MemoryStore {
    /// How safe a charge has to be before it is answered.
    pub(crate) fn durability(&self, charge: &Charge<'_>) -> Durability {
        match self.sink {
            None => Durability::Memory,
            Some(_) => charge.durability.max(self.least_durability),
        }
    }
}
