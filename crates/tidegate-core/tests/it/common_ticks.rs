//! Buckets that take turns over one state.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Algorithm, Bucket, Rate, Timestamp, Wait};

use crate::strategies::config;

fn common(count: u64, period_ns: u64, burst: u64) -> Bucket {
    let rate = Rate::new(count, Duration::from_nanos(period_ns));
    Bucket::in_common_ticks(rate, burst).unwrap()
}

fn exact(count: u64, period_ns: u64, burst: u64) -> Bucket {
    Bucket::try_new(Rate::new(count, Duration::from_nanos(period_ns)), burst).unwrap()
}

/// Numbers that both kinds of bucket can have.
fn numbers() -> impl Strategy<Value = (u64, u64, u64)> {
    let period_ns = prop_oneof![
        Just(1_000_000_000_u64),
        Just(60_000_000_000),
        Just(999_999_937),
        1..=100_000_000_000_u64,
    ];
    let count = prop_oneof![1..=100_u64, 1..=1_000_000_000_u64];
    (count, period_ns, 1..=1_000_u64)
        .prop_filter("under a nanosecond", |(count, period_ns, _)| count <= period_ns)
}

proptest! {
    #![proptest_config(config())]

    /// The rounding is against the caller, and by less than a tick for each unit.
    #[test]
    fn units_in_common_ticks_are_at_most_a_256th_of_a_nanosecond_late(
        (count, period_ns, burst) in numbers(),
        steps in prop::collection::vec((0..=3_000_000_000_u64, 0..=5_u64), 1..60),
    ) {
        let (common, exact) = (common(count, period_ns, burst), exact(count, period_ns, burst));
        let (mut common_state, mut exact_state) = (common.fresh(), exact.fresh());
        let (mut now, mut units) = (0, 0_u64);
        for (pass, cost) in steps {
            now += pass;
            let at = Timestamp::from_nanos(now);
            // Both are checked; both are charged only what the one in common ticks admits.
            let late = common.check(&mut common_state, cost, at);
            let soon = exact.peek(&exact_state, cost, at);
            prop_assert!(soon.is_allowed() || !late.is_allowed(), "{late:?} {soon:?}");
            if let (Some(Wait::After(late)), soon) = (late.retry_after(), soon.retry_after()) {
                let soon = match soon {
                    None => Duration::ZERO,
                    Some(Wait::After(soon)) => soon,
                    Some(other) => panic!("{other:?}"),
                };
                let bound = Duration::from_nanos((units + burst).div_ceil(256) + 1);
                prop_assert!(late >= soon && late <= soon + bound, "{late:?} {soon:?}");
            } else if late.is_allowed() {
                let _ = exact.check(&mut exact_state, cost, at);
                units += cost;
            }
        }
    }

    /// Where a tick is exact, so is everything else.
    #[test]
    fn round_rates_are_exact(
        interval_ns in 1..=10_000_000_000_u64,
        burst in 1..=50_u64,
        steps in prop::collection::vec((0..=20_000_000_000_u64, 0..=60_u64), 1..60),
    ) {
        let (common, exact) = (common(1, interval_ns, burst), exact(1, interval_ns, burst));
        let (mut common_state, mut exact_state) = (common.fresh(), exact.fresh());
        let mut now = 0;
        for (pass, cost) in steps {
            now += pass;
            let at = Timestamp::from_nanos(now);
            let decisions =
                (common.check(&mut common_state, cost, at), exact.check(&mut exact_state, cost, at));
            prop_assert_eq!(decisions.0, decisions.1);
        }
    }

    /// A state of one bucket means the same time to every other.
    #[test]
    fn buckets_take_turns_over_one_state(
        limits in prop::collection::vec(numbers(), 1..5),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..=9_u64, 0..=4_000_000_000_u64), 1..60),
    ) {
        let mut state = common(1, 1_000, 1).fresh();
        // When it is full again, in 256ths of a nanosecond: redis-cell's arithmetic, done by hand.
        let (mut now, mut full_at) = (0_u64, 0_i128);
        for (pick, cost, pass) in steps {
            now += pass;
            let (count, period_ns, burst) = limits[pick.index(limits.len())];
            let per_unit = (i128::from(period_ns) * 256 + i128::from(count) - 1) / i128::from(count);
            let now_ticks = i128::from(now) * 256;
            let wanted = full_at.max(now_ticks) + per_unit * i128::from(cost);
            let allowed = wanted - now_ticks <= per_unit * i128::from(burst);
            let limit = common(count, period_ns, burst);
            let decision = limit.check(&mut state, cost, Timestamp::from_nanos(now));
            prop_assert_eq!(decision.is_allowed(), allowed);
            if allowed && cost > 0 {
                full_at = wanted;
            }
            let left = (now_ticks + per_unit * i128::from(burst) - full_at.max(now_ticks)) / per_unit;
            prop_assert_eq!(i128::from(decision.remaining()), left.max(0));
            prop_assert!(limit.is_idle(&state, Timestamp::from_nanos(now)) == (full_at <= now_ticks));
        }
    }

    /// Whatever the numbers are, they make a bucket or an error.
    #[test]
    fn any_numbers_are_a_bucket_or_an_error(
        count in any::<u64>(), period in any::<u64>(), burst in any::<u64>(), cost in any::<u64>(),
        now in any::<u64>(),
    ) {
        let rate = Rate::try_new(count, Duration::from_nanos(period));
        if let Ok(limit) = rate.and_then(|rate| Bucket::in_common_ticks(rate, burst)) {
            let mut state = limit.fresh();
            for _ in 0..3 {
                let decision = limit.check(&mut state, cost, Timestamp::from_nanos(now));
                let _ = (decision.remaining(), decision.retry_after(), decision.reset());
            }
        }
    }
}

/// The ticks of ten years do not fit a word.
#[test]
fn units_of_a_long_period_are_as_late() {
    let ten_years_ns = 315_576_000_000_000_000;
    for (count, wait_ns) in [(1_000, 315_576_000_000_000), (11, 28_688_727_272_727_273)] {
        let limit = common(count, ten_years_ns, 1);
        let mut state = limit.fresh();
        assert!(limit.check(&mut state, 1, Timestamp::ZERO).is_allowed());
        let denied = limit.check(&mut state, 1, Timestamp::ZERO);
        assert_eq!(denied.retry_after(), Some(Wait::After(Duration::from_nanos(wait_ns))));
    }
}

#[test]
fn numbers_that_do_not_fit_are_errors_that_name_the_field() {
    let error = |count, period_ns, burst| {
        let rate = Rate::new(count, Duration::from_nanos(period_ns));
        Bucket::in_common_ticks(rate, burst).unwrap_err()
    };
    const DAY_NS: u64 = 86_400_000_000_000;
    assert_eq!(error(1, 1_000, 0).field(), "burst");
    assert_eq!(error(1_001, 1_000, 1).field(), "rate");
    assert_eq!(error(1, 418 * DAY_NS, 1).field(), "rate");
    assert_eq!(error(1, 1_000_000_000, 1 << 58).field(), "burst");
    assert!(error(1_001, 1_000, 1).to_string().contains("10^9 per second"));
    // What is just within the bounds.
    let _ = common(1_000, 1_000, u64::MAX);
    let _ = common(1, 416 * DAY_NS, 1);
    let _ = common(1, 1_000_000_000, 1 << 57);
}
