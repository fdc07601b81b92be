//! What the ledger costs in bytes and in memory, and whose notes are in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::durable::{
    self, Disk, EntryKind, FileOptions, Filter, Ledger, LedgerEntry, TotalsBy,
};
use tidegate::policy::{Condition, Policy, RuleId};
use tidegate::testing::CrashDisk;
use tidegate::{Edit, Outage, Request, StoreEngine, Timestamp, clock::ManualClock, hold::Commit};

use crate::allocations::peak_bytes;

type Durable = StoreEngine;

const QUOTA: &str = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\n\
                     quota = { max = 1000, per = \"day\" }\ndurability = \"flush\"";

fn open(disk: &CrashDisk, size: u64) -> Durable {
    let options = FileOptions::default().max_keys(300_000).snapshot_every(size).fill_ahead(100);
    let store = options.open_on(Arc::new(disk.clone())).unwrap();
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    StoreEngine::builder(Policy::from_toml(QUOTA).unwrap())
        .store(store)
        .clock(clock)
        .build()
        .unwrap()
}

fn check(engine: &Durable, user: &str) {
    let report = engine.check(&Request::new("default", &[("user", user)])).block().unwrap();
    assert!(report.is_allowed() && !report.is_outage());
}

fn entries(disk: &CrashDisk) -> Vec<LedgerEntry> {
    let entries = Ledger::on(Arc::new(disk.clone())).entries(&Filter::new()).unwrap();
    entries.map(Result::unwrap).collect()
}

fn log_len(disk: &CrashDisk) -> usize {
    let files = disk.contents();
    let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
    logs.map(|(_, bytes)| bytes.len()).sum()
}

/// The lengths of the batches of a file.
fn batches(file: &[u8]) -> Vec<u32> {
    let (mut at, mut lens) = (64, Vec::new());
    while let Some(len) = file.get(at + 4..at + 8) {
        let len = u32::from_le_bytes(len.try_into().unwrap());
        if len == 0 {
            break;
        }
        lens.push(len);
        at = (at + 24 + len as usize).next_multiple_of(8);
    }
    lens
}

#[test]
fn a_snapshot_of_many_keys_has_several_batches() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    (0..80_000).for_each(|user| check(&engine, &user.to_string()));
    engine.file_store().unwrap().take_snapshot().unwrap();
    let files = disk.contents();
    let (_, snapshot) = files.iter().find(|(name, _)| name.ends_with(".snapshot")).unwrap();
    let lens = batches(snapshot);
    assert!(lens.iter().sum::<u32>() > 1_500_000, "{lens:?}");
    assert!(lens.iter().all(|len| *len < 1_200_000), "{lens:?}");
    drop(engine);
    let engine = open(&disk, 1 << 30);
    let last = Request::new("default", &[("user", "79999")]);
    assert_eq!(engine.peek(&last.cost(0)).block().unwrap().remaining(), Some(999));
}

#[test]
fn an_edit_writes_what_it_changes() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    let given = |user: usize| {
        let text = format!(
            "{}\noverride = [{{ key = {{ user = \"user-{user}\" }}, max = {} }}]",
            QUOTA.replace("durability = \"flush\"", ""),
            user + 1
        );
        Policy::from_toml(&text).unwrap().rules()[0].overrides()[0].clone()
    };
    let before = log_len(&disk);
    for user in 0..300 {
        let _ = engine
            .edit("root", Edit::set_override(&RuleId::named("calls"), given(user)))
            .block()
            .unwrap();
    }
    let each = (log_len(&disk) - before) / 300;
    let last = engine.changes_since(0).pop().unwrap();
    let len = |text: &Option<String>| text.as_ref().map_or(0, |text| text.len());
    let described = len(&last.before) + len(&last.after);
    assert!(each < 800 + described, "{each} bytes for each override, {described} described");
    let overlay = engine.overlay();
    drop(engine);
    for _ in 0..2 {
        // From the log first, then from a snapshot and the log.
        let engine = open(&disk, 1 << 30);
        assert_eq!(engine.overlay(), overlay);
        assert!(engine.changes_since(0).len() >= 300);
        engine.file_store().unwrap().take_snapshot().unwrap();
        let removed = [Condition::new("user", ["user-7"]).unwrap()];
        let _ = engine
            .edit("root", Edit::remove_override(&RuleId::named("calls"), &removed))
            .block()
            .unwrap();
        let _ = engine
            .edit("root", Edit::set_override(&RuleId::named("calls"), given(7)))
            .block()
            .unwrap();
        assert_eq!(engine.overlay().overrides().count(), 300);
        let _ = engine.edit("root", Edit::overlay(overlay.clone()));
    }
    let report = durable::check_on(&(Arc::new(disk) as Arc<dyn Disk>));
    assert!(report.start.is_none() && report.ledger.is_none(), "{report:?}");
}

