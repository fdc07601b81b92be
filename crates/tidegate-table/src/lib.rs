//! The concurrent parts of [tidegate](https://github.com/tidegate-rs/tidegate): the table of states, clocks, the
//! keyed hash, and wait queues.
//!
//! All `unsafe` code of the project is in this crate, and so are all models for loom and shuttle.
//! It depends on `tidegate-core` alone.
//!
//! # What is stable
//!
//! The items at the root of this crate, but for [`return_memory`], are re-exported by `tidegate`, which is
//! the crate to depend on. The modules are for the sibling crates `tidegate`, `tidegate-policy` and
//! `tidegate-engine`: they are hidden from this documentation, and may change in any release. Depend on
//! the siblings with the same version.

#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod locks;
mod memory;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod waiting;

pub use clock::{CachedClock, Clock, ManualClock, MonotonicClock, SystemClock};
pub use hash::{KeyedHash, KeyedHasher};
pub use memory::return_memory;
pub use table::WhenFull;
pub use table::keyed::KeyedLimit;
