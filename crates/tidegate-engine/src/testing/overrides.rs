//! Overrides, with and without an end.

use crate::Edit;
use tidegate_policy::policy::RuleId;

use super::{ADA, BOB, Make, TestEngine, read, rule};

pub(super) fn first_match_counts(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        &rule(
            "window = { max = 2, per = \"10s\" }\n\
             override = [{ key = { user = \"ada\" }, max = 5 }, \
             { key = { user = \"a*\" }, unlimited = true }, { key = { user = \"*b\" }, max = 1 }]",
        ),
    );
    assert_eq!(desk.admits(ADA), 5);
    assert_eq!(desk.admits(&[("user", "ab")]), 10_000);
    assert_eq!(desk.admits(BOB), 1);
    assert_eq!(desk.admits(&[("user", "eve")]), 2);
    // What is set while running comes first.
    desk.set_override(
        "window = { max = 2, per = \"10s\" }",
        "{ key = { user = \"bob\" }, max = 4 }",
    );
    assert_eq!(desk.admits(BOB), 3, "one of the four was charged before");
}

pub(super) fn they_end_by_themselves(make: Make<'_>) {
    let desk = TestEngine::new(
        make,
        &rule(
            "window = { max = 2, per = \"1h\" }\noverride = [{ key = { user = \"ada\" }, max = 5, \
             until = \"1970-01-01T00:00:10Z\" }, { key = { user = \"bob\" }, unlimited = true, \
             until = \"1970-01-01T00:00:10Z\" }]",
        ),
    );
    assert!(desk.at(9_999).allows(ADA, 4));
    assert_eq!(desk.admits(BOB), 10_000);
    assert!(!desk.at(10_000).allows(ADA, 1), "charges under it stay");
    assert_eq!(desk.admits(BOB), 2);
}

pub(super) fn they_come_and_go_mid_window(make: Make<'_>) {
    for algorithm in [
        "window = { max = 4, per = \"1h\" }",
        "sliding = { max = 4, per = \"1h\" }",
        "quota = { max = 4, per = \"day\" }",
        "quota = { max = 4, per = \"round\", carry = \"all\" }",
    ] {
        let desk = TestEngine::new(make, &rule(algorithm));
        assert!(desk.at(1_000).allows(ADA, 3));
        let given = desk.set_override(algorithm, "{ key = { user = \"ada\" }, max = 10 }");
        assert_eq!(desk.at(2_000).left(ADA, "r"), 7, "{algorithm}");
        assert!(desk.allows(ADA, 2));
        desk.set_override(algorithm, "{ key = { user = \"ada\" }, max = 6 }");
        assert_eq!(desk.at(3_000).left(ADA, "r"), 1, "{algorithm}");
        desk.engine
            .edit("test", Edit::remove_override(&RuleId::named("r"), given.key()))
            .block()
            .unwrap();
        assert_eq!(desk.left(ADA, "r"), 0, "{algorithm}");
        desk.set_override(algorithm, "{ key = { user = \"ada\" }, max = 6 }");
        assert_eq!(desk.left(ADA, "r"), 1, "{algorithm}");
        assert_eq!(desk.left(BOB, "r"), 4, "{algorithm}");
    }
    // A bucket: at each rate as long as it was in force.
    let algorithm = "bucket = { rate = \"1/s\", burst = 100 }";
    let desk = TestEngine::new(make, &rule(algorithm));
    assert!(desk.at(0).allows(ADA, 100));
    let given =
        desk.at(10_000).set_override(algorithm, "{ key = { user = \"ada\" }, rate = \"2/s\" }");
    assert!(desk.at(15_000).allows(ADA, 7));
    desk.at(20_000)
        .engine
        .edit("test", Edit::remove_override(&RuleId::named("r"), given.key()))
        .block()
        .unwrap();
    assert_eq!(desk.at(30_000).left(ADA, "r"), 10 + 20 + 10 - 7);
}

