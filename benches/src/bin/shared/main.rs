//! Measures the store on Redis and Valkey beside a script on the same server, from the same loader.

use std::process::ExitCode;
use std::time::Duration;

use tidegate_redis_servers::Program;
use tokio::runtime::Runtime;

use contenders::{Ours, Script};
use load::{Amount, Measured, Shape, median};

mod contenders;
mod hot;
mod load;
mod outage;
mod servers;

const HELP: &str = "\
Measures the store on Redis and Valkey beside a GCRA script by EVALSHA: medians of interleaved rounds.

Servers run on processor 0 and the load on processor 1 (by taskset); scripts/install installs them.

usage: shared [--part one|redis7|three|hot|outage] [--quick] [--assert]
       shared --calls ours|ours3|redis7|script|script3 COUNT

  --part     only this one; may be given more than once
  --quick    fewer and shorter rounds, for a first impression
  --assert   exit with 1 if a target was missed
  --calls    only make COUNT decisions, for tools that count instructions: the difference between two
             counts is the price of the decisions between them, over all threads of this process
";

/// What to measure, and how long.
#[derive(Clone, Debug, Default)]
struct Options {
    parts: Vec<String>,
    is_quick: bool,
    is_assert: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    fn rounds(&self) -> usize {
        if self.is_quick { 3 } else { 7 }
    }

    fn round(&self) -> Duration {
        Duration::from_millis(if self.is_quick { 700 } else { 2_000 })
    }
}

/// A promised number, and its measured value.
#[derive(Debug)]
struct Target {
    name: &'static str,
    measured: f64,
    wanted: f64,
    /// Whether larger is better.
    is_least: bool,
}

impl Target {
    fn least(name: &'static str, measured: f64, wanted: f64) -> Self {
        Self { name, measured, wanted, is_least: true }
    }

    fn most(name: &'static str, measured: f64, wanted: f64) -> Self {
        Self { name, measured, wanted, is_least: false }
    }

    fn is_reached(&self) -> bool {
        if self.is_least { self.measured >= self.wanted } else { self.measured <= self.wanted }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--hot-process") => return hot::process(&args[1..]),
        Some("--calls") => return calls(&args[1..]),
        _ => {}
    }
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--part" => options.parts.extend(args.next()),
            "--quick" => options.is_quick = true,
            "--assert" => options.is_assert = true,
            _ => {
                print!("{HELP}");
                return if arg == "--help" { ExitCode::SUCCESS } else { ExitCode::from(2) };
            }
        }
    }
    servers::pin_self();
    let targets = measure(&options);
    let mut missed = 0;
    for target @ Target { name, measured, wanted, is_least } in &targets {
        missed += usize::from(!target.is_reached());
        let verdict = if target.is_reached() { "reached" } else { "missed" };
        let bound = if *is_least { "at least" } else { "at most" };
        println!("{name:58} {measured:10.2}  {bound} {wanted} {verdict}");
    }
    println!("{missed} of {} targets missed", targets.len());
    ExitCode::from(u8::from(options.is_assert && missed > 0))
}

fn measure(options: &Options) -> Vec<Target> {
    let mut targets = Vec::new();
    let rows = [
        ("one", Program::Valkey9, 1, "Valkey 9, one limit / script", 2.0),
        ("redis7", Program::Redis7, 1, "Redis 7, one limit / script", 0.85),
        ("three", Program::Valkey9, 3, "Valkey 9, three limits / script", 1.2),
    ];
    for (part, program, limits, name, wanted) in rows {
        if options.wants(part) {
            targets.push(Target::least(name, against_script(options, program, limits), wanted));
        }
    }
    if options.wants("hot") {
        targets.extend(hot_key(options));
    }
    if options.wants("outage") {
        let runs: Vec<_> = (0..options.rounds()).map(|_| outage::run()).collect();
        let p99_us = median(runs.iter().map(|run| run.p99_us));
        let recovery_ms = median(runs.iter().map(|run| run.recovery_ms));
        targets.push(Target::most("outage: p99 of a decision, us", p99_us, 5.0));
        targets.push(Target::most("outage: first decision after it, ms", recovery_ms, 1_000.0));
    }
    targets
}

