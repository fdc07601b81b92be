use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tollgate::Engine;
use tollgate::durable::OpenError;

use crate::accept::{Hall, Listener, Places, Protocol, Stop, accept};
use crate::daemon::{Daemon, SharedDaemon};
use crate::door::Door;
use crate::grpc::Grpc;
use crate::http::Http;
use crate::settings::Settings;

/// A daemon at work.
#[derive(Debug)]
pub struct Server {
    daemon: SharedDaemon,
    addresses: [Option<SocketAddr>; Door::ALL.len()],
    stop: Stop,
}

/// Why a daemon cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A door cannot be opened where it should be.
    Listen {
        /// Which one.
        door: Door,
        /// Where.
        place: String,
        /// What the system says.
        error: io::Error,
    },
    /// The store cannot be opened.
    Store(OpenError),
}

impl Server {
    /// Opens the store and all doors, and serves from then on.
    ///
    /// It runs on the runtime that this is called on.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        // Envoy may bring limits along.
        let policy = settings.policy.clone().with_own_limits();
        let engine = Engine::open_any(policy, settings.store_folder.as_deref())
            .map_err(StartError::Store)?;
        let daemon = Arc::new(Daemon::new(engine, settings));
        let mut server = Self { daemon, addresses: Default::default(), stop: Stop::new() };
        // All doors can be opened, or none is.
        let http = server.bind(Door::Http).await?;
        let grpc = server.bind(Door::Grpc).await?;
        let places = Places::new(&server.daemon.settings.bounds);
        let daemon = || Arc::clone(&server.daemon);
        server.open(Door::Http, http, Http::new(daemon()), &places);
        server.open(Door::Grpc, grpc, Grpc::new(daemon()).await, &places);
        Ok(server)
    }

    /// Where a door is, if it is open and has an address.
    #[must_use]
    pub fn address(&self, door: Door) -> Option<SocketAddr> {
        self.addresses[door as usize]
    }

    /// Where a door is, if it is open: an address, or the path of a socket.
    #[must_use]
    pub fn place(&self, door: Door) -> Option<String> {
        match self.address(door) {
            Some(address) => Some(address.to_string()),
            None => None,
        }
    }

    /// Reads the policy file again, now.
    pub fn reload(&self) {}

    /// Lets nobody in any more, brings to its end what has begun, and makes everything safe.
    pub async fn stop(self) {
        if !self.stop.stop(self.daemon.settings.bounds.grace_time).await {
            tracing::warn!("requests were still under way when the daemon stopped");
        }
        self.daemon.engine.close();
        if self.daemon.engine.sync_any().await.is_err() {
            tracing::error!("the disk takes nothing: what was not safe yet may be lost");
        }
        if let Some(store) = self.daemon.engine.on_disk()
            && let Err(error) = store.take_snapshot()
        {
            tracing::warn!(%error, "no snapshot: the next start has more to read");
        }
    }

    /// Lets people in by a door, if it is one that is open.
    fn open(
        &self,
        door: Door,
        listener: Option<Listener>,
        protocol: impl Protocol,
        places: &Places,
    ) {
        if let Some(listener) = listener {
            let stopping = self.stop.stopping();
            let hall = Hall { door, daemon: Arc::clone(&self.daemon), places: places.clone() };
            tokio::spawn(accept(hall, listener, protocol, stopping));
        }
    }

    async fn bind(&mut self, door: Door) -> Result<Option<Listener>, StartError> {
        let Some(place) = self.daemon.settings.place(door) else { return Ok(None) };
        let failed = |error| StartError::Listen { door, place: place.into(), error };
        let listener = TcpListener::bind(place).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.addresses[door as usize] = Some(address);
        Ok(Some(Listener::Tcp(listener)))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { door, place, error } => {
                write!(f, "cannot listen at {place} for {door}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, "\n  = hint: something else listens there; use --{door} ADDRESS")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "\n  = hint: ports below 1024 are for root; use --{door} ADDRESS")
                    }
                    _ => Ok(()),
                }
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
