use std::time::Duration;

use tidegate_core::Rate;

use super::{duration, format_duration, rate};

#[test]
fn durations_parse_in_common_notations() {
    for (text, ns) in [
        ("10s", 10_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("500ms", 500_000_000),
        ("250us", 250_000),
        ("250µs", 250_000),
        ("10ns", 10),
        ("2d", 172_800_000_000_000),
        ("1w", 604_800_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("0.000000001s", 1),
        ("1 hour", 3_600_000_000_000),
        ("90 seconds", 90_000_000_000),
        ("15 min", 900_000_000_000),
        (" 1h 30 m ", 5_400_000_000_000),
        ("1_000ms", 1_000_000_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        assert_eq!(
            duration(&format_duration(Duration::from_nanos(ns))),
            Ok(Duration::from_nanos(ns))
        );
    }
}

#[test]
fn invalid_durations_give_the_reason() {
    for (text, why) in [
        ("", "empty"),
        ("90", "a unit is missing"),
        ("s", "a number is missing"),
        ("-5s", "negative"),
        ("0s", "zero"),
        ("0.0h", "zero"),
        ("1m1h", "larger unit comes first"),
        ("1s1s", "larger unit comes first"),
        ("1.5ns", "whole number of nanoseconds"),
        ("1month", "unknown unit"),
        ("5 parsecs", "unknown unit"),
        ("1..5s", "not a number"),
        ("1_s", "not a number"),
        ("99999999999999999999s", "too long"),
        ("40000w", "too long"),
        ("30000w30000d", "too long"),
    ] {
        let error = duration(text).unwrap_err();
        assert!(error.message.contains(why), "{text}: {error:?}");
        assert!(error.hint.is_some(), "{text}");
    }
}

#[test]
fn rates_parse_in_common_notations() {
    for (text, count, secs) in [
        ("4000/s", 4_000, 1),
        ("1/s", 1, 1),
        ("100 per 15m", 100, 900),
        ("5/day", 5, 86_400),
        ("10/min", 10, 60),
        ("100/15m", 100, 900),
        ("1 per 6 seconds", 1, 6),
        ("1_000/s", 1_000, 1),
        ("7 / 1h30m", 7, 5_400),
        ("7 per week", 7, 604_800),
    ] {
        assert_eq!(rate(text), Ok(Rate::new(count, Duration::from_secs(secs))), "{text}");
    }
}

#[test]
fn invalid_rates_give_the_reason() {
    for (text, why) in [
        ("10", "no period"),
        ("", "no period"),
        ("0/s", "zero"),
        ("-1/s", "negative"),
        ("0.5/s", "not a whole number"),
        ("ten/s", "not a whole number"),
        ("99999999999999999999/s", "too large"),
        ("1/0s", "zero"),
        ("1/10", "unit is missing"),
        ("1/fortnight", "unknown unit"),
        ("1/month", "unknown unit"),
        ("1/", "empty"),
        ("1/30000w", "at most"),
    ] {
        let error = rate(text).unwrap_err();
        assert!(error.message.contains(why), "{text}: {error:?}");
        assert!(error.hint.is_some(), "{text}");
    }
}
