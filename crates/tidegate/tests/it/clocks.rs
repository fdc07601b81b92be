//! Time, where it comes from.

use std::sync::Arc;
use std::thread;

use tidegate::{
    Limiter, Timestamp,
    clock::{CachedClock, Clock, ManualClock, MonotonicClock},
};

use crate::{one_per_second, seconds, secs};

#[test]
fn the_default_clock_never_runs_backwards_in_any_thread() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(|| {
                let (mut last, start) = (Timestamp::ZERO, MonotonicClock.now());
                // Long enough for the interpolation to begin and to be anchored again.
                while last < start.saturating_add(std::time::Duration::from_millis(400)) {
                    let now = MonotonicClock.now();
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_default_clock_keeps_pace_with_the_systems() {
    let systems = || {
        #[allow(clippy::disallowed_methods, reason = "what it is compared with")]
        std::time::Instant::now()
    };
    let (start, system_start) = (MonotonicClock.now(), systems());
    while system_start.elapsed() < std::time::Duration::from_millis(300) {
        std::hint::black_box(MonotonicClock.now());
    }
    let passed = MonotonicClock.now().as_nanos() - start.as_nanos();
    let system_passed = u64::try_from(system_start.elapsed().as_nanos()).unwrap();
    // The second reading of the system's clock is the later one, by whatever came in between.
    assert!(passed <= system_passed + 1_000_000, "{passed} ns against {system_passed} ns");
    // It lags by no more than what the scheduler may have put in between.
    assert!(passed + 100_000_000 >= system_passed, "{passed} ns against {system_passed} ns");
}

#[test]
fn a_manual_clock_moves_only_when_it_is_moved() {
    let clock = ManualClock::new(secs(7));
    let limiter = Limiter::<u64>::builder(one_per_second(1)).clock(clock.clone()).build().unwrap();
    assert!(limiter.allow(&1) && !limiter.allow(&1));
    clock.advance(seconds(1));
    assert!(limiter.allow(&1));
    clock.set(secs(2));
    assert!(!limiter.allow(&1), "going back gives nothing back");
    clock.set(Timestamp::MAX);
    assert!(limiter.allow(&1));
    clock.advance(seconds(1));
    assert_eq!(clock.now(), Timestamp::MAX);
}

#[test]
fn a_cached_clock_stands_until_it_is_refreshed() {
    let source = ManualClock::new(secs(5));
    let cached = Arc::new(CachedClock::new(source.clone()));
    let limiter =
        Limiter::<u64>::builder(one_per_second(1)).clock(Arc::clone(&cached)).build().unwrap();
    assert!(limiter.allow(&1));
    source.advance(seconds(10));
    assert!(!limiter.allow(&1), "the cache still shows 5 s");
    assert_eq!(cached.refresh(), secs(15));
    assert!(limiter.allow(&1));
    source.set(secs(1));
    assert_eq!(cached.refresh(), secs(15), "never backwards");
}
