#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use tidegate_core::{Bucket, Rate};
use tidegate_policy::policy::Condition;

use super::*;

fn bucket(burst: u64) -> AnyLimit {
    AnyLimit::Bucket(Bucket::try_new(Rate::per_second(1), burst).unwrap())
}

fn at(secs: u64) -> Times {
    Times { now: Timestamp::from_secs(secs), wall: Timestamp::from_secs(secs) }
}

fn edit(tag: u32, secs: u64) -> RuleEdit {
    RuleEdit { family: 1, tag, times: at(secs), effective: Effective::Now }
}

fn limits(burst: u64, overrides: Vec<OverrideLimit>) -> RuleLimits {
    RuleLimits { common: bucket(burst), periods: None, overrides }
}

/// An override for the key with this hash, up to a time.
fn only(hash: u64, burst: u64, until: Option<u64>) -> OverrideLimit {
    let conditions = vec![Condition::new("user", [hash.to_string().as_str()]).unwrap()];
    OverrideLimit {
        keys: Keys { conditions: conditions.into(), only: Some(hash) },
        limit: Some(bucket(burst)),
        until: until.map(Timestamp::from_secs),
    }
}

fn burst_of(rule: &RuleHistory, hash: u64, times: Times) -> u64 {
    let key = KeyRef { hash, meets: &|_| false };
    match rule.limit_at(rule.tag_at(times), key).limit {
        AnyLimit::Bucket(bucket) => bucket.capacity(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn override_counts_for_its_key_from_its_edit_to_its_end() {
    let first = RuleHistory::new(limits(10, Vec::new()), edit(1, 0)).in_force_at(at(0));
    let given = limits(10, vec![only(7, 20, Some(60)), only(7, 30, None)]);
    let second = first.edited(given.clone(), edit(first.newest().next_tag(), 5)).unwrap();
    let second = second.in_force_at(at(5));
    assert_eq!([5, 59, 60].map(|secs| burst_of(&second, 7, at(secs))), [20, 20, 30]);
    assert_eq!(burst_of(&second, 8, at(5)), 10, "another key");
    assert!(second.edited(given, edit(100, 6)).is_none(), "nothing has changed");
}

#[test]
fn numbers_say_how_far_a_state_has_come() {
    let first = RuleHistory::new(limits(10, vec![only(7, 20, Some(60))]), edit(1, 0));
    assert_eq!((first.tag_at(at(59)), first.tag_at(at(60))), (1, 2));
    let second = first.edited(limits(11, Vec::new()), edit(first.newest().next_tag(), 70)).unwrap();
    assert_eq!(second.newest().tag, 3);
    assert_eq!(second.locate(2), Position { version: 0, stage: 1 });
    let mut history = History::default();
    history.insert(Arc::new(second));
    assert_eq!(history.rule_of(2).map(|rule| rule.family), Some(1));
    assert_eq!(history.next_tag(), 4);
}

#[test]
fn order_of_overrides_is_kept_through_edits() {
    let list = |bursts: &[u64]| -> Vec<OverrideLimit> {
        bursts.iter().map(|burst| only(7, *burst, Some(1_000 + burst))).collect()
    };
    let mut rule = RuleHistory::new(limits(1, list(&[2, 3])), edit(1, 0)).in_force_at(at(0));
    for (index, bursts) in [&[4, 2, 3][..], &[4, 3], &[3, 4], &[3, 5, 4], &[5]].iter().enumerate() {
        let secs = index as u64 + 1;
        let given = limits(1, list(bursts));
        rule = rule.edited(given, edit(rule.newest().next_tag(), secs)).unwrap();
        rule = rule.in_force_at(at(secs));
        let kept: Vec<u64> = (rule.overrides())
            .map(|(_, limit)| match limit {
                Some(AnyLimit::Bucket(bucket)) => bucket.capacity(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kept, *bursts);
        assert_eq!(burst_of(&rule, 7, at(secs)), bursts[0]);
    }
}

#[test]
fn a_time_before_the_first_version_is_under_that_version() {
    // The clock was set back: what was held since expires before the limits came.
    let first = RuleHistory::new(limits(10, vec![only(7, 20, Some(160))]), edit(1, 100));
    assert_eq!([99, 100, 160].map(|secs| first.tag_back_then(at(secs))), [1, 1, 2]);
    let second =
        first.edited(limits(11, Vec::new()), edit(first.newest().next_tag(), 170)).unwrap();
    assert_eq!([99, 100, 160, 170].map(|secs| second.tag_back_then(at(secs))), [1, 1, 2, 3]);
}
