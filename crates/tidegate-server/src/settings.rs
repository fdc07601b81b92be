use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate::Rate;
use tidegate::policy::{Listen, Network, Parsed, Policy, ServerSettings, YamlOptions};
use tidegate::redis::Redis;
use tidegate_listen::Timeouts;
use tidegate_proto::headers::Dialect;

use crate::listener::Listener;
use crate::tls_files::{TlsError, TlsFlags, TlsPaths};

/// The settings of a daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) policy: Policy,
    /// The policy file's settings for the daemon, as they are in the file.
    pub(crate) server: Arc<ServerSettings>,
    /// The policy file, which is watched.
    pub(crate) policy_path: Option<PathBuf>,
    /// The address of each listener; `None`: off.
    pub(crate) listeners: [Option<String>; Listener::ALL.len()],
    /// The folder of a store on disk.
    pub(crate) store_folder: Option<PathBuf>,
    pub(crate) redis: Option<Redis>,
    /// The token file, which is watched.
    pub(crate) tokens: Option<PathBuf>,
    /// Whether listeners but the admin listener may be open to other machines.
    pub(crate) is_open: bool,
    /// Names in the header `Host` that requests without a token may have.
    pub(crate) hosts: Vec<String>,
    pub(crate) local: LocalSettings,
    pub(crate) trusted_proxies: Vec<Network>,
    /// The rate-limit headers of responses.
    pub(crate) dialect: Dialect,
    /// The header with the attribute `user`, for requests of proxies.
    pub(crate) user_header: Option<String>,
    /// Whether logs show hashes in place of keys.
    pub(crate) hides_keys: bool,
    /// Whether responses to Envoy have metadata.
    pub(crate) response_metadata: bool,
    /// How files of envoyproxy/ratelimit are read at a reload.
    pub(crate) yaml_options: YamlOptions,
    pub(crate) bounds: Bounds,
    pub(crate) tls: TlsFlags,
}

/// Which users may use the local socket, and at which rates.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalSettings {
    pub(crate) users: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) user_rate: Option<Rate>,
    pub(crate) rate: Option<Rate>,
}

/// Bounds on connections, requests and times.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// Connections at a time to each of the listeners HTTP, gRPC and RESP.
    pub connections: u64,
    /// Connections at a time from one address (IPv6: one /64 network) to one of these listeners;
    /// `None`: a quarter of all.
    pub connections_per_peer: Option<u64>,
    /// Connections at a time to the admin listener.
    pub admin_connections: u64,
    /// Connections at a time to the local socket.
    pub local_connections: u64,
    /// How long the head of a request may take.
    pub head_time: Duration,
    /// How long a whole request may take to arrive.
    pub request_time: Duration,
    /// How long a connection may be silent.
    pub idle_time: Duration,
    /// How long a client may leave a response unread.
    pub write_time: Duration,
    /// How long requests in flight may take once the daemon stops.
    pub grace_time: Duration,
    /// Bytes in the head of a request.
    pub head_bytes: usize,
    /// Bytes in the body of a request.
    pub body_bytes: usize,
    /// Requests in a batch.
    pub batch: usize,
    /// Bytes that all connections together may hold of what is being received.
    pub received_bytes: usize,
    /// Bytes that all connections together may hold of responses that are not sent yet.
    pub unsent_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_peer: None,
            admin_connections: 64,
            local_connections: 256,
            head_time: Duration::from_secs(10),
            request_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(300),
            write_time: Duration::from_secs(30),
            grace_time: Duration::from_secs(10),
            head_bytes: 16 << 10,
            body_bytes: 1 << 20,
            batch: 1_000,
            received_bytes: 64 << 20,
            unsent_bytes: 64 << 20,
        }
    }
}

impl Bounds {
    /// The same, with no more connections to `listeners` listeners than there are descriptors; some
    /// are reserved for admins, the local socket and files.
    pub(crate) fn within(mut self, descriptors: u64, listeners: u64) -> Self {
        let kept = self.admin_connections + self.local_connections + DESCRIPTORS_OF_FILES;
        let most = descriptors.saturating_sub(kept) / listeners.max(1);
        self.connections = self.connections.min(most).max(1);
        self
    }

    /// The time-outs of HTTP connections.
    pub(crate) fn timeouts(&self) -> Timeouts {
        let Self { head_time, request_time, idle_time, write_time, .. } = *self;
        Timeouts { head_time, request_time, idle_time, write_time }
    }

    /// The connections that a listener may have at a time, in total and of one peer.
    pub(crate) fn permits(&self, listener: Listener) -> (u64, u64) {
        let (max, max_per_peer) = match listener {
            Listener::Http | Listener::Grpc | Listener::Resp => {
                (self.connections, self.connections_per_peer)
            }
            Listener::Unix => (self.local_connections, None),
            Listener::Admin => (self.admin_connections, None),
        };
        (max, max_per_peer.unwrap_or(max.div_ceil(PEERS)).min(max))
    }
}

