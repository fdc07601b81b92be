//! Each verb, once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tidegate::{
    Bucket, Cooldown, Decision, Limiter, Sliding, Verdict, Wait, Window,
    clock::ManualClock,
    limiter::{BuildError, LimiterBuilder},
};

use crate::{ms, one_per_second, seconds, secs};

#[test]
fn a_bucket_allows_its_burst_and_reports_the_wait() {
    let limiter: Limiter<String> = Limiter::new(one_per_second(2));
    assert_eq!(limiter.at(secs(9)).check("a").verdict(), Verdict::Allow { remaining: 1 });
    assert_eq!(limiter.at(secs(9)).check("a").verdict(), Verdict::Allow { remaining: 0 });
    let wait = Wait::After(Duration::from_millis(750));
    assert_eq!(limiter.at(ms(9_250)).check("a").verdict(), Verdict::Deny { wait });
    assert!(limiter.at(ms(10_000)).allow("a"));
    assert!(limiter.at(ms(10_000)).allow("b"), "another key has its own bucket");
}

#[test]
fn a_cost_is_charged_whole_or_not_at_all() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert!(limiter.at(secs(1)).check_n(&1, 7).is_allowed());
    assert!(!limiter.at(secs(1)).check_n(&1, 4).is_allowed());
    assert_eq!(limiter.at(secs(1)).peek(&1).remaining(), 3);
    assert!(limiter.at(secs(1)).check_n(&1, 3).is_allowed());
}

#[test]
fn costs_of_zero_and_of_more_than_the_burst_change_nothing_and_take_no_slot() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert!(limiter.at(secs(1)).check_n(&1, 0).is_allowed());
    for cost in [11, u64::MAX] {
        assert_eq!(limiter.at(secs(1)).check_n(&1, cost).retry_after(), Some(Wait::Never));
    }
    assert_eq!(limiter.len(), 0);
    assert_eq!(limiter.at(secs(1)).peek(&1).remaining(), 10);
}

#[test]
fn peek_changes_nothing() {
    let limiter: Limiter<str> = Limiter::new(one_per_second(1));
    for _ in 0..3 {
        assert!(limiter.at(secs(1)).peek("k").is_allowed());
    }
    assert_eq!(limiter.len(), 0);
    assert!(limiter.at(secs(1)).allow("k"));
    let seen = limiter.at(secs(1)).peek("k");
    assert_eq!((seen.is_allowed(), seen.remaining()), (false, 0));
    assert_eq!(seen.retry_after(), Some(Wait::After(seconds(1))));
}

#[test]
fn a_refund_returns_at_most_what_was_charged() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert_eq!(limiter.at(secs(1)).refund(&1, 5), 0, "nothing was taken");
    assert!(limiter.at(secs(1)).check_n(&1, 4).is_allowed());
    assert_eq!(limiter.at(secs(1)).refund(&1, 3), 3);
    assert_eq!(limiter.at(secs(1)).refund(&1, u64::MAX), 1);
    assert_eq!(limiter.at(secs(1)).peek(&1).remaining(), 10);
}

#[test]
fn forgetting_gives_a_fresh_start() {
    let limiter: Limiter<String> = Limiter::new(one_per_second(1));
    assert!(!limiter.forget("client"));
    assert!(limiter.at(secs(1)).allow("client"));
    assert!(!limiter.at(secs(1)).allow("client"));
    assert!(limiter.forget("client"));
    assert_eq!(limiter.len(), 0);
    assert!(limiter.at(secs(1)).allow("client"));
}

#[test]
fn a_batch_decides_like_single_calls_in_order() {
    let (batch, single) =
        (Limiter::<u64>::new(one_per_second(3)), Limiter::<u64>::new(one_per_second(3)));
    let keys: Vec<u64> = (0..1_000).map(|number| number * number % 97).collect();
    let mut decisions = vec![];
    batch.at(secs(1)).check_many(&keys.iter().collect::<Vec<_>>(), &mut decisions);
    let one_by_one: Vec<Decision> = keys.iter().map(|key| single.at(secs(1)).check(key)).collect();
    assert_eq!(decisions, one_by_one);
    batch.at(secs(1)).check_many(&[], &mut decisions);
    assert!(decisions.is_empty());
}

