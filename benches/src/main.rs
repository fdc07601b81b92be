//! Measures tidegate and other rate limiters, in one process.

mod assert;
#[cfg(feature = "tidegate")]
mod batch;
mod chart;
mod child;
mod contenders;
mod field;
mod footprint;
mod machine;
mod measure;
mod options;
mod process;
mod report;
mod results;
mod rows;
mod workload;

use footprint::Group;
use options::Options;
use results::{Results, Row};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let options = Options::parse(std::env::args().skip(1))?;
    if options.help {
        print!("{}", options::HELP);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(args) = &options.child {
        return child::run(args).map(|()| ExitCode::SUCCESS);
    }
    if options.list {
        list(&options);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(load) = machine::busy() {
        eprintln!("warning: the machine is busy (load {load}); the numbers will be noisy");
    }
    let results = measured(&options)?;
    if results.rows.is_empty() {
        return Err("no row has that name; --list prints them".into());
    }
    let verdicts = assert::check(&results);
    print!("{}", report::text(&results));
    if options.write {
        write(&results, &verdicts)?;
    }
    if !options.assert {
        return Ok(ExitCode::SUCCESS);
    }
    print!("{}", report::verdicts(&verdicts));
    Ok(judged(&options, &verdicts))
}

/// The exit code of a checked run: what a partial run did not measure is not a miss.
fn judged(options: &Options, verdicts: &[assert::Verdict]) -> ExitCode {
    let whole = !options.quick && options.only.is_none();
    let failed = |verdict: &&assert::Verdict| match verdict.outcome {
        assert::Outcome::Reached => false,
        assert::Outcome::Missed => true,
        assert::Outcome::NotMeasured => whole,
    };
    let missed = verdicts.iter().filter(failed).count();
    println!("\n{missed} of {} targets missed", verdicts.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Prints the names of the rows.
fn list(options: &Options) {
    for spec in rows::specs(options) {
        println!("{:<16} {}", spec.id, spec.title);
    }
    for group in Group::all() {
        println!("{:<16} {}", group.id(), group.title());
    }
}

/// Measures all selected rows.
fn measured(options: &Options) -> Result<Results, String> {
    let mut results = Results::default();
    for spec in rows::specs(options) {
        if options.wants(&spec.id, &spec.title) {
            let start = Instant::now();
            let row = rows::measure(&spec, options)
                .map_err(|error| format!("{}: {error}", spec.title))?;
            progress(&row, start);
            results.rows.push(row);
        }
    }
    for group in Group::all() {
        if options.wants(group.id(), group.title()) {
            let start = Instant::now();
            let rows =
                group.measure(options).map_err(|error| format!("{}: {error}", group.title()))?;
            rows.iter().for_each(|row| progress(row, start));
            results.rows.extend(rows);
        }
    }
    Ok(results)
}

/// Prints the result of a row, with the extremes of its rounds.
fn progress(row: &Row, start: Instant) {
    eprintln!("{} [{:.1} s]", row.title, start.elapsed().as_secs_f64());
    for cell in &row.cells {
        let (name, unit) = (cell.who.name(), row.unit.name());
        let (value, low, high) = (cell.value, cell.low, cell.high);
        eprintln!("    {name:<16} {value:>10.1} {unit:<5} ({low:.1} to {high:.1})");
    }
}

/// Writes the document and its chart into the repository's docs.
fn write(results: &Results, verdicts: &[assert::Verdict]) -> Result<(), String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::create_dir_all(&docs).map_err(|error| format!("{}: {error}", docs.display()))?;
    for (name, text) in [
        ("benchmarks.md", report::document(results, verdicts)),
        ("benchmarks.svg", chart::svg(results)),
    ] {
        let path = docs.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}
