//! The settings of a policy file that only a daemon needs.

use std::fmt;
use std::time::Duration;

use tidegate_core::Rate;

use super::Network;
use super::tls::TlsSettings;

/// The settings in a policy file for the daemon that loads it: the rest of the `[server]` table. They
/// are no part of a [`Policy`](super::Policy).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerSettings {
    pub(crate) http: Option<Listen>,
    pub(crate) grpc: Option<Listen>,
    pub(crate) resp: Option<Listen>,
    pub(crate) unix: Option<Listen>,
    pub(crate) admin: Option<Listen>,
    pub(crate) tls: TlsSettings,
    pub(crate) tokens: Option<Box<str>>,
    pub(crate) is_open: bool,
    pub(crate) hosts: Vec<Box<str>>,
    pub(crate) unix_users: Vec<Box<str>>,
    pub(crate) unix_groups: Vec<Box<str>>,
    pub(crate) unix_user_rate: Option<Rate>,
    pub(crate) unix_rate: Option<Rate>,
    pub(crate) headers: Option<Box<str>>,
    pub(crate) user_header: Option<Box<str>>,
    pub(crate) merge_domains: bool,
    pub(crate) response_metadata: bool,
    pub(crate) hides_keys: bool,
    pub(crate) max_connections: Option<u64>,
    pub(crate) max_connections_per_peer: Option<u64>,
    pub(crate) max_received_bytes: Option<u64>,
    pub(crate) max_unsent_bytes: Option<u64>,
    pub(crate) store: Option<StoreAddress>,
    pub(crate) store_namespace: Option<Box<str>>,
    pub(crate) store_secret: Option<Secret>,
    pub(crate) store_password: Option<Secret>,
    pub(crate) store_sentinel_user: Option<Box<str>>,
    pub(crate) store_sentinel_password: Option<Secret>,
    pub(crate) store_ca: Option<Box<str>>,
    pub(crate) store_cert: Option<Box<str>>,
    pub(crate) store_key: Option<Box<str>>,
    pub(crate) store_deadline: Option<Duration>,
    pub(crate) store_replicas: Option<u32>,
    pub(crate) trusted_proxies: Vec<Network>,
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Not served.
    Off,
    /// At this address, or path of a socket.
    At(Box<str>),
}

/// The address of a store, which is printed without its user and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreAddress(pub(crate) Box<str>);

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) Box<str>);

impl ServerSettings {
    /// What all names on a shared server begin with.
    #[must_use]
    pub fn store_namespace(&self) -> Option<&str> {
        self.store_namespace.as_deref()
    }

    /// What the names of keys on a shared server are hashed with.
    #[must_use]
    pub const fn store_secret(&self) -> Option<&Secret> {
        self.store_secret.as_ref()
    }

    /// The password of a shared server, where its address has none.
    #[must_use]
    pub const fn store_password(&self) -> Option<&Secret> {
        self.store_password.as_ref()
    }

    /// The user of the sentinels; `None`: the default one.
    #[must_use]
    pub fn store_sentinel_user(&self) -> Option<&str> {
        self.store_sentinel_user.as_deref()
    }

    /// The password of the sentinels.
    #[must_use]
    pub const fn store_sentinel_password(&self) -> Option<&Secret> {
        self.store_sentinel_password.as_ref()
    }

    /// The file with the certificates that a shared server's is checked against; `None`: those of the
    /// system.
    #[must_use]
    pub fn store_ca(&self) -> Option<&str> {
        self.store_ca.as_deref()
    }

    /// The file with the certificate that a shared server checks.
    #[must_use]
    pub fn store_cert(&self) -> Option<&str> {
        self.store_cert.as_deref()
    }

    /// The file with the key of that certificate.
    #[must_use]
    pub fn store_key(&self) -> Option<&str> {
        self.store_key.as_deref()
    }

    /// How many replicas of a shared server have what `flush` or `fsync` acknowledges.
    #[must_use]
    pub const fn store_replicas(&self) -> Option<u32> {
        self.store_replicas
    }

    /// How long a shared server may take to decide.
    #[must_use]
    pub const fn store_deadline(&self) -> Option<Duration> {
        self.store_deadline
    }

    /// The HTTP listener; `None`: the daemon's default.
    #[must_use]
    pub const fn http(&self) -> Option<&Listen> {
        self.http.as_ref()
    }

