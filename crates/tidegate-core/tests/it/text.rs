//! Durations and rates as people write them.

use std::time::Duration;

use tidegate_core::text::{TextProblem, duration, rate};
use tidegate_core::{LimitErrorKind, Rate};

#[test]
fn durations_are_numbers_with_units() {
    const SECOND: u64 = 1_000_000_000;
    for (text, nanos) in [
        ("1ns", 1),
        ("2 nanosecond", 2),
        ("2nanoseconds", 2),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("4ms", 4_000_000),
        ("5s", 5 * SECOND),
        ("15 min", 900 * SECOND),
        ("6h", 21_600 * SECOND),
        ("7d", 604_800 * SECOND),
        ("2w", 1_209_600 * SECOND),
        ("1h30m", 5_400 * SECOND),
        (" 1 h 30 m ", 5_400 * SECOND),
        ("1w2d3h4m5s6ms7us8ns", 788_645 * SECOND + 6_007_008),
        ("1.5h", 5_400 * SECOND),
        ("0.25ms", 250_000),
        ("1_000s", 1_000 * SECOND),
        ("1.000_001s", SECOND + 1_000),
        ("0.000000001s", 1),
        ("1.50000000000000000000000000s", 1_500_000_000),
        ("18446744073.709551615s", u64::MAX),
        ("213503d 23h 34m 33.709551615s", u64::MAX),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text:?}");
    }
}

#[test]
fn units_have_their_names() {
    for (units, nanos) in [
        ("ns nanosecond nanoseconds", 1),
        ("us microsecond microseconds", 1_000),
        ("ms millisecond milliseconds", 1_000_000),
        ("s sec secs second seconds", 1_000_000_000),
        ("m min mins minute minutes", 60_000_000_000),
        ("h hr hrs hour hours", 3_600_000_000_000),
        ("d day days", 86_400_000_000_000),
        ("w week weeks", 604_800_000_000_000),
    ] {
        for unit in units.split(' ') {
            let period = Duration::from_nanos(nanos);
            assert_eq!(duration(&format!("1{unit}")), Ok(period), "{unit}");
            assert_eq!(rate(&format!("1/{unit}")), Ok(Rate::new(1, period)), "{unit}");
        }
    }
}

#[test]
fn other_texts_are_no_durations() {
    for (text, problem) in [
        ("", TextProblem::Empty),
        ("  ", TextProblem::Empty),
        ("-1s", TextProblem::Negative),
        ("s", TextProblem::NoNumber),
        ("1h m", TextProblem::NoNumber),
        ("5", TextProblem::NoUnit("5")),
        ("1h5", TextProblem::NoUnit("5")),
        ("5 parsecs", TextProblem::UnknownUnit("parsecs")),
        ("1m1h", TextProblem::UnitOrder),
        ("1m1m", TextProblem::UnitOrder),
        ("1..5s", TextProblem::NotNumber),
        ("1.s", TextProblem::NotNumber),
        (".5s", TextProblem::NotNumber),
        ("1__0s", TextProblem::NotNumber),
        ("_1s", TextProblem::NotNumber),
        ("0.5ns", TextProblem::NotWholeNanoseconds),
        ("0.0000000001s", TextProblem::NotWholeNanoseconds),
        ("0.0000000000000000001w", TextProblem::NotWholeNanoseconds),
        ("0s", TextProblem::Zero),
        ("0.0h0m", TextProblem::Zero),
        ("99999999999999999999ns", TextProblem::TooLong),
        ("18446744074s", TextProblem::TooLong),
        ("18446744073.709551616s", TextProblem::TooLong),
        ("213503d 23h 34m 33.709551616s", TextProblem::TooLong),
    ] {
        assert_eq!(duration(text), Err(problem), "{text:?}");
    }
}

#[test]
fn rates_are_counts_per_time() {
    for (text, count, secs) in [
        ("10/s", 10, 1),
        ("5/day", 5, 86_400),
        (" 5 / day ", 5, 86_400),
        ("100 per 15m", 100, 900),
        ("7 per 1h30m", 7, 5_400),
        ("1_000 per minute", 1_000, 60),
        ("18446744073709551615/s", u64::MAX, 1),
        ("5/15000w", 5, 15_000 * 604_800),
    ] {
        let rate = rate(text).unwrap();
        assert_eq!((rate.count(), rate.period()), (count, Duration::from_secs(secs)), "{text}");
        assert_eq!(text.parse(), Ok(rate));
    }
}

#[test]
fn other_texts_are_no_rates() {
    for (text, problem) in [
        ("10", TextProblem::NoPeriod),
        ("10 s", TextProblem::NoPeriod),
        ("x/s", TextProblem::NotCount("x")),
        ("/s", TextProblem::NotCount("")),
        ("1.5/s", TextProblem::NotCount("1.5")),
        ("0/s", TextProblem::ZeroCount),
        ("18446744073709551616/s", TextProblem::CountTooLarge),
        ("5/parsec", TextProblem::UnknownUnit("parsec")),
        ("5/", TextProblem::Empty),
        ("5/2parsecs", TextProblem::UnknownUnit("parsecs")),
        ("5/0s", TextProblem::Zero),
        ("5/-1s", TextProblem::Negative),
        ("5/40000w", TextProblem::TooLong),
    ] {
        assert_eq!(rate(text), Err(problem), "{text:?}");
        let error = text.parse::<Rate>().unwrap_err();
        assert_eq!((error.field(), error.problem()), ("rate", LimitErrorKind::NotRate), "{text:?}");
    }
    let error = "5/16000w".parse::<Rate>().unwrap_err();
    assert_eq!(error.field(), "period", "longer than the clock");
    assert_eq!(rate("5/16000w"), Err(TextProblem::Rate(error)));
}
