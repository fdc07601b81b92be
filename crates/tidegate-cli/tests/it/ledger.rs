//! `tidegate ledger`.

use std::time::Duration;

use tidegate::durable::FileOptions;
use tidegate::policy::Policy;
use tidegate::{Request, StoreEngine, Timestamp, clock::ManualClock, hold::Commit};

use crate::run::{self, Ended};

fn folder(name: &str) -> std::path::PathBuf {
    run::folder(name, &[])
}

fn tidegate_in(folder: &std::path::Path, args: &[&str]) -> Ended {
    run::tidegate_in(folder, args, b"")
}

/// A folder with a store and three entries in its ledger.
fn store(name: &str) -> std::path::PathBuf {
    let folder = folder(name);
    let policy = Policy::from_toml(
        "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nquota = { max = 10, per = \"day\" }",
    );
    let store = FileOptions::default().open(&folder.join("state")).unwrap();
    let clock = ManualClock::new(Timestamp::from_secs(1_000));
    let engine =
        StoreEngine::builder(policy.unwrap()).store(store).clock(clock.clone()).build().unwrap();
    let ada = Request::new("default", &[("user", "ada")]);
    let hold = engine.hold(&ada.cost(5).note("draft\n\u{1b}[31m")).block().unwrap().hold();
    clock.advance(Duration::from_secs(60));
    engine.commit(hold.unwrap(), Commit::actual(3).note("shorter")).block().unwrap();
    let bob = Request::new("default", &[("user", "bob")]);
    assert!(engine.check(&bob.cost(2)).block().unwrap().is_allowed());
    folder
}

#[test]
fn list_prints_entries_and_bookings() {
    let folder = store("ledger-list");
    let listed = tidegate_in(&folder, &["ledger", "state", "list"]).with(0).silent_err().out(&[
        "1 1970-01-01T00:16:40Z reserve in default of ",
        "    5 held calls user=ada",
        "commit in default",
        "    3 committed calls user=ada\n    2 cancelled calls user=ada",
        "    2 charged calls user=bob",
    ]);
    assert!(!listed.out.contains('\u{1b}'), "{listed:?}");
    let only = ["ledger", "state", "list", "--key", "user=bob", "--format", "json"];
    let entry = tidegate_in(&folder, &only).with(0).json();
    assert_eq!((&entry["what"], &entry["number"]), (&"check".into(), &3.into()));
    assert_eq!(entry["bookings"][0]["key"]["user"], "bob");
    let late = ["ledger", "state", "list", "--since", "1970-01-01T00:17:40Z", "--rule", "calls"];
    assert_eq!(tidegate_in(&folder, &late).with(0).out.lines().count(), 5);
    let none = ["ledger", "state", "list", "--domain", "elsewhere"];
    let _ = tidegate_in(&folder, &none).with(0).silent_out();
}

#[test]
fn totals_add_up() {
    let folder = store("ledger-totals");
    let _ = tidegate_in(&folder, &["ledger", "state", "totals"])
        .with(0)
        .out(&["default calls: granted 7 = committed 5 + refunded 2 + held 0 + expired 0"]);
    let _ = tidegate_in(&folder, &["ledger", "state", "totals", "--by", "key"]).with(0).out(&[
        "default calls user=ada: granted 5 = committed 3 + refunded 2",
        "default calls user=bob: granted 2 = committed 2",
    ]);
    let all = ["ledger", "state", "totals", "--by", "all", "--format", "json"];
    assert_eq!(tidegate_in(&folder, &all).with(0).json()["granted"], 7);
}

#[test]
fn damage_is_reported_and_repaired() {
    let folder = store("ledger-damage");
    let _ = tidegate_in(&folder, &["ledger", "state", "check"]).with(0).out(&["3 entries"]);
    let _ = tidegate_in(&folder, &["ledger", "state", "repair"]).with(0).out(&["no damage found"]);
    let file = folder.join("state/0000000001.log");
    let mut bytes = std::fs::read(&file).unwrap();
    // In the first batch, which later ones record as synced.
    bytes[100] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let _ = tidegate_in(&folder, &["ledger", "state", "check"])
        .with(1)
        .out(&["a process cannot start: 0000000001.log is damaged at byte 64", "repair"]);
    let _ = tidegate_in(&folder, &["ledger", "state", "list"]).with(2).err(&["is damaged"]);
    let _ = tidegate_in(&folder, &["ledger", "state", "repair"]).with(0).out(&["0000000001.log"]);
    let _ = tidegate_in(&folder, &["ledger", "state", "check"]).with(0);
    let kept = std::fs::read_dir(folder.join("state")).unwrap();
    let is_kept = |name: &std::ffi::OsStr| name.to_string_lossy().contains("damaged");
    assert!(kept.into_iter().any(|entry| is_kept(&entry.unwrap().file_name())));
}

