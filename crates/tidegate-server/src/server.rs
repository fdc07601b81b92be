use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tidegate::Engine;
use tidegate::durable::OpenError;
use tokio::net::{TcpListener, UnixListener};

use crate::accept::{Hall, Listener, Places, Protocol, Stop, accept};
use crate::admin::listener::{AdminHttp, Tokens};
use crate::daemon::{Daemon, SharedDaemon};
use crate::door::Door;
use crate::grpc::Grpc;
use crate::http::Http;
use crate::local::{Access, AccessError, BindError, Gate, Local, RatesError, SocketFile};
use crate::outages;
use crate::resp::Resp;
use crate::settings::Settings;
use crate::watch::watch;

/// A daemon at work.
#[derive(Debug)]
pub struct Server {
    daemon: SharedDaemon,
    addresses: [Option<SocketAddr>; Door::ALL.len()],
    /// The file of the local socket, which is gone when nobody serves it any more.
    socket: Option<SocketFile>,
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
    /// The local socket cannot be made.
    Socket(BindError),
    /// The local socket is for somebody whom the system does not know.
    Access(AccessError),
    /// The local socket's own limits contradict each other.
    Rates(RatesError),
    /// Nobody could ask.
    NoDoor,
    /// The admin listener would be open to everybody who can reach this machine.
    AdminNeedsToken {
        /// Where it would listen.
        place: String,
    },
}

impl Server {
    /// Opens the store and all doors, and serves from then on.
    ///
    /// It runs on the runtime that this is called on.
    pub async fn start(mut settings: Settings) -> Result<Self, StartError> {
        if Door::ALL.iter().all(|door| settings.place(*door).is_none()) {
            return Err(StartError::NoDoor);
        }
        settings.bounds = settings.bounds.within(descriptors());
        // Envoy may bring limits along.
        let policy = settings.policy.clone().with_own_limits();
        let engine = Engine::open_any(policy, settings.store_folder.as_deref())
            .map_err(StartError::Store)?;
        let daemon = Arc::new(Daemon::new(engine, settings));
        let addresses = Default::default();
        let mut server = Self { daemon, addresses, socket: None, stop: Stop::new() };
        // All doors can be opened, or none is.
        let http = server.bind(Door::Http).await?;
        let grpc = server.bind(Door::Grpc).await?;
        let resp = server.bind(Door::Resp).await?;
        server.warn_of_open_resp();
        let admin = server.bind_admin().await?;
        let local = server.bind_socket().await?;
        let places = Places::new(&server.daemon.settings.bounds);
        let daemon = || Arc::clone(&server.daemon);
        server.open(Door::Http, http, Http::new(daemon()), &places);
        if grpc.is_some() {
            let protocol = Grpc::new(daemon(), server.stop.stopping()).await;
            server.open(Door::Grpc, grpc, protocol, &places);
        }
        server.open(Door::Resp, resp, Resp::new(daemon()), &places);
        server.open(Door::Admin, admin, AdminHttp::new(daemon()), &places);
        if let Some((listener, protocol)) = local {
            server.open(Door::Unix, Some(listener), protocol, &places);
        }
        tokio::spawn(outages::tell(daemon(), server.stop.stopping()));
        if let Some(path) = &server.daemon.settings.policy_path {
            tokio::spawn(watch(daemon(), path.clone(), server.stop.stopping()));
        }
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
        match door {
            Door::Unix => self.socket.as_ref().map(|file| file.path().display().to_string()),
            _ => self.address(door).map(|address| address.to_string()),
        }
    }

    /// Reads the policy file again, now, and puts it into force even if it has not changed.
    pub fn reload(&self) {
        self.daemon.reload.ask();
    }

    /// Lets nobody in any more, brings to its end what has begun, and makes everything safe.
    pub async fn stop(mut self) {
        // Whoever comes from now on finds no socket, instead of one that nobody answers at.
        drop(self.socket.take());
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

    /// Nothing is read or changed over the Redis protocol but limits; others could spend them, though.
    fn warn_of_open_resp(&self) {
        let is_open = self.address(Door::Resp).is_some_and(|it| !it.ip().is_loopback());
        if is_open && self.daemon.settings.resp_password.is_none() {
            tracing::warn!(
                "the Redis port could be reached from other machines, and needs no password; set \
                 `resp_password` in [server]"
            );
        }
    }

    /// The admin listener, which is for this machine alone unless callers have to show a token.
    async fn bind_admin(&mut self) -> Result<Option<Listener>, StartError> {
        let listener = self.bind(Door::Admin).await?;
        let is_local = self.address(Door::Admin).is_none_or(|it| it.ip().is_loopback());
        if is_local || !Tokens::of(&self.daemon.settings).are_none() {
            return Ok(listener);
        }
        let place = self.daemon.settings.place(Door::Admin).unwrap_or_default().to_owned();
        Err(StartError::AdminNeedsToken { place })
    }

    /// The local socket and what is served there.
    async fn bind_socket(&mut self) -> Result<Option<(Listener, Local)>, StartError> {
        let Some(path) = self.daemon.settings.place(Door::Unix) else { return Ok(None) };
        let local = &self.daemon.settings.local;
        let access = Access::own_user_root_and(&local.users, &local.groups);
        let access = access.map_err(StartError::Access)?;
        let gate = Gate::new(local).map_err(StartError::Rates)?;
        let is_shared = !local.users.is_empty() || !local.groups.is_empty();
        // Who may connect is for the file to say, who is answered is for the list.
        let mode = if is_shared { 0o666 } else { 0o600 };
        let bound = SocketFile::bind_in_folder(Path::new(path), mode).await;
        let (listener, file) = bound.map_err(StartError::Socket)?;
        let listener =
            listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
        let failed = |error| StartError::Listen { door: Door::Unix, place: path.into(), error };
        let listener = Listener::Unix(listener.map_err(failed)?);
        self.socket = Some(file);
        Ok(Some((listener, Local::new(Arc::clone(&self.daemon), access, gate))))
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

/// How many descriptors the process may have: as many as it is allowed to ask for.
fn descriptors() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return hard;
    }
    soft
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
            Self::Socket(error) => {
                write!(
                    f,
                    "{error}\n  = hint: --unix PATH puts the socket elsewhere, --unix off shuts it"
                )
            }
            Self::Access(error) => error.fmt(f),
            Self::Rates(error) => error.fmt(f),
            Self::NoDoor => f.write_str(
                "nobody could ask: all listeners are off\n  = hint: leave one of --http, --grpc, \
                 --resp, --unix on",
            ),
            Self::AdminNeedsToken { place } => write!(
                f,
                "the admin listener at {place} could be reached from other machines, and needs no \
                 token\n  = hint: set `admin_token` in [server], or use --admin 127.0.0.1:9090"
            ),
        }
    }
}

impl std::error::Error for StartError {}
