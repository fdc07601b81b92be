//! The store trait: one whole-decision operation, with its result now or later.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::Timestamp;
use tidegate_table::hash::KeyedHash;
use tidegate_table::waiting::WaitQueues;

use crate::any_limit::Decisions;
use crate::cycle::Times;
use crate::edits::{Change, Overlay};
use crate::history::{History, RuleHistory};
pub(crate) use crate::hold_id::HoldId;
use crate::plan::{FastCharge, FastCharges, Plan, SettleCall, Settlement};
use later::BoxFuture;
use shared::{RecordKey, SharedStore};

#[cfg(feature = "durable")]
mod any;
#[cfg(feature = "durable")]
pub(crate) mod file;
pub(crate) mod later;
mod memory;
#[cfg(feature = "durable")]
mod mixing;
mod record;
#[cfg(feature = "durable")]
mod replay;
pub(crate) mod shared;

#[cfg(feature = "durable")]
pub use any::AnyStore;
pub(crate) use later::block_on;
pub use later::{NowOrLater, NowOrLaterFuture};
pub use memory::MemoryStore;

/// The result of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    pub(crate) is_allowed: bool,
    pub(crate) hold: Option<NewHold>,
    /// Whether it is the cached result of the same request.
    #[cfg_attr(
        not(feature = "durable"),
        allow(dead_code, reason = "only a file store undoes decisions")
    )]
    pub(crate) is_repeat: bool,
}

/// The result of a decision that was made elsewhere, with the decision of every limit.
#[derive(Clone, Debug)]
pub struct LaterDecided {
    pub(crate) decided: Decided,
    /// When it was decided.
    pub(crate) times: Times,
    pub(crate) decisions: Decisions,
    /// When the next hold of a key concerned expires.
    pub(crate) next_expiry: Option<Timestamp>,
    /// What became of the ticket, if the decision reached it.
    pub(crate) ticket: Option<TicketOutcome>,
}

/// What became of the ticket of one that waits for a slot.
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
pub(crate) type Durable<'a> = Pin<Box<dyn Future<Output = Result<(), Outage>> + Send + 'a>>;

/// A store's result for a plan. The decisions of the limits are in the caller's buffer.
pub enum Deciding<'a> {
    /// It is submitted, and will be decided.
    Later(BoxFuture<Result<LaterDecided, DecideError>>),
    /// It is decided.
    Now(Result<Decided, DecideError>),
    /// It is decided, and may be returned once it is durable.
    WhenDurable(Decided, Durable<'a>),
}

impl fmt::Debug for Deciding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(_) => f.write_str("Later(..)"),
            Self::Now(decided) => f.debug_tuple("Now").field(decided).finish(),
            Self::WhenDurable(decided, _) => f.debug_tuple("WhenDurable").field(decided).finish(),
        }
    }
}

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
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Outage {}

/// Units on hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewHold {
    pub(crate) id: HoldId,
    pub(crate) expires: Timestamp,
    /// Larger than the fence of every hold before.
    pub(crate) fence: u64,
}

/// Why nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecideError {
    /// The plan was made from rules that are no longer in force.
    Superseded,
    /// The store does not know the rules yet.
    NotAdopted,
    /// The idempotency key belongs to another request.
    OtherBody,
    /// A maximum of open holds is reached.
    TooManyHolds(HoldBound),
    /// The store is unavailable, or its answer was lost.
    Outage(Outage),
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

/// Why a hold was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleFailure {
    /// It is gone: it expired, or never existed.
    Gone,
    /// It was committed, and these units were charged.
    Committed { units: u64 },
    /// It was cancelled.
    Cancelled,
    /// The idempotency key belongs to another request.
    OtherBody,
    /// The store cannot write it, or its answer was lost.
    Outage(Outage),
}

/// Why nothing was refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundFailure {
    /// The idempotency key belongs to another request.
    OtherBody,
    /// The plan was made from rules that are not in force: it has to be made again.
    Superseded,
    /// The store cannot write it, or its answer was lost.
    Outage(Outage),
}

/// Why no key was made known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnrolFailure {
    /// The plan was made from rules that are not in force: it has to be made again.
    Superseded,
    /// The store has as many keys as it may have.
    NoRoom,
    /// The store cannot write it, or its answer was lost.
    Outage(Outage),
}

impl From<Outage> for DecideError {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

impl From<Outage> for EnrolFailure {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

impl From<Outage> for RefundFailure {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

impl From<Outage> for SettleFailure {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

/// The edits that a store has from before the restart.
#[derive(Clone, Debug, Default)]
pub struct StoredEdits {
    pub(crate) overlay: Overlay,
    pub(crate) changes: Vec<Change>,
}

/// A new set of rules, as a store needs it.
#[derive(Clone, Debug, Default)]
pub struct Adoption {
    pub(crate) version: u64,
    /// The histories of the rules whose limits have changed.
    pub(crate) rules: Vec<Arc<RuleHistory>>,
}

/// Which keys to forget.
#[derive(Clone, Copy, Debug)]
pub struct ForgetScope<'a> {
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

/// No clock: an engine on a store that several engines share needs one that is the same in all of
/// them, set by [`EngineBuilder::clock`](crate::EngineBuilder::clock). Without it, the engine cannot be built.
///
/// ```compile_fail
/// # use tidegate::policy::Policy;
/// # use tidegate::shared::SharedStore;
/// # use tidegate::{Engine, SystemClock};
/// # fn engine(policy: Policy, store: SharedStore) {
/// let Ok(engine) = Engine::builder(policy).store(store).build(); // no method `build`
/// # }
/// ```
///
/// ```
/// # use tidegate::policy::Policy;
/// # use tidegate::shared::SharedStore;
/// # use tidegate::{Engine, SystemClock};
/// # fn engine(policy: Policy, store: SharedStore) {
/// let Ok(engine) = Engine::builder(policy).store(store).clock(SystemClock::new()).build();
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NoClock;

/// Makes a clock that should not begin before a time.
pub(crate) type MakeClock<C> = Box<dyn FnOnce(Timestamp) -> C + Send>;

/// Stores states and applies whole decisions to them.
///
/// This trait is sealed: the stores are part of this crate, and all of them make the same
/// decisions.
pub trait Store: sealed::Store {}

impl<S: sealed::Store> Store for S {}

pub(crate) mod sealed {
    use super::{
        Adoption, Arc, AtomicU64, Change, Deciding, Decisions, EnrolFailure, FastCharge,
        FastCharges, ForgetScope, History, HoldId, KeyedHash, MakeClock, NowOrLater, Outage,
        Overlay, Plan, RefundFailure, SettleCall, SettleFailure, Settled, SharedStore, StoredEdits,
        Times, Timestamp, fmt,
    };

