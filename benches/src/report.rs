//! The tables, as text and as a document.

use crate::assert::{Outcome, Verdict};
use crate::contenders::Who;
use crate::machine;
use crate::results::{Results, Row};
use std::fmt::Write;

/// The ratios in the tables: of which contender, and against which.
const RATIOS: [(Who, Who); 5] = [
    (Who::Growing, Who::Governor),
    (Who::Growing, Who::Quota),
    (Who::Hinted, Who::Governor),
    (Who::Hinted, Who::Quota),
    (Who::Hinted, Who::QuotaHinted),
];

/// A table of cells, headings first.
type Table = Vec<Vec<String>>;

/// The contenders that have a value in some row.
fn columns(results: &Results) -> Vec<Who> {
    let taken = |who: &Who| results.rows.iter().any(|row| row.value(*who).is_some());
    Who::ALL.into_iter().filter(taken).collect()
}

/// A value with a suitable number of digits.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size < 0.05 => "0".into(),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A row's title with its unit.
fn titled(row: &Row) -> String {
    match row.unit.name() {
        "" => row.title.clone(),
        unit => format!("{} ({unit})", row.title),
    }
}

/// The medians of every contender.
fn medians(results: &Results) -> Table {
    let columns = columns(results);
    let headings = columns.iter().map(|who| who.name().to_owned());
    let mut table = vec![std::iter::once(String::new()).chain(headings).collect()];
    for row in &results.rows {
        let cells = columns.iter().map(|who| row.value(*who).map_or(String::new(), shown));
        table.push(std::iter::once(titled(row)).chain(cells).collect());
    }
    table
}

/// How many times faster, or smaller, tidegate is.
fn ratios(results: &Results) -> Table {
    let heading = |(who, than): &(Who, Who)| format!("{} : {}", who.name(), than.name());
    let headings = RATIOS.iter().map(heading);
    let mut table = vec![std::iter::once(String::new()).chain(headings).collect()];
    for row in &results.rows {
        let ratio = |(who, than): &(Who, Who)| row.ratio(*who, *than);
        if RATIOS.iter().any(|pair| ratio(pair).is_some()) {
            let shown = |pair| ratio(pair).map_or(String::new(), |ratio| format!("{ratio:.2} x"));
            table
                .push(std::iter::once(row.title.clone()).chain(RATIOS.iter().map(shown)).collect());
        }
    }
    table
}

/// Aligned columns, two spaces apart.
fn aligned(table: &Table) -> String {
    let count = table.first().map_or(0, Vec::len);
    let width = |column: usize| {
        table.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for line in table {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// A table in Markdown.
fn markdown(table: &Table) -> String {
    let mut text = String::new();
    for (number, line) in table.iter().enumerate() {
        let escaped: Vec<String> =
            line.iter().map(|cell| cell.replace('<', "&lt;").replace('>', "&gt;")).collect();
        let _ = writeln!(text, "| {} |", escaped.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "|---|{}", "---:|".repeat(line.len() - 1));
        }
    }
    text
}

/// The output of a run.
pub fn text(results: &Results) -> String {
    let mut text = aligned(&medians(results));
    let ratios = ratios(results);
    if ratios.len() > 1 {
        let _ = write!(text, "\ntimes faster, or smaller\n{}", aligned(&ratios));
    }
    text
}

/// The targets with their outcomes.
pub fn verdicts(verdicts: &[Verdict]) -> String {
    let mut text = String::from("\ntargets\n");
    for verdict in verdicts {
        let word = match verdict.outcome {
            Outcome::Reached => "reached",
            Outcome::Missed => "MISSED",
            Outcome::NotMeasured => "not measured",
        };
        let _ = writeln!(text, "  {word:<12}  {}", verdict.text);
    }
    text
}

/// The method, for the document.
const METHOD: &str = "\
## Method

- All contenders run in one process, built with `lto = \"fat\"` and one codegen unit. Each round
  runs them in turn; the tables show the median of the rounds.
- Times are nanoseconds per decision and thread: wall time x threads / decisions. The threads
  start together.
- String keys are 12 bytes long (`user:1234567`). They lie in memory in the order of the calls
  and are created before the clock starts. The column *(no limiter)* is the loop without a limiter,
  so it is the cost of fetching the key; with a fence it is mostly the fence.
- governor takes `&K` only: it gets a `&String` that was created before, and allocates where it
  clones a new key itself. Walking those is a separate row. All others are called with `&str`.
- quota is called through `check`, its form that returns a bool; throttlecrab, which is not
  `Sync`, is in a `Mutex`, as its documentation shows; pingora-limits counts in a sketch, so
  its decisions are inexact; ratelimit and leaky-bucket have no keys and appear with one hot key.
- In all rows but the *denied* ones every call is allowed, and the harness checks that (except for
  pingora-limits). Keys of rows with 1 M keys and more stay live: they are not yet full again.
- New keys: every round starts with a new limiter; building and dropping it is not timed.
- *tidegate* and *quota* grow as keys arrive; *tidegate, hint* and *quota, hint* get the number
  of keys as a capacity hint (1000 for a single key). The targets compare with the faster quota.
- Bytes per key: growth of the resident memory of a fresh process that keeps no keys itself,
  sampled every 50 000 keys. Slowest call: fresh processes, each call timed on its own; the best
  of the runs, so that a preempted run does not count (quota: one run).
- Scan: a limiter with a ceiling of 1 M keys gets far more one-time keys; its price is the resident
  memory of the same limiter filled with exactly 1 M live keys.
";

/// The document.
pub fn document(results: &Results, checked: &[Verdict]) -> String {
    let mut text = String::from("# Benchmarks\n\n![Main rows](benchmarks.svg)\n\n");
    text.push_str("Smaller is better. The benchmark writes this page; to reproduce it:\n\n");
    text.push_str(
        "```sh\ncargo run --release --manifest-path benches/Cargo.toml -- --write\n```\n\n",
    );
    text.push_str("## Machine\n\n");
    for line in machine::describe() {
        let _ = writeln!(text, "- {line}");
    }
    let peers = machine::peers();
    let versions: Vec<String> =
        peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let _ = writeln!(text, "- peers: {}\n", versions.join(", "));
    let _ = writeln!(text, "## Medians\n\n{}", markdown(&medians(results)));
    let ratios = ratios(results);
    if ratios.len() > 1 {
        let _ = writeln!(text, "## Times faster, or smaller\n\n{}", markdown(&ratios));
    }
    if ratios.len() > 1 {
        let _ = writeln!(text, "## Targets\n\n```text{}```\n", verdicts(checked));
    }
    text.push_str(METHOD);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Cell;
    use crate::results::Unit;

    fn results() -> Results {
        let cells = vec![Cell::single(Who::Growing, 20.0), Cell::single(Who::Governor, 150.0)];
        let row = Row { id: "r".into(), title: "row".into(), unit: Unit::Nanos, cells };
        Results { rows: vec![row] }
    }

    #[test]
    fn the_text_shows_medians_and_ratios() {
        let text = text(&results());
        assert!(text.contains("row (ns)      20.0       150"), "{text}");
        assert!(text.contains("7.50 x"), "{text}");
    }

    #[test]
    fn the_document_is_markdown() {
        let text = document(&results(), &[]);
        assert!(text.contains("| row (ns) | 20.0 | 150 |"), "{text}");
        assert!(text.contains("|---|---:|---:|"), "{text}");
    }
}
