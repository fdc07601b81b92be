//! A store chosen when the program starts.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::Timestamp;
use tidegate_policy::StoreBounds;
use tidegate_table::hash::KeyedHash;

use super::file::{FileOptions, FileStore, OpenError};
use super::memory::MemoryStore;
use super::shared::SharedStore;
use super::{
    Adoption, Deciding, EnrolFailure, ForgetScope, HoldId, MakeClock, NoClock, NowOrLater, Outage,
    RefundFailure, SettleFailure, Settled, StoredEdits, sealed,
};
use crate::any_limit::Decisions;
use crate::cycle::Times;
use crate::edits::{Change, Overlay};
use crate::history::History;
use crate::plan::{FastCharge, FastCharges, Plan, SettleCall};

/// One of the stores, chosen when the program starts.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a process has one, and every decision uses it")]
pub enum AnyStore {
    /// States in memory.
    Memory(MemoryStore),
    /// States in a folder.
    File(FileStore),
    /// States that several engines share.
    Shared(SharedStore),
}

impl AnyStore {
    /// The store of a folder, or one in memory if there is none.
    pub(crate) fn open(folder: Option<&Path>, bounds: StoreBounds) -> Result<Self, OpenError> {
        let no_memory = || OpenError::disk("make a table", io::ErrorKind::OutOfMemory.into());
        match folder {
            Some(folder) => FileOptions::default().bounds(bounds).open(folder).map(Self::File),
            None => MemoryStore::with_bounds(bounds).map(Self::Memory).ok_or_else(no_memory),
        }
    }
}

/// The same call on either store.
macro_rules! either {
    ($store:expr, $it:ident => $call:expr) => {
        match $store {
            AnyStore::Memory($it) => $call,
            AnyStore::File($it) => $call,
            AnyStore::Shared($it) => $call,
        }
    };
}

impl sealed::Store for AnyStore {
    const IS_IMMEDIATE: bool = false;

    type DefaultClock<C> = NoClock;

    fn default_clock<C>(_: MakeClock<C>) -> MakeClock<NoClock> {
        Box::new(|_| NoClock)
    }

    #[inline]
    fn answers_later(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    fn shared(&self) -> Option<&SharedStore> {
        match self {
            Self::Shared(store) => Some(store),
            Self::Memory(_) | Self::File(_) => None,
        }
    }

    #[inline]
    fn decide(&self, plan: &Plan<'_>, times: Times, decisions: &mut Decisions) -> Deciding<'_> {
        either!(self, it => it.decide(plan, times, decisions))
    }

    #[inline]
    fn decides_fast(&self) -> bool {
        either!(self, it => it.decides_fast())
    }

    #[inline]
    fn decide_fast(&self, charges: FastCharges<'_>, decisions: &mut Decisions) -> Option<bool> {
        either!(self, it => it.decide_fast(charges, decisions))
    }

    #[inline]
    fn fetch(&self, charge: &FastCharge<'_>) {
        either!(self, it => it.fetch(charge));
    }

    fn settle(
        &self,
        id: HoldId,
        call: SettleCall<'_>,
        times: Times,
    ) -> NowOrLater<'_, Result<Settled, SettleFailure>> {
        either!(self, it => it.settle(id, call, times))
    }

    fn refund(&self, plan: &Plan<'_>, times: Times) -> NowOrLater<'_, Result<u64, RefundFailure>> {
        either!(self, it => it.refund(plan, times))
    }

    fn enrol(&self, plan: &Plan<'_>, times: Times) -> NowOrLater<'_, Result<u64, EnrolFailure>> {
        either!(self, it => it.enrol(plan, times))
    }

    fn forget(&self, plan: &Plan<'_>, times: Times) -> NowOrLater<'_, Result<bool, RefundFailure>> {
        either!(self, it => it.forget(plan, times))
    }

    fn forget_all(
        &self,
        scope: ForgetScope<'_>,
        times: Times,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        either!(self, it => it.forget_all(scope, times))
    }

    fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        either!(self, it => it.adopt(adoption, times));
    }

    fn expire(&self, times: Times) -> bool {
        either!(self, it => it.expire(times))
    }

    fn next_due(&self) -> Option<Timestamp> {
        either!(self, it => it.next_due())
    }

    fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        either!(self, it => it.rounds(domain))
    }

    fn close_round(
        &self,
        domain: &str,
        note: Option<&str>,
        times: Times,
    ) -> NowOrLater<'_, Result<u64, Outage>> {
        either!(self, it => it.close_round(domain, note, times))
    }

    fn store_edits(&self, overlay: &Overlay, changes: &[Change]) -> Result<(), Outage> {
        either!(self, it => it.store_edits(overlay, changes))
    }

    fn stored_edits(&self) -> StoredEdits {
        either!(self, it => it.stored_edits())
    }

    fn last_time(&self) -> Timestamp {
        either!(self, it => sealed::Store::last_time(it))
    }

    #[inline]
    fn hash(&self) -> &KeyedHash {
        either!(self, it => it.hash())
    }

    fn history(&self) -> Arc<History> {
        either!(self, it => it.history())
    }

    fn len(&self) -> usize {
        either!(self, it => sealed::Store::len(it))
    }

    fn evicted_idempotency_keys(&self) -> u64 {
        either!(self, it => it.evicted_idempotency_keys())
    }

    fn bytes(&self) -> usize {
        either!(self, it => it.bytes())
    }
}
