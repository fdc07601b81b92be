use std::fmt;

use tidegate_core::Rate;
use tidegate_table::table::WhenFull;

use super::Network;
use crate::request_path::EncodedSlash;
use crate::store_bounds::StoreBounds;

/// The settings in a policy file for the daemon that loads it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerConfig {
    pub(crate) http: Option<Listen>,
    pub(crate) grpc: Option<Listen>,
    pub(crate) resp: Option<Listen>,
    pub(crate) unix: Option<Listen>,
    pub(crate) admin: Option<Listen>,
    pub(crate) admin_token: Option<Secret>,
    pub(crate) admin_read_token: Option<Secret>,
    pub(crate) resp_password: Option<Secret>,
    pub(crate) unix_users: Vec<Box<str>>,
    pub(crate) unix_groups: Vec<Box<str>>,
    pub(crate) unix_user_rate: Option<Rate>,
    pub(crate) unix_rate: Option<Rate>,
    pub(crate) headers: Option<Box<str>>,
    pub(crate) user_header: Option<Box<str>>,
    pub(crate) encoded_slash: EncodedSlash,
    pub(crate) merge_domains: bool,
    pub(crate) quota_mode: bool,
    pub(crate) response_metadata: bool,
    pub(crate) hides_keys: bool,
    pub(crate) max_connections: Option<u64>,
    pub(crate) max_connections_per_peer: Option<u64>,
    pub(crate) max_received_bytes: Option<u64>,
    pub(crate) max_unsent_bytes: Option<u64>,
    pub(crate) store: Option<Box<str>>,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) max_keys: u64,
    pub(crate) max_holds: u64,
    pub(crate) max_idempotency_keys: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) unmatched: Unmatched,
    /// The share of the keys for which denials are enforced, in millionths.
    pub(crate) enforce_ppm: u32,
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Not served.
    Off,
    /// At this address, or path of a socket.
    At(Box<str>),
}

/// The decision on a request that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is allowed, and counted.
    #[default]
    Allow,
    /// It is denied.
    Deny,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) Box<str>);

impl ServerConfig {
    /// The default maximum number of keys.
    pub const DEFAULT_MAX_KEYS: u64 = 1 << 24;

    /// Denials are enforced for all keys.
    pub const ENFORCE_ALL_PPM: u32 = 1_000_000;

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

    /// The token for the admin listener.
    #[must_use]
    pub const fn admin_token(&self) -> Option<&Secret> {
        self.admin_token.as_ref()
    }

    /// The token for read-only access to the admin listener.
    #[must_use]
    pub const fn admin_read_token(&self) -> Option<&Secret> {
        self.admin_read_token.as_ref()
    }

    /// The password for the Redis protocol.
    #[must_use]
    pub const fn resp_password(&self) -> Option<&Secret> {
        self.resp_password.as_ref()
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

    /// What becomes of `%2F` and `%5C` in the attribute `path`.
    #[must_use]
    pub const fn encoded_slash(&self) -> EncodedSlash {
        self.encoded_slash
    }

    /// Whether several files of envoyproxy/ratelimit may have the same domain.
    #[must_use]
    pub const fn merge_domains(&self) -> bool {
        self.merge_domains
    }

    /// Whether all descriptors of files of envoyproxy/ratelimit are in quota mode.
    #[must_use]
    pub const fn quota_mode(&self) -> bool {
        self.quota_mode
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
        self.store.as_deref()
    }

    /// Networks of proxies whose forwarded client addresses are trusted.
    #[must_use]
    pub fn trusted_proxies(&self) -> &[Network] {
        &self.trusted_proxies
    }

    /// The maximum number of keys, in total over all rules.
    #[must_use]
    pub const fn max_keys(&self) -> u64 {
        self.max_keys
    }

    /// The maximum number of open reservations and leases.
    #[must_use]
    pub const fn max_holds(&self) -> u64 {
        self.max_holds
    }

    /// The maximum number of idempotency keys that are kept.
    #[must_use]
    pub const fn max_idempotency_keys(&self) -> u64 {
        self.max_idempotency_keys
    }

    /// What a store keeps at most.
    #[must_use]
    pub fn bounds(&self) -> StoreBounds {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        StoreBounds {
            max_holds: count(self.max_holds),
            max_idempotency_keys: count(self.max_idempotency_keys),
            ..StoreBounds::new(count(self.max_keys), self.when_full)
        }
    }

    /// What happens to keys beyond [`max_keys`](Self::max_keys).
    #[must_use]
    pub const fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// The decision on a request that no rule matches.
    #[must_use]
    pub const fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// The share of the keys for which denials are enforced, in millionths.
    #[must_use]
    pub const fn enforce_ppm(&self) -> u32 {
        self.enforce_ppm
    }
}

/// The defaults.
impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            http: None,
            grpc: None,
            resp: None,
            unix: None,
            admin: None,
            admin_token: None,
            admin_read_token: None,
            resp_password: None,
            unix_users: Vec::new(),
            unix_groups: Vec::new(),
            unix_user_rate: None,
            unix_rate: None,
            headers: None,
            user_header: None,
            encoded_slash: EncodedSlash::Decode,
            merge_domains: false,
            quota_mode: false,
            response_metadata: false,
            hides_keys: false,
            max_connections: None,
            max_connections_per_peer: None,
            max_received_bytes: None,
            max_unsent_bytes: None,
            store: None,
            trusted_proxies: Vec::new(),
            max_keys: Self::DEFAULT_MAX_KEYS,
            max_holds: StoreBounds::DEFAULT_MAX_HOLDS as u64,
            max_idempotency_keys: StoreBounds::DEFAULT_MAX_IDEMPOTENCY_KEYS as u64,
            when_full: WhenFull::Share,
            unmatched: Unmatched::Allow,
            enforce_ppm: Self::ENFORCE_ALL_PPM,
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
