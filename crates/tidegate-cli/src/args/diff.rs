//! The arguments of `tidegate diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::YamlArgs;
use super::replay::LogArgs;

/// What the command does.
pub(super) const LONG_ABOUT: &str = "Compare two policies, also by what they would do to logged requests.\n\n\
    Lists the rules that were added, removed and changed, with one line for each number, \
    and says where a change makes keys start fresh. With logs, runs both policies over them \
    at once, and lists which keys are newly denied, which no longer are, and by how \
    much.\n\n\
    Exits with 0 if the policies are the same, with 1 if they differ, with 2 if a policy has \
    errors or a log cannot be read, or not to its end.";

/// How it is used.
pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate diff old.toml new.toml
  tidegate diff old.toml new.toml access.log
  git show main:policy.toml | tidegate diff - policy.toml access.log.gz --format markdown";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Policy file or folder that is in force; `-` reads stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) old: PathBuf,
    /// Policy file or folder that would replace it; `-` reads stdin
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) new: PathBuf,
    /// Log files to run both policies over; `-` reads stdin
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: LogArgs,
    /// How many of the keys with the largest differences are listed
    #[arg(long, value_name = "KEYS", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub(crate) top: u32,
    #[command(flatten)]
    pub(crate) yaml: YamlArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = DiffFormat::Text, env = "TIDEGATE_FORMAT")]
    pub(crate) format: DiffFormat,
}

/// Output format of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Human-readable text
    Text,
    /// JSON
    Json,
    /// Markdown, for a comment on a pull request
    Markdown,
}
