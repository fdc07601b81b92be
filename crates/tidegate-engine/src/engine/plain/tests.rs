//! What the fast path decides of plain requests.

use tidegate_policy::policy::Policy;

use super::PlainRequest;
use crate::StoreEngine;
use crate::decision::Decisions;
use crate::plan::ChargeList;
use crate::request::Request;

const LIMITS: [&str; 5] = [
    "bucket = { rate = \"1000/s\", burst = 1000000 }",
    "window = { max = 1000000, per = \"1h\" }",
    "cooldown = \"1h\"",
    "sliding = { max = 1000000, per = \"1h\" }",
    "quota = { max = 1000000, per = \"day\" }",
];

fn policy(limits: &[&str], keys: [&str; 3]) -> Policy {
    let rules = limits.iter().zip(keys).enumerate().map(|(index, (limit, key))| {
        format!("[[rule]]\nname = \"r{index}\"\nkey = [{key}]\n{limit}\n")
    });
    Policy::from_toml(&rules.collect::<String>()).unwrap()
}

/// Charges a request if the fast path can, and returns whether it could.
fn is_fast(engine: &StoreEngine, attributes: &[(&str, &str)]) -> bool {
    let request = Request::new("default", attributes);
    let (rules, times) = engine.begin(None);
    let mut list: ChargeList = std::array::from_fn(|_| None);
    let mut plain = PlainRequest::new(engine, &rules, &request, Some(times)).unwrap();
    let (store, decisions) = (&engine.shared.store, &mut Decisions::new());
    plain.plan(&mut list)
        && store.fast_table().is_some_and(|table| {
            table.decide_fast(rules.version, times.now, &list, decisions).is_some()
        })
}

/// How many keys the fast path decides: when they are new, and when they have slots.
fn fast_keys(engine: &StoreEngine, keys: usize) -> (usize, usize) {
    let names: Vec<String> = (0..keys).map(|key| format!("user {key}")).collect();
    let attributes: Vec<_> = names.iter().map(|it| [("user", it.as_str()), ("org", "o")]).collect();
    let mut new = 0;
    for attributes in &attributes {
        new += usize::from(is_fast(engine, attributes));
        let _ = engine.check(&Request::new("default", attributes)).block().unwrap();
    }
    (new, attributes.iter().filter(|attributes| is_fast(engine, *attributes)).count())
}

#[test]
fn keys_of_narrow_slots_are_decided_fast_wherever_they_are_and_new_ones_in_their_home_lines() {
    let three = [LIMITS[0], LIMITS[1], LIMITS[0]];
    for limits in [&LIMITS[..1], &LIMITS[1..2], &LIMITS[2..3], &LIMITS[..2], &three] {
        let engine = StoreEngine::new(policy(limits, ["\"user\"", "\"org\"", ""]));
        let (new, known) = fast_keys(&engine, 2_000);
        if !cfg!(tidegate_locked) {
            assert_eq!(known, 2_000, "{limits:?}");
            assert!((1_000..2_000).contains(&new), "{new} of {limits:?}");
        }
        assert_eq!(engine.len(), 2_000 + limits.len() - 1, "every key is counted once");
    }
}

#[test]
fn new_keys_of_one_request_with_the_same_home_line_have_their_own_slots() {
    const ONCE: &str = "window = { max = 1, per = \"1h\" }";
    let engine = StoreEngine::new(policy(&[ONCE, ONCE], ["\"user\"", "\"org\"", ""]));
    let is_allowed = |user: &str, org: &str| {
        let attributes = [("user", user), ("org", org)];
        engine.check(&Request::new("default", &attributes)).block().unwrap().is_allowed()
    };
    for pair in 0..400 {
        let (user, org) = (format!("u{pair}"), format!("o{pair}"));
        assert!(is_allowed(&user, &org), "pair {pair} is new");
        assert!(!is_allowed(&user, &format!("other {org}")), "user {pair} is used up");
        assert!(!is_allowed(&format!("other {user}"), &org), "org {pair} is used up");
    }
    assert_eq!(engine.len(), 800, "denied requests make no key known");
}

#[test]
fn known_keys_of_wide_slots_are_decided_fast_in_their_home_lines() {
    for limit in &LIMITS[3..] {
        let several = [LIMITS[0], limit, LIMITS[1]];
        for limits in [&[*limit][..], &several] {
            let engine = StoreEngine::new(policy(limits, ["\"user\"", "\"org\"", ""]));
            let known = fast_keys(&engine, 5).1;
            assert_eq!(known, if cfg!(tidegate_locked) { 0 } else { 5 }, "{limits:?}");
        }
    }
}

#[test]
fn rules_that_do_not_apply_take_no_place() {
    let rules = (0..6).map(|index| {
        let key = if index % 2 == 0 { "user" } else { "other" };
        format!(
            "[[rule]]\nname = \"r{index}\"\nkey = [\"{key}\"]\nmissing = \"skip\"\n{}\n",
            LIMITS[1]
        )
    });
    let engine = StoreEngine::new(Policy::from_toml(&rules.collect::<String>()).unwrap());
    let known = fast_keys(&engine, 5).1;
    assert_eq!(known, if cfg!(tidegate_locked) { 0 } else { 5 }, "three of six apply");
    let both = [("user", "ada"), ("other", "x")];
    let report = engine.check(&Request::new("default", &both)).block().unwrap();
    assert_eq!(report.rules().count(), 6);
    assert!(!is_fast(&engine, &both), "six are too many");
}
