use std::sync::atomic::Ordering;

use tidegate::policy::{Policy, RuleId};
use tidegate::{Request, StoreEngine, Timestamp, report::KeyName};

use super::{
    Entry, JOINED_FROM, LEAST_KEYS, MOST_BYTES, RuleRequests, Sample, WINDOW_NS, index_of, mix,
};

const POLICY: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    window = { max = 3, per = "1h" }

    [[rule]]
    name   = "everyone"
    window = { max = 5, per = "1h" }
"#;

fn start() -> (StoreEngine, Sample) {
    (StoreEngine::new(Policy::from_toml(POLICY).unwrap()), Sample::default())
}

fn check(engine: &StoreEngine, sample: &Sample, user: &str) -> bool {
    let attributes = [("user", user)];
    let request = Request::new("default", &attributes);
    let report = engine.check(&request).block().unwrap();
    sample.observe(engine, std::slice::from_ref(&request), &report);
    report.is_allowed()
}

fn entry(at_ns: u64, key: u64) -> Entry {
    Entry {
        at: Timestamp::from_nanos(at_ns),
        key,
        cost: 1,
        count: 1,
        is_denied: false,
        is_denied_by_others: false,
    }
}

fn name(value: &str) -> KeyName {
    KeyName::new(RuleId::named("r"), vec![("user".into(), Some(value.into()))])
}

#[test]
fn all_requests_of_a_few_keys_are_in_the_sample() {
    let (engine, sample) = start();
    for _ in 0..4 {
        check(&engine, &sample, "ada");
    }
    check(&engine, &sample, "bob");
    let rule = sample.of_rule(&RuleId::named("per-user")).unwrap();
    assert_eq!((rule.keys.len(), rule.halvings, rule.is_whole), (2, 0, true));
    let of = |wanted: &str| {
        let is_wanted = |(_, value): (&str, Option<&str>)| value == Some(wanted);
        rule.keys.iter().find(|key| key.name.parts().all(is_wanted)).unwrap()
    };
    let denied: Vec<_> = of("ada").requests.iter().map(|it| it.is_denied).collect();
    assert_eq!(denied, [false, false, false, true]);
    assert_eq!(of("bob").requests.len(), 1);
    // The fourth request was denied by the other rule.
    let everyone = sample.of_rule(&RuleId::named("everyone")).unwrap();
    let others: Vec<_> =
        everyone.keys[0].requests.iter().map(|it| it.is_denied_by_others).collect();
    assert_eq!(others, [false, false, false, true, false]);
    assert!(sample.of_rule(&RuleId::named("unknown")).is_none());
}

#[test]
fn a_peek_by_cost_is_not_in_the_sample() {
    let (engine, sample) = start();
    let request = Request::new("default", &[("user", "ada")]).cost(0);
    let report = engine.check(&request).block().unwrap();
    sample.observe(&engine, std::slice::from_ref(&request), &report);
    assert!(sample.of_rule(&RuleId::named("per-user")).is_none());
}

#[test]
fn memory_is_bounded_and_sampled_keys_keep_all_their_requests() {
    let sample = Sample::default();
    let (large, small) = (RuleId::named("large"), RuleId::named("small"));
    for round in 0..3 {
        for key in 0..40_000 {
            let entry = entry(round, mix(key));
            sample.add(&large, entry, true, || name(&key.to_string()));
            if key < 10 {
                sample.add(&small, entry, true, || name(&key.to_string()));
            }
            assert!(sample.lock().bytes <= MOST_BYTES);
        }
    }
    let rule = sample.of_rule(&large).unwrap();
    assert!(rule.halvings >= 1);
    let (share, keys) = (40_000 >> rule.halvings, rule.keys.len());
    assert!(keys > share * 9 / 10 && keys < share * 11 / 10, "{keys} keys for {share}");
    assert!(rule.is_whole && rule.keys.iter().all(|key| key.requests.len() == 3));
    let published = sample.bounds[index_of(&large)].load(Ordering::Relaxed);
    assert_eq!(published, u64::MAX >> rule.halvings);
    let rule = sample.of_rule(&small).unwrap();
    assert_eq!((rule.halvings, rule.keys.len()), (0, 10), "a small rule is not affected");
}

#[test]
fn a_rule_with_many_keys_keeps_half_of_them() {
    let mut rule = RuleRequests::new(Timestamp::ZERO);
    for key in 0..1_000_u64 {
        for at in 0..3 {
            rule.add(entry(at, mix(key)), true, || name(&key.to_string()));
        }
    }
    rule.shrink();
    assert_eq!(rule.halvings, 1);
    assert!((400..600).contains(&rule.keys.len()), "{}", rule.keys.len());
    assert_eq!(rule.entries.len(), 3 * rule.keys.len());
    assert_eq!(rule.since, Timestamp::ZERO);
    let other = mix(1 << 40) | 1 << 63;
    assert_eq!(rule.add(entry(9, other), true, || name("x")), 0, "above the bound");
}

#[test]
fn a_rule_with_few_keys_keeps_its_newest_requests() {
    let mut rule = RuleRequests::new(Timestamp::ZERO);
    for at in 0..1_000 {
        rule.add(entry(at, at % (LEAST_KEYS as u64 - 1)), true, || name("x"));
    }
    rule.shrink();
    assert_eq!((rule.halvings, rule.entries.len()), (0, 500));
    assert_eq!(rule.since, Timestamp::from_nanos(500));
    let counted: usize = rule.keys.values().map(|key| key.entries).sum();
    assert_eq!(counted, 500);
}

#[test]
fn a_key_with_a_long_name_is_left_out() {
    let mut rule = RuleRequests::new(Timestamp::ZERO);
    assert_eq!(rule.add(entry(1, 7), true, || name(&"x".repeat(5_000))), 0);
    assert!(rule.keys.is_empty() && rule.entries.is_empty() && !rule.is_whole);
}

#[test]
fn requests_of_a_busy_key_are_joined() {
    let mut rule = RuleRequests::new(Timestamp::ZERO);
    for at in 0..2 * JOINED_FROM as u64 {
        rule.add(entry(at, 7), true, || name("x"));
    }
    assert_eq!(rule.entries.len(), JOINED_FROM);
    let last = rule.entries.back().map(|it| it.count as usize);
    assert_eq!(last, Some(1 + JOINED_FROM));
    assert!(!rule.is_whole);
}

#[test]
fn old_requests_and_their_keys_are_forgotten() {
    let (engine, sample) = start();
    check(&engine, &sample, "ada");
    let later =
        |ns| Timestamp::from_nanos(tidegate::clock::Clock::now(engine.clock()).as_nanos() + ns);
    sample.tidy(later(0));
    assert!(sample.of_rule(&RuleId::named("per-user")).is_some());
    sample.tidy(later(WINDOW_NS));
    assert!(sample.of_rule(&RuleId::named("per-user")).is_none());
    assert_eq!(sample.lock().bytes, 0);
}
