//! The flags of TLS.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The certificates of the listeners.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// File in PEM with the certificate of all TCP listeners, then those between it and its
    /// authority: they speak TLS 1.2 and 1.3; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CERT", value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File in PEM with the key of `--tls-cert`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_KEY", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// File in PEM with the authorities of clients: each client needs a certificate of one of them
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CLIENT_CA",
        value_hint = ValueHint::FilePath)]
    pub(crate) tls_client_ca: Option<PathBuf>,
}
