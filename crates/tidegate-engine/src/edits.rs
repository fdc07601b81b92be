//! Edits at run time, as data: what lies over the policy file, and what has changed.

mod change;
mod edit;
pub(crate) mod field_changes;
mod overlay;
mod overlay_text;

pub(crate) use change::ChangeLog;
pub use change::{Change, Changed};
pub use edit::Edit;
pub(crate) use edit::EditKind;
pub use overlay::{Ban, Overlay};
