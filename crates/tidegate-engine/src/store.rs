//! Where an engine keeps its states, in one of two ways: in a table in memory, with a log in a folder or
//! without one, or in records that several engines share.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::Timestamp;
use tidegate_policy::policy::Durability;
use tidegate_table::SystemClock;
use tidegate_table::hash::KeyedHash;
use tidegate_table::waiting::WaitQueues;

use crate::decision::Decisions;
use crate::edits::{Change, ChangeLog, Overlay};
use crate::engine_clock::EngineClock;
use crate::history::{History, RuleHistory};
pub(crate) use crate::hold_id::HoldId;
use crate::periods::Times;
use crate::plan::Plan;
#[cfg(feature = "durable")]
use file::FileStore;
#[cfg(not(feature = "durable"))]
use no_file::FileStore;
use settlement::SettleCall;
use shared::{RecordKey, SharedStore};

pub(crate) mod actions;
pub(crate) mod answer;
#[cfg(feature = "durable")]
pub(crate) mod file;
mod memory;
#[cfg(not(feature = "durable"))]
mod no_file;
mod record;
#[cfg(feature = "durable")]
mod replay;
pub(crate) mod settlement;
pub(crate) mod shared;

use answer::BoxFuture;
pub(crate) use answer::block_on;
pub use answer::{Answer, AnswerFuture};
pub use memory::MemoryStore;

/// The result of a decision. The decisions of the limits are in the caller's buffer, or came from
/// elsewhere.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) is_allowed: bool,
    pub(crate) hold: Option<NewHold>,
    /// Whether it is the cached result of the same request.
    #[cfg_attr(
        not(feature = "durable"),
        allow(dead_code, reason = "only a file store undoes decisions")
    )]
    pub(crate) is_repeat: bool,
    /// The number of its record in the journal, if it has one.
    #[cfg_attr(
        not(feature = "durable"),
        allow(dead_code, reason = "only a file store records changes")
    )]
    pub(crate) record: Option<u64>,
    /// Ready, or when the decision is durable: before that it may not be returned.
    pub(crate) durable: Answer<Result<(), Outage>>,
    /// What came with it from a store that other engines share.
    pub(crate) elsewhere: Option<Box<DecidedElsewhere>>,
}

impl Decided {
    /// Of a decision that made no hold and is in no journal.
    pub(crate) const fn new(is_allowed: bool) -> Self {
        let durable = Answer::Ready(Ok(()));
        Self { is_allowed, hold: None, is_repeat: false, record: None, durable, elsewhere: None }
    }

    /// Of a decision that was made at another time, by records.
    pub(crate) fn elsewhere(is_allowed: bool, elsewhere: DecidedElsewhere) -> Self {
        Self { elsewhere: Some(Box::new(elsewhere)), ..Self::new(is_allowed) }
    }
}

/// What a decision over records that engines share has beyond the verdict.
#[derive(Clone, Debug)]
pub(crate) struct DecidedElsewhere {
    /// When it was decided.
    pub(crate) times: Times,
    pub(crate) decisions: Decisions,
    /// When the next hold of a key concerned expires.
    pub(crate) next_expiry: Option<Timestamp>,
    /// The ticket's new position; `None` if the request was denied before it queued.
    pub(crate) ticket: Option<TicketOutcome>,
}

impl DecidedElsewhere {
    pub(crate) const fn new(times: Times, decisions: Decisions) -> Self {
        Self { times, decisions, next_expiry: None, ticket: None }
    }
}

/// Where the ticket of a waiter for a slot is after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketOutcome {
    /// It is not in the record, or not any more.
    Gone,
    /// It is in the record of this state.
    Waits { queue: u64 },
    /// There was no room for it.
    Full,
}

/// Resolves when a decision is durable.
pub(crate) type Durable = BoxFuture<Result<(), Outage>>;

/// Why a store did not complete an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// It cannot write: its disk is full or broken, or its server cannot be reached.
    Unavailable,
    /// The connection was lost on the way: the operation may have happened, or not.
    Unknown,
    /// A record has a value that is not of this program, or of another version of it.
    Corrupt(RecordKey),
    /// The policy cannot be shared: it has no form as text, as those of other programs' files.
    NotText,
    /// Its states are not in a folder, so it has no ledger.
    NoLedger,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable => f.write_str(
                "the store cannot write: its disk is full or broken, or its server cannot be reached",
            ),
            Self::Unknown => {
                f.write_str("the store did not answer: the operation may have happened, or not")
            }
            Self::Corrupt(key) => write!(f, "the store has a foreign value under `{key}`"),
            Self::NotText => f.write_str("the policy cannot be shared: it has no form as text"),
            Self::NoLedger => f.write_str("the engine has no ledger: its states are not in a folder"),
        }
    }
}

