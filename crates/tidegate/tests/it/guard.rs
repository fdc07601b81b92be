//! One bucket per address in front of something expensive.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate::{Bucket, Limiter, Rate, clock::ManualClock};

use crate::{one_per_day, seconds};

/// One attempt per six seconds, twenty at once, sweep every five minutes.
fn guard(clock: &ManualClock) -> Limiter<IpAddr, Bucket, ManualClock> {
    let limit = Bucket::of(Rate::one_every(seconds(6))).burst(20);
    let builder = Limiter::builder(limit).evict_every(seconds(300));
    builder.clock(clock.clone()).build().unwrap()
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(number))
}

#[test]
fn two_half_intervals_make_one_token() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    assert_eq!((0..25).filter(|_| guard.allow(&address(1))).count(), 20);
    clock.advance(seconds(3));
    assert!(!guard.allow(&address(1)));
    clock.advance(seconds(3));
    assert!(guard.allow(&address(1)));
    assert!(!guard.allow(&address(1)));
}

#[test]
fn idle_buckets_leave_within_the_interval() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    for number in 0..1_000 {
        assert!(guard.allow(&address(number)));
    }
    assert_eq!(guard.len(), 1_000);
    clock.advance(seconds(6 + 300));
    assert_eq!(guard.len(), 0);
}

#[test]
fn a_bucket_below_capacity_is_never_dropped() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    while guard.allow(&address(1)) {}
    assert!(guard.allow(&address(2)));
    clock.advance(seconds(100));
    guard.evict_idle();
    assert_eq!(guard.len(), 1, "the drained one needs 120 s to fill, the other is full");
    assert_eq!(guard.peek(&address(1)).remaining(), 16);
}

#[test]
fn a_bucket_that_is_hammered_while_empty_stays_empty() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    while guard.allow(&address(1)) {}
    for _ in 0..400 {
        clock.advance(seconds(1));
        let _ = guard.len();
        let _ = guard.allow(&address(1));
    }
    assert!(guard.peek(&address(1)).remaining() <= 1);
    assert_eq!(guard.len(), 1);
}

#[test]
fn close_may_be_called_twice_and_forgets_nothing() {
    let guard = Limiter::<IpAddr>::builder(one_per_day(1)).evict_every(seconds(1)).build().unwrap();
    assert!(guard.allow(&address(1)));
    guard.close();
    guard.close();
    assert!(!guard.allow(&address(1)), "closing forgets nothing");
}

#[test]
fn scanning_the_address_space_does_not_fill_memory_nor_free_a_drained_bucket() {
    let clock = ManualClock::default();
    let limit = Bucket::of(Rate::one_every(seconds(6))).burst(20);
    let builder = Limiter::<IpAddr>::builder(limit).max_keys(10_000);
    let guard = builder.clock(clock.clone()).build().unwrap();
    while guard.allow(&address(0)) {}
    for number in 1..200_000 {
        let _ = guard.allow(&address(number));
    }
    assert!(guard.len() <= 10_000);
    assert!(!guard.allow(&address(0)));
}

/// `len` evicts by itself, so the number of keys is read from what a debugger shows.
#[test]
fn new_keys_evict_keys_that_have_been_idle_for_the_interval() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    for number in 0..20_000 {
        assert!(guard.allow(&address(number)));
    }
    // The buckets are full again after 6 s, and have been idle for the interval 300 s later.
    clock.advance(seconds(300 + 6 - 1));
    for number in 20_000..25_000 {
        assert!(guard.allow(&address(number)));
    }
    assert!(debug_keys(&guard) > 20_000, "one second earlier only needed slots are reused");
    clock.advance(seconds(1));
    for number in 25_000..35_000 {
        assert!(guard.allow(&address(number)));
    }
    assert!((15_000..16_000).contains(&debug_keys(&guard)), "{}", debug_keys(&guard));
}

fn debug_keys(guard: &impl std::fmt::Debug) -> usize {
    let shown = format!("{guard:?}");
    let (_, rest) = shown.split_once("keys: ").unwrap();
    rest.split_once(',').unwrap().0.parse().unwrap()
}

/// The caller of `len` waits for a sweep of the whole table; decisions do not.
#[test]
fn a_sweep_does_not_stop_decisions() {
    let clock = ManualClock::default();
    let guard = guard(&clock);
    for number in 0..200_000 {
        assert!(guard.allow(&address(number)));
    }
    clock.advance(seconds(6 + 300));
    let (is_begun, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let during = std::thread::scope(|scope| {
        let decisions = scope.spawn(|| {
            let mut decided = 0_u32;
            while !is_done.load(Ordering::Acquire) {
                let _ = guard.allow(&address(decided % 20));
                decided += 1;
                is_begun.store(true, Ordering::Release);
            }
            decided
        });
        while !is_begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(guard.len() <= 20);
        is_done.store(true, Ordering::Release);
        decisions.join().unwrap()
    });
    assert!(during > 100, "{during} decisions");
}
