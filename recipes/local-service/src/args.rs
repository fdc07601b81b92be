//! The command line: every flag with its help.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};
use tidegate::policy::{RuleError, duration_from_text};
use tracing::Level;

use crate::UserOverride;

mod values;

/// Serves pings of local users, within limits.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-local-service",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Listen on a socket and serve requests
    #[command(after_long_help = "\
Examples:
  tidegate-local-service serve --socket /run/user/1000/pings.sock
  tidegate-local-service serve --socket /run/pings.sock --allow-group adm --user-max 20
  tidegate-local-service serve --socket /run/pings.sock --allow-everybody \\
      --user-override backup=25 --user-override 'ci-*=5/1m'

SIGTERM and SIGINT shut it down gracefully.")]
    Serve(Box<ServeArgs>),
    /// Send pings and print the responses
    #[command(after_long_help = "\
Exits with 0 if all pings succeeded, with 1 if some were denied, with 2 if there was no response.

Example:
  tidegate-local-service ping --socket /run/user/1000/pings.sock --count 20")]
    Ping(PingArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The socket to listen on
    #[arg(long, value_name = "PATH", env = "TIDEGATE_LOCAL_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: PathBuf,
    /// The mode of the socket's file, in octal: which users may connect [default: 0600, or 0666 if
    /// an --allow flag is given]
    #[arg(long, value_name = "OCTAL", env = "TIDEGATE_LOCAL_MODE", value_parser = values::mode)]
    pub(crate) mode: Option<u32>,
    /// Accept this user: a name or uid:N; repeatable [default: the service's own user and root]
    #[arg(long, value_name = "USER", env = "TIDEGATE_LOCAL_ALLOW_USER", value_delimiter = ',')]
    pub(crate) allow_user: Vec<String>,
    /// Accept the members of this group: a name or gid:N; repeatable
    #[arg(long, value_name = "GROUP", env = "TIDEGATE_LOCAL_ALLOW_GROUP", value_delimiter = ',')]
    pub(crate) allow_group: Vec<String>,
    /// Accept all users
    #[arg(long, env = "TIDEGATE_LOCAL_ALLOW_EVERYBODY", value_parser = FalseyValueParser::new())]
    pub(crate) allow_everybody: bool,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "TIDEGATE_LOCAL_LOG")]
    pub(crate) log: Level,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Requests per window of one user
    #[arg(long, value_name = "N", default_value_t = 10, env = "TIDEGATE_LOCAL_USER_MAX",
        value_parser = values::positive, allow_hyphen_values = true)]
    pub(crate) user_max: u64,
    /// Length of that window, which opens with the user's first request
    #[arg(long, value_name = "TIME", default_value = "10s", env = "TIDEGATE_LOCAL_USER_PER",
        value_parser = time, allow_hyphen_values = true)]
    pub(crate) user_per: Duration,
    /// Burst of one user: a bucket instead of a window, refilled at max per time
    #[arg(long, value_name = "N", env = "TIDEGATE_LOCAL_USER_BURST",
        value_parser = values::positive, allow_hyphen_values = true)]
    pub(crate) user_burst: Option<u64>,
    /// Other limits for a user: NAME=MAX, NAME=MAX/TIME, NAME=MAX/TIME:BURST or NAME=unlimited;
    /// repeatable, the first match counts; `*` in a name matches any text
    #[arg(long, value_name = "NAME=…", env = "TIDEGATE_LOCAL_USER_OVERRIDE", value_delimiter = ',',
        value_parser = values::exception)]
    pub(crate) user_override: Vec<UserOverride>,
    /// Requests per window of all users
    #[arg(long, value_name = "N", default_value_t = 30, env = "TIDEGATE_LOCAL_GLOBAL_MAX",
        value_parser = values::positive, allow_hyphen_values = true)]
    pub(crate) global_max: u64,
    /// Length of that window, which opens with the first request
    #[arg(long, value_name = "TIME", default_value = "10s", env = "TIDEGATE_LOCAL_GLOBAL_PER",
        value_parser = time, allow_hyphen_values = true)]
    pub(crate) global_per: Duration,
    /// Burst of all users: a bucket instead of a window
    #[arg(long, value_name = "N", env = "TIDEGATE_LOCAL_GLOBAL_BURST",
        value_parser = values::positive, allow_hyphen_values = true)]
    pub(crate) global_burst: Option<u64>,
    /// Read all limits from the domain `ipc` of a policy file
    #[arg(long, value_name = "FILE", env = "TIDEGATE_LOCAL_POLICY", value_hint = ValueHint::FilePath,
        conflicts_with_all = LIMITS)]
    pub(crate) policy: Option<PathBuf>,
    /// No limits; cannot be combined with a setting of a limit
    #[arg(long, env = "TIDEGATE_LOCAL_NO_LIMIT", value_parser = FalseyValueParser::new())]
    pub(crate) no_limit: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Bounds")]
