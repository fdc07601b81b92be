//! Edits of limits that keys have been charged under.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::{Bucket, Limiter, Rate, Sliding, Timestamp, Wait, Window, clock::Clock};

use crate::{ms, one_per_day, one_per_second, seconds, secs};

fn remaining(limiter: &Limiter<u64>, now_secs: u64) -> u64 {
    limiter.at(secs(now_secs)).peek(&1).remaining()
}

#[test]
fn lowering_and_raising_again_is_the_identity() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(100));
    assert!(limiter.at(secs(1)).check_n(&1, 90).is_allowed());
    limiter.at(secs(1)).set_limit(one_per_second(5));
    assert_eq!(remaining(&limiter, 1), 0);
    limiter.at(secs(1)).set_limit(one_per_second(100));
    assert_eq!(remaining(&limiter, 1), 10);
}

#[test]
fn a_new_rate_applies_from_the_edit_on() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert!(limiter.at(secs(1)).check_n(&1, 10).is_allowed());
    // Two seconds at 1/s, then two at 3/s.
    limiter.at(secs(3)).set_limit(Bucket::per_second(3).burst(10));
    assert_eq!(remaining(&limiter, 3), 2);
    assert_eq!(remaining(&limiter, 5), 8);
}

#[test]
fn a_rate_changed_back_and_forth_keeps_fractions() {
    let limiter: Limiter<u64> = Limiter::new(Bucket::per_second(7).burst(5));
    assert!(limiter.at(secs(1)).check_n(&1, 5).is_allowed());
    for count in [3, 11, 13, 2, 5, 7].repeat(20) {
        let limit = Bucket::try_new(Rate::per_second(count), 5).unwrap();
        limiter.at(secs(1)).set_limit(limit);
        // The first unit is there after 1/count of a second, rounded up, and not earlier.
        let nanos = 1_000_000_000_u64.div_ceil(count);
        let wait = limiter.at(secs(1)).check(&1).retry_after();
        assert_eq!(wait, Some(Wait::After(Duration::from_nanos(nanos))), "{count}/s");
    }
}

#[test]
fn an_edit_reaches_every_key_of_a_large_table() {
    let limiter: Limiter<u64> = Limiter::new(one_per_day(4));
    for key in 0..50_000 {
        assert!(limiter.at(secs(1)).check_n(&key, 3).is_allowed());
    }
    limiter.at(secs(1)).set_limit(Bucket::per_hour(1).burst(6));
    for key in 0..50_000 {
        assert_eq!(limiter.at(secs(1)).peek(&key).remaining(), 3, "key {key}");
    }
    // Keys that come later, into lines and segments that were there before and new ones.
    for key in 50_000..100_000 {
        assert_eq!(limiter.at(secs(1)).check(&key).remaining(), 5, "key {key}");
    }
}

#[test]
fn windows_keep_what_was_used_in_them() {
    let window = |max, per| Window::new(max, seconds(per));
    let limiter: Limiter<u64, Window> = Limiter::new(window(10, 60));
    assert!(limiter.at(secs(10)).check_n(&1, 8).is_allowed());
    limiter.at(secs(20)).set_limit(window(5, 60));
    assert!(!limiter.at(secs(20)).allow(&1));
    limiter.at(secs(20)).set_limit(window(10, 1));
    assert_eq!(limiter.at(secs(30)).peek(&1).remaining(), 2, "the open window keeps its end");
    assert_eq!(limiter.at(secs(70)).peek(&1).remaining(), 10);
}

#[test]
fn sliding_windows_keep_what_was_used_in_them() {
    let sliding = |max, per| Sliding::new(max, seconds(per), 10);
    let limiter: Limiter<u64, Sliding> = Limiter::new(sliding(100, 60));
    assert!(limiter.at(secs(10)).check_n(&1, 90).is_allowed());
    for max in [5, 1_000, 100] {
        limiter.at(secs(20)).set_limit(sliding(max, 60));
        assert_eq!(limiter.at(secs(20)).peek(&1).remaining(), max.saturating_sub(90));
    }
}

#[test]
fn one_key_can_have_its_own_limit() {
    let limiter: Limiter<u64> = Limiter::new(one_per_day(2));
    assert!(limiter.at(secs(1)).check_n(&1, 2).is_allowed());
    limiter.at(secs(1)).set_override(&1, one_per_day(10)).unwrap();
    assert_eq!(remaining(&limiter, 1), 8, "charges stay");
    assert!(limiter.at(secs(1)).check_n(&1, 8).is_allowed());
    assert!(!limiter.at(secs(1)).allow(&1));
    assert_eq!(limiter.at(secs(1)).check(&2).limit(), 2, "others are not concerned");
    limiter.at(secs(1)).set_limit(one_per_day(3));
    assert_eq!(limiter.at(secs(1)).check(&1).limit(), 10, "an edit of the common limit neither");
    assert!(limiter.at(secs(1)).remove_override(&1));
    assert!(!limiter.at(secs(1)).remove_override(&1));
    assert_eq!(limiter.at(secs(1)).check(&1).limit(), 3);
    limiter.at(secs(1)).set_limit(one_per_day(12));
    assert_eq!(remaining(&limiter, 1), 2);
}

#[test]
fn an_override_before_the_first_request_and_after_forgetting() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(1));
    limiter.at(secs(1)).set_override(&1, one_per_second(3)).unwrap();
    assert_eq!((0..5).filter(|_| limiter.at(secs(1)).allow(&1)).count(), 3);
    assert!(limiter.forget(&1));
    assert_eq!((0..5).filter(|_| limiter.at(secs(1)).allow(&1)).count(), 3);
    // Idle for long, swept, crowded out: an override stays.
    limiter.at(secs(1_000)).evict_idle();
    for key in 2..10_000 {
        assert!(limiter.at(secs(1_000)).allow(&key));
    }
    assert_eq!((0..5).filter(|_| limiter.at(secs(1_000)).allow(&1)).count(), 3);
}

#[test]
fn overrides_survive_growth_and_batches() {
    let limiter: Limiter<u64> = Limiter::new(one_per_day(1));
    for key in 0..100 {
        limiter.at(secs(1)).set_override(&key, one_per_day(2)).unwrap();
    }
    let keys: Vec<u64> = (0..20_000).collect();
    let mut decisions = vec![];
    let mut admitted = 0;
    for _ in 0..3 {
        limiter.at(ms(1_000)).check_many(&keys.iter().collect::<Vec<_>>(), &mut decisions);
        admitted += decisions.iter().filter(|decision| decision.is_allowed()).count();
    }
    assert_eq!(admitted, 20_000 + 100);
}

/// A clock that shows 99.95 s once, and then 100 s.
struct Late(AtomicBool);

impl Clock for Late {
    fn now(&self) -> Timestamp {
        if self.0.swap(true, Ordering::Relaxed) { secs(100) } else { ms(99_950) }
    }
}

#[test]
fn charges_during_an_edit_are_not_refilled() {
    // The edit begins 50 ms before the key is drained, and comes to its line afterwards.
    let clock = Late(AtomicBool::new(false));
    let limiter = Limiter::<u64>::builder(one_per_second(10)).clock(clock).build().unwrap();
    assert!(limiter.at(secs(100)).check_n(&1, 10).is_allowed());
    limiter.set_limit(Bucket::per_second(1_000).burst(10));
    assert_eq!(limiter.at(secs(100)).peek(&1).remaining(), 0);
    assert_eq!(limiter.at(ms(100_005)).peek(&1).remaining(), 5);
}
