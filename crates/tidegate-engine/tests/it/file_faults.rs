//! Disks that fail, fill up or rot: nothing acknowledged is lost, and nothing else is charged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate::durable::{FileOptions, LogError, OpenError};
use tidegate::policy::Policy;
use tidegate::testing::{CrashDisk, Fault};
use tidegate::{Report, Request, StoreEngine, Timestamp, clock::ManualClock};

type Durable = StoreEngine;

fn policy(on_error: &str) -> Policy {
    let text = format!(
        "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nquota = {{ max = 1000, per = \"day\" }}\n\
         on_error = \"{on_error}\"\n[[rule]]\nname = \"all\"\nwindow = {{ max = 1000, per = \"1h\" }}\n\
         durability = \"fsync\"\non_error = \"{on_error}\""
    );
    Policy::from_toml(&text).unwrap()
}

fn open(disk: &CrashDisk, on_error: &str) -> Result<Durable, OpenError> {
    open_sized(disk, on_error, 2_000)
}

/// With a snapshot after so many bytes.
fn open_sized(disk: &CrashDisk, on_error: &str, size: u64) -> Result<Durable, OpenError> {
    let options = FileOptions::default().max_keys(1_000).snapshot_every(size).fill_ahead(100);
    let store = options.open_on(Arc::new(disk.clone()))?;
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    Ok(StoreEngine::builder(policy(on_error)).store(store).clock(clock).build().unwrap())
}

fn check(engine: &Durable) -> Report {
    engine.check(&Request::new("default", &[("user", "ada")])).block().unwrap()
}

/// What was used, which both rules have to agree about.
fn used(engine: &Durable) -> u64 {
    let report = engine.peek(&Request::new("default", &[("user", "ada")]).cost(0)).block().unwrap();
    let left: Vec<u64> = report.rules().map(|it| it.decision.remaining()).collect();
    assert_eq!(left[0], left[1], "all or nothing");
    1_000 - left[0]
}

/// Checks so many times; reports how many were charged.
fn work(engine: &Durable, times: u64) -> u64 {
    (0..times).filter(|_| !check(engine).is_outage()).count() as u64
}

#[test]
fn one_failure_at_every_call_loses_nothing_and_charges_nothing() {
    let whole = CrashDisk::new();
    work(&open(&whole, "allow").unwrap(), 12);
    for fault in [Fault::Broken, Fault::Full] {
        for call in 1..=whole.calls() {
            let disk = CrashDisk::new();
            disk.fail_call(call, fault);
            let engine = match open(&disk, "allow") {
                Ok(engine) => engine,
                Err(OpenError::Log(LogError::Disk { .. })) => open(&disk, "allow").unwrap(),
                Err(error) => panic!("{error}"),
            };
            // A slow thread may see only that the write was repeated, and no outage.
            let mut charged = work(&engine, 12);
            engine.file_store().unwrap().wait_until_it_works();
            charged += work(&engine, 3);
            // How many calls it takes depends on what is written together.
            for _ in 0..100 {
                if disk.calls() < call {
                    charged += work(&engine, 1);
                    engine.file_store().unwrap().wait_until_it_works();
                }
            }
            assert!(disk.calls() >= call, "{fault:?} has come at call {call}");
            assert_eq!(used(&engine), charged, "{fault:?} at call {call}");
            assert_eq!(disk.distrusted_syncs(), 0, "{fault:?} at call {call}");
            for seed in 0..3 {
                let after = open(&disk.crash(seed), "allow").unwrap();
                assert_eq!(used(&after), charged, "{fault:?} at call {call}, crash {seed}");
            }
        }
    }
}

#[test]
fn a_full_disk_is_an_outage_that_charges_nothing_and_ends() {
    for on_error in ["allow", "deny"] {
        let disk = CrashDisk::new();
        let engine = open(&disk, on_error).unwrap();
        assert_eq!(work(&engine, 5), 5);
        disk.set_full(true);
        // There may be some room left in what was filled ahead.
        let charged = 5 + work(&engine, 40);
        assert!(charged < 30, "{charged}");
        let report = check(&engine);
        assert!(report.is_outage());
        assert_eq!(report.is_allowed(), on_error == "allow");
        assert!(engine.file_store().unwrap().failure().is_some());
        assert_eq!(used(&engine), charged, "error attempts are not charged");
        disk.set_full(false);
        engine.file_store().unwrap().wait_until_it_works();
        assert_eq!(work(&engine, 5), 5);
        assert_eq!(used(&engine), charged + 5);
        let after = open(&disk.crash(1), on_error).unwrap();
        assert_eq!(used(&after), charged + 5);
    }
}

