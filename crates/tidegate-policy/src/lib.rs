//! The policies of [tidegate](https://github.com/tidegate-rs/tidegate): files parsed and checked, rules matched to
//! requests, calendars.
//!
//! # What is stable
//!
//! The [`policy`] module and the items at the root of this crate are re-exported by `tidegate` with its
//! feature `engine`; `tidegate` is the crate to depend on. All that is hidden from this documentation (the
//! module `internal`, and some methods) is for the sibling crate `tidegate-engine`, and may change in any
//! release. Depend on the siblings with the same version.

#![forbid(unsafe_code)]

mod attributes;
mod calendar;
pub mod policy;
mod request_path;
mod store_bounds;
mod window_unit;

/// What the engine needs beyond the public API. It may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::calendar::CachedCalendar;
    pub use crate::policy::limit::{LimitKind, written as limits};
    pub use crate::policy::parse::overlay;
    pub use crate::policy::paths::PATH;
    pub use crate::policy::pattern::{address_of, masked, v4_mask, v6_mask};
    pub use crate::policy::write::values;
}

pub use attributes::Attributes;
pub use calendar::{Calendar, CalendarError, CalendarPeriod};
pub use request_path::{EncodedSlash, PathError, normalized_path};
pub use store_bounds::StoreBounds;
pub use window_unit::WindowUnit;
