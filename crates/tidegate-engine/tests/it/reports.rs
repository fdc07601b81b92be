//! Reports of one thread share their memory one after the other, and nothing else.

use std::thread;

use tidegate::policy::{Condition, Policy, RuleId};
use tidegate::{Edit, Report, Request, StoreEngine, edit::Ban};

fn engine(text: &str) -> StoreEngine {
    StoreEngine::new(Policy::from_toml(text).unwrap())
}

fn window(name: &str, max: u64) -> String {
    format!(
        "[[rule]]\nname = \"{name}\"\nkey = [\"user\"]\nwindow = {{ max = {max}, per = \"1h\" }}\n"
    )
}

fn check(engine: &StoreEngine, user: &str) -> Report {
    engine.check(&Request::new("default", &[("user", user)])).block().unwrap()
}

/// The names of the rules that decided, and what remains at each.
fn remaining(report: &Report) -> Vec<(String, u64)> {
    report.rules().map(|it| (it.rule.name().into(), it.decision.remaining())).collect()
}

#[test]
fn a_report_moves_as_a_pointer() {
    assert_eq!(size_of::<Report>(), size_of::<usize>());
}

#[test]
fn reports_at_the_same_time_are_independent() {
    let engine = engine(&[window("one", 5), window("two", 9)].concat());
    let reports: Vec<Report> = (0..5).map(|_| check(&engine, "ada")).collect();
    let denied = check(&engine, "ada");
    for (used, report) in (1..).zip(&reports) {
        assert!(report.is_allowed());
        assert_eq!(remaining(report), [("one".into(), 5 - used), ("two".into(), 9 - used)]);
    }
    assert_eq!(denied.rule().map(RuleId::name), Some("one"));
    assert_eq!(remaining(&denied), [("one".into(), 0), ("two".into(), 4)], "nothing was charged");
}

#[test]
fn a_report_has_nothing_of_the_one_before() {
    let engine = engine(&[window("one", 1_000), window("two", 9)].concat());
    let ban = Ban::new("default", vec![Condition::new("user", ["bob"]).unwrap()]);
    engine.edit("test", Edit::ban(ban.reason("abuse"))).block().unwrap();

    let held = engine.hold(&Request::new("default", &[("user", "ada")])).block().unwrap();
    assert!(held.hold().is_some());
    drop(held);
    let together = [Request::new("default", &[("user", "ada")]); 2];
    let several = engine.check_together(&together).block().unwrap();
    assert_eq!(several.details().rules_of(1).count(), 2);
    drop(several);
    let banned = check(&engine, "bob");
    assert_eq!(banned.reason().as_deref(), Some("abuse"));
    drop(banned);
    let lacking = engine.check(&Request::new("default", &[])).block().unwrap();
    assert_eq!(lacking.missing_attribute(), Some("user"));
    drop(lacking);

    let report = check(&engine, "cyd");
    assert!(report.is_allowed() && !report.details().is_banned() && !report.is_repeat());
    assert_eq!((report.hold(), report.reason()), (None, None));
    assert_eq!((report.missing_attribute(), report.details().denied_request()), (None, None));
    assert_eq!(
        report.details().rules_of(1).count(),
        2,
        "one request: all rules, whatever the index"
    );
    assert_eq!(remaining(&report), [("one".into(), 999), ("two".into(), 8)]);
}

#[test]
fn engines_on_one_thread_decide_by_their_own_rules() {
    let (first, second) = (engine(&window("first", 9)), engine(&window("second", 5)));
    for used in 1..=5 {
        assert_eq!(remaining(&check(&first, "ada")), [("first".into(), 9 - used)]);
        assert_eq!(remaining(&check(&second, "ada")), [("second".into(), 5 - used)]);
    }
}

#[test]
fn an_edit_counts_for_the_next_request_of_every_thread() {
    let engine = engine(&window("one", 100));
    for round in 0..20_u64 {
        let max = 100 + round;
        let seen: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| check(&engine, "ada"))).collect();
            threads.into_iter().map(|it| it.join().unwrap().limit()).collect()
        });
        assert_eq!(seen, [Some(max); 2], "a report outlives its thread");
        assert_eq!(check(&engine, "ada").limit(), Some(max));
        let policy = Policy::from_toml(&window("one", max + 1)).unwrap();
        engine.edit("test", Edit::policy(policy)).block().unwrap();
    }
}

#[test]
fn a_ban_counts_for_the_next_request() {
    let engine = engine(&window("one", 100));
    assert!(check(&engine, "bob").is_allowed());
    let conditions = vec![Condition::new("user", ["bob"]).unwrap()];
    engine.edit("test", Edit::ban(Ban::new("default", conditions.clone()))).block().unwrap();
    assert!(check(&engine, "bob").details().is_banned());
    engine.edit("test", Edit::unban("default", &conditions)).block().unwrap();
    assert!(check(&engine, "bob").is_allowed());
}