/// How many times as many decisions as the script makes.
fn against_script(options: &Options, program: Program, limits: usize) -> f64 {
    let (server, runtime) = (servers::start(program), load::runtime());
    let round_trip_us = servers::round_trip_us(&server);
    let script = Script::connect(&runtime, &server.url(), limits);
    let ours = Ours::connect(&server.url(), limits);
    let amount = Amount::Time(options.round());
    // Every key is known before it counts.
    for decide in [&Contender::Script(&script), &Contender::Ours(&ours)] {
        decide.load(&runtime, Amount::Calls(SHAPE.keys * 2));
    }
    let mut rounds: Vec<[Round; 2]> = Vec::new();
    for _ in 0..options.rounds() {
        let round = |contender: &Contender<'_>| {
            let before = [servers::own_cpu_us(), servers::server_cpu_us(&server)];
            let measured = contender.load(&runtime, amount);
            let after = [servers::own_cpu_us(), servers::server_cpu_us(&server)];
            let each = |at: usize| (after[at] - before[at]) / measured.took_ns.len() as f64;
            Round { client_us: each(0), server_us: each(1), measured }
        };
        rounds.push([round(&Contender::Script(&script)), round(&Contender::Ours(&ours))]);
    }
    println!("{program}, limits: {limits}; plain round trip {round_trip_us:.0} us");
    for (name, at) in [("script", 0), ("ours", 1)] {
        let of = |number: fn(&Round) -> f64| median(rounds.iter().map(|it| number(&it[at])));
        println!(
            "  {name:6} {:7.0}/s, p50 {:.0} us, p99 {:.0} us; processor time of each decision: \
             client {:.1} us, server {:.1} us",
            of(|it| it.measured.per_second),
            of(|it| it.measured.p50_us()),
            of(|it| it.measured.p99_us()),
            of(|it| it.client_us),
            of(|it| it.server_us)
        );
    }
    let ratio = |[theirs, ours]: &[Round; 2]| ours.measured.per_second / theirs.measured.per_second;
    median(rounds.iter().map(ratio))
}

/// One round of a load, and the processor time of each decision on both sides.
struct Round {
    measured: Measured,
    client_us: f64,
    server_us: f64,
}

enum Contender<'a> {
    Script(&'a Script),
    Ours(&'a Ours),
}

impl Contender<'_> {
    fn load(&self, runtime: &Runtime, amount: Amount) -> Measured {
        match self {
            Self::Script(script) => script.load(runtime, SHAPE, amount),
            Self::Ours(ours) => ours.load(runtime, SHAPE, amount),
        }
    }
}

fn hot_key(options: &Options) -> Vec<Target> {
    let server = servers::start(Program::Valkey9);
    let round_trip_us = servers::round_trip_us(&server);
    println!("Valkey 9, one key; plain round trip {round_trip_us:.0} us");
    let mut targets = Vec::new();
    for processes in [1, 2, 8, 32] {
        let runs: Vec<hot::Hot> =
            (0..options.rounds()).map(|_| hot::run(&server, processes, options.round())).collect();
        let of = |number: fn(&hot::Hot) -> f64| median(runs.iter().map(number));
        let per_second = of(|it| it.measured.per_second);
        let (p50_us, p99_us) = (of(|it| it.measured.p50_us()), of(|it| it.measured.p99_us()));
        let lost = of(|it| it.conflicts as f64 / it.commits as f64);
        let cpu_us = of(|it| it.cpu_us as f64 / it.commits as f64);
        println!(
            "  {processes:2} processes {per_second:8.0}/s, p50 {p50_us:.0} us, p99 {p99_us:.0} us, \
             of each decision {lost:.3} lost commits, {cpu_us:.1} us of processor time"
        );
        if processes == 8 {
            targets.push(Target::least("hot key, 8 processes, per second", per_second, 50_000.0));
            let trips = p99_us / round_trip_us;
            targets.push(Target::most("hot key, 8 processes, p99 in round trips", trips, 20.0));
        }
    }
    targets
}

/// Only makes decisions.
fn calls(args: &[String]) -> ExitCode {
    let [what, count] = args else {
        print!("{HELP}");
        return ExitCode::from(2);
    };
    let Ok(count) = count.parse() else { return ExitCode::from(2) };
    let program = if what == "redis7" { Program::Redis7 } else { Program::Valkey9 };
    let limits = if what.ends_with('3') { 3 } else { 1 };
    let server = servers::start(program);
    let (runtime, amount) = (load::runtime(), Amount::Calls(count));
    match what.as_str() {
        "ours" | "ours3" | "redis7" => {
            Contender::Ours(&Ours::connect(&server.url(), limits)).load(&runtime, amount);
        }
        "script" | "script3" => {
            let script = Script::connect(&runtime, &server.url(), limits);
            Contender::Script(&script).load(&runtime, amount);
        }
        _ => {
            print!("{HELP}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// 64 decisions in flight, over keys that all fit into memory on both sides.
const SHAPE: Shape = Shape { in_flight: 64, keys: 1_000 };
