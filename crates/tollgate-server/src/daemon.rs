//! What all protocols share.

use std::sync::Arc;

use tollgate::{AnyStore, Engine};

use crate::settings::Settings;

/// What a daemon decides with.
pub(crate) type DaemonEngine = Engine<AnyStore>;

/// What all protocols share.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) engine: DaemonEngine,
    pub(crate) settings: Settings,
}

/// A handle of it: each connection has one.
pub(crate) type SharedDaemon = Arc<Daemon>;
