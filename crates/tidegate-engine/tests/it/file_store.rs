//! What survives a restart of a file store, and what its ledger lists.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::durable::{
    self, EntryKind, FileOptions, FileStore, Filter, Ledger, LogError, OpenError, RepairAction,
    Transfer,
};
use tidegate::policy::{Durability, Policy, RuleId};
use tidegate::{
    Edit, Request, SettleError, StoreEngine, Timestamp,
    clock::ManualClock,
    edit::{Ban, Overlay},
    hold::{Commit, Refund},
};

type Desk = StoreEngine;

/// A folder that is removed at the end.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn open(&self, policy: &str, clock: &ManualClock) -> Desk {
        let store = FileOptions::default().max_keys(10_000).fill_ahead(4_096).open(&self.0);
        StoreEngine::builder(Policy::from_toml(policy).unwrap())
            .store(store.unwrap())
            .clock(clock.clone())
            .build()
            .unwrap()
    }

    /// The names of the files that end so, in order.
    fn files(&self, ending: &str) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(ending));
        names.sort();
        names
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const QUOTA: &str = r#"
    [[rule]]
    name  = "calls"
    key   = ["user"]
    quota = { max = 10, per = "day" }
"#;

fn ada(cost: u64) -> Request<'static> {
    Request::new("default", &[("user", "ada")]).cost(cost)
}

fn left(desk: &Desk, request: &Request<'_>) -> u64 {
    desk.peek(request).block().unwrap().remaining().unwrap()
}

#[test]
fn charges_survive_a_restart() {
    let (folder, clock) = (TempFolder::new("spent"), ManualClock::new(Timestamp::from_secs(100)));
    let desk = folder.open(QUOTA, &clock);
    assert!(desk.check(&ada(4)).block().unwrap().is_allowed());
    let held = desk.hold(&ada(3)).block().unwrap().hold().unwrap();
    let cancelled = desk.hold(&ada(2)).block().unwrap().hold().unwrap();
    desk.cancel(cancelled, None).block().unwrap();
    drop(desk);

    let desk = folder.open(QUOTA, &clock);
    assert_eq!(desk.file_store().unwrap().last_time(), Timestamp::from_secs(100));
    assert_eq!(left(&desk, &ada(1)), 3);
    assert!(!desk.check(&ada(4)).block().unwrap().is_allowed());
    assert_eq!(desk.commit(held, Some(1)).block().map(|done| done.charged), Ok(1));
    assert_eq!(desk.commit(cancelled, None).block(), Err(SettleError::Cancelled));
    assert_eq!(left(&desk, &ada(1)), 5);
    drop(desk);

    let desk = folder.open(QUOTA, &clock);
    assert_eq!(desk.refund_hold(held, 5).block(), Ok(1), "no more than was charged");
    assert_eq!(left(&desk, &ada(1)), 6);
}

