//! The command line.

/// The text of `--help`.
pub const HELP: &str = "\
Measures tidegate and other rate limiters, in one process.

usage: cargo run --release --manifest-path benches/Cargo.toml -- [options]

  --quick         fewer calls, three rounds, nothing of 10 M keys
  --only SUBSTR   only rows whose name or title contains SUBSTR
  --assert        check the targets; exit 1 if one is missed
  --write         write docs/benchmarks.md and docs/benchmarks.svg
  --threads N     rows with N threads besides, for machines with more than two cores
  --runs N        rounds per row (default 5, quick 3)
  --list          print the names of the rows and stop
  --help          this text

Tables go to stdout, progress to stderr.
";

/// The command line options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Fewer calls and keys.
    pub quick: bool,
    /// A part of the names of the rows to measure.
    pub only: Option<String>,
    /// Check the targets.
    pub assert: bool,
    /// Write the documents.
    pub write: bool,
    /// Rounds per row, if not the default.
    pub runs: Option<usize>,
    /// The threads of further rows.
    pub threads: Option<usize>,
    /// Print the names of the rows.
    pub list: bool,
    /// Print the help.
    pub help: bool,
    /// The arguments of a child process, which measures one thing for its parent.
    pub child: Option<Vec<String>>,
}

impl Options {
    /// Reads the arguments that follow the program's name.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--assert" => options.assert = true,
                "--write" => options.write = true,
                "--list" => options.list = true,
                "--help" | "-h" => options.help = true,
                "--only" => {
                    options.only = Some(args.next().ok_or("--only needs a part of a row's name")?);
                }
                "--runs" => options.runs = Some(number("--runs", args.next(), 1)?),
                "--threads" => options.threads = Some(number("--threads", args.next(), 3)?),
                "--child" => options.child = Some(args.by_ref().collect()),
                other => return Err(format!("unknown argument {other:?}; --help lists them")),
            }
        }
        if options.write && (options.quick || options.only.is_some()) {
            return Err("--write needs a whole run: not with --quick or --only".into());
        }
        Ok(options)
    }

    /// Rounds per row.
    pub fn rounds(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 3 } else { 5 })
    }

    /// Whether `--only` selects a row with these names.
    pub fn wants(&self, id: &str, title: &str) -> bool {
        self.only.as_ref().is_none_or(|part| id.contains(part) || title.contains(part))
    }
}

/// The number after an option.
fn number(option: &str, arg: Option<String>, least: usize) -> Result<usize, String> {
    arg.and_then(|text| text.parse().ok())
        .filter(|&number| number >= least)
        .ok_or_else(|| format!("{option} needs a number of at least {least}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read() {
        let options = parse("--quick --only hot --runs 7").unwrap();
        assert!(options.quick && options.rounds() == 7);
        assert!(options.wants("hot-1t", "") && !options.wants("uniform", "1 M keys"));
        assert_eq!(parse("--quick").unwrap().rounds(), 3);
        assert_eq!(parse("").unwrap().rounds(), 5);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("--fast").unwrap_err().contains("--fast"));
        assert!(parse("--runs 0").unwrap_err().contains("--runs"));
        assert!(parse("--threads 2").unwrap_err().contains("--threads"));
        assert_eq!(parse("--threads 64").unwrap().threads, Some(64));
        assert!(parse("--only").unwrap_err().contains("--only"));
        assert!(parse("--write --quick").unwrap_err().contains("--write"));
    }
}
