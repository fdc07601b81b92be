//! Every command and flag, with its help: what `--help`, the man pages, the completions and the
//! reference are made of.

use std::path::{Path, PathBuf};

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

pub(crate) use admin::{AdminArgs, AdminCommand, PingArgs, SocketArgs};

mod admin;

/// Limit rates: run the daemon; check, explain and test policies.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    bin_name = "tidegate",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    long_about = "Limit rates: run the daemon; check, explain and test policies.\n\n\
        A policy is a TOML file with rules: which requests, whose bucket, how much. Data goes to \
        stdout and talk to stderr.",
    after_help = "Begin with `tidegate serve`, or with `tidegate validate policy.toml --explain`.",
    after_long_help = "\
Exit codes:
  0  all is well
  1  something is wrong with what was checked
  2  it could not be checked: wrong usage, or a file that cannot be read

Examples:
  tidegate serve                     # a demo, with a line to paste
  tidegate serve policy.toml --store file:/var/lib/tidegate
  tidegate validate policy.toml --explain
  tidegate explain policy.toml --domain api --attr ip=192.0.2.1 --attr method=GET
  tidegate test policy.toml policy.test.toml
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
            Without a policy it serves a demo, and prints a line to paste that, repeated, ends in a \
            429. A policy is a TOML file, or the YAML of envoyproxy/ratelimit or of Limitador. The \
            file is watched: what changes in it is put into force, and what was spent stays spent; a \
            file with errors changes nothing.\n\n\
            Flags are stronger than the environment, and both than the policy's [server] table. \
            SIGTERM and SIGINT stop it: nobody new is let in, requests that have begun are answered, \
            and everything is made safe. SIGHUP reads the policy again. It tells systemd when it is \
            ready (Type=notify).\n\n\
            Exits with 0 when it was stopped, with 1 when it was stopped twice and so did not wait, \
            with 2 if it cannot start.",
        after_long_help = "\
Examples:
  tidegate serve
  tidegate serve policy.toml
  tidegate serve policy.toml --http 0.0.0.0:8080 --grpc off --resp off
  tidegate serve policy.toml --store file:/var/lib/tidegate --log json
  TIDEGATE_ADMIN_TOKEN=… tidegate serve policy.toml --admin 0.0.0.0:9090"
    )]
    Serve(ServeArgs),
    /// Ask whether a daemon is there
    #[command(
        long_about = "Ask whether a daemon is there.\n\n\
            Over its local socket; prints its version and its time. Exits with 0 if it answers, with 1 \
            if it does not.",
        after_long_help = "\
Examples:
  tidegate ping
  tidegate ping --socket /run/tidegate/tidegate.sock --format json"
    )]
    Ping(PingArgs),
    /// Look into a running daemon, and change what it does
    #[command(
        long_about = "Look into a running daemon, and change what it does.\n\n\
            Over its local socket. Root and the daemon's own user may change everything, others whom \
            its [server] table lets in may look. What is changed is in force at once, keeps what was \
            spent, and is written down with who did it.\n\n\
            Exits with 0 if it was done, with 1 if the daemon refused, with 2 if there is no answer.",
        after_long_help = "\
Examples:
  tidegate admin status
  tidegate admin change search --domain api 'window.max = 200'
  tidegate admin override search --domain api --key ip=192.0.2.7 --unlimited
  tidegate admin ban --domain api --who ip=198.51.100.0/24 --for 1h
  tidegate admin reset --domain api --attr ip=192.0.2.7
  tidegate admin audit --format json"
    )]
    Admin(AdminArgs),
    /// Say what is wrong with policy files
    #[command(
        long_about = "Say what is wrong with policy files.\n\n\
            All errors and warnings of all files are reported at once, with their place and a hint. \
            Errors make a policy unusable: unknown keys, zero or negative numbers, names that are \
            used twice. Warnings are about what was probably not meant, such as a rule that no \
            request can reach.\n\n\
            A file that ends in .yaml or .yml is one of envoyproxy/ratelimit or of Limitador; of a \
            folder, all files are read as one policy.\n\n\
            As text, diagnostics go to stderr and one line for each file to stdout; as json or \
            github, everything goes to stdout. Exits with 0 if all files are fine, with 1 if there \
            are errors (with --strict: or warnings), with 2 if a file cannot be read.",
        after_long_help = "\
Examples:
  tidegate validate policy.toml
  tidegate validate relay.toml api.toml --strict
  tidegate validate ratelimit/                     # a folder, also of files in YAML
  tidegate validate policy.toml --explain          # what each rule means
  tidegate validate policy.toml --format github    # notes in a pull request
  generate-policy | tidegate validate -"
    )]
    Validate(ValidateArgs),
    /// Say why a request would be allowed or refused
    #[command(
        long_about = "Say why a request would be allowed or refused.\n\n\
            Which rules of the domain apply and why the others do not, whose bucket it is, what is \
            left in it, and when the request would be allowed next. The policy begins fresh, with \
            nothing spent; --repeat charges the same request some times before.\n\n\
            Exits with 0 whether the request would be allowed or not, and with 2 if there is no \
            answer: the policy has errors, or does not know what such a request costs.",
        after_long_help = "\
Examples:
  tidegate explain policy.toml --domain api --attr ip=192.0.2.1 --attr path=/search/rust
  tidegate explain policy.toml --domain relay --attr connection=7 --repeat 10
  tidegate explain policy.toml --attr user=ada --time 2026-03-29T00:59:59Z --format json"
    )]
    Explain(ExplainArgs),
    /// Run the tests of a policy
    #[command(
        long_about = "Run the tests of a policy.\n\n\
            A file of cases is TOML. Each `[[case]]` is a request and what is expected of the \
            answer:\n\n\
            \x20 at           when: a duration since the start such as \"1h30m\", or\n\
            \x20              a time such as 2026-01-31T12:00:00Z; else the same\n\
            \x20              time as the case before\n\
            \x20 domain       default: \"default\"\n\
            \x20 attributes   a table; whole numbers become decimal text\n\
            \x20 cost         default: 1\n\
            \x20 expect       \"allow\" or \"deny\"\n\
            \x20 rule         the rule that tells: of those that refuse the one\n\
            \x20              with the longest wait, else the one with the least\n\
            \x20              left\n\
            \x20 remaining    what is left under that rule\n\
            \x20 retry_after  a duration (compared in milliseconds, rounded up),\n\
            \x20              \"never\" or \"unknown\"\n\
            \x20 name         shown when the case fails\n\
            \x20 repeat       so many times in a row; `expect` and `rule` hold each\n\
            \x20              time, `remaining` and `retry_after` after the last\n\
            \x20 close_round  true: the round of the domain is closed before\n\n\
            The cases of one file run in their order on one fresh policy, by a clock that they set: \
            nothing waits. It starts at 2026-01-01T00:00:00Z, unless the file says `start` above its \
            first case. Every key is enforced, whatever `enforce` in [server] says. In a domain with slots a request that is allowed keeps its place until it \
            expires.\n\n\
            Exits with 0 if all cases pass, with 1 if some fail, with 2 if a file has errors.",
        after_long_help = "\
Example of a file of cases:
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
    /// Read what a store on disk has written down, and mend it
    #[command(
        long_about = "Read what a store on disk has written down, and mend it.\n\n\
            A store on disk (`file:FOLDER`) keeps a log of everything that was granted, spent, set \
            aside and given back, by rule and key. Reading it changes nothing, and may be done while \
            another process has the folder; `repair` and `erase` need it for themselves.\n\n\
            What was granted is always what was committed, refunded, held and expired together.",
        after_long_help = "\
Examples:
  tidegate ledger ./state list --rule calls --key user=ada --since 2026-01-31T00:00:00Z
  tidegate ledger ./state list --format json > events.jsonl
  tidegate ledger ./state totals --by key
  tidegate ledger ./state check
  tidegate ledger ./state erase user=ada"
    )]
    Ledger(LedgerArgs),
    /// Print the JSON schema of the policy file
    #[command(
        long_about = "Print the JSON schema of the policy file.\n\n\
            For editors that complete and check TOML while it is written. It says less than \
            `tidegate validate`.",
        after_long_help = "\
Examples:
  tidegate schema > policy.schema.json

  # then, in the first line of a policy, for Taplo and Even Better TOML:
  #:schema ./policy.schema.json"
    )]
    Schema,
    /// Print completions for a shell
    #[command(after_long_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(
        long_about = "Write the man pages.\n\n\
            Into a directory goes one page for each command. Without a directory the main page is \
            printed.",
        after_long_help = "\
Examples:
  tidegate man | man -l -
  tidegate man ~/.local/share/man/man1"
    )]
    Man(ManArgs),
}

