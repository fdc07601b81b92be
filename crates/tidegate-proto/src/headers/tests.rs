use std::time::Duration;

use tidegate_core::{Algorithm, Bucket, Cooldown, Decision, Timestamp, Wait, Window};

use super::{Dialect, LimitFields, ValueText, push_text};

fn written(dialect: Dialect, lines: &[LimitFields<'_>], decisive: usize) -> Vec<String> {
    let mut all = Vec::new();
    dialect.write(lines, decisive, |name, value| {
        all.push(format!("{name}: {}", std::str::from_utf8(value).unwrap()));
    });
    all
}

fn two_lines() -> [LimitFields<'static>; 2] {
    let line = |name, limit, span_s, remaining, until_ms| LimitFields {
        name,
        limit,
        span: Some(Duration::from_secs(span_s)),
        remaining,
        until: Some(Duration::from_millis(until_ms)),
    };
    [line("burst", 10, 1, 4, 600), line("daily", 1000, 86_400, 2, 50_000)]
}

#[test]
fn each_dialect_writes_its_own_headers() {
    let expected: [(&str, &[&str]); 5] = [
        (
            "ietf-11",
            &[
                r#"ratelimit-policy: "burst";q=10;w=1, "daily";q=1000;w=86400"#,
                r#"ratelimit: "burst";r=4;t=1, "daily";r=2;t=50"#,
            ],
        ),
        (
            "ietf-06",
            &[
                "ratelimit-policy: 10;w=1, 1000;w=86400",
                "ratelimit-limit: 1000",
                "ratelimit-remaining: 2",
                "ratelimit-reset: 50",
            ],
        ),
        (
            "x-ratelimit",
            &["x-ratelimit-limit: 1000", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 50"],
        ),
        (
            "envoy-03",
            &[
                r#"x-ratelimit-limit: 1000, 10;w=1;name="burst", 1000;w=86400;name="daily""#,
                "x-ratelimit-remaining: 2",
                "x-ratelimit-reset: 50",
            ],
        ),
        ("none", &[]),
    ];
    for (name, headers) in expected {
        let dialect: Dialect = name.parse().unwrap();
        assert_eq!(dialect.to_string(), name);
        assert_eq!(written(dialect, &two_lines(), 1), headers, "{name}");
    }
    let beyond = written(Dialect::XRateLimit, &two_lines(), 2);
    assert_eq!(beyond[0], "x-ratelimit-limit: 10", "an index out of range reports the first limit");
    assert_eq!("ietf-12".parse::<Dialect>().unwrap_err().to_string().matches(',').count(), 4);
}

#[test]
fn no_limits_no_headers() {
    for (_, dialect) in Dialect::ALL {
        assert_eq!(written(dialect, &[], 0), <[&str; 0]>::default());
    }
}

#[test]
fn denied_request_reports_the_same_wait_as_retry_after() {
    // 10 per minute with a burst of 3: one every 6 s.
    let bucket = Bucket::per_minute(10).burst(3);
    let (mut state, now) = (bucket.fresh(), Timestamp::from_secs(100));
    assert!(bucket.check(&mut state, 3, now).is_allowed());
    let denied = bucket.check(&mut state, 1, now.saturating_add(Duration::from_millis(1)));
    let line = LimitFields::new("r", &denied);
    assert_eq!(
        written(Dialect::Ietf11, &[line], 0),
        [r#"ratelimit-policy: "r";q=3;w=18"#, r#"ratelimit: "r";r=0;t=6"#]
    );
    assert_eq!(denied.retry_after().and_then(Wait::whole_secs), Some(6));
}

#[test]
fn unknown_waits_are_omitted() {
    let window = Window::new(2, Duration::from_secs(10));
    let now = Timestamp::from_secs(0);
    let never = window.check(&mut window.fresh(), 3, now);
    let line = LimitFields::new("r", &never);
    assert_eq!(
        written(Dialect::Ietf11, &[line], 0),
        [r#"ratelimit-policy: "r";q=2;w=10"#, r#"ratelimit: "r";r=2"#]
    );
    assert_eq!(never.retry_after().and_then(Wait::whole_secs), None);
    assert_eq!(Wait::Unknown.whole_secs(), None);
    let slots = Decision::of_slots(3, 1, 1, now);
    assert_eq!(LimitFields::new("r", &slots).until, None);
}

#[test]
fn times_are_rounded_up() {
    for (ns, s) in [(1, 1), (999_999_999, 1), (1_000_000_000, 1), (1_000_000_001, 2)] {
        assert_eq!(Wait::After(Duration::from_nanos(ns)).whole_secs(), Some(s), "{ns}");
    }
    let cooldown = Cooldown::new(Duration::from_millis(1));
    let now = Timestamp::from_secs(0);
    let line = LimitFields::new("r", &cooldown.check(&mut cooldown.fresh(), 1, now));
    assert_eq!(written(Dialect::XRateLimit, &[line], 0)[2], "x-ratelimit-reset: 1");
}

#[test]
fn numbers_and_names_stay_within_structured_fields() {
    let huge = LimitFields {
        name: "a\"b\\c\r\nd€\u{202e}",
        limit: u64::MAX,
        span: Some(Duration::MAX),
        remaining: 0,
        until: Some(Duration::MAX),
    };
    let headers = written(Dialect::Ietf11, &[huge], 0);
    assert_eq!(
        headers[0],
        r#"ratelimit-policy: "a\"b\\c%0D%0Ad%E2%82%AC%E2%80%AE";q=999999999999999;w=999999999999999"#
    );
    for (name, text) in
        [("", r#""""#), ("a\"b", r#""a\"b""#), ("a\\b", r#""a\\b""#), ("~\x7f", r#""~%7F""#)]
    {
        let mut out = ValueText::new();
        push_text(&mut out, name);
        assert_eq!(out, text.as_bytes());
    }
}
