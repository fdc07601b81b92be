//! Measures the daemon and other servers: each pinned to one processor, the load on another.

use std::process::ExitCode;

mod disk;
mod grpc;
mod load;
mod parts;
mod servers;
mod tls;

const HELP: &str = "\
Measures the daemon and other servers, on this machine: medians of interleaved rounds.

Servers run on processor 0 and the load on processor 1. The peers are redis-server (which
scripts/install installs) and, for HTTP, throttlecrab-server (scripts/install peers). The daemon is
the `tidegate` of `cargo build --release -p tidegate-cli`. `disk` writes to a folder of the current
directory, which it removes at the end.

usage: server [--part resp|http|disk|grpc|tls|start] [--quick] [--assert]

  --part     only this one; may be given more than once
  --quick    fewer and shorter rounds, for a first impression
  --assert   exit with 1 if a target was missed
";

/// What to measure, and how long.
#[derive(Clone, Debug)]
struct Options {
    parts: Vec<String>,
    is_quick: bool,
    is_assert: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    /// Rounds of every measurement.
    fn rounds(&self) -> usize {
        if self.is_quick { 3 } else { 7 }
    }

    /// The duration of one round.
    fn round(&self) -> std::time::Duration {
        std::time::Duration::from_millis(if self.is_quick { 400 } else { 1_500 })
    }

    fn keys(&self) -> u32 {
        if self.is_quick { 100_000 } else { 1_000_000 }
    }
}

/// A promised number, and its measured value.
#[derive(Debug)]
struct Target {
    name: String,
    measured: f64,
    wanted: f64,
    /// Whether larger is better.
    is_least: bool,
}

impl Target {
    fn is_reached(&self) -> bool {
        if self.is_least { self.measured >= self.wanted } else { self.measured <= self.wanted }
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut options = Options { parts: Vec::new(), is_quick: false, is_assert: false };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--part" => options.parts.extend(args.next()),
            // This program as the server to compare with; see `grpc`.
            "--bare-grpc" => return grpc::serve_bare(args.next()),
            // This program as many clients; see `tls`.
            "--flood" => return tls::flood(args.next(), args.next()),
            "--quick" => options.is_quick = true,
            "--assert" => options.is_assert = true,
            _ => {
                print!("{HELP}");
                return if arg == "--help" { ExitCode::SUCCESS } else { ExitCode::from(2) };
            }
        }
    }
    if let Err(error) = servers::pin_self(1) {
        eprintln!("cannot pin the load to processor 1: {error}");
    }
    let mut targets = Vec::new();
    type Part = fn(&Options) -> Result<Vec<Target>, String>;
    let parts: [(&str, Part); 6] = [
        ("resp", parts::resp),
        ("http", parts::http),
        ("disk", disk::measure),
        ("grpc", grpc::measure),
        ("tls", tls::measure),
        ("start", parts::start),
    ];
    for (name, part) in parts {
        if options.wants(name) {
            match part(&options) {
                Ok(measured) => targets.extend(measured),
                Err(error) => {
                    eprintln!("{name}: {error}");
                    return ExitCode::from(2);
                }
            }
        }
    }
    println!("\ntargets");
    for target in &targets {
        let Target { name, measured, wanted, is_least } = target;
        let bound = if *is_least { "at least" } else { "at most" };
        let verdict = if target.is_reached() { "reached" } else { "missed" };
        println!("  {name:<58} {measured:>8.2}  {bound} {wanted:<6} {verdict}");
    }
    let missed = targets.iter().filter(|target| !target.is_reached()).count();
    println!("{missed} of {} targets missed", targets.len());
    ExitCode::from(u8::from(options.is_assert && missed > 0))
}
