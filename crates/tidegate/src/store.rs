//! Where states are kept: one whole-decision operation, answering now or later.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tidegate_core::Timestamp;

use crate::any_limit::Decisions;
use crate::cycle::Times;
use crate::engine::{Change, Overlay};
use crate::hash::KeyedHash;

#[cfg(feature = "durable")]
mod any;
#[cfg(feature = "durable")]
pub(crate) mod file;
mod memory;
mod plan;

#[cfg(feature = "durable")]
pub use any::AnyStore;
pub use memory::{MemoryStore, SnapshotError};
pub use plan::KeyName;

pub(crate) use memory::{NewLimit, OverrideId, RestoredLimit, Succession, Successor};
pub(crate) use plan::{Charge, HoldFor, IdempotencyKey, KeyNames, Plan};

/// The name of units on hold: a reservation or a lease.
///
/// 128 bits that nobody can guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(crate) [u64; 2]);

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

/// This text is not the name of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldIdError;

impl fmt::Display for HoldIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reservation or lease is named by 32 hexadecimal digits")
    }
}

impl std::error::Error for HoldIdError {}

impl FromStr for HoldId {
    type Err = HoldIdError;

    fn from_str(text: &str) -> Result<Self, HoldIdError> {
        let is_plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let half = |range| u64::from_str_radix(&text[range], 16).map_err(|_| HoldIdError);
        if is_plain { Ok(Self([half(0..16)?, half(16..32)?])) } else { Err(HoldIdError) }
    }
}

/// What was decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    pub(crate) is_allowed: bool,
    pub(crate) hold: Option<NewHold>,
    /// Whether it was decided before, for the same request.
    #[cfg_attr(not(feature = "durable"), allow(dead_code, reason = "nothing is undone"))]
    pub(crate) is_repeat: bool,
}

/// What tells when a decision is safe.
pub(crate) type Durable<'a> = Pin<Box<dyn Future<Output = Result<(), Outage>> + Send + 'a>>;

/// How a store answers a plan. The answers of the limits are where the caller wanted them.
pub enum Deciding<'a> {
    /// It is decided.
    Now(Result<Decided, DecideError>),
    /// It is decided, and may be told as soon as it is safe.
    WhenSafe(Decided, Durable<'a>),
}

impl fmt::Debug for Deciding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(decided) => f.debug_tuple("Now").field(decided).finish(),
            Self::WhenSafe(decided, _) => f.debug_tuple("WhenSafe").field(decided).finish(),
        }
    }
}

/// The store cannot keep what it is told: its disk is full or broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage;

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store cannot write: its disk is full or broken")
    }
}

impl std::error::Error for Outage {}

/// Units that were set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewHold {
    pub(crate) id: HoldId,
    pub(crate) expires: Timestamp,
    /// Larger than the number of every hold before.
    pub(crate) fence: u64,
}

/// Why nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecideError {
    /// The plan was made from rules that are no longer in force.
    Superseded,
    /// The store does not know the rules yet.
    NotAdopted,
    /// The request's name belongs to another request.
    OtherBody,
    /// There are as many holds as there may be.
    TooManyHolds,
    /// The store cannot answer.
    Outage,
}

/// What becomes of units on hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// They are charged: as many as were set aside, or another number.
    Commit { actual: Option<u64> },
    /// They are given back.
    Cancel,
    /// They stay on hold for as long again, from now.
    Renew,
    /// So many of those that were charged are given back; under the same name only once.
    Refund { units: u64, name: Option<IdempotencyKey> },
}

impl Settlement {
    /// The name under which it happens only once.
    pub(crate) const fn name(self) -> Option<IdempotencyKey> {
        match self {
            Self::Refund { name, .. } => name,
            Self::Commit { .. } | Self::Cancel | Self::Renew => None,
        }
    }
}

/// What became of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Units charged, or given back: the most that any of the limits saw.
    pub(crate) units: u64,
    pub(crate) expires: Timestamp,
    pub(crate) fence: u64,
    /// Who has to hear of it.
    pub(crate) lines: FreedQueues,
}

/// Who may be waiting for what was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedQueues {
    /// Those who wait for places of the state with this name.
    One(u64),
    /// Anybody.
    All,
}

/// Why a hold was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleFailure {
    /// It is not there: it has expired, was settled, or never was.
    Gone,
    /// The name belongs to another request.
    OtherBody,
    /// The store cannot keep what becomes of it.
    Outage,
}

/// Why nothing was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundFailure {
    /// The request's name belongs to another request.
    OtherBody,
    /// The store cannot keep it.
    Outage,
}

impl From<Outage> for RefundFailure {
    fn from(Outage: Outage) -> Self {
        Self::Outage
    }
}

impl From<Outage> for SettleFailure {
    fn from(Outage: Outage) -> Self {
        Self::Outage
    }
}

/// What a store knows about edits from an earlier life.
#[derive(Clone, Debug, Default)]
pub struct StoredEdits {
    pub(crate) overlay: Overlay,
    pub(crate) changes: Vec<Change>,
}

/// A new set of rules, as a store needs to know it.
#[derive(Clone, Debug, Default)]
pub struct Adoption {
    pub(crate) version: u64,
    pub(crate) limits: Vec<NewLimit>,
    pub(crate) successions: Vec<Succession>,
    /// Limits whose rules are gone.
    pub(crate) removed: Vec<u32>,
}

