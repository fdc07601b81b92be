//! Edits keep history: what a key has left follows from the limits that were in force, each for its
//! own time, and not from when there was a look. Every sequence runs in memory and on disk, with and
//! without looks in between.

use std::sync::Arc;
use std::time::Duration;

use tidegate::durable::FileOptions;
use tidegate::policy::{Condition, Durability, Grant, Limit, Override, Policy, RuleId};
use tidegate::testing::CrashDisk;
use tidegate::{
    Edit, Request, StoreEngine, Timestamp, WhenFull, clock::ManualClock, store::MemoryStore,
};

/// Midnight, a while after 1970.
const START: u64 = 86_400 * 20_000;

/// An engine, a clock and a way to restart.
struct Desk {
    engine: StoreEngine,
    clock: ManualClock,
    looks: bool,
}

fn policy(text: &str) -> Policy {
    Policy::from_toml(text).unwrap()
}

fn ada() -> Request<'static> {
    Request::new("default", &[("user", "ada")])
}

fn on_ada(limit: &str) -> Override {
    let rule = policy(&format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n"));
    let limit: Limit = rule.rules()[0].limit().clone();
    Override::new(vec![Condition::new("user", ["ada"]).unwrap()], Grant::Limit(limit))
}

impl Desk {
    fn wait(&self, duration: Duration) -> &Self {
        self.look();
        self.clock.advance(duration);
        self.look();
        self
    }

    fn minutes(&self, minutes: u64) -> &Self {
        for _ in 0..minutes {
            self.wait(Duration::from_secs(60));
        }
        self
    }

    fn look(&self) {
        if self.looks {
            let _ = self.engine.peek(&ada()).block().unwrap();
            let _ = self.engine.explain(&ada()).block().unwrap();
        }
    }

    fn charge(&self, cost: u64) -> bool {
        self.engine.check(&ada().cost(cost)).block().unwrap().is_allowed()
    }

    fn left(&self) -> u64 {
        self.engine.peek(&ada().cost(0)).block().unwrap().remaining().unwrap()
    }

    fn edit(&self, text: &str) -> &Self {
        self.look();
        let _ = self.engine.edit("test", Edit::policy(policy(text)));
        self.look();
        self
    }

    fn close_rounds(&self, rounds: u64) -> &Self {
        for _ in 0..rounds {
            self.engine.close_round("default", None).block().unwrap();
            self.look();
        }
        self
    }

    fn set(&self, given: Override) -> &Self {
        self.engine.edit("test", Edit::set_override(&RuleId::named("r"), given)).block().unwrap();
        self.look();
        self
    }
}

fn in_memory(text: &str, looks: bool) -> Desk {
    let clock = ManualClock::new(Timestamp::from_secs(START));
    let store = MemoryStore::new(10_000, WhenFull::Deny).unwrap();
    Desk {
        engine: StoreEngine::builder(policy(text))
            .store(store)
            .clock(clock.clone())
            .build()
            .unwrap(),
        clock,
        looks,
    }
}

fn on_disk(text: &str, disk: &CrashDisk, clock: &ManualClock, looks: bool) -> Desk {
    let options = FileOptions::default().max_keys(10_000).least_durability(Durability::Fsync);
    let store = options.open_on(Arc::new(disk.clone())).unwrap();
    let engine =
        StoreEngine::builder(policy(text)).store(store).clock(clock.clone()).build().unwrap();
    Desk { engine, clock: clock.clone(), looks }
}

/// Runs a sequence on both stores, with and without looks in between.
macro_rules! everywhere {
    ($text:expr, $desk:ident => $steps:block) => {
        for looks in [false, true] {
            {
                let $desk = in_memory($text, looks);
                $steps
            }
            {
                let clock = ManualClock::new(Timestamp::from_secs(START));
                let $desk = on_disk($text, &CrashDisk::new(), &clock, looks);
                $steps
            }
        }
    };
}

/// One rule for each user, with this limit and these further fields.
fn rule(limit: &str, more: &str) -> String {
    format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n{more}\n")
}

const OTHER: &str =
    "[[rule]]\nname = \"other\"\ndomain = \"other\"\nwindow = { max = 1, per = \"1s\" }\n";

#[test]
fn waiting_edit_that_has_counted_is_not_undone_by_an_edit_elsewhere() {
    let next = "effective = \"next\"";
    let quota = |max: u64| {
        rule(&format!("quota = {{ max = {max}, per = \"minute\", carry = \"all\" }}"), next)
    };
    everywhere!(&quota(100), desk => {
        assert!(desk.charge(100));
        desk.edit(&quota(1)).minutes(5);
        assert_eq!(desk.left(), 5);
        desk.edit(&(quota(1) + OTHER));
        assert_eq!(desk.left(), 5);
    });
}

#[test]
fn override_of_a_round_quota_ends_in_the_round_that_was_open_then() {
    let quota = rule("quota = { max = 1, per = \"round\", carry = \"all\" }", "");
    everywhere!(&quota, desk => {
        let until = (START + 10) * 1_000_000_000;
        let given = on_ada("quota = { max = 100, per = \"round\", carry = \"all\" }").until(until);
        desk.set(given);
        assert!(desk.charge(100));
        desk.wait(Duration::from_secs(20));
        desk.close_rounds(5);
        assert_eq!(desk.left(), 5);
    });
}

#[test]
fn round_that_is_open_when_an_override_ends_counts_under_the_common_limit() {
    let quota = rule("quota = { max = 1, per = \"round\", carry = \"all\" }", "");
    everywhere!(&quota, desk => {
        let until = (START + 10) * 1_000_000_000;
        desk.set(on_ada("quota = { max = 10, per = \"round\", carry = \"all\" }").until(until));
        assert!(desk.charge(1));
        // Two rounds under the override, and two under the common limit.
        desk.close_rounds(2).wait(Duration::from_secs(20));
        desk.close_rounds(2);
        assert_eq!(desk.left(), 9 + 10 + 1 + 1 + 1);
    });
}

#[test]
fn lowering_and_raising_at_one_instant_is_the_identity() {
    let huge = rule("bucket = { rate = \"1000000000/s\", burst = 5000000000000 }", "");
    let tiny = rule("bucket = { rate = \"1/365d\", burst = 1 }", "");
    everywhere!(&huge, desk => {
        assert!(desk.charge(5_000_000_000_000));
        desk.edit(&tiny);
        assert!(!desk.charge(1));
        desk.edit(&huge);
        assert_eq!(desk.left(), 0);
        desk.wait(Duration::from_secs(1));
        assert_eq!(desk.left(), 1_000_000_000);
    });
}

#[test]
fn bucket_that_a_limit_cannot_express_refills_at_that_limit() {
    let huge = rule("bucket = { rate = \"1000000000/s\", burst = 5000000000000 }", "");
    let tiny = rule("bucket = { rate = \"1/365d\", burst = 1 }", "");
    everywhere!(&huge, desk => {
        assert!(desk.charge(5_000_000_000_000));
        desk.edit(&tiny).wait(Duration::from_secs(365 * 86_400 * 3));
        desk.edit(&huge);
        assert_eq!(desk.left(), 3);
    });
}

#[test]
fn edits_of_overrides_wait_for_the_next_period_unless_they_count_now() {
    let quota = |max: u64| format!("quota = {{ max = {max}, per = \"minute\" }}");
    let text = rule(&quota(10), "effective = \"next\"");
    everywhere!(&text, desk => {
        desk.set(on_ada(&quota(3)));
        assert_eq!(desk.left(), 10);
        assert_eq!(desk.minutes(1).left(), 3);
        desk.engine.edit("test", Edit::remove_override(&RuleId::named("r"), on_ada(&quota(3)).key())).block().unwrap();
        assert_eq!(desk.left(), 3);
        assert_eq!(desk.minutes(1).left(), 10);
        desk.engine.edit("test", Edit::set_override(&RuleId::named("r"), on_ada(&quota(4))).now()).block().unwrap();
        assert_eq!(desk.left(), 4);
        let key = on_ada(&quota(4));
        desk.engine.edit("test", Edit::remove_override(&RuleId::named("r"), key.key()).now()).block().unwrap();
        assert_eq!(desk.left(), 10);
        // The end of an override counts at once.
        let until = (START + 150) * 1_000_000_000;
        let given = on_ada(&quota(5)).until(until);
        desk.engine.edit("test", Edit::set_override(&RuleId::named("r"), given).now()).block().unwrap();
        assert_eq!(desk.left(), 5);
        desk.wait(Duration::from_secs(30));
        assert_eq!(desk.left(), 10);
    });
}

#[test]
fn override_that_waits_can_be_brought_forward() {
    let quota = |max: u64| format!("quota = {{ max = {max}, per = \"minute\" }}");
    let text = rule(&quota(10), "effective = \"next\"");
    everywhere!(&text, desk => {
        assert!(desk.charge(2));
        desk.set(on_ada(&quota(3)));
        assert_eq!(desk.left(), 8);
        desk.engine.edit("test", Edit::set_override(&RuleId::named("r"), on_ada(&quota(3))).now()).block().unwrap();
        assert_eq!(desk.left(), 1);
        assert_eq!(desk.minutes(1).left(), 3);
    });
}

#[test]
fn pattern_override_counts_for_the_time_it_was_in_force() {
    let bucket = |rate: &str| format!("bucket = {{ rate = \"{rate}\", burst = 100 }}");
    everywhere!(&rule(&bucket("10/s"), ""), desk => {
        assert!(desk.charge(100));
        let mut given = on_ada(&bucket("1/s"));
        given = Override::new(vec![Condition::new("user", ["a*"]).unwrap()], given.grant().clone());
        desk.set(given.clone()).wait(Duration::from_secs(5));
        desk.engine.edit("test", Edit::remove_override(&RuleId::named("r"), given.key())).block().unwrap();
        desk.wait(Duration::from_secs(2));
        assert_eq!(desk.left(), 5 + 20);
    });
}

#[test]
fn settlement_counts_under_a_pattern_that_came_since() {
    let bucket = |rate: &str| format!("bucket = {{ rate = \"{rate}\", burst = 100 }}");
    everywhere!(&rule(&bucket("10/s"), ""), desk => {
        assert!(desk.charge(90));
        let hold = desk.engine.hold(&ada().cost(10)).block().unwrap().hold().unwrap();
        let grant = on_ada(&bucket("1/s")).grant().clone();
        desk.set(Override::new(vec![Condition::new("user", ["a*"]).unwrap()], grant));
        desk.wait(Duration::from_secs(5));
        desk.engine.commit(hold, None).block().unwrap();
        desk.wait(Duration::from_secs(5));
        assert_eq!(desk.left(), 10);
    });
}

#[test]
fn rule_that_is_removed_and_brought_back_goes_on() {
    let bucket = rule("bucket = { rate = \"1/s\", burst = 100 }", "");
    everywhere!(&bucket, desk => {
        assert!(desk.charge(100));
        desk.edit(OTHER).wait(Duration::from_secs(7));
        desk.edit(&bucket);
        assert_eq!(desk.left(), 7);
        // After a day it starts afresh.
        assert!(desk.charge(7));
        desk.edit(OTHER).wait(Duration::from_secs(86_400));
        desk.edit(&bucket);
        assert_eq!(desk.left(), 100);
    });
}

#[test]
fn file_override_and_a_tighter_one_of_an_admin_survive_a_restart() {
    let bucket = |rate: &str| format!("bucket = {{ rate = \"{rate}\", burst = 100 }}");
    let quota = |max: u64| format!("quota = {{ max = {max}, per = \"minute\", carry = \"all\" }}");
    for (common, file, admin, wanted) in [
        (bucket("1/s"), "rate = \"100/s\"", bucket("1/h"), 0),
        (quota(1), "max = 100", quota(1), 5),
    ] {
        let given = format!("override = [{{ key = {{ user = \"ada\" }}, {file} }}]");
        let text = rule(&common, &given);
        let clock = ManualClock::new(Timestamp::from_secs(START));
        let disk = CrashDisk::new();
        let desk = on_disk(&text, &disk, &clock, false);
        assert!(desk.charge(100));
        desk.set(on_ada(&admin));
        desk.minutes(5).edit(&(text.clone() + OTHER));
        drop(desk);
        let desk = on_disk(&(text.clone() + OTHER), &disk, &clock, false);
        assert_eq!(desk.left(), wanted, "{common}");
    }
}

#[test]
fn hold_of_a_closed_period_takes_no_room_in_another_calendar() {
    let quota = |max: u64, per: &str| {
        let quota = format!("quota = {{ max = {max}, per = \"{per}\" }}");
        rule(&quota, "reserve_for = \"65s\"")
    };
    everywhere!(&quota(1, "minute"), desk => {
        desk.wait(Duration::from_secs(5));
        let reserve = || desk.engine.hold(&ada()).block().unwrap().hold().unwrap();
        let first = reserve();
        desk.wait(Duration::from_secs(62)).edit(&quota(2, "hour"));
        desk.wait(Duration::from_millis(1_906));
        let second = reserve();
        assert_eq!(desk.left(), 1);
        desk.wait(Duration::from_millis(1_094));
        assert_eq!(desk.left(), 1, "the first has expired");
        assert!(desk.engine.cancel(first, None).block().is_err());
        desk.engine.cancel(second, None).block().unwrap();
        assert_eq!(desk.left(), 2);
    });
}

#[test]
fn other_keys_do_not_take_the_slot_of_a_key_whose_calendar_has_changed() {
    let quota = |per: &str| rule(&format!("quota = {{ max = 1, per = \"{per}\" }}"), "");
    everywhere!(&quota("minute"), desk => {
        assert!(desk.charge(1));
        desk.edit(&quota("hour")).wait(Duration::from_secs(61));
        for other in 0..200 {
            let name = format!("other-{other}");
            let request = [("user", name.as_str())];
            let _ = desk.engine.check(&Request::new("default", &request)).block().unwrap();
        }
        assert_eq!(desk.left(), 0);
    });
}

#[test]
fn commit_of_a_closed_period_is_booked_there_when_the_calendar_changes() {
    let quota = |per: &str, more: &str| {
        rule(&format!("quota = {{ max = 1, per = \"{per}\", debt = \"none\" }}"), more)
    };
    let given = "override = [{ key = { user = \"a*\" }, max = 3 }]";
    everywhere!(&quota("minute", given), desk => {
        let hold = desk.engine.hold(&ada().cost(2)).block().unwrap().hold().unwrap();
        desk.minutes(1).edit(&quota("hour", ""));
        assert_eq!(desk.engine.commit(hold, None).block().unwrap().charged, 2);
        assert_eq!(desk.left(), 1);
    });
}

#[test]
fn hold_that_expires_before_an_edit_is_released_under_the_limit_of_then() {
    let bucket = |rate: &str, burst: u64| {
        let bucket = format!("bucket = {{ rate = \"{rate}\", burst = {burst} }}");
        rule(&bucket, "reserve_for = \"9s\"")
    };
    everywhere!(&bucket("7/2s", 4), desk => {
        let _ = desk.engine.hold(&ada()).block().unwrap();
        // Nothing comes between the expiry and the edit.
        desk.clock.advance(Duration::from_secs(60));
        let _ = desk.engine.edit("test", Edit::policy(policy(&bucket("1/h", 1))));
        desk.clock.advance(Duration::from_secs(60));
        assert_eq!(desk.left(), 1);
    });
}

#[test]
fn limit_of_an_unlimited_key_changes_with_the_common_one() {
    let bucket = |rate: &str, burst: u64, more: &str| {
        let bucket = format!("bucket = {{ rate = \"{rate}\", burst = {burst} }}");
        rule(&bucket, &format!("reserve_for = \"2s\"\n{more}"))
    };
    let given = "override = [{ key = { user = \"a*\" }, rate = \"1/s\", burst = 5 }]";
    everywhere!(&bucket("1/s", 1, given), desk => {
        let _ = desk.engine.hold(&ada().cost(1)).block().unwrap();
        let _ = desk.engine.edit("test", Edit::policy(policy(&bucket("7/s", 1, ""))));
        desk.clock.advance(Duration::from_millis(1));
        let key = vec![Condition::new("user", ["a*"]).unwrap()];
        desk.set(Override::new(key.clone(), Grant::Unlimited));
        desk.clock.advance(Duration::from_nanos(183_000_001));
        let _ = desk.engine.edit("test", Edit::policy(policy(&bucket("1/s", 1, ""))));
        desk.clock.advance(Duration::from_millis(1_816));
        desk.engine.edit("test", Edit::remove_override(&RuleId::named("r"), &key)).block().unwrap();
        assert_eq!(desk.left(), 1);
    });
}
