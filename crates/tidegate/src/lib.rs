//! An exact, bounded, very fast rate limiter: one limit over any number of keys, or a whole policy.
//!
//! ```
//! use tidegate::{Bucket, Limiter, Verdict};
//!
//! // Ten requests per second and client, twenty at once.
//! let limiter: Limiter<String> = Limiter::new(Bucket::per_second(10).burst(20));
//!
//! match limiter.check("198.51.100.7").verdict() {
//!     Verdict::Allow { remaining } => assert_eq!(remaining, 19),
//!     Verdict::Deny { wait } => println!("retry: {wait:?}"),
//! }
//! ```
//!
//! There are two ways to use it, the second with the feature `engine`:
//!
//! - [`Limiter`] is one limit over keys of your own type: [`Bucket`], [`Window`], [`Sliding`] or
//!   [`Cooldown`]. It replaces a map behind a lock. With [`CallLimit`](limiter::CallLimit) every call brings its own
//!   limit: for servers whose clients choose the limits. [`DirectLimiter`] is one limit without keys.
//! - [`Engine`] decides by a [policy]: many rules, matched by attributes of a request, in one
//!   decision. It has quotas, reservations, concurrency slots, live changes and explanations.
//!
//! # Ten common setups
//!
//! ## 1. Limit each client
//!
//! ```
//! use tidegate::{Bucket, Limiter};
//!
//! let limiter: Limiter<String> = Limiter::new(Bucket::per_minute(60).burst(10));
//! assert!(limiter.allow("ada"));
//! ```
//!
//! ## 2. Send a denied client a retry time
//!
//! ```
//! use std::time::Duration;
//! use tidegate::clock::ManualClock;
//! use tidegate::{Limiter, Wait, Window};
//!
//! let clock = ManualClock::default();
//! let window = Window::new(1, Duration::from_secs(10));
//! let limiter = Limiter::<str, _>::builder(window).clock(clock).build()?;
//! assert!(limiter.allow("ada"));
//! let denied = limiter.check("ada");
//! assert_eq!(denied.retry_after(), Some(Wait::After(Duration::from_secs(10))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 3. Test without sleeping
//!
//! ```
//! use std::time::Duration;
//! use tidegate::policy::Policy;
//! use tidegate::clock::ManualClock;
//! use tidegate::{Engine, Request};
//!
//! let policy = Policy::from_toml(r#"
//!     [[rule]]
//!     name     = "once-a-minute"
//!     key      = ["user"]
//!     cooldown = "60s"
//! "#)?;
//! let clock = ManualClock::default();
//! let engine = Engine::builder(policy).clock(clock.clone()).build()?;
//! let request = Request::new("default", &[("user", "ada")]);
//! assert!(engine.check(&request)?.is_allowed());
//! assert!(!engine.check(&request)?.is_allowed());
//! clock.advance(Duration::from_secs(60));
//! assert!(engine.check(&request)?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 4. Several limits at once, all or nothing
//!
//! ```
//! use tidegate::policy::{Policy, RuleId};
//! use tidegate::{Engine, Request};
//!
//! let engine = Engine::new(Policy::from_toml(r#"
//!     [[rule]]
//!     name   = "user"
//!     domain = "api"
//!     key    = ["user"]
//!     bucket = { rate = "10/s", burst = 20 }
//!
//!     [[rule]]
//!     name   = "all-users"
//!     domain = "api"
//!     bucket = { rate = "1000/s", burst = 1000 }
//! "#)?);
//! let report = engine.check(&Request::new("api", &[("user", "ada")]).cost(21))?;
//! assert_eq!(report.rule().map(RuleId::name), Some("user"));
//! assert_eq!(report.rules().nth(1).map(|rule| rule.decision.remaining()), Some(1000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 5. Charge the actual cost
//!
//! ```
//! use tidegate::policy::Policy;
//! use tidegate::{Engine, Request};
//!
//! let engine = Engine::new(Policy::from_toml(r#"
//!     [[rule]]
//!     name  = "tokens"
//!     key   = ["team"]
//!     quota = { max = 100000, per = "day" }
//! "#)?);
//! let request = Request::new("default", &[("team", "search")]);
//! let mut held = engine.reserve(&request.cost(4000))?;
//! // … the call took 1 234 tokens …
//! held.add_used(1234);
//! held.commit().block()?;
//! assert_eq!(engine.peek(&request)?.remaining(), Some(98_766));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 6. Run three at once and queue the rest
//!
//! ```
//! use std::time::Duration;
//! use tidegate::policy::Policy;
//! use tidegate::{Engine, Request};
//!
//! let engine = Engine::new(Policy::from_toml(r#"
//!     [[rule]]
//!     name  = "calls"
//!     slots = { max = 3, queue = 100, expires = "5m" }
//! "#)?);
//! let request = Request::new("default", &[]);
//! // Or `.await` it, under any runtime.
//! let lease = engine.acquire(&request, Some(Duration::from_secs(1))).block()?;
//! drop(lease);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 7. Send a request twice, charge it once
//!
//! ```
//! # use tidegate::policy::Policy;
//! # use tidegate::{Engine, Request};
//! # let engine = Engine::new(Policy::from_toml(r#"
//! #     [[rule]]
//! #     name   = "emails"
//! #     key    = ["user"]
//! #     window = { max = 2, per = "1h" }
//! # "#)?);
//! let request = Request::new("default", &[("user", "ada")]).idempotency_key("order 17");
//! assert!(engine.check(&request)?.is_allowed());
//! assert!(engine.check(&request)?.is_allowed());
//! assert_eq!(engine.peek(&request)?.remaining(), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 8. Change a limit while running
//!
//! ```
//! use tidegate::policy::Policy;
//! use tidegate::{Edit, Engine, Request};
//! let policy = |max| Policy::from_toml(&format!(
//!     "[[rule]]\nname = \"searches\"\nkey = [\"user\"]\nwindow = {{ max = {max}, per = \"1h\" }}"
//! ));
//! let engine = Engine::new(policy(2)?);
//! let request = Request::new("default", &[("user", "ada")]);
//! assert!(engine.check(&request)?.is_allowed());
//! let changes = engine.edit("ops", Edit::policy(policy(3)?))?;
//! assert_eq!(changes.len(), 1);
//! assert_eq!(engine.peek(&request)?.remaining(), Some(2)); // the charge stays
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 9. Explain a decision
//!
//! ```
//! # use tidegate::policy::Policy;
//! # use tidegate::{Engine, Request};
//! # let engine = Engine::new(Policy::from_toml(r#"
//! #     [[rule]]
//! #     name   = "searches"
//! #     match  = { path = "/search/*" }
//! #     key    = ["user"]
//! #     window = { max = 2, per = "1h" }
//! # "#)?);
//! let request = Request::new("default", &[("user", "ada"), ("path", "/home")]);
//! let explanation = engine.explain(&request)?.to_string();
//! assert!(explanation.contains("searches: does not match: path is \"/home\""));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## 10. Try a limit before enforcing it
//!
//! ```
//! # use tidegate::policy::{Mode, Policy};
//! # use tidegate::{Engine, Request};
//! let engine = Engine::new(Policy::from_toml(r#"
//!     [[rule]]
//!     name   = "new-limit"
//!     key    = ["user"]
//!     window = { max = 1, per = "1h" }
//!     mode   = "shadow"
//! "#)?);
//! let request = Request::new("default", &[("user", "ada")]);
//! assert!(engine.check(&request)?.is_allowed());
//! let report = engine.check(&request)?;
//! assert!(report.is_allowed());
//! let shadow = report.rules().next().expect("one rule");
//! assert!(shadow.mode == Mode::Shadow && !shadow.decision.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! None is on by default; then this crate has no dependency but `tidegate-core` and `tidegate-table`.
//!
//! - `engine`: [`Engine`], [`Request`], [policies](policy) in TOML.
//! - `durable`: the file store, as `tidegate::durable`. Includes `engine`.
//! - `redis`: one limit over many machines, the store on Redis and Valkey, as `tidegate::redis`. Includes `engine`.
//! - `yaml`: policies in the files of envoyproxy/ratelimit, and a converter of those of Limitador. Includes `engine`.
//! - `testing`: the conformance suite that every store has to pass, as `tidegate::testing`. Includes `engine`.
//!
//! # Where to look
//!
//! - [`LimiterBuilder`](limiter::LimiterBuilder) has the bounds of a limiter: how many keys, what happens when there are
//!   more, which clock, which hash.
//! - [`Report`] is the engine's decision, [`Decision`] that of one limit; [`Verdict`] is what to
//!   match on.
//! - [`MonotonicClock`](clock::MonotonicClock) is a limiter's default and [`SystemClock`](clock::SystemClock) an engine's; [`ManualClock`](clock::ManualClock) is
//!   for tests, [`CachedClock`](clock::CachedClock) for loops that update the time themselves. [`Engine::at`] and
//!   [`Limiter::at`] are handles at a given time.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "engine"),
    allow(rustdoc::broken_intra_doc_links, reason = "this page describes the engine, too")
)]

