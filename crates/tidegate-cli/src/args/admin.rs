//! Arguments of the commands that call a running daemon.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use tidegate::policy::Rule;

use super::{Attribute, Format, attribute, time};

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Domain of the request [default: default]; with --over, only this domain [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Attribute of the key; repeatable
    #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<Attribute>,
    /// List the keys that have used at least this share of a limit, such as 0.8
    #[arg(long, value_name = "SHARE", conflicts_with = "attributes")]
    pub(crate) over: Option<String>,
    /// List the keys of this rule only
    #[arg(long, value_name = "NAME", requires = "over")]
    pub(crate) rule: Option<String>,
    /// Most keys to list
    #[arg(long, value_name = "KEYS", default_value_t = 100, requires = "over",
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: Format,
}

/// Where the daemon is: on this machine behind its local socket, or at a URL.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Path of the daemon's local socket [default: in the runtime directory]
    #[arg(long, value_name = "PATH", env = "TIDEGATE_UNIX", global = true,
        value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// A daemon at a URL, and how to prove who the client is.
#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    /// URL of the daemon's admin listener, such as https://limits.example:9090; without it the
    /// local socket is used
    #[arg(long, value_name = "URL", env = "TIDEGATE_AT", global = true,
        value_hint = ValueHint::Url)]
    pub(crate) at: Option<String>,
    /// File with the secret of a token, for `--at`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKEN_FILE", global = true,
        value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// File in PEM with the authority of the daemon's certificate, for `--at` [default: the
    /// certificates of the system]
    #[arg(long, value_name = "FILE", global = true, value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// File in PEM with a client certificate, for `--at`
    #[arg(long, value_name = "FILE", global = true, value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,
    // Not global: `override` has another `--key`.
    /// File in PEM with the key of `--cert` [default: the file of the certificate]
    #[arg(long = "key", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cert_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT",
        global = true)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum AdminCommand {
    /// Show the keys, memory, policy reloads, store and listeners
    Status,
    /// Print the policy in force, or apply another one
    #[command(long_about = "Print the policy in force, or apply another one.\n\n\
            An applied policy stays in force until the daemon's policy file changes or the daemon \
            restarts. What was consumed stays consumed, and edits stay on top of it. Settings of \
            [server] that need a restart are listed.")]
    Policy {
        /// Apply this policy file; `-` reads stdin
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        apply: Option<PathBuf>,
        /// Print the edits on top of the policy: changed rules, overrides, bans
        #[arg(long, conflicts_with = "apply")]
        edits: bool,
        /// Drop all edits
        #[arg(long, conflicts_with_all = ["apply", "edits"])]
        drop_edits: bool,
    },
    /// List the rules in force and how many requests they allowed and denied
    Rules,
    /// Change a rule; the edit survives changes of the policy file until edits are dropped
    #[command(after_long_help = "\
Examples:
  tidegate admin change search 'window.max = 200'
  tidegate admin change search 'window.max = 200' --preview # who would have been denied?
  tidegate admin change search --domain api 'mode = \"shadow\"' 'deny = \"later\"'")]
    Change {
        /// Name of the rule
        rule: String,
        /// Fields to change, as in a policy file
        #[arg(required = true, value_name = "KEY = VALUE")]
        changes: Vec<String>,
        /// Change nothing; show what the change would have done to the requests of the last minutes
        #[arg(long)]
        preview: bool,
        #[command(flatten)]
        domain: DomainArgs,
    },
    /// Set other numbers for some keys of a rule, or list the overrides
    #[command(after_long_help = "\
Examples:
  tidegate admin override                                   # list them
  tidegate admin override search --key ip=192.0.2.7 'max = 1000'
  tidegate admin override search --key ip=192.0.2.7 --unlimited --until 2027-01-01T00:00:00Z
  tidegate admin override search --key ip=192.0.2.7 --drop
  tidegate admin override tokens --key customer=acme 'max = 5000' --now")]
    Override {
        /// Name of the rule
        #[arg(requires = "key")]
        rule: Option<String>,
        /// Keys to override: an attribute of the rule's key and its value; repeatable
        #[arg(long, short = 'k', value_name = "NAME=VALUE", value_parser = attribute,
            requires = "rule")]
        key: Vec<Attribute>,
        /// Numbers to set, as in the rule's `override` list
        #[arg(value_name = "KEY = VALUE", conflicts_with_all = ["unlimited", "drop"])]
        numbers: Vec<String>,
        /// Remove the limit
        #[arg(long, conflicts_with = "drop", requires = "rule")]
        unlimited: bool,
        /// Expiry time in RFC 3339
        #[arg(long, value_name = "TIME", value_parser = time, requires = "rule")]
        until: Option<jiff::Timestamp>,
        /// Drop the override
        #[arg(long, requires = "rule")]
        drop: bool,
        /// Take effect at once, also where edits of the rule wait for the next window or period
        #[arg(long, requires = "rule")]
        now: bool,
        #[command(flatten)]
        domain: DomainArgs,
    },
    /// Deny requests whatever the limits are, or list the bans
    #[command(after_long_help = "\
