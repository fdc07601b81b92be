//! Measures the file store: decisions that share a flush, compared with SQLite; the start after a
//! crash; and the price of rules without durability.

use std::fs::{self, File};
use std::future::{Future, IntoFuture};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use rusqlite::Connection;
use tidegate::durable::{Disk, DiskFile, FileIdentity, FileOptions, FileStore, Folder, NamedFile};
use tidegate::policy::Policy;
use tidegate::{Request, StoreEngine, WhenFull, clock::SystemClock, store::MemoryStore};

const HELP: &str = "\
Measures the file store, in a folder of the current directory that is removed at the end.

usage: durable [--quick] [--assert] [--folder FOLDER] [--part threads|tasks|sqlite|start|memory]

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
    if let [command, folder, keys] = &args[..] {
        let (folder, keys) = (Path::new(folder), || keys.parse().expect("a number"));
        match command.as_str() {
            "--fill" => fill(folder, keys()),
            "--open" => return open_once(folder, keys()),
            _ => {}
        }
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
    let each = if quick { 100 } else { 1_000 };
    let mut rates = Vec::new();
    if is_wanted("threads") {
        rates.push(grouped(&folder, ("threads", by_threads), each, &mut results));
    }
    if is_wanted("tasks") {
        rates.push(grouped(&folder, ("tasks on two threads", by_tasks), each, &mut results));
    }
    if is_wanted("sqlite") {
        compared(&folder, &rates, &mut results);
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

/// Makes decisions by so many callers, so many each, and returns how long each has waited.
type Callers = fn(&StoreEngine, &Arc<Syncs>, usize) -> Vec<Wait>;

/// How long a decision has waited.
#[derive(Clone, Copy)]
struct Wait {
    us: f64,
    /// How many fsyncs of batches began and ended meanwhile. A record is in the batch after the one
    /// that is being written, so it is one; or two, if the batch was closed between the call and its
    /// record. If there were more when its caller runs again, the caller had no processor.
    flushes: f64,
    /// The same until the caller was woken, where that is known.
    until_woken: Option<f64>,
}

/// A decision that is underway.
struct Begun {
    at: Instant,
    /// How many fsyncs of batches had begun.
    flushes: u64,
}

impl Begun {
    fn now(syncs: &Syncs) -> Self {
        let flushes = syncs.begun.load(Ordering::Acquire);
        Self { at: Instant::now(), flushes }
    }

    fn waited(&self, syncs: &Syncs) -> Wait {
        let us = self.at.elapsed().as_secs_f64() * 1e6;
        let flushes = self.flushes_until(syncs.ended.load(Ordering::Acquire));
        Wait { us, flushes, until_woken: None }
    }

    fn flushes_until(&self, ended: u64) -> f64 {
        ended.saturating_sub(self.flushes) as f64
    }
}

/// Concurrent decisions that share flushes, compared with the disk alone; returns how many there
/// are in a second.
fn grouped(
    folder: &Path,
    (name, callers): (&str, Callers),
    each: usize,
    results: &mut Results,
) -> f64 {
    let device = device_sync(folder, 500);
    let [p50, p99] = [0.5, 0.99].map(|share| percentile(&device, share));
    println!("the disk alone, 4 KiB: p50 {p50:.0} us, p99 {p99:.0} us");
    let run =
        |round: usize| Grouped::measure(&folder.join(format!("{name}-{round}")), callers, each);
    let runs: Vec<Grouped> = (0..5).map(run).collect();
    let of = |value: fn(&Grouped) -> f64| median(runs.iter().map(value));
    let (rate, cpu_us) = (of(|run| run.rate), of(|run| run.cpu_us));
    println!("{CALLERS} callers as {name}: {rate:.0}/s, {cpu_us:.1} us of processor each");
    let [p50, p99] = [of(|run| run.p50), of(|run| run.p99)];
    println!("  a decision: p50 {p50:.0} us, p99 {p99:.0} us");
    let [p50, p99] = [of(|run| run.sync_p50), of(|run| run.sync_p99)];
    println!("  an fsync meanwhile: p50 {p50:.0} us, p99 {p99:.0} us");
    let [number, us] = [of(|run| run.space_syncs), of(|run| run.space_us)];
    println!("  {number:.0} times space was allocated: p50 {us:.0} us");
    let shares = [1, 2, 3, 4].map(|most| of_share(&runs, most));
    let [one, two, three, four] = shares.map(|share| share * 100.0);
    println!("  of all decisions, so many have waited for at most");
    println!("    1 whole fsync {one:.2} %, 2 {two:.2} %, 3 {three:.2} %, 4 {four:.2} %");
    let woken = of(|run| run.woken_p99);
    if !woken.is_nan() {
        println!("  p99 in whole fsyncs until the caller was woken: {woken:.0}");
    }
    let whole = of(|run| run.flushes_p99);
    results.report("  p99 in whole fsyncs", whole, ("at most 2", whole <= 2.0));
    let per_sync = of(|run| run.per_sync);
    results.report("  decisions per fsync", per_sync, ("at least 20", per_sync >= 20.0));
    let ratio = of(|run| run.p99 / run.sync_p50);
    results.report("  p99 in fsyncs (p50)", ratio, ("at most 3", ratio <= 3.0));
    println!("  p99 in fsyncs (p99): {:.2}", of(|run| run.p99 / run.sync_p99));
    rate
}

/// The share of decisions that have waited for at most so many whole fsyncs.
fn of_share(runs: &[Grouped], most: usize) -> f64 {
    median(runs.iter().map(|run| run.within[most - 1]))
}

/// The decisions in a second, compared with those of SQLite.
fn compared(folder: &Path, rates: &[f64], results: &mut Results) {
    let run = |round: usize| sqlite(&folder.join(format!("sqlite-{round}.db")), 200);
    let sqlite = median((0..3).map(run));
    println!("SQLite, WAL, synchronous=FULL: {sqlite:.0}/s");
    for rate in rates {
        let ratio = rate / sqlite;
        results.report("  times SQLite", ratio, ("at least 5", ratio >= 5.0));
    }
}

/// One run of concurrent decisions. Times are microseconds.
struct Grouped {
    rate: f64,
    per_sync: f64,
    cpu_us: f64,
    p50: f64,
    p99: f64,
    sync_p50: f64,
    sync_p99: f64,
    flushes_p99: f64,
    woken_p99: f64,
    /// The shares of decisions that have waited for at most one, two, three and four whole fsyncs.
    within: [f64; 4],
    space_syncs: f64,
    space_us: f64,
}

impl Grouped {
    fn measure(folder: &Path, run: Callers, each: usize) -> Self {
        let disk = TimedDisk::new(folder);
        let syncs = Arc::clone(&disk.syncs);
        let store = FileOptions::default().open_on(Arc::new(disk)).expect("a new store");
        let clock = SystemClock::no_earlier_than(store.last_time());
        let engine = StoreEngine::builder(Policy::from_toml(POLICY).expect("valid"))
            .store(store)
            .clock(clock)
            .build()
            .expect("there is memory");
        let before = engine.file_store().unwrap().counts();
        syncs.clear();
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let waits = run(&engine, &syncs, each);
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let after = engine.file_store().unwrap().counts();
        let records = (after.records - before.records) as f64;
        let [batches, space] = [&syncs.batches, &syncs.space].map(|of| lock(of).clone());
        let us: Vec<f64> = waits.iter().map(|wait| wait.us).collect();
        let flushes: Vec<f64> = waits.iter().map(|wait| wait.flushes).collect();
        let woken: Vec<f64> = waits.iter().filter_map(|wait| wait.until_woken).collect();
        let within = |most: f64| {
            let count = flushes.iter().filter(|flushes| **flushes <= most).count();
            count as f64 / flushes.len() as f64
        };
        Self {
            rate: waits.len() as f64 / seconds,
            per_sync: records / (after.syncs - before.syncs) as f64,
            cpu_us: cpu * 1e6 / waits.len() as f64,
            p50: percentile(&us, 0.5),
            p99: percentile(&us, 0.99),
            sync_p50: percentile(&batches, 0.5),
            sync_p99: percentile(&batches, 0.99),
            flushes_p99: percentile(&flushes, 0.99),
            woken_p99: if woken.is_empty() { f64::NAN } else { percentile(&woken, 0.99) },
            within: [1.0, 2.0, 3.0, 4.0].map(within),
            space_syncs: space.len() as f64,
            space_us: if space.is_empty() { 0.0 } else { percentile(&space, 0.5) },
        }
    }
}

/// How long each fsync took, in microseconds.
#[derive(Debug, Default)]
struct Syncs {
    /// Those of batches.
    batches: Mutex<Vec<f64>>,
    /// Those of space that is allocated ahead.
    space: Mutex<Vec<f64>>,
    /// How many of those of batches have begun, and ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Syncs {
    fn clear(&self) {
        lock(&self.batches).clear();
        lock(&self.space).clear();
    }
}

/// A folder that measures how long each fsync takes.
#[derive(Debug)]
struct TimedDisk {
    folder: Folder,
    syncs: Arc<Syncs>,
}

#[derive(Debug)]
struct TimedFile {
    file: Box<dyn DiskFile>,
    syncs: Arc<Syncs>,
    /// Whether zeros were written last: space for what follows.
    is_space: bool,
}

impl TimedDisk {
    fn new(folder: &Path) -> Self {
        Self { folder: Folder::own(folder).expect("a folder"), syncs: Arc::default() }
    }
}

impl Disk for TimedDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        self.folder.names()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.folder.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let (file, syncs) = (self.folder.create(name)?, Arc::clone(&self.syncs));
        Ok(Box::new(TimedFile { file, syncs, is_space: false }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        self.folder.cut(name, len)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.folder.sync_names()
    }

    fn verify(&self, log: Option<&NamedFile>) -> io::Result<()> {
        self.folder.verify(log)
    }
}

impl DiskFile for TimedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.is_space = bytes.starts_with(&[0; 8]);
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        if !self.is_space {
            self.syncs.begun.fetch_add(1, Ordering::Release);
        }
        let began = Instant::now();
        let synced = self.file.sync();
        let us = began.elapsed().as_secs_f64() * 1e6;
        if self.is_space {
            lock(&self.syncs.space).push(us);
        } else {
            lock(&self.syncs.batches).push(us);
            self.syncs.ended.fetch_add(1, Ordering::Release);
        }
        synced
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.file.identity()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds of processor time that this process has used: the 14th and 15th fields of `stat`.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn by_threads(engine: &StoreEngine, syncs: &Arc<Syncs>, each: usize) -> Vec<Wait> {
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    let user = format!("user-{caller}");
                    let attributes = [("user", user.as_str())];
                    let request = Request::new("default", &attributes);
                    let mut waits = Vec::with_capacity(each);
                    for _ in 0..each {
                        let begun = Begun::now(syncs);
                        let report = engine.check(&request).block().expect("a decision");
                        waits.push(begun.waited(syncs));
                        assert!(report.is_allowed());
                    }
                    waits
                })
            })
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
    })
}

