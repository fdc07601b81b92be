//! The form of a value on the server: a mark of what it is, a stamp that no other value has, and the
//! record.

use std::io::Write;
use std::sync::Arc;

use redis::{Cmd, RedisWrite};
use smallvec::SmallVec;

/// What every value begins with: what it is, and the version of the form.
pub(crate) const RECORD: [u8; 4] = *b"tgr2";

/// The length of the part that scripts compare: what it is, and the stamp.
pub(crate) const HEAD: usize = 12;

/// What scripts compare; empty where there is no value.
pub(crate) type Head = SmallVec<[u8; HEAD]>;

/// A value as it was last seen on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// `None` if there is no value.
    pub(crate) stamp: Option<u64>,
    /// `None` if there is no value, or one that says that the record was removed.
    pub(crate) record: Option<Arc<[u8]>>,
}

/// The value is not of this program, or was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign;

impl Cell {
    pub(crate) const ABSENT: Self = Self { stamp: None, record: None };

    /// Reads a value of the server.
    pub(crate) fn read(value: &[u8]) -> Result<Self, Foreign> {
        let (magic, rest) = value.split_first_chunk::<4>().ok_or(Foreign)?;
        let (stamp, record) = rest.split_first_chunk::<8>().ok_or(Foreign)?;
        if *magic != RECORD {
            return Err(Foreign);
        }
        let record = (!record.is_empty()).then(|| Arc::from(record));
        Ok(Self { stamp: Some(u64::from_le_bytes(*stamp)), record })
    }

    /// Whether a value of the server is this one, to the last byte, as `SET … IFEQ` compares.
    pub(crate) fn is_value(&self, value: &[u8]) -> bool {
        let Some(stamp) = self.stamp else { return false };
        let record = value.strip_prefix(&head(stamp)[..]);
        record.is_some_and(|record| record == self.record.as_deref().unwrap_or_default())
    }

    /// Adds the value on the server as an argument of a command.
    pub(crate) fn write(&self, command: &mut Cmd) {
        let mut argument = command.writer_for_next_arg();
        let Some(stamp) = self.stamp else { return };
        let record = self.record.as_deref().unwrap_or_default();
        for part in [&RECORD[..], &stamp.to_le_bytes(), record] {
            // It is memory, so it does not fail.
            let _ = argument.write_all(part);
        }
    }

    /// The part of the value that scripts compare; empty if there is none.
    pub(crate) fn head(&self) -> Head {
        self.stamp.map_or_else(Head::new, head)
    }
}

/// What a value with this stamp begins with.
pub(crate) fn head(stamp: u64) -> Head {
    let mut head = Head::from_slice(&RECORD);
    head.extend_from_slice(&stamp.to_le_bytes());
    head
}

/// A number that no other value has, as far as chance allows.
pub(crate) fn new_stamp() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8) & !TAKES_TURNS
}

/// The bit of a stamp that says that its node takes turns at a key of the group.
pub(crate) const TAKES_TURNS: u64 = 1;
