//! The form of a value on the server: a mark of what it is, a stamp that no other value has, and the
//! record.

use std::sync::Arc;

/// What every value begins with: what it is, and the version of the form.
const MAGIC: &[u8; 4] = b"tgr1";

/// The length of the part that comes before the record.
pub(crate) const HEAD: usize = 12;

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
        if magic != MAGIC {
            return Err(Foreign);
        }
        let record = (!record.is_empty()).then(|| Arc::from(record));
        Ok(Self { stamp: Some(u64::from_le_bytes(*stamp)), record })
    }

    /// The value on the server; empty if there is none.
    pub(crate) fn value(&self) -> Vec<u8> {
        self.stamp.map_or_else(Vec::new, |stamp| value(stamp, self.record.as_deref()))
    }

    /// The part of the value that scripts compare; empty if there is none.
    pub(crate) fn head(&self) -> Vec<u8> {
        self.stamp.map_or_else(Vec::new, head)
    }
}

/// A value with this stamp; without a record, one that says that it was removed.
pub(crate) fn value(stamp: u64, record: Option<&[u8]>) -> Vec<u8> {
    let mut value = head(stamp);
    value.extend_from_slice(record.unwrap_or_default());
    value
}

/// What a value with this stamp begins with.
pub(crate) fn head(stamp: u64) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD + 64);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&stamp.to_le_bytes());
    head
}

/// A number that no other value has, as far as chance allows.
pub(crate) fn new_stamp() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8)
}
