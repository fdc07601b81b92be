//! Measures the file store: decisions that share a flush, compared with SQLite; the start after a
//! crash; and the price of rules without durability.

use std::fs::{self, File};
use std::future::{Future, IntoFuture};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use rusqlite::Connection;
use tidegate::durable::{FileOptions, FileStore};
use tidegate::policy::Policy;
use tidegate::{Engine, MemoryStore, Request, SystemClock, WhenFull};

const HELP: &str = "\
Measures the file store, in a folder of the current directory that is removed at the end.

usage: durable [--quick] [--assert] [--folder FOLDER] [--part grouped|start|memory]

  --quick          fewer decisions and keys, for a first impression
  --assert         exit with 1 if a target was missed
  --folder FOLDER  where to write; the disk that is measured
  --part PART      measure only this
";

const CALLERS: usize = 64;

const POLICY: &str = r#"
    [[rule]]
    name  = "kept"
    key   = ["user"]
    quota = { max = 1000000000, per = "year" }
"#;

const IN_MEMORY: &str = r#"
    [[rule]]
    name   = "passing"
    key    = ["user"]
    bucket = { rate = "1000000000/s", burst = 1000000000 }
"#;

struct Results {
    all: usize,
    missed: usize,
}

impl Results {
    fn report(&mut self, what: &str, measured: f64, (wanted, is_reached): (&str, bool)) {
        self.all += 1;
        self.missed += usize::from(!is_reached);
        let verdict = if is_reached { "reached" } else { "missed" };
        println!("{what:58} {measured:10.2}  {wanted:14} {verdict}");
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, folder, keys] = &args[..]
        && command == "--fill"
    {
        fill(Path::new(folder), keys.parse().expect("a number"));
    }
    let is_set = |flag: &str| args.iter().any(|arg| arg == flag);
    if is_set("--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let given = |flag: &str| {
        args.iter().position(|arg| arg == flag).and_then(|at| args.get(at + 1)).cloned()
    };
    let base = given("--folder").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let part = given("--part");
    let is_wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let folder = base.join(format!("tidegate-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder to write to");
    let mut results = Results { all: 0, missed: 0 };
    let quick = is_set("--quick");
    if is_wanted("grouped") {
        grouped(&folder, if quick { 100 } else { 1_000 }, &mut results);
    }
    if is_wanted("start") {
        start(&folder, if quick { 100_000 } else { 1_000_000 }, &mut results);
    }
    if is_wanted("memory") {
        in_memory(&folder, if quick { 7 } else { 51 }, &mut results);
    }
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    println!("{} of {} targets missed", results.missed, results.all);
    ExitCode::from(u8::from(is_set("--assert") && results.missed > 0))
}

/// Concurrent decisions that share flushes, compared with the disk alone and SQLite.
fn grouped(folder: &Path, each: usize, results: &mut Results) {
    let device = device_sync(folder, 1_000);
    let device_p50 = percentile(&device, 0.5);
    println!("the disk alone: p50 {device_p50:.0} us, p99 {:.0} us", percentile(&device, 0.99));
    for (name, tasks) in [("threads", false), ("tasks on two threads", true)] {
        let mut runs = Vec::new();
        for round in 0..3 {
            let folder = folder.join(format!("grouped-{tasks}-{round}"));
            let engine = open(&folder);
            let before = engine.file_store().counts();
            let began = Instant::now();
            let waits = if tasks { by_tasks(&engine, each) } else { by_threads(&engine, each) };
            let rate = waits.len() as f64 / began.elapsed().as_secs_f64();
            let after = engine.file_store().counts();
            let per_sync =
                (after.records - before.records) as f64 / (after.syncs - before.syncs) as f64;
            runs.push((rate, per_sync, percentile(&waits, 0.5), percentile(&waits, 0.99)));
        }
        let [rate, per_sync, p50, p99] = [
            median(runs.iter().map(|run| run.0)),
            median(runs.iter().map(|run| run.1)),
            median(runs.iter().map(|run| run.2)),
            median(runs.iter().map(|run| run.3)),
        ];
        println!("{CALLERS} callers as {name}: {rate:.0}/s, p50 {p50:.0} us, p99 {p99:.0} us");
        results.report("  decisions per fsync", per_sync, ("at least 20", per_sync >= 20.0));
        let ratio = p99 / device_p50;
        results.report("  p99 in fsyncs of the disk (p50)", ratio, ("at most 3", ratio <= 3.0));
        let sqlite = median((0..3).map(|round| {
            sqlite(&folder.join(format!("sqlite-{tasks}-{round}.db")), each.min(200))
        }));
        let ratio = rate / sqlite;
        println!("  SQLite, WAL, synchronous=FULL: {sqlite:.0}/s");
        results.report("  times SQLite", ratio, ("at least 5", ratio >= 5.0));
    }
}

fn open(folder: &Path) -> Engine<FileStore> {
    Engine::builder(Policy::from_toml(POLICY).expect("valid"))
        .folder(folder)
        .build()
        .expect("a new store")
}

fn by_threads(engine: &Engine<FileStore>, each: usize) -> Vec<f64> {
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    let user = format!("user-{caller}");
                    let attributes = [("user", user.as_str())];
                    let request = Request::new("default", &attributes);
                    let mut waits = Vec::with_capacity(each);
                    for _ in 0..each {
                        let began = Instant::now();
                        let report = engine.check(&request).block().expect("a decision");
                        assert!(report.is_allowed());
                        waits.push(began.elapsed().as_secs_f64() * 1e6);
                    }
                    waits
                })
            })
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
    })
}

