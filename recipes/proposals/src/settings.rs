use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use clap::Args;
use tidegate::policy::duration_from_text;

use crate::governors::{GovernorList, Governors, secret};
use crate::limits::{CAP_MAX, Limits};

/// What the desk is told when it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the ledger.
    pub store: PathBuf,
    /// Who may take part.
    pub governors: Governors,
    /// Where the interpreter is.
    pub interpreter: Uri,
    /// How many rounds of the game a governance window spans.
    pub interval: u64,
    /// The numbers of the limits.
    pub limits: Limits,
}

/// The desk's settings, as flags and environment.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 is any free port, and is told on standard output
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "PROPOSALS_LISTEN"
    )]
    pub(crate) listen: SocketAddr,

    /// The folder in which everything is kept; it is made if it is not there
    #[arg(long, value_name = "FOLDER", env = "PROPOSALS_STORE")]
    store: PathBuf,

    /// Who may propose and vote, each with a secret: NAME:SECRET,NAME:SECRET,…
    #[arg(long, value_name = "LIST", env = "PROPOSALS_GOVERNORS", hide_env_values = true)]
    governors: GovernorList,

    /// The secret of the game itself, which reports rounds and asks for tallies
    #[arg(long, value_name = "SECRET", env = "PROPOSALS_HOST_SECRET", hide_env_values = true,
          value_parser = secret)]
    host_secret: String,

    /// Where proposals are interpreted: an http or https address
    #[arg(long, value_name = "URL", env = "INTERPRETER_URL", value_parser = address)]
    interpreter_url: Uri,

    /// How long the interpreter may take for one proposal
    #[arg(long, value_name = "TIME", default_value = "1m", env = "INTERPRETER_TIMEOUT",
          value_parser = duration_from_text)]
    interpreter_timeout: Duration,

    /// How many calls of the interpreter may be in flight
    #[arg(long, value_name = "N", default_value_t = 3, env = "INTERPRETER_CALLS",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    interpreter_calls: u64,

    /// How many more proposals may wait for the interpreter
    #[arg(long, value_name = "N", default_value_t = 1_000, env = "INTERPRETER_QUEUE",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    interpreter_queue: u64,

    /// How many rounds of the game a governance window spans
    #[arg(long, value_name = "N", default_value_t = 3, env = "PINWHEEL_GOVERNANCE_INTERVAL",
          value_parser = clap::value_parser!(u64).range(1..))]
    governance_interval: u64,

    /// How many proposals a governor may hand in per window, until a vote changes it
    #[arg(long, value_name = "N", default_value_t = 3, env = "PROPOSALS_PER_WINDOW",
          value_parser = clap::value_parser!(u64).range(1..=CAP_MAX))]
    proposals_per_window: u64,

    /// How long a governor waits between two proposals; `off`: not at all
    #[arg(long, value_name = "TIME", default_value = "60s", env = "PROPOSALS_COOLDOWN",
          value_parser = cooldown)]
    cooldown: Cooldown,

    /// How long a governor has to confirm a proposal
    #[arg(long, value_name = "TIME", default_value = "10m", env = "PROPOSALS_CONFIRM_WITHIN",
          value_parser = duration_from_text)]
    confirm_within: Duration,
}

/// A cooldown, or none.
#[derive(Clone, Copy, Debug)]
struct Cooldown(Option<Duration>);

impl ServeArgs {
    pub(crate) fn settings(self) -> Result<Settings, String> {
        let limits = Limits {
            proposals_per_window: self.proposals_per_window,
            cooldown: self.cooldown.0,
            confirm_within: self.confirm_within,
            calls: self.interpreter_calls,
            queue: self.interpreter_queue,
            answer_within: self.interpreter_timeout,
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

/// Reads the address of somebody who speaks HTTP.
pub(crate) fn address(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("it begins with http:// or https://, and a host".into()),
    }
}
