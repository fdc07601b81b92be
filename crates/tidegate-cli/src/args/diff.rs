//! The arguments of `tidegate diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::YamlArgs;
use super::replay::LogArgs;

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
