use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, ServerConnection};

use crate::certificate::Fields;

/// The certificate of a listener with its key, and the authority of its clients' certificates; all
/// in the format PEM.
#[derive(Clone, Copy)]
pub struct TlsPem<'a> {
    /// The certificate, then those between it and its authority.
    pub certificate: &'a [u8],
    /// The private key of the certificate.
    pub key: &'a [u8],
    /// The authorities of clients: with them, every client must have a certificate.
    pub client_ca: Option<&'a [u8]>,
}

/// Without the key.
impl fmt::Debug for TlsPem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPem").finish_non_exhaustive()
    }
}

/// How a listener speaks TLS: versions 1.2 and 1.3, session tickets, no early data.
#[derive(Debug)]
pub struct TlsConfig {
    pub(super) server: Arc<ServerConfig>,
    /// Verifies the certificates of clients.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    not_before: i64,
    not_after: i64,
}

/// Why a certificate, a key or an authority cannot be used.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The certificate cannot be read.
    Certificate(String),
    /// The key cannot be read.
    Key(String),
    /// The key is not that of the certificate.
    KeyMismatch,
    /// The authorities of clients cannot be read.
    ClientCa(String),
}

impl TlsConfig {
    /// The configuration with these files' contents. Clients that offer protocols (ALPN) must offer
    /// one of `protocols`; those that offer none are accepted.
    pub fn new(pem: &TlsPem<'_>, protocols: &[&[u8]]) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(default_provider());
        let chain = certificates(pem.certificate).map_err(TlsConfigError::Certificate)?;
        let (mut not_before, mut not_after) = (i64::MIN, i64::MAX);
        for certificate in &chain {
            let fields = Fields::of(certificate).ok_or_else(|| {
                TlsConfigError::Certificate("it is no certificate of X.509".into())
            })?;
            not_before = not_before.max(fields.not_before);
            not_after = not_after.min(fields.not_after);
        }
        let key = private_key(pem.key).map_err(TlsConfigError::Key)?;
        let verifier = pem.client_ca.map(|ca| client_verifier(ca, &provider)).transpose()?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::Certificate(error.to_string()))?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsConfigError::KeyMismatch
            }
            rustls::Error::General(why) => TlsConfigError::Key(why),
            error => TlsConfigError::Certificate(error.to_string()),
        })?;
        server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Its keys are random and replaced every few hours. Another configuration has other keys,
        // so nothing is resumed that began with another certificate or another authority.
        server.ticketer =
            Ticketer::new().map_err(|error| TlsConfigError::Key(error.to_string()))?;
        server.send_tls13_tickets = 1;
        // Sessions are kept by clients alone, in their tickets.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { server: Arc::new(server), verifier, not_before, not_after })
    }

    /// When the certificate, or one between it and its authority, is no longer valid: seconds of
    /// Unix time.
    #[must_use]
    pub const fn expires_at(&self) -> i64 {
        self.not_after
    }

    /// When the certificate becomes valid: seconds of Unix time.
    #[must_use]
    pub const fn valid_from(&self) -> i64 {
        self.not_before
    }

    /// Whether clients must have a certificate.
    #[must_use]
    pub const fn needs_client_certificate(&self) -> bool {
        self.verifier.is_some()
    }

    /// Verifies the client's certificate of a resumed session, which rustls does only for new ones:
    /// it may have expired since.
    pub(super) fn verify_resumed(&self, session: &ServerConnection) -> Result<(), rustls::Error> {
        let Some(verifier) = &self.verifier else { return Ok(()) };
        let Some([certificate, chain @ ..]) = session.peer_certificates() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let now = self.server.time_provider.current_time();
        let now = now.ok_or(rustls::Error::FailedToGetCurrentTime)?;
        verifier.verify_client_cert(certificate, chain, now).map(|_| ())
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("it has no `BEGIN CERTIFICATE` (PEM)".into()),
        Ok(all) => Ok(all),
        Err(error) => Err(error.to_string()),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let has = |text: &[u8]| pem.windows(text.len()).any(|it| it == text);
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            return "it is encrypted; only keys without a passphrase can be read".into();
        }
        match error {
            rustls::pki_types::pem::Error::NoItemsFound => {
                "it has no `BEGIN PRIVATE KEY` (PEM)".into()
            }
            error => error.to_string(),
        }
    })
}

fn client_verifier(
    pem: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).map_err(TlsConfigError::ClientCa)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsConfigError::ClientCa(error.to_string()))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    verifier.build().map_err(|error| TlsConfigError::ClientCa(error.to_string()))
}

impl fmt::Display for TlsConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(f, "the certificate cannot be used: {why}"),
            Self::Key(why) => write!(f, "the private key cannot be used: {why}"),
            Self::KeyMismatch => f.write_str("the private key is not that of the certificate"),
            Self::ClientCa(why) => write!(f, "the authority of clients cannot be used: {why}"),
        }
    }
}

tidegate::debug_as_displayed!(TlsConfigError);

impl std::error::Error for TlsConfigError {}
