use std::fmt;

/// One of the daemon's listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listener {
    /// HTTP with JSON.
    Http,
    /// Envoy's rate limit service.
    Grpc,
    /// The Redis protocol (RESP).
    Resp,
    /// The local socket.
    Unix,
    /// The admin API over HTTP.
    Admin,
}

impl Listener {
    /// All listeners.
    pub const ALL: [Self; 5] = [Self::Http, Self::Grpc, Self::Resp, Self::Unix, Self::Admin];

    /// Its name in settings, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Unix => "unix",
            Self::Admin => "admin",
        }
    }

    /// Its default address; `None` for the local socket, whose path depends on the environment.
    #[must_use]
    pub const fn default_address(self) -> Option<&'static str> {
        match self {
            Self::Http => Some("127.0.0.1:8080"),
            Self::Grpc => Some("127.0.0.1:8081"),
            Self::Resp => Some("127.0.0.1:6380"),
            Self::Admin => Some("127.0.0.1:9090"),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