pub(crate) struct BoundArgs {
    /// Concurrent connections
    #[arg(long, value_name = "N", default_value_t = 1024, env = "TIDEGATE_LOCAL_MAX_CONNECTIONS",
        value_parser = values::positive, allow_hyphen_values = true)]
    pub(crate) max_connections: u64,
    /// Concurrent connections of one user
    #[arg(long, value_name = "N", default_value_t = 128,
        env = "TIDEGATE_LOCAL_MAX_CONNECTIONS_PER_USER",
        value_parser = values::positive, allow_hyphen_values = true)]
    pub(crate) max_connections_per_user: u64,
    /// Time from a request's first byte to its last
    #[arg(long, value_name = "TIME", default_value = "30s", env = "TIDEGATE_LOCAL_FRAME_TIMEOUT",
        value_parser = time, allow_hyphen_values = true)]
    pub(crate) frame_timeout: Duration,
    /// Time until the first byte of the next request
    #[arg(long, value_name = "TIME", default_value = "30s", env = "TIDEGATE_LOCAL_IDLE_TIMEOUT",
        value_parser = time, allow_hyphen_values = true)]
    pub(crate) idle_timeout: Duration,
    /// Time for the client to read a response
    #[arg(long, value_name = "TIME", default_value = "10s", env = "TIDEGATE_LOCAL_WRITE_TIMEOUT",
        value_parser = time, allow_hyphen_values = true)]
    pub(crate) write_timeout: Duration,
    /// Time for responses to requests that have arrived when the service stops
    #[arg(long, value_name = "TIME", default_value = "5s", env = "TIDEGATE_LOCAL_CLOSE_TIMEOUT",
        value_parser = time, allow_hyphen_values = true)]
    pub(crate) close_timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// The socket of the service
    #[arg(long, value_name = "PATH", env = "TIDEGATE_LOCAL_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: PathBuf,
    /// Number of pings
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time to wait for a response
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) timeout: Duration,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// The output format of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// The JSON responses, one per line
    Json,
}

impl Cli {
    /// The command line of this process, with the environment.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let cli = Self::from_arg_matches(&matches)?;
        if let (Command::Serve(args), Some(matches)) =
            (&cli.command, matches.subcommand_matches("serve"))
            && let Some((flag, other)) = args.contradiction(matches)
        {
            let flags = [flag, other].map(|id| id.replace('_', "-"));
            let message =
                format!("the argument '--{}' cannot be used with '--{}'", flags[0], flags[1]);
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Ok(cli)
    }
}

impl ServeArgs {
    /// A switch, and a setting that contradicts it.
    ///
    /// The parser's own check would take a variable that switches off (`0`) for the switch.
    fn contradiction(&self, matches: &ArgMatches) -> Option<(&'static str, &'static str)> {
        let is_set = |id: &&&str| {
            matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue)
        };
        let first = |others: &[&'static str]| others.iter().find(|id| is_set(id)).copied();
        let limits = self.limits.no_limit.then(|| [&LIMITS[..], &["policy"]].concat());
        let lists = self.allow_everybody.then(|| vec!["allow_user", "allow_group"]);
        limits
            .and_then(|others| Some(("no_limit", first(&others)?)))
            .or_else(|| lists.and_then(|others| Some(("allow_everybody", first(&others)?))))
    }

    /// Whether users or groups are listed.
    pub(crate) const fn is_allowing(&self) -> bool {
        !self.allow_user.is_empty() || !self.allow_group.is_empty()
    }
}

fn time(text: &str) -> Result<Duration, RuleError> {
    duration_from_text(text)
}

/// The settings of limits, by their fields.
const LIMITS: [&str; 7] = [
    "user_max",
    "user_per",
    "user_burst",
    "user_override",
    "global_max",
    "global_per",
    "global_burst",
];
