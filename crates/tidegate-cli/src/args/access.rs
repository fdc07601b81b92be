//! The flags of access to the daemon.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// Which clients may use the daemon.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// File with the tokens of clients, and what each of them may do: see `tidegate token`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKENS", value_hint = ValueHint::FilePath)]
    pub(crate) tokens: Option<PathBuf>,
    /// Whether listeners that other machines can reach need TLS and credentials; the admin listener
    /// always does [default: closed]
    #[arg(long, value_enum, env = "TIDEGATE_ACCESS")]
    pub(crate) access: Option<Access>,
}

/// Whether listeners that other machines can reach need TLS and credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Access {
    /// They need TLS, and tokens or client certificates
    Closed,
    /// Every machine that reaches them may use them
    Open,
}
