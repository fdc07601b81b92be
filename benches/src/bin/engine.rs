//! Measures the engine, the bare limiter and governor in one process: the price of a policy.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tidegate::policy::Policy;
use tidegate::{Bucket, Domain, Edit, Limiter, Request, StoreEngine};

const HELP: &str = "\
Measures the engine, the bare limiter and governor: medians of interleaved rounds.

usage: engine [--quick] [--assert]
       engine --calls PATH COUNT

  --quick    fewer rounds, for a first impression
  --assert   exit with 1 if a target was missed
  --calls    only make COUNT calls of one path, for tools that count instructions: the difference
             between two counts is the price of the calls between them. Paths: governor, limiter,
             one, prepared, two, three, match, sliding, quota, with-sliding, with-quota; and
             singles, batch, three-singles, three-batch: 16 decisions per call, among 1 000 keys
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, path, count] = args.as_slice()
        && flag == "--calls"
    {
        let (paths, batches) = (Paths::new(), LazyLock::new(|| Batches::new(1_000)));
        let function = paths.function(path).or_else(|| batches.function(path));
        let path = function.zip(count.parse().ok());
        let Some((mut function, count)) = path else {
            print!("{HELP}");
            return ExitCode::from(2);
        };
        return ExitCode::from(u8::from(!(0_u64..count).all(|_| function())));
    }
    let is_set = |flag: &str| args.iter().any(|arg| arg == flag);
    if let Some(unknown) = args.iter().find(|arg| !["--quick", "--assert"].contains(&arg.as_str()))
    {
        print!("{HELP}");
        return if unknown == "--help" { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let rounds = if is_set("--quick") { 5 } else { 31 };
    let mut lines = hot(rounds);
    lines.extend(batches(rounds));
    lines.extend(matching(rounds));
    lines.push(loading());
    lines.push(swapping(if is_set("--quick") { 1 } else { 5 }));
    let mut missed = 0;
    for Line { what, value, unit, most } in &lines {
        let is_missed = *value > *most;
        missed += usize::from(is_missed);
        let verdict = if is_missed { "missed" } else { "reached" };
        println!("{what:58} {value:8.2} {unit:3} at most {most:5.2} {verdict}");
    }
    println!("{missed} of {} targets missed", lines.len());
    ExitCode::from(u8::from(is_set("--assert") && missed > 0))
}

/// One measured number, and its upper bound.
struct Line {
    what: &'static str,
    value: f64,
    unit: &'static str,
    most: f64,
}

/// A known key that is always allowed, by every path that is measured.
struct Paths {
    governor: RateLimiter<String, DashMapStateStore<String>, DefaultClock>,
    limiter: Limiter<String>,
    engines: Vec<(&'static str, StoreEngine)>,
    prepared: Domain,
    key: String,
}

impl Paths {
    fn new() -> Self {
        let limit = Bucket::per_second(1_000_000_000);
        let most = NonZeroU32::new(1_000_000_000).expect("not zero");
        let one = &rule("one", &format!("key = [\"user\"]\n{BUCKET}"));
        let two = &rule("two", BUCKET);
        let of_org = |limit: &str| rule("three", &format!("key = [\"org\"]\n{limit}"));
        let window = &of_org("window = { max = 4000000000, per = \"1h\" }");
        let sliding = &of_org("sliding = { max = 400000000, per = \"1h\" }");
        let quota = &of_org("quota = { max = 4000000000000, per = \"day\" }");
        let matching = &format!("match = {{ plan = \"p\" }}\nkey = [\"user\"]\n{BUCKET}");
        let engines = vec![
            ("one", engine(one)),
            ("two", engine(&[one.as_str(), two].concat())),
            ("three", engine(&[one.as_str(), two, window].concat())),
            ("match", engine(&rule("match", matching))),
            ("sliding", engine(sliding)),
            ("quota", engine(quota)),
            ("with-sliding", engine(&[one.as_str(), two, sliding].concat())),
            ("with-quota", engine(&[one.as_str(), two, quota].concat())),
        ];
        Self {
            governor: RateLimiter::dashmap(Quota::per_second(most)),
            limiter: Limiter::new(limit),
            prepared: engines[0].1.domain("default").expect("it has rules"),
            engines,
            key: KEY.into(),
        }
    }

    /// The calls of one path: each returns whether it was allowed.
    fn function(&self, path: &str) -> Option<Box<dyn FnMut() -> bool + '_>> {
        const FEW: [(&str, &str); 1] = [("user", KEY)];
        const MORE: [(&str, &str); 3] = [("user", KEY), ("org", "acme"), ("plan", "p")];
        Some(match path {
            "governor" => Box::new(|| self.governor.check_key(black_box(&self.key)).is_ok()),
            "limiter" => Box::new(|| self.limiter.check(black_box(KEY)).is_allowed()),
            "prepared" => Box::new(|| {
                allowed(self.engines[0].1.check(&self.prepared.request(black_box(&FEW))))
            }),
            "one" => {
                let engine = &self.engines[0].1;
                Box::new(|| allowed(engine.check(&Request::new("default", black_box(&FEW)))))
            }
            _ => {
                let engine = &self.engines.iter().find(|(name, _)| *name == path)?.1;
                Box::new(|| allowed(engine.check(&Request::new("default", black_box(&MORE)))))
            }
        })
    }
}

/// The price of a decision beside governor's and the limiter's.
fn hot(rounds: usize) -> Vec<Line> {
    let paths = Paths::new();
    let names =
        ["governor", "limiter", "one", "prepared", "three", "match", "with-sliding", "with-quota"];
    let mut functions: Vec<_> = names.iter().filter_map(|name| paths.function(name)).collect();
    let medians = interleaved((rounds, CALLS), &mut functions);
    print_all(&names, &medians);
    let median = |name: &str| {
        let index = names.iter().position(|it| *it == name).expect("it is measured");
        medians[index]
    };
    let (governor, one, prepared) = (median("governor"), median("one"), median("prepared"));
    let row = |what, value, unit, most| Line { what, value, unit, most };
    vec![
        row("check, one rule / governor's keyed check", one / governor, "x", 2.0),
        row("check, prepared domain / governor's keyed check", prepared / governor, "x", 2.0),
        row("check, one rule / limiter", one / median("limiter"), "x", 4.0),
        row("check, three rules", median("three"), "ns", 150.0),
    ]
}

/// The same requests one by one and in batches of 16, over so many keys that each is a cache miss.
fn batches(rounds: usize) -> Vec<Line> {
    let batches = Batches::new(1_000_000);
    let names = ["singles", "batch", "three-singles", "three-batch"];
    let mut functions: Vec<_> = names.iter().filter_map(|name| batches.function(name)).collect();
    let medians = interleaved((rounds, CALLS / 16), &mut functions);
    let medians: Vec<f64> = medians.iter().map(|median| median / BATCH as f64).collect();
    print_all(&names, &medians);
    let row = |what, value| Line { what, value, unit: "x", most: 1.0 / 1.8 };
    vec![
        row("batch of 16 / single checks, one rule, 1 M keys", medians[1] / medians[0]),
        row("batch of 16 / single checks, three rules, 1 M keys", medians[3] / medians[2]),
    ]
}

/// Requests of many keys, in no order, by one rule and by three.
struct Batches {
    one: StoreEngine,
    three: StoreEngine,
    keys: Vec<String>,
}

impl Batches {
    fn new(keys: usize) -> Self {
        let (user, more) = (by("user"), by("org") + &rule("all", BUCKET));
        let (one, three) = (engine(&user), engine(&(user + &more)));
        let keys: Vec<String> = (0..keys).map(|n| format!("user-{n:07}")).collect();
        for key in &keys {
            for engine in [&one, &three] {
                black_box(allowed(engine.check(&Request::new("default", &of(key)))));
            }
        }
        Self { one, three, keys }
    }

    /// Calls of 16 decisions each.
    fn function(&self, path: &str) -> Option<Box<dyn FnMut() -> bool + '_>> {
        let (engine, is_batch) = match path {
            "singles" => (&self.one, false),
            "batch" => (&self.one, true),
            "three-singles" => (&self.three, false),
            "three-batch" => (&self.three, true),
            _ => return None,
        };
        let mut next = 1_u64;
        Some(Box::new(move || {
            let attributes: [_; BATCH] = std::array::from_fn(|_| {
                next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                of(&self.keys[(next >> 33) as usize % self.keys.len()])
            });
            let requests = attributes.each_ref().map(|it| Request::new("default", it));
            if is_batch {
                return engine.check_many(&requests).into_iter().all(allowed);
            }
            requests.iter().all(|request| allowed(engine.check(request)))
        }))
    }
}

