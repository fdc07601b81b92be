use std::time::Duration;

use super::*;
use crate::daemon::Daemon;
use crate::settings::Settings;
use tidegate::policy::{Parsed, Policy};
use tidegate::{Edit, StoreEngine};

const POLICY: &str = r#"
    [[rule]]
    name   = "per-user"
    key    = ["user"]
    window = { max = 2, per = "1h" }

    [[rule]]
    name   = "watched \"x\"\\"
    window = { max = 1, per = "1h" }
    mode   = "shadow"
"#;

fn daemon() -> Daemon {
    let policy = Policy::from_toml(POLICY).unwrap();
    let engine = StoreEngine::new(policy.clone());
    Daemon::new(engine, Settings::on_free_ports(Parsed::from_code(policy)))
}

fn check(daemon: &Daemon, user: &str) {
    let attributes = [("user", user)];
    let request = Request::new("default", &attributes);
    let report = daemon.engine.check(&request).block().unwrap();
    daemon.observe(Listener::Http, &request, &report);
}

#[test]
fn decisions_are_counted_by_rule_outcome_and_mode() {
    let daemon = daemon();
    (0..3).for_each(|_| check(&daemon, "ada"));
    let text = daemon.metrics_text();
    for line in [
        r#"tidegate_decisions_total{domain="default",rule="per-user",outcome="allow",mode="enforce"} 2"#,
        r#"tidegate_decisions_total{domain="default",rule="per-user",outcome="deny",mode="enforce"} 1"#,
        r#"tidegate_decisions_total{domain="default",rule="watched \"x\"\\",outcome="allow",mode="shadow"} 1"#,
        r#"tidegate_decisions_total{domain="default",rule="watched \"x\"\\",outcome="deny",mode="shadow"} 2"#,
        r#"tidegate_unmatched_total{domain="default"} 0"#,
        r#"tidegate_unmatched_total{domain=""} 0"#,
        "tidegate_table_keys 2",
        "tidegate_abandoned_operations_dropped_total 0",
        "tidegate_rules 2",
    ] {
        assert!(text.lines().any(|it| it == line), "no line {line} in\n{text}");
    }
}

#[test]
fn counts_continue_after_an_edit_of_the_policy() {
    let daemon = daemon();
    check(&daemon, "ada");
    let edited = Policy::from_toml(&POLICY.replace("max = 2", "max = 1")).unwrap();
    let _ = daemon.engine.edit("test", Edit::policy(edited));
    check(&daemon, "ada");
    let tally = &daemon.engine.tallies()[0];
    assert_eq!((tally.allowed, tally.denied), (1, 1));
}

#[test]
fn requests_that_no_rule_matches_are_counted_apart() {
    let rule = "[[rule]]\nname = 'a'\ndomain = 'api'\nmatch = { m = 'x' }\ncooldown = '1s'\n";
    let policy = Policy::from_toml(rule).unwrap();
    let engine = StoreEngine::new(policy.clone());
    let daemon = Daemon::new(engine, Settings::on_free_ports(Parsed::from_code(policy)));
    for domain in ["api", "elsewhere", "anywhere", "nowhere"] {
        let request = Request::new(domain, &[]);
        let report = daemon.engine.check(&request).block().unwrap();
        daemon.observe(Listener::Http, &request, &report);
    }
    let text = daemon.metrics_text();
    let lines: Vec<_> =
        text.lines().filter(|line| line.starts_with("tidegate_unmatched_total")).collect();
    // Domains that only clients know have no label of their own.
    let expected =
        [r#"tidegate_unmatched_total{domain="api"} 1"#, r#"tidegate_unmatched_total{domain=""} 3"#];
    assert_eq!(lines, expected);
}

#[test]
fn banned_requests_are_counted_apart() {
    let daemon = daemon();
    let ban = tidegate::edit::Overlay::from_toml(
        "[[ban]]\ndomain = \"default\"\nmatch = { user = \"eve\" }\n",
    )
    .unwrap();
    daemon.engine.edit("test", Edit::ban(ban.bans()[0].clone())).block().unwrap();
    check(&daemon, "eve");
    let text = daemon.metrics_text();
    assert!(text.contains("\ntidegate_banned_total 1\n"), "{text}");
    assert!(text.contains("\ntidegate_unmatched_total{domain=\"default\"} 0\n"), "{text}");
}

#[test]
fn every_family_appears_once_and_every_sample_belongs_to_one() {
    let text = daemon().metrics_text();
    let mut families = Vec::new();
    let mut samples = std::collections::HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(!families.contains(&name), "{name} twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            families.push(name);
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(samples.insert(sample), "{sample} twice");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let last = families.last().unwrap();
            assert!(sample.starts_with(last), "{sample} is not of {last}");
        }
    }
}

#[test]
fn times_fall_between_their_bounds() {
    let histogram = Histogram::default();
    for us in [0, 5, 6, 1_000_000, 1_000_001] {
        histogram.add(Duration::from_micros(us), 1);
    }
    let reading = histogram.read();
    assert_eq!(reading.at_most[0], (Duration::from_micros(5), 2));
    assert_eq!(reading.at_most[1].1, 3);
    assert_eq!(reading.at_most.last().unwrap(), &(Duration::from_secs(1), 4));
    assert_eq!((reading.count, reading.sum), (5, Duration::from_micros(2_000_012)));
}

#[test]
fn few_decisions_are_all_sampled_and_many_in_part() {
    let second = |s: u64| Timestamp::from_nanos(s * 1_000_000_000);
    let seen: u64 = (0..100_000).filter_map(|_| sampled(second(7))).sum();
    assert!((99_980..=100_020).contains(&seen), "{seen}");
    assert_eq!(sampled(second(8)), Some(1));
}
