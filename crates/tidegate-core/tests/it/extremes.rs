//! Integer extremes, as tables: nothing panics, wraps or loses its last digit.

use std::time::Duration;

use tidegate_core::{
    Algorithm, Bucket, Carry, Cooldown, Debt, HeldUnits, LimitErrorKind, Period, Quota,
    QuotaCharge, Rate, Sliding, Timestamp, Wait, Window,
};

use crate::strategies::Subject;

const END: u64 = Timestamp::MAX.as_nanos();
const CENTURY: Duration = Duration::from_secs(3_155_760_000);
const LONGEST: Duration = Duration::from_nanos(END);
const SHORTEST: Duration = Duration::from_nanos(1);

fn rate(count: u64, period: Duration) -> Rate {
    Rate::new(count, period).unwrap()
}

#[test]
fn constructors_accept_the_extremes() {
    let accepted = [
        ("1 per ns", Bucket::new(rate(1, SHORTEST), 1)),
        ("10^12 per s", Bucket::new(Rate::per_second(1_000_000_000_000).unwrap(), 1)),
        ("2^32 − 1 per ns", Bucket::new(rate(u32::MAX.into(), SHORTEST), u64::MAX)),
        ("1 per century", Bucket::new(rate(1, CENTURY), 1_000_000_000)),
        ("1 per clock", Bucket::new(rate(1, LONGEST), u32::MAX.into())),
        ("1 per day, a million", Bucket::new(Rate::per_day(1).unwrap(), 1_000_000)),
        ("10^9 per s, all", Bucket::new(Rate::per_second(1_000_000_000).unwrap(), u64::MAX)),
        (
            "u64::MAX per u64::MAX/3 ns",
            Bucket::new(rate(u64::MAX, Duration::from_nanos(u64::MAX / 3)), 1),
        ),
    ];
    for (name, bucket) in accepted {
        assert!(bucket.is_ok(), "{name}: {bucket:?}");
    }
    assert!(Window::new(u32::MAX.into(), LONGEST).is_ok());
    assert_eq!(Window::new(1 << 32, LONGEST).map_err(|error| error.field()), Err("max"));
    assert!(Sliding::new(u32::MAX.into(), LONGEST, Sliding::MAX_PARTS).is_ok());
    assert!(Sliding::new(1, SHORTEST, 1).is_ok());
    assert!(Cooldown::new(LONGEST).is_ok());
    assert!(Quota::new(u64::MAX, Carry::UpTo(u64::MAX)).is_ok());
}

#[test]
fn constructors_name_the_field_that_is_wrong() {
    let too_long = Duration::from_nanos(END + 1);
    let second = Duration::from_secs(1);
    let per_day = Rate::per_day(1).unwrap();
    let one = |rate| Bucket::new(rate, 1).map(|_| ());
    let errors = [
        (one(rate(u32::MAX.into(), SHORTEST)).and(Rate::per_second(0).map(|_| ())), "rate"),
        (Rate::new(1, Duration::ZERO).map(|_| ()), "period"),
        (Rate::new(1, too_long).map(|_| ()), "period"),
        (Rate::new(1, Duration::MAX).map(|_| ()), "period"),
        (one(rate(1 << 32, SHORTEST)), "rate"),
        (one(rate(u64::MAX, SHORTEST)), "rate"),
        (Bucket::new(per_day, 0).map(|_| ()), "burst"),
        (Bucket::new(per_day, u64::MAX).map(|_| ()), "burst"),
        (Bucket::new(rate(1, LONGEST), 1 << 33).map(|_| ()), "burst"),
        (Bucket::new(per_day, 1).unwrap().with_debt(Debt::UpTo(u64::MAX - 1)).map(|_| ()), "debt"),
        (Window::new(0, second).map(|_| ()), "max"),
        (Window::new(1, Duration::ZERO).map(|_| ()), "per"),
        (Window::new(1, too_long).map(|_| ()), "per"),
        (Sliding::new(0, second, 1).map(|_| ()), "max"),
        (Sliding::new(1 << 32, second, 1).map(|_| ()), "max"),
        (Sliding::new(1, Duration::ZERO, 1).map(|_| ()), "per"),
        (Sliding::new(1, second, 0).map(|_| ()), "parts"),
        (Sliding::new(1, second, 16).map(|_| ()), "parts"),
        (Sliding::new(1, SHORTEST, 2).map(|_| ()), "parts"),
        (Cooldown::new(Duration::ZERO).map(|_| ()), "cooldown"),
        (Cooldown::new(Duration::MAX).map(|_| ()), "cooldown"),
        (Quota::new(0, Carry::Nothing).map(|_| ()), "max"),
        (Quota::new(1, Carry::UpTo(0)).map(|_| ()), "carry"),
        (Quota::new(1, Carry::All).and_then(|it| it.with_debt(Debt::UpTo(0))).map(|_| ()), "debt"),
    ];
    for (index, (result, field)) in errors.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert_eq!(error.field(), field, "line {index}");
        assert!(error.to_string().starts_with(field), "{error}");
        let is_zero = error.problem() == LimitErrorKind::Zero;
        assert_eq!(error.to_string().contains("zero does not mean unlimited"), is_zero);
    }
}

