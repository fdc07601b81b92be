use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::Cooldown;

use super::Matcher;
use crate::attributes::Attributes;
use crate::policy::{Limit, Rule};

fn rule(conditions: &[(&str, &[&str])], group: Option<&str>) -> Rule {
    let limit = Limit::Cooldown(Cooldown::new(Duration::from_secs(1)));
    let mut rule = Rule::builder("rule", limit);
    for (attribute, patterns) in conditions {
        rule = rule.matching(attribute, patterns.iter().copied());
    }
    group.map_or(rule.clone(), |group| rule.group(group)).build().unwrap()
}

/// What the matcher promises, by a scan of all rules.
fn naive(rules: &[Rule], attributes: &Attributes<'_>) -> Vec<u32> {
    let (mut groups, mut found) = (Vec::new(), Vec::new());
    for (id, rule) in (0_u32..).zip(rules) {
        if rule.matches(attributes) && rule.group.as_ref().is_none_or(|g| !groups.contains(g)) {
            groups.extend(rule.group.clone());
            found.push(id);
        }
    }
    found
}

#[test]
fn rules_are_found_in_their_order_and_once() {
    let rules = [
        rule(&[("path", &["/a/*"])], None),
        rule(&[], None),
        rule(&[("path", &["/a/*", "/a/b*", "/a/b"])], None),
        rule(&[("path", &["/a/b"]), ("ip", &["10.0.0.0/8", "10.1.0.0/16"])], None),
        rule(&[("n", &["1..=5"])], None),
        rule(&[("path", &["/c"])], None),
    ];
    let matcher = Matcher::new(&rules);
    let request = [("path", "/a/b"), ("ip", "10.1.2.3"), ("n", "3")];
    let found = matcher.find(&Attributes::new(&request));
    assert_eq!(found.as_slice(), [0, 1, 2, 3, 4]);
    assert!(!found.0.spilled(), "a few rules are found without allocating");
    assert_eq!(matcher.find(&Attributes::new(&[])).as_slice(), [1]);
    assert_eq!(matcher.worst_case().rules, [0, 1, 2, 3, 4]);
}

#[test]
fn of_a_group_only_the_first_applies() {
    let rules = [
        rule(&[("plan", &["free"])], Some("g")),
        rule(&[], Some("g")),
        rule(&[], Some("h")),
        rule(&[], None),
        rule(&[], Some("h")),
    ];
    let matcher = Matcher::new(&rules);
    assert_eq!(matcher.find(&Attributes::new(&[("plan", "free")])).as_slice(), [0, 2, 3]);
    assert_eq!(matcher.find(&Attributes::new(&[("plan", "pro")])).as_slice(), [1, 2, 3]);
}

#[test]
fn many_attributes_are_found_by_name() {
    let names: Vec<String> = (0..100).map(|n| format!("attribute-{n}")).collect();
    let rules: Vec<Rule> = names.iter().map(|name| rule(&[(name, &["x"])], None)).collect();
    let matcher = Matcher::new(&rules);
    let request = [("attribute-7", "x"), ("attribute-9", "y"), ("attribute-9", "x")];
    assert_eq!(matcher.find(&Attributes::new(&request)).as_slice(), [7]);
    assert_eq!(matcher.worst_case().candidates(), 100);
}

#[test]
fn a_rule_is_indexed_by_its_rarest_condition() {
    let paths: Vec<String> = (0..100).map(|n| format!("/tenant-{n}/*")).collect();
    let rules: Vec<Rule> =
        paths.iter().map(|path| rule(&[("method", &["GET"]), ("path", &[path])], None)).collect();
    let worst = Matcher::new(&rules).worst_case();
    assert!(worst.candidates() <= 1, "{worst:?}");
}

const PATTERNS: [&str; 18] = [
    "a",
    "b",
    "ab",
    "a*",
    "ab*",
    "*",
    "*b",
    "a*b",
    "/a/*",
    "/a/b*",
    "1..=5",
    "3..",
    "3",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.3",
    "2001:db8::/32",
    "0.0.0.0/0",
];

const VALUES: [&str; 16] = [
    "a",
    "b",
    "ab",
    "abb",
    "",
    "/a/",
    "/a/b",
    "/a/bc",
    "3",
    "5",
    "7",
    "10.1.2.3",
    "10.1.9.9",
    "::ffff:10.2.2.3",
    "2001:db8::1",
    "11.0.0.1",
];

proptest! {
    #[test]
    fn matcher_agrees_with_a_scan_of_all_rules(
        rules in prop::collection::vec(
            (
                prop::collection::btree_map(
                    0_usize..3,
                    prop::collection::vec(prop::sample::select(&PATTERNS[..]), 1..4),
                    0..3,
                ),
                prop::option::of(prop::sample::select(&["g", "h"][..])),
            ),
            0..40,
        ),
        requests in prop::collection::vec(
            prop::collection::btree_map(0_usize..3, prop::sample::select(&VALUES[..]), 0..4),
            1..20,
        ),
    ) {
        const NAMES: [&str; 3] = ["x", "y", "z"];
        let rules: Vec<Rule> = rules
            .iter()
            .map(|(conditions, group)| {
                let conditions: Vec<(&str, &[&str])> =
                    conditions.iter().map(|(at, any_of)| (NAMES[*at], &any_of[..])).collect();
                rule(&conditions, *group)
            })
            .collect();
        let matcher = Matcher::new(&rules);
        let worst = matcher.worst_case();
        for request in requests {
            let request: Vec<_> = request.iter().map(|(at, v)| (NAMES[*at], *v)).collect();
            let attributes = Attributes::new(&request);
            let found = matcher.find(&attributes);
            prop_assert_eq!(found.as_slice(), naive(&rules, &attributes));
            prop_assert!(found.as_slice().len() <= worst.candidates());
        }
    }
}

/// One rule is left to check, among ten as among ten thousand.
#[test]
fn the_number_of_candidates_does_not_grow_with_the_number_of_rules() {
    type Make = fn(usize) -> String;
    let kinds: [(&str, Make, Make); 4] = [
        ("tenant", |n| format!("tenant-{n:05}"), |n| format!("tenant-{n:05}")),
        ("path", |n| format!("/t/{n:05}/*"), |n| format!("/t/{n:05}/search/page")),
        (
            "path",
            |n| format!("/t/{}{n}/*", "x".repeat(n % 40)),
            |n| format!("/t/{}{n}/search/page", "x".repeat(n % 40)),
        ),
        (
            "ip",
            |n| format!("10.{}.{}.0/24", n / 256, n % 256),
            |n| format!("10.{}.{}.9", n / 256, n % 256),
        ),
    ];
    for (attribute, pattern, value) in kinds {
        for count in [10_usize, 10_000] {
            let rules: Vec<Rule> = (0..count)
                .map(|n| rule(&[("method", &["GET"]), (attribute, &[&pattern(n)])], None))
                .collect();
            let matcher = Matcher::new(&rules);
            assert_eq!(matcher.worst_case().candidates(), 1, "{count} rules by {attribute}");
            for n in (0..count).step_by(count / 10) {
                let request = [("method", "GET"), (attribute, &*value(n))];
                let found = matcher.find(&Attributes::new(&request));
                assert_eq!(found.as_slice(), [u32::try_from(n).unwrap()]);
            }
        }
    }
}