tidegate_core::debug_as_displayed!(Outage);

impl std::error::Error for Outage {}

/// Units on hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewHold {
    pub(crate) id: HoldId,
    pub(crate) expires: Timestamp,
    /// Larger than the fence of every hold before.
    pub(crate) fence: u64,
}

/// Why an operation was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The plan was made from rules that are no longer in force: it has to be made again.
    Superseded,
    /// The store does not know the rules yet.
    NotAdopted,
    /// The idempotency key belongs to another request.
    OtherBody,
    /// A maximum of open holds is reached.
    TooManyHolds(HoldBound),
    /// The store has as many keys as it may have.
    NoRoom,
    /// The hold to be settled is gone: it expired, or never existed.
    Gone,
    /// The hold was committed before, and these units were charged.
    Committed { units: u64 },
    /// The hold was cancelled before.
    Cancelled,
    /// The store is unavailable, or its answer was lost.
    Outage(Outage),
}

impl From<Outage> for Failure {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

/// The maximum of open reservations and leases that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldBound {
    /// That of the store.
    Store {
        /// The maximum.
        most: usize,
    },
    /// That of a domain.
    Domain {
        /// The maximum.
        most: usize,
    },
    /// That of a key.
    Key {
        /// The maximum.
        most: usize,
    },
    /// That of all records of a shared store.
    Records {
        /// The maximum.
        most: usize,
    },
}

impl fmt::Display for HoldBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { most } => write!(f, "the store has {most} open reservations and leases"),
            Self::Domain { most } => {
                write!(f, "the domain has {most} open reservations and leases")
            }
            Self::Key { most } => write!(f, "the key has {most} open reservations"),
            Self::Records { most } => write!(f, "the store has {most} records (max_keys)"),
        }
    }
}

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Units charged, or returned: the most of any of the limits.
    pub(crate) units: u64,
    /// What of a commit is owed by the next periods.
    pub(crate) debt: u64,
    /// What of a commit was not charged.
    pub(crate) forgiven: u64,
    /// Whether it was settled before, in the same way.
    pub(crate) is_repeat: bool,
    pub(crate) expires: Timestamp,
    pub(crate) fence: u64,
    /// The queues to wake.
    pub(crate) queues: FreedQueues,
}

impl Settled {
    /// Of a settlement that charged nothing and released nothing.
    pub(crate) const NOTHING: Self = Self {
        units: 0,
        debt: 0,
        forgiven: 0,
        is_repeat: false,
        expires: Timestamp::ZERO,
        fence: 0,
        queues: FreedQueues::All,
    };
}

/// The queues that may wait for released units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedQueues {
    /// The queue for slots of the state with this hash.
    One(u64),
    /// All queues.
    All,
}

impl FreedQueues {
    /// Wakes their waiters.
    pub(crate) fn wake(self, waiting: &WaitQueues) {
        match self {
            Self::One(queue) => waiting.wake(queue),
            Self::All => waiting.wake_all(),
        }
    }
}

/// The edits that a store has from before the restart.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredEdits {
    pub(crate) overlay: Overlay,
    pub(crate) changes: ChangeLog,
}

/// A new set of rules, as a store needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adoption {
    pub(crate) version: u64,
    /// The histories of the rules whose limits have changed.
    pub(crate) rules: Vec<Arc<RuleHistory>>,
}

/// Which keys to forget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForgetScope<'a> {
    /// Their rules, by family; `None`: all.
    pub(crate) families: Option<&'a HashSet<u64>>,
    /// A note for the ledger.
    pub(crate) note: Option<&'a str>,
}

impl ForgetScope<'_> {
    /// Whether keys of this rule are forgotten.
    pub(crate) fn has(&self, family: u64) -> bool {
        self.families.is_none_or(|families| families.contains(&family))
    }
}

/// Where an engine keeps its states: in a [table in memory](MemoryStore), in one with a log in a
/// [folder](crate::durable::FileStore), or in [records that several engines share](crate::shared::SharedStore).
///
/// All of them make the same decisions.
#[derive(Debug)]
pub struct Store(StoreKind);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "an engine has one, and every decision uses it")]
enum StoreKind {
    Memory(MemoryStore),
    #[cfg_attr(not(feature = "durable"), allow(dead_code, reason = "only the file store makes it"))]
    File(FileStore),
    Shared(SharedStore),
}