/// Wakes a thread, and marks which of its tasks may continue.
struct TaskWaker {
    thread: Thread,
    is_ready: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.is_ready.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn by_tasks(engine: &Engine<FileStore>, each: usize) -> Vec<f64> {
    thread::scope(|scope| {
        let half = |first: usize| {
            scope.spawn(move || {
                let users: Vec<String> =
                    (first..first + CALLERS / 2).map(|user| format!("user-{user}")).collect();
                run_tasks(users.iter().map(|user| task(engine, user, each)).collect())
            })
        };
        let halves = [half(0), half(CALLERS / 2)];
        halves.into_iter().flat_map(|half| half.join().expect("no panic")).collect()
    })
}

type Task<'a> = Pin<Box<dyn Future<Output = Vec<f64>> + 'a>>;

fn task<'a>(engine: &'a Engine<FileStore>, user: &'a str, each: usize) -> Task<'a> {
    Box::pin(async move {
        let attributes = [("user", user)];
        let mut waits = Vec::with_capacity(each);
        for _ in 0..each {
            let began = Instant::now();
            let report = engine.check(&Request::new("default", &attributes)).into_future().await;
            assert!(report.expect("a decision").is_allowed());
            waits.push(began.elapsed().as_secs_f64() * 1e6);
        }
        waits
    })
}

fn run_tasks(tasks: Vec<Task<'_>>) -> Vec<f64> {
    let waker = || Arc::new(TaskWaker { thread: thread::current(), is_ready: true.into() });
    let mut tasks: Vec<_> = tasks.into_iter().map(|task| (task, waker())).collect();
    let mut waits = Vec::new();
    while !tasks.is_empty() {
        let mut has_run = false;
        tasks.retain_mut(|(task, ready)| {
            if !ready.is_ready.swap(false, Ordering::AcqRel) {
                return true;
            }
            has_run = true;
            let waker = Waker::from(Arc::clone(ready));
            match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(of_task) => {
                    waits.extend(of_task);
                    false
                }
                Poll::Pending => true,
            }
        });
        if !has_run {
            thread::park();
        }
    }
    waits
}

/// Microseconds of writes of 4 KiB that are synced one by one.
fn device_sync(folder: &Path, times: u64) -> Vec<f64> {
    let path = folder.join("device");
    let file = File::create(&path).expect("a file");
    let bytes = [7; 4096];
    let one = |number: u64| {
        let began = Instant::now();
        file.write_all_at(&bytes, number * 4096).expect("space");
        file.sync_data().expect("a disk that works");
        began.elapsed().as_secs_f64() * 1e6
    };
    let waits = (0..times).map(one).collect();
    fs::remove_file(path).expect("it can be removed");
    waits
}