#[test]
fn totals_need_memory_for_keys_and_not_for_entries() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 200_000);
    let keys = 10_000;
    for user in 0..keys {
        let user = format!("a user whose name is not short {user}");
        let attributes = [("user", &*user)];
        let request = Request::new("default", &attributes).cost(2);
        let hold = engine.hold(&request).block().unwrap().hold().unwrap();
        engine.commit(hold, Some(1)).block().unwrap();
    }
    drop(engine);
    let disk = CrashDisk::with_contents(disk.contents());
    let ledger = Ledger::on(Arc::new(disk));
    let mut granted = 0;
    let peak = peak_bytes(|| granted = ledger.totals(&Filter::new()).unwrap().granted);
    assert_eq!(granted, 2 * keys);
    // A segment is read as a whole, and copied by this disk.
    assert!(peak < 1_500_000, "{peak} bytes for {keys} keys");
    let by_key = ledger.readable_totals(&Filter::new(), TotalsBy::Key).unwrap();
    assert_eq!((by_key.totals.len() as u64, by_key.unreadable.len()), (keys, 0));
    assert!(by_key.totals.iter().all(|(_, totals)| (totals.granted, totals.committed) == (2, 1)));
}

#[test]
fn a_note_of_the_engine_is_none_of_the_host() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    check(&engine, "ada");
    disk.set_full(true);
    let request = Request::new("default", &[("user", "ada")]).note("mine");
    for _ in 0..100 {
        let _ = engine.check(&request).block();
        let _ = engine.hold(&request).block();
    }
    assert!(engine.file_store().unwrap().failure().is_some());
    disk.set_full(false);
    engine.file_store().unwrap().wait_until_it_works();
    check(&engine, "ada");
    let undone: Vec<LedgerEntry> =
        entries(&disk).into_iter().filter(|entry| entry.cause.is_some()).collect();
    assert!(!undone.is_empty());
    for entry in &undone {
        assert!(matches!(entry.what, EntryKind::Cancel | EntryKind::Refund), "{entry:?}");
        assert_eq!(entry.note, None);
    }
    assert!(entries(&disk).iter().filter_map(|entry| entry.note.as_deref()).all(|it| it == "mine"));
}

#[test]
fn an_erased_note_is_none() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    let request = Request::new("default", &[("user", "ada")]).note("about ada");
    assert!(engine.check(&request).block().unwrap().is_allowed());
    assert_eq!(engine.erase("user", "ada").unwrap(), 1);
    assert!(entries(&disk).iter().all(|entry| entry.note.is_none()));
}

#[test]
fn erasing_a_name_removes_it_from_what_a_repair_kept() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    (0..10).for_each(|_| check(&engine, "ada-lovelace"));
    drop(engine);
    let mut files: BTreeMap<_, _> = disk.contents();
    let log = files.get_mut("0000000001.log").unwrap();
    log[30] ^= 1;
    files.insert("snapshot.tmp".into(), b"ada-lovelace".to_vec());
    files.insert("notes.damaged-1".into(), b"not ours".to_vec());
    let disk = CrashDisk::with_contents(files);
    let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    assert!(!durable::repair_on(&as_disk).unwrap().is_empty());
    let has_name = |disk: &CrashDisk| {
        let contains = |bytes: &[u8]| bytes.windows(12).any(|it| it == b"ada-lovelace");
        let files = disk.contents();
        files.into_iter().filter(|(_, it)| contains(it)).map(|it| it.0).collect::<Vec<_>>()
    };
    assert!(has_name(&disk).iter().any(|name| name.contains(".damaged-")));
    let engine = open(&disk, 1 << 30);
    assert_eq!(engine.erase("user", "ada-lovelace").unwrap(), 1);
    assert_eq!(has_name(&disk), Vec::<String>::new());
    assert!(disk.contents().contains_key("notes.damaged-1"));
}

#[test]
fn a_long_name_is_hashed_in_the_log() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    let (long, longer) = ("x".repeat(256), "x".repeat(1 << 20));
    check(&engine, &long);
    for _ in 0..3 {
        check(&engine, &longer);
    }
    assert!(log_len(&disk) < 5_000, "{}", log_len(&disk));
    drop(engine);
    let engine = open(&disk, 1 << 30);
    check(&engine, &longer);
    let ledger = engine.ledger().unwrap();
    let granted = |user: &str| ledger.totals(&Filter::new().key("user", user)).unwrap().granted;
    assert_eq!((granted(&long), granted(&longer)), (1, 4));
    let names = ledger.totals_by_key(&Filter::new()).unwrap();
    let values: Vec<_> = names.iter().filter_map(|(key, _)| key.parts().next()?.1).collect();
    assert_eq!(values[0], long);
    assert!(values[1].starts_with("sha256:") && values[1].len() == 71, "{}", values[1]);
    assert_eq!(engine.erase("user", &longer).unwrap(), 1);
    assert_eq!(granted(&longer), 0);
}

