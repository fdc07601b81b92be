use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use clap::Args;
use tidegate::policy::{duration_from_text, duration_to_text};

use crate::governors::{GovernorList, Governors, secret};
use crate::limits::{CAP_MAX, Limits};
use crate::server::ConnectionLimits;

/// The settings of the desk.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the ledger.
    pub store: PathBuf,
    /// The governors and their secrets.
    pub governors: Governors,
    /// The interpreter's URL.
    pub interpreter: Uri,
    /// The number of rounds of the game in a window.
    pub interval: u64,
    /// The limits.
    pub limits: Limits,
}

/// The desk's settings, as flags and environment variables.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 is any free port, printed on standard output
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "PROPOSALS_LISTEN"
    )]
    pub(crate) listen: SocketAddr,

    /// The folder of the ledger, created if it does not exist
    #[arg(long, value_name = "FOLDER", env = "PROPOSALS_STORE")]
    store: PathBuf,

    /// The governors, who may propose and vote, each with a secret: NAME:SECRET,NAME:SECRET,…
    #[arg(long, value_name = "LIST", env = "PROPOSALS_GOVERNORS", hide_env_values = true)]
    governors: GovernorList,

    /// The secret of the game, which reports rounds and requests tallies
    #[arg(long, value_name = "SECRET", env = "PROPOSALS_HOST_SECRET", hide_env_values = true,
          value_parser = secret)]
    host_secret: String,

    /// The URL of the interpreter, http or https
    #[arg(long, value_name = "URL", env = "INTERPRETER_URL", value_parser = address)]
    interpreter_url: Uri,

    /// Time-out of one call of the interpreter
    #[arg(long, value_name = "TIME", default_value = "1m", env = "INTERPRETER_TIMEOUT",
          value_parser = duration_from_text)]
    interpreter_timeout: Duration,

    /// Maximum number of calls of the interpreter in flight
    #[arg(long, value_name = "N", default_value_t = 3, env = "INTERPRETER_CALLS",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    interpreter_calls: u64,

    /// How many more proposals may be queued for the interpreter
    #[arg(long, value_name = "N", default_value_t = 1_000, env = "INTERPRETER_QUEUE",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    interpreter_queue: u64,

    /// Number of rounds of the game in a governance window
    #[arg(long, value_name = "N", default_value_t = 3, env = "PINWHEEL_GOVERNANCE_INTERVAL",
          value_parser = clap::value_parser!(u64).range(1..))]
    governance_interval: u64,

    /// The cap: proposals per governor and window, until a vote changes it
    #[arg(long, value_name = "N", default_value_t = 3, env = "PROPOSALS_PER_WINDOW",
          value_parser = clap::value_parser!(u64).range(1..=CAP_MAX))]
    proposals_per_window: u64,

    /// Minimum time between two proposals of a governor; `off`: none
    #[arg(long, value_name = "TIME", default_value = "60s", env = "PROPOSALS_COOLDOWN",
          value_parser = cooldown)]
    cooldown: Cooldown,

    /// Time that a governor has to confirm a proposal, at least 10s
    #[arg(long, value_name = "TIME", default_value = "10m", env = "PROPOSALS_CONFIRM_WITHIN",
          value_parser = confirm_within)]
    confirm_within: Duration,

    /// Maximum number of connections; beyond that an idle one is closed, or the response is a 503
    #[arg(long, value_name = "N", default_value_t = 2_048, env = "PROPOSALS_CONNECTIONS",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections: u64,

    /// Maximum number of connections of one address (IPv6: of one /64); beyond that the response
    /// is a 503
    #[arg(long, value_name = "N", default_value_t = 256, env = "PROPOSALS_CONNECTIONS_PER_ADDRESS",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections_per_address: u64,
}

/// A cooldown, or none.
#[derive(Clone, Copy, Debug)]
struct Cooldown(Option<Duration>);

impl ServeArgs {
    /// The bounds of connections, as far as there are descriptors.
    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits { all: self.connections, per_address: self.connections_per_address }
            .within_descriptors(self.interpreter_calls + OTHER_DESCRIPTORS)
    }

    pub(crate) fn settings(self) -> Result<Settings, String> {
        let limits = Limits {
            proposals_per_window: self.proposals_per_window,
            cooldown: self.cooldown.0,
            confirm_within: self.confirm_within,
            calls: self.interpreter_calls,
            queue: self.interpreter_queue,
            call_timeout: self.interpreter_timeout,
        };
        Ok(Settings {
            store: self.store,
            governors: Governors::new(self.governors, self.host_secret)?,
            interpreter: self.interpreter_url,
            interval: self.governance_interval,
            limits,
        })
    }
}

fn cooldown(text: &str) -> Result<Cooldown, String> {
    match text {
        "off" | "0" | "0s" => Ok(Cooldown(None)),
        _ => duration_from_text(text)
            .map(|cooldown| Cooldown(Some(cooldown)))
            .map_err(|error| error.to_string()),
    }
}

/// A governor reads the interpretation before confirming it: less time than this is a mistake, which
/// would expire every proposal.
fn confirm_within(text: &str) -> Result<Duration, String> {
    let within = duration_from_text(text).map_err(|error| error.to_string())?;
    if within < MIN_CONFIRM_WITHIN {
        let least = duration_to_text(MIN_CONFIRM_WITHIN);
        return Err(format!("a governor needs time to read it: at least {least}"));
    }
    Ok(within)
}

/// Descriptors that the runtime, the listener and the ledger need.
const OTHER_DESCRIPTORS: u64 = 64;

const MIN_CONFIRM_WITHIN: Duration = Duration::from_secs(10);

/// Parses an HTTP or HTTPS URL.
pub(crate) fn address(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("must begin with http:// or https:// and a host".into()),
    }
}
