//! The journal of changes for a file store: filled while the hold tables are locked, and handed
//! over before they are unlocked.
//!
//! So records are in the order in which things happened.

#![cfg_attr(
    not(feature = "durable"),
    allow(dead_code, reason = "only a file store records changes")
)]

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

/// Records changes.
pub(crate) trait Sink: fmt::Debug + Send + Sync {
    /// Whether the name of this key is recorded.
    fn knows(&self, hash: u64) -> bool;

    /// Records changes; the hold tables are locked.
    fn write(&self, store: &MemoryStore, tables: &HoldTables, journal: Journal);

    /// Records limits that were added or changed; no decision is made meanwhile.
    fn adopted(&self, limits: &LimitRegistry, tags: &[u32]);
}

/// Changes that are not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) acts: Vec<JournalAction>,
    /// What has to be looked up for the record: states, holds, idempotency keys.
    pub(crate) states: SmallVec<[(u64, Width); INLINE]>,
    pub(crate) holds: SmallVec<[HoldId; 1]>,
    pub(crate) names: SmallVec<[[u64; 2]; 1]>,
    /// New keys.
    pub(crate) keys: SmallVec<[(u64, KeyName); INLINE]>,
    /// Keys that get another number, should they return.
    pub(crate) erased: SmallVec<[u64; 1]>,
    /// The strictest durability of the changes.
    pub(crate) durability: Option<Durability>,
    /// Bookings of the current action.
    bookings: SmallVec<[JournalBooking; INLINE]>,
    /// Whether the current action has changed anything that is recorded.
    is_under_way: bool,
    /// How many holds and idempotency keys were noted before it.
    before: [usize; 2],
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalAction {
    pub(crate) kind: ActionKind,
    pub(crate) at: Timestamp,
    pub(crate) hold: Option<HoldId>,
    pub(crate) note: Option<Box<str>>,
    pub(crate) bookings: SmallVec<[JournalBooking; INLINE]>,
}

/// The kind of an action.
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
    /// A key moved to another limit.
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

/// Units of a key that moved from one account to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalBooking {
    pub(crate) hash: u64,
    pub(crate) entry: JournalTransfer,
    pub(crate) units: u64,
}

/// From which account to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalTransfer {
    /// Granted and charged at once.
    Charged,
    /// Granted and held.
    Held,
    /// Held, and now charged.
    Committed,
    /// Held, and released.
    Cancelled,
    /// Held, and released by expiry.
    Expired,
    /// Charged, and refunded.
    Refunded,
    /// Neither granted nor charged: a commit's cost beyond what the limit charges.
    Forgiven,
}

impl Journal {
    fn is_empty(&self) -> bool {
        self.durability.is_none()
    }

    /// Notes a change that needs this durability.
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

/// Notes changes in the hold tables.
impl HoldTables {
    /// Notes a changed state.
    pub(crate) fn note_state(&mut self, durability: Durability, (limit, hash): (&AnyLimit, u64)) {
        if let Some(journal) = self.journal.as_mut().filter(|_| durability > Durability::Memory) {
            journal.note(durability);
            let state = (hash, Width::of(limit));
            if !journal.states.contains(&state) {
                journal.states.push(state);
            }
        }
    }

    /// Books units that moved from one account to another.
    pub(crate) fn book(&mut self, durability: Durability, booking: JournalBooking) {
        let is_kept = durability > Durability::Memory && booking.units > 0;
        if let Some(journal) = self.journal.as_mut().filter(|_| is_kept) {
            journal.note(durability);
            journal.bookings.push(booking);
        }
    }

    /// Notes an erased key.
    #[cfg(feature = "durable")]
    pub(crate) fn note_erased(&mut self, hash: u64) {
        if let Some(journal) = &mut self.journal {
            journal.note(Durability::Fsync);
            journal.states.extend([(hash, Width::Narrow), (hash, Width::Wide)]);
            journal.erased.push(hash);
        }
    }

    /// Books a refund of an item.
    #[cfg(feature = "durable")]
    pub(crate) fn book_refund(&mut self, item: &HoldItem, units: u64) {
        let booking = JournalBooking { hash: item.hash, entry: JournalTransfer::Refunded, units };
        self.book(item.durability, booking);
    }

    /// Notes a changed hold that needs this durability.
    pub(crate) fn note(&mut self, durability: Durability) {
        if let Some(journal) = self.journal.as_mut().filter(|_| durability > Durability::Memory) {
            journal.note(durability);
        }
    }

    /// Notes a changed hold, and the idempotency key of its request.
    pub(crate) fn note_hold(&mut self, id: HoldId, name: Option<[u64; 2]>) {
        if let Some(journal) = &mut self.journal {
            journal.holds.push(id);
            journal.names.extend(name);
        }
    }

    /// Notes a changed idempotency key.
    pub(crate) fn note_name(&mut self, name: [u64; 2]) {
        if let Some(journal) = &mut self.journal {
            journal.names.push(name);
        }
    }

    /// Ends an action: it consists of everything noted since the last one.
    pub(crate) fn end_act(&mut self, act: JournalAction) {
        let Some(journal) = &mut self.journal else { return };
        if journal.is_under_way {
            journal.is_under_way = false;
            let bookings = std::mem::take(&mut journal.bookings);
            journal.acts.push(JournalAction { bookings, ..act });
        } else {
            // None of it is durable, so its hold and its idempotency key are not recorded, either.
            let [holds, names] = journal.before;
            journal.holds.truncate(holds);
            journal.names.truncate(names);
        }
        journal.before = [journal.holds.len(), journal.names.len()];
    }
}

/// The hold tables, locked. Changes are recorded before they are unlocked.
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
            // Changes without durability are not recorded.
            if !journal.is_empty() {
                sink.write(self.store, &self.tables, journal);
            }
        }
    }
}

impl MemoryStore {
    /// How durable a charge has to be before it is acknowledged.
    pub(crate) fn durability(&self, charge: &Charge<'_>) -> Durability {
        match self.sink {
            None => Durability::Memory,
            Some(_) => charge.durability.max(self.least_durability),
        }
    }
}
