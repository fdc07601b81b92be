//! What can only be seen from inside: how much memory keys take, and slots between two paths.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use smallvec::smallvec;
use tidegate_core::{Bucket, Rate, Timestamp};

use super::*;
use crate::any_limit::NO_PERIOD;
use crate::policy::{Mode, Policy};
use crate::store::sealed::Store as _;
use crate::{Engine, ManualClock, Request};

/// The most bytes per key that a growing table takes, from a number of keys on.
fn most_bytes_per_key(limit: &str, from: usize, to: usize) -> usize {
    let policy = format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n");
    let clock = ManualClock::new(Timestamp::from_secs(1));
    let engine = Engine::with_clock(Policy::from_toml(&policy).unwrap(), clock);
    let mut most = 0;
    for key in 0..to {
        let user = key.to_string();
        let attributes = [("user", user.as_str())];
        let request = Request::new("default", &attributes);
        assert!(engine.check(&request).wait().unwrap().is_allowed(), "key {key}");
        if key >= from && key % 10_000 == 0 {
            most = most.max(engine.bytes() / engine.len());
        }
    }
    assert_eq!(engine.len(), to);
    most
}

#[test]
fn a_bucket_takes_at_most_53_bytes_in_a_growing_table() {
    let most = most_bytes_per_key("bucket = { rate = \"1/day\", burst = 1 }", 200_000, 800_000);
    assert!((40..=53).contains(&most), "{most}");
}

#[test]
fn a_quota_takes_at_most_175_bytes_in_a_growing_table() {
    let most = most_bytes_per_key("quota = { max = 1, per = \"day\" }", 100_000, 300_000);
    assert!((120..=175).contains(&most), "{most}");
}

/// A plan that charges one new key of each limit.
fn plan_of<'a>(version: u64, limits: &[&'a AnyLimit]) -> Plan<'a> {
    let charge = |(hash, limit): (u64, &&'a AnyLimit)| Charge {
        rule: 0,
        tag: 1,
        mode: Mode::Enforce,
        charge_refused: false,
        durability: Durability::Memory,
        family: hash,
        hash,
        cost: 1,
        is_by_request: true,
        limit,
        period: NO_PERIOD,
    };
    let charges = (1..).zip(limits).map(charge).collect();
    let act = Operation::Charge;
    Plan { version, act, charges, hold: None, name: None, note: None, requests: None }
}

/// The locked path claims a slot for a new key and leaves the decision to the path with holds. If
/// the rule is removed in between, no later plan has the key.
#[test]
fn slots_claimed_for_a_removed_rule_are_free_again() {
    let store = MemoryStore::new(10, WhenFull::Deny).unwrap();
    let times = Times { now: Timestamp::from_secs(1), wall: Timestamp::from_secs(1) };
    store.adopt(&Adoption { version: 1, rules: Vec::new() }, &|| times);
    let bucket = AnyLimit::Bucket(Bucket::new(Rate::per_second(1).unwrap(), 1).unwrap());
    let slots = AnyLimit::Slots(5);
    let plan = plan_of(1, &[&bucket, &slots]);
    let mut decisions: Decisions = smallvec![];
    let fallback = store.decide_locked(&plan, times, None, &mut decisions).unwrap_err();
    assert_eq!((fallback, store.len()), (Fallback::NeedsHoldTables, 1));
    store.adopt(&Adoption { version: 2, rules: Vec::new() }, &|| times);
    let superseded = store.decide_with_holds(&plan, times, &mut decisions).unwrap_err();
    assert!(matches!(superseded, DecideError::Superseded));
    assert_eq!(store.len(), 0, "the slot is claimed for ever");
}

/// The bytes of an engine after requests with these users, and some more for each.
fn bytes_after(
    policy: &str,
    users: std::ops::Range<usize>,
    then: impl Fn(&Engine<MemoryStore, ManualClock>, &Request<'_>),
) -> (usize, usize) {
    let clock = ManualClock::new(Timestamp::from_secs(1));
    let engine = Engine::with_clock(Policy::from_toml(policy).unwrap(), clock);
    let before = engine.bytes();
    for user in users {
        let user = user.to_string();
        let attributes = [("user", user.as_str())];
        then(&engine, &Request::new("default", &attributes));
    }
    (before, engine.bytes())
}

#[test]
fn bytes_include_holds_idempotency_keys_histories_and_overflow_counters() {
    let rule = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"1h\" }\n";
    let of_keys = bytes_after(rule, 0..20_000, |engine, request| {
        assert!(engine.check(request).wait().unwrap().is_allowed());
    });
    let of_holds = bytes_after(rule, 0..20_000, |engine, request| {
        assert!(engine.reserve(request).wait().unwrap().is_allowed());
    });
    assert!(of_holds.1 >= of_keys.1 + 20_000 * size_of::<(HoldId, Hold)>(), "{of_holds:?}");
    let of_names = bytes_after(rule, 0..20_000, |engine, request| {
        let key = request.attributes().get("user").unwrap().to_owned();
        let request = request.idempotency_key(&key);
        assert!(engine.check(&request).wait().unwrap().is_allowed());
    });
    assert!(of_names.1 >= of_keys.1 + 20_000 * size_of::<CachedResult>(), "{of_names:?}");
    let of_edits = bytes_after(rule, 0..1_000, |engine, request| {
        let max = request.attributes().get("user").unwrap();
        let edited = rule.replace("max = 5", &format!("max = 1{max}"));
        engine.replace_policy("test", Policy::from_toml(&edited).unwrap());
    });
    assert!(of_edits.1 >= of_edits.0 + 1_000 * 100, "{of_edits:?}");
}

#[test]
fn overflow_counters_take_at_most_an_eighth_of_the_table_for_all_rules() {
    let rule = "[[rule]]\nname = \"r\"\nkey = [\"user\"]\nwindow = { max = 5, per = \"1h\" }\n";
    let other = rule.replace("\"r\"", "\"other\"").replace("window", "sliding");
    let third = rule.replace("\"r\"", "\"third\"").replace("1h", "2h");
    let policy = format!("[server]\nmax_keys = 100_000\n{rule}{other}{third}");
    let clock = ManualClock::new(Timestamp::from_secs(1));
    let engine = Engine::with_clock(Policy::from_toml(&policy).unwrap(), clock);
    let overflow = || lock(&engine.store().tables).shared.bytes();
    for user in 0..100_000 {
        if user == 33_000 {
            assert_eq!(overflow(), 0);
        }
        let user = user.to_string();
        let attributes = [("user", user.as_str())];
        let _ = engine.check(&Request::new("default", &attributes)).wait().unwrap();
    }
    assert!(engine.len() <= 100_000);
    let most = engine.store().narrow.max_bytes() / 8;
    assert!((most / 2..=most + 1_000).contains(&overflow()), "{} of {most}", overflow());
}