impl Command {
    /// The files that it reads.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let (first, more): (Option<&PathBuf>, &[PathBuf]) = match self {
            Self::Validate(args) => (None, &args.policies),
            Self::Explain(args) => (Some(&args.policy), &[]),
            Self::Test(args) => (Some(&args.policy), &args.cases),
            Self::Serve(args) => (args.policy.as_ref(), &[]),
            Self::Admin(AdminArgs { command: AdminCommand::Policy { put, .. }, .. }) => {
                (put.as_ref(), &[])
            }
            Self::Ping(_) | Self::Admin(_) => (None, &[]),
            Self::Schema | Self::Completions(_) | Self::Man(_) | Self::Ledger(_) => (None, &[]),
        };
        first.into_iter().chain(more).map(PathBuf::as_path)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The policy file; `-` is stdin [default: a demo]
    #[arg(env = "TIDEGATE_POLICY", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// Where HTTP is served, or `off` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_HTTP")]
    pub(crate) http: Option<String>,
    /// Where Envoy's rate limit service is, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_GRPC")]
    pub(crate) grpc: Option<String>,
    /// Where the Redis protocol is served, or `off` [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_RESP")]
    pub(crate) resp: Option<String>,
    /// The path of the local socket, or `off` [default: in the runtime directory]
    #[arg(long, value_name = "PATH", env = "TIDEGATE_UNIX", value_hint = ValueHint::FilePath)]
    pub(crate) unix: Option<String>,
    /// Where the admin interface is, or `off` [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_ADMIN")]
    pub(crate) admin: Option<String>,
    /// What callers of the admin interface must show; better given by the environment
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) admin_token: Option<String>,
    /// Where states are kept: `memory`, or `file:FOLDER`, where quotas and whatever rules say is
    /// durable survive a restart and a crash [default: memory]
    #[arg(long, env = "TIDEGATE_STORE")]
    pub(crate) store: Option<String>,
    /// How many threads serve [default: as many as there are processors]
    #[arg(long, env = "TIDEGATE_THREADS", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// How the log looks
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "TIDEGATE_LOG")]
    pub(crate) log: LogFormat,
    /// How much is logged; `debug` has a line for every refusal
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "TIDEGATE_LOG_LEVEL")]
    pub(crate) log_level: LogLevel,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each event
    Text,
    /// One object of JSON for each event
    Json,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// What should not be
    Error,
    /// And what may become so
    Warn,
    /// And starts, stops and changes
    Info,
    /// And every refusal and broken connection
    Debug,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1_024) => Ok(threads),
        _ => Err("give a number from 1 to 1024".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Policy files; `-` is stdin
    #[arg(value_name = "POLICY", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) policies: Vec<PathBuf>,
    /// Say what each rule means, in plain words
    #[arg(long)]
    pub(crate) explain: bool,
    /// Take warnings for errors
    #[arg(long, env = "TIDEGATE_STRICT", value_parser = FalseyValueParser::new())]
    pub(crate) strict: bool,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = ReportFormat::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The policy file; `-` is stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) policy: PathBuf,
    /// The domain of the request
    #[arg(long, value_name = "NAME", default_value = tidegate::policy::Rule::DEFAULT_DOMAIN)]
    pub(crate) domain: String,
    /// An attribute of the request; may be given many times
    #[arg(long = "attr", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<Attribute>,
    /// What the request costs, where a rule does not say
    #[arg(long, value_name = "UNITS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cost: u64,
    /// When the request comes, as in RFC 3339: 2026-01-31T12:00:00Z [default: now]
    #[arg(long, value_parser = time)]
    pub(crate) time: Option<jiff::Timestamp>,
    /// Charge so many such requests before
    #[arg(long, value_name = "TIMES", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) repeat: u32,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The policy file; `-` is stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) policy: PathBuf,
    /// Files of cases; `-` is stdin
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) cases: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = ReportFormat::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// The folder of the store
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum LedgerCommand {
    /// Print what happened, oldest first; as json, one object to a line
    List {
        #[command(flatten)]
        filter: LedgerFilter,
        /// How entries are printed
        #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
        format: Format,
    },
    /// Print what it adds up to
    Totals {
        #[command(flatten)]
        filter: LedgerFilter,
        /// For whom
        #[arg(long, value_enum, default_value_t = TotalsBy::Rule)]
        by: TotalsBy,
        /// How totals are printed
        #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
        format: Format,
    },
    /// Read everything, and say what cannot be read; exits with 1 if there is damage
    Check {
        /// How the result is printed
        #[arg(long, value_enum, default_value_t = Format::Text, env = "TIDEGATE_FORMAT")]
        format: Format,
    },
    /// Cut off what cannot be read, so that a process can start on it again
    #[command(
        long_about = "Cut off what cannot be read, so that a process can start on it again.\n\n\
            What was written after the damage is forgotten, so that it can be spent again: if there \
            is a backup, that is better. Files are kept under other names before they are cut."
    )]
    Repair,
    /// Destroy whose keys they were in which an attribute has a value; the sums stay
    #[command(
        long_about = "Destroy whose keys they were in which an attribute has a value; the sums stay.\n\n\
            The name of each such key and the notes about it are overwritten, what it had spent is \
            forgotten, and what it had set aside is given back. Edits of the policy that name \
            somebody, and notes that belong to no key, stay: see `list`."
    )]
    Erase {
        /// Whom
        #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
        who: Attribute,
    },
}

/// Which entries of a ledger are of interest.
#[derive(Debug, Args)]
pub(crate) struct LedgerFilter {
    /// Only what happened in this domain
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Only what is about this rule
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,
    /// Only what is about keys with this value; may be given many times
    #[arg(long, short = 'k', value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) key: Vec<Attribute>,
    /// Only what happened at this time or later, as in RFC 3339: 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Only what happened before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<jiff::Timestamp>,
}

/// For whom totals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TotalsBy {
    /// All together
    All,
    /// Each rule
    Rule,
    /// Each key of each rule
    Key,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory that the pages go to; it is made if need be
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// How a list of results is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For GitHub Actions: notes at the lines of a pull request
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
        None => Err(format!("there is no `=`; write {text}=VALUE")),
        Some(("", _)) => Err("there is no name before the `=`".into()),
        Some((name, value)) => Ok(Attribute { name: name.into(), value: value.into() }),
    }
}

fn time(text: &str) -> Result<jiff::Timestamp, crate::format::TimeError> {
    crate::format::time_from_text(text)
}

/// Whether a path stands for stdin.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
