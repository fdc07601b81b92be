use std::time::Duration;

use tidegate_core::{Bucket, Rate, Sliding, Window};
use tidegate_policy::policy::Share;

use super::scaled;
use crate::any_limit::AnyLimit;

fn share(millionths: u32) -> Share {
    Share::from_millionths(millionths).unwrap()
}

fn bucket(rate: Rate, burst: u64, millionths: u32) -> (Rate, u64) {
    let limit = AnyLimit::Bucket(Bucket::try_new(rate, burst).unwrap());
    let AnyLimit::Bucket(bucket) = scaled(&limit, share(millionths)) else { panic!("{limit:?}") };
    (bucket.rate(), bucket.capacity())
}

#[test]
fn rate_of_a_bucket_is_scaled_exactly_over_a_longer_period() {
    let hour = Duration::from_secs(3_600);
    let quarter = bucket(Rate::new(1, hour), 1, 250_000);
    assert_eq!(quarter, (Rate::new(1, 4 * hour), 1));
    let third = bucket(Rate::per_second(10), 20, 333_333);
    assert_eq!(third.0, Rate::new(3_333_330, Duration::from_secs(1_000_000)));
    assert_eq!(third.1, 6);
    assert_eq!(bucket(Rate::per_second(7), 9, 1_000_000), (Rate::per_second(7), 9));
}

/// Whether `a` is at most this share of `b`.
fn is_at_most(a: Rate, b: Rate, millionths: u32) -> bool {
    let whole = (u128::from(b.count()) * u128::from(millionths), b.period().as_nanos() * 1_000_000);
    is_no_larger((a.count().into(), a.period().as_nanos()), whole)
}

/// Compares fractions, without products that would overflow.
fn is_no_larger(mut a: (u128, u128), mut b: (u128, u128)) -> bool {
    loop {
        if a.0 / a.1 != b.0 / b.1 {
            return a.0 / a.1 < b.0 / b.1;
        }
        (a.0, b.0) = (a.0 % a.1, b.0 % b.1);
        if a.0 == 0 || b.0 == 0 {
            return a.0 == 0;
        }
        // The larger of two is the smaller of their inverses.
        (a, b) = ((b.1, b.0), (a.1, a.0));
    }
}

#[test]
fn rate_that_cannot_be_exact_is_lower_and_the_bucket_still_works() {
    let rates = [
        Rate::new(1, Duration::from_secs(86_400)),
        Rate::new(1, Duration::from_nanos(i64::MAX.unsigned_abs())),
        Rate::new(999_999_937, Duration::from_nanos(999_999_929)),
        Rate::new(4_294_967_291, Duration::from_nanos(1)),
        Rate::per_second(1_000_000_000_000),
    ];
    for rate in rates {
        for burst in [1, 100, 1 << 31] {
            if Bucket::try_new(rate, burst).is_err() {
                continue;
            }
            for millionths in [1, 3, 249_999, 333_333, 999_999] {
                let (lower, smaller) = bucket(rate, burst, millionths);
                assert!(smaller <= share(millionths).of(burst), "{rate} {burst} {millionths}");
                let is_slowest = lower.count() == 1 && lower.period().as_secs() > 9_000_000_000;
                assert!(is_slowest || is_at_most(lower, rate, millionths), "{rate} -> {lower}");
            }
        }
    }
}

#[test]
fn maximum_of_a_window_is_rounded_down_and_at_least_one() {
    let per = Duration::from_secs(60);
    for (max, millionths, expected) in [(10, 250_000, 2), (3, 250_000, 1), (100, 1_000_000, 100)] {
        let window = Window::new(max, per);
        let expected_window = Window::new(expected, per);
        assert_eq!(
            scaled(&AnyLimit::Window(window), share(millionths)),
            AnyLimit::Window(expected_window)
        );
        assert_eq!(
            scaled(&AnyLimit::Window(window.aligned()), share(millionths)),
            AnyLimit::Window(expected_window.aligned())
        );
        assert_eq!(
            scaled(&AnyLimit::Sliding(Sliding::new(max, per, 6)), share(millionths)),
            AnyLimit::Sliding(Sliding::new(expected, per, 6))
        );
    }
}
