use std::time::Duration;

use tidegate::policy::{Charging, Durability, Grant, Limit, OnError, Policy};

use super::{Algorithm, Limits, UserLimit};

fn only_rule(policy: &Policy) -> &tidegate::policy::Rule {
    let [rule] = policy.rules() else { panic!("one rule") };
    rule
}

#[test]
fn default_is_twenty_per_hour_in_windows_since_1970() {
    let policy = Limits::default().policy().unwrap();
    let rule = only_rule(&policy);
    let Limit::Window(window) = rule.limit() else { panic!("a window") };
    assert_eq!((window.max(), window.per()), (20, Duration::from_secs(3_600)));
    assert!(window.is_aligned());
    assert_eq!(rule.domain(), "ratelimit");
    assert_eq!(rule.without_store(), OnError::Allow);
    assert_eq!(rule.durability(), Some(Durability::Flush));
    assert_eq!(rule.charging(), Charging::Allowed);
}

#[test]
fn algorithm_can_be_chosen() {
    let with = |algorithm| {
        let policy = Limits { algorithm, ..Limits::default() }.policy().unwrap();
        only_rule(&policy).limit().clone()
    };
    let Limit::Sliding(sliding) = with(Algorithm::Sliding) else { panic!("a sliding window") };
    assert_eq!((sliding.max(), sliding.per()), (20, Duration::from_secs(3_600)));
    let Limit::Bucket(bucket) = with(Algorithm::Bucket) else { panic!("a bucket") };
    assert_eq!(bucket.capacity(), 20);
    assert_eq!(bucket.rate().to_string(), "20 per 3600s");
}

#[test]
fn users_can_have_their_own_maximum() {
    let users = vec![UserLimit { user: 7, max: Some(3) }, UserLimit { user: 8, max: None }];
    for algorithm in [Algorithm::Window, Algorithm::Sliding, Algorithm::Bucket] {
        let limits = Limits { users: users.clone(), algorithm, ..Limits::default() };
        let policy = limits.policy().unwrap();
        let [own, unlimited] = only_rule(&policy).overrides() else { panic!("two") };
        assert!(matches!(own.grant(), Grant::Limit(_)));
        assert_eq!(unlimited.grant(), &Grant::Unlimited);
    }
}

#[test]
fn invalid_numbers_are_reported() {
    let zero = Limits { max: 0, ..Limits::default() }.policy().unwrap_err();
    assert_eq!(zero.user(), None);
    assert!(Limits { per: Duration::ZERO, ..Limits::default() }.policy().is_err());
    let users = vec![UserLimit { user: 7, max: Some(0) }];
    let error = Limits { users, ..Limits::default() }.policy().unwrap_err();
    assert_eq!(error.user(), Some(7));
    let users = vec![UserLimit { user: 7, max: Some(1) }, UserLimit { user: 7, max: None }];
    let error = Limits { users, ..Limits::default() }.policy().unwrap_err();
    assert_eq!(error.to_string(), "user 7: the user is listed twice");
}