    pub trait Store: fmt::Debug + Send + Sync + 'static {
        /// Whether every result is ready at once.
        const IS_IMMEDIATE: bool;

        /// The clock of an engine on this store, unless another one is set: that of the builder, or
        /// [`NoClock`](crate::NoClock) where all engines on the store need the same one.
        type DefaultClock<C>;

        /// How the builder's clock becomes that clock.
        fn default_clock<C>(clock: MakeClock<C>) -> MakeClock<Self::DefaultClock<C>>;

        /// Whether decisions are made elsewhere, and are known later.
        #[inline]
        fn answers_later(&self) -> bool {
            false
        }

        /// Makes one whole decision: everything is charged, or nothing.
        fn decide(&self, plan: &Plan<'_>, times: Times, decisions: &mut Decisions) -> Deciding<'_>;

        /// Whether it is worth trying [`decide_fast`](Self::decide_fast).
        #[inline(always)]
        fn decides_fast(&self) -> bool {
            false
        }

        /// Makes a decision over a few limits, if that takes neither holds nor new keys; `None` if it
        /// has to be [planned](Self::decide). The decisions of the limits are in the caller's buffer.
        #[inline(always)]
        fn decide_fast(
            &self,
            _charges: FastCharges<'_>,
            _decisions: &mut Decisions,
        ) -> Option<bool> {
            None
        }

        /// Prefetches the memory that a [fast decision](Self::decide_fast) reads for a charge.
        #[inline(always)]
        fn fetch(&self, _charge: &FastCharge<'_>) {}

        /// Ends or extends a hold, or refunds what it charged.
        fn settle(
            &self,
            id: HoldId,
            call: SettleCall<'_>,
            times: Times,
        ) -> NowOrLater<'_, Result<Settled, SettleFailure>>;

        /// Refunds the cost of a plan to each of its limits, as far as it was charged; once for
        /// each idempotency key.
        fn refund(
            &self,
            plan: &Plan<'_>,
            times: Times,
        ) -> NowOrLater<'_, Result<u64, RefundFailure>>;

        /// Makes the keys of a plan known, and returns how many were not.
        fn enrol(&self, plan: &Plan<'_>, times: Times)
        -> NowOrLater<'_, Result<u64, EnrolFailure>>;

        /// Drops the states of a plan's keys.
        fn forget(
            &self,
            plan: &Plan<'_>,
            times: Times,
        ) -> NowOrLater<'_, Result<bool, RefundFailure>>;

        /// Drops the states of all keys of these rules, or of all rules, and returns how many keys
        /// had one. Holds stay.
        fn forget_all(
            &self,
            scope: ForgetScope<'_>,
            times: Times,
        ) -> NowOrLater<'_, Result<u64, Outage>>;

        /// Adopts a new set of rules; the time is read once the rules are in force.
        fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times);

        /// Releases expired holds; true if there were any.
        fn expire(&self, times: Times) -> bool;

        /// When the next hold expires.
        fn next_due(&self) -> Option<Timestamp>;

        /// The number of rounds closed in a domain.
        fn rounds(&self, domain: &str) -> Arc<AtomicU64>;

        /// Closes a round of a domain, and returns how many were closed.
        fn close_round(
            &self,
            domain: &str,
            note: Option<&str>,
            times: Times,
        ) -> NowOrLater<'_, Result<u64, Outage>>;

        /// Stores edits beyond the process, if the store is durable.
        fn store_edits(&self, _overlay: &Overlay, _changes: &[Change]) -> Result<(), Outage> {
            Ok(())
        }

        /// The store, if several engines share it.
        fn shared(&self) -> Option<&SharedStore> {
            None
        }

        /// Edits from before the restart.
        fn stored_edits(&self) -> StoredEdits {
            StoredEdits::default()
        }

        /// The latest time that the store knows from before the restart.
        fn last_time(&self) -> Timestamp {
            Timestamp::ZERO
        }

        /// The hash of the keys.
        fn hash(&self) -> &KeyedHash;

        /// The limits that states count under.
        fn history(&self) -> Arc<History>;

        /// How many keys have their own state.
        fn len(&self) -> usize;

        /// Memory used for states, in bytes.
        fn bytes(&self) -> usize;

        /// How many idempotency keys were dropped before their time.
        fn evicted_idempotency_keys(&self) -> u64;
    }
}
