//! Bugs of other limiters, as scripts. None of them may happen here.

use std::time::Duration;

use tidegate_core::{Algorithm, Bucket, LimitError, Rate, Sliding, Timestamp, Wait, Window};

use crate::script::{
    allow, allow_of, cancel, commit, deny_for_ms, deny_for_ns, deny_of, hold, left, refund, script,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn per_second(count: u64, burst: u64) -> Bucket {
    Bucket::try_new(Rate::per_second(count), burst).unwrap()
}

fn after(duration: Duration) -> Wait {
    Wait::After(duration)
}

/// An interval stored in whole nanoseconds turns 600 million per second into a billion.
#[test]
fn interval_is_not_truncated_to_whole_nanoseconds() {
    // Checked every nanosecond for a millisecond: the burst, and 0.6 for each further nanosecond.
    let mut key = script(per_second(600_000_000, 2));
    assert_eq!(key.admitted(0, 1_000_000, 1), 2 + 599_999);
    // In one leap as well: a burst of a second's worth refills in exactly a second.
    script(per_second(600_000_000, 600_000_000))
        .at_ns(0, allow_of(600_000_000))
        .at_ns(SECOND / 2, left(300_000_000))
        .at_ns(SECOND - 1, left(599_999_999))
        .at_ns(SECOND, left(600_000_000));
}

/// 64-bit products wrapped, and a bucket of a million admitted 145 984.
#[test]
fn one_per_day_with_a_burst_of_a_million_does_not_wrap() {
    let limit = Bucket::per_day(1).burst(1_000_000);
    let day = Duration::from_secs(86_400);
    let mut key = script(limit);
    assert_eq!(key.burst_at_ms(5), 1_000_000);
    key.at_ms(5, deny_of(1, after(day))).at_ms(5, deny_of(2, after(2 * day)));
}

/// A stale arrival time was pulled forward by too much: a burst of 10 became 17 after a pause.
#[test]
fn pause_does_not_make_the_burst_larger() {
    for pause_ms in [1_000, 10_000, 16_999, 100_000_000] {
        let mut key = script(per_second(1, 10));
        assert_eq!(key.burst_at_ms(0), 10);
        let expected = (pause_ms / 1_000).min(10);
        assert_eq!(key.burst_at_ms(pause_ms), expected, "after {pause_ms} ms");
    }
}

/// A refill that restarts at each poll loses the fraction: half the rate for eager pollers.
#[test]
fn eager_polling_does_not_cost_refill() {
    for poll_ns in [1, 333, 1_500, 1_999, 500_000] {
        // One per 1 ms, polled far more often than that, for 50 ms after the burst is gone.
        let mut key = script(per_second(1_000, 1)).at_ns(0, allow());
        let admitted = key.admitted(1, 50 * MS + poll_ns, poll_ns);
        assert!((49..=50).contains(&admitted), "{admitted} when polled every {poll_ns} ns");
    }
}

/// Two polls at half an interval are worth as much as one at a whole interval.
#[test]
fn two_half_intervals_make_one_token() {
    script(per_second(1, 1))
        .at_ms(0, allow())
        .at_ms(500, deny_for_ms(500))
        .at_ms(1_000, allow())
        .at_ms(1_500, deny_for_ms(500))
        .at_ms(2_000, allow());
}

/// A cancelled reservation released a number that later reservations had already used.
#[test]
fn cancel_restores_exactly_what_was_held() {
    script(per_second(1, 10))
        .at_ms(0, hold(4))
        .at_ms(0, hold(3))
        .at_ms(0, left(3))
        .at_ms(0, cancel(4))
        .at_ms(0, left(7))
        .at_ms(0, cancel(3))
        .at_ms(0, left(10))
        .at_ms(0, cancel(3))
        .at_ms(0, left(10));
}

/// A reservation that was held while the bucket refilled was released on top: a second burst.
#[test]
fn hold_cancelled_late_makes_no_second_burst() {
    let mut key = script(per_second(1, 10)).at_ms(0, hold(10)).at_ms(100_000, left(0));
    key = key.at_ms(100_000, cancel(10)).at_ms(100_000, left(10));
    assert_eq!(key.burst_at_ms(100_000), 10);
    let mut key = script(per_second(1, 10)).at_ms(0, hold(6)).at_ms(100_000, left(4));
    assert_eq!(key.burst_at_ms(100_000), 4);
    key = key.at_ms(100_000, commit(6, 6, 6));
    assert_eq!(key.burst_at_ms(100_000), 0);
}

/// Times out of order moved the clock back, and the way forward was paid twice.
#[test]
fn times_out_of_order_mint_nothing() {
    let mut key = script(per_second(1, 5)).at_ms(60_000, allow_of(5));
    for round in 0..100 {
        assert_eq!(key.burst_at_ms(60_000 - round * 500), 0);
        assert_eq!(key.burst_at_ms(60_000), 0);
    }
    assert_eq!(key.burst_at_ms(61_000), 1);
    let window = Window::new(5, Duration::from_secs(10));
    let mut key = script(window).at_ms(60_000, allow_of(5));
    assert_eq!([59_999, 0, 69_999].map(|at_ms| key.burst_at_ms(at_ms)), [0; 3]);
    let sliding = Sliding::new(5, Duration::from_secs(10), 10);
    let mut key = script(sliding).at_ms(60_000, allow_of(5));
    assert_eq!([59_999, 0, 69_999].map(|at_ms| key.burst_at_ms(at_ms)), [0; 3]);
}

/// A limit lowered and raised again forgot what had been used.
#[test]
fn limit_of_100_to_5_to_100_after_90_leaves_10() {
    let bucket = |burst| Bucket::try_new(Rate::per_hour(100), burst).unwrap();
    script(bucket(100))
        .at_ms(0, allow_of(90))
        .edit_at_ms(0, bucket(5))
        .at_ms(0, left(0))
        .edit_at_ms(0, bucket(100))
        .at_ms(0, left(10));
    let window = |max| Window::new(max, Duration::from_secs(3_600));
    script(window(100))
        .at_ms(0, allow_of(90))
        .edit_at_ms(1, window(5))
        .at_ms(1, left(0))
        .edit_at_ms(2, window(100))
        .at_ms(2, left(10));
    let sliding = |max| Sliding::new(max, Duration::from_secs(3_600), 10);
    script(sliding(100))
        .at_ms(0, allow_of(90))
        .edit_at_ms(1, sliding(5))
        .at_ms(1, left(0))
        .edit_at_ms(2, sliding(100))
        .at_ms(2, left(10));
}

/// A sliding window that was made shorter and longer again forgot its older sub-windows.
#[test]
fn sliding_window_shortened_and_lengthened_again_refills_nothing() {
    let sliding = |secs| Sliding::new(100, Duration::from_secs(secs), 10);
    script(sliding(60))
        .at_ms(0, allow_of(45))
        .at_ms(30_000, allow_of(45))
        .edit_at_ms(30_000, sliding(1))
        .edit_at_ms(30_000, sliding(60))
        .at_ms(30_000, left(10))
        .at_ms(59_999, left(10));
}

/// Negative hits, or refunds beyond what was used, pushed what remained above the limit.
#[test]
fn refund_above_what_was_used_does_not_exceed_the_limit() {
    script(per_second(1, 10))
        .at_ms(0, refund(5, 0))
        .at_ms(0, left(10))
        .at_ms(0, allow_of(3))
        .at_ms(0, refund(u64::MAX, 3))
        .at_ms(0, left(10))
        .at_ms(0, allow_of(10))
        .at_ms(0, deny_for_ms(1_000));
    let window = Window::new(10, Duration::from_secs(1));
    script(window).at_ms(0, allow_of(3)).at_ms(0, refund(u64::MAX, 3)).at_ms(0, left(10));
    let sliding = Sliding::new(10, Duration::from_secs(1), 10);
    script(sliding).at_ms(0, allow_of(3)).at_ms(0, refund(u64::MAX, 3)).at_ms(0, left(10));
}

/// A refund returned what had already been refilled.
#[test]
fn refund_does_not_repeat_what_the_refill_gave() {
    script(per_second(1, 10))
        .at_ms(0, allow_of(4))
        .at_ms(3_500, refund(4, 1))
        .at_ms(3_500, left(10))
        .at_ms(3_500, allow_of(10))
        .at_ms(3_500, deny_for_ms(1_000));
    // A window that has ended gives nothing back at all.
    let window = Window::new(10, Duration::from_secs(1));
    script(window).at_ms(0, allow_of(10)).at_ms(1_000, refund(10, 0)).at_ms(1_000, left(10));
}

/// A leaky bucket drained before and after the request: twice its limit at one moment.
#[test]
fn bucket_does_not_admit_twice_its_limit_around_a_drain() {
    for at_ms in [0, 999, 1_000, 1_001, 59_999, 60_000] {
        let mut key = script(Bucket::per_minute(10));
        assert_eq!(key.burst_at_ms(at_ms), 10, "at {at_ms} ms");
        assert_eq!(key.burst_at_ms(at_ms), 0);
        assert_eq!(key.burst_at_ms(at_ms + 5_999), 0);
        assert_eq!(key.burst_at_ms(at_ms + 6_000), 1);
    }
}

/// `value + delta` overflowed, and a huge cost was allowed as a small one.
#[test]
fn huge_cost_does_not_overflow_into_an_admission() {
    let window = Window::new(u32::MAX.into(), Duration::from_secs(1));
    script(window)
        .at_ms(0, allow_of(u64::from(u32::MAX) - 1))
        .at_ms(0, deny_of(u32::MAX.into(), after(Duration::from_secs(1))))
        .at_ms(0, deny_of(u64::MAX, Wait::Never))
        .at_ms(0, deny_of(2, after(Duration::from_secs(1))))
        .at_ms(0, allow())
        .at_ms(0, left(0));
    script(per_second(1, 10)).at_ms(0, allow()).at_ms(0, deny_of(u64::MAX, Wait::Never));
    let sliding = Sliding::new(10, Duration::from_secs(1), 10);
    script(sliding).at_ms(0, allow()).at_ms(0, deny_of(u64::MAX, Wait::Never));
}

/// A window interpolated from two counters admits nearly twice its limit in the worst window.
#[test]
fn sliding_window_holds_in_its_worst_window() {
    for parts in [1, 2, 10, 15] {
        let limit = Sliding::new(100, Duration::from_secs(1), parts);
        let mut state = limit.fresh();
        // Everything at the end of a window, then as much as it gives, every millisecond.
        let mut admitted = Vec::new();
        for at_ms in 990..4_000_u64 {
            let now = Timestamp::from_millis(at_ms);
            while limit.check(&mut state, 1, now).is_allowed() {
                admitted.push(at_ms);
            }
        }
        for start in 990..4_000 {
            let window = start..start + 1_000_u64;
            let sum = admitted.iter().filter(|&at_ms| window.contains(at_ms)).count();
            assert!(sum <= 100, "{sum} from {start} ms on, in {parts} parts");
        }
        assert!(admitted.len() >= 200, "{} in 3 s", admitted.len());
    }
}

/// A wait of 0 makes clients spin, a wait of a whole window makes them late.
#[test]
fn wait_is_neither_zero_nor_the_whole_window() {
    script(per_second(1_000_000, 1)).at_ns(0, allow()).at_ns(999, deny_for_ns(1));
    script(per_second(3, 1)).at_ns(0, allow()).at_ns(0, deny_for_ns(333_333_334));
    script(per_second(3, 1)).at_ns(0, allow()).at_ns(333_333_333, deny_for_ns(1));
    let window = Window::new(1, Duration::from_secs(60));
    script(window).at_ms(0, allow()).at_ms(59_999, deny_for_ms(1)).at_ms(60_000, allow());
    let sliding = Sliding::new(2, Duration::from_secs(60), 10);
    script(sliding)
        .at_ms(0, allow())
        .at_ms(50_000, allow())
        .at_ms(50_000, deny_for_ms(10_000))
        .at_ms(60_000, allow())
        .at_ms(60_000, deny_for_ms(50_000));
}

/// A burst of n let n + 1 through, the first request not being counted.
#[test]
fn burst_counts_the_first_request() {
    for burst in [1, 2, 10] {
        assert_eq!(script(per_second(1, burst)).burst_at_ms(0), burst);
    }
    assert_eq!(script(Bucket::per_minute(100)).burst_at_ms(7), 100);
}

/// A limit of 0 switched the limiter off.
#[test]
fn zero_is_an_error_and_not_unlimited() {
    let second = Duration::from_secs(1);
    let fields = [
        Rate::try_new(0, second).map_err(|error| error.field()).unwrap_err(),
        Rate::try_new(1, Duration::ZERO).map_err(|error| error.field()).unwrap_err(),
        Bucket::try_new(Rate::per_second(1), 0).map_err(|e| e.field()).unwrap_err(),
        Window::try_new(0, second).map_err(|error| error.field()).unwrap_err(),
        Sliding::try_new(0, second, 1).map_err(|error| error.field()).unwrap_err(),
    ];
    assert_eq!(fields, ["rate", "period", "burst", "max", "max"]);
}

/// `per_second(n)` built one per n seconds.
#[test]
fn per_second_counts_per_second() -> Result<(), LimitError> {
    assert_eq!(Rate::per_second(50), Rate::one_every(Duration::from_millis(20)));
    script(per_second(50, 1))
        .at_ms(0, allow())
        .at_ms(0, deny_for_ms(20))
        .at_ms(19, deny_for_ms(1))
        .at_ms(20, allow());
    Ok(())
}

/// The helper itself: many steps at one moment, then a wait to the millisecond.
#[test]
fn burst_then_steady_rate() {
    script(per_second(1, 3))
        .times(3, 0, allow())
        .at_ms(0, deny_for_ms(1_000))
        .at_ms(999, deny_for_ms(1))
        .at_ms(1_000, allow())
        .at_ms(1_000, deny_for_ms(1_000));
}

/// A decision in a log or a failed assertion says what a caller would do with it.
#[test]
fn a_decision_shows_what_remains_and_how_long_to_wait() {
    let limit = Bucket::per_second(1);
    let mut state = limit.fresh();
    let shown = |decision| format!("{decision:?}");
    assert_eq!(
        shown(limit.check(&mut state, 1, Timestamp::ZERO)),
        "Decision { is_allowed: true, limit: 1, remaining: 0, retry_after: None, reset: Some(1s) }"
    );
    assert_eq!(
        shown(limit.check(&mut state, 1, Timestamp::ZERO)),
        "Decision { is_allowed: false, limit: 1, remaining: 0, retry_after: Some(After(1s)), reset: Some(1s) }"
    );
}