impl From<MemoryStore> for Store {
    fn from(store: MemoryStore) -> Self {
        Self(StoreKind::Memory(store))
    }
}

#[cfg(feature = "durable")]
impl From<FileStore> for Store {
    fn from(store: FileStore) -> Self {
        Self(StoreKind::File(store))
    }
}

impl From<SharedStore> for Store {
    fn from(store: SharedStore) -> Self {
        Self(StoreKind::Shared(store))
    }
}

/// A table in memory, and the log of its changes, if it has one.
#[derive(Clone, Copy, Debug)]
struct Local<'s> {
    table: &'s MemoryStore,
    log: Option<&'s FileStore>,
}

impl<'s> Local<'s> {
    /// Applies an operation to the table, and answers once it is as durable as it needs to be. `note` is
    /// the text that is written with it.
    #[inline]
    fn durably<T: Send + 'static, E: From<Outage> + Send + 'static>(
        self,
        need: Durability,
        note: Option<&str>,
        apply: impl FnOnce(&'s MemoryStore) -> Result<T, E>,
    ) -> Answer<Result<T, E>> {
        match self.log {
            Some(log) if need > Durability::Memory => log.durably(need, note, || apply(self.table)),
            _ => Answer::Ready(apply(self.table)),
        }
    }

    /// How durable a plan has to be before it is acknowledged.
    fn need(self, plan: &Plan<'_>) -> Durability {
        self.log.map_or(Durability::Memory, |log| log.durability(plan))
    }
}

impl Store {
    #[inline(always)]
    fn local(&self) -> Result<Local<'_>, &SharedStore> {
        match &self.0 {
            StoreKind::Memory(table) => Ok(Local { table, log: None }),
            StoreKind::File(log) => Ok(Local { table: log.table(), log: Some(log) }),
            StoreKind::Shared(store) => Err(store),
        }
    }

    #[cfg(test)]
    pub(crate) fn table(&self) -> &MemoryStore {
        self.local().expect("its states are in a table").table
    }

