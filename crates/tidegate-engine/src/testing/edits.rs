//! Edits of limits in use.

use super::{ADA, BOB, Make, TestEngine, rule};

pub(super) fn lower_and_raise_is_the_identity(make: Make<'_>) {
    for (limit, lower) in [
        ("bucket = { rate = \"7/s\", burst = 90 }", "bucket = { rate = \"3/s\", burst = 5 }"),
        ("bucket = { rate = \"1/h\", burst = 90 }", "bucket = { rate = \"1/day\", burst = 1 }"),
        ("window = { max = 90, per = \"1h\" }", "window = { max = 3, per = \"10s\" }"),
        ("sliding = { max = 90, per = \"1h\" }", "sliding = { max = 3, per = \"1h\" }"),
        ("sliding = { max = 7, per = \"1h\" }", "sliding = { max = 3, per = \"1h\" }"),
        ("quota = { max = 90, per = \"day\" }", "quota = { max = 3, per = \"day\" }"),
        ("quota = { max = 90, per = \"round\" }", "quota = { max = 3, per = \"round\" }"),
        ("cooldown = \"1h\"", "cooldown = \"1s\""),
    ] {
        for is_touched in [false, true] {
            let desk = TestEngine::new(make, &rule(limit));
            assert!(desk.at(1_000).allows(ADA, 6));
            let id = desk.reserve(ADA, 1).hold();
            let before = desk.at(2_000).peek(ADA, 1);
            desk.edit(&rule(lower));
            if is_touched {
                let _ = desk.peek(ADA, 1);
                assert!(limit.contains("cooldown") || !desk.allows(ADA, 1_000));
            }
            desk.edit(&rule(limit));
            assert_eq!(before.decision(), desk.peek(ADA, 1).decision(), "{limit}");
            id.into_iter().for_each(|id| desk.cancel(id));
        }
    }
}

pub(super) fn buckets_refill_at_each_rate_in_turn(make: Make<'_>) {
    let bucket = |rate: &str| rule(&format!("bucket = {{ rate = \"{rate}\", burst = 100 }}"));
    for touches in [0, 1, 2] {
        let desk = TestEngine::new(make, &bucket("1/s"));
        assert!(desk.at(0).allows(ADA, 100));
        desk.at(10_000).edit(&bucket("3/s"));
        if touches > 0 {
            assert_eq!(desk.at(12_000).left(ADA, "r"), 16);
        }
        if touches > 1 {
            assert!(desk.allows(ADA, 6));
        }
        desk.at(20_000).edit(&bucket("1/7s"));
        let charged = if touches > 1 { 6 } else { 0 };
        assert_eq!(desk.at(34_000).left(ADA, "r"), 10 + 30 + 2 - charged);
        assert_eq!(desk.left(BOB, "r"), 100);
    }
}

pub(super) fn next_waits_for_the_window(make: Make<'_>) {
    for align in ["", ", align = \"epoch\""] {
        let window = |max: u64| {
            rule(&format!("window = {{ max = {max}, per = \"10s\"{align} }}\neffective = \"next\""))
        };
        let desk = TestEngine::new(make, &window(5));
        assert!(desk.at(0).allows(ADA, 3));
        desk.at(1_000).edit(&window(2));
        assert_eq!(desk.at(2_000).left(ADA, "r"), 2, "the open window keeps its limit{align}");
        desk.edit(&window(4));
        assert!(desk.at(9_999).allows(ADA, 2));
        assert!(!desk.allows(ADA, 1));
        assert_eq!(desk.at(10_000).admits(ADA), 4, "the next one has the last");
        assert_eq!(desk.admits(BOB), 4);
        desk.edit(&window(7));
        assert_eq!(desk.at(15_000).admits(ADA), 0);
        assert_eq!(desk.at(20_000).admits(ADA), 7);
    }
}

pub(super) fn next_waits_for_the_round(make: Make<'_>) {
    let quota = |max: u64, per: &str| {
        let limit = format!("quota = {{ max = {max}, per = \"{per}\", carry = \"all\" }}");
        rule(&format!("{limit}\neffective = \"next\""))
    };
    for per in ["round", "minute"] {
        let desk = TestEngine::new(make, &quota(5, per));
        let mut now = 0;
        let mut close = || {
            now += 60_000;
            desk.at(now).engine.close_round("default", None).block().unwrap()
        };
        assert!(desk.allows(ADA, 1));
        desk.edit(&quota(2, per));
        assert_eq!((desk.left(ADA, "r"), desk.left(BOB, "r")), (4, 5), "{per}");
        assert!(desk.allows(BOB, 5), "{per}");
        desk.edit(&quota(3, per));
        assert_eq!(desk.left(ADA, "r"), 4, "{per}");
        close();
        assert_eq!((desk.left(ADA, "r"), desk.left(BOB, "r")), (4 + 3, 3), "{per}");
        close();
        assert_eq!((desk.left(ADA, "r"), desk.left(BOB, "r")), (4 + 6, 6), "{per}");
        // Several rounds after the edit, untouched since before it.
        desk.edit(&quota(1, per));
        close();
        close();
        assert_eq!(desk.left(ADA, "r"), 4 + 6 + 2, "{per}");
    }
    let desk = TestEngine::new(make, &rule("quota = { max = 5, per = \"round\" }"));
    assert!(desk.allows(ADA, 3));
    desk.edit(&rule("quota = { max = 4, per = \"round\" }"));
    assert_eq!(desk.left(ADA, "r"), 1, "now, unless the rule sets another time");
}

