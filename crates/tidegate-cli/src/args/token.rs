//! Arguments of the commands for token files.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use tidegate::policy::{Scope, ScopeError};

use super::{Attribute, Format, attribute, time};

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Token file; `new` creates it if it does not exist
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKENS", global = true,
        default_value = "tokens.toml", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT",
        global = true)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum TokenCommand {
    /// Add a token, and print its secret, which is stored nowhere
    New {
        /// Name of the client; several tokens may have the same
        name: String,
        /// What it may do: check, settle, lease, read, inspect, admin; repeatable
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',',
            value_parser = scope)]
        scopes: Vec<Scope>,
        /// Domain it is for; repeatable [default: all]
        #[arg(long = "domain", value_name = "NAME")]
        domains: Vec<String>,
        /// Attribute that its requests must have; several values of one name are alternatives
        #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<Attribute>,
        /// How many requests it may send, such as 100/s
        #[arg(long, value_name = "RATE")]
        limit: Option<String>,
        /// Expiry time in RFC 3339
        #[arg(long, value_name = "TIME", value_parser = time)]
        until: Option<jiff::Timestamp>,
        #[command(flatten)]
        credential: CredentialArgs,
    },
    /// List the tokens
    List,
    /// Remove the tokens of a client
    Revoke {
        /// Name of the client
        name: String,
        /// Only the token whose SHA-256 begins with these digits
        #[arg(long, value_name = "DIGITS")]
        sha256: Option<String>,
    },
}

/// How the client proves who it is, if not by a secret.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct CredentialArgs {
    /// Subject of its certificate, in place of a secret: a URI or DNS name, else the common name
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: Option<String>,
    /// User on the local socket, in place of a secret
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Group on the local socket, in place of a secret
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
}

fn scope(text: &str) -> Result<Scope, ScopeError> {
    text.parse()
}
