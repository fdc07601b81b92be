//! Bugs of other limiters, as tests.

use std::time::Duration;

use tidegate::{Bucket, Limiter, Rate, Timestamp, Wait, WhenFull, clock::ManualClock};

use crate::{one_per_day, one_per_second, secs};

#[test]
fn six_hundred_million_per_second_are_not_a_thousand_million() {
    // An interval cut to whole nanoseconds made 1 ns of 1.67 ns.
    let limit = Bucket::per_second(600_000_000).burst(10);
    let limiter: Limiter<u64> = Limiter::new(limit);
    let admitted = (0..3_000).filter(|&ns| limiter.at(Timestamp::from_nanos(ns)).allow(&1)).count();
    assert_eq!(admitted, 10 + 2_999 * 6 / 10);
}

#[test]
fn one_per_day_with_a_burst_of_a_million_does_not_wrap() {
    let limiter: Limiter<u64> = Limiter::new(one_per_day(1_000_000));
    let admitted = (0..1_000_100).filter(|_| limiter.at(secs(1)).allow(&1)).count();
    assert_eq!(admitted, 1_000_000);
}

#[test]
fn a_pause_does_not_earn_a_second_burst() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(10));
    let burst = |now| (0..50).filter(|_| limiter.at(secs(now)).allow(&1)).count();
    assert_eq!([burst(1), burst(10_000), burst(10_003)], [10, 10, 3]);
}

#[test]
fn a_bucket_that_is_polled_often_gets_its_whole_rate() {
    let limiter: Limiter<u64> = Limiter::new(Bucket::per_second(3).burst(1));
    let polls = 0..100_000_u64;
    let admitted = polls.filter(|&poll| limiter.at(Timestamp::from_micros(poll * 137)).allow(&1));
    assert_eq!(admitted.count(), 1 + 13_699_863 * 3 / 1_000_000);
}

#[test]
fn removed_keys_give_their_memory_to_new_ones() {
    // A pool that frees removed entries only when it is dropped grows for ever.
    let limiter: Limiter<u64> = Limiter::new(one_per_day(1));
    for key in 0..1_000_000 {
        assert!(limiter.at(secs(1)).allow(&key));
        assert!(limiter.forget(&key));
    }
    assert_eq!(limiter.len(), 0);
}

#[test]
fn a_key_that_was_never_seen_has_its_whole_burst_beside_many_others() {
    // A sketch reads 76 for a new key after a hundred thousand others.
    let limiter: Limiter<u64> = Limiter::new(one_per_day(5));
    for key in 0..100_000 {
        assert!(limiter.at(secs(1)).allow(&key));
    }
    assert_eq!(limiter.at(secs(1)).peek(&u64::MAX).remaining(), 5);
}

#[test]
fn times_out_of_order_mint_nothing() {
    let limiter: Limiter<u64> = Limiter::new(one_per_second(5));
    let mut admitted = 0;
    for step in 0..1_000_u64 {
        let now = if step % 2 == 0 { secs(100) } else { secs(step % 100) };
        admitted += u64::from(limiter.at(now).allow(&1));
    }
    assert_eq!(admitted, 5);
}

#[test]
fn a_full_table_neither_resets_an_attacker_nor_locks_known_keys_out() {
    // Evicting the oldest frees a client that fills the table; denying all keys blocks every
    // client.
    let builder = Limiter::<u64>::builder(one_per_day(10)).max_keys(1_000);
    let limiter = builder.when_full(WhenFull::Share).build().unwrap();
    assert_eq!((0..20).filter(|_| limiter.at(secs(1)).allow(&0)).count(), 10, "the attacker");
    assert!(limiter.at(secs(1)).allow(&1), "a stored key");
    for key in 2..50_000 {
        let _ = limiter.at(secs(1)).allow(&key);
    }
    assert!(!limiter.at(secs(1)).allow(&0), "the attacker is still drained");
    assert_eq!((0..20).filter(|_| limiter.at(secs(1)).allow(&1)).count(), 9);
}

#[test]
fn waits_are_true_to_the_nanosecond() {
    // Floored to 0, or reported as the whole window.
    let limiter: Limiter<u64> = Limiter::new(Bucket::per_second(3).burst(1));
    assert!(limiter.at(secs(1)).allow(&1));
    let Some(Wait::After(wait)) = limiter.at(secs(1)).check(&1).retry_after() else {
        panic!("no wait")
    };
    assert_eq!(wait, Duration::from_nanos(333_333_334));
    let retry = secs(1).saturating_add(wait);
    assert!(!limiter.at(retry.saturating_sub(Duration::from_nanos(1))).allow(&1));
    assert!(limiter.at(retry).allow(&1));
}

#[test]
fn a_clock_that_jumps_back_and_forth_is_survived() {
    let clock = ManualClock::new(secs(1_000_000));
    let limiter = Limiter::<u64>::builder(one_per_second(3)).clock(clock.clone()).build().unwrap();
    while limiter.allow(&1) {}
    for jump in [secs(0), secs(999_989), Timestamp::MAX, secs(0), secs(1_000_000)] {
        clock.set(jump);
        let admitted = (0..10).filter(|_| limiter.allow(&1)).count();
        assert!(admitted <= 3, "{admitted} at {jump}");
    }
}

#[test]
fn a_clock_far_from_its_origin_counts_as_exactly_as_near_it() {
    // Tokens relative to the start of a pool overflow sooner or later.
    for origin in [0, 1, 1 << 32, 1 << 53, (1 << 62) + 12_345] {
        let limiter: Limiter<u64> = Limiter::new(one_per_second(4));
        let at = |ns: u64| Timestamp::from_nanos(origin + ns);
        assert_eq!((0..9).filter(|_| limiter.at(at(0)).allow(&1)).count(), 4);
        assert!(!limiter.at(at(999_999_999)).allow(&1));
        assert!(limiter.at(at(1_000_000_000)).allow(&1));
    }
}

#[test]
fn rates_are_counts_per_period() {
    // per_second(n) that means one per n seconds; true that means limited; zero that means all.
    let limiter: Limiter<u64> = Limiter::new(Bucket::per_second(5));
    assert_eq!((0..9).filter(|_| limiter.at(secs(1)).allow(&1)).count(), 5);
    assert!(limiter.at(secs(1).saturating_add(Duration::from_millis(200))).allow(&1));
    assert_eq!(Rate::try_new(0, Duration::from_secs(1)).unwrap_err().field(), "rate");
    assert_eq!(Rate::try_new(1, Duration::ZERO).unwrap_err().field(), "period");
    let rate = Rate::per_second(1);
    assert_eq!(Bucket::try_new(rate, 0).unwrap_err().field(), "burst");
}
