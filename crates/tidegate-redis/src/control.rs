//! The record of the policy: a copy that is never too old, and changes that take force ahead of
//! time, so that all nodes know of them by then.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;

use crate::frame::{Cell, Foreign};

/// The record of the policy as it was last read.
#[derive(Clone, Debug)]
pub(crate) struct ControlCopy {
    /// The value on the server.
    pub(crate) cell: Cell,
    /// When the newer of its two records takes force, in microseconds since 1970.
    force_us: u64,
    /// What is in force until then.
    before: Option<Arc<[u8]>>,
    after: Option<Arc<[u8]>>,
    /// When the request for it was sent, by the local clock.
    pub(crate) read_ns: u64,
}

impl ControlCopy {
    pub(crate) fn read(cell: Cell, read_ns: u64) -> Result<Self, Foreign> {
        let Some(record) = &cell.record else {
            return Ok(Self { cell, force_us: 0, before: None, after: None, read_ns });
        };
        let (force, rest) = record.split_first_chunk::<8>().ok_or(Foreign)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(Foreign)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Foreign)?;
        let (before, after) = rest.split_at_checked(length).ok_or(Foreign)?;
        if after.is_empty() {
            return Err(Foreign);
        }
        let before = (!before.is_empty()).then(|| Arc::from(before));
        let (force_us, after) = (u64::from_le_bytes(*force), Some(Arc::from(after)));
        Ok(Self { cell, force_us, before, after, read_ns })
    }

    /// The record in force, by the latest time that the server can have.
    pub(crate) fn in_force(&self, latest: Timestamp) -> Option<&Arc<[u8]>> {
        if self.is_settled(latest) { self.after.as_ref() } else { self.before.as_ref() }
    }

    /// When its newest change takes force, in microseconds since 1970; 0 if at once.
    pub(crate) fn force_us(&self) -> u64 {
        self.force_us
    }

    /// Whether its newest change is in force.
    pub(crate) fn is_settled(&self, time: Timestamp) -> bool {
        time.as_nanos() / 1_000 >= self.force_us
    }

    /// Whether it is too old to decide by.
    pub(crate) fn is_old(&self, local_ns: u64, lead: Duration) -> bool {
        let age_ns = u128::from(local_ns.saturating_sub(self.read_ns));
        // The local clock may be slow.
        age_ns + age_ns / 1_000 > lead.as_nanos()
    }

    /// The record that puts another one into force at a time; where there is none, at once.
    pub(crate) fn changed(&self, after: &[u8], force_us: u64) -> Vec<u8> {
        let before = self.after.as_deref().unwrap_or_default();
        let force_us = if before.is_empty() { 0 } else { force_us };
        let length = u32::try_from(before.len()).unwrap_or(u32::MAX);
        [&force_us.to_le_bytes()[..], &length.to_le_bytes(), before, after].concat()
    }
}
