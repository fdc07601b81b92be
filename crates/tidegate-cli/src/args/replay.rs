//! The arguments of `tidegate replay`, and those about logs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::{Attribute, Format, YamlArgs, attribute};

/// What the command does.
pub(super) const LONG_ABOUT: &str = "Run access logs through a policy: which requests would it deny?\n\n\
    Decides every request of the logs as the daemon would, on the clock of the logs, and \
    prints how many are denied: in total, per rule and per key, the worst minutes, and the \
    first denials with their explanation.\n\n\
    Reads the Common and Combined Log Formats (nginx's default), JSON lines of Caddy, Envoy \
    and Traefik, other JSON lines, and CSV with a header; plain, in gzip or in zstd. The \
    format is guessed and reported. The attributes of a request are ip, user, method, path \
    (in its normal form, without the query), host, status, bytes, agent and referer; --attr \
    names others. Times without a zone are in UTC. Lines that cannot be read are counted and \
    shown.\n\n\
    Lines that are out of order by at most --window are put into order. Others are late: \
    they are decided at the newest time, and counted. --sort sorts all lines.\n\n\
    Exits with 0 whatever is denied, and with 2 if the policy has errors or a log cannot be \
    read, or not to its end.";

/// How it is used.
pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate replay policy.toml access.log
  tidegate replay policy.toml access.log.2.gz access.log.1 access.log --html report.html
  zcat access.log.*.gz | tidegate replay policy.toml - --sort --format json
  tidegate replay policy.toml requests.csv --attr user=account --time started --cost tokens";

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Policy file or folder; `-` reads stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) policy: PathBuf,
    /// Log files, read one after the other; `-` reads stdin
    #[arg(value_name = "LOG", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: LogArgs,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// How many of the most denied keys are listed
    #[arg(long, value_name = "KEYS", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub(crate) top: u32,
    #[command(flatten)]
    pub(crate) yaml: YamlArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: Format,
}

/// How logs are read.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Domain of the requests [default: the policy's only one, else `default`]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Format of the logs [default: guessed for each of them]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormatArg>,
    /// Read an attribute from this field; repeatable. In JSON a dot leads into an object
    #[arg(long = "attr", short = 'a', value_name = "NAME=FIELD", value_parser = attribute)]
    pub(crate) attributes: Vec<Attribute>,
    /// Field with the time, in JSON or CSV [default: guessed]
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Option<String>,
    /// Field with the cost of a request [default: each costs 1]
    #[arg(long, value_name = "FIELD")]
    pub(crate) cost: Option<String>,
    /// How far lines may be out of order to be put into order; others are late
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = window,
        conflicts_with = "sort")]
    pub(crate) window: Duration,
    /// Sort all lines by time first; what does not fit into memory goes to temporary files
    #[arg(long)]
    pub(crate) sort: bool,
    /// Memory for lines that wait to be put into order, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) sort_memory: u32,
    /// The most keys that are counted exactly, in total over all rules
    /// [default: `max_keys` of the policy, but at most 4194304]
    #[arg(long, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_keys: Option<u32>,
}

/// Format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArg {
    /// Common Log Format
    Common,
    /// Combined Log Format, nginx's default
    #[value(alias = "nginx")]
    Combined,
    /// Caddy's JSON lines
    Caddy,
    /// Envoy's JSON lines, with the field names of Istio or Envoy Gateway
    Envoy,
    /// Traefik's JSON lines
    Traefik,
    /// JSON lines
    Json,
    /// Comma-separated values below a header
    Csv,
}

fn window(text: &str) -> Result<Duration, String> {
    crate::format::duration_or_zero(text).map_err(|error| error.to_string())
}
