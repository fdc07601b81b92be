//! Each verb, once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tidegate::{
    Bucket, BuildError, Cooldown, Decision, Limiter, LimiterBuilder, ManualClock, Sliding, Verdict,
    Wait, Window,
};

use crate::{ms, one_per_second, seconds, secs};

#[test]
fn a_bucket_allows_its_burst_and_reports_the_wait() {
    let limiter: Limiter<String> = Limiter::new(one_per_second(2));
    assert_eq!(limiter.check_at("a", secs(9)).verdict(), Verdict::Allow { remaining: 1 });
    assert_eq!(limiter.check_at("a", secs(9)).verdict(), Verdict::Allow { remaining: 0 });
    let wait = Wait::After(Duration::from_millis(750));
    assert_eq!(limiter.check_at("a", ms(9_250)).verdict(), Verdict::Deny { wait });
    assert!(limiter.allow_at("a", ms(10_000)));
    assert!(limiter.allow_at("b", ms(10_000)), "another key has its own bucket");
}

#[test]
fn a_cost_is_charged_whole_or_not_at_all() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert!(limiter.check_n_at(&1, 7, secs(1)).is_allowed());
    assert!(!limiter.check_n_at(&1, 4, secs(1)).is_allowed());
    assert_eq!(limiter.peek_at(&1, secs(1)).remaining(), 3);
    assert!(limiter.check_n_at(&1, 3, secs(1)).is_allowed());
}

#[test]
fn costs_of_zero_and_of_more_than_the_burst_change_nothing_and_take_no_slot() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert!(limiter.check_n_at(&1, 0, secs(1)).is_allowed());
    for cost in [11, u64::MAX] {
        assert_eq!(limiter.check_n_at(&1, cost, secs(1)).retry_after(), Some(Wait::Never));
    }
    assert_eq!(limiter.len(), 0);
    assert_eq!(limiter.peek_at(&1, secs(1)).remaining(), 10);
}

#[test]
fn peek_changes_nothing() {
    let limiter: Limiter<str> = Limiter::new(one_per_second(1));
    for _ in 0..3 {
        assert!(limiter.peek_at("k", secs(1)).is_allowed());
    }
    assert_eq!(limiter.len(), 0);
    assert!(limiter.allow_at("k", secs(1)));
    let seen = limiter.peek_at("k", secs(1));
    assert_eq!((seen.is_allowed(), seen.remaining()), (false, 0));
    assert_eq!(seen.retry_after(), Some(Wait::After(seconds(1))));
}

#[test]
fn a_refund_returns_at_most_what_was_charged() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    assert_eq!(limiter.refund_at(&1, 5, secs(1)), 0, "nothing was taken");
    assert!(limiter.check_n_at(&1, 4, secs(1)).is_allowed());
    assert_eq!(limiter.refund_at(&1, 3, secs(1)), 3);
    assert_eq!(limiter.refund_at(&1, u64::MAX, secs(1)), 1);
    assert_eq!(limiter.peek_at(&1, secs(1)).remaining(), 10);
}

#[test]
fn forgetting_gives_a_fresh_start() {
    let limiter: Limiter<String> = Limiter::new(one_per_second(1));
    assert!(!limiter.forget("client"));
    assert!(limiter.allow_at("client", secs(1)));
    assert!(!limiter.allow_at("client", secs(1)));
    assert!(limiter.forget("client"));
    assert_eq!(limiter.len(), 0);
    assert!(limiter.allow_at("client", secs(1)));
}

#[test]
fn a_batch_decides_like_single_calls_in_order() {
    let (batch, single) =
        (Limiter::<u64>::new(one_per_second(3)), Limiter::<u64>::new(one_per_second(3)));
    let keys: Vec<u64> = (0..1_000).map(|number| number * number % 97).collect();
    let mut decisions = vec![];
    batch.check_many_at(&keys.iter().collect::<Vec<_>>(), &mut decisions, secs(1));
    let one_by_one: Vec<Decision> = keys.iter().map(|key| single.check_at(key, secs(1))).collect();
    assert_eq!(decisions, one_by_one);
    batch.check_many_at(&[], &mut decisions, secs(1));
    assert!(decisions.is_empty());
}

#[test]
fn keys_of_many_types_and_any_bytes() {
    let by_text: Limiter<String> = Limiter::new(one_per_second(1));
    for text in ["", "a", "\0", "ü", "a\r\nb", "<script>", &"x".repeat(100_000)] {
        assert!(by_text.allow_at(text, secs(1)), "{text:.20}");
        assert!(!by_text.allow_at(text, secs(1)), "{text:.20}");
    }
    let by_bytes: Limiter<Vec<u8>> = Limiter::new(one_per_second(1));
    for len in 0..600 {
        // Same bytes, another length: another key.
        assert!(by_bytes.allow_at(&vec![0_u8; len][..], secs(1)), "{len}");
    }
    let by_address: Limiter<IpAddr> = Limiter::new(one_per_second(1));
    assert!(by_address.allow_at(&IpAddr::V4(Ipv4Addr::LOCALHOST), secs(1)));
    assert!(by_address.allow_at(&IpAddr::V6(Ipv6Addr::LOCALHOST), secs(1)));
    let by_pair: Limiter<(String, String)> = Limiter::new(one_per_second(1));
    assert!(by_pair.allow_at(&("ab".to_owned(), "c".to_owned()), secs(1)));
    assert!(by_pair.allow_at(&("a".to_owned(), "bc".to_owned()), secs(1)));
}

#[test]
fn windows_sliding_windows_and_cooldowns_are_limiters_too() {
    let window: Limiter<u64, Window> = Limiter::new(Window::new(2, seconds(10)).unwrap());
    let sliding: Limiter<u64, Sliding> = Limiter::new(Sliding::new(2, seconds(10), 5).unwrap());
    let cooldown: Limiter<u64, Cooldown> = Limiter::new(Cooldown::new(seconds(60)).unwrap());
    for at in [3, 5] {
        assert!(window.allow_at(&1, secs(at)));
        assert!(sliding.allow_at(&1, secs(at)));
    }
    assert_eq!(window.check_at(&1, secs(6)).retry_after(), Some(Wait::After(seconds(7))));
    assert_eq!(sliding.check_at(&1, secs(6)).retry_after(), Some(Wait::After(seconds(7))));
    assert!(window.allow_at(&1, secs(13)));
    assert!(window.allow_at(&1, secs(13)), "a new window is empty");
    assert!(sliding.allow_at(&1, secs(13)));
    assert!(!sliding.allow_at(&1, secs(13)), "the one at 5 s is still in the window");
    assert!(cooldown.allow_at(&1, secs(3)));
    assert_eq!(cooldown.check_at(&1, secs(4)).retry_after(), Some(Wait::After(seconds(59))));
    assert!(cooldown.allow_at(&1, secs(63)));
}

#[test]
fn a_sliding_window_of_many_units_keeps_counts_in_its_slot() {
    let limiter: Limiter<u64, Sliding> =
        Limiter::new(Sliding::new(1_000, seconds(10), 10).unwrap());
    assert!(limiter.check_n_at(&1, 600, secs(1)).is_allowed());
    assert!(limiter.check_n_at(&1, 400, secs(2)).is_allowed());
    assert_eq!(limiter.check_n_at(&1, 600, secs(3)).retry_after(), Some(Wait::After(seconds(9))));
    assert!(limiter.check_n_at(&1, 600, secs(12)).is_allowed());
    assert_eq!(limiter.refund_at(&1, 100, secs(12)), 100);
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
