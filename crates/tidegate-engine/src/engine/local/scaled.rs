//! A share of a limit: exact in integers where the limit's types can express it, and else less.

use std::time::Duration;

use tidegate_core::{Bucket, Rate, Sliding, Window};
use tidegate_policy::policy::Share;

use crate::any_limit::AnyLimit;

/// The share of a limit that counts units: its maximum or burst is rounded down, to at least 1, and a
/// rate keeps its exact value, over a longer period.
///
/// Other limits have no shares; they are returned as they are, and no policy gives them one.
pub(super) fn scaled(limit: &AnyLimit, share: Share) -> AnyLimit {
    match limit {
        AnyLimit::Bucket(bucket) => AnyLimit::Bucket(scaled_bucket(bucket, share)),
        AnyLimit::Window(window) => {
            let smaller = Window::try_new(share.of(window.max()), window.per());
            let smaller = smaller.map(|it| if window.is_aligned() { it.aligned() } else { it });
            AnyLimit::Window(smaller.unwrap_or(*window))
        }
        AnyLimit::Sliding(sliding) => {
            let smaller = Sliding::try_new(share.of(sliding.max()), sliding.per(), sliding.parts());
            AnyLimit::Sliding(smaller.unwrap_or(*sliding))
        }
        _ => *limit,
    }
}

/// A booking may overdraw it as far as the whole bucket.
fn scaled_bucket(bucket: &Bucket, share: Share) -> Bucket {
    let burst = share.of(bucket.capacity());
    let rates = [exact_rate(bucket.rate(), share), lower_rate(bucket.rate(), share)];
    for rate in rates.into_iter().flatten() {
        for burst in [burst, burst.min(SMALL_BURST)] {
            if let Ok(smaller) = Bucket::try_new(rate, burst) {
                return smaller.with_debt(bucket.debt()).unwrap_or(smaller);
            }
        }
    }
    // Neither happens: one unit per 292 years and a small burst can be represented.
    Bucket::try_new(bucket.rate(), 1).unwrap_or(*bucket)
}

/// The share of a rate, exactly; `None` if its numbers are too large.
fn exact_rate(rate: Rate, share: Share) -> Option<Rate> {
    let (count, period_ns) = parts(rate, share);
    let divisor = gcd(count, period_ns);
    let count = u64::try_from(count / divisor).ok()?;
    let period_ns = u64::try_from(period_ns / divisor).ok()?;
    Rate::try_new(count, Duration::from_nanos(period_ns)).ok()
}

/// A rate with round numbers that is at most the share: a whole number per period, or one unit per a
/// whole number of nanoseconds.
fn lower_rate(rate: Rate, share: Share) -> Option<Rate> {
    let (count, period_ns) = parts(rate, share);
    let whole = u128::from(rate.count()) * u128::from(share.millionths()) / MILLION;
    if whole > 0 {
        return Rate::try_new(u64::try_from(whole).ok()?, rate.period()).ok();
    }
    let per_unit_ns = u64::try_from(period_ns.div_ceil(count)).unwrap_or(u64::MAX);
    Rate::try_new(1, Duration::from_nanos(per_unit_ns.min(LONGEST_NS))).ok()
}

/// The share of a rate: so many per so many nanoseconds, below 2^84 both.
fn parts(rate: Rate, share: Share) -> (u128, u128) {
    let count = u128::from(rate.count()) * u128::from(share.millionths());
    (count, rate.period().as_nanos().saturating_mul(MILLION))
}

const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

const MILLION: u128 = Share::WHOLE_MILLIONTHS as u128;

/// The longest period of a rate.
const LONGEST_NS: u64 = i64::MAX.unsigned_abs();

/// A burst that fits every rate.
const SMALL_BURST: u64 = 1 << 31;

#[cfg(test)]
mod tests;