/// The attributes of a request.
fn of(key: &str) -> [(&str, &str); 2] {
    [("user", key), ("org", key)]
}

/// A rule with a bucket for each value of an attribute.
fn by(attribute: &str) -> String {
    rule(attribute, &format!("key = [\"{attribute}\"]\n{BUCKET}"))
}

fn rule(name: &str, rest: &str) -> String {
    format!("[[rule]]\nname = \"{name}\"\n{rest}\n")
}

fn print_all(names: &[&str], medians: &[f64]) {
    let list = names.iter().zip(medians).map(|(name, median)| format!("{name} {median:.1}"));
    println!("ns: {}", list.collect::<Vec<_>>().join(", "));
}

fn allowed(result: tidegate::Answer<Result<tidegate::Report, tidegate::CheckError>>) -> bool {
    black_box(result.block().is_ok_and(|report| report.is_allowed()))
}

fn engine(policy: &str) -> StoreEngine {
    StoreEngine::new(Policy::from_toml(policy).expect("a valid policy"))
}

/// How rules differ.
struct Kind {
    what: &'static str,
    condition: fn(usize) -> String,
    /// The attribute of a request that matches one of them.
    met: (&'static str, &'static str),
}

/// The same request among few and among many rules.
fn matching(rounds: usize) -> Vec<Line> {
    let kinds = [
        Kind {
            what: "10 000 rules that differ by equality / 10",
            condition: |n| format!("plan = \"p{n}\""),
            met: ("plan", "p7"),
        },
        Kind {
            what: "10 000 rules that differ by prefix / 10",
            condition: |n| format!("path = \"/v1/{n:05}/*\""),
            met: ("path", "/v1/00007/items"),
        },
        Kind {
            what: "10 000 rules that differ by prefixes of many lengths / 10",
            condition: |n| format!("path = \"/v1/{}{n}/*\"", "x".repeat(n % 40)),
            met: ("path", "/v1/xxxxxxx7/items"),
        },
        Kind {
            what: "10 000 rules that differ by network / 10",
            condition: |n| format!("ip = \"10.{}.{}.0/24\"", n / 256, n % 256),
            met: ("ip", "10.0.7.9"),
        },
    ];
    let mut lines = Vec::new();
    for Kind { what, condition, met } in kinds {
        let policy =
            |rules: usize| -> String { (0..rules).map(|n| many(n, &condition(n))).collect() };
        let (few, lots) = (engine(&policy(10)), engine(&policy(10_000)));
        let attributes = [("user", "ada"), met];
        let request = Request::new("default", &attributes);
        let mut functions: [Box<dyn FnMut() -> bool>; 2] = [
            Box::new(|| allowed(few.check(black_box(&request)))),
            Box::new(|| allowed(lots.check(black_box(&request)))),
        ];
        let medians = interleaved((rounds, CALLS), &mut functions);
        lines.push(Line { what, value: medians[1] / medians[0], unit: "x", most: 2.0 });
    }
    lines
}

