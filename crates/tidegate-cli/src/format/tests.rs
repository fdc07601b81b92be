use super::*;

#[test]
fn durations_are_rounded_up_to_milliseconds() {
    for (ns, expected) in [
        (0, "0s"),
        (1, "1ms"),
        (333_333_334, "334ms"),
        (1_000_000_000, "1s"),
        (1_000_000_001, "1s1ms"),
        (5_400_000_000_000, "1h30m"),
    ] {
        assert_eq!(duration(Duration::from_nanos(ns)), expected);
    }
    assert_eq!(time(Timestamp::from_nanos(1)), "1970-01-01T00:00:00.001Z");
}

#[test]
fn zero_is_accepted_as_a_duration() {
    for (text, secs) in [("0s", 0), ("0 min", 0), ("0h0m", 0), ("00.0s", 0), ("1h0s", 3600)] {
        assert_eq!(duration_or_zero(text).unwrap(), Duration::from_secs(secs), "{text}");
    }
    for text in ["", "0", "s", "0x", "-1s", "0s5", "0.5.s", "0s0h"] {
        assert!(duration_or_zero(text).is_err(), "{text}");
    }
}