/// A caller as a task: whose decisions it makes, and how many fsyncs had ended when it was woken.
struct TaskCaller<'a> {
    user: String,
    engine: &'a StoreEngine,
    syncs: &'a Arc<Syncs>,
    woken_at: Arc<AtomicU64>,
}

/// Wakes a thread, and marks which of its tasks may continue.
struct TaskWaker {
    thread: Thread,
    is_ready: AtomicBool,
    syncs: Arc<Syncs>,
    woken_at: Arc<AtomicU64>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken_at.store(self.syncs.ended.load(Ordering::Acquire), Ordering::Relaxed);
        self.is_ready.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn by_tasks(engine: &StoreEngine, syncs: &Arc<Syncs>, each: usize) -> Vec<Wait> {
    thread::scope(|scope| {
        let half = |first: usize| {
            scope.spawn(move || {
                let caller = |user: usize| {
                    let (user, woken_at) = (format!("user-{user}"), Arc::default());
                    TaskCaller { user, engine, syncs, woken_at }
                };
                let callers: Vec<_> = (first..first + CALLERS / 2).map(caller).collect();
                run_tasks(&callers, each)
            })
        };
        let halves = [half(0), half(CALLERS / 2)];
        halves.into_iter().flat_map(|half| half.join().expect("no panic")).collect()
    })
}

type Task<'a> = Pin<Box<dyn Future<Output = Vec<Wait>> + 'a>>;

fn task<'a>(caller: &'a TaskCaller<'_>, each: usize) -> Task<'a> {
    Box::pin(async move {
        let attributes = [("user", caller.user.as_str())];
        let mut waits = Vec::with_capacity(each);
        for _ in 0..each {
            let begun = Begun::now(caller.syncs);
            let check = caller.engine.check(&Request::new("default", &attributes));
            let report = check.into_future().await;
            let until_woken = begun.flushes_until(caller.woken_at.load(Ordering::Relaxed));
            waits.push(Wait { until_woken: Some(until_woken), ..begun.waited(caller.syncs) });
            assert!(report.expect("a decision").is_allowed());
        }
        waits
    })
}

fn begin_task<'a>(caller: &'a TaskCaller<'_>, each: usize) -> (Task<'a>, Arc<TaskWaker>) {
    let waker = TaskWaker {
        thread: thread::current(),
        is_ready: true.into(),
        syncs: Arc::clone(caller.syncs),
        woken_at: Arc::clone(&caller.woken_at),
    };
    (task(caller, each), Arc::new(waker))
}

