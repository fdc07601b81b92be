//! Logs that were cut short, lost a file or rotted: a start refuses, and a repair loses nothing that
//! is whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::durable::{self, Disk, FileOptions, Filter, Ledger, LogError, OpenError, TotalsBy};
use tidegate::policy::Policy;
use tidegate::testing::CrashDisk;
use tidegate::{Request, StoreEngine, Timestamp, clock::ManualClock};

type Durable = StoreEngine;
type Files = BTreeMap<String, Vec<u8>>;

fn open(disk: &CrashDisk, size: u64) -> Result<Durable, OpenError> {
    let policy = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\n\
                  quota = { max = 1000, per = \"day\" }";
    let options = FileOptions::default().max_keys(1_000).snapshot_every(size).fill_ahead(100);
    let store = options.open_on(Arc::new(disk.clone()))?;
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    Ok(StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .store(store)
        .clock(clock)
        .build()
        .unwrap())
}

fn check(engine: &Durable) {
    let report = engine.check(&Request::new("default", &[("user", "ada")])).block().unwrap();
    assert!(report.is_allowed() && !report.is_outage());
}

fn used(engine: &Durable) -> u64 {
    let report = engine.peek(&Request::new("default", &[("user", "ada")]).cost(0)).block().unwrap();
    1_000 - report.remaining().unwrap()
}

/// The files of a store with this many acknowledged checks, as a stop or a kill leaves them.
fn files(checks: u64, size: u64, is_killed: bool) -> Files {
    let disk = CrashDisk::new();
    let engine = open(&disk, size).unwrap();
    (0..checks).for_each(|_| check(&engine));
    if is_killed {
        return disk.kill().contents();
    }
    if size < 1 << 20 {
        // A log of this size is full, so a snapshot is on its way. What is lost without one depends
        // on when it comes.
        let has_snapshot = || disk.contents().keys().any(|name| name.ends_with(".snapshot"));
        until("there is a snapshot", has_snapshot);
    }
    drop(engine);
    disk.contents()
}

/// Waits for another thread.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let is_reached = (0..10_000_000).any(|_| {
        std::thread::yield_now();
        is_so()
    });
    assert!(is_reached, "never: {what}");
}

fn logs(files: &Files) -> Vec<String> {
    files.keys().filter(|name| name.ends_with(".log")).cloned().collect()
}

/// Repairs, and fails unless start, stop, check and start again accept the result. Returns what is
/// known to have been used.
fn used_after_repair(damaged: Files, size: u64, what: &str) -> u64 {
    let disk = CrashDisk::with_contents(damaged);
    let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let done = durable::repair_on(&as_disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!done.is_empty(), "{what}");
    let is_fine = |when: &str| {
        let report = durable::check_on(&as_disk);
        let errors = (report.start, report.ledger);
        assert!(matches!(errors, (None, None)), "{what}, {when}: {errors:?}, {done:?}");
    };
    is_fine("after the repair");
    let engine = open(&disk, size).unwrap_or_else(|error| panic!("{what}: {error}, {done:?}"));
    let left = used(&engine);
    check(&engine);
    drop(engine);
    is_fine("after a stop");
    let engine = open(&disk, size).unwrap_or_else(|error| panic!("{what}: {error}, {done:?}"));
    assert_eq!(used(&engine), left + 1, "{what}");
    left
}

