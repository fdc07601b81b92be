//! One key that several processes decide about.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use tidegate_redis_servers::{Server, until};

use crate::contenders::Ours;
use crate::load::{Amount, Measured, Shape, runtime};
use crate::servers;

/// How many decisions each process has in flight.
const IN_FLIGHT: usize = 8;

/// How many values a process reports of all its times.
const QUANTILES: usize = 2_000;

/// All processes together.
#[derive(Clone, Debug, Default)]
pub struct Hot {
    pub measured: Measured,
    pub commits: u64,
    pub conflicts: u64,
    /// The processor time of all processes.
    pub cpu_us: u64,
}

/// Runs so many processes at once.
pub fn run(server: &Server, processes: usize, length: Duration) -> Hot {
    let mut children: Vec<Child> = (0..processes).map(|_| spawn(server, length)).collect();
    let mut outputs: Vec<_> = (children.iter_mut())
        .map(|child| BufReader::new(child.stdout.take().expect("it is piped")).lines())
        .collect();
    let mut line = |number: usize| {
        let line = outputs[number].next().expect("a process ended early");
        line.expect("text of a process")
    };
    (0..processes).for_each(|number| assert_eq!(line(number), "ready"));
    for child in &mut children {
        let input = child.stdin.as_mut().expect("it is piped");
        input.write_all(b"go\n").expect("the process reads");
    }
    let mut hot = Hot::default();
    let mut weighted: Vec<(u32, u64)> = Vec::new();
    for number in 0..processes {
        let line = line(number);
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().expect("a number")).collect();
        let [count, per_second, commits, conflicts, cpu_us, took @ ..] = &numbers[..] else {
            panic!("a process printed {line:?}")
        };
        hot.measured.per_second += *per_second as f64;
        hot.commits += commits;
        hot.conflicts += conflicts;
        hot.cpu_us += cpu_us;
        let weight = count / took.len().max(1) as u64;
        weighted.extend(took.iter().map(|ns| (u32::try_from(*ns).unwrap_or(u32::MAX), weight)));
    }
    for mut child in children {
        assert!(child.wait().expect("a process ends").success());
    }
    hot.measured.took_ns = merged(weighted);
    hot
}

/// Ascending times, each as often as its weight says, thinned out.
fn merged(mut weighted: Vec<(u32, u64)>) -> Vec<u32> {
    weighted.sort_unstable();
    let all: u64 = weighted.iter().map(|(_, weight)| weight).sum();
    let step = (all / 100_000).max(1);
    let mut passed = 0;
    let mut took_ns = Vec::new();
    for (ns, weight) in weighted {
        passed += weight;
        while took_ns.len() as u64 * step < passed {
            took_ns.push(ns);
        }
    }
    took_ns
}

fn spawn(server: &Server, length: Duration) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.args(["--hot-process", &server.url(), &length.as_millis().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("this program starts again")
}

/// One of the processes.
pub fn process(args: &[String]) -> ExitCode {
    let [url, length_ms] = args else { return ExitCode::from(2) };
    let Ok(length_ms) = length_ms.parse() else { return ExitCode::from(2) };
    let (ours, runtime) = (Ours::connect(url, 1), runtime());
    let shape = Shape { in_flight: IN_FLIGHT, keys: 1 };
    until("it decides", || ours.decides());
    println!("ready");
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).is_err() {
        return ExitCode::FAILURE;
    }
    // The start is not like the rest.
    ours.load(&runtime, shape, Amount::Time(Duration::from_millis(200)));
    let (before, cpu_us) = (ours.redis.stats(), servers::own_cpu_us());
    let measured = ours.load(&runtime, shape, Amount::Time(Duration::from_millis(length_ms)));
    let (after, cpu_us) = (ours.redis.stats(), servers::own_cpu_us() - cpu_us);
    let Measured { per_second, took_ns } = measured;
    let (commits, conflicts) = (after.commits - before.commits, after.conflicts - before.conflicts);
    let count = took_ns.len();
    let quantiles = QUANTILES.min(count);
    let quantile = |number: usize| took_ns[count * number / quantiles].to_string();
    let quantiles: Vec<String> = (0..quantiles).map(quantile).collect();
    let quantiles = quantiles.join(" ");
    println!("{count} {per_second:.0} {commits} {conflicts} {cpu_us:.0} {quantiles}");
    ExitCode::SUCCESS
}
