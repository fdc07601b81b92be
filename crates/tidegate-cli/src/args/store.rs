//! The flags of the store.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Where state is kept, and how to connect to a shared server.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// Where to keep state: `memory`; `file:FOLDER`, where quotas and other durable rules survive
    /// restarts and crashes; or `redis://HOST:PORT`, a Redis or Valkey server that several daemons
    /// share [default: memory]
    #[arg(long, env = "TIDEGATE_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// What all names on a shared server begin with [default: tidegate]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_STORE_NAMESPACE")]
    pub(crate) store_namespace: Option<String>,
    /// File with the secret that names of keys on a shared server are hashed with; the same in all
    /// daemons
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_SECRET_FILE",
        value_hint = ValueHint::FilePath)]
    pub(crate) store_secret_file: Option<PathBuf>,
    /// File with the password of a shared server, where its address has none: other users can see
    /// the arguments of a process
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_PASSWORD_FILE",
        value_hint = ValueHint::FilePath)]
    pub(crate) store_password_file: Option<PathBuf>,
    /// User of the sentinels [default: the default user]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_STORE_SENTINEL_USER")]
    pub(crate) store_sentinel_user: Option<String>,
    /// File with the password of the sentinels
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_SENTINEL_PASSWORD_FILE",
        value_hint = ValueHint::FilePath)]
    pub(crate) store_sentinel_password_file: Option<PathBuf>,
    /// File in PEM with the certificates that a shared server's is checked against, for addresses
    /// that begin with `rediss` [default: those of the system]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CA", value_hint = ValueHint::FilePath)]
    pub(crate) store_ca: Option<PathBuf>,
    /// File in PEM with the certificate that a shared server checks
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CERT", value_hint = ValueHint::FilePath)]
    pub(crate) store_cert: Option<PathBuf>,
    /// File in PEM with the key of `--store-cert`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_KEY", value_hint = ValueHint::FilePath)]
    pub(crate) store_key: Option<PathBuf>,
}

/// Without the address, which may have a password.
impl fmt::Debug for StoreArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreArgs").finish_non_exhaustive()
    }
}
