//! Integer extremes, as tables: nothing panics, wraps or loses its last digit.

use std::time::Duration;

use tidegate_core::{
    Algorithm, Bucket, Carry, Cooldown, Debt, Denied, HeldUnits, LimitErrorKind, Period, Quota,
    QuotaCharge, Rate, Sliding, Timestamp, Wait, Window,
};

use crate::strategies::Subject;

const END: u64 = Timestamp::MAX.as_nanos();
const CENTURY: Duration = Duration::from_secs(3_155_760_000);
const LONGEST: Duration = Duration::from_nanos(END);
const SHORTEST: Duration = Duration::from_nanos(1);

fn rate(count: u64, period: Duration) -> Rate {
    Rate::new(count, period)
}

#[test]
fn constructors_accept_the_extremes() {
    let accepted = [
        ("1 per ns", Bucket::try_new(rate(1, SHORTEST), 1)),
        ("10^12 per s", Bucket::try_new(Rate::per_second(1_000_000_000_000), 1)),
        ("2^32 − 1 per ns", Bucket::try_new(rate(u32::MAX.into(), SHORTEST), u64::MAX)),
        ("1 per century", Bucket::try_new(rate(1, CENTURY), 1_000_000_000)),
        ("1 per clock", Bucket::try_new(rate(1, LONGEST), u32::MAX.into())),
        ("1 per day, a million", Bucket::try_new(Rate::per_day(1), 1_000_000)),
        ("10^9 per s, all", Bucket::try_new(Rate::per_second(1_000_000_000), u64::MAX)),
        (
            "u64::MAX per u64::MAX/3 ns",
            Bucket::try_new(rate(u64::MAX, Duration::from_nanos(u64::MAX / 3)), 1),
        ),
    ];
    for (name, bucket) in accepted {
        assert!(bucket.is_ok(), "{name}: {bucket:?}");
    }
    assert!(Window::try_new(u32::MAX.into(), LONGEST).is_ok());
    assert_eq!(Window::try_new(1 << 32, LONGEST).map_err(|error| error.field()), Err("max"));
    assert!(Sliding::try_new(u32::MAX.into(), LONGEST, Sliding::MAX_PARTS).is_ok());
    assert!(Sliding::try_new(1, SHORTEST, 1).is_ok());
    assert!(Cooldown::try_new(LONGEST).is_ok());
    assert!(Quota::try_new(u64::MAX, Carry::UpTo(u64::MAX)).is_ok());
}

