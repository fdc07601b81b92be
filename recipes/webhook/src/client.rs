use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// A client of the chat API and the agent, over HTTP and HTTPS.
pub type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client for these addresses.
///
/// The system's trusted certificates are read only if one of them is `https`.
pub fn client<'u>(
    addresses: impl IntoIterator<Item = &'u hyper::Uri>,
) -> Result<Client, TrustError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(MAX_CONNECT_TIME));
    let provider = ring::default_provider();
    let tls = HttpsConnectorBuilder::new();
    let needs_tls = addresses.into_iter().any(|address| address.scheme_str() == Some("https"));
    let tls = if needs_tls {
        tls.with_provider_and_native_roots(provider).map_err(TrustError)?
    } else {
        let no_roots = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TrustError(io::Error::other(error)))?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        tls.with_tls_config(no_roots)
    };
    let connector = tls.https_or_http().enable_http1().wrap_connector(http);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(MAX_IDLE_TIME)
        .pool_max_idle_per_host(MAX_IDLE)
        .build(connector))
}

/// The system's trusted certificates cannot be read.
pub struct TrustError(io::Error);

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot read the system's trusted certificates, which https needs: {} \
             (install the package ca-certificates, or name a file in SSL_CERT_FILE)",
            self.0
        )
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for TrustError {}

/// The time-out of establishing a connection.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);

/// How long and how many idle connections are kept for reuse.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);
const MAX_IDLE: usize = 32;
