//! Folders that are renamed, replaced or emptied while a process uses them: nothing is acknowledged
//! that is not where it belongs, and nothing else is overwritten.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::durable::{self, FileOptions, LogError, OpenError, RepairAction};
use tidegate::policy::Policy;
use tidegate::{Report, Request, StoreEngine, Timestamp, clock::ManualClock};

use crate::file_store::TempFolder;

type Durable = StoreEngine;

fn open(folder: &Path) -> Result<Durable, OpenError> {
    let policy = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\n\
                  quota = { max = 1000, per = \"day\" }";
    let store = FileOptions::default().fill_ahead(4_096).open(folder)?;
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    Ok(StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .store(store)
        .clock(clock)
        .build()
        .unwrap())
}

fn check(engine: &Durable) -> Report {
    engine.check(&Request::new("default", &[("user", "ada")])).block().unwrap()
}

fn used(engine: &Durable) -> u64 {
    let report = engine.peek(&Request::new("default", &[("user", "ada")]).cost(0)).block().unwrap();
    1_000 - report.remaining().unwrap()
}

/// A store in `state` below a folder, with three acknowledged checks.
fn begun(name: &str) -> (TempFolder, PathBuf, Durable) {
    let folder = TempFolder::new(name);
    let state = folder.path().join("state");
    let engine = open(&state).unwrap();
    (0..3).for_each(|_| assert!(!check(&engine).is_outage()));
    assert!(engine.file_store().unwrap().failure().is_none());
    (folder, state, engine)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut contents: Vec<_> = names
        .map(|name| {
            let bytes = fs::read(folder.join(&name)).unwrap();
            (name.into_string().unwrap(), bytes)
        })
        .collect();
    contents.sort();
    contents
}

/// Fails unless nothing is acknowledged, and the reason names what has changed.
fn assert_refused(engine: &Durable, reason: &str) {
    // Seen before anything is written, so that a daemon without requests is not ready either.
    let failure = engine.file_store().unwrap().failure().expect("it is noticed").to_string();
    assert!(failure.contains(reason), "{failure}");
    for _ in 0..3 {
        assert!(check(engine).is_outage());
    }
    assert!(engine.file_store().unwrap().failure().unwrap().to_string().contains(reason));
    assert!(engine.note("default", "a note").block().is_err());
    assert!(engine.file_store().unwrap().take_snapshot().is_err());
    assert_eq!(used(engine), 3, "what was not acknowledged is not charged");
}

#[test]
fn a_folder_that_takes_the_place_of_the_open_one_is_not_touched() {
    let (folder, state, engine) = begun("replaced");
    let (backup, away) = (folder.path().join("backup"), folder.path().join("away"));
    copy(&state, &backup);
    assert!(!check(&engine).is_outage());
    let one_more = engine.refund(&Request::new("default", &[("user", "ada")])).block();
    assert_eq!(one_more, Ok(1));
    fs::rename(&state, &away).unwrap();
    fs::rename(&backup, &state).unwrap();
    let before = contents(&state);
    assert_refused(&engine, "is another folder now");
    assert_eq!(contents(&state), before);
    drop(engine);
    assert_eq!(contents(&state), before);
    assert_eq!(used(&open(&state).unwrap()), 3);
    assert_eq!(used(&open(&away).unwrap()), 3);
}

#[test]
fn a_folder_that_comes_back_ends_the_outage() {
    let (folder, state, engine) = begun("back");
    let away = folder.path().join("away");
    fs::rename(&state, &away).unwrap();
    assert_refused(&engine, "was removed");
    fs::rename(&away, &state).unwrap();
    engine.file_store().unwrap().wait_until_it_works();
    assert!(!check(&engine).is_outage());
    assert_eq!(used(&engine), 4);
    drop(engine);
    assert_eq!(used(&open(&state).unwrap()), 4);
    let report = durable::check(&state).unwrap();
    assert!(report.start.is_none() && report.ledger.is_none(), "{report:?}");
}

#[test]
fn a_removed_folder_is_an_outage() {
    let (_folder, state, engine) = begun("removed");
    fs::remove_dir_all(&state).unwrap();
    assert_refused(&engine, "was removed");
}

#[test]
fn a_removed_log_is_an_outage() {
    let (_folder, state, engine) = begun("no-log");
    fs::remove_file(state.join("0000000001.log")).unwrap();
    assert_refused(&engine, "0000000001.log was removed");
}

#[test]
fn a_replaced_log_is_an_outage() {
    let (_folder, state, engine) = begun("other-log");
    let (log, other) = (state.join("0000000001.log"), state.join("copy"));
    fs::copy(&log, &other).unwrap();
    fs::rename(&other, &log).unwrap();
    let before = fs::read(&log).unwrap();
    assert_refused(&engine, "0000000001.log was replaced");
    assert_eq!(fs::read(&log).unwrap(), before);
}

#[test]
fn a_log_that_is_emptied_while_in_use_is_an_outage() {
    let (_folder, state, engine) = begun("emptied");
    fs::File::create(state.join("0000000001.log")).unwrap();
    assert!(check(&engine).is_outage());
    let failure = engine.file_store().unwrap().failure().unwrap().to_string();
    assert!(failure.contains("0000000001.log was cut short"), "{failure}");
    drop(engine);
    assert!(matches!(open(&state), Err(OpenError::Log(LogError::Damaged { .. }))));
}

#[test]
fn a_removed_lock_lets_no_other_process_in() {
    for is_emptied in [false, true] {
        let (_folder, state, engine) = begun(if is_emptied { "lock-new" } else { "lock" });
        fs::remove_file(state.join("lock")).unwrap();
        if is_emptied {
            fs::write(state.join("lock"), "1\n").unwrap();
        }
        let error = open(&state).unwrap_err();
        assert!(matches!(error, OpenError::Log(LogError::InUse { .. })), "{error}");
        assert!(matches!(durable::repair(&state), Err(OpenError::Log(LogError::InUse { .. }))));
        assert_refused(&engine, if is_emptied { "lock was replaced" } else { "lock was removed" });
        drop(engine);
        assert_eq!(used(&open(&state).unwrap()), 3);
    }
}

#[test]
fn outages_are_counted_however_short_they_are() {
    let (folder, state, engine) = begun("short");
    assert_eq!(engine.file_store().unwrap().counts().outages, 0);
    let away = folder.path().join("away");
    fs::rename(&state, &away).unwrap();
    assert!(check(&engine).is_outage());
    fs::rename(&away, &state).unwrap();
    engine.file_store().unwrap().wait_until_it_works();
    assert!(engine.file_store().unwrap().failure().is_none());
    assert_eq!(engine.file_store().unwrap().counts().outages, 1);
    let last = engine.file_store().unwrap().last_failure().unwrap().to_string();
    assert!(last.contains("was removed"), "{last}");
}

#[test]
fn a_link_that_leads_elsewhere_is_another_folder() {
    let folder = TempFolder::new("link");
    fs::create_dir_all(folder.path()).unwrap();
    let link = folder.path().join("link");
    fs::create_dir(folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("real"), &link).unwrap();
    let engine = open(&link).unwrap();
    assert!(!check(&engine).is_outage());
    fs::remove_file(&link).unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("other"), &link).unwrap();
    assert!(check(&engine).is_outage());
}

