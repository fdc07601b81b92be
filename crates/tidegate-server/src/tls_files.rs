//! The files of a listener's TLS.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tidegate::policy::{ClientCa, TlsSettings};
use tidegate_listen::tls::{TlsConfig, TlsConfigError, TlsPem};

use crate::listener::Listener;

/// The files of a listener's TLS, in the format PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsPaths {
    /// The certificate, then those between it and its authority.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The authorities of clients, which then need a certificate of one of them.
    pub client_ca: Option<PathBuf>,
}

/// Files for all listeners that are given beside the policy file, and come before those in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFlags {
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
}

/// Why a listener has no TLS although it should have.
#[non_exhaustive]
pub enum TlsError {
    /// There is a certificate, but no key.
    NoKey,
    /// There is a key, but no certificate.
    NoCertificate,
    /// There is an authority of clients, but no certificate.
    OnlyClientCa,
    /// A file cannot be read.
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A file cannot be used.
    Invalid {
        /// Its path.
        path: PathBuf,
        /// The error.
        error: TlsConfigError,
    },
    /// The threads for handshakes cannot be started.
    Threads(io::Error),
}

impl TlsPaths {
    /// The files of a listener; `None` if it has no TLS.
    pub(crate) fn of(
        listener: Listener,
        flags: &TlsFlags,
        file: &TlsSettings,
    ) -> Result<Option<Self>, TlsError> {
        let own = match listener {
            Listener::Http => file.http(),
            Listener::Grpc => file.grpc(),
            Listener::Resp => file.resp(),
            Listener::Admin => file.admin(),
            Listener::Unix => return Ok(None),
        };
        if own.is_off() {
            return Ok(None);
        }
        let flags_pair = match (&flags.cert, &flags.key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            (Some(_), None) => return Err(TlsError::NoKey),
            (None, Some(_)) => return Err(TlsError::NoCertificate),
        };
        let of_file = |pair: Option<(&str, &str)>| pair.map(|(a, b)| (a.into(), b.into()));
        let pair = of_file(own.cert_and_key())
            .or(flags_pair)
            .or_else(|| of_file(file.all().cert_and_key()));
        let path = |ca: &ClientCa| match ca {
            ClientCa::Off => None,
            ClientCa::File(path) => Some(PathBuf::from(&**path)),
        };
        let client_ca = match (own.client_ca(), &flags.client_ca, file.all().client_ca()) {
            (Some(own), ..) => path(own),
            (None, Some(flag), _) => Some(flag.clone()),
            (None, None, all) => all.and_then(path),
        };
        match (pair, client_ca) {
            (Some((cert, key)), client_ca) => Ok(Some(Self { cert, key, client_ca })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(TlsError::OnlyClientCa),
        }
    }

    /// All of the files.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
    }

    /// Their contents.
    pub(crate) fn read(&self) -> Result<TlsContents, TlsError> {
        let client_ca = self.client_ca.as_deref().map(read).transpose()?;
        Ok(TlsContents { cert: read(&self.cert)?, key: read(&self.key)?, client_ca })
    }

    /// The configuration that these contents make.
    pub(crate) fn config(
        &self,
        contents: &TlsContents,
        listener: Listener,
    ) -> Result<TlsConfig, TlsError> {
        let TlsContents { cert, key, client_ca } = contents;
        let pem = TlsPem { certificate: cert, key, client_ca: client_ca.as_deref() };
        let protocols: &[&[u8]] = match listener {
            Listener::Http | Listener::Admin => &[b"http/1.1"],
            Listener::Grpc => &[b"h2"],
            Listener::Resp | Listener::Unix => &[],
        };
        TlsConfig::new(&pem, protocols).map_err(|error| {
            let path = match &error {
                TlsConfigError::Key(_) | TlsConfigError::KeyMismatch => &self.key,
                TlsConfigError::ClientCa(_) => self.client_ca.as_ref().unwrap_or(&self.cert),
                _ => &self.cert,
            };
            TlsError::Invalid { path: path.clone(), error }
        })
    }

    /// Whether others than its owner may read the key. Links lead to the file that counts.
    pub(crate) fn is_key_exposed(&self) -> bool {
        let mode = std::fs::metadata(&self.key).map(|it| it.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o044 != 0)
    }
}

/// The contents of the files.
#[derive(Hash)]
pub(crate) struct TlsContents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error| TlsError::Unreadable { path: path.into(), error };
    // Opening a pipe would wait for a writer.
    let kind = std::fs::metadata(path).map_err(unreadable)?;
    if !kind.is_file() {
        return Err(unreadable(io::Error::other("it is not a file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(unreadable(io::Error::other(why)));
    }
    Ok(bytes)
}

impl TlsError {
    /// Whether a certificate and a key do not belong together, as it happens while both are being
    /// replaced.
    pub(crate) const fn is_mismatch(&self) -> bool {
        matches!(self, Self::Invalid { error: TlsConfigError::KeyMismatch, .. })
    }

    /// What to do about it.
    const fn hint(&self) -> &'static str {
        match self {
            Self::NoKey => "set --tls-key FILE, or `key` in [server.tls]",
            Self::NoCertificate => "set --tls-cert FILE, or `cert` in [server.tls]",
            Self::OnlyClientCa => {
                "set --tls-cert and --tls-key, or `cert` and `key` in [server.tls]"
            }
            Self::Unreadable { .. } => "paths are relative to the folder that the daemon starts in",
            Self::Invalid { error: TlsConfigError::KeyMismatch, .. } => {
                "the certificate has to be the first in its file, and the key has to be its own"
            }
            Self::Invalid { .. } => "the files have to be in the format PEM",
            Self::Threads(_) => "the system has too many threads, or too little memory",
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("the certificate has no key")?,
            Self::NoCertificate => f.write_str("the key has no certificate")?,
            Self::OnlyClientCa => {
                f.write_str("there is an authority of clients, but no certificate of the daemon")?;
            }
            Self::Unreadable { path, error } => {
                write!(f, "cannot read {}: {error}", path.display())?
            }
            Self::Invalid { path, error } => write!(f, "{}: {error}", path.display())?,
            Self::Threads(error) => write!(f, "cannot start threads: {error}")?,
        }
        write!(f, "\n  = hint: {}", self.hint())
    }
}

tidegate::debug_as_displayed!(TlsError);

impl std::error::Error for TlsError {}

/// The most bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