pub mod limiter;
mod slots;

pub use limiter::{DirectLimiter, Limiter, WaitError};
pub use slots::{Slot, Slots, UntilSlot};
#[doc(hidden)]
pub use tidegate_core::debug_as_displayed;
pub use tidegate_core::{
    Bucket, Cooldown, Decision, Denied, LimitError, Rate, Sliding, Timestamp, Verdict, Wait, Window,
};
#[cfg(feature = "engine")]
pub use tidegate_engine::{
    Answer, CheckError, Domain, Edit, Engine, Lease, NoSuchDomain, NotGranted, Outage, Report,
    Request, Reservation, SettleError, StoreEngine, Waiting,
};
pub use tidegate_table::WhenFull;

/// Clocks: what a limiter or an engine takes for the time.
pub mod clock {
    pub use tidegate_table::{CachedClock, Clock, ManualClock, MonotonicClock, SystemClock};

    pub use crate::limiter::StoppedClock;
}

/// The hash of keys.
pub mod hash {
    pub use tidegate_table::{KeyedHash, KeyedHasher};
}

/// Policies: files, rules, calendars, and what rules match on.
#[cfg(feature = "engine")]
pub mod policy {
    pub use tidegate_core::{Carry, Period, Quota};
    pub use tidegate_engine::{PolicyWatcher, ReloadError, RequestLimit};
    pub use tidegate_policy::policy::*;
    pub use tidegate_policy::{
        Attributes, Calendar, CalendarError, CalendarPeriod, EncodedSlash, PathError, WindowUnit,
        normalized_path,
    };
}