impl Settings {
    /// The settings of a policy file's `[server]` table, with defaults.
    ///
    /// A policy that was built in code has no such table: [`Parsed::from_code`]. The local socket is off
    /// unless the table has it: its default path is the caller's choice.
    #[must_use]
    pub fn new(file: Parsed) -> Self {
        let Parsed { policy, server, .. } = file;
        let address = |listener: Listener| {
            let listen = match listener {
                Listener::Http => server.http(),
                Listener::Grpc => server.grpc(),
                Listener::Resp => server.resp(),
                Listener::Unix => server.unix(),
                Listener::Admin => server.admin(),
            };
            match listen {
                Some(Listen::Off) => None,
                Some(Listen::At(address)) => Some(address.to_string()),
                None => listener.default_address().map(Into::into),
            }
        };
        let mut bounds = Bounds::default();
        if let Some(connections) = server.max_connections() {
            bounds.connections = connections;
        }
        let bytes = |max: Option<u64>, default| {
            max.map_or(default, |max| usize::try_from(max).unwrap_or(usize::MAX))
        };
        bounds.received_bytes = bytes(server.max_received_bytes(), bounds.received_bytes);
        bounds.unsent_bytes = bytes(server.max_unsent_bytes(), bounds.unsent_bytes);
        bounds.connections_per_peer = server.max_connections_per_peer();
        Self {
            listeners: Listener::ALL.map(address),
            policy_path: None,
            store_folder: server.store().and_then(folder_of).map(Into::into),
            redis: None,
            tokens: server.tokens().map(Into::into),
            is_open: server.is_open(),
            hosts: server.hosts().map(Into::into).collect(),
            local: LocalSettings {
                users: server.unix_users().map(Into::into).collect(),
                groups: server.unix_groups().map(Into::into).collect(),
                user_rate: server.unix_user_rate(),
                rate: server.unix_rate(),
            },
            trusted_proxies: server.trusted_proxies().to_vec(),
            dialect: server.headers().and_then(|it| it.parse().ok()).unwrap_or_default(),
            user_header: server.user_header().map(Into::into),
            hides_keys: server.hides_keys(),
            response_metadata: server.response_metadata(),
            yaml_options: YamlOptions::default(),
            bounds,
            tls: TlsFlags::default(),
            policy,
            server: Arc::new(server),
        }
    }

    /// The same on free loopback ports and without a local socket, for tests.
    #[must_use]
    pub fn on_free_ports(file: Parsed) -> Self {
        let settings = Self::new(file);
        let tcp = [Listener::Http, Listener::Grpc, Listener::Resp, Listener::Admin];
        tcp.into_iter()
            .fold(settings, |settings, listener| settings.listen(listener, Some("127.0.0.1:0")))
            .listen(Listener::Unix, None)
    }

    /// Sets the address of a listener; `None` turns it off.
    #[must_use]
    pub fn listen(mut self, listener: Listener, address: Option<&str>) -> Self {
        self.listeners[listener as usize] = address.map(Into::into);
        self
    }

    /// Sets the policy file, which is watched and reloaded when it changes.
    #[must_use]
    pub fn policy_path(self, path: impl Into<PathBuf>) -> Self {
        Self { policy_path: Some(path.into()), ..self }
    }

    /// Stores states in a folder; `None`: in memory.
    #[must_use]
    pub fn store_folder(self, folder: Option<&Path>) -> Self {
        Self { store_folder: folder.map(Into::into), redis: None, ..self }
    }

    /// Keeps states on a Redis or Valkey server, which other daemons share.
    #[must_use]
    pub fn redis(self, redis: Redis) -> Self {
        Self { store_folder: None, redis: Some(redis), ..self }
    }

    /// Sets the token file, which is watched: clients need a token of it, and may do what it says.
    #[must_use]
    pub fn tokens(self, path: impl Into<PathBuf>) -> Self {
        Self { tokens: Some(path.into()), ..self }
    }

    /// Sets whether listeners that other machines can reach may be without TLS and credentials. The
    /// admin listener may not.
    #[must_use]
    pub fn open_access(self, is_open: bool) -> Self {
        Self { is_open, ..self }
    }

    /// Sets whether responses to Envoy have the domain, the descriptors and the metadata of the
    /// rules that allowed them.
    #[must_use]
    pub fn response_metadata(self, is_on: bool) -> Self {
        Self { response_metadata: is_on, ..self }
    }

    /// Sets how files of envoyproxy/ratelimit are read at a reload; those of the policy so far
    /// should have been read with the same options.
    #[must_use]
    pub fn yaml_options(self, options: YamlOptions) -> Self {
        Self { yaml_options: options, ..self }
    }

    /// Sets the bounds on connections, requests and times.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Sets the certificate and the key of all TCP listeners, unless `[server.tls]` has others for
    /// one: two files in the format PEM, which are watched.
    #[must_use]
    pub fn tls_certificate(mut self, cert: Option<&Path>, key: Option<&Path>) -> Self {
        (self.tls.cert, self.tls.key) = (cert.map(Into::into), key.map(Into::into));
        self
    }

    /// Sets the authorities of clients, which then need a certificate, unless `[server.tls]` has
    /// others for a listener.
    #[must_use]
    pub fn tls_client_ca(mut self, path: Option<&Path>) -> Self {
        self.tls.client_ca = path.map(Into::into);
        self
    }

    /// The files of a listener's TLS; `None` if it has none.
    pub fn tls(&self, listener: Listener) -> Result<Option<TlsPaths>, TlsError> {
        TlsPaths::of(listener, &self.tls, self.server.tls())
    }

    /// How many of the listeners HTTP, gRPC and RESP are on.
    pub(crate) fn public_listeners(&self) -> u64 {
        let public = [Listener::Http, Listener::Grpc, Listener::Resp];
        public.into_iter().filter(|listener| self.address(*listener).is_some()).count() as u64
    }

    /// The address of a listener; `None`: off.
    #[must_use]
    pub fn address(&self, listener: Listener) -> Option<&str> {
        self.listeners[listener as usize].as_deref()
    }
}

/// The folder of `file:PATH`.
fn folder_of(store: &str) -> Option<&str> {
    store.strip_prefix("file:")
}

/// Descriptors that the store, the policy file, listeners and the runtime need.
const DESCRIPTORS_OF_FILES: u64 = 64;
/// One peer gets one in this many connections.
const PEERS: u64 = 4;
