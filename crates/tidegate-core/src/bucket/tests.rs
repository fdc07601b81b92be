use std::time::Duration;

use super::*;
use crate::Wait;

fn bucket(count: u64, period_ns: u64, burst: u64) -> Bucket {
    Bucket::try_new(Rate::new(count, Duration::from_nanos(period_ns)), burst).unwrap()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[test]
fn ticks_make_both_a_nanosecond_and_a_unit_whole() {
    for (count, period_ns, per_ns, per_unit) in [
        (1, 1, 1, 1),
        (600_000_000, 1_000_000_000, 3, 5),
        (3, 1_000_000_000, 3, 1_000_000_000),
        (60, 60_000_000_000, 1, 1_000_000_000),
        (1_000_000_000_000, 1_000_000_000, 1_000, 1),
        (7, 999_999_937, 7, 999_999_937),
    ] {
        assert_eq!(bucket(count, period_ns, 1).ticks, Ticks { per_ns, per_unit });
    }
}

#[test]
fn state_is_the_tick_at_which_the_bucket_is_full() {
    let limit = bucket(3, 5, 10);
    let mut state = limit.fresh();
    for (now, cost, full_at_ticks) in [
        (0, 1, 5),
        (0, 2, 15),
        // Five nanoseconds are fifteen ticks: just full, so the count restarts.
        (5, 1, 20),
        (6, 1, 25),
        // A step back changes nothing about when it is full.
        (3, 1, 30),
        (100, 10, 350),
        (100, 1, 350),
    ] {
        let _ = limit.check(&mut state, cost, at(now));
        assert_eq!(state.full_at_ticks, full_at_ticks, "{cost} at {now}");
    }
}

#[test]
fn waits_by_cost() {
    let limit = bucket(3, 5, 10);
    let mut state = limit.fresh();
    assert!(limit.check(&mut state, 10, at(0)).is_allowed());
    assert!(limit.hold(&mut state, 1, at(2)).is_allowed());
    let after = |nanos| Some(Wait::After(Duration::from_nanos(nanos)));
    for (now, cost, wait) in [
        (2, 0, None),
        (2, 1, after(2)),
        (2, 2, after(3)),
        (2, 9, after(15)),
        (2, 10, Some(Wait::Unknown)),
        (2, 11, Some(Wait::Never)),
        (3, 1, after(1)),
        (4, 1, None),
    ] {
        assert_eq!(limit.peek(&state, cost, at(now)).retry_after(), wait, "{cost} at {now}");
    }
}

#[test]
fn successor_counts_in_ticks_that_divide_the_old_ones() {
    let (thirds, sevenths) = (bucket(3, 1_000, 5), bucket(7, 900, 5));
    let edited = sevenths.succeeding(&thirds);
    assert_eq!(edited.ticks, Ticks { per_ns: 70, per_unit: 9_000 });
    assert_eq!(thirds.succeeding(&edited).ticks, Ticks { per_ns: 27, per_unit: 9_000 });
    assert_eq!(edited, sevenths, "equal, whatever the ticks");
    assert_ne!(edited, thirds);
    // Too fine for the state: its own ticks, and the carried level is rounded up.
    let long = bucket(1, (1 << 61) - 1, 4);
    assert_eq!(long.succeeding(&thirds).ticks, long.ticks);
    let odd = BucketState { full_at_ticks: 1, held: 0 };
    let carried = long.carry_over(&thirds, &odd, at(0)).full_at_ticks;
    assert_eq!(carried, ((1_u128 << 61) - 1).div_ceil(1_000));
}

#[test]
fn a_level_is_taken_over_if_it_can_be_expressed() {
    let (long, short) = (bucket(1, 1_000, 5), bucket(1, 1, 5));
    for (full_at_ticks, now, fits) in [
        (0, 0, true),
        (1 << 86, 0, true),
        (1 << 94, 0, false),
        (1 << 94, u64::MAX, false),
        // A thousand times the level, and the time, are just as much as a state can hold.
        ((1 << 96) / 1_000, 0, true),
        ((1 << 96) / 1_000 + 335, 335, true),
        ((1 << 96) / 1_000 + 336, 336, false),
        ((1 << 96) / 1_000 + 1, 0, false),
    ] {
        let state = BucketState { full_at_ticks, held: 0 };
        assert_eq!(long.can_take_over(&short, &state, at(now)), fits, "{full_at_ticks} at {now}");
        assert!(short.can_take_over(&short, &state, at(now)));
    }
    // In the same ticks a state stays as it is.
    let state = BucketState { full_at_ticks: 0, held: u64::MAX };
    let day = bucket(1, 86_400_000_000_000, 5);
    assert!(day.can_take_over(&day, &state, at(0)) && !day.can_take_over(&short, &state, at(0)));
}

#[test]
fn another_bucket_refills_at_its_own_rate() {
    let (slow, fast) = (bucket(1, 10, 5), bucket(1, 4, 5));
    let mut state = slow.fresh();
    assert!(slow.check(&mut state, 5, at(100)).is_allowed());
    // 50 ns from full; in 8 ns the other one returns two units, which take 20 ns here.
    for (to, full_at_ticks) in [(100, 150), (108, 138), (109, 137), (120, 120), (200, 200)] {
        let refilled = slow.refilled_by(&fast, &state, at(100), at(to));
        assert_eq!(refilled, BucketState { full_at_ticks, held: 0 }, "from 100 to {to}");
    }
    let held = BucketState { held: 2, ..state };
    let refilled = slow.refilled_by(&fast, &held, at(100), at(200));
    assert_eq!(refilled, BucketState { full_at_ticks: 200, held: 2 });
}

#[test]
fn overdrawn_is_what_was_charged_above_the_burst() {
    let limit = bucket(1, 10, 10).with_debt(Debt::UpTo(5)).unwrap();
    let mut state = limit.fresh();
    assert_eq!(limit.count(&mut state, 10, at(0)), 10);
    assert_eq!(limit.overdrawn(&state, at(0)), 0);
    assert_eq!(limit.count(&mut state, 10, at(0)), 5);
    for (now, units) in [(0, 5), (1, 5), (10, 4), (49, 1), (50, 0), (1_000, 0)] {
        assert_eq!(limit.overdrawn(&state, at(now)), units, "at {now}");
    }
}

#[test]
fn scale_up_rounds_up_and_saturates() {
    for (value, multiplier, divisor, scaled) in [
        (0, 7, 3, 0),
        (1, 1, 3, 1),
        (3, 1, 3, 1),
        (4, 1, 3, 2),
        (10, 7, 5, 14),
        (1 << 95, u64::MAX, u64::MAX, 1 << 95),
        (1 << 95, u64::MAX, 1, u128::MAX),
    ] {
        assert_eq!(scale_up(value, multiplier, divisor), scaled, "{value}·{multiplier}/{divisor}");
    }
}

#[test]
fn scale_down_rounds_down_and_saturates() {
    for (value, multiplier, divisor, scaled) in [
        (0, 7, 3, 0),
        (2, 1, 3, 0),
        (5, 1, 3, 1),
        (10, 7, 5, 14),
        (14, 7, 5, 19),
        (1 << 95, u64::MAX, u64::MAX, 1 << 95),
        (1 << 95, u64::MAX, 1, u128::MAX),
    ] {
        assert_eq!(
            scale_down(value, multiplier, divisor),
            scaled,
            "{value}·{multiplier}/{divisor}"
        );
    }
}

#[test]
fn a_charge_of_one_unit_decides_as_a_check_does() {
    let limits =
        [bucket(3, 5, 10), bucket(1, 1_000_000_000, 1), bucket(600_000_000, 1_000_000_000, 7)];
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for limit in limits {
        let charge =
            |full_at_ticks, now| charge_unit(|word| limit.unit_words()[word], full_at_ticks, now);
        let (mut state, mut now, mut denied) = (limit.fresh(), 0_u64, 0);
        for _ in 0..100_000 {
            // To and fro, mostly forwards, by about a unit.
            let step = random(limit.ticks.per_unit / limit.ticks.per_ns * 2 + 2);
            now = if random(8) == 0 { now.saturating_sub(step) } else { now + step };
            let charged = charge(state.full_at_ticks, at(now));
            let decision = limit.check(&mut state, 1, at(now));
            assert_eq!(charged.is_some(), decision.is_allowed());
            assert_eq!(charged.unwrap_or(state.full_at_ticks), state.full_at_ticks);
            denied += u32::from(charged.is_none());
        }
        assert!((1_000..99_000).contains(&denied), "{limit:?}: {denied} of 100 000 were denied");
        // The end of the clock.
        let last = charge(state.full_at_ticks, Timestamp::MAX);
        assert!(last.is_some_and(|ticks| ticks < 1 << 96));
    }
}

/// A level of more bits than a word has.
#[test]
fn a_charge_of_one_long_unit_decides_as_a_check_does() {
    let limit = bucket(1, 1 << 62, 10);
    let mut state = limit.fresh();
    for count in 1..=12 {
        let charged =
            charge_unit(|word| limit.unit_words()[word], state.full_at_ticks, Timestamp::ZERO);
        assert_eq!(limit.check(&mut state, 1, Timestamp::ZERO).is_allowed(), count <= 10);
        assert_eq!(charged, (count <= 10).then_some(state.full_at_ticks), "{count}");
    }
}
