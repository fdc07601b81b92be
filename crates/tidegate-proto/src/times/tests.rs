use super::*;

#[test]
fn a_wait_is_milliseconds_rounded_up_or_a_word() {
    let after = |ns| Some(Wait::After(Duration::from_nanos(ns)));
    for (wait, retry_after_ms, retry) in [
        (None, Some(0), None),
        (after(0), Some(0), None),
        (after(1), Some(1), None),
        (after(1_000_000), Some(1), None),
        (after(1_000_001), Some(2), None),
        (Some(Wait::After(Duration::MAX)), Some(u64::MAX), None),
        (Some(Wait::Never), None, Some("never")),
        (Some(Wait::Unknown), None, Some("unknown")),
    ] {
        assert_eq!(RetryFields::new(wait), RetryFields { retry_after_ms, retry }, "{wait:?}");
    }
}

#[test]
fn a_reset_is_rounded_up_and_may_be_unknown() {
    let ns = Duration::from_nanos;
    for (reset, ms) in [
        (Some(ns(0)), Some(0)),
        (Some(ns(1)), Some(1)),
        (Some(ns(2_000_000)), Some(2)),
        (Some(Duration::MAX), Some(u64::MAX)),
        (None, None),
    ] {
        assert_eq!(reset_after_ms(reset), ms, "{reset:?}");
    }
}

#[test]
fn the_time_until_an_expiry_is_rounded_down() {
    let ns = Timestamp::from_nanos;
    for (at, now, ms) in [(5, 9, 0), (1_999_999, 0, 1), (2_000_000, 0, 2), (2_000_000, 1, 1)] {
        assert_eq!(ms_until(ns(at), ns(now)), ms, "{at} {now}");
    }
    assert_eq!(ms_until(Timestamp::MAX, Timestamp::ZERO), Timestamp::MAX.as_nanos() / 1_000_000);
}

#[test]
fn times_are_in_rfc_3339() {
    for (ns, down, up) in [
        (0, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"),
        (1_500_000_000, "1970-01-01T00:00:01.500Z", "1970-01-01T00:00:01.5Z"),
        (1_999_999_999, "1970-01-01T00:00:01.999Z", "1970-01-01T00:00:02Z"),
    ] {
        let at = Timestamp::from_nanos(ns);
        assert_eq!((&*time_text(at), &*time_text_rounded_up(at)), (down, up));
    }
    assert_eq!(time_text_rounded_up(Timestamp::MAX), "2262-04-11T23:47:16.855Z");
}
