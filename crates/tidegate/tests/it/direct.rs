//! The limiter without keys decides as a limiter with one key does.

use std::time::Duration;

use tidegate::{
    Bucket, Cooldown, DirectLimiter, Limiter, Sliding, Timestamp, Wait, WaitError, Window,
    clock::ManualClock, limiter::KeyedLimit,
};

use crate::{one_per_second, secs};

fn agrees_with_one_key<A: KeyedLimit + Copy>(limit: A, other: A) {
    let clock = ManualClock::default();
    let keyed = Limiter::<(), _>::builder(limit).clock(clock.clone()).build().unwrap();
    let direct = DirectLimiter::with_clock(limit, clock.clone());
    for step in 0..200_u64 {
        clock.set(Timestamp::from_millis(step * 370));
        match step % 9 {
            0 => assert_eq!(direct.allow(), keyed.allow(&())),
            1 => assert_eq!(direct.refund(1), keyed.refund(&(), 1)),
            2 => assert_eq!(direct.peek(), keyed.peek(&())),
            3 => assert_eq!(direct.check_n(2), keyed.check_n(&(), 2)),
            4 if step > 150 => {
                direct.set_limit(other);
                keyed.set_limit(other);
            }
            5 if step % 45 == 5 => assert_eq!(direct.forget(), keyed.forget(&())),
            _ => assert_eq!(direct.check(), keyed.check(&())),
        }
    }
}

#[test]
fn limiter_without_keys_agrees_with_one_key() {
    let seconds = Duration::from_secs;
    agrees_with_one_key(one_per_second(5), one_per_second(2));
    agrees_with_one_key(Window::new(3, seconds(2)), Window::new(9, seconds(2)));
    let sliding = |max| Sliding::new(max, seconds(2), 10);
    agrees_with_one_key(sliding(3), sliding(5));
    let cooldown = |gap| Cooldown::new(seconds(gap));
    agrees_with_one_key(cooldown(1), cooldown(2));
}

#[test]
fn limiter_without_keys_stays_exact_for_ever() {
    let limiter = DirectLimiter::with_clock(one_per_second(1), ManualClock::default());
    // Long idle times between the charges: the state is never lost, nor shared.
    for step in 1..1_000 {
        let now = secs(step * 100);
        assert!(limiter.at(now).allow() && !limiter.at(now).allow());
        assert_eq!(
            limiter.at(now).check().retry_after(),
            Some(Wait::After(Duration::from_secs(1)))
        );
    }
    let now = secs(1_000_000);
    assert_eq!(limiter.at(now).check_n(2).retry_after(), Some(Wait::Never));
    assert_eq!((limiter.at(now).peek().remaining(), limiter.at(now).refund(1)), (1, 0));
    limiter.at(now).set_limit(one_per_second(7));
    assert_eq!((limiter.limit(), limiter.at(now).peek().remaining()), (one_per_second(7), 7));
}

#[test]
fn limiter_without_keys_admits_no_more_over_threads() {
    let limiter = DirectLimiter::with_clock(one_per_second(500), ManualClock::default());
    let admit = || (0..400).filter(|_| limiter.allow()).count();
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(admit)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 500);
}

#[test]
fn limiter_without_keys_can_be_waited_for() {
    let limit = Bucket::per_second(1_000).burst(1);
    let limiter = DirectLimiter::new(limit);
    for _ in 0..3 {
        assert!(limiter.ready().block().unwrap().is_allowed());
    }
    assert_eq!(limiter.ready_n(2).block(), Err(WaitError::Never));
    limiter.close();
    assert_eq!(limiter.ready().block(), Err(WaitError::Closed));
}
