//! One limit at a time.

use tidegate_core::{Timestamp, Wait};

use super::{ADA, BOB, Make, TestEngine, ms, rule};

pub(super) fn never_too_much(make: Make<'_>) {
    let limits = [
        ("bucket = { rate = \"5/s\", burst = 5 }", 5, 10),
        ("window = { max = 5, per = \"1s\" }", 5, 10),
        ("window = { max = 5, per = \"1s\", align = \"epoch\" }", 5, 10),
        ("sliding = { max = 5, per = \"1s\", parts = 4 }", 5, 5),
        ("sliding = { max = 50, per = \"1s\", parts = 4 }", 50, 50),
    ];
    for (limit, at_once, in_any_second) in limits {
        let desk = TestEngine::new(make, &rule(limit));
        assert_eq!(desk.at(500).admits(ADA), at_once, "{limit}");
        assert_eq!(desk.admits(BOB), at_once, "{limit}");
        // A second is (t, t + 1 s]: what came at 500 ms has left it at 1 500 ms.
        let within: u64 = (501..1_500).map(|now| desk.at(now).admits(ADA)).sum();
        assert!(at_once + within <= in_any_second, "{limit}: {within} more");
        let later: u64 = (1_500..=9_500).map(|now| desk.at(now).admits(ADA)).sum();
        let conforming = if limit.contains("max = 50") { 50 * 4 / 5 } else { 5 };
        assert!(later >= 8 * conforming, "{limit}: only {later} in eight seconds");
    }
}

pub(super) fn honest_waits(make: Make<'_>) {
    for limit in [
        "bucket = { rate = \"4/s\", burst = 3 }",
        "bucket = { rate = \"1/8ms\", burst = 3 }",
        "window = { max = 3, per = \"2s\" }",
        "window = { max = 3, per = \"2s\", align = \"epoch\" }",
        "sliding = { max = 3, per = \"2s\", parts = 5 }",
        "sliding = { max = 30, per = \"2s\", parts = 5 }",
        "cooldown = \"3s\"",
        "quota = { max = 3, per = \"minute\" }",
    ] {
        for cost in [1, 2, 3] {
            let desk = TestEngine::new(make, &rule(limit));
            let mut now = Timestamp::from_millis(777);
            for _ in 0..20 {
                desk.clock.set(now);
                let Some(wait) = desk.check(ADA, cost).retry_after() else { continue };
                let Wait::After(wait) = wait else { panic!("{limit}: {wait:?}") };
                now = now.saturating_add(wait);
                let earlier = now.saturating_sub(std::time::Duration::from_micros(1));
                if earlier >= desk.engine_now() {
                    desk.clock.set(earlier);
                    assert!(!desk.peek(ADA, cost).is_allowed(), "{limit} cost {cost}: earlier");
                }
                desk.clock.set(now);
                assert!(desk.allows(ADA, cost), "{limit} cost {cost}: not after {wait:?}");
            }
        }
    }
}

pub(super) fn cooldowns_keep_their_gap(make: Make<'_>) {
    let desk = TestEngine::new(make, &rule("cooldown = \"60s\""));
    assert!(desk.at(0).allows(ADA, 1));
    assert!(!desk.at(59_999).allows(ADA, 1));
    assert!(desk.allows(BOB, 1));
    assert!(desk.at(60_000).allows(ADA, 1));
    assert_eq!(desk.check(ADA, 1).retry_after(), Some(Wait::After(ms(60_000))));
    let desk = TestEngine::new(make, &rule("cooldown = \"60s\"\ncharge_refused = true"));
    assert!(desk.at(0).allows(ADA, 1));
    assert!(!desk.at(40_000).allows(ADA, 1));
    assert!(!desk.at(60_000).allows(ADA, 1), "a denial restarts the gap");
    assert!(desk.at(120_000).allows(ADA, 1));
}

pub(super) fn peeks_change_nothing(make: Make<'_>) {
    let desk = TestEngine::new(make, &rule("window = { max = 3, per = \"10s\" }"));
    for _ in 0..5 {
        assert_eq!(desk.peek(ADA, 1).remaining(), Some(3));
        assert!(desk.allows(ADA, 0), "a cost of 0 is a peek");
        assert!(!desk.allows(ADA, 4));
    }
    assert!(desk.engine.is_empty(), "no key has been charged");
    assert_eq!(desk.admits(ADA), 3);
    assert_eq!(desk.engine.len(), 1);
}

pub(super) fn waits_that_do_not_help(make: Make<'_>) {
    for limit in [
        "bucket = { rate = \"1/s\", burst = 3 }",
        "window = { max = 3, per = \"10s\" }",
        "sliding = { max = 3, per = \"10s\" }",
        "quota = { max = 3, per = \"day\" }",
    ] {
        let desk = TestEngine::new(make, &rule(limit));
        assert_eq!(desk.check(ADA, 4).retry_after(), Some(Wait::Never), "{limit}");
    }
    let desk = TestEngine::new(make, &rule("quota = { max = 3, per = \"round\" }"));
    assert!(desk.allows(ADA, 3));
    assert_eq!(desk.check(ADA, 1).retry_after(), Some(Wait::Unknown));
}

impl TestEngine {
    fn engine_now(&self) -> Timestamp {
        tidegate_table::Clock::now(&self.clock)
    }
}