#[test]
fn a_log_that_was_cut_short_is_refused_wherever_it_was_cut() {
    for (size, is_killed) in [(1 << 30, false), (1 << 30, true), (700, false), (700, true)] {
        let whole = files(25, size, is_killed);
        let newest = logs(&whole).pop().unwrap();
        for len in 0..whole[&newest].len() {
            let mut cut = whole.clone();
            cut.get_mut(&newest).unwrap().truncate(len);
            let what = format!("{newest} cut at {len} of {}", whole[&newest].len());
            match open(&CrashDisk::with_contents(cut.clone()), size) {
                Ok(engine) => assert_eq!(used(&engine), 25, "{what}"),
                Err(OpenError::Log(LogError::Damaged { file, at, .. })) => {
                    assert_eq!(file, newest, "{what}");
                    assert!(at < len as u64 + 8, "{what}: {at}");
                    let report = durable::check_on(&(Arc::new(CrashDisk::with_contents(cut)) as _));
                    assert!(report.start.is_some(), "{what}");
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

#[test]
fn a_missing_newest_segment_is_refused() {
    for (size, is_killed) in [(700, false), (700, true), (2_000, false)] {
        let mut lost = files(25, size, is_killed);
        let newest = logs(&lost).pop().unwrap();
        assert!(logs(&lost).len() > 1);
        lost.remove(&newest);
        let error = open(&CrashDisk::with_contents(lost.clone()), size).unwrap_err();
        assert!(matches!(error, OpenError::Log(LogError::Damaged { .. })), "{error}");
        let left = used_after_repair(lost, size, &format!("{newest} is gone"));
        assert!(left > 0, "{left}");
    }
}

#[test]
fn a_repair_of_a_cut_log_loses_only_what_was_cut_off() {
    let whole = files(25, 1 << 30, false);
    let name = logs(&whole).pop().unwrap();
    let mut before = 0;
    for len in (0..whole[&name].len()).step_by(7) {
        let mut cut = whole.clone();
        cut.get_mut(&name).unwrap().truncate(len);
        if open(&CrashDisk::with_contents(cut.clone()), 1 << 30).is_ok() {
            continue;
        }
        let left = used_after_repair(cut, 1 << 30, &format!("cut at {len}"));
        assert!(left >= before, "{left} at {len}, {before} before");
        before = left;
    }
    assert!(before >= 24, "{before}");
}

#[test]
fn a_repair_of_any_flipped_bit_loses_one_batch_at_most() {
    for size in [700, 1 << 30] {
        let whole = files(25, size, false);
        for name in logs(&whole) {
            for at in 0..whole[&name].len() {
                let mut damaged = whole.clone();
                damaged.get_mut(&name).unwrap()[at] ^= 1 << (at % 8);
                let report =
                    durable::check_on(&(Arc::new(CrashDisk::with_contents(damaged.clone())) as _));
                let is_refused = |error: &Option<OpenError>| {
                    matches!(error, Some(OpenError::Log(LogError::Damaged { .. })))
                };
                if !is_refused(&report.start) && !is_refused(&report.ledger) {
                    continue;
                }
                let what = format!("{name} at {at}, size {size}");
                let has_snapshot = whole.keys().any(|name| name.ends_with(".snapshot"));
                let left = used_after_repair(damaged, size, &what);
                // Without a snapshot there is one copy of the seed of the hash, and of the key.
                let key = whole[&name].windows(3).position(|it| it == b"ada").unwrap_or(0);
                let is_essential = !has_snapshot && (64..key + 200).contains(&at);
                assert!(left >= 24 || is_essential, "{what}: {left}");
            }
        }
    }
}

#[test]
fn a_missing_segment_costs_no_other_one() {
    let whole = files(25, 700, false);
    // Without a snapshot the only copy of the hash's seed is in the first one.
    let has_snapshot = whole.keys().any(|name| name.ends_with(".snapshot"));
    for name in logs(&whole).into_iter().skip(usize::from(!has_snapshot)) {
        let mut lost = whole.clone();
        lost.remove(&name);
        let left = used_after_repair(lost, 700, &format!("{name} is gone"));
        assert!(left > 0, "{name}: {left}");
    }
}

#[test]
fn totals_of_a_ledger_without_its_beginning_are_refused() {
    let mut lost = files(25, 700, false);
    lost.remove("0000000001.log");
    let disk: Arc<dyn Disk> = Arc::new(CrashDisk::with_contents(lost));
    let ledger = Ledger::on(Arc::clone(&disk));
    let error = ledger.totals(&Filter::new()).unwrap_err();
    assert!(error.to_string().contains("0000000001.log"), "{error}");
    assert!(durable::check_on(&disk).ledger.is_some());
    let whole = ledger.entries(&Filter::new()).unwrap().filter(Result::is_ok).count();
    assert!(whole > 5, "entries that can be read are listed: {whole}");
}

#[test]
fn entries_after_damage_in_an_old_segment_are_listed() {
    let mut damaged = files(25, 700, false);
    let second = logs(&damaged)[1].clone();
    damaged.get_mut(&second).unwrap()[100] ^= 1;
    let disk: Arc<dyn Disk> = Arc::new(CrashDisk::with_contents(damaged));
    assert_listed(&disk, 15);
}

/// Fails unless one error is reported, and at least this many entries are listed, up to the last.
fn assert_listed(disk: &Arc<dyn Disk>, least: usize) {
    let entries = Ledger::on(Arc::clone(disk)).entries(&Filter::new()).unwrap();
    let (read, broken): (Vec<_>, Vec<_>) = entries.partition(Result::is_ok);
    assert_eq!(broken.len(), 1, "{broken:?}");
    let last = read.last().unwrap().as_ref().unwrap();
    assert!(read.len() >= least && last.bookings.len() == 1, "{}", read.len());
    let totals = Ledger::on(Arc::clone(disk)).readable_totals(&Filter::new(), TotalsBy::Rule);
    let totals = totals.unwrap();
    assert_eq!(totals.unreadable.len(), 1, "{totals:?}");
    assert_eq!(totals.totals[0].1.granted, read.len() as u64, "{totals:?}");
}

#[test]
fn entries_beside_a_broken_header_or_a_missing_segment_are_listed() {
    let whole = files(25, 700, false);
    let second = logs(&whole)[1].clone();
    let mut damaged = whole.clone();
    damaged.get_mut(&second).unwrap()[30] ^= 1;
    assert_listed(&(Arc::new(CrashDisk::with_contents(damaged)) as _), 10);
    let mut lost = whole;
    lost.remove(&second);
    assert_listed(&(Arc::new(CrashDisk::with_contents(lost)) as _), 10);
}