    /// The records that it shares with other engines, if it does.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&SharedStore> {
        self.local().err()
    }

    /// The folder, if there is one.
    #[cfg(feature = "durable")]
    pub(crate) fn file(&self) -> Option<&FileStore> {
        self.local().ok()?.log
    }

    /// Whether changes are written to a log.
    #[inline(always)]
    pub(crate) fn has_log(&self) -> bool {
        matches!(self.0, StoreKind::File(_))
    }

    /// Whether every result is ready at once.
    #[inline]
    pub(crate) fn is_immediate(&self) -> bool {
        matches!(self.0, StoreKind::Memory(_))
    }

    /// The clock of an engine on it, unless another one is set.
    pub(crate) fn default_clock(&self) -> EngineClock {
        match self.local() {
            Ok(local) => {
                let last = local.log.map_or(Timestamp::ZERO, FileStore::last_time);
                EngineClock::System(SystemClock::no_earlier_than(last))
            }
            Err(shared) => EngineClock::Given(shared.clock_of_records()),
        }
    }

    /// The latest time that it knows from before the restart.
    pub(crate) fn last_time(&self) -> Timestamp {
        let log = self.local().ok().and_then(|local| local.log);
        log.map_or(Timestamp::ZERO, FileStore::last_time)
    }

    /// Makes one whole decision: everything is charged, or nothing.
    #[inline]
    pub(crate) fn decide(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Answer<Result<Decided, Failure>> {
        match self.local() {
            Ok(Local { table, log }) => match log {
                Some(log) if !plan.act.is_look() && log.durability(plan) > Durability::Memory => {
                    Answer::Ready(log.decide(plan, times, decisions))
                }
                _ => Answer::Ready(table.decide(plan, times, decisions)),
            },
            Err(shared) => shared.decide(plan, times),
        }
    }

    /// The table, if the fast path may decide: without a log, and without other engines.
    #[inline(always)]
    pub(crate) fn fast_table(&self) -> Option<&MemoryStore> {
        match &self.0 {
            StoreKind::Memory(table) => Some(table),
            StoreKind::File(_) | StoreKind::Shared(_) => None,
        }
    }

    /// Ends or extends a hold, or refunds what it charged.
    pub(crate) fn settle(
        &self,
        id: HoldId,
        call: SettleCall<'_>,
        times: Times,
    ) -> Answer<Result<Settled, Failure>> {
        match self.local() {
            Ok(local) => {
                let need = local.log.and_then(|_| local.table.durability_of_hold(id));
                local.durably(need.unwrap_or(Durability::Memory), call.note, |table| {
                    table.settle(id, call, times)
                })
            }
            Err(shared) => shared.settle(id, call, times),
        }
    }

    /// Refunds the cost of a plan to each of its limits, as far as it was charged; once for
    /// each idempotency key.
    pub(crate) fn refund(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<u64, Failure>> {
        match self.local() {
            Ok(local) => local.durably(local.need(plan), plan.note, |it| it.refund(plan, times)),
            Err(shared) => shared.refund(plan, times),
        }
    }

    /// Makes the keys of a plan known, and returns how many were not.
    pub(crate) fn enrol(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<u64, Failure>> {
        match self.local() {
            // Also what was known before may not be durable yet.
            Ok(local) => local.durably(local.need(plan), plan.note, |it| it.enrol(plan, times)),
            Err(shared) => shared.enrol(plan, times),
        }
    }

    /// Drops the states of a plan's keys.
    pub(crate) fn forget(&self, plan: &Plan<'_>, times: Times) -> Answer<Result<bool, Failure>> {
        match self.local() {
            Ok(local) => local.durably(local.need(plan), None, |it| Ok(it.forget(plan, times))),
            Err(shared) => shared.forget(plan, times),
        }
    }

    /// Drops the states of all keys of these rules, or of all rules, and returns how many keys
    /// had one. Holds stay.
    pub(crate) fn forget_all(
        &self,
        scope: ForgetScope<'_>,
        times: Times,
    ) -> Answer<Result<u64, Outage>> {
        match self.local() {
            Ok(local) => {
                local.durably(Durability::Fsync, scope.note, |it| Ok(it.forget_all(scope, times)))
            }
            Err(shared) => shared.forget_all(scope, times),
        }
    }

    /// Closes a round of a domain, and returns how many were closed.
    pub(crate) fn close_round(
        &self,
        domain: &str,
        note: Option<&str>,
        times: Times,
    ) -> Answer<Result<u64, Outage>> {
        match self.local() {
            Ok(local) => local.durably(Durability::Fsync, note, |table| {
                Ok(match local.log {
                    Some(log) => log.close_round(domain, note, times),
                    None => table.close_round(domain, times),
                })
            }),
            Err(shared) => shared.close_round(domain, times),
        }
    }

    /// Adopts a new set of rules; the time is read once the rules are in force. Those of shared records
    /// are put into force by an edit of the control record.
    pub(crate) fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times) {
        if let Ok(local) = self.local() {
            local.table.adopt(adoption, times);
        }
    }

    /// Releases expired holds; true if there were any. A key in shared records releases what is due when
    /// it is next needed.
    pub(crate) fn expire(&self, times: Times) -> bool {
        self.local().is_ok_and(|local| local.table.expire(times))
    }

    /// When the next hold expires, if that is known here.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.local().ok()?.table.next_due()
    }

    /// The number of rounds closed in a domain.
    pub(crate) fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        match self.local() {
            Ok(local) => local.table.rounds(domain),
            Err(shared) => shared.control().rounds(domain),
        }
    }

    /// Stores edits beyond the process, if they can be. Those of shared records are in the control record.
    pub(crate) fn store_edits(&self, overlay: &Overlay, changes: &[Change]) -> Result<(), Outage> {
        let log = self.local().ok().and_then(|local| local.log);
        log.map_or(Ok(()), |log| log.store_edits(overlay, changes))
    }

    /// Edits from before the restart.
    pub(crate) fn stored_edits(&self) -> StoredEdits {
        let log = self.local().ok().and_then(|local| local.log);
        log.map_or_else(StoredEdits::default, FileStore::stored_edits)
    }

    /// The hash of the keys.
    #[inline]
    pub(crate) fn hash(&self) -> &KeyedHash {
        match self.local() {
            Ok(local) => local.table.hash(),
            Err(shared) => shared.hash_of_keys(),
        }
    }

    /// The limits that states count under.
    pub(crate) fn history(&self) -> Arc<History> {
        match self.local() {
            Ok(local) => local.table.history(),
            Err(shared) => Arc::clone(&shared.control().history),
        }
    }

    /// How many keys have their own state.
    pub(crate) fn len(&self) -> usize {
        self.local().map_or_else(SharedStore::len, |local| local.table.len())
    }

    /// Memory used for states, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.local().map_or_else(SharedStore::bytes, |local| local.table.bytes())
    }

    /// How many idempotency keys were dropped before their time, or not stored.
    pub(crate) fn evicted_idempotency_keys(&self) -> u64 {
        let shared = SharedStore::evicted_idempotency_keys;
        self.local().map_or_else(shared, |local| local.table.evicted_idempotency_keys())
    }
}