Examples:
  tidegate admin ban                                        # list them
  tidegate admin ban --domain api --match ip=198.51.100.0/24 --for 1h --reason abuse")]
    Ban {
        #[command(flatten)]
        target: KeyArgs,
        /// Duration, such as 1h30m [default: no expiry]
        #[arg(long = "for", value_name = "DURATION", requires = "patterns")]
        length: Option<String>,
        /// Expiry time in RFC 3339
        #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "length",
            requires = "patterns")]
        until: Option<jiff::Timestamp>,
        /// Reason given with each denial
        #[arg(long, requires = "patterns")]
        reason: Option<String>,
    },
    /// Remove a ban
    Unban {
        #[command(flatten)]
        target: KeyArgs,
    },
    /// Reset the state that requests with these attributes are charged to, or all states
    Reset {
        /// Attribute of the requests; repeatable
        #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<Attribute>,
        /// Name of the domain [default: `default`; with --all: every domain]
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// Reset all keys of the domain, or of every domain. Reservations and slots stay
        #[arg(long, conflicts_with = "attributes")]
        all: bool,
    },
    /// Close the round of a domain: quotas per round start again
    Round {
        /// Name of the domain
        domain: String,
    },
    /// Print the audit log: all changes, and who made them
    Audit {
        /// Only changes after the one with this number
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        since: u64,
    },
    #[command(flatten)]
    Traffic(TrafficCommand),
    /// List the busiest keys, and the keys denied most
    Top {
        /// Number of keys in each list
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=512))]
        count: u64,
    },
}

/// Commands that look at requests.
#[derive(Debug, Subcommand)]
pub(crate) enum TrafficCommand {
    /// Explain how the daemon would decide a request now, rule by rule; charges nothing
    Explain {
        /// Attribute of the request; repeatable
        #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<Attribute>,
        /// Cost of the request
        #[arg(long, value_name = "UNITS", default_value_t = 1)]
        cost: u64,
        #[command(flatten)]
        domain: DomainArgs,
    },
    /// List recent denials, newest first
    #[command(after_long_help = "\
Of many denials at once the daemon keeps some of each key.

Examples:
  tidegate admin denials --id 7c97ced26cb9b8e0              # the decision_id of a response
  tidegate admin denials --domain api --text 198.51.100.7")]
    Denials {
        /// Only the decision with this id
        #[arg(long, value_name = "DECISION_ID")]
        id: Option<String>,
        /// Only this domain [default: all]
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// Only denials by this rule
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
        /// Only requests with this text in the value of an attribute
        #[arg(long)]
        text: Option<String>,
        /// Most denials to list
        #[arg(long, value_name = "NUMBER", default_value_t = 20,
            value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DomainArgs {
    /// Name of the domain
    #[arg(long, value_name = "NAME", default_value = Rule::DEFAULT_DOMAIN)]
    pub(crate) domain: String,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Requests to match: an attribute and a value or pattern; repeatable
    #[arg(long = "match", value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) patterns: Vec<Attribute>,
    #[command(flatten)]
    pub(crate) domain: DomainArgs,
}
