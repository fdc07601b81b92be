//! The Redis protocol: limits that come with each call, and checks by the policy.
//!
//! A connection reads what has arrived, handles all complete commands in it, and writes all replies
//! at once. Consecutive commands of the same kind are decided as one batch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::daemon::SharedDaemon;
use session::Session;
use tidegate_listen::{Connection, Protocol};

mod commands;
mod connection;
mod connection_commands;
mod encode;
mod input;
mod policy_commands;
mod session;
mod throttle_commands;
mod transaction;

/// The protocol of the RESP listener, versions 2 and 3.
#[derive(Debug)]
pub(crate) struct Resp {
    daemon: SharedDaemon,
    /// Connections so far, which number them.
    connections: AtomicU64,
}

impl Resp {
    pub(crate) fn new(daemon: SharedDaemon) -> Self {
        Self { daemon, connections: AtomicU64::new(0) }
    }
}

impl Protocol for Resp {
    async fn serve(&self, connection: Connection) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let Connection { peer, permit, certificate, .. } = &connection;
        let session = Session::new(&self.daemon, number, *peer, permit, certificate.as_ref());
        connection::serve(connection, session, &self.daemon.settings.bounds).await;
    }
}