/// Every operation with extreme amounts at extreme times in every order: no panic, and never more
/// left than there is.
fn survives<S: Subject>(limit: S) {
    let times = [0, 1, 2, END / 2, END - 1, END];
    let amounts = [0, 1, limit.capacity(), u64::MAX - 1, u64::MAX];
    for first in times {
        for second in times {
            for amount in amounts {
                for other in amounts {
                    let (first, second) = [first, second].map(Timestamp::from_nanos).into();
                    let mut state = limit.fresh();
                    let _ = limit.check(&mut state, amount, first);
                    let _ = limit.hold(&mut state, other, second);
                    let _ = limit.check(&mut state, 1, first).verdict();
                    limit.refund(&mut state, other, second);
                    limit.commit(&mut state, amount, other, first);
                    let _ = limit.hold(&mut state, amount, second);
                    limit.commit(&mut state, other, u64::MAX, first);
                    limit.cancel(&mut state, u64::MAX, second);
                    let decision = limit.check(&mut state, other, first);
                    assert!(decision.remaining() <= limit.capacity());
                    let _ = (decision.retry_after(), decision.reset());
                    let joined = limit.join(&state, &limit.fresh());
                    assert_eq!(limit.is_idle(&joined, second), limit.is_idle(&state, second));
                }
            }
        }
    }
}

#[test]
fn nothing_panics_at_the_ends_of_time_and_cost() {
    const MOST: u64 = u32::MAX as u64;
    let buckets = [
        Bucket::new(rate(1, SHORTEST), 1),
        Bucket::new(rate(u32::MAX.into(), SHORTEST), u64::MAX),
        Bucket::new(rate(1, LONGEST), u32::MAX.into()),
        Bucket::new(Rate::per_day(1).unwrap(), 1_000_000),
        Bucket::new(Rate::per_second(1_000_000_000).unwrap(), u64::MAX),
        Bucket::new(rate(1, SHORTEST), u64::MAX)
            .and_then(|bucket| bucket.with_debt(Debt::UpTo(u64::MAX - 1))),
        Bucket::new(Rate::per_day(1).unwrap(), 1_000_000).and_then(|it| it.with_debt(Debt::All)),
        Bucket::new(rate(65_537, Duration::from_nanos(999_999_937)), 97),
    ];
    buckets.into_iter().for_each(|bucket| survives(bucket.unwrap()));
    for (max, per) in [(1, SHORTEST), (MOST, LONGEST), (MOST, SHORTEST), (1, LONGEST)] {
        survives(Window::new(max, per).unwrap());
        survives(Window::new(max, per).unwrap().aligned());
    }
    for (max, per, parts) in [
        (1, 1, 1),
        (8, END, 15),
        (9, END, 15),
        (u32::MAX.into(), END, 1),
        (u32::MAX.into(), 15, 15),
    ] {
        survives(Sliding::new(max, Duration::from_nanos(per), parts).unwrap());
    }
    for gap in [SHORTEST, LONGEST] {
        survives(Cooldown::new(gap).unwrap());
        survives(Cooldown::new(gap).unwrap().extended_by_refusals());
    }
}

/// Edits between limits that have nothing in common, with everything used or held before.
fn survives_edits<S: Subject>(limits: &[S]) {
    for old in limits {
        for new in limits {
            for at in [0, 1, END] {
                for held in [0, 1, old.capacity()] {
                    let now = Timestamp::from_nanos(at);
                    let mut state = old.fresh();
                    let _ = old.hold(&mut state, held, now);
                    let _ = old.check(&mut state, old.capacity() - held, now);
                    let new = new.succeeding(old);
                    state = new.carry_over(old, &state, now);
                    for time in [END, 0, at] {
                        let time = Timestamp::from_nanos(time);
                        let decision = new.check(&mut state, u64::MAX, time);
                        assert!(decision.remaining() <= new.capacity());
                        let _ = (decision.retry_after(), decision.reset());
                        new.commit(&mut state, 1, u64::MAX, time);
                        new.refund(&mut state, 1, time);
                        state = new.join(&state, &state);
                    }
                    let back = old.succeeding(&new);
                    state = back.carry_over(&new, &state, now);
                    let _ = back.check(&mut state, 1, now).verdict();
                }
            }
        }
    }
}