    /// The gRPC listener.
    #[must_use]
    pub const fn grpc(&self) -> Option<&Listen> {
        self.grpc.as_ref()
    }

    /// The listener for the Redis protocol.
    #[must_use]
    pub const fn resp(&self) -> Option<&Listen> {
        self.resp.as_ref()
    }

    /// The path of the local socket.
    #[must_use]
    pub const fn unix(&self) -> Option<&Listen> {
        self.unix.as_ref()
    }

    /// The admin listener.
    #[must_use]
    pub const fn admin(&self) -> Option<&Listen> {
        self.admin.as_ref()
    }

    /// The certificates of the listeners.
    #[must_use]
    pub const fn tls(&self) -> &TlsSettings {
        &self.tls
    }

    /// The token file: which clients there are, and what each of them may do.
    #[must_use]
    pub fn tokens(&self) -> Option<&str> {
        self.tokens.as_deref()
    }

    /// Whether listeners other than the admin listener may be open to other machines without TLS
    /// and credentials.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The names that clients without a token may use in the header `Host`.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.hosts.iter().map(|host| &**host)
    }

    /// Users allowed on the local socket, besides its owner and root.
    pub fn unix_users(&self) -> impl Iterator<Item = &str> {
        self.unix_users.iter().map(|name| &**name)
    }

    /// Groups whose members are allowed on the local socket.
    pub fn unix_groups(&self) -> impl Iterator<Item = &str> {
        self.unix_groups.iter().map(|name| &**name)
    }

    /// The request rate of one user on the local socket.
    #[must_use]
    pub const fn unix_user_rate(&self) -> Option<Rate> {
        self.unix_user_rate
    }

    /// The request rate of all users on the local socket.
    #[must_use]
    pub const fn unix_rate(&self) -> Option<Rate> {
        self.unix_rate
    }

    /// Which rate-limit headers responses have.
    #[must_use]
    pub fn headers(&self) -> Option<&str> {
        self.headers.as_deref()
    }

    /// The header with the attribute `user`, set by proxies.
    #[must_use]
    pub fn user_header(&self) -> Option<&str> {
        self.user_header.as_deref()
    }

    /// Whether several files of envoyproxy/ratelimit may have the same domain.
    #[must_use]
    pub const fn merge_domains(&self) -> bool {
        self.merge_domains
    }

    /// Whether responses to Envoy have metadata.
    #[must_use]
    pub const fn response_metadata(&self) -> bool {
        self.response_metadata
    }

    /// Whether logs have hashes in place of keys.
    #[must_use]
    pub const fn hides_keys(&self) -> bool {
        self.hides_keys
    }

    /// The maximum of concurrent connections of each listener.
    #[must_use]
    pub const fn max_connections(&self) -> Option<u64> {
        self.max_connections
    }

    /// The maximum of concurrent connections of one address to one listener.
    #[must_use]
    pub const fn max_connections_per_peer(&self) -> Option<u64> {
        self.max_connections_per_peer
    }

    /// The maximum of bytes of unfinished requests, over all connections.
    #[must_use]
    pub const fn max_received_bytes(&self) -> Option<u64> {
        self.max_received_bytes
    }

    /// The maximum of bytes of responses that are not sent yet, over all connections.
    #[must_use]
    pub const fn max_unsent_bytes(&self) -> Option<u64> {
        self.max_unsent_bytes
    }

    /// The store: `memory`, `file:PATH` or `redis://…`.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.store.as_ref().map(|store| &*store.0)
    }

    /// Networks of proxies whose forwarded client addresses are trusted.
    #[must_use]
    pub fn trusted_proxies(&self) -> &[Network] {
        &self.trusted_proxies
    }

    /// The same settings without secrets: the secret and the passwords of the store, and the user and
    /// password in its address.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        Self {
            store_secret: None,
            store_password: None,
            store_sentinel_password: None,
            store: self.store.as_ref().map(|store| StoreAddress(without_user(&store.0))),
            ..self.clone()
        }
    }
}

impl Secret {
    /// A text that is never printed.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&without_user(&self.0), f)
    }
}

/// The address of a store without its user and password. These end with the last `@`, also where a
/// password has characters that it should not have; a query may have them, too.
fn without_user(store: &str) -> Box<str> {
    let Some((kind, rest)) = store.split_once("://") else { return store.into() };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    format!("{kind}://{rest}").into()
}
