//! Real processes on a real folder, killed in the middle of their work.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::{env, fs, process, thread};

use tidegate::durable::{FileOptions, LogError, OpenError};
use tidegate::policy::Policy;
use tidegate::testing::Dice;
use tidegate::{Request, StoreEngine, Timestamp, clock::ManualClock};

/// Where this program is to work, if it was started to be killed.
const FOLDER: &str = "TIDEGATE_KILLED_FOLDER";
const THREADS: u64 = 4;

fn open(folder: &Path) -> Result<StoreEngine, OpenError> {
    let policy = "[[rule]]\nname = \"calls\"\nkey = [\"thread\"]\n\
                  quota = { max = 1000000, per = \"day\" }\ndurability = \"flush\"\n\
                  [[rule]]\nname = \"all\"\nquota = { max = 1000000, per = \"day\" }";
    let store = FileOptions::default().snapshot_every(20_000).fill_ahead(1_000).open(folder)?;
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    Ok(StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .store(store)
        .clock(clock)
        .build()
        .unwrap())
}

fn used(engine: &StoreEngine, thread: &str) -> [u64; 2] {
    let attributes = [("thread", thread)];
    let report = engine.peek(&Request::new("default", &attributes).cost(0)).block().unwrap();
    let left: Vec<u64> = report.rules().map(|it| it.decision.remaining()).collect();
    [1_000_000 - left[0], 1_000_000 - left[1]]
}

/// The process that is killed: works, and prints what was acknowledged. Does nothing if it was not
/// started for that.
#[test]
fn works_until_it_is_killed() {
    let Ok(folder) = env::var(FOLDER) else { return };
    let engine = open(Path::new(&folder)).unwrap();
    let stdout = Mutex::new(());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (engine, stdout) = (&engine, &stdout);
            scope.spawn(move || {
                let name = number.to_string();
                loop {
                    let attributes = [("thread", name.as_str())];
                    let report =
                        engine.check(&Request::new("default", &attributes)).block().unwrap();
                    assert!(report.is_allowed() && !report.is_outage());
                    let _one_at_a_time = stdout.lock().unwrap();
                    // Straight to the pipe: the test harness would keep what is printed.
                    use std::io::Write as _;
                    let line = format!("answered {name}\n");
                    let whole = std::io::stderr().write_all(line.as_bytes());
                    if whole.is_err() {
                        process::exit(0);
                    }
                }
            });
        }
    });
}

fn start(folder: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "file_kill::works_until_it_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn acknowledged_operations_survive_kill_9() {
    let cycles = env::var("TIDEGATE_KILL_CYCLES").map_or(20, |it| it.parse().unwrap());
    let folder = Folder(env::temp_dir().join(format!("tidegate-kill-{}", process::id())));
    let mut dice = Dice::new(1);
    let mut answered = [0_u64; THREADS as usize];
    for cycle in 0..cycles {
        let mut child = start(&folder.0);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut wanted = 1 + dice.below(300);
        let mut count = |line: String| {
            let Some(name) = line.strip_prefix("answered ") else { panic!("{line}") };
            answered[name.parse::<usize>().unwrap()] += 1;
        };
        while wanted > 0 {
            count(lines.next().expect("it does not end by itself").unwrap());
            wanted -= 1;
        }
        if cycle == 0 {
            let error = open(&folder.0).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, OpenError::Log(LogError::InUse { .. })), "{text}");
            assert!(text.contains(&child.id().to_string()), "{text}");
        }
        child.kill().unwrap();
        // What was printed before the end counts, a line that was cut off does not.
        lines.map_while(Result::ok).filter(|line| line.len() == 10).for_each(count);
        child.wait().unwrap();
        let engine = open(&folder.0).unwrap();
        let mut all = 0;
        for (number, answered) in (0..).zip(&mut answered) {
            let [own, of_all] = used(&engine, &u64::to_string(&number));
            assert!((*answered..=*answered + 1).contains(&own), "{cycle}: {answered}, {own}");
            *answered = own;
            all += own;
            if number == THREADS - 1 {
                assert_eq!(all, of_all, "{cycle}: all rules or none");
            }
        }
    }
}
