//! The `[server.tls]` table: the certificates of the listeners.

/// The files for TLS: those of all listeners, and what differs for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    pub(crate) all: TlsTable,
    pub(crate) http: TlsTable,
    pub(crate) grpc: TlsTable,
    pub(crate) resp: TlsTable,
    pub(crate) admin: TlsTable,
}

/// The files for TLS in one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsTable {
    pub(crate) cert: Option<Box<str>>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) client_ca: Option<ClientCa>,
    pub(crate) is_off: bool,
}

/// The authority of clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCa {
    /// Clients need no certificate.
    Off,
    /// Clients need a certificate of an authority in this file.
    File(Box<str>),
}

impl TlsSettings {
    /// The files of all listeners.
    #[must_use]
    pub const fn all(&self) -> &TlsTable {
        &self.all
    }

    /// What differs for the HTTP listener.
    #[must_use]
    pub const fn http(&self) -> &TlsTable {
        &self.http
    }

    /// What differs for the gRPC listener.
    #[must_use]
    pub const fn grpc(&self) -> &TlsTable {
        &self.grpc
    }

    /// What differs for the listener of the Redis protocol.
    #[must_use]
    pub const fn resp(&self) -> &TlsTable {
        &self.resp
    }

    /// What differs for the admin listener.
    #[must_use]
    pub const fn admin(&self) -> &TlsTable {
        &self.admin
    }

    /// The table of each listener, with its name in the file.
    pub(crate) fn listeners(&self) -> [(&'static str, &TlsTable); 4] {
        let Self { http, grpc, resp, admin, .. } = self;
        [("http", http), ("grpc", grpc), ("resp", resp), ("admin", admin)]
    }
}

impl TlsTable {
    /// The file with the certificate and its chain, and the file with its key.
    #[must_use]
    pub fn cert_and_key(&self) -> Option<(&str, &str)> {
        Some((self.cert.as_deref()?, self.key.as_deref()?))
    }

    /// The authority of clients' certificates.
    #[must_use]
    pub const fn client_ca(&self) -> Option<&ClientCa> {
        self.client_ca.as_ref()
    }

    /// Whether the listener has no TLS.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.is_off
    }
}