/// A request that is repeated while its first result is pending, and one that was acknowledged long
/// ago; then the disk fails.
#[test]
fn a_repeat_in_an_outage_releases_nothing_twice() {
    let disk = CrashDisk::new();
    let engine = open(&disk, "deny").unwrap();
    assert_eq!(work(&engine, 10), 10);
    let attributes = [("user", "ada")];
    let old = Request::new("default", &attributes).cost(2).idempotency_key("old");
    assert!(!engine.check(&old).block().unwrap().is_outage());
    let new = Request::new("default", &attributes).cost(3).idempotency_key("new");
    disk.pause();
    let results = [engine.check(&new), engine.check(&new), engine.check(&old)];
    disk.set_full(true);
    disk.resume();
    let outages: Vec<bool> = results.map(|it| it.block().unwrap().is_outage()).to_vec();
    disk.set_full(false);
    engine.file_store().unwrap().wait_until_it_works();
    let kept = if outages[0] { 0 } else { 3 };
    assert_eq!(used(&engine), 12 + kept, "{outages:?}");
    assert!(!engine.check(&old).block().unwrap().is_outage());
    assert_eq!(used(&engine), 12 + kept, "the old one is still known");
}

/// A closed store with this many acknowledged checks.
fn closed(checks: u64, size: u64) -> BTreeMap<String, Vec<u8>> {
    let disk = CrashDisk::new();
    let engine = open_sized(&disk, "allow", size).unwrap();
    assert_eq!(work(&engine, checks), checks);
    drop(engine);
    disk.contents()
}

#[test]
fn a_flipped_bit_is_detected_or_was_never_durable() {
    for size in [500, 2_000, 1 << 30] {
        let whole = closed(25, size);
        let mut damaged = 0;
        for (name, bytes) in &whole {
            for at in 0..bytes.len() {
                let mut contents = whole.clone();
                contents.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
                damaged += u64::from(is_found(contents, &format!("{name} at {at}")));
            }
        }
        assert!(damaged > 500, "{damaged}");
    }
}

