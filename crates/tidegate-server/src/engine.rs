//! The engine of a daemon.

use tidegate::{AnyStore, Engine};

/// The engine of a daemon: a handle, which is cheap to clone.
pub(crate) type DaemonEngine = Engine<AnyStore>;