fn run_tasks(callers: &[TaskCaller<'_>], each: usize) -> Vec<Wait> {
    let mut tasks: Vec<_> = callers.iter().map(|caller| begin_task(caller, each)).collect();
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

/// The duration and the memory of a start after the process was killed, each in a new process.
fn start(folder: &Path, keys: usize, results: &mut Results) {
    let folder = folder.join("start");
    let run = |command: &str| {
        let mut program = Command::new(std::env::current_exe().expect("this program"));
        program.arg(command).arg(&folder).arg(keys.to_string()).output().expect("it runs")
    };
    assert!(!run("--fill").status.success(), "it kills itself");
    let mut starts = Vec::new();
    for _ in 0..5 {
        let output = run("--open");
        assert!(output.status.success(), "it opens the store");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        starts.push(<[f64; 4]>::try_from(numbers).expect("four numbers"));
    }
    let [seconds, cpu, most, rest] =
        [0, 1, 2, 3].map(|at| median(starts.iter().map(|start| start[at])));
    println!("start with {keys} live keys after a crash: {cpu:.2} s of processor");
    println!("  {most:.0} MB at most, {rest:.0} MB after it");
    results.report("  seconds", seconds, ("at most 1", seconds <= 1.0));
    let ratio = most / rest;
    results.report("  times the memory after it", ratio, ("at most 1.3", ratio <= 1.3));
}

/// Opens a store, and prints the seconds, those of the processor, the most megabytes and those that
/// it has afterwards.
fn open_once(folder: &Path, keys: usize) -> ExitCode {
    let began = Instant::now();
    let engine = open_large(folder, keys);
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds());
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let megabytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field)).expect("it is there");
        let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok());
        kib.expect("a number") * 1024.0 / 1e6
    };
    println!("{seconds} {cpu} {} {}", megabytes("VmHWM"), megabytes("VmRSS"));
    assert_eq!(engine.len(), keys);
    ExitCode::SUCCESS
}

fn open_large(folder: &Path, keys: usize) -> StoreEngine {
    let store = FileOptions::default().max_keys(2 * keys).open(folder).expect("a store");
    let clock = SystemClock::no_earlier_than(store.last_time());
    StoreEngine::builder(Policy::from_toml(POLICY).expect("valid"))
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
    let memory = StoreEngine::builder(policy())
        .store(MemoryStore::new(1 << 20, WhenFull::Share).expect("memory"))
        .clock(SystemClock::new())
        .build()
        .expect("there is memory");
    let on_disk =
        StoreEngine::builder(policy()).folder(folder.join("passing")).build().expect("a new store");
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