pub(super) fn edits_reach_holds(make: Make<'_>) {
    for (before, after) in [
        ("bucket = { rate = \"1/h\", burst = 10 }", "bucket = { rate = \"1/day\", burst = 4 }"),
        ("window = { max = 10, per = \"1h\" }", "window = { max = 4, per = \"1h\" }"),
        ("sliding = { max = 10, per = \"1h\" }", "sliding = { max = 4, per = \"1h\" }"),
        ("quota = { max = 10, per = \"round\" }", "quota = { max = 4, per = \"round\" }"),
    ] {
        let desk = TestEngine::new(make, &rule(before));
        let (first, second) = (desk.hold(ADA, 5), desk.hold(ADA, 3));
        desk.edit(&rule(after));
        assert_eq!(desk.left(ADA, "r"), 0, "{before}");
        assert_eq!(desk.commit(first, 5), 5, "held units are charged: {before}");
        assert_eq!(desk.left(ADA, "r"), 0, "{before}");
        desk.cancel(second);
        assert_eq!(desk.engine.refund_hold(first, 3).block(), Ok(3), "{before}");
        assert_eq!(desk.left(ADA, "r"), 2, "{before}");
        // The rule goes while something is held.
        let id = desk.hold(ADA, 1);
        desk.edit("[[rule]]\nname = \"other\"\nwindow = { max = 1, per = \"1s\" }");
        assert_eq!(desk.commit(id, 1), 1);
    }
}

/// More edits than are kept, while a key waits for its window to end.
pub(super) fn many_edits_lose_no_key(make: Make<'_>) {
    let policy = |max: u64| {
        format!(
            "[[rule]]\nname = \"next\"\nkey = [\"user\"]\nwindow = {{ max = {max}, per = \"10s\" }}\n\
             effective = \"next\"\n[[rule]]\nname = \"now\"\nkey = [\"user\"]\n\
             bucket = {{ rate = \"{max}/day\", burst = 100 }}"
        )
    };
    // Each supersedes two versions. A store that several engines share keeps fewer.
    let edits = if make().shared().is_some() { 700 } else { 4_500 };
    let desk = TestEngine::new(make, &policy(5));
    assert!(desk.at(0).allows(ADA, 3));
    let id = desk.hold(BOB, 2);
    for max in (10..20).cycle().take(edits) {
        desk.edit(&policy(max));
    }
    desk.edit(&policy(8));
    assert_eq!((desk.left(ADA, "next"), desk.left(ADA, "now")), (2, 97));
    assert_eq!(desk.left(BOB, "now"), 98);
    assert_eq!(desk.commit(id, 1), 1);
    assert_eq!(desk.left(BOB, "now"), 99);
    assert_eq!(desk.at(10_000).left(ADA, "next"), 8);
    assert!(desk.allows(ADA, 8));
}

/// A rule that is gone for a moment, as when a file is written in two steps.
pub(super) fn rules_that_come_back_know_their_keys(make: Make<'_>) {
    let limit = rule("window = { max = 4, per = \"1h\" }");
    let desk = TestEngine::new(make, &limit);
    let names: Vec<String> = (0..200).map(|name| format!("user-{name}")).collect();
    for name in &names {
        assert!(desk.allows(&[("user", name)], 3));
    }
    desk.edit("[[rule]]\nname = \"other\"\nwindow = { max = 100, per = \"1s\" }");
    desk.edit(&limit);
    for name in 0..400 {
        assert!(desk.allows(&[("user", &format!("new-{name}"))], 1));
    }
    let forgotten = names.iter().filter(|name| desk.left(&[("user", name)], "r") != 1).count();
    assert_eq!(forgotten, 0, "of 200");
}

pub(super) fn there_and_back_at_one_instant_is_the_identity(make: Make<'_>) {
    let limit = "sliding = { max = 20, per = \"1m\", parts = 10 }";
    for other in [
        "sliding = { max = 20, per = \"7m\", parts = 3 }",
        "sliding = { max = 20, per = \"13s\", parts = 15 }",
        "sliding = { max = 20, per = \"1m\", parts = 1 }",
    ] {
        let desk = TestEngine::new(make, &rule(limit));
        for second in 0..16 {
            assert!(desk.at(second * 1_900).allows(ADA, 1));
        }
        let before = desk.peek(ADA, 9);
        desk.edit(&rule(other));
        desk.edit(&rule(limit));
        assert_eq!(before.decision(), desk.peek(ADA, 9).decision(), "{other}");
        // At two instants, or with a charge between: no unit counts for longer than a sub-window more.
        let longest_part_ms = if other.contains("7m") { 140_000 } else { 60_000 };
        let before = before.retry_after().and_then(tidegate_core::Wait::whole_ms).unwrap();
        desk.edit(&rule(other));
        let _ = desk.check(ADA, 20);
        desk.edit(&rule(limit));
        let after = desk.peek(ADA, 9).retry_after().and_then(tidegate_core::Wait::whole_ms);
        let after = after.unwrap();
        assert!((before..=before + longest_part_ms + 6_000).contains(&after), "{before} {after}");
    }
}
