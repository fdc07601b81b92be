//! Edits at run time, as data: what lies over the policy file, and what has changed.

mod change;
pub(crate) mod field_changes;
mod overlay;
mod overlay_text;

pub(crate) use change::ChangeLog;
pub use change::{Change, Changed};
pub use overlay::{Ban, Overlay};