#[test]
fn reservations_expire_at_their_own_time_across_a_restart() {
    let (folder, clock) = (TempFolder::new("expiry"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    let held = desk.hold(&ada(10)).block().unwrap().hold().unwrap();
    drop(desk);
    clock.advance(Duration::from_secs(599));
    let desk = folder.open(QUOTA, &clock);
    assert!(!desk.check(&ada(1)).block().unwrap().is_allowed());
    drop(desk);
    clock.advance(Duration::from_secs(1));
    let desk = folder.open(QUOTA, &clock);
    assert!(desk.check(&ada(10)).block().unwrap().is_allowed());
    assert_eq!(desk.commit(held, None).block(), Err(SettleError::Gone));
    let totals = desk.ledger().unwrap().totals(&Filter::new()).unwrap();
    assert_eq!((totals.granted, totals.committed, totals.expired), (20, 10, 10));
}

#[test]
fn idempotency_keys_survive_a_restart() {
    let (folder, clock) = (TempFolder::new("names"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    let named = ada(4).idempotency_key("once");
    let first = desk.hold(&named).block().unwrap();
    drop(desk);
    let desk = folder.open(QUOTA, &clock);
    let again = desk.hold(&named).block().unwrap();
    assert_eq!((again.hold(), again.remaining()), (first.hold(), first.remaining()));
    assert!(desk.hold(&ada(5).idempotency_key("once")).block().is_err(), "another request");
    assert_eq!(left(&desk, &ada(1)), 6);
}

#[test]
fn refunds_happen_once_over_restarts() {
    let (folder, clock) = (TempFolder::new("refunds"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    assert!(desk.check(&ada(6)).block().unwrap().is_allowed());
    let hold = desk.hold(&ada(4)).block().unwrap().hold().unwrap();
    assert_eq!(desk.commit(hold, None).block().map(|done| done.charged), Ok(4));
    let refund = |desk: &StoreEngine| {
        let of_request = desk.refund(&ada(2).idempotency_key("request")).block();
        (of_request, desk.refund_hold(hold, Refund::units(1).idempotency_key("hold")).block())
    };
    assert_eq!(refund(&desk), (Ok(2), Ok(1)));
    drop(desk);
    // From the log first, then from a snapshot.
    for _ in 0..2 {
        let desk = folder.open(QUOTA, &clock);
        assert_eq!((refund(&desk), left(&desk, &ada(1))), ((Ok(2), Ok(1)), 3));
        desk.file_store().unwrap().take_snapshot().unwrap();
    }
}

#[test]
fn restarts_cut_off_space_that_was_allocated_ahead() {
    let (folder, clock) = (TempFolder::new("space"), ManualClock::default());
    for _ in 0..5 {
        let store = FileOptions::default().max_keys(100).open(folder.path()).unwrap();
        let desk = StoreEngine::builder(Policy::from_toml(QUOTA).unwrap())
            .store(store)
            .clock(clock.clone())
            .build()
            .unwrap();
        assert!(desk.check(&ada(1)).block().unwrap().is_allowed());
        desk.file_store().unwrap().take_snapshot().unwrap();
        assert!(desk.check(&ada(1)).block().unwrap().is_allowed());
    }
    let files = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().metadata().unwrap());
    let sizes: Vec<u64> = files.map(|it| it.len()).collect();
    let large = sizes.iter().filter(|size| **size > 64 << 10).count();
    assert_eq!(large, 1, "only the last one has space ahead: {sizes:?}");
    let store = FileOptions::default().max_keys(100).open(folder.path()).unwrap();
    let desk = StoreEngine::builder(Policy::from_toml(QUOTA).unwrap())
        .store(store)
        .clock(clock.clone())
        .build()
        .unwrap();
    assert!(!desk.check(&ada(1)).block().unwrap().is_allowed(), "all ten were counted");
    let ledger = desk.ledger().unwrap();
    assert_eq!(ledger.totals(&Filter::new()).unwrap().committed, 10);
}

#[cfg(unix)]
#[test]
fn files_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;

    let (folder, clock) = (TempFolder::new("modes"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    assert!(desk.check(&ada(1)).block().unwrap().is_allowed());
    desk.file_store().unwrap().take_snapshot().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path()), 0o700);
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn the_durability_of_a_rule_decides_what_survives() {
    let policy = |durability: &str| {
        format!(
            "[[rule]]\nname = \"w\"\nkey = [\"user\"]\nwindow = {{ max = 10, per = \"1h\" }}\n{durability}"
        )
    };
    for (durability, kept) in
        [("", 10), ("durability = \"flush\"", 7), ("durability = \"fsync\"", 7)]
    {
        let (folder, clock) = (TempFolder::new("kept"), ManualClock::default());
        let desk = folder.open(&policy(durability), &clock);
        assert!(desk.check(&ada(3)).block().unwrap().is_allowed());
        drop(desk);
        let desk = folder.open(&policy(durability), &clock);
        assert_eq!(left(&desk, &ada(1)), kept, "{durability}");
    }
}

#[test]
fn rounds_edits_and_bans_survive_a_restart() {
    const CAP: &str = r#"
        [[rule]]
        name      = "cap"
        key       = ["user"]
        quota     = { max = 3, per = "round" }
        effective = "next"
    "#;
    let (folder, clock) = (TempFolder::new("edits"), ManualClock::default());
    let desk = folder.open(CAP, &clock);
    assert_eq!(desk.close_round("default", None).block(), Ok(1));
    assert!(desk.check(&ada(1)).block().unwrap().is_allowed());
    let lower = Policy::from_toml(&CAP.replace("max = 3", "max = 1")).unwrap();
    let made = desk.edit("council", Edit::rule(lower.rules()[0].clone())).block().unwrap();
    assert_eq!(made.len(), 1);
    let banned = Policy::from_toml(
        "[[rule]]\nname = \"x\"\nmatch = { user = \"eve\" }\nwindow = { max = 1, per = \"1s\" }",
    );
    let eve = banned.unwrap().rules()[0].conditions().to_vec();
    desk.edit("admin", Edit::ban(Ban::new("default", eve).reason("too loud"))).block().unwrap();
    drop(desk);

    // The edit waits for the next round, also across restarts.
    let desk = folder.open(CAP, &clock);
    assert_eq!((desk.rounds("default"), left(&desk, &ada(1))), (1, 2));
    assert_eq!(desk.overlay().rules().count(), 1);
    assert_eq!(desk.changes_since(0).len(), 2);
    let eve = Request::new("default", &[("user", "eve")]);
    assert_eq!(desk.check(&eve).block().unwrap().reason().as_deref(), Some("too loud"));
    drop(desk);
    let desk = folder.open(CAP, &clock);
    assert!(
        desk.check(&ada(2)).block().unwrap().is_allowed(),
        "the old cap is good for this round"
    );
    assert_eq!(desk.close_round("default", None).block(), Ok(2));
    assert_eq!(left(&desk, &ada(1)), 1);
    let last = desk.changes_since(0).last().unwrap().number;
    let made = desk.edit("admin", Edit::overlay(Overlay::default())).block().unwrap();
    assert!(made.iter().all(|change| change.number > last));
}

#[test]
fn snapshots_agree_with_the_log() {
    let (folder, clock) = (TempFolder::new("snapshots"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    let users: Vec<String> = (0..3_000).map(|user| format!("user-{user}")).collect();
    let spend = |desk: &Desk, user: &str, cost| {
        let attributes = [("user", user)];
        let request = Request::new("default", &attributes).cost(cost);
        desk.check(&request).block().unwrap().is_allowed()
    };
    for (user, cost) in users.iter().zip((1..=10).cycle()) {
        assert!(spend(&desk, user, cost));
    }
    let held = desk.hold(&ada(3)).block().unwrap().hold().unwrap();
    desk.file_store().unwrap().take_snapshot().unwrap();
    assert!(desk.check(&ada(3)).block().unwrap().is_allowed());
    desk.file_store().unwrap().take_snapshot().unwrap();
    assert_eq!(folder.files("snapshot").len(), 1, "older ones are removed");
    drop(desk);
    let desk = folder.open(QUOTA, &clock);
    for (user, cost) in users.iter().zip((1..=10).cycle()) {
        let attributes = [("user", user.as_str())];
        assert_eq!(left(&desk, &Request::new("default", &attributes)), 10 - cost, "{user}");
    }
    assert_eq!(left(&desk, &ada(1)), 4);
    assert_eq!(desk.commit(held, None).block().map(|done| done.charged), Ok(3));
    // The ledger still has everything.
    let totals = desk.ledger().unwrap().totals(&Filter::new()).unwrap();
    assert_eq!(totals.granted, 3_000 / 10 * 55 + 6);
    assert_eq!(totals.committed, totals.granted);
}

#[test]
fn the_ledger_lists_what_happened() {
    let (folder, clock) = (TempFolder::new("ledger"), ManualClock::new(Timestamp::from_secs(1)));
    let desk = folder.open(QUOTA, &clock);
    let held = desk.hold(&ada(5).note("a draft")).block().unwrap().hold().unwrap();
    clock.advance(Duration::from_secs(1));
    desk.commit(held, Commit::actual(7).note("longer than thought")).block().unwrap();
    desk.note("default", "a remark").block().unwrap();
    clock.advance(Duration::from_secs(1));
    desk.refund(&ada(2).note("sorry")).block().unwrap();
    let bob = Request::new("default", &[("user", "bob")]);
    assert!(desk.check(&bob).block().unwrap().is_allowed());
    let ledger = desk.ledger().unwrap();
    let all: Vec<_> = ledger.entries(&Filter::new()).unwrap().collect::<Result<_, _>>().unwrap();
    let entries: Vec<_> =
        all.iter().map(|entry| (entry.what.clone(), entry.note.as_deref())).collect();
    assert_eq!(
        entries,
        [
            (EntryKind::Reserve, Some("a draft")),
            (EntryKind::Commit, Some("longer than thought")),
            (EntryKind::Note, Some("a remark")),
            (EntryKind::Refund, Some("sorry")),
            (EntryKind::Check, None),
        ]
    );
    assert_eq!((all[0].hold, all[1].hold), (Some(held), Some(held)));
    let booked: Vec<_> = all[1].bookings.iter().map(|it| (it.booking, it.units)).collect();
    assert_eq!(
        booked,
        [(Transfer::Committed, 5), (Transfer::Charged, 2)],
        "overdrafts are granted"
    );
    let totals = ledger.totals(&Filter::new().key("user", "ada")).unwrap();
    assert_eq!((totals.granted, totals.committed, totals.refunded), (7, 5, 2));
    let late = Filter::new().since(Timestamp::from_secs(3)).rule("calls");
    assert_eq!(ledger.entries(&late).unwrap().count(), 2);
    let by_key = ledger.totals_by_key(&Filter::new()).unwrap();
    assert_eq!(by_key.len(), 2);
    assert_eq!(by_key[1].0.parts().collect::<Vec<_>>(), [("user", Some("bob"))]);
    // Also from outside, while the process has it.
    assert_eq!(Ledger::open(folder.path()).unwrap().entries(&Filter::new()).unwrap().count(), 5);
}

#[test]
fn the_ledger_lists_what_a_commit_was_forgiven() {
    let (folder, clock) = (TempFolder::new("forgiven"), ManualClock::default());
    let bounded = QUOTA.replace("per = \"day\"", "per = \"day\", debt = 4");
    let desk = folder.open(&bounded, &clock);
    let held = desk.hold(&ada(5)).block().unwrap().hold().unwrap();
    assert_eq!(desk.commit(held, Some(20)).block().map(|done| done.charged), Ok(14));
    let ledger = desk.ledger().unwrap();
    let commit = ledger.entries(&Filter::new()).unwrap().nth(1).unwrap().unwrap();
    let booked: Vec<_> = commit.bookings.iter().map(|it| (it.booking, it.units)).collect();
    assert_eq!(booked, [(Transfer::Committed, 5), (Transfer::Charged, 9), (Transfer::Forgiven, 6)]);
    let totals = ledger.totals(&Filter::new()).unwrap();
    assert_eq!((totals.granted, totals.committed, totals.refunded), (14, 14, 0));
}

#[test]
fn debt_and_holds_of_closed_periods_survive_a_restart() {
    let rounds = QUOTA.replace("day", "round");
    let (folder, clock) = (TempFolder::new("debt"), ManualClock::default());
    let desk = folder.open(&rounds, &clock);
    let [first, second, third] =
        [3, 4, 1].map(|units| desk.hold(&ada(units)).block().unwrap().hold().unwrap());
    assert_eq!(
        desk.commit(first, Some(22)).block().map(|done| done.charged),
        Ok(22),
        "5 fit, 17 are owed"
    );
    desk.close_round("default", None).block().unwrap();
    drop(desk);

    // The round of both holds is closed; no request has come since.
    let desk = folder.open(&rounds, &clock);
    assert!(!desk.peek(&ada(0)).block().unwrap().is_allowed(), "12 of 10 are owed");
    assert_eq!(desk.refund_hold(first, 3).block(), Ok(3));
    assert_eq!(left(&desk, &ada(1)), 1);
    let open = desk.hold(&ada(1)).block().unwrap().hold().unwrap();
    drop(desk);

    let desk = folder.open(&rounds, &clock);
    assert_eq!(left(&desk, &ada(1)), 0);
    assert_eq!(desk.commit(second, Some(4)).block().map(|done| done.charged), Ok(4));
    assert_eq!(desk.cancel(third, None).block(), Ok(0));
    assert_eq!(desk.refund_hold(second, 4).block(), Ok(0), "its round is closed");
    assert_eq!(left(&desk, &ada(1)), 0);
    drop(desk);

    let desk = folder.open(&rounds, &clock);
    assert_eq!(desk.cancel(open, None).block(), Ok(0));
    assert_eq!(desk.refund_hold(first, 20).block(), Ok(9), "what is still owed");
    assert_eq!(left(&desk, &ada(1)), 10);
}

#[test]
fn an_erased_key_loses_its_name_and_keeps_its_totals() {
    let (folder, clock) = (TempFolder::new("erase"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    let secret = "ada.lovelace@example.org";
    let attributes = [("user", secret)];
    let person = Request::new("default", &attributes);
    assert!(desk.check(&person.cost(4).note("for lovelace")).block().unwrap().is_allowed());
    let held = desk.hold(&person.cost(2)).block().unwrap().hold().unwrap();
    assert!(desk.check(&ada(1)).block().unwrap().is_allowed());
    assert_eq!(desk.erase("user", "nobody").unwrap(), 0);
    assert_eq!(desk.erase("user", secret).unwrap(), 1);
    assert_eq!(desk.commit(held, None).block(), Err(SettleError::Gone));
    let totals = desk.ledger().unwrap().totals(&Filter::new()).unwrap();
    assert_eq!((totals.granted, totals.committed, totals.refunded), (7, 5, 2));
    let of_person = desk.ledger().unwrap().totals(&Filter::new().key("user", secret)).unwrap();
    assert_eq!(of_person.granted, 0);
    assert_eq!(left(&desk, &person), 10, "a returning key is new");
    drop(desk);
    for file in folder.files("") {
        let bytes = std::fs::read(folder.path().join(&file)).unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(!has("lovelace"), "{file}");
    }
    let desk = folder.open(QUOTA, &clock);
    assert_eq!((left(&desk, &ada(1)), left(&desk, &person)), (9, 10));
}

#[test]
fn one_process_at_a_time_locks_the_folder() {
    let (folder, clock) = (TempFolder::new("lock"), ManualClock::default());
    let _desk = folder.open(QUOTA, &clock);
    let error = FileStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Log(LogError::InUse { .. })), "{error}");
    let (text, process) = (error.to_string(), std::process::id().to_string());
    assert!(text.contains("is in use") && text.contains(&process), "{text}");
}

#[test]
fn damage_stops_the_start_and_can_be_repaired() {
    let (folder, clock) = (TempFolder::new("damage"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    for _ in 0..6 {
        assert!(desk.check(&ada(1)).block().unwrap().is_allowed());
    }
    drop(desk);
    let file = folder.path().join(&folder.files("log")[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    // The third of the charges.
    let offsets: Vec<usize> = (0..bytes.len() / 8)
        .map(|word| word * 8)
        .filter(|at| bytes[at + 8..].starts_with(&[5, 0, 0, 0, 0, 0, 0, 0]))
        .collect();
    let at = *offsets.first().unwrap();
    bytes[at + 30] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let error = FileStore::open(folder.path()).unwrap_err();
    let OpenError::Log(LogError::Damaged { at: reported, .. }) = &error else { panic!("{error}") };
    assert_eq!(*reported, at as u64);
    assert!(error.to_string().contains("tidegate ledger FOLDER repair"), "{error}");
    assert!(durable::check(folder.path()).unwrap().start.is_some());
    let done = durable::repair(folder.path()).unwrap();
    assert!(
        matches!(&done[..], [RepairAction::GaveUp { at: lost, .. }] if *lost == *reported),
        "{done:?}"
    );
    let desk = folder.open(QUOTA, &clock);
    assert_eq!(left(&desk, &ada(1)), 4, "what came after is whole");
    drop(desk);
    assert!(durable::check(folder.path()).unwrap().ledger.is_none());
}

#[test]
fn a_least_durability_applies_to_all_rules() {
    let (folder, clock) = (TempFolder::new("least"), ManualClock::default());
    let policy = "[[rule]]\nname = \"b\"\nkey = [\"user\"]\nbucket = { rate = \"1/s\", burst = 5 }";
    let open = || {
        let options = FileOptions::default().least_durability(Durability::Fsync);
        let store = options.open(folder.path()).unwrap();
        StoreEngine::builder(Policy::from_toml(policy).unwrap())
            .store(store)
            .clock(clock.clone())
            .build()
            .unwrap()
    };
    let desk = open();
    assert!(desk.check(&ada(5)).block().unwrap().is_allowed());
    drop(desk);
    clock.advance(Duration::from_secs(2));
    assert_eq!(left(&open(), &ada(1)), 2);
}

#[test]
fn a_restart_refills_no_bucket_because_of_an_override() {
    // The override counts in other ticks than the rule.
    let policy = r#"
        [[rule]]
        name       = "calls"
        key        = ["user"]
        bucket     = { rate = "2/m", burst = 3 }
        durability = "fsync"
        override   = [{ key = { user = "bob" }, rate = "1/m", burst = 12 }]
    "#;
    let (folder, clock) = (TempFolder::new("override-bucket"), ManualClock::default());
    let bob = Request::new("default", &[("user", "bob")]);
    let desk = folder.open(policy, &clock);
    assert!(desk.check(&ada(3)).block().unwrap().is_allowed());
    assert!(desk.check(&bob.cost(7)).block().unwrap().is_allowed());
    drop(desk);
    for _ in 0..3 {
        drop(folder.open(policy, &clock));
    }
    let desk = folder.open(policy, &clock);
    assert_eq!((left(&desk, &ada(1)), left(&desk, &bob)), (0, 5));
}

#[test]
fn an_override_applies_to_no_other_key_after_restarts() {
    let policy = r#"
        [[rule]]
        name      = "calls"
        key       = ["user"]
        quota     = { max = 3, per = "day" }
        effective = "next"
    "#;
    let (folder, clock) = (TempFolder::new("override-next"), ManualClock::default());
    let desk = folder.open(policy, &clock);
    for max in [1_000, 2_000] {
        let given = format!(
            "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nquota = {{ max = 3, per = \"day\" }}\n\
             override = [{{ key = {{ user = \"bob\" }}, max = {max} }}]"
        );
        let given = Policy::from_toml(&given).unwrap().rules()[0].overrides()[0].clone();
        desk.edit("admin", Edit::set_override(&RuleId::named("calls"), given)).block().unwrap();
    }
    drop(desk);
    for _ in 0..3 {
        assert_eq!(left(&folder.open(policy, &clock), &ada(1)), 3);
    }
}

#[test]
fn a_good_snapshot_is_enough_for_a_repair() {
    let (folder, clock) = (TempFolder::new("snapshot-repair"), ManualClock::default());
    let desk = folder.open(QUOTA, &clock);
    assert!(desk.check(&ada(4)).block().unwrap().is_allowed());
    desk.file_store().unwrap().take_snapshot().unwrap();
    drop(desk);
    let file = folder.path().join(folder.files(".log").pop().unwrap());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[50] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let _ = durable::repair(folder.path()).unwrap();
    for _ in 0..2 {
        let desk = folder.open(QUOTA, &clock);
        assert_eq!(left(&desk, &ada(1)), 6);
        assert!(
            desk.check(&Request::new("default", &[("user", "bob")])).block().unwrap().is_allowed()
        );
    }
}

#[test]
fn segments_with_a_wrong_order_are_reported() {
    let header = |number: u64, after: u64| {
        let folder = TempFolder::new("lying");
        let clock = ManualClock::default();
        drop(folder.open(QUOTA, &clock));
        let file = folder.path().join("0000000001.log");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[24..32].copy_from_slice(&number.to_le_bytes());
        bytes[32..40].copy_from_slice(&after.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(folder.path().join(format!("{number:010}.log")), bytes).unwrap();
        FileStore::open(folder.path()).map(drop)
    };
    assert!(
        matches!(header(1, 1), Err(OpenError::Log(LogError::Damaged { .. }))),
        "it follows itself"
    );
    assert!(
        matches!(header(3, 7), Err(OpenError::Log(LogError::Damaged { .. }))),
        "it follows a later one"
    );
    let unknown = header(u64::MAX, 0);
    assert!(
        matches!(unknown, Err(OpenError::Log(LogError::Missing))),
        "no log is that long, so it is none"
    );
}

/// One bit at a time: not fast, and not the code that it checks.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[test]
fn notes_of_an_erased_key_are_gone_even_without_bookings() {
    let policy =
        "[[rule]]\nname = \"gap\"\nkey = [\"user\"]\ncooldown = \"1s\"\ndurability = \"fsync\"";
    let (folder, clock) = (TempFolder::new("erase-notes"), ManualClock::default());
    let desk = folder.open(policy, &clock);
    let noted = ada(1).note("lives in Main Street");
    assert!(desk.check(&noted).block().unwrap().is_allowed());
    assert_eq!(desk.erase("user", "ada").unwrap(), 1);
    drop(desk);
    for file in folder.files("") {
        let bytes = std::fs::read(folder.path().join(&file)).unwrap();
        assert!(!bytes.windows(11).any(|part| part == b"Main Street"), "{file}");
    }
}

#[test]
fn settled_holds_are_dropped_after_a_day_with_or_without_a_restart() {
    for restarts in [false, true] {
        let (folder, clock) = (TempFolder::new("a-day"), ManualClock::default());
        let mut desk = folder.open(QUOTA, &clock);
        let held = desk.hold(&ada(3)).block().unwrap().hold().unwrap();
        desk.commit(held, None).block().unwrap();
        clock.advance(Duration::from_secs(24 * 3_600 + 1));
        if restarts {
            drop(desk);
            desk = folder.open(QUOTA, &clock);
        }
        assert_eq!(desk.refund_hold(held, 1).block(), Err(SettleError::Gone));
    }
}

/// A reset of everything is on disk before it is acknowledged, also in a snapshot, and is audited.
#[test]
fn forgotten_keys_stay_forgotten_after_a_restart() {
    let policy = format!(
        "{QUOTA}\n[[rule]]\nname = \"other\"\ndomain = \"other\"\nkey = [\"user\"]\n\
         durability = \"flush\"\nwindow = {{ max = 2, per = \"1h\" }}\n"
    );
    // More keys than one record has.
    let users: Vec<String> = (0..5_000).map(|user| format!("user-{user}")).collect();
    let (folder, clock) = (TempFolder::new("forget-all"), ManualClock::default());
    let desk = folder.open(&policy, &clock);
    let other = |user| [("user", user)];
    for user in &users {
        drop(desk.check(&Request::new("other", &other(user.as_str()))));
    }
    assert!(desk.check(&ada(4)).block().unwrap().is_allowed());
    let held = desk.hold(&ada(3)).block().unwrap().hold().unwrap();
    assert_eq!(desk.forget_domain("other", "reset by ops").block(), Ok(5_000));
    assert_eq!(left(&desk, &ada(1)), 3);
    drop(desk);

    let desk = folder.open(&policy, &clock);
    assert_eq!(desk.len(), 1, "only the key of the other domain");
    assert_eq!(left(&desk, &ada(1)), 3);
    for user in [&users[0], &users[4_999]] {
        assert_eq!(left(&desk, &Request::new("other", &other(user.as_str()))), 2);
    }
    assert_eq!(desk.forget_all(None).block(), Ok(1));
    drop(desk);

    let desk = folder.open(&policy, &clock);
    assert_eq!(left(&desk, &ada(1)), 7, "what is on hold stays so");
    assert_eq!(desk.commit(held, None).block().map(|done| done.charged), Ok(3));
    let entries = desk.ledger().unwrap().entries(&Filter::new()).unwrap();
    let notes = entries.filter_map(|entry| entry.unwrap().note);
    assert!(notes.filter(|note| **note == *"reset by ops").count() > 0);
}
