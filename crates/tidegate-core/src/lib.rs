//! The arithmetic of tidegate: limits, their states, and decisions, as pure functions.
//!
//! A limit ([`Bucket`], [`Window`], [`Sliding`], [`Cooldown`], [`Quota`]) is a small value made of
//! its numbers. A state is an even smaller value that belongs to one key. A decision is a function
//! of both, the cost and the time:
//!
//! ```
//! use tidegate_core::{Algorithm, Bucket, Timestamp, Wait};
//! use std::time::Duration;
//!
//! let limit = Bucket::per_second(1).burst(2);
//! let mut state = limit.fresh();
//! let start = Timestamp::from_secs(100);
//!
//! assert!(limit.check(&mut state, 1, start).is_allowed());
//! assert!(limit.check(&mut state, 1, start).is_allowed());
//! let denied = limit.check(&mut state, 1, start);
//! assert_eq!(denied.retry_after(), Some(Wait::After(Duration::from_secs(1))));
//! ```
//!
//! What is absent here is the design: no clock is read, nothing is shared, locked, allocated or
//! waited for, and no decision uses a float. All rounding is against the caller.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod algorithm;
mod bucket;
mod cooldown;
mod decision;
mod error;
mod quota;
mod rate;
mod sliding;
#[doc(hidden)]
pub mod text;
mod time;
mod window;

pub use algorithm::Algorithm;
pub use bucket::{Bucket, BucketState, charge_unit};
pub use cooldown::{Cooldown, CooldownState};
pub use decision::{Decision, Denied, Verdict, Wait};
pub use error::{LimitError, LimitErrorKind};
pub use quota::{Carry, Committed, Debt, HeldUnits, Period, Quota, QuotaCharge, QuotaState};
pub use rate::Rate;
pub use sliding::{Sliding, SlidingRecord, SlidingState};
pub use time::Timestamp;
pub use window::{Window, WindowState};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
