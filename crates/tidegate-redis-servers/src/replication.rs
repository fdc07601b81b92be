//! A primary with replicas.

use crate::program::Program;
use crate::server::{Server, ServerBuilder};
use crate::wait;

/// A primary and its replicas, without a program that replaces a lost primary.
#[derive(Debug)]
pub struct Replication {
    /// Dropped before the primary.
    replicas: Vec<Server>,
    primary: Server,
}

impl Replication {
    /// Starts a primary and this many replicas, and waits until all replicas have the data.
    #[must_use]
    #[track_caller]
    pub fn start(program: Program, replicas: usize) -> Self {
        Self::start_with(&Server::builder(program), replicas)
    }

    /// Starts a primary and this many replicas, all with the same settings.
    #[must_use]
    #[track_caller]
    pub fn start_with(settings: &ServerBuilder, replicas: usize) -> Self {
        // So that a lost primary or replica is noticed soon.
        let settings = settings.clone().tls_between_servers().set("repl-ping-replica-period", "1");
        let primary = settings.clone().start();
        let replica = settings.replica_of(primary.peer_address());
        let replicas: Vec<_> = (0..replicas).map(|_| replica.clone().start()).collect();
        for replica in &replicas {
            wait::until("the replica is in sync", || is_in_sync(replica));
        }
        Self { replicas, primary }
    }

    /// The primary.
    #[must_use]
    pub const fn primary(&self) -> &Server {
        &self.primary
    }

    /// The replicas.
    #[must_use]
    pub fn replicas(&self) -> &[Server] {
        &self.replicas
    }

    /// All servers, the primary first.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.primary).chain(&self.replicas)
    }
}

/// Whether a server is a replica with a working link to its primary.
pub(crate) fn is_in_sync(server: &Server) -> bool {
    server.info("master_link_status").as_deref() == Some("up")
}