/// A store with two older segments and a snapshot.
fn begun_with_older_segments(name: &str) -> (TempFolder, PathBuf, Durable) {
    let (folder, state, engine) = begun(name);
    for _ in 0..2 {
        engine.file_store().unwrap().take_snapshot().unwrap();
    }
    assert_eq!(contents(&state).len(), 6, "three segments, a snapshot, the marker and the lock");
    (folder, state, engine)
}

#[test]
fn files_of_the_ledger_that_are_removed_while_in_use_are_an_outage() {
    for file in ["0000000001.log", "0000000002.log", "0000000003.snapshot", "begun"] {
        let (folder, state, engine) = begun_with_older_segments(&format!("removed-{file}"));
        let away = folder.path().join("away");
        fs::rename(state.join(file), &away).unwrap();
        assert_refused(&engine, &format!("{file} was removed"));
        fs::rename(&away, state.join(file)).unwrap();
        engine.file_store().unwrap().wait_until_it_works();
        assert!(!check(&engine).is_outage());
        assert!(engine.file_store().unwrap().failure().is_none());
        drop(engine);
        assert_eq!(used(&open(&state).unwrap()), 4);
        let report = durable::check(&state).unwrap();
        assert!(report.start.is_none() && report.ledger.is_none(), "{report:?}");
    }
}

#[test]
fn other_files_may_come_and_go() {
    let (_folder, state, engine) = begun_with_older_segments("others");
    for file in ["0000000001.log.damaged-1", "segment.tmp", "notes.txt"] {
        fs::write(state.join(file), "").unwrap();
        assert!(!check(&engine).is_outage());
        fs::remove_file(state.join(file)).unwrap();
        assert!(!check(&engine).is_outage(), "{file}");
    }
    // The store removes files, too: the snapshot before, and segments that it rewrites.
    assert_eq!(engine.erase("user", "ada").unwrap(), 1);
    assert!(!check(&engine).is_outage());
    assert!(engine.file_store().unwrap().failure().is_none());
}

#[test]
fn a_folder_whose_files_were_removed_does_not_count_as_new() {
    for takes_snapshot in [false, true] {
        let (_folder, state, engine) = begun(if takes_snapshot { "gone-all" } else { "gone" });
        if takes_snapshot {
            engine.file_store().unwrap().take_snapshot().unwrap();
        }
        drop(engine);
        for (name, _) in contents(&state) {
            if name.ends_with(".log") || name.ends_with(".snapshot") {
                fs::remove_file(state.join(name)).unwrap();
            }
        }
        let before = contents(&state);
        for _ in 0..2 {
            let error = open(&state).unwrap_err();
            assert!(matches!(error, OpenError::Log(LogError::Missing)), "{error}");
            assert!(error.to_string().contains("repair"), "{error}");
        }
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&contents(&state)), names(&before), "nothing was begun");
        let report = durable::check(&state).unwrap();
        assert!(matches!(report.start, Some(OpenError::Log(LogError::Missing))), "{report:?}");
        assert!(matches!(report.ledger, Some(OpenError::Log(LogError::Missing))), "{report:?}");
        assert_eq!(durable::repair(&state).unwrap(), [RepairAction::StartsAnew]);
        let engine = open(&state).unwrap();
        assert_eq!(used(&engine), 0);
        assert!(!check(&engine).is_outage());
        drop(engine);
        assert_eq!(used(&open(&state).unwrap()), 1);
    }
}

#[test]
fn a_ledger_without_a_marker_gets_one() {
    let (_folder, state, engine) = begun("unmarked");
    drop(engine);
    fs::remove_file(state.join("begun")).unwrap();
    drop(open(&state).unwrap());
    for (name, _) in contents(&state).iter().filter(|(name, _)| name.ends_with(".log")) {
        fs::remove_file(state.join(name)).unwrap();
    }
    let error = open(&state).unwrap_err();
    assert!(matches!(error, OpenError::Log(LogError::Missing)), "{error}");
}