#[test]
fn long_records_cannot_use_up_the_room_of_short_ones() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    check(&engine, "ada");
    disk.pause();
    let text = "x".repeat(500 << 10);
    let mut notes = Vec::new();
    let mut refused = 0;
    for _ in 0..200 {
        match engine.note("default", &text) {
            tidegate::Answer::Ready(done) => {
                assert_eq!(done, Err(Outage::Unavailable));
                refused += 1;
            }
            later => notes.push(later),
        }
    }
    assert!(refused > 100 && !notes.is_empty(), "{refused}");
    let attributes = [("user", "ada")];
    let small: Vec<_> =
        (0..500).map(|_| engine.check(&Request::new("default", &attributes))).collect();
    disk.resume();
    assert!(small.into_iter().all(|check| !check.block().unwrap().is_outage()));
    assert!(notes.into_iter().all(|note| note.block().is_ok()));
}

/// A clock whose time goes on from the ledger, while the time of day is another one.
#[derive(Clone, Debug)]
struct SetBack {
    now: Timestamp,
    wall: Timestamp,
}

impl tidegate::clock::Clock for SetBack {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn wall(&self) -> Timestamp {
        self.wall
    }
}

/// What the daemon advises if the last entry of its ledger is in the future.
#[test]
fn a_reset_helps_a_quota_that_was_charged_in_the_future() {
    let disk = CrashDisk::new();
    let day = Timestamp::from_secs(24 * 60 * 60).as_nanos();
    let open = |days: u64| {
        let store = FileOptions::default().open_on(Arc::new(disk.clone())).unwrap();
        let wall = Timestamp::from_nanos(20_000 * day + days * day);
        let clock = SetBack { now: wall.max(store.last_time()), wall };
        StoreEngine::builder(Policy::from_toml(QUOTA).unwrap())
            .store(store)
            .clock(clock)
            .build()
            .unwrap()
    };
    let ada = Request::new("default", &[("user", "ada")]);
    assert!(open(400).check(&ada.cost(1_000)).block().unwrap().is_allowed());
    let engine = open(0);
    assert!(engine.file_store().unwrap().last_time() > Timestamp::from_nanos(20_399 * day));
    assert!(!engine.check(&ada).block().unwrap().is_allowed());
    assert_eq!(engine.forget(&ada).block(), Ok(true));
    assert!(engine.check(&ada).block().unwrap().is_allowed());
}

const TOKENS: &str = "[[rule]]\nname = \"tokens\"\nkey = [\"user\"]\n\
                      quota = { max = 2, per = \"round\", carry = \"all\" }";

/// The enrolment is in the log: a key that never requested anything is known after a crash.
#[test]
fn enrolments_survive_a_restart_and_are_written_once() {
    let disk = CrashDisk::new();
    let open = || {
        let store = FileOptions::default().open_on(Arc::new(disk.clone())).unwrap();
        StoreEngine::builder(Policy::from_toml(TOKENS).unwrap())
            .store(store)
            .clock(ManualClock::default())
            .build()
            .unwrap()
    };
    let ada = Request::new("default", &[("user", "ada")]);
    let engine = open();
    for (number, enrolled) in [(1, 1), (2, 0)] {
        let note = format!("number {number}");
        let done = engine.enrol(&ada.note(&note)).block().unwrap();
        assert_eq!((done.enrolled, done.known), (enrolled, 1 - enrolled));
    }
    engine.close_round("default", None).block().unwrap();
    drop(engine);
    let engine = open();
    assert_eq!(engine.enrol(&ada).block().unwrap().known, 1);
    engine.close_round("default", None).block().unwrap();
    assert_eq!(engine.peek(&ada).block().unwrap().remaining(), Some(6));
    engine.file_store().unwrap().take_snapshot().unwrap();
    drop(engine);
    assert_eq!(open().peek(&ada).block().unwrap().remaining(), Some(6));
    let enrolled: Vec<LedgerEntry> =
        entries(&disk).into_iter().filter(|entry| entry.what == EntryKind::Enrol).collect();
    let [entry] = &*enrolled else { panic!("written once: {enrolled:?}") };
    assert_eq!((&*entry.domain, entry.note.as_deref()), ("default", Some("number 1")));
    assert!(entry.bookings.is_empty() && entry.hold.is_none());
}

/// The note of a commit is written with it, and only the first time.
#[test]
fn a_repeated_commit_writes_no_note() {
    let disk = CrashDisk::new();
    let engine = open(&disk, 1 << 30);
    let ada = Request::new("default", &[("user", "ada")]);
    let hold = engine.hold(&ada).block().unwrap().hold().unwrap();
    for note in ["first", "again"] {
        let done = engine.commit(hold, Commit::held().note(note)).block().unwrap();
        assert_eq!((done.charged, done.is_repeat), (1, note == "again"));
    }
    let hold = engine.hold(&ada).block().unwrap().hold().unwrap();
    engine.void(hold, "never happened").block().unwrap();
    engine.sync().block().unwrap();
    let notes: Vec<_> = entries(&disk).into_iter().filter_map(|entry| entry.note).collect();
    assert_eq!(notes.iter().map(|note| &**note).collect::<Vec<_>>(), ["first", "never happened"]);
}