/// Decisions per second, one transaction each, by the same number of callers.
fn sqlite(path: &Path, each: usize) -> f64 {
    let connection = Connection::open(path).expect("a database");
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE spent (user TEXT PRIMARY KEY, units INTEGER NOT NULL) WITHOUT ROWID;",
        )
        .expect("a table");
    let connection = Mutex::new(connection);
    let began = Instant::now();
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let connection = &connection;
            scope.spawn(move || {
                let user = format!("user-{caller}");
                for _ in 0..each {
                    let connection = connection.lock().expect("no panic");
                    let mut statement = connection
                        .prepare_cached(
                            "INSERT INTO spent VALUES (?1, 1) ON CONFLICT (user)
                             DO UPDATE SET units = units + 1 WHERE units < 1000000000",
                        )
                        .expect("valid");
                    assert_eq!(statement.execute([&user]).expect("a decision"), 1);
                }
            });
        }
    });
    (CALLERS * each) as f64 / began.elapsed().as_secs_f64()
}

/// The duration of a start after the process was killed.
fn start(folder: &Path, keys: usize, results: &mut Results) {
    let folder = folder.join("start");
    let me = std::env::current_exe().expect("this program");
    let fill = Command::new(me).arg("--fill").arg(&folder).arg(keys.to_string()).status();
    assert!(!fill.expect("it runs").success(), "it kills itself");
    let mut times = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let engine = open_large(&folder, keys);
        times.push(began.elapsed().as_secs_f64());
        assert_eq!(engine.len(), keys);
    }
    let seconds = median(times.into_iter());
    println!("start with {keys} live keys after a crash");
    results.report("  seconds", seconds, ("at most 2", seconds <= 2.0));
}

fn open_large(folder: &Path, keys: usize) -> Engine<FileStore> {
    let store = FileOptions::default().max_keys(2 * keys).open(folder).expect("a store");
    let clock = SystemClock::no_earlier_than(store.last_time());
    Engine::builder(Policy::from_toml(POLICY).expect("valid"))
        .store(store)
        .clock(clock)
        .build()
        .expect("there is memory")
}

/// Fills a store, and kills this process.
fn fill(folder: &Path, keys: usize) -> ! {
    let engine = open_large(folder, keys);
    thread::scope(|scope| {
        for part in 0..CALLERS {
            let engine = &engine;
            scope.spawn(move || {
                for key in (part..keys).step_by(CALLERS) {
                    let user = format!("user-{key}");
                    let attributes = [("user", user.as_str())];
                    let report = engine.check(&Request::new("default", &attributes)).block();
                    assert!(report.expect("a decision").is_allowed());
                }
            });
        }
    });
    std::process::abort();
}

/// Rules without durability, on either store.
fn in_memory(folder: &Path, rounds: usize, results: &mut Results) {
    let policy = || Policy::from_toml(IN_MEMORY).expect("valid");
    let memory = Engine::builder(policy())
        .store(MemoryStore::new(1 << 20, WhenFull::Share).expect("memory"))
        .clock(SystemClock::new())
        .build()
        .expect("there is memory");
    let on_disk =
        Engine::builder(policy()).folder(folder.join("passing")).build().expect("a new store");
    let [mut in_memory, mut on_file] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        in_memory.push(nanoseconds(|request| {
            black_box(memory.check(request).block().expect("a decision").is_allowed())
        }));
        on_file.push(nanoseconds(|request| {
            black_box(on_disk.check(request).block().expect("a decision").is_allowed())
        }));
    }
    let [in_memory, on_file] = [median(in_memory.into_iter()), median(on_file.into_iter())];
    println!("a rule without durability: {in_memory:.0} ns in memory, {on_file:.0} ns on disk");
    let ratio = on_file / in_memory;
    results.report("  times the store in memory", ratio, ("at most 1.1", ratio <= 1.1));
}

fn nanoseconds(mut check: impl FnMut(&Request<'_>) -> bool) -> f64 {
    let attributes = [("user", "ada")];
    let request = Request::new("default", &attributes);
    let began = Instant::now();
    for _ in 0..20_000 {
        check(&request);
    }
    began.elapsed().as_secs_f64() * 1e9 / 20_000.0
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * share) as usize;
    sorted[index.min(sorted.len() - 1)]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(&values.collect::<Vec<_>>(), 0.5)
}