pub(super) fn ended_ones_stop_refilling_at_their_end(make: Make<'_>) {
    let slow = "bucket = { rate = \"1/s\", burst = 100 }";
    let fast = "override = [{ key = { user = \"ada\" }, rate = \"5/s\", \
                until = \"1970-01-01T00:00:10Z\" }]";
    let left_at_20 = 10 * 5 + 10;
    // No request comes until after its end.
    let desk = TestEngine::new(make, &rule(&format!("{slow}\n{fast}")));
    assert!(desk.at(0).allows(ADA, 100));
    assert_eq!(desk.at(20_000).left(ADA, "r"), left_at_20);
    // Nor until it was removed from the file.
    let desk = TestEngine::new(make, &rule(&format!("{slow}\n{fast}")));
    assert!(desk.at(0).allows(ADA, 100));
    desk.at(20_000).edit(&rule(slow));
    assert_eq!(desk.left(ADA, "r"), left_at_20);
    // Nor until the common limit was changed.
    let desk = TestEngine::new(make, &rule(&format!("{slow}\n{fast}")));
    assert!(desk.at(0).allows(ADA, 100));
    desk.at(15_000).edit(&rule(&format!("bucket = {{ rate = \"2/s\", burst = 100 }}\n{fast}")));
    assert_eq!(desk.at(20_000).left(ADA, "r"), 10 * 5 + 5 + 5 * 2);
}

pub(super) fn moving_the_end_keeps_history(make: Make<'_>) {
    let base = "bucket = { rate = \"10/s\", burst = 100 }";
    let slow = |until: &str| {
        format!("{base}\noverride = [{{ key = {{ user = \"ada\" }}, rate = \"1/s\"{until} }}]")
    };
    let until = |at: u64| format!(", until = \"1970-01-01T00:00:{at}Z\"");
    // Without an end at first; prolonged; shortened.
    for (first, then) in
        [(String::new(), until(20)), (until(15), until(20)), (until(50), until(20))]
    {
        let desk = TestEngine::new(make, &rule(&slow(&first)));
        assert!(desk.at(0).allows(ADA, 100));
        desk.at(10_000).edit(&rule(&slow(&then)));
        assert_eq!(desk.at(19_000).left(ADA, "r"), 19, "{first} {then}");
        assert_eq!(desk.at(21_000).left(ADA, "r"), 20 + 10, "{first} {then}");
    }
}

pub(super) fn unlimited_in_between_refills_nothing(make: Make<'_>) {
    let base = "bucket = { rate = \"10/s\", burst = 100 }";
    let with = |grant: &str| {
        rule(&format!("{base}\noverride = [{{ key = {{ user = \"ada\" }}, {grant} }}]"))
    };
    let desk = TestEngine::new(make, &with("rate = \"1/min\""));
    assert!(desk.at(0).allows(ADA, 100));
    desk.at(60_000).edit(&with("unlimited = true"));
    assert_eq!(desk.admits(ADA), 10_000);
    desk.at(61_000).edit(&rule(base));
    let left = desk.left(ADA, "r");
    assert!(left <= 1 + 10, "{left} left: an edit has refilled it");
}

pub(super) fn stacked_ones_refill_nothing(make: Make<'_>) {
    let base = "bucket = { rate = \"1/min\", burst = 100 }";
    let file =
        rule(&format!("{base}\noverride = [{{ key = {{ user = \"a*\" }}, rate = \"10/s\" }}]"));
    let desk = TestEngine::new(make, &file);
    assert!(desk.at(60_000).allows(ADA, 100));
    let given = desk.set_override(base, "{ key = { user = \"ada\" }, rate = \"1/min\" }");
    assert!(desk.at(120_000).allows(ADA, 1), "one in the minute that the slow one was in force");
    desk.engine
        .edit("test", Edit::remove_override(&RuleId::named("r"), given.key()))
        .block()
        .unwrap();
    assert_eq!(desk.left(ADA, "r"), 0, "nothing comes of dropping it");
    assert_eq!(desk.at(121_000).left(ADA, "r"), 10);
    // Nor of reordering two that are for the same key.
    let two = [
        "{ key = { user = \"a*\" }, rate = \"1/day\" }",
        "{ key = { user = \"ada\" }, rate = \"1/s\" }",
    ];
    let with =
        |first: usize| rule(&format!("{base}\noverride = [{}, {}]", two[first], two[1 - first]));
    let desk = TestEngine::new(make, &with(0));
    assert!(desk.at(0).allows(ADA, 100));
    desk.at(600_000).edit(&with(1));
    assert_eq!(desk.left(ADA, "r"), 0);
    assert_eq!(desk.at(601_000).left(ADA, "r"), 1);
    assert_eq!(read(&file).rules().len(), 1);
}
