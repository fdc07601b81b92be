//! Stands for the store of a folder where the crate is built without it. There is none.

use tidegate_core::Timestamp;
use tidegate_policy::policy::Durability;

use super::{Answer, Decided, Failure, MemoryStore, Outage, StoredEdits};
use crate::decision::Decisions;
use crate::edits::{Change, Overlay};
use crate::periods::Times;
use crate::plan::Plan;

#[derive(Debug)]
pub(crate) enum FileStore {}

impl FileStore {
    pub(super) fn table(&self) -> &MemoryStore {
        match *self {}
    }

    pub(crate) fn last_time(&self) -> Timestamp {
        match *self {}
    }

    pub(super) fn durability(&self, _: &Plan<'_>) -> Durability {
        match *self {}
    }

    pub(super) fn durably<T, E>(
        &self,
        _: Durability,
        _: Option<&str>,
        _: impl FnOnce() -> Result<T, E>,
    ) -> Answer<Result<T, E>> {
        match *self {}
    }

    pub(super) fn decide(
        &self,
        _: &Plan<'_>,
        _: Times,
        _: &mut Decisions,
    ) -> Result<Decided, Failure> {
        match *self {}
    }

    pub(super) fn close_round(&self, _: &str, _: Option<&str>, _: Times) -> u64 {
        match *self {}
    }

    pub(super) fn store_edits(&self, _: &Overlay, _: &[Change]) -> Result<(), Outage> {
        match *self {}
    }

    pub(super) fn stored_edits(&self) -> StoredEdits {
        match *self {}
    }
}
