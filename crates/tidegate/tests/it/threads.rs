//! Exact numbers whatever the threads do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tidegate::{
    Bucket, Cooldown, Limiter, Rate, Sliding, Timestamp, Wait, Window, limiter::KeyedLimit,
};

use crate::{one_per_day, seconds, secs};

/// How many calls return true, when `threads` threads make `calls` calls each.
fn count(threads: usize, calls: usize, call: impl Fn(usize) -> bool + Sync) -> usize {
    let allowed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (call, allowed) = (&call, &allowed);
            scope.spawn(move || {
                let own = (0..calls).filter(|number| call(thread * calls + number)).count();
                allowed.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    allowed.into_inner()
}

fn admits_exactly(limit: impl KeyedLimit, most: usize) {
    let limiter: Limiter<u64, _> = Limiter::new(limit);
    assert_eq!(count(8, 20_000, |_| limiter.at(secs(1)).allow(&7)), most, "{limit:?}");
    assert_eq!(limiter.len(), 1);
}

#[test]
fn a_frozen_clock_admits_exactly_the_burst_of_every_algorithm() {
    admits_exactly(one_per_day(1), 1);
    admits_exactly(one_per_day(54_321), 54_321);
    admits_exactly(Window::new(12_345, seconds(10)), 12_345);
    admits_exactly(Sliding::new(8, seconds(10), 10), 8);
    admits_exactly(Sliding::new(9_999, seconds(10), 10), 9_999);
    admits_exactly(Cooldown::new(seconds(1)), 1);
}

#[test]
fn many_keys_while_the_table_grows_get_exactly_their_burst() {
    const KEYS: usize = 100_000;
    let limiter: Limiter<usize> = Limiter::new(one_per_day(3));
    // Every thread walks over all keys twice, each with a stride of its own.
    let admitted = count(4, 2 * KEYS, |call| {
        let (thread, step) = (call / (2 * KEYS), call % (2 * KEYS));
        let key = step * [1, 3, 7, 11][thread] % KEYS;
        limiter.at(secs(1)).allow(&key)
    });
    assert_eq!(admitted, 3 * KEYS);
    assert_eq!(limiter.len(), KEYS);
}

#[test]
fn weighted_costs_and_refunds_balance() {
    let limiter: Limiter<u64> = Limiter::new(one_per_day(1_000));
    let taken = AtomicUsize::new(0);
    count(4, 10_000, |call| {
        let cost = (call % 7 + 1) as u64;
        if limiter.at(secs(1)).check_n(&1, cost).is_allowed() {
            taken.fetch_add(cost as usize, Ordering::SeqCst);
        }
        if call % 3 == 0 {
            taken.fetch_sub(limiter.at(secs(1)).refund(&1, 1) as usize, Ordering::SeqCst);
        }
        true
    });
    let remaining = limiter.at(secs(1)).peek(&1).remaining();
    assert_eq!(taken.into_inner() as u64 + remaining, 1_000);
}

#[test]
fn reuse_of_idle_slots_under_threads_never_admits_too_much() {
    // Few slots, many keys that come and go, and a clock that all threads read a little late.
    const KEYS: u64 = 64;
    let limit = Bucket::try_new(Rate::one_every(std::time::Duration::from_millis(1)), 2);
    let limiter = Limiter::<u64>::builder(limit.unwrap()).max_keys(16).build().unwrap();
    let clock = AtomicUsize::new(0);
    let admitted: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    count(4, 200_000, |call| {
        let now_us = clock.fetch_add(1, Ordering::Relaxed);
        let key = (call as u64).wrapping_mul(0x9e37_79b9) >> 7 & (KEYS - 1);
        let now = Timestamp::from_micros(now_us as u64);
        let allowed = limiter.at(now).allow(&key);
        if allowed {
            admitted[key as usize].fetch_add(1, Ordering::Relaxed);
        }
        allowed
    });
    let passed_ms = clock.into_inner() / 1_000;
    for (key, admitted) in admitted.into_iter().enumerate() {
        let admitted = admitted.into_inner();
        assert!(admitted <= passed_ms + 1 + 2, "key {key}: {admitted} in {passed_ms} ms");
    }
    assert!(limiter.len() <= 16);
}

#[test]
fn eviction_against_parallel_calls_loses_nothing() {
    let limiter: Limiter<usize> = Limiter::new(one_per_day(5));
    let done = AtomicBool::new(false);
    let admitted = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                limiter.at(secs(1)).evict_idle();
            }
        });
        let admitted = count(4, 50_000, |call| limiter.at(secs(1)).allow(&(call % 1_000)));
        done.store(true, Ordering::Relaxed);
        admitted
    });
    assert_eq!(admitted, 5 * 1_000);
}

#[test]
fn edits_against_parallel_calls_admit_what_the_largest_limit_allows() {
    let limiter: Limiter<usize> = Limiter::new(one_per_day(10));
    let done = AtomicBool::new(false);
    let admitted = thread::scope(|scope| {
        scope.spawn(|| {
            // Down and up again: charges stay.
            while !done.load(Ordering::Relaxed) {
                limiter.at(secs(1)).set_limit(one_per_day(5));
                limiter.at(secs(1)).set_limit(Bucket::per_day(7).burst(10));
            }
        });
        let admitted = count(4, 100_000, |call| limiter.at(secs(1)).allow(&(call % 500)));
        done.store(true, Ordering::Relaxed);
        admitted
    });
    limiter.at(secs(1)).set_limit(one_per_day(10));
    let left: u64 = (0..500).map(|key| limiter.at(secs(1)).peek(&key).remaining()).sum();
    assert_eq!(admitted as u64 + left, 10 * 500);
}

#[test]
fn the_capacity_holds_under_threads() {
    let limiter = Limiter::<usize>::builder(one_per_day(1)).max_keys(1_000).build().unwrap();
    count(4, 50_000, |call| limiter.at(secs(1)).allow(&call));
    assert_eq!(limiter.len(), 1_000);
}

#[test]
fn edits_against_growth_leave_every_key_under_one_limit() {
    // Drained keys, a frozen clock: none may pass, and each waits for one unit of the last rate.
    for round in 0..60 {
        let limiter: Limiter<usize> = Limiter::new(per_second(1));
        let done = AtomicBool::new(false);
        let edits = thread::scope(|scope| {
            let editor = scope.spawn(|| {
                let mut edits = 0;
                while !done.load(Ordering::Relaxed) {
                    edits += 1;
                    limiter.at(secs(1)).set_limit(per_second(RATES[edits % 3]));
                }
                edits
            });
            (0..3_000).for_each(|key| assert!(limiter.at(secs(1)).check_n(&key, 5).is_allowed()));
            done.store(true, Ordering::Relaxed);
            editor.join().unwrap()
        });
        let unit = std::time::Duration::from_nanos(1_000_000_000 / RATES[edits % 3]);
        for key in 0..3_000 {
            let wait = limiter.at(secs(1)).check(&key).retry_after();
            assert_eq!(wait, Some(Wait::After(unit)), "round {round}, key {key}");
        }
    }
}

const RATES: [u64; 3] = [1, 1_000, 1_000_000];

fn per_second(count: u64) -> Bucket {
    Bucket::try_new(Rate::per_second(count), 5).unwrap()
}