/// Edits at run time: what [`Edit`] is made of, and what became of it.
#[cfg(feature = "engine")]
pub mod edit {
    pub use tidegate_engine::{Ban, Change, Changed, EditError, Edited, NoSuchRule, Overlay};
}

/// Reservations and leases by their ids, for programs that settle them elsewhere.
#[cfg(feature = "engine")]
pub mod hold {
    pub use tidegate_engine::{
        Commit, CommitReport, HoldBound, HoldId, HoldIdError, Note, Owner, Refund,
    };
}

/// What a [`Report`] is made of, explanations, usage and totals.
#[cfg(feature = "engine")]
pub mod report {
    pub use tidegate_engine::{
        Applies, BookingTally, Enrolment, Explanation, KeyName, ReportDetails, RequestDenied,
        RuleExplanation, RuleKey, RuleReport, RuleTally, RuleUsage,
    };
}

/// Where an engine keeps its states, and how one with another store is built.
#[cfg(feature = "engine")]
pub mod store {
    pub use tidegate_engine::shared::*;
    pub use tidegate_engine::{AnswerFuture, EngineBuildError, EngineBuilder, MemoryStore, Store};
    pub use tidegate_policy::StoreBounds;
}

#[cfg(feature = "durable")]
pub use tidegate_engine::durable;
#[cfg(feature = "testing")]
pub use tidegate_engine::testing;

#[cfg(feature = "redis")]
pub use tidegate_redis as redis;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So are those of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/library-policies.md")]
struct LibraryPolicies;

/// So are those of the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
