//! The files that TLS needs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::RedisError;

/// Files in PEM. What is not set is that of the system.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// The certificates that the server's is checked against.
    pub(crate) authority: Option<PathBuf>,
    /// The certificate that the server checks, and its key.
    pub(crate) client: Option<ClientFiles>,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    pub(crate) const fn is_empty(&self) -> bool {
        self.authority.is_none() && self.client.is_none()
    }

    /// Reads and checks the files, so that a mistake in them is found before the first connection.
    pub(crate) fn read(&self) -> Result<TlsCertificates, RedisError> {
        let mut roots = RootCertStore::empty();
        let mut root_cert = None;
        if let Some(path) = &self.authority {
            let pem = read(path)?;
            for certificate in certificates(path, &pem)? {
                let added = roots.add(certificate);
                added.map_err(|error| refused(path, &format!("is no authority: {error}")))?;
            }
            root_cert = Some(pem);
        }
        let client_tls = match &self.client {
            Some(files) => Some(files.read(roots)?),
            None => None,
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

impl ClientFiles {
    fn read(&self, roots: RootCertStore) -> Result<ClientTlsConfig, RedisError> {
        let client_cert = read(&self.certificate)?;
        let client_key = read(&self.key)?;
        let chain = certificates(&self.certificate, &client_cert)?;
        let key = PrivateKeyDer::from_pem_slice(&client_key)
            .map_err(|error| refused(&self.key, &format!("has no key in PEM: {error}")))?;
        // Finds a key that cannot be used, or is not the certificate's.
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|it| it.with_root_certificates(roots).with_client_auth_cert(chain, key))
            .map_err(|error| {
                let certificate = self.certificate.display();
                refused(&self.key, &format!("is not the key of {certificate}: {error}"))
            })?;
        Ok(ClientTlsConfig { client_cert, client_key })
    }
}

/// Chooses how TLS computes, unless the process has chosen before.
pub(crate) fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // It fails if another thread was faster, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

fn read(path: &Path) -> Result<Vec<u8>, RedisError> {
    let failed = |error: std::io::Error| refused(path, &format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refused(path, "is larger than 1 MiB"));
    }
    Ok(bytes)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, RedisError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| refused(path, &format!("is no PEM: {error}")))?;
    if all.is_empty() {
        return Err(refused(path, "has no certificate in PEM"));
    }
    Ok(all)
}

fn refused(path: &Path, reason: &str) -> RedisError {
    RedisError::Tls(format!("the file {} {reason}", path.display()))
}

const MOST_BYTES: u64 = 1 << 20;
