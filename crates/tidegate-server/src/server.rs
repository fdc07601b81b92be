use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tidegate::policy::LoadError;
use tidegate::redis::DurabilityError;
use tidegate::store::EngineBuildError;
use tidegate_listen::{ListenSocket, Protocol, ShutdownTrigger, descriptors};
use tokio::net::UnixListener;

use crate::access::{self, AccessControl, LoadedTokens};
use crate::admin::listener::AdminHttp;
use crate::admin::overview;
use crate::daemon::{Daemon, SharedDaemon};
use crate::grpc::Grpc;
use crate::http::Http;
use crate::listener::Listener;
use crate::load::load_tokens;
use crate::local::{Access, AccessError, BindError, Local, RatesError, SocketFile, SocketLimits};
use crate::open_store::open_store;
use crate::policy_watcher::{ReloadTarget, watch};
use crate::resp::Resp;
use crate::settings::Settings;
use crate::store_health;
use crate::tls::{ListenersTls, OpenListener};
use crate::tls_files::{TlsError, TlsPaths};

/// A running daemon.
#[derive(Debug)]
pub struct Server {
    daemon: SharedDaemon,
    addresses: [Option<SocketAddr>; Listener::ALL.len()],
    /// The file of the local socket; removed when it is dropped.
    socket: Option<SocketFile>,
    stop: ShutdownTrigger,
}

/// The error of a daemon that cannot start.
#[non_exhaustive]
pub enum StartError {
    /// A listener cannot be bound to its address.
    Listen {
        /// The listener.
        listener: Listener,
        /// Its address, or the path of its socket.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The store cannot be opened.
    Store(EngineBuildError),
    /// A rule sets a durability that the store cannot provide.
    Durability(DurabilityError),
    /// The local socket cannot be created.
    Socket(BindError),
    /// The local socket is for a user or group that the system does not know.
    Access(AccessError),
    /// The rate limits of the local socket are invalid.
    Rates(RatesError),
    /// A listener cannot have the TLS that it should have.
    Tls {
        /// The listener.
        listener: Listener,
        /// The error.
        error: TlsError,
    },
    /// All listeners are off.
    NoListener,
    /// The token file cannot be loaded.
    Tokens(LoadError),
    /// A listener can be reached from other machines, and has no TLS or no credentials.
    Unprotected {
        /// The listener.
        listener: Listener,
        /// Its address.
        address: String,
    },
}

impl Server {
    /// Opens the store and binds all listeners, then serves in the background.
    ///
    /// Its tasks run on the runtime that calls this.
    pub async fn start(mut settings: Settings) -> Result<Self, StartError> {
        if Listener::ALL.iter().all(|listener| settings.address(*listener).is_none()) {
            return Err(StartError::NoListener);
        }
        let tls = ListenersTls::load(&settings);
        let tls = tls.map_err(|(listener, error)| StartError::Tls { listener, error })?;
        let public = settings.public_listeners();
        settings.bounds = settings.bounds.within(descriptors(), public);
        if let Some(redis) = &settings.redis {
            let checked = store_health::check_durability(redis, &settings.policy).await;
            checked.map_err(StartError::Durability)?;
        }
        // Requests of Envoy may carry limits of their own.
        let policy = settings.policy.clone().with_request_limits();
        let engine = open_store(policy, &settings).map_err(StartError::Store)?;
        engine.file_store().into_iter().for_each(store_health::warn_of_clock);
        let loaded = match settings.tokens.clone() {
            None => None,
            Some(path) => {
                let (file, content) = load_tokens(&path).map_err(StartError::Tokens)?;
                Some((file, LoadedTokens { path, content }))
            }
        };
        let access = AccessControl::new(loaded.as_ref().map(|(file, _)| file));
        let daemon = Daemon::new(engine, settings).with_tls(tls).with_access(access);
        let daemon = Arc::new(daemon);
        let addresses = Default::default();
        let mut server = Self { daemon, addresses, socket: None, stop: ShutdownTrigger::new() };
        // Accept only after all listeners are bound.
        let http = server.bind(Listener::Http).await?;
        let grpc = server.bind(Listener::Grpc).await?;
        let resp = server.bind(Listener::Resp).await?;
        let admin = server.bind(Listener::Admin).await?;
        server.check_protection()?;
        let local = server.bind_socket().await?;
        let daemon = || Arc::clone(&server.daemon);
        server.open(Listener::Http, http, Http::new(daemon()));
        if grpc.is_some() {
            let protocol = Grpc::new(daemon(), server.stop.signal()).await;
            server.open(Listener::Grpc, grpc, protocol);
        }
        server.open(Listener::Resp, resp, Resp::new(daemon()));
        server.open(Listener::Admin, admin, AdminHttp::new(daemon()));
        if let Some((listener, protocol)) = local {
            server.open(Listener::Unix, Some(listener), protocol);
        }
        server.start_watching(loaded.map(|(_, loaded)| loaded));
        Ok(server)
    }

