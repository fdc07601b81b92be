//! An exact, bounded, very fast rate limiter: one limit over any number of keys, in memory.
//!
//! ```
//! use tollgate::{Bucket, Limiter, Rate, Verdict};
//!
//! // Ten requests per second and client, twenty at once.
//! let limiter: Limiter<String> = Limiter::new(Bucket::new(Rate::per_second(10)?, 20)?);
//!
//! match limiter.check("198.51.100.7").verdict() {
//!     Verdict::Allow { remaining } => assert_eq!(remaining, 19),
//!     Verdict::Deny { wait } => println!("retry: {wait:?}"),
//! }
//! # Ok::<(), tollgate::LimitError>(())
//! ```
//!
//! - [`Limiter`] has the verbs: check, peek, refund, forget, change. [`LimiterBuilder`] has the
//!   bounds: how many keys, what happens when there are more, which clock, which hash.
//! - [`Bucket`], [`Window`], [`Sliding`] and [`Cooldown`] are the limits.
//! - [`Decision`] is the answer; [`Verdict`] is what to match on.
//! - [`MonotonicClock`] is the default; [`ManualClock`] is for tests, [`CachedClock`] for loops
//!   that know when time has passed, [`SystemClock`] for time since 1970. Every verb has a twin
//!   that is told the time.

mod calendar;
mod clock;
mod cycle;
mod engine;
mod hash;
mod keyed;
mod limiter;
pub mod policy;
mod request;
mod store;
mod table;
mod terms;
#[cfg(feature = "testing")]
pub mod testing;
mod waiting;

pub use calendar::{Calendar, CalendarError, CalendarPeriod};
pub use clock::{CachedClock, Clock, ManualClock, MonotonicClock, SystemClock};
pub use engine::{
    Applies, Ban, Change, Changed, CheckError, Engine, Explanation, GoneError, Lease, NoSuchRule,
    Overlay, OverrideError, PreparedDomain, Report, RuleExplanation, RuleReport, WaitError,
    Waiting,
};
pub use hash::{KeyedHash, KeyedHasher};
pub use keyed::KeyedLimit;
pub use limiter::{BuildError, FullError, Limiter, LimiterBuilder};
pub use request::{Attributes, Request};
pub use store::{Answer, Answering, HoldId, HoldIdError, MemoryStore, SnapshotError, Store};
pub use table::WhenFull;
pub use tollgate_core::{
    Algorithm, Bucket, Carry, Cooldown, Decision, LimitError, Period, Problem, Quota, Rate,
    Sliding, Timestamp, Verdict, Wait, Window,
};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