#[test]
fn short_log_is_damage_and_repair_says_what_it_gives_up() {
    let folder = store("ledger-short");
    let file = folder.join("state/0000000001.log");
    let whole = std::fs::read(&file).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for len in [used - 10, used / 2, 64, 0] {
        std::fs::write(&file, &whole[..len]).unwrap();
        let _ = tidegate_in(&folder, &["ledger", "state", "check"])
            .with(1)
            .out(&["a process cannot start: 0000000001.log is damaged at byte"]);
    }
    std::fs::write(&file, &whole[..used - 10]).unwrap();
    let _ = tidegate_in(&folder, &["ledger", "state", "totals"])
        .with(1)
        .out(&["granted"])
        .err(&["the totals are incomplete", "0000000001.log"]);
    let _ = tidegate_in(&folder, &["ledger", "state", "repair"]).with(0).out(&[
        "cut 0000000001.log at byte",
        "what followed is lost",
        "damaged-1",
    ]);
    let _ = tidegate_in(&folder, &["ledger", "state", "check"]).with(0);
    let _ = tidegate_in(&folder, &["ledger", "state", "totals"]).with(0).out(&["granted"]);
}

#[test]
fn erase_removes_names_and_keeps_totals() {
    let folder = store("ledger-erase");
    let erase = ["ledger", "state", "erase", "user=ada"];
    let _ = tidegate_in(&folder, &erase).with(0).out(&["erased the names of 1 keys"]);
    let _ = tidegate_in(&folder, &erase).with(1).out(&["no key has user=ada"]);
    let listed = tidegate_in(&folder, &["ledger", "state", "list"]).with(0).out(&["user=(erased)"]);
    assert!(!listed.out.contains("=ada") && !listed.out.contains("shorter"), "{listed:?}");
    let _ = tidegate_in(&folder, &["ledger", "state", "totals"]).with(0).out(&["granted 7"]);
}

#[test]
fn folder_without_ledger_is_an_error() {
    let folder = folder("ledger-none");
    let _ = tidegate_in(&folder, &["ledger", "nowhere", "list"]).with(2).err(&["not a folder"]);
    std::fs::create_dir(folder.join("empty")).unwrap();
    for command in [&["list"][..], &["check"], &["repair"], &["erase", "user=ada"]] {
        let args = [&["ledger", "empty"], command].concat();
        let _ = tidegate_in(&folder, &args).with(2).err(&["no ledger in empty"]).silent_out();
    }
    assert_eq!(std::fs::read_dir(folder.join("empty")).unwrap().count(), 0, "nothing is created");
    std::fs::create_dir(folder.join("future")).unwrap();
    let mut header = b"tidegate ledger\n".to_vec();
    header.extend_from_slice(&7_u32.to_le_bytes());
    header.resize(64, 0);
    std::fs::write(folder.join("future/0000000001.log"), header).unwrap();
    let _ = tidegate_in(&folder, &["ledger", "future", "list"]).with(2).err(&["has format 7"]);
}

#[test]
fn a_ledger_without_its_files_is_reported_and_can_be_given_up() {
    let folder = store("ledger-gone");
    std::fs::remove_file(folder.join("state/0000000001.log")).unwrap();
    for command in ["check", "totals", "list"] {
        let ended = tidegate_in(&folder, &["ledger", "state", command]);
        assert_ne!(ended.code, 0, "{command}: {ended:?}");
        assert!(format!("{}{}", ended.out, ended.err).contains("a ledger has begun"), "{ended:?}");
    }
    let _ = tidegate_in(&folder, &["ledger", "state", "repair"])
        .with(0)
        .out(&["nothing is left of the ledger"]);
    assert!(!folder.join("state/begun").exists());
}