    /// The address of a listener, if it is on and has one.
    #[must_use]
    pub fn address(&self, listener: Listener) -> Option<SocketAddr> {
        self.addresses[listener as usize]
    }

    /// The address of a listener, or the path of its socket, if it is on.
    #[must_use]
    pub fn address_text(&self, listener: Listener) -> Option<String> {
        match listener {
            Listener::Unix => self.socket.as_ref().map(|file| file.path().display().to_string()),
            _ => self.address(listener).map(|address| address.to_string()),
        }
    }

    /// The files of a listener's TLS, if it has TLS.
    #[must_use]
    pub fn tls(&self, listener: Listener) -> Option<&TlsPaths> {
        self.daemon.tls.paths(listener)
    }

    /// Reloads the policy file now, even if it has not changed.
    pub fn reload(&self) {
        self.daemon.reload.request();
    }

    /// Stops accepting, finishes requests that have begun, and syncs the store.
    pub async fn stop(mut self) {
        // Clients find no socket, instead of one without a server.
        drop(self.socket.take());
        if !self.stop.stop(self.daemon.settings.bounds.grace_time).await {
            tracing::warn!("stopped with requests in flight");
        }
        self.daemon.engine.close();
        if self.daemon.engine.sync().await.is_err() {
            tracing::error!("store unavailable; changes that were not synced may be lost");
        }
        if let Some(store) = self.daemon.engine.file_store()
            && let Err(error) = store.take_snapshot()
        {
            tracing::warn!(%error, "no snapshot; the next start has more log to read");
        }
    }

    /// Starts to watch the store, the policy file and the token file.
    fn start_watching(&self, tokens: Option<LoadedTokens>) {
        let Daemon { engine, settings, reload, access, .. } = &*self.daemon;
        tokio::spawn(access::close_ended(Arc::clone(access), engine.clone(), self.stop.signal()));
        if let Some(tokens) = tokens {
            tokio::spawn(access::watch(Arc::clone(access), tokens, self.stop.signal()));
        }
        tokio::spawn(store_health::store_health(engine.clone(), self.stop.signal()));
        if let Some(redis) = settings.redis.clone() {
            let signal = self.stop.signal();
            tokio::spawn(store_health::shared_store(redis, engine.clone(), signal));
        }
        tokio::spawn(overview::measure(Arc::clone(&self.daemon), self.stop.signal()));
        self.daemon.tls.start_watching(self.stop.signal());
        tokio::spawn(store_health::idempotency_keys(engine.clone(), self.stop.signal()));
        let file = settings.policy.clone();
        tokio::spawn(store_health::shared_policy(engine.clone(), file, self.stop.signal()));
        if let Some(path) = &settings.policy_path {
            let target = ReloadTarget {
                engine: engine.clone(),
                settings: Arc::clone(settings),
                reload: Arc::clone(reload),
            };
            tokio::spawn(watch(target, path.clone(), self.stop.signal()));
        }
    }

    /// Starts to accept connections of a listener, if it is on.
    fn open(&self, listener: Listener, socket: Option<ListenSocket>, protocol: impl Protocol) {
        if let Some(socket) = socket {
            let permits = self.daemon.connections.of(listener).clone();
            let open = OpenListener { listener, socket, permits, shutdown: self.stop.signal() };
            self.daemon.tls.open(open, protocol, &self.daemon.settings.bounds);
        }
    }