#[test]
fn keys_of_many_types_and_any_bytes() {
    let by_text: Limiter<String> = Limiter::new(one_per_second(1));
    for text in ["", "a", "\0", "ü", "a\r\nb", "<script>", &"x".repeat(100_000)] {
        assert!(by_text.at(secs(1)).allow(text), "{text:.20}");
        assert!(!by_text.at(secs(1)).allow(text), "{text:.20}");
    }
    let by_bytes: Limiter<Vec<u8>> = Limiter::new(one_per_second(1));
    for len in 0..600 {
        // Same bytes, another length: another key.
        assert!(by_bytes.at(secs(1)).allow(&vec![0_u8; len][..]), "{len}");
    }
    let by_address: Limiter<IpAddr> = Limiter::new(one_per_second(1));
    assert!(by_address.at(secs(1)).allow(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert!(by_address.at(secs(1)).allow(&IpAddr::V6(Ipv6Addr::LOCALHOST)));
    let by_pair: Limiter<(String, String)> = Limiter::new(one_per_second(1));
    assert!(by_pair.at(secs(1)).allow(&("ab".to_owned(), "c".to_owned())));
    assert!(by_pair.at(secs(1)).allow(&("a".to_owned(), "bc".to_owned())));
}

#[test]
fn windows_sliding_windows_and_cooldowns_are_limiters_too() {
    let window: Limiter<u64, Window> = Limiter::new(Window::new(2, seconds(10)));
    let sliding: Limiter<u64, Sliding> = Limiter::new(Sliding::new(2, seconds(10), 5));
    let cooldown: Limiter<u64, Cooldown> = Limiter::new(Cooldown::new(seconds(60)));
    for at in [3, 5] {
        assert!(window.at(secs(at)).allow(&1));
        assert!(sliding.at(secs(at)).allow(&1));
    }
    assert_eq!(window.at(secs(6)).check(&1).retry_after(), Some(Wait::After(seconds(7))));
    assert_eq!(sliding.at(secs(6)).check(&1).retry_after(), Some(Wait::After(seconds(7))));
    assert!(window.at(secs(13)).allow(&1));
    assert!(window.at(secs(13)).allow(&1), "a new window is empty");
    assert!(sliding.at(secs(13)).allow(&1));
    assert!(!sliding.at(secs(13)).allow(&1), "the one at 5 s is still in the window");
    assert!(cooldown.at(secs(3)).allow(&1));
    assert_eq!(cooldown.at(secs(4)).check(&1).retry_after(), Some(Wait::After(seconds(59))));
    assert!(cooldown.at(secs(63)).allow(&1));
}

#[test]
fn a_sliding_window_of_many_units_keeps_counts_in_its_slot() {
    let limiter: Limiter<u64, Sliding> = Limiter::new(Sliding::new(1_000, seconds(10), 10));
    assert!(limiter.at(secs(1)).check_n(&1, 600).is_allowed());
    assert!(limiter.at(secs(2)).check_n(&1, 400).is_allowed());
    assert_eq!(limiter.at(secs(3)).check_n(&1, 600).retry_after(), Some(Wait::After(seconds(9))));
    assert!(limiter.at(secs(12)).check_n(&1, 600).is_allowed());
    assert_eq!(limiter.at(secs(12)).refund(&1, 100), 100);
}

#[test]
fn invalid_settings_are_rejected_by_name() {
    let builder = || Limiter::<u64>::builder(one_per_second(1));
    let error = |builder: LimiterBuilder<u64, _>| builder.build().unwrap_err();
    assert_eq!(error(builder().max_keys(0)), BuildError::MaxKeys { given: 0 });
    assert!(error(builder().max_keys(usize::MAX)).to_string().contains("max_keys"));
    assert_eq!(error(builder().evict_every(Duration::ZERO)), BuildError::EvictEveryZero);
    assert!(BuildError::EvictEveryZero.to_string().contains("evict_every"));
    let huge = builder().max_keys(LimiterBuilder::<u64, Bucket>::MOST_KEYS);
    let most = LimiterBuilder::<u64, Bucket>::MOST_KEYS;
    // Either the system promises that much memory, or there is an error; nothing is aborted.
    if let Err(error) = huge.capacity_hint(most).build() {
        assert_eq!(error, BuildError::CapacityHint);
    }
}

#[test]
fn defaults_can_be_replaced() {
    let clock = ManualClock::new(secs(5));
    let limiter = Limiter::<str>::builder(one_per_second(1))
        .capacity_hint(1_000)
        .max_keys(2_000)
        .clock(clock.clone())
        .hasher(std::hash::RandomState::new())
        .build()
        .unwrap();
    assert_eq!(limiter.capacity(), 2_000);
    assert!(limiter.allow("a") && !limiter.allow("a"));
    clock.advance(seconds(1));
    assert!(limiter.allow("a"));
    assert_eq!(limiter.limit(), one_per_second(1));
    assert!(format!("{limiter:?}").contains("max_keys: 2000"));
}

#[test]
fn a_limiter_is_shared_between_threads_by_reference() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Limiter<String>>();
    is_send_and_sync::<Limiter<*const u8, Sliding>>();
}
