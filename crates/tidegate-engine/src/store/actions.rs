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

impl EntryKind {
    /// Its name, as tools print it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Reserve => "reserve",
            Self::Commit => "commit",
            Self::Cancel => "cancel",
            Self::Expire => "expire",
            Self::Renew => "renew",
            Self::Refund => "refund",
            Self::Forget => "forget",
            Self::Enrol => "enrol",
            Self::RoundClosed { .. } => "round closed",
            Self::Edited(_) => "edit",
            Self::Note => "note",
            Self::Erased { .. } => "erased",
            Self::Lost { .. } => "lost",
        }
    }

    /// Its number in records, if it changes keys. A number is never used again for another.
    pub(crate) const fn number(&self) -> Option<u8> {
        Some(match self {
            Self::Check => 0,
            Self::Reserve => 1,
            Self::Commit => 2,
            Self::Cancel => 3,
            Self::Expire => 4,
            Self::Renew => 5,
            Self::Refund => 6,
            Self::Forget => 7,
            Self::Enrol => 8,
            Self::RoundClosed { .. }
            | Self::Edited(_)
            | Self::Note
            | Self::Erased { .. }
            | Self::Lost { .. } => return None,
        })
    }

    /// Whether it ends the hold that it names.
    pub(crate) const fn ends_hold(&self) -> bool {
        match self {
            Self::Cancel | Self::Expire => true,
            // A commit can be refunded.
            Self::Check
            | Self::Reserve
            | Self::Commit
            | Self::Renew
            | Self::Refund
            | Self::Forget
            | Self::Enrol
            | Self::RoundClosed { .. }
            | Self::Edited(_)
            | Self::Note
            | Self::Erased { .. }
            | Self::Lost { .. } => false,
        }
    }
}

impl Transfer {
    /// Its name, as tools print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Held => "held",
            Self::Committed => "committed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Refunded => "refunded",
            Self::Forgiven => "forgiven",
        }
    }

    /// Its number in records. A number is never used again for another.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Charged => 0,
            Self::Held => 1,
            Self::Committed => 2,
            Self::Cancelled => 3,
            Self::Expired => 4,
            Self::Refunded => 5,
            Self::Forgiven => 6,
        }
    }
}

/// The kinds of entries that change keys.
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

/// All of them.
pub(crate) const TRANSFERS: [Transfer; 7] = [
    Transfer::Charged,
    Transfer::Held,
    Transfer::Committed,
    Transfer::Cancelled,
    Transfer::Expired,
    Transfer::Refunded,
    Transfer::Forgiven,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_records_stay_as_they_are() {
        let kinds = KINDS.iter().map(|kind| (kind.number().unwrap(), kind.name()));
        let known = "check reserve commit cancel expire renew refund forget enrol";
        assert!(kinds.eq((0..).zip(known.split(' '))));
        let transfers = TRANSFERS.map(|it| (it.number(), it.name()));
        let known = "charged held committed cancelled expired refunded forgiven";
        assert!(transfers.into_iter().eq((0..).zip(known.split(' '))));
    }
}