/// Whether damage is reported, or is where nothing was ever durable.
fn is_found(contents: BTreeMap<String, Vec<u8>>, what: &str) -> bool {
    match open(&CrashDisk::with_contents(contents.clone()), "allow") {
        Ok(engine) => {
            // The last batch is the only one that nothing later proves.
            assert!(used(&engine) >= 24, "{what}: {}", used(&engine));
            false
        }
        Err(OpenError::Log(LogError::Damaged { file, .. })) => {
            assert!(contents.contains_key(&file), "{what}: {file}");
            true
        }
        Err(OpenError::Log(LogError::Version { .. })) => true,
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn foreign_files_are_ignored_and_other_versions_rejected() {
    let mut contents = closed(5, 2_000);
    for foreign in ["notes.txt", "1.log", "0000000001.log.bak", "snapshot.tmp", "x.snapshot"] {
        contents.insert(foreign.into(), b"not ours".to_vec());
    }
    let disk = CrashDisk::with_contents(contents);
    assert_eq!(used(&open(&disk, "allow").unwrap()), 5);
    assert!(disk.contents().contains_key("notes.txt"));
    let mut future = closed(1, 2_000);
    future.get_mut("0000000001.log").unwrap()[16] = 99;
    let error = open(&CrashDisk::with_contents(future), "allow").unwrap_err();
    assert!(matches!(error, OpenError::Log(LogError::Version { version: 99, .. })), "{error}");
}

#[test]
fn a_store_that_has_seen_more_keys_than_it_has_room_for_can_be_opened() {
    let policy = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"1s\" }\n\
                  durability = \"fsync\"";
    let policy = Policy::from_toml(policy).unwrap();
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let disk = CrashDisk::new();
    let open = || {
        let options = FileOptions::default().max_keys(100).when_full(tidegate::WhenFull::Deny);
        let store = options.open_on(Arc::new(disk.clone())).unwrap();
        StoreEngine::builder(policy.clone()).store(store).clock(clock.clone()).build().unwrap()
    };
    let engine = open();
    let check = |engine: &Durable, user: u64| {
        let name = user.to_string();
        engine.check(&Request::new("default", &[("user", &name)]).cost(3)).block().unwrap()
    };
    // Chance may fill the lines of one key while others have room.
    let mut allowed: Vec<u64> = Vec::new();
    for user in 0..1_000 {
        clock.advance(std::time::Duration::from_millis(100));
        allowed.extend(check(&engine, user).is_allowed().then_some(user));
    }
    assert!(allowed.len() > 900, "{}", allowed.len());
    let last = *allowed.last().unwrap();
    drop(engine);
    let engine = open();
    assert!(!check(&engine, last).is_allowed(), "the last one has used it");
    assert!((0..10).any(|user| check(&engine, user).is_allowed()));
}

#[test]
fn exhausted_limit_stays_denied_in_an_outage() {
    let disk = CrashDisk::new();
    let engine = open(&disk, "allow").unwrap();
    let whole = Request::new("default", &[("user", "ada")]).cost(1_000);
    assert!(engine.check(&whole.idempotency_key("first")).block().unwrap().is_allowed());
    disk.set_full(true);
    // Until preallocated space is used up.
    while engine.note("default", "fill").block().is_ok() {}
    let report = check(&engine);
    assert!(!report.is_allowed() && !report.is_outage());
    assert_eq!(report.rules().count(), 2);
    // A repeat of what was allowed is no denial.
    assert!(engine.check(&whole.idempotency_key("first")).block().unwrap().is_allowed());
}

/// Its caller is gone before the commit is durable; whether it became so is known all the same.
#[test]
fn an_operation_that_no_caller_waits_for_is_completed() {
    for is_dead in [false, true] {
        let disk = CrashDisk::new();
        let engine = open(&disk, "deny").unwrap();
        let request = Request::new("default", &[("user", "ada")]);
        let hold = engine.hold(&request).block().unwrap().hold().unwrap();
        disk.pause();
        let (sender, result) = std::sync::mpsc::channel();
        let own = engine.clone();
        engine.complete_in_background(async move {
            let _ = sender.send(own.commit(hold, None).await.is_ok());
        });
        assert!(result.try_recv().is_err(), "the disk has not answered");
        if is_dead {
            disk.die_at(disk.calls());
        }
        disk.resume();
        let is_durable = result.recv_timeout(Duration::from_secs(30)).expect("it is completed");
        assert_eq!(is_durable, !is_dead);
    }
}

/// A denial of a postpaid rule would be charged, so it needs a write.
#[test]
fn bookings_of_an_exhausted_limit_are_an_outage() {
    let policy = "[[rule]]\nname = \"r\"\nwindow = { max = 10, per = \"1h\" }\npostpaid = true\n\
                  durability = \"fsync\"\n";
    let disk = CrashDisk::new();
    let options = FileOptions::default().max_keys(1_000).fill_ahead(100);
    let store = options.open_on(Arc::new(disk.clone())).unwrap();
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let policy = Policy::from_toml(policy).unwrap();
    let engine = StoreEngine::builder(policy).store(store).clock(clock).build().unwrap();
    let booking = Request::new("default", &[]).cost(20);
    assert!(engine.check(&booking).block().unwrap().is_allowed());
    disk.set_full(true);
    while engine.note("default", "fill").block().is_ok() {}
    assert!(engine.check(&booking).block().unwrap().is_outage(), "it cannot be booked");
    let look = engine.check(&booking.cost(0)).block().unwrap();
    assert!(!look.is_outage() && !look.is_allowed(), "this charges nothing");
    disk.set_full(false);
    engine.file_store().unwrap().wait_until_it_works();
    assert!(!engine.check(&booking).block().unwrap().is_allowed());
    let usage = engine.usage(&booking).block().unwrap();
    assert_eq!(usage[0].used, 40, "what was not acknowledged is not booked");
}

#[test]
fn quotas_deny_in_an_outage_by_default() {
    let rule = |limit: &str| {
        let policy = format!("[[rule]]\nname = \"r\"\n{limit}\ndurability = \"fsync\"\n");
        Policy::from_toml(&policy).unwrap()
    };
    for (limit, is_allowed) in [
        ("quota = { max = 1000, per = \"day\" }", false),
        ("window = { max = 1000, per = \"1h\" }", true),
    ] {
        let disk = CrashDisk::new();
        let options = FileOptions::default().max_keys(1_000).fill_ahead(100);
        let store = options.open_on(Arc::new(disk.clone())).unwrap();
        let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
        let engine = StoreEngine::builder(rule(limit)).store(store).clock(clock).build().unwrap();
        disk.set_full(true);
        let reports =
            (0..100).map(|_| engine.check(&Request::new("default", &[])).block().unwrap());
        let in_outage: Vec<bool> =
            reports.filter(Report::is_outage).map(|report| report.is_allowed()).collect();
        assert!(!in_outage.is_empty());
        assert!(in_outage.iter().all(|it| *it == is_allowed), "{limit}");
    }
}

/// A reservation that an outage undoes was never made: it leaves no cooldown.
#[test]
fn undone_reservations_leave_no_cooldown() {
    let policy = "[[rule]]\nname = \"gap\"\nkey = [\"user\"]\ncooldown = \"1h\"\n\
                  [[rule]]\nname = \"tokens\"\nkey = [\"user\"]\nquota = { max = 5, per = \"day\" }\n";
    let disk = CrashDisk::new();
    let store = FileOptions::default().fill_ahead(100).open_on(Arc::new(disk.clone())).unwrap();
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let engine = StoreEngine::builder(Policy::from_toml(policy).unwrap())
        .store(store)
        .clock(clock)
        .build()
        .unwrap();
    let reserve = |user: &str| {
        let attributes = [("user", user)];
        engine.hold(&Request::new("default", &attributes)).block().unwrap()
    };
    disk.set_full(true);
    let users: Vec<String> = (0..50).map(|number| format!("user-{number}")).collect();
    let failed = users.iter().find(|user| reserve(user).is_outage());
    let failed = failed.expect("the disk is full");
    disk.set_full(false);
    engine.file_store().unwrap().wait_until_it_works();
    let report = reserve(failed);
    assert!(report.is_allowed(), "{report:?}");
    assert!(!reserve(failed).is_allowed(), "this one has begun a cooldown");
}