/// Keeps states and applies whole decisions to them.
///
/// This trait is sealed: the stores are part of this crate, and all of them give the same answers.
pub trait Store: sealed::Store {}

impl<S: sealed::Store> Store for S {}

pub(crate) mod sealed {
    use super::{
        Adoption, Arc, AtomicU64, Change, Charge, Deciding, Decisions, HoldId, KeyedHash,
        NowOrLater, Outage, Overlay, Plan, RefundFailure, RestoredLimit, SettleFailure, Settled,
        Settlement, StoredEdits, Times, Timestamp, fmt,
    };

    pub trait Store: fmt::Debug + Send + Sync + 'static {
        /// Whether every answer is there at once.
        const ANSWERS_AT_ONCE: bool;

        /// Makes one whole decision: everything is charged, or nothing.
        fn decide(&self, plan: &Plan<'_>, times: Times, decisions: &mut Decisions) -> Deciding<'_>;

        /// Ends a hold, makes it longer, or gives back what it charged. The note is written down
        /// with it.
        fn settle(
            &self,
            id: HoldId,
            settlement: (Settlement, Option<&str>),
            times: Times,
        ) -> NowOrLater<'_, Result<Settled, SettleFailure>>;

        /// Gives back the cost of a plan to each of its limits, as far as it was taken; once for each
        /// name.
        fn refund(
            &self,
            plan: &Plan<'_>,
            times: Times,
        ) -> NowOrLater<'_, Result<u64, RefundFailure>>;

        /// Drops what the keys of a plan have spent.
        fn forget(&self, plan: &Plan<'_>, times: Times) -> NowOrLater<'_, Result<bool, Outage>>;

        /// Puts a key's state under the charge's limit as of the last edit.
        fn settle_in(&self, charge: &Charge<'_>, times: Times);

        /// Takes note of a new set of rules; the time is read once the rules are in force.
        fn adopt(&self, adoption: &Adoption, times: &dyn Fn() -> Times);

        /// Gives back holds whose time has come; true if there were any.
        fn expire(&self, times: Times) -> bool;

        /// When the next hold ends.
        fn next_due(&self) -> Option<Timestamp>;

        /// The number of rounds that were closed in a domain.
        fn rounds(&self, domain: &str) -> Arc<AtomicU64>;

        /// Closes a round of a domain, and reports how many were closed.
        fn close_round(
            &self,
            domain: &str,
            note: Option<&str>,
            times: Times,
        ) -> NowOrLater<'_, Result<u64, Outage>>;

        /// Keeps edits beyond the process, if it keeps anything.
        fn store_edits(&self, _overlay: &Overlay, _changes: &[Change]) -> Result<(), Outage> {
            Ok(())
        }

        /// Edits from an earlier life.
        fn stored_edits(&self) -> StoredEdits {
            StoredEdits::default()
        }

        /// The hash that names states.
        fn hash(&self) -> &KeyedHash;

        /// Limits that states from an earlier life count under.
        fn known_limits(&self) -> Vec<RestoredLimit>;

        /// How many keys have a state of their own.
        fn len(&self) -> usize;

        /// Bytes of memory in which they are kept.
        fn bytes(&self) -> usize;
    }
}

/// What a store answers: at once, or when it knows.
///
/// Await it, or [`wait`](Self::wait) for it in blocking code. The in-memory store always answers at
/// once, so that neither costs anything. A store on disk has done what it was asked when the answer is
/// there to be awaited, and tells it as soon as that is safe.
#[must_use = "what is not awaited may not be safe yet"]
pub enum NowOrLater<'a, T> {
    /// Here it is.
    Now(T),
    /// It takes a while.
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> NowOrLater<'a, T> {
    /// The answer, at the price of blocking this thread until it is there.
    pub fn wait(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(future) => block_on(future),
        }
    }

    /// What a function makes of the answer.
    pub fn map<U>(self, function: impl FnOnce(T) -> U + Send + 'a) -> NowOrLater<'a, U>
    where
        T: 'a,
    {
        match self {
            Self::Now(answer) => NowOrLater::Now(function(answer)),
            Self::Later(future) => NowOrLater::Later(Box::pin(async { function(future.await) })),
        }
    }
}

impl<'a, T: Unpin + 'a> IntoFuture for NowOrLater<'a, T> {
    type Output = T;
    type IntoFuture = NowOrLaterFuture<'a, T>;

    fn into_future(self) -> NowOrLaterFuture<'a, T> {
        match self {
            Self::Now(answer) => NowOrLaterFuture { now: Some(answer), later: None },
            Self::Later(future) => NowOrLaterFuture { now: None, later: Some(future) },
        }
    }
}

/// An [`Answer`] that is awaited.
pub struct NowOrLaterFuture<'a, T> {
    now: Option<T>,
    later: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}

impl<T: Unpin> Future for NowOrLaterFuture<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match (self.now.take(), &mut self.later) {
            (Some(answer), _) => Poll::Ready(answer),
            (None, Some(future)) => future.as_mut().poll(context),
            (None, None) => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for NowOrLaterFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("is_there", &self.now.is_some()).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for NowOrLater<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(mut future: Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
    #[derive(Default)]
    struct Signal {
        is_set: Mutex<bool>,
        changed: Condvar,
    }

    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.changed.notify_one();
        }
    }

    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        let mut is_set = signal.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_set {
            is_set = signal.changed.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
        *is_set = false;
    }
}