#[test]
fn nothing_panics_in_edits_between_extremes() {
    let coprime = [(1 << 32) - 1, (1 << 32) + 1, (1 << 31) - 1, (1 << 61) - 1, END];
    let mut buckets: Vec<Bucket> = coprime
        .iter()
        .map(|&period| Bucket::new(rate(1, Duration::from_nanos(period)), 2).unwrap())
        .collect();
    buckets.push(Bucket::new(rate(1, SHORTEST), u64::MAX).unwrap());
    buckets.push(Bucket::new(rate(u32::MAX.into(), SHORTEST), u64::MAX).unwrap());
    buckets.push(Bucket::new(rate(1, SHORTEST), 1).unwrap().with_debt(Debt::All).unwrap());
    survives_edits(&buckets);
    survives_edits(&[
        Window::new(u32::MAX.into(), LONGEST).unwrap(),
        Window::new(1, SHORTEST).unwrap().aligned(),
        Window::new(u32::MAX.into(), SHORTEST).unwrap(),
    ]);
    survives_edits(&[
        Sliding::new(u32::MAX.into(), LONGEST, 15).unwrap(),
        Sliding::new(1, SHORTEST, 1).unwrap(),
        Sliding::new(u32::MAX.into(), Duration::from_nanos(15), 15).unwrap(),
        Sliding::new(20, CENTURY, 7).unwrap(),
    ]);
}

/// Ticks that divide both of two coprime rates may need more than 63 bits per unit. They are not
/// used then, or a huge cost would wrap around and be admitted.
#[test]
fn cost_does_not_wrap_in_the_finest_ticks() {
    // The least common multiple of the periods is 2^64 − 1.
    let [a, b] = [(1_u64 << 32) - 1, (1 << 32) + 1]
        .map(|period| Bucket::new(rate(1, Duration::from_nanos(period)), 3).unwrap());
    let (mut state, now) = (a.fresh(), Timestamp::from_secs(5));
    assert!(a.check(&mut state, 2, now).is_allowed());
    let edited = b.succeeding(&a);
    state = edited.carry_over(&a, &state, now);
    for cost in [u64::MAX, u64::MAX - 1, u64::MAX / 2, 4] {
        assert_eq!(edited.check(&mut state, cost, now).retry_after(), Some(Wait::Never), "{cost}");
    }
    assert_eq!(edited.peek(&state, 0, now).remaining(), 1);
    assert_eq!(
        edited.with_debt(Debt::UpTo(u64::MAX - 1)).map_err(|error| error.field()),
        Err("debt")
    );
}

/// Two keys may come together with everything used in one and everything held in the other. A slot of
/// a table cannot count both.
#[test]
fn joined_extremes_do_not_overflow() {
    const MOST: u64 = u32::MAX as u64;
    let limit = Window::new(u32::MAX.into(), LONGEST).unwrap();
    let (mut used, mut held) = (limit.fresh(), limit.fresh());
    let now = Timestamp::ZERO;
    assert!(limit.check(&mut used, MOST, now).is_allowed());
    assert!(limit.hold(&mut held, MOST, now).is_allowed());
    let mut joined = limit.join(&used, &held);
    assert_eq!(limit.check(&mut joined, 1, now).retry_after(), Some(Wait::Unknown));
    assert_eq!(limit.commit(&mut joined, MOST, MOST, now), 0);
    assert_eq!(limit.refund(&mut joined, MOST, now), MOST);
}

/// With everything held there is no room for anything, and the wait is unknown.
#[test]
fn everything_held_is_unknown_at_the_largest_capacity() {
    let now = Timestamp::ZERO;
    let window = Window::new(u32::MAX.into(), SHORTEST).unwrap();
    let mut state = window.fresh();
    assert!(window.hold(&mut state, u32::MAX.into(), now).is_allowed());
    assert_eq!(window.check(&mut state, 1, now).retry_after(), Some(Wait::Unknown));
    let bucket = Bucket::new(rate(1, SHORTEST), u64::MAX).unwrap();
    let mut state = bucket.fresh();
    assert!(bucket.hold(&mut state, u64::MAX, now).is_allowed());
    assert_eq!(bucket.check(&mut state, 1, now).retry_after(), Some(Wait::Unknown));
}