    /// Refuses to start with a listener that other machines can reach without TLS and credentials.
    fn check_protection(&self) -> Result<(), StartError> {
        let settings = &self.daemon.settings;
        for listener in [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin] {
            let is_local = |address: SocketAddr| address.ip().to_canonical().is_loopback();
            if self.address(listener).is_none_or(is_local) {
                continue;
            }
            let has_tokens = self.daemon.access.needs_tokens();
            let is_protected =
                self.tls(listener).is_some_and(|tls| has_tokens || tls.client_ca.is_some());
            let may_be_open = settings.is_open && listener != Listener::Admin;
            if !is_protected && !may_be_open {
                let address = settings.address(listener).unwrap_or_default().to_owned();
                return Err(StartError::Unprotected { listener, address });
            }
            if !is_protected {
                tracing::warn!(
                    %listener,
                    "any machine that reaches this listener may use it, and nothing on the way is secret"
                );
            }
        }
        Ok(())
    }

    /// Binds the local socket, and makes its protocol.
    async fn bind_socket(&mut self) -> Result<Option<(ListenSocket, Local)>, StartError> {
        let Some(path) = self.daemon.settings.address(Listener::Unix) else { return Ok(None) };
        let local = &self.daemon.settings.local;
        let access = Access::own_user_root_and(&local.users, &local.groups);
        let access = access.map_err(StartError::Access)?;
        let limits = SocketLimits::new(local).map_err(StartError::Rates)?;
        let has_tokens = self.daemon.access.needs_tokens();
        let is_shared = has_tokens || !local.users.is_empty() || !local.groups.is_empty();
        // The mode of the file bounds who may connect; the lists bound who is served.
        let mode = if is_shared { 0o666 } else { 0o600 };
        let bound = SocketFile::bind_in_folder(Path::new(path), mode).await;
        let (socket, file) = bound.map_err(StartError::Socket)?;
        let socket = socket.set_nonblocking(true).and_then(|()| UnixListener::from_std(socket));
        let failed =
            |error| StartError::Listen { listener: Listener::Unix, address: path.into(), error };
        let socket = ListenSocket::Unix(socket.map_err(failed)?);
        self.socket = Some(file);
        Ok(Some((socket, Local::new(Arc::clone(&self.daemon), access, limits))))
    }

    async fn bind(&mut self, listener: Listener) -> Result<Option<ListenSocket>, StartError> {
        let Some(address) = self.daemon.settings.address(listener) else { return Ok(None) };
        let failed = |error| StartError::Listen { listener, address: address.into(), error };
        let socket = ListenSocket::bind(address).await.map_err(failed)?;
        self.addresses[listener as usize] = Some(socket.local_addr().map_err(failed)?);
        Ok(Some(socket))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { listener, address, error } => {
                write!(f, "cannot listen on {address} for {listener}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, "\n  = hint: the address is in use; use --{listener} ADDRESS")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(
                            f,
                            "\n  = hint: ports below 1024 need root; use --{listener} ADDRESS"
                        )
                    }
                    _ => Ok(()),
                }
            }
            Self::Store(error) => error.fmt(f),
            Self::Durability(error) => write!(
                f,
                "{error}\n  = hint: change the server's settings, or the rule's durability; without \
                 one, the store does what it can"
            ),
            Self::Socket(error) => {
                write!(f, "{error}\n  = hint: use --unix PATH for another path, or --unix off")
            }
            Self::Access(error) => error.fmt(f),
            Self::Rates(error) => error.fmt(f),
            Self::Tls { listener, error } => write!(f, "cannot serve TLS on {listener}: {error}"),
            Self::NoListener => f.write_str(
                "all listeners are off\n  = hint: leave one of --http, --grpc, --resp, --unix on",
            ),
            Self::Tokens(error) => error.fmt(f),
            Self::Unprotected { listener, address } => {
                write!(
                    f,
                    "the listener {listener} on {address} can be reached from other machines, and needs \
                     TLS, and tokens or client certificates\n  = hint: use --tls-cert, --tls-key, and \
                     --tokens or --tls-client-ca; or an address of this machine only, as --{listener} \
                     127.0.0.1:PORT"
                )?;
                match listener {
                    Listener::Admin => Ok(()),
                    _ => f.write_str("; or allow everyone with --access open"),
                }
            }
        }
    }
}

tidegate::debug_as_displayed!(StartError);

impl std::error::Error for StartError {}
