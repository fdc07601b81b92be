//! Every command and flag, with its help: the source of `--help`, the man pages, the completions
//! and the reference.

use std::path::{Path, PathBuf};

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use tidegate::policy::YamlOptions;

pub(crate) use access::{Access, AccessArgs};
pub(crate) use admin::{
    AdminArgs, AdminCommand, DaemonArgs, KeyArgs, PingArgs, RemoteArgs, TrafficCommand, UsageArgs,
};
pub(crate) use diff::{DiffArgs, DiffFormat};
pub(crate) use replay::{LogArgs, LogFormatArg, ReplayArgs};
pub(crate) use store::StoreArgs;
pub(crate) use tls::TlsArgs;
pub(crate) use token::{CredentialArgs, TokenArgs, TokenCommand};

mod access;
mod admin;
mod diff;
mod replay;
mod store;
mod tls;
mod token;

/// A rate limiter: run the daemon; validate, explain and test policies.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    bin_name = "tidegate",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    long_about = "A rate limiter: run the daemon; validate, explain and test policies.\n\n\
        A policy is a TOML file of rules: which requests a rule applies to, which key it counts \
        for, and how much it allows. Results go to stdout, messages to stderr.",
    after_help = "Start with `tidegate serve`, or with `tidegate validate policy.toml --explain`.",
    after_long_help = "\
Exit codes:
  0  success
  1  problems found
  2  could not run: invalid usage, or a file that cannot be read

