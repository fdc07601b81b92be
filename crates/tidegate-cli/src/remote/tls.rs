//! TLS of the client: whom it trusts, and how it proves who it is.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::url::DaemonUrl;
use crate::args::RemoteArgs;
use crate::call_error::CallError;
use crate::format;

/// How the client speaks TLS: versions 1.2 and 1.3.
pub(super) struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    /// The name or address that the daemon's certificate must have.
    pub(super) name: ServerName<'static>,
    /// The file with the authority; `None`: the certificates of the system.
    pub(super) ca: Option<PathBuf>,
    pub(super) has_certificate: bool,
}

impl ClientTls {
    pub(super) fn new(
        url: &DaemonUrl,
        args: &RemoteArgs,
        warnings: &mut dyn Write,
    ) -> Result<Self, CallError> {
        let name = ServerName::try_from(url.host.clone()).map_err(|_| {
            CallError::new(format!("`{}` is neither a name nor an address", url.host))
        })?;
        let roots = match &args.ca {
            Some(path) => authority(path)?,
            None => of_the_system()?,
        };
        let failed = |error| CallError::new(format!("TLS cannot be used: {error}"));
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots);
        let mut config = match (&args.cert, &args.cert_key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), key) => {
                let key = key.as_ref().unwrap_or(cert);
                let chain = certificates(cert)?;
                builder.with_client_auth_cert(chain, private_key(key, warnings)?).map_err(
                    |error| {
                        let (cert, key) = (shown(cert), shown(key));
                        CallError::new(format!("`{key}` is not the key of `{cert}`: {error}"))
                            .hint("the certificate has to be the first in its file")
                    },
                )?
            }
            (None, Some(_)) => {
                return Err(CallError::new("--key has no certificate").hint("use --cert FILE"));
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let has_certificate = args.cert.is_some();
        Ok(Self { config: Arc::new(config), name, ca: args.ca.clone(), has_certificate })
    }
}

/// The authorities in a file.
fn authority(path: &Path) -> Result<RootCertStore, CallError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            CallError::new(format!("`{}` is not an authority: {error}", shown(path)))
        })?;
    }
    Ok(roots)
}

/// The authorities that the system trusts.
fn of_the_system() -> Result<RootCertStore, CallError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some that cannot be parsed are in most collections.
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let why = match found.errors.first() {
        Some(error) => format!("the certificates of the system cannot be read: {error}"),
        None => "the system has no certificates of authorities".into(),
    };
    Err(CallError::new(why).hint("give the authority of the daemon's certificate with --ca FILE"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CallError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(not_pem(path, "it has no `BEGIN CERTIFICATE`")),
        Err(error) => Err(not_pem(path, &error.to_string())),
    }
}

fn private_key(path: &Path, warnings: &mut dyn Write) -> Result<PrivateKeyDer<'static>, CallError> {
    let mode = std::fs::metadata(path).map(|it| it.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o044 != 0) {
        let name = shown(path);
        // Not worth failing for.
        let _ = writeln!(
            warnings,
            "warning: other users may read the key `{name}`; run `chmod 600 {name}`"
        );
    }
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| {
        CallError::new(format!("`{}` has no key in the format PEM: {error}", shown(path)))
            .hint("give the key of --cert with --key FILE, in front of the command")
    })
}

fn not_pem(path: &Path, why: &str) -> CallError {
    CallError::new(format!("`{}` is not in the format PEM: {why}", shown(path)))
        .hint("the files of --ca, --cert and --key are text with lines such as `-----BEGIN …-----`")
}

fn read(path: &Path) -> Result<Vec<u8>, CallError> {
    let failed = |error| CallError::new(format!("cannot read `{}`: {error}", shown(path)));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        let why = format!("`{}` has more than {MOST_BYTES} bytes", shown(path));
        return Err(CallError::new(why));
    }
    Ok(bytes)
}

fn shown(path: &Path) -> String {
    format::visible(&path.to_string_lossy())
}

const MOST_BYTES: u64 = 1 << 20;
