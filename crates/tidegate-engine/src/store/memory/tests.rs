//! What can only be seen from inside: how much memory keys take, and slots between two paths.

#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use tidegate_core::{Bucket, Timestamp};
use tidegate_policy::policy::{Charging, Mode, Policy};
use tidegate_table::ManualClock;
use tidegate_table::table::{Narrow, Tagged};

use super::edits::MOST_SUPERSEDED;
use super::*;
use crate::any_limit::NO_PERIOD;
use crate::plan::{ChargeTerms, IdempotencyKey};
use crate::{Edit, Request, StoreEngine};

/// The most bytes per key that a growing table takes, from a number of keys on.
fn most_bytes_per_key(limit: &str, from: usize, to: usize) -> usize {
    let policy = format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{limit}\n");
    let clock = ManualClock::new(Timestamp::from_secs(1));
    let engine =
        StoreEngine::builder(Policy::from_toml(&policy).unwrap()).clock(clock).build().unwrap();
    let mut most = 0;
    for key in 0..to {
        let user = key.to_string();
        let attributes = [("user", user.as_str())];
        let request = Request::new("default", &attributes);
        assert!(engine.check(&request).block().unwrap().is_allowed(), "key {key}");
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
fn plan_of(version: u64, limits: &[AnyLimit]) -> Plan<'static> {
    let charge = |(hash, limit): (u64, &AnyLimit)| Charge {
        rule: 0,
        tag: 1,
        mode: Mode::Enforce,
        terms: ChargeTerms {
            charging: Charging::Allowed,
            durability: Durability::Memory,
            sets_durability: false,
            is_by_request: true,
        },
        family: hash,
        hash,
        cost: 1,
        limit: *limit,
        period: NO_PERIOD,
    };
    let charges = (1..).zip(limits).map(charge).collect();
    Plan { charges, ..Plan::new(version, Operation::Charge) }
}

/// The locked path claims a slot for a new key and leaves the decision to the path with holds. If
/// the rule is removed in between, no later plan has the key.
#[test]
fn slots_claimed_for_a_removed_rule_are_free_again() {
    let store = MemoryStore::new(10, WhenFull::Deny).unwrap();
    let times = Times { now: Timestamp::from_secs(1), wall: Timestamp::from_secs(1) };
    store.adopt(&Adoption { version: 1, rules: Vec::new() }, &|| times);
    let bucket = AnyLimit::Bucket(Bucket::per_second(1));
    let slots = AnyLimit::Slots(5);
    let plan = plan_of(1, &[bucket, slots]);
    let mut decisions = Decisions::new();
    let fallback = store.decide_locked(&plan, times, None, &mut decisions).unwrap_err();
    assert_eq!((fallback, store.len()), (Fallback::NeedsHoldTables, 1));
    store.adopt(&Adoption { version: 2, rules: Vec::new() }, &|| times);
    let superseded = store.decide_with_holds(&plan, times, &mut decisions).unwrap_err();
    assert!(matches!(superseded, Failure::Superseded));
    assert_eq!(store.len(), 0, "the slot is claimed for ever");
}

/// The bytes of an engine after requests with these users, and some more for each.
fn bytes_after(
    policy: &str,
    users: std::ops::Range<usize>,
    then: impl Fn(&StoreEngine, &Request<'_>),
) -> (usize, usize) {
    let clock = ManualClock::new(Timestamp::from_secs(1));
    let engine =
        StoreEngine::builder(Policy::from_toml(policy).unwrap()).clock(clock).build().unwrap();
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
        assert!(engine.check(request).block().unwrap().is_allowed());
    });
    let of_holds = bytes_after(rule, 0..20_000, |engine, request| {
        assert!(engine.hold(request).block().unwrap().is_allowed());
    });
    assert!(of_holds.1 >= of_keys.1 + 20_000 * size_of::<(HoldId, Hold)>(), "{of_holds:?}");
    let of_names = bytes_after(rule, 0..20_000, |engine, request| {
        let key = request.attributes().get("user").unwrap().to_owned();
        let request = request.idempotency_key(&key);
        assert!(engine.check(&request).block().unwrap().is_allowed());
    });
    assert!(of_names.1 >= of_keys.1 + 20_000 * size_of::<CachedResult>(), "{of_names:?}");
    let of_edits = bytes_after(rule, 0..1_000, |engine, request| {
        let max = request.attributes().get("user").unwrap();
        let edited = rule.replace("max = 5", &format!("max = 1{max}"));
        engine.edit("test", Edit::policy(Policy::from_toml(&edited).unwrap())).block().unwrap();
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
    let engine =
        StoreEngine::builder(Policy::from_toml(&policy).unwrap()).clock(clock).build().unwrap();
    let overflow = || lock(&engine.store().table().tables).shared.bytes();
    for user in 0..100_000 {
        if user == 33_000 {
            assert_eq!(overflow(), 0);
        }
        let user = user.to_string();
        let attributes = [("user", user.as_str())];
        let _ = engine.check(&Request::new("default", &attributes)).block().unwrap();
    }
    assert!(engine.len() <= 100_000);
    let most = engine.store().table().narrow.max_bytes() / 8;
    assert!((most / 2..=most + 1_000).contains(&overflow()), "{} of {most}", overflow());
}

/// Rules whose limits change with every edit. What the keys have left follows from the rates.
fn edited_policy(edit: usize) -> Policy {
    let rate = rate_after(edit);
    let (max, other) = (1_000 + edit % 2, 1 + edit % 2);
    let reserve = "reserve_for = \"2d\"\n";
    let bucket = |domain: &str, of: &str| {
        format!(
            "[[rule]]\nname = \"r\"\ndomain = \"{domain}\"\nkey = [\"user\"]\n{reserve}\
             bucket = {{ rate = \"{rate}/s\", burst = 100_000 }}\n\
             override = [{{ key = {{ user = \"{of}\" }}, rate = \"{other}/s\", burst = 100_000 }}]\n"
        )
    };
    let text = format!(
        "{}{}[[rule]]\nname = \"r\"\ndomain = \"quota\"\nkey = [\"user\"]\n{reserve}\
         quota = {{ max = {max}, per = \"round\" }}\n",
        bucket("exact", "own"),
        bucket("pattern", "vip-*"),
    );
    Policy::from_toml(&text).unwrap()
}

fn rate_after(edit: usize) -> usize {
    1 + edit % 3
}

/// Units that come back from one edit to the end, half a second after the last of `EDITS`. Edits
/// are a second apart.
fn refilled(from: usize, rate: impl Fn(usize) -> usize) -> usize {
    let halves = (from..EDITS - 1).map(|edit| 2 * rate(edit)).sum::<usize>() + 3 * rate(EDITS - 1);
    halves / 2
}

const EDITS: usize = 10_000;

/// Units of a bucket that are left at the end, of 100 000, after a charge of 60 000.
fn left_of_bucket(from: usize, rate: impl Fn(usize) -> usize) -> u64 {
    u64::try_from(40_000 + refilled(from, rate)).unwrap()
}

struct Edited {
    engine: StoreEngine,
    clock: ManualClock,
    /// The most versions that a rule without patterns had, and one with patterns.
    versions: [usize; 2],
}

impl Edited {
    /// Edits all rules every second, and calls a function after each edit.
    fn run(mut after: impl FnMut(&StoreEngine, usize)) -> Self {
        let policies: Vec<Policy> = (0..6).map(edited_policy).collect();
        let clock = ManualClock::new(Timestamp::from_secs(1));
        let engine =
            StoreEngine::builder(policies[0].clone()).clock(clock.clone()).build().unwrap();
        let mut versions = [0; 2];
        after(&engine, 0);
        for edit in 1..EDITS {
            clock.advance(std::time::Duration::from_secs(1));
            engine.edit("test", Edit::policy(policies[edit % 6].clone())).block().unwrap();
            after(&engine, edit);
            for rule in engine.store().history().rules() {
                let most = &mut versions[usize::from(rule.has_patterns())];
                *most = rule.versions.len().max(*most);
            }
        }
        clock.advance(std::time::Duration::from_millis(1_500));
        Self { engine, clock, versions }
    }
}

fn charge(engine: &StoreEngine, domain: &str, user: &str, cost: u64) {
    let attributes = [("user", user)];
    let request = Request::new(domain, &attributes).cost(cost);
    assert!(engine.check(&request).block().unwrap().is_allowed(), "{domain} {user}");
}

fn left(engine: &StoreEngine, domain: &str, user: &str) -> u64 {
    let attributes = [("user", user)];
    engine.peek(&Request::new(domain, &attributes)).block().unwrap().remaining().unwrap()
}

fn hold(engine: &StoreEngine, (domain, user): (&str, &str), cost: u64) -> HoldId {
    let attributes = [("user", user)];
    let request = Request::new(domain, &attributes).cost(cost);
    engine.hold(&request).block().unwrap().hold().unwrap()
}

#[test]
fn ten_thousand_edits_leave_states_exact_and_histories_bounded() {
    let mut holds = Vec::new();
    let Edited { engine, clock, versions } = Edited::run(|engine, edit| {
        if edit % 1_000 == 0 {
            charge(engine, "exact", &format!("at-{edit}"), 60_000);
            charge(engine, "quota", &format!("at-{edit}"), 100);
            charge(engine, "pattern", &format!("at-{edit}"), 60_000);
        }
        if edit == 500 {
            charge(engine, "exact", "own", 60_000);
            charge(engine, "exact", "held", 60_000);
            holds.push(hold(engine, ("exact", "held"), 100));
            holds.push(hold(engine, ("quota", "held"), 10));
            holds.push(hold(engine, ("quota", "settled"), 50));
            assert_eq!(engine.commit(holds[2], None).block().map(|done| done.charged), Ok(50));
            charge(engine, "pattern", "vip-1", 60_000);
            holds.push(hold(engine, ("pattern", "vip-1"), 100));
            charge(engine, "pattern", "vip-2", 60_000);
        }
        // Looking changes nothing.
        if edit % 700 == 0 {
            let _ = left(engine, "exact", "at-0");
        }
    });
    for edit in (0..EDITS).step_by(1_000) {
        let user = format!("at-{edit}");
        let bucket = left_of_bucket(edit, rate_after);
        assert_eq!(left(&engine, "exact", &user), bucket, "{edit}");
        assert_eq!(left(&engine, "quota", &user), 901, "{edit}");
        // A pattern may match a key that is not known: it may be denied for too long, never allowed
        // too much.
        let by_pattern = left(&engine, "pattern", &user);
        assert!(by_pattern <= bucket, "{edit}: {by_pattern} of {bucket}");
        assert!(by_pattern == bucket || edit < EDITS - MOST_SUPERSEDED, "{edit}");
    }
    let other_rate = |edit: usize| 1 + edit % 2;
    assert_eq!(left(&engine, "exact", "own"), left_of_bucket(500, other_rate));
    assert_eq!(left(&engine, "exact", "held"), left_of_bucket(500, rate_after) - 100);
    assert_eq!(left(&engine, "pattern", "vip-1"), left_of_bucket(500, other_rate) - 100);
    // Its version was dropped.
    assert!(left(&engine, "pattern", "vip-2") < left_of_bucket(500, other_rate));
    assert_eq!(left(&engine, "quota", "held"), 991);
    assert_eq!(engine.commit(holds[1], Some(7)).block().map(|done| done.charged), Ok(7));
    assert_eq!(left(&engine, "quota", "held"), 994);
    assert_eq!(engine.refund_hold(holds[2], 20).block(), Ok(20));
    assert_eq!(left(&engine, "quota", "settled"), 971);
    assert_eq!(engine.cancel(holds[0], None).block(), Ok(0));
    assert_eq!(left(&engine, "exact", "held"), left_of_bucket(500, rate_after));
    assert!(versions[0] <= MOST_SUPERSEDED && versions[1] <= 2 * MOST_SUPERSEDED, "{versions:?}");
    // What counts as fully used comes back like everything else.
    clock.advance(std::time::Duration::from_secs(200_000));
    assert_eq!(left(&engine, "pattern", "vip-2"), 100_000);
    assert_eq!(left(&engine, "pattern", "at-0"), 100_000);
}

#[test]
fn domain_with_most_idempotency_keys_loses_its_oldest() {
    let mut tables = HoldTables::new(StoreBounds::new(10, WhenFull::Deny));
    let now = Timestamp::from_secs(1_000_000);
    let key = |domain, number| IdempotencyKey { domain, name: [domain, number], body: number };
    let keep = |tables: &mut HoldTables, domain, number| {
        let response =
            CachedResponse::Charged { is_allowed: true, hold: None, decisions: Box::default() };
        tables.cache_result(key(domain, number), response, now);
    };
    keep(&mut tables, 1, 0);
    for number in 0..1 << 20 {
        keep(&mut tables, 2, number);
    }
    let mut is_kept = |domain, number| tables.recall(key(domain, number), now).unwrap().is_some();
    assert!(is_kept(1, 0), "the domain with few keeps its own");
    assert!(!is_kept(2, 0));
    assert!(is_kept(2, 1));
    assert_eq!(tables.evicted_names(), 1);
}

#[test]
fn restoring_drops_no_state_that_looks_idle() {
    let store = MemoryStore::new(1 << 16, WhenFull::Deny).unwrap();
    // Their limit is not known yet, and whether they have holds neither.
    let packed = Narrow { high: 0, low: 1 };
    let hashes = (1..=20_000_u64).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for hash in hashes.clone() {
        let image = StateImage::Narrow(Tagged { tag: 1, packed });
        store.restore_beside(hash, image).unwrap();
    }
    assert_eq!(store.len(), 20_000);
    let kept = hashes.filter(|hash| store.narrow.lock_chain(*hash).1.find(*hash).is_some());
    assert_eq!(kept.count(), 20_000);
}
