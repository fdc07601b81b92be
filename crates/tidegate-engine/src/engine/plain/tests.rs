//! What the straight line decides: known keys of plain rules, wherever their slots are.

use tidegate_policy::policy::Policy;

use crate::Engine;
use crate::engine::domain::DomainName;
use crate::engine::report::Report;
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

/// Whether the straight line decides a request.
fn is_plain(engine: &Engine, attributes: &[(&str, &str)]) -> bool {
    let request = Request::new("default", attributes);
    let find = DomainName::of(std::slice::from_ref(&request));
    let mut report = Report::new(&engine.shared.rules);
    engine.decide_plain(&mut report, &find, &request, None)
}

/// How many of the keys, which all have slots, are decided plainly.
fn plain_keys(engine: &Engine, keys: usize) -> usize {
    let names: Vec<String> = (0..keys).map(|key| format!("user {key}")).collect();
    let attributes: Vec<_> = names.iter().map(|it| [("user", it.as_str()), ("org", "o")]).collect();
    for attributes in &attributes {
        assert!(!is_plain(engine, attributes), "a new key needs a slot");
        let _ = engine.check(&Request::new("default", attributes)).block().unwrap();
    }
    attributes.iter().filter(|attributes| is_plain(engine, *attributes)).count()
}

#[test]
fn known_keys_of_narrow_slots_are_decided_plainly_wherever_they_are() {
    for limit in &LIMITS[..3] {
        let engine = Engine::new(policy(&[limit], ["\"user\"", "", ""]));
        assert_eq!(plain_keys(&engine, 2_000), 2_000, "{limit}");
    }
    let engine = Engine::new(policy(&LIMITS[..2], ["\"user\"", "\"org\"", ""]));
    assert_eq!(plain_keys(&engine, 2_000), 2_000);
    let engine =
        Engine::new(policy(&[LIMITS[0], LIMITS[1], LIMITS[0]], ["\"user\"", "\"org\"", ""]));
    assert_eq!(plain_keys(&engine, 2_000), 2_000);
}

#[test]
fn known_keys_of_wide_slots_are_decided_plainly_in_their_home_lines() {
    for limit in &LIMITS[3..] {
        let engine = Engine::new(policy(&[limit], ["\"user\"", "", ""]));
        assert_eq!(plain_keys(&engine, 5), 5, "{limit}");
        let engine =
            Engine::new(policy(&[LIMITS[0], limit, LIMITS[1]], ["\"user\"", "\"org\"", ""]));
        assert_eq!(plain_keys(&engine, 5), 5, "{limit} and others");
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
    let engine = Engine::new(Policy::from_toml(&rules.collect::<String>()).unwrap());
    assert_eq!(plain_keys(&engine, 5), 5, "three of six apply");
    let both = [("user", "ada"), ("other", "x")];
    let report = engine.check(&Request::new("default", &both)).block().unwrap();
    assert_eq!(report.rules().count(), 6);
    assert!(!is_plain(&engine, &both), "six are too many");
}
