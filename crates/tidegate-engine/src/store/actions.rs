//! What may happen to keys, as a store does it, its log records it, and an audit reads it.

#![cfg_attr(
    not(feature = "durable"),
    allow(dead_code, unreachable_pub, reason = "only the ledger of a file store shows them")
)]

use crate::edits::Change;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A request was checked and charged.
    Check,
    /// A reservation was made.
    Reserve,
    /// A reservation was committed.
    Commit,
    /// A reservation was cancelled.
    Cancel,
    /// A reservation expired.
    Expire,
    /// A reservation was extended.
    Renew,
    /// A charge was refunded.
    Refund,
    /// The state of a key was dropped.
    Forget,
    /// Keys became known, and were charged nothing.
    Enrol,
    /// A round of the domain was closed.
    RoundClosed {
        /// How many were closed by then.
        closed: u64,
    },
    /// The policy was edited.
    Edited(Box<Change>),
    /// A note of the host.
    Note,
    /// The names of keys were erased.
    Erased {
        /// How many.
        keys: u64,
    },
    /// A repair has given up entries that could not be read. Its time is that of the entry before.
    Lost {
        /// Their bytes.
        bytes: u64,
    },
}

/// From which account to which units moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transfer {
    /// Granted, and charged at once.
    Charged,
    /// Granted, and held.
    Held,
    /// Held, and now charged.
    Committed,
    /// Held, and released.
    Cancelled,
    /// Held, and released by expiry.
    Expired,
    /// Charged, and refunded.
    Refunded,
    /// Neither granted nor charged: the part of a commit's cost that the limit forgave. No total
    /// contains it.
    Forgiven,
}

/// The kinds of entries that change keys, by their numbers in a record.
pub(crate) static KINDS: [EntryKind; 9] = [
    EntryKind::Check,
    EntryKind::Reserve,
    EntryKind::Commit,
    EntryKind::Cancel,
    EntryKind::Expire,
    EntryKind::Renew,
    EntryKind::Refund,
    EntryKind::Forget,
    EntryKind::Enrol,
];

/// By their numbers in a record.
pub(crate) const TRANSFERS: [Transfer; 7] = [
    Transfer::Charged,
    Transfer::Held,
    Transfer::Committed,
    Transfer::Cancelled,
    Transfer::Expired,
    Transfer::Refunded,
    Transfer::Forgiven,
];
