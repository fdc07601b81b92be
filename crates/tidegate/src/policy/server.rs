use std::fmt;

use tidegate_core::Rate;

use super::Network;
use crate::table::WhenFull;

/// What a policy file says about the daemon that loads it.
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
    pub(crate) hides_keys: bool,
    pub(crate) max_connections: Option<u64>,
    pub(crate) max_connections_per_peer: Option<u64>,
    pub(crate) store: Option<Box<str>>,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) max_keys: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) unmatched: Unmatched,
    /// Which part of the keys is enforced, in millionths.
    pub(crate) enforce_ppm: u32,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// At this address, or path of a socket.
    At(Box<str>),
}

/// What happens to a request that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It passes, and is counted.
    #[default]
    Allow,
    /// It is refused.
    Deny,
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) Box<str>);

impl ServerConfig {
    /// How many keys are kept at most where nobody says otherwise.
    pub const DEFAULT_MAX_KEYS: u64 = 1 << 24;

    /// All requests are enforced.
    pub const ENFORCE_ALL_PPM: u32 = 1_000_000;

    /// Where HTTP is served; `None`: where the daemon thinks best.
    #[must_use]
    pub const fn http(&self) -> Option<&Listen> {
        self.http.as_ref()
    }

    /// Where gRPC is served.
    #[must_use]
    pub const fn grpc(&self) -> Option<&Listen> {
        self.grpc.as_ref()
    }

    /// Where the Redis protocol is served.
    #[must_use]
    pub const fn resp(&self) -> Option<&Listen> {
        self.resp.as_ref()
    }

    /// The path of the local socket.
    #[must_use]
    pub const fn unix(&self) -> Option<&Listen> {
        self.unix.as_ref()
    }

    /// Where the admin interface is served.
    #[must_use]
    pub const fn admin(&self) -> Option<&Listen> {
        self.admin.as_ref()
    }

    /// What callers of the admin interface must show.
    #[must_use]
    pub const fn admin_token(&self) -> Option<&Secret> {
        self.admin_token.as_ref()
    }

    /// What those must show who may only look.
    #[must_use]
    pub const fn admin_read_token(&self) -> Option<&Secret> {
        self.admin_read_token.as_ref()
    }

    /// What callers of the Redis protocol must show.
    #[must_use]
    pub const fn resp_password(&self) -> Option<&Secret> {
        self.resp_password.as_ref()
    }

    /// Who may use the local socket, besides its owner and root.
    pub fn unix_users(&self) -> impl Iterator<Item = &str> {
        self.unix_users.iter().map(|name| &**name)
    }

    /// Groups whose members may use the local socket.
    pub fn unix_groups(&self) -> impl Iterator<Item = &str> {
        self.unix_groups.iter().map(|name| &**name)
    }

    /// How often one user may ask over the local socket.
    #[must_use]
    pub const fn unix_user_rate(&self) -> Option<Rate> {
        self.unix_user_rate
    }

    /// How often all users together may.
    #[must_use]
    pub const fn unix_rate(&self) -> Option<Rate> {
        self.unix_rate
    }

    /// Which headers tell a client about its limits.
    #[must_use]
    pub fn headers(&self) -> Option<&str> {
        self.headers.as_deref()
    }

    /// The header with the attribute `user`, for proxies that ask.
    #[must_use]
    pub fn user_header(&self) -> Option<&str> {
        self.user_header.as_deref()
    }

    /// Whether logs show hashes in place of keys.
    #[must_use]
    pub const fn hides_keys(&self) -> bool {
        self.hides_keys
    }

    /// Connections at a time.
    #[must_use]
    pub const fn max_connections(&self) -> Option<u64> {
        self.max_connections
    }

    /// Connections at a time from one address, or of one user of this machine.
    #[must_use]
    pub const fn max_connections_per_peer(&self) -> Option<u64> {
        self.max_connections_per_peer
    }

    /// Where state is kept: `memory`, `file:PATH` or `redis://…`.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// Whose word about the client's address counts.
    #[must_use]
    pub fn trusted_proxies(&self) -> &[Network] {
        &self.trusted_proxies
    }

    /// How many keys are kept at most.
    #[must_use]
    pub const fn max_keys(&self) -> u64 {
        self.max_keys
    }

    /// What happens to keys beyond that.
    #[must_use]
    pub const fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// What happens to a request that no rule matches.
    #[must_use]
    pub const fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// Which part of the keys is enforced, in millionths.
    #[must_use]
    pub const fn enforce_ppm(&self) -> u32 {
        self.enforce_ppm
    }
}

/// What holds where the file says nothing.
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
            hides_keys: false,
            max_connections: None,
            max_connections_per_peer: None,
            store: None,
            trusted_proxies: Vec::new(),
            max_keys: Self::DEFAULT_MAX_KEYS,
            when_full: WhenFull::Share,
            unmatched: Unmatched::Allow,
            enforce_ppm: Self::ENFORCE_ALL_PPM,
        }
    }
}

impl Secret {
    /// A text that is not to be shown.
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
