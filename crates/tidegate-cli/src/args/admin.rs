//! What somebody can ask a running daemon for.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use tidegate::policy::Rule;

use super::{Attribute, Format, attribute, time};

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: Format,
}

/// Where the daemon is.
#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// The daemon's local socket [default: in the runtime directory]
    #[arg(long, value_name = "PATH", env = "TIDEGATE_UNIX", global = true,
        value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// How answers are printed
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT",
        global = true)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum AdminCommand {
    /// Say how the daemon is: keys, memory, the policy file, the store, the doors
    Status,
    /// Print the policy in force, or put another one into force
    #[command(long_about = "Print the policy in force, or put another one into force.\n\n\
            A policy that is put holds until the daemon's policy file changes, or the daemon restarts. \
            What was spent stays spent, and edits stay over it. Settings of [server] that need a \
            restart are named.")]
    Policy {
        /// Put this file into force; `-` is stdin
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        put: Option<PathBuf>,
        /// Print the edits over the policy: changed rules, overrides, bans
        #[arg(long, conflicts_with = "put")]
        edits: bool,
        /// Take all edits back
        #[arg(long, conflicts_with_all = ["put", "edits"])]
        drop_edits: bool,
    },
    /// List the rules in force, with what they have said so far
    Rules,
    /// Change a rule: it stays changed when the policy file changes, until the edits are dropped
    #[command(after_long_help = "\
Examples:
  tidegate admin change search 'window.max = 200'
  tidegate admin change search --domain api 'mode = \"shadow\"' 'deny = \"later\"'")]
    Change {
        /// The rule
        rule: String,
        /// What changes, as in a policy file
        #[arg(required = true, value_name = "KEY = VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        domain: DomainArgs,
    },
    /// Give some keys of a rule other numbers, or list what was given
    #[command(after_long_help = "\
Examples:
  tidegate admin override                                   # lists them
  tidegate admin override search --key ip=192.0.2.7 'max = 1000'
  tidegate admin override search --key ip=192.0.2.7 --unlimited --until 2027-01-01T00:00:00Z
  tidegate admin override search --key ip=192.0.2.7 --drop")]
    Override {
        /// The rule
        #[arg(requires = "key")]
        rule: Option<String>,
        /// Which keys: attributes of the rule's key
        #[arg(long, short = 'k', value_name = "NAME=VALUE", value_parser = attribute,
            requires = "rule")]
        key: Vec<Attribute>,
        /// The numbers, as in the rule's `override` list
        #[arg(value_name = "KEY = VALUE", conflicts_with_all = ["unlimited", "drop"])]
        numbers: Vec<String>,
        /// No limit at all
        #[arg(long, conflicts_with = "drop", requires = "rule")]
        unlimited: bool,
        /// When it ends, as in RFC 3339
        #[arg(long, value_name = "TIME", value_parser = time, requires = "rule")]
        until: Option<jiff::Timestamp>,
        /// Take it back
        #[arg(long, requires = "rule")]
        drop: bool,
        #[command(flatten)]
        domain: DomainArgs,
    },
    /// Refuse somebody whatever the limits say, or list who is refused
    #[command(after_long_help = "\
Examples:
  tidegate admin ban                                        # lists them
  tidegate admin ban --domain api --who ip=198.51.100.0/24 --for 1h --reason abuse")]
    Ban {
        #[command(flatten)]
        who: KeyArgs,
        /// For how long, such as 1h30m [default: for good]
        #[arg(long = "for", value_name = "DURATION", requires = "who")]
        length: Option<String>,
        /// Until when, as in RFC 3339
        #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "length",
            requires = "who")]
        until: Option<jiff::Timestamp>,
        /// What they are told
        #[arg(long, requires = "who")]
        reason: Option<String>,
    },
    /// Take a ban back
    Unban {
        #[command(flatten)]
        who: KeyArgs,
    },
    /// Forget what somebody has spent
    Reset {
        /// An attribute of their requests; may be given many times
        #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
        attributes: Vec<Attribute>,
        #[command(flatten)]
        domain: DomainArgs,
    },
    /// End the round of a domain: quotas per round begin anew
    Round {
        /// The domain
        domain: String,
    },
    /// Print what was changed, by whom
    Audit {
        /// Only what came after the change with this number
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        since: u64,
    },
    /// Print the keys that are busiest, and those that are refused most
    Top {
        /// How many
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=512))]
        count: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DomainArgs {
    /// The domain
    #[arg(long, value_name = "NAME", default_value = Rule::DEFAULT_DOMAIN)]
    pub(crate) domain: String,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Whom: an attribute and a value or pattern; may be given many times
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) who: Vec<Attribute>,
    #[command(flatten)]
    pub(crate) domain: DomainArgs,
}