Examples:
  tidegate serve                     # a demo policy, with a curl command to try
  tidegate serve policy.toml --store file:/var/lib/tidegate
  tidegate validate policy.toml --explain
  tidegate explain policy.toml --domain api --attr ip=192.0.2.1 --attr method=GET
  tidegate test policy.toml policy.test.toml
  tidegate replay policy.toml access.log
  tidegate ledger ./state totals"
)]
pub(crate) struct Tidegate {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon: one policy over HTTP, gRPC (Envoy), RESP (Redis) and a local socket
    #[command(
        long_about = "Run the daemon: one policy over HTTP, gRPC (Envoy), RESP (Redis) and a local \
            socket.\n\n\
            Without a policy it serves a demo policy and prints a curl command that, repeated, \
            ends in a 429. A policy is a TOML file, or the YAML of envoyproxy/ratelimit. \
            The file is watched: changes apply without a restart and keep what was \
            consumed; a file with errors changes nothing.\n\n\
            Flags override the environment, and both override the policy's [server] table. On \
            SIGTERM or SIGINT the daemon accepts no more connections, finishes running requests, \
            syncs the store and exits. SIGHUP reloads the policy. With systemd's Type=notify it \
            reports when it is ready.\n\n\
            Exits with 0 after a clean stop, with 1 if a second signal stopped it at once, with 2 \
            if it cannot start.",
        after_long_help = "\
Examples:
  tidegate serve
  tidegate serve policy.toml
  tidegate serve policy.toml --http 0.0.0.0:8080 --grpc off --resp off
  tidegate serve policy.toml --store file:/var/lib/tidegate --log json
  tidegate serve policy.toml --store redis://10.0.0.5:6379 --store-secret-file /etc/tidegate/secret
  tidegate serve policy.toml --grpc 0.0.0.0:8081 --tls-cert cert.pem --tls-key key.pem --tokens tokens.toml"
    )]
    Serve(Box<ServeArgs>),
    /// Check whether a daemon responds
    #[command(
        long_about = "Check whether a daemon responds.\n\n\
            Pings the daemon over its local socket and prints its version and time. With --at it \
            uses HTTP: `/readyz`, which needs no token, then the admin API for the version, if \
            the credentials suffice, and notes what is wrong. Exits with 0 if the daemon responds, \
            with 1 if not.",
        after_long_help = "\
Examples:
  tidegate ping
  tidegate ping --socket /run/tidegate/tidegate.sock --format json
  tidegate ping --at https://limits.example:9090 --ca ca.pem"
    )]
    Ping(PingArgs),
    /// Show what keys have used of their limits
    #[command(
        long_about = "Show what keys have used of their limits.\n\n\
            Asks the daemon over its local socket. With attributes it shows every rule whose key \
            they have; rules that match on other attributes are left out. With --over it lists the \
            keys that have used at least that share of a limit, highest first, as far as their \
            names are kept: those of durable rules of a file store, of overrides, and the busiest \
            ones. Nothing is charged.\n\n\
            Exits with 0 on success, with 1 if the daemon rejected the request, with 2 if the \
            request could not be sent or got no response.",
        after_long_help = "\
Examples:
  tidegate usage --domain api --attr user=ada
  tidegate usage --over 0.8
  tidegate usage --over 0.8 --domain llm --rule tokens --format json"
    )]
    Usage(UsageArgs),
    /// Inspect and change a running daemon
    #[command(
        long_about = "Inspect and change a running daemon.\n\n\
            Uses the daemon's local socket, or with --at the admin listener of a daemon on any \
            machine. On the socket, root and the daemon's own user may change everything; other \
            users listed in its [server] table have read-only access. Elsewhere the scopes of the \
            token count: `inspect` reads, `admin` changes. A secret is never sent to another \
            machine in plain text. Changes apply at once, keep what was consumed, and are recorded \
            in the audit log with the client who made them.\n\n\
            Exits with 0 on success, with 1 if the daemon rejected the request, with 2 if the \
            request could not be sent or got no response.",
        after_long_help = "\
Examples:
  tidegate admin status
  tidegate admin change search --domain api 'window.max = 200'
  tidegate admin override search --domain api --key ip=192.0.2.7 --unlimited
  tidegate admin ban --domain api --match ip=198.51.100.0/24 --for 1h
  tidegate admin reset --domain api --attr ip=192.0.2.7
  tidegate admin reset --all
  tidegate admin audit --format json
  tidegate admin status --at https://limits.example:9090 --token-file ops.secret --ca ca.pem"
    )]
    Admin(AdminArgs),
    /// Create, list and revoke the tokens of clients
    #[command(
        long_about = "Create, list and revoke the tokens of clients.\n\n\
            A token file says which clients there are, and what each of them may do. It has no \
            secrets, only their SHA-256; a secret is printed once, when it is made. A daemon that \
            was started with `--tokens FILE` applies changes within a second, and closes the \
            connections of revoked tokens.\n\n\
            To replace a secret, create another token with the same name, change the client, then \
            revoke the old one by its SHA-256.",
        after_long_help = "\
Examples:
  tidegate token new gateway --file tokens.toml --scope check --domain api
  tidegate token new ops --file tokens.toml --scope admin --until 2027-01-01T00:00:00Z
  tidegate token new envoy --file tokens.toml --scope check --subject spiffe://example.org/envoy
  tidegate token list --file tokens.toml
  tidegate token revoke gateway --file tokens.toml --sha256 3f2a"
    )]
    Token(TokenArgs),
    /// Check policy files for errors
    #[command(
        long_about = "Check policy files for errors.\n\n\
            Reports all errors and warnings of all files at once, each with its position and a \
            hint. Errors make a policy unusable: unknown fields, zero or negative numbers, \
            duplicate names. Warnings point out probable mistakes, such as a rule that no request \
            can reach.\n\n\
            A file that ends in .yaml or .yml is read as one of envoyproxy/ratelimit. \
            All files of a folder are read as one policy.\n\n\
            As text, diagnostics go to stderr and a summary of each file to stdout; as json or \
            github, the diagnostics go to stdout. Exits with 0 if all files are valid, with 1 if \
            there are errors (with --strict: or warnings), with 2 if a file cannot be read.",
        after_long_help = "\
Examples:
  tidegate validate policy.toml
  tidegate validate relay.toml api.toml --strict
  tidegate validate ratelimit/                     # a folder, of YAML files too
  tidegate validate policy.toml --explain          # describe each rule
  tidegate validate policy.toml --format github    # annotate a pull request
  generate-policy | tidegate validate -"
    )]
    Validate(ValidateArgs),
    /// Explain why a request would be allowed or denied
    #[command(
        long_about = "Explain why a request would be allowed or denied.\n\n\
            Shows which rules of the domain apply and why the others do not, the key of each rule, \
            the units remaining, and when the request would next be allowed. The policy starts \
            fresh, with nothing consumed; --repeat first charges the same request a number of \
            times.\n\n\
            Exits with 0 whether the request would be allowed or denied, and with 2 if it cannot \
            be decided: the policy has errors, or defines no cost for such a request.",
        after_long_help = "\
Examples:
  tidegate explain policy.toml --domain api --attr ip=192.0.2.1 --attr path=/search/rust
  tidegate explain policy.toml --domain relay --attr connection=7 --repeat 10
  tidegate explain policy.toml --attr user=ada --time 2026-03-29T00:59:59Z --format json"
    )]
    Explain(ExplainArgs),
    /// Run test cases against a policy
    #[command(
        long_about = "Run test cases against a policy.\n\n\
            A test file is TOML. Each `[[case]]` is a request and the expected decision:\n\n\
            \x20 at           the time: a duration since the start such as\n\
            \x20              \"1h30m\", or a time such as 2026-01-31T12:00:00Z;\n\
            \x20              default: the time of the previous case\n\
            \x20 domain       default: \"default\"\n\
            \x20 attributes   a table; whole numbers become decimal text\n\
            \x20 cost         default: 1\n\
            \x20 expect       \"allow\" or \"deny\"\n\
            \x20 rule         the decisive rule: of the rules that deny, the one\n\
            \x20              with the longest wait, else the one with the\n\
            \x20              lowest remaining\n\
            \x20 remaining    the units remaining under that rule\n\
            \x20 retry_after  a duration (compared in milliseconds, rounded up),\n\
            \x20              \"never\" or \"unknown\"\n\
            \x20 name         shown when the case fails\n\
            \x20 repeat       how many times to send the request; `expect` and\n\
            \x20              `rule` must hold each time, `remaining` and\n\
            \x20              `retry_after` after the last\n\
            \x20 close_round  true: close the round of the domain first\n\n\
            The cases of a file run in order against a fresh policy, on a clock that they set, so \
            nothing waits. The clock starts at 2026-01-01T00:00:00Z, unless the file sets `start` \
            above its first case. Every key is enforced, whatever `enforce` in [server] says. In a \
            domain with slots an allowed request holds its slot until the lease expires.\n\n\
            Exits with 0 if all cases pass, with 1 if some fail, with 2 if a file has errors.",
        after_long_help = "\
Example of a test file:
  [[case]]
  name       = \"ten at once\"
  domain     = \"relay\"
  attributes = { connection = 7 }
  expect     = \"allow\"
  repeat     = 10

  [[case]]
  domain      = \"relay\"
  attributes  = { connection = 7 }
  expect      = \"deny\"
  rule        = \"relay-messages\"
  retry_after = \"1s\"