#[test]
fn constructors_name_the_field_that_is_wrong() {
    let too_long = Duration::from_nanos(END + 1);
    let second = Duration::from_secs(1);
    let per_day = Rate::per_day(1);
    let one = |rate| Bucket::try_new(rate, 1).map(|_| ());
    let errors = [
        (one(rate(u32::MAX.into(), SHORTEST)).and(Rate::try_new(0, second).map(|_| ())), "rate"),
        (Rate::try_new(1, Duration::ZERO).map(|_| ()), "period"),
        (Rate::try_new(1, too_long).map(|_| ()), "period"),
        (Rate::try_new(1, Duration::MAX).map(|_| ()), "period"),
        (one(rate(1 << 32, SHORTEST)), "rate"),
        (one(rate(u64::MAX, SHORTEST)), "rate"),
        (Bucket::try_new(per_day, 0).map(|_| ()), "burst"),
        (Bucket::try_new(per_day, u64::MAX).map(|_| ()), "burst"),
        (Bucket::try_new(rate(1, LONGEST), 1 << 33).map(|_| ()), "burst"),
        (
            Bucket::try_new(per_day, 1).unwrap().with_debt(Debt::UpTo(u64::MAX - 1)).map(|_| ()),
            "debt",
        ),
        (Window::try_new(0, second).map(|_| ()), "max"),
        (Window::try_new(1, Duration::ZERO).map(|_| ()), "per"),
        (Window::try_new(1, too_long).map(|_| ()), "per"),
        (Sliding::try_new(0, second, 1).map(|_| ()), "max"),
        (Sliding::try_new(1 << 32, second, 1).map(|_| ()), "max"),
        (Sliding::try_new(1, Duration::ZERO, 1).map(|_| ()), "per"),
        (Sliding::try_new(1, second, 0).map(|_| ()), "parts"),
        (Sliding::try_new(1, second, 16).map(|_| ()), "parts"),
        (Sliding::try_new(1, SHORTEST, 2).map(|_| ()), "parts"),
        (Cooldown::try_new(Duration::ZERO).map(|_| ()), "cooldown"),
        (Cooldown::try_new(Duration::MAX).map(|_| ()), "cooldown"),
        (Quota::try_new(0, Carry::Nothing).map(|_| ()), "max"),
        (Quota::try_new(1, Carry::UpTo(0)).map(|_| ()), "carry"),
        (
            Quota::try_new(1, Carry::All).and_then(|it| it.with_debt(Debt::UpTo(0))).map(|_| ()),
            "debt",
        ),
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
        Bucket::try_new(rate(1, SHORTEST), 1),
        Bucket::try_new(rate(u32::MAX.into(), SHORTEST), u64::MAX),
        Bucket::try_new(rate(1, LONGEST), u32::MAX.into()),
        Bucket::try_new(Rate::per_day(1), 1_000_000),
        Bucket::try_new(Rate::per_second(1_000_000_000), u64::MAX),
        Bucket::try_new(rate(1, SHORTEST), u64::MAX)
            .and_then(|bucket| bucket.with_debt(Debt::UpTo(u64::MAX - 1))),
        Bucket::try_new(Rate::per_day(1), 1_000_000).and_then(|it| it.with_debt(Debt::All)),
        Bucket::try_new(rate(65_537, Duration::from_nanos(999_999_937)), 97),
    ];
    buckets.into_iter().for_each(|bucket| survives(bucket.unwrap()));
    for (max, per) in [(1, SHORTEST), (MOST, LONGEST), (MOST, SHORTEST), (1, LONGEST)] {
        survives(Window::new(max, per));
        survives(Window::new(max, per).aligned());
    }
    for (max, per, parts) in [
        (1, 1, 1),
        (8, END, 15),
        (9, END, 15),
        (u32::MAX.into(), END, 1),
        (u32::MAX.into(), 15, 15),
    ] {
        survives(Sliding::new(max, Duration::from_nanos(per), parts));
    }
    for gap in [SHORTEST, LONGEST] {
        survives(Cooldown::new(gap));
        survives(Cooldown::new(gap).extended_by_refusals());
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
        .map(|&period| Bucket::try_new(rate(1, Duration::from_nanos(period)), 2).unwrap())
        .collect();
    buckets.push(Bucket::try_new(rate(1, SHORTEST), u64::MAX).unwrap());
    buckets.push(Bucket::try_new(rate(u32::MAX.into(), SHORTEST), u64::MAX).unwrap());
    buckets.push(Bucket::try_new(rate(1, SHORTEST), 1).unwrap().with_debt(Debt::All).unwrap());
    survives_edits(&buckets);
    survives_edits(&[
        Window::new(u32::MAX.into(), LONGEST),
        Window::new(1, SHORTEST).aligned(),
        Window::new(u32::MAX.into(), SHORTEST),
    ]);
    survives_edits(&[
        Sliding::new(u32::MAX.into(), LONGEST, 15),
        Sliding::new(1, SHORTEST, 1),
        Sliding::new(u32::MAX.into(), Duration::from_nanos(15), 15),
        Sliding::new(20, CENTURY, 7),
    ]);
}

/// Ticks that divide both of two coprime rates may need more than 63 bits per unit. They are not
/// used then, or a huge cost would wrap around and be admitted.
#[test]
fn cost_does_not_wrap_in_the_finest_ticks() {
    // The least common multiple of the periods is 2^64 − 1.
    let [a, b] = [(1_u64 << 32) - 1, (1 << 32) + 1]
        .map(|period| Bucket::try_new(rate(1, Duration::from_nanos(period)), 3).unwrap());
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
    let limit = Window::new(u32::MAX.into(), LONGEST);
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
    let window = Window::new(u32::MAX.into(), SHORTEST);
    let mut state = window.fresh();
    assert!(window.hold(&mut state, u32::MAX.into(), now).is_allowed());
    assert_eq!(window.check(&mut state, 1, now).retry_after(), Some(Wait::Unknown));
    let bucket = Bucket::try_new(rate(1, SHORTEST), u64::MAX).unwrap();
    let mut state = bucket.fresh();
    assert!(bucket.hold(&mut state, u64::MAX, now).is_allowed());
    assert_eq!(bucket.check(&mut state, 1, now).retry_after(), Some(Wait::Unknown));
}

/// The clock ends: a wait that would reach beyond it is no wait.
#[test]
fn wait_beyond_the_end_of_the_clock_is_never() {
    let end = Timestamp::MAX;
    let near = Timestamp::from_nanos(END - 10);
    let bucket = Bucket::try_new(rate(1, Duration::from_nanos(10)), 1).unwrap();
    let mut state = bucket.fresh();
    assert!(bucket.check(&mut state, 1, near).is_allowed());
    assert_eq!(
        bucket.check(&mut state, 1, near).retry_after(),
        Some(Wait::After(Duration::from_nanos(10)))
    );
    assert!(bucket.check(&mut state, 1, end).is_allowed());
    let denied = bucket.check(&mut state, 1, end);
    assert_eq!((denied.retry_after(), denied.reset()), (Some(Wait::Never), None));
    let window = Window::new(1, LONGEST);
    let mut state = window.fresh();
    assert!(window.check(&mut state, 1, Timestamp::from_nanos(1)).is_allowed());
    assert_eq!(window.check(&mut state, 1, end).retry_after(), Some(Wait::Never));
    let cooldown = Cooldown::new(LONGEST);
    let mut state = cooldown.fresh();
    assert!(cooldown.check(&mut state, 1, Timestamp::from_nanos(1)).is_allowed());
    assert_eq!(cooldown.check(&mut state, 1, end).retry_after(), Some(Wait::Never));
}

/// What a state cannot express is not charged: all that is charged is used, also at the end of the clock.
#[test]
fn unbounded_debt_is_as_much_as_a_state_expresses() {
    let limit =
        Bucket::try_new(rate(1, LONGEST), 1).and_then(|it| it.with_debt(Debt::All)).unwrap();
    for (at, charged) in [(0, 1 << 33), (END, (1 << 33) - 1)] {
        let (mut state, now) = (limit.fresh(), Timestamp::from_nanos(at));
        assert_eq!(limit.count(&mut state, u64::MAX, now), charged, "at {at}");
        assert_eq!(limit.used(&state, now), charged, "at {at}");
    }
}

/// The last of a century's units, to the nanosecond.
#[test]
fn century_is_exact_to_the_nanosecond() {
    let century_ns = u64::try_from(CENTURY.as_nanos()).unwrap();
    for count in [1, 3, 7, 1_000_003] {
        let limit = Bucket::try_new(rate(count, CENTURY), 1).unwrap();
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
                quota_lasts(Quota::new(max, carry).with_debt(debt).unwrap());
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

/// A constant that is wrong does not compile; elsewhere the same constructors panic.
#[test]
fn a_constant_of_wrong_numbers_panics() {
    const LIMIT: Bucket = Bucket::per_minute(100).burst(7);
    assert_eq!(
        (LIMIT.rate(), LIMIT.capacity()),
        (Rate::try_new(100, Duration::from_secs(60)).unwrap(), 7)
    );
    let wrong: [fn(); 9] = [
        || _ = Rate::per_second(0),
        || _ = Rate::one_every(Duration::MAX),
        || _ = Bucket::per_hour(0),
        || _ = Bucket::per_day(1).burst(0),
        || _ = Bucket::of(rate(1, LONGEST)).burst(1 << 33),
        || _ = Window::new(0, SHORTEST),
        || _ = Sliding::new(1, SHORTEST, 2),
        || _ = Cooldown::new(Duration::ZERO),
        || _ = Quota::new(0, Carry::Nothing),
    ];
    for (number, wrong) in wrong.iter().enumerate() {
        assert!(std::panic::catch_unwind(wrong).is_err(), "{number}");
    }
}

#[test]
fn a_rate_is_read_as_in_a_policy_file() {
    let per = |count, secs| Ok(Rate::try_new(count, Duration::from_secs(secs)).unwrap());
    assert_eq!("10/s".parse(), per(10, 1));
    assert_eq!(" 1_000 / 1h30m".parse(), per(1_000, 5_400));
    assert_eq!("5 per 2.5m".parse(), per(5, 150));
    for wrong in
        ["", "10", "0/s", "-1/s", "1.5/s", "1/0s", "1/month", "1/", "1/30000w", "1/1s1s", "1_/s"]
    {
        assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
    }
    let error = "10".parse::<Rate>().unwrap_err().to_string();
    assert_eq!(error, "rate must be a count per time, such as 10/s, 100 per 15m or 5/day");
}

#[test]
fn a_denial_as_an_error_says_how_long_to_wait() {
    let bucket = Bucket::per_second(1).burst(2);
    let (mut state, now) = (bucket.fresh(), Timestamp::from_secs(5));
    assert_eq!(bucket.check(&mut state, 2, now).allowed(), Ok(()));
    let denied = bucket.check(&mut state, 1, now).allowed().unwrap_err();
    assert_eq!(denied, Denied { wait: Wait::After(Duration::from_secs(1)) });
    assert_eq!(denied.to_string(), "denied: retry after 1s");
    assert_eq!(format!("{denied:?}"), denied.to_string());
    let never = bucket.check(&mut state, 3, now).allowed().unwrap_err();
    assert_eq!(never.to_string(), "denied: the cost is more than the limit ever allows");
    let unknown = Denied { wait: Wait::Unknown };
    assert_eq!(unknown.to_string(), "denied: the wait is unknown");
}