/// The clock ends: a wait that would reach beyond it is no wait.
#[test]
fn wait_beyond_the_end_of_the_clock_is_never() {
    let end = Timestamp::MAX;
    let near = Timestamp::from_nanos(END - 10);
    let bucket = Bucket::new(rate(1, Duration::from_nanos(10)), 1).unwrap();
    let mut state = bucket.fresh();
    assert!(bucket.check(&mut state, 1, near).is_allowed());
    assert_eq!(
        bucket.check(&mut state, 1, near).retry_after(),
        Some(Wait::After(Duration::from_nanos(10)))
    );
    assert!(bucket.check(&mut state, 1, end).is_allowed());
    let denied = bucket.check(&mut state, 1, end);
    assert_eq!((denied.retry_after(), denied.reset()), (Some(Wait::Never), Duration::MAX));
    let window = Window::new(1, LONGEST).unwrap();
    let mut state = window.fresh();
    assert!(window.check(&mut state, 1, Timestamp::from_nanos(1)).is_allowed());
    assert_eq!(window.check(&mut state, 1, end).retry_after(), Some(Wait::Never));
    let cooldown = Cooldown::new(LONGEST).unwrap();
    let mut state = cooldown.fresh();
    assert!(cooldown.check(&mut state, 1, Timestamp::from_nanos(1)).is_allowed());
    assert_eq!(cooldown.check(&mut state, 1, end).retry_after(), Some(Wait::Never));
}

/// The last of a century's units, to the nanosecond.
#[test]
fn century_is_exact_to_the_nanosecond() {
    let century_ns = u64::try_from(CENTURY.as_nanos()).unwrap();
    for count in [1, 3, 7, 1_000_003] {
        let limit = Bucket::new(rate(count, CENTURY), 1).unwrap();
        let mut state = limit.fresh();
        assert!(limit.check(&mut state, 1, Timestamp::ZERO).is_allowed());
        let wait = Duration::from_nanos(century_ns.div_ceil(count));
        let denied = limit.check(&mut state, 1, Timestamp::ZERO);
        assert_eq!(denied.retry_after(), Some(Wait::After(wait)), "{count} per century");
    }
}

#[test]
fn quota_survives_extremes() {
    for carry in [Carry::Nothing, Carry::UpTo(1), Carry::UpTo(u64::MAX), Carry::All] {
        for debt in [Debt::All, Debt::UpTo(1), Debt::UpTo(u64::MAX), Debt::Nothing] {
            for max in [1, u64::MAX] {
                quota_lasts(Quota::new(max, carry).unwrap().with_debt(debt).unwrap());
            }
        }
    }
}

fn quota_lasts(limit: Quota) {
    for ends in [None, Some(Timestamp::ZERO), Some(Timestamp::MAX)] {
        let mut state = limit.fresh(Period { index: 0, ends });
        for index in [0, 1, u64::MAX - 1, u64::MAX, 0] {
            let period = Period { index, ends };
            for cost in [0, 1, limit.max(), u64::MAX] {
                let now = Timestamp::from_nanos(END - 1);
                let decision = limit.check(&mut state, cost, period, now);
                let _ = (decision.verdict(), decision.reset());
                let _ = limit.hold(&mut state, cost, period, now);
                for held_in in [0, index, u64::MAX] {
                    let held = |units| HeldUnits { units, period: held_in };
                    let committed = limit.commit(&mut state, held(cost), u64::MAX, period);
                    let mut charge = QuotaCharge::new(state, &committed);
                    limit.refund_charge(&mut state, &mut charge, cost, period);
                    limit.refund(&mut state, cost, period);
                    limit.cancel(&mut state, held(u64::MAX), period);
                }
                assert_ne!(decision.retry_after(), Some(Wait::After(Duration::ZERO)));
            }
        }
    }
}

#[test]
fn time_saturates_at_its_ends() {
    assert_eq!(Timestamp::from_nanos(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::ZERO.saturating_add(Duration::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::MAX.saturating_add(SHORTEST), Timestamp::MAX);
    assert_eq!(Timestamp::MAX.saturating_sub(Duration::MAX), Timestamp::ZERO);
    assert_eq!(Timestamp::from_nanos(1_000_000_001).to_string(), "1.000000001s");
}