Examples:
  tidegate test policy.toml policy.test.toml
  tidegate test policy.toml tests/*.toml --format json"
    )]
    Test(TestArgs),
    /// Run access logs through a policy: which requests would it deny?
    #[command(long_about = replay::LONG_ABOUT, after_long_help = replay::EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Compare two policies, also by what they would do to logged requests
    #[command(long_about = diff::LONG_ABOUT, after_long_help = diff::EXAMPLES)]
    Diff(Box<DiffArgs>),
    /// Inspect and repair an on-disk ledger
    #[command(
        long_about = "Inspect and repair an on-disk ledger.\n\n\
            An on-disk store (`file:FOLDER`) logs every grant, charge, hold and refund, by rule \
            and key. Reading changes nothing and works while another process uses the folder; \
            `repair` and `erase` need exclusive access.\n\n\
            The units granted always equal those committed, refunded, held and expired.",
        after_long_help = "\
Examples:
  tidegate ledger ./state list --rule calls --key user=ada --since 2026-01-31T00:00:00Z
  tidegate ledger ./state list --format json > events.jsonl
  tidegate ledger ./state totals --by key
  tidegate ledger ./state check
  tidegate ledger ./state erase user=ada"
    )]
    Ledger(LedgerArgs),
    /// Convert the limits of another program to a policy
    #[command(
        long_about = "Convert the limits of another program to a policy.\n\n\
            Prints a policy in TOML that decides as the file does there. A comment before each rule \
            has the position of its limit. A limit that cannot be converted is an error, and then \
            nothing is printed.\n\n\
            Exits with 0 if all of the file is converted, with 1 if not.",
        after_long_help = "\
Examples:
  tidegate import limitador limits.yaml > policy.toml"
    )]
    Import(ImportArgs),
    /// Print the JSON schema of the policy file
    #[command(
        long_about = "Print the JSON schema of the policy file.\n\n\
            For editors that complete and check TOML. `tidegate validate` checks more.",
        after_long_help = "\
Examples:
  tidegate schema > policy.schema.json

  # then, in the first line of a policy, for Taplo and Even Better TOML:
  #:schema ./policy.schema.json"
    )]
    Schema,
    /// Print a shell completion script
    #[command(after_long_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
    Completions(CompletionsArgs),
    /// Generate man pages
    #[command(
        long_about = "Generate man pages.\n\n\
            Writes one page per command to a directory, or prints the main page if no directory is \
            given.",
        after_long_help = "\
Examples:
  tidegate man | man -l -
  tidegate man ~/.local/share/man/man1"
    )]
    Man(ManArgs),
}

impl Command {
    /// The files that the command reads.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let (first, more): (Vec<&PathBuf>, &[PathBuf]) = match self {
            Self::Validate(args) => (vec![], &args.policies),
            Self::Explain(args) => (vec![&args.policy], &[]),
            Self::Test(args) => (vec![&args.policy], &args.cases),
            Self::Replay(args) => (vec![&args.policy], &args.logs),
            Self::Diff(args) => (vec![&args.old, &args.new], &args.logs),
            Self::Serve(args) => (args.policy.iter().collect(), &[]),
            Self::Admin(AdminArgs { command: AdminCommand::Policy { apply, .. }, .. }) => {
                (apply.iter().collect(), &[])
            }
            Self::Token(args) => (vec![&args.file], &[]),
            Self::Import(ImportArgs { program: ImportCommand::Limitador { file } }) => {
                (vec![file], &[])
            }
            Self::Ping(_) | Self::Usage(_) | Self::Admin(_) => (vec![], &[]),
            Self::Schema | Self::Completions(_) | Self::Man(_) | Self::Ledger(_) => (vec![], &[]),
        };
        first.into_iter().chain(more).map(PathBuf::as_path)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Policy file or folder; `-` reads stdin [default: a demo policy]
    #[arg(env = "TIDEGATE_POLICY", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// HTTP address, or `off` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_HTTP")]
    pub(crate) http: Option<String>,
    /// gRPC address for Envoy's rate limit service, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_GRPC")]
    pub(crate) grpc: Option<String>,
    /// RESP address for Redis clients, or `off` [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_RESP")]
    pub(crate) resp: Option<String>,
    /// Path of the local socket, or `off` [default: in the runtime directory]
    #[arg(long, value_name = "PATH", env = "TIDEGATE_UNIX", value_hint = ValueHint::FilePath)]
    pub(crate) unix: Option<String>,
    /// Admin address, or `off` [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_ADMIN")]
    pub(crate) admin: Option<String>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Send metadata to Envoy: the domain, the descriptors, and the `metadata` of the rules that
    /// allowed them [default: false]
    #[arg(long, value_name = "BOOL", env = "TIDEGATE_RESPONSE_METADATA", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub(crate) response_metadata: Option<bool>,
    #[command(flatten)]
    pub(crate) yaml: YamlArgs,
    /// Leave core dumps as the system has them; they may contain secrets [default: false]
    #[arg(long, value_name = "BOOL", env = "TIDEGATE_CORE_DUMPS", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub(crate) core_dumps: Option<bool>,
    /// Number of threads [default: one per processor]
    #[arg(long, env = "TIDEGATE_THREADS", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "TIDEGATE_LOG")]
    pub(crate) log: LogFormat,
    /// Log level; `debug` logs every denial
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "TIDEGATE_LOG_LEVEL")]
    pub(crate) log_level: LogLevel,
}

/// How files of envoyproxy/ratelimit are read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct YamlArgs {
    /// Merge a domain that several files of envoyproxy/ratelimit have [default: false]
    #[arg(long, value_name = "BOOL", env = "TIDEGATE_MERGE_DOMAINS", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub(crate) merge_domains: Option<bool>,
    /// Treat all descriptors of files of envoyproxy/ratelimit as if they had `quota_mode: true`
    /// [default: false]
    #[arg(long, value_name = "BOOL", env = "TIDEGATE_QUOTA_MODE", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub(crate) quota_mode: Option<bool>,
}

impl YamlArgs {
    pub(crate) fn options(self) -> YamlOptions {
        let options = YamlOptions::default();
        let options = self.merge_domains.map_or(options, |is_on| options.merge_domains(is_on));
        self.quota_mode.map_or(options, |is_on| options.quota_mode(is_on))
    }
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text per event
    Text,
    /// One JSON object per event
    Json,
}

/// The least severe events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Errors only
    Error,
    /// Also warnings
    Warn,
    /// Also starts, stops and changes
    Info,
    /// Also every denial and broken connection
    Debug,
}

/// The value of a flag that may also be written without one.
fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("expected true or false".into()),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1_024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Policy files or folders; `-` reads stdin
    #[arg(value_name = "POLICY", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) policies: Vec<PathBuf>,
    /// Describe each rule in plain words
    #[arg(long)]
    pub(crate) explain: bool,
    /// Treat warnings as errors
    #[arg(long, env = "TIDEGATE_STRICT", value_parser = FalseyValueParser::new())]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) yaml: YamlArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Policy file or folder; `-` reads stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) policy: PathBuf,
    /// Domain of the request
    #[arg(long, value_name = "NAME", default_value = tidegate::policy::Rule::DEFAULT_DOMAIN)]
    pub(crate) domain: String,
    /// Attribute of the request; repeatable
    #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<Attribute>,
    /// Cost of the request, unless a rule sets it
    #[arg(long, value_name = "UNITS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cost: u64,
    /// Time of the request in RFC 3339, such as 2026-01-31T12:00:00Z [default: now]
    #[arg(long, value_parser = time)]
    pub(crate) time: Option<jiff::Timestamp>,
    /// Charge the request this many times first
    #[arg(long, value_name = "TIMES", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) yaml: YamlArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Policy file or folder; `-` reads stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) policy: PathBuf,
    /// Test files; `-` reads stdin
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) cases: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) yaml: YamlArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Folder of the store
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum LedgerCommand {
    /// List the entries, oldest first; as json, one object per line
    List {
        #[command(flatten)]
        filter: LedgerFilter,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
        format: Format,
    },
    /// Sum up the units granted, committed, refunded, held and expired
    Totals {
        #[command(flatten)]
        filter: LedgerFilter,
        /// How to group the totals
        #[arg(long, value_enum, default_value_t = TotalsBy::Rule)]
        by: TotalsBy,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
        format: Format,
    },
    /// Read all files and report damage; exits with 1 if there is any
    Check {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
        format: Format,
    },
    /// Give up damaged data, so that a process can start on the folder again
    #[command(
        long_about = "Give up damaged data, so that a process can start on the folder again.\n\n\
            Everything written after the damage is lost, and its units can be charged again: if \
            there is a backup, use it instead. The original files are kept under other names."
    )]
    Repair,
    /// Erase the names of all keys with an attribute value; the totals stay
    #[command(
        long_about = "Erase the names of all keys with an attribute value; the totals stay.\n\n\
            Overwrites the name of each such key and its notes, clears its state, and releases its \
            holds. Policy edits that contain the value, and notes that belong to no key, stay: see \
            `list`."
    )]
    Erase {
        /// Attribute and value
        #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
        attribute: Attribute,
    },
}

/// Which entries of a ledger to include.
#[derive(Debug, Args)]
pub(crate) struct LedgerFilter {
    /// Only entries of this domain
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Only entries of this rule
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,
    /// Only entries of keys with this attribute value; repeatable
    #[arg(long, short = 'k', value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) key: Vec<Attribute>,
    /// Only entries at or after this time in RFC 3339, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Only entries before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<jiff::Timestamp>,
}

/// How to group totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TotalsBy {
    /// One total over everything
    All,
    /// One per rule
    Rule,
    /// One per rule and key
    Key,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) program: ImportCommand,
}

/// The program whose limits are converted.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Convert a file of Limitador
    Limitador {
        /// Its limits in YAML; `-` reads stdin
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write the pages to; created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// Output format of one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    Text,
    /// JSON
    Json,
}

/// Output format of a list of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Human-readable text
    Text,
    /// JSON
    Json,
    /// GitHub Actions: annotations at the lines of a pull request
    Github,
}

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) value: String,
}

fn attribute(text: &str) -> Result<Attribute, String> {
    match text.split_once('=') {
        None => Err(format!("missing `=`; write {text}=VALUE")),
        Some(("", _)) => Err("missing name before `=`".into()),
        Some((name, value)) => Ok(Attribute { name: name.into(), value: value.into() }),
    }
}

fn time(text: &str) -> Result<jiff::Timestamp, crate::format::TimeError> {
    crate::format::time_from_text(text)
}

/// Whether a path is `-`, for stdin.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