fn many(number: usize, condition: &str) -> String {
    format!(
        "[[rule]]\nname = \"r{number}\"\nkey = [\"user\"]\nmatch = {{ {condition} }}\n\
         bucket = {{ rate = \"1000000000/s\", burst = 1000000000 }}\n"
    )
}

fn loading() -> Line {
    let text: String = (0..10_000).map(|n| many(n, &format!("plan = \"p{n}\""))).collect();
    let mut took: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            black_box(engine(&text));
            start.elapsed().as_secs_f64()
        })
        .collect();
    took.sort_by(f64::total_cmp);
    Line { what: "10 000 rules are loaded and validated", value: took[2], unit: "s", most: 1.0 }
}

/// The slowest of a thousand decisions, with and without concurrent policy replacement: medians of
/// the ratios of both.
fn swapping(rounds: usize) -> Line {
    let policy = |rate: u64| {
        let rules = (0..100).map(|n| {
            format!(
                "[[rule]]\nname = \"r{n}\"\nkey = [\"user\"]\nmatch = {{ plan = \"p{n}\" }}\n\
             bucket = {{ rate = \"{rate}/s\", burst = 1000000000 }}\n"
            )
        });
        Policy::from_toml(&rules.collect::<String>()).expect("a valid policy")
    };
    let engine = StoreEngine::new(policy(1_000_000));
    let mut ratios: Vec<f64> = (0..rounds)
        .map(|_| {
            let quiet = tail(&engine);
            let stop = AtomicBool::new(false);
            let busy = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut rate = 1_000_000;
                    while !stop.load(Ordering::Relaxed) {
                        rate += 1;
                        let edited = engine.edit("bench", Edit::policy(policy(rate))).block();
                        black_box(edited).expect("an edit in memory");
                        std::thread::park_timeout(Duration::from_millis(5));
                    }
                });
                let busy = tail(&engine);
                stop.store(true, Ordering::Relaxed);
                busy
            });
            println!("p99.9: {quiet:.0} ns without, {busy:.0} ns while the policy is replaced");
            busy / quiet
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let what = "p99.9 while the policy is replaced / without";
    Line { what, value: ratios[ratios.len() / 2], unit: "x", most: 1.5 }
}

/// The 99.9th percentile of single decisions, in nanoseconds.
fn tail(engine: &StoreEngine) -> f64 {
    let names: Vec<String> = (0..100).map(|n| format!("p{n}")).collect();
    let mut took: Vec<u128> = (0..1_000_000)
        .map(|n| {
            let attributes = [("user", "ada"), ("plan", names[n % names.len()].as_str())];
            let start = Instant::now();
            allowed(engine.check(&Request::new("default", &attributes)));
            start.elapsed().as_nanos()
        })
        .collect();
    took.sort_unstable();
    took[took.len() / 1_000 * 999] as f64
}

/// Nanoseconds per call of each function, medians of interleaved rounds.
fn interleaved(
    (rounds, calls): (usize, u32),
    functions: &mut [Box<dyn FnMut() -> bool + '_>],
) -> Vec<f64> {
    let mut times = vec![Vec::new(); functions.len()];
    for _ in 0..rounds {
        for (function, times) in functions.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(function());
            }
            times.push(start.elapsed().as_nanos() as f64 / f64::from(calls));
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    times.iter().map(|times| times[times.len() / 2]).collect()
}

const CALLS: u32 = 200_000;

/// Decisions in a batch.
const BATCH: usize = 16;

const BUCKET: &str = "bucket = { rate = \"1000000000/s\", burst = 1000000000 }";

const KEY: &str = "198.51.100.7";
