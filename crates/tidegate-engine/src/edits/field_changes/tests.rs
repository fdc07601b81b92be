use tidegate_policy::policy::{Policy, Rule};

use super::{between, describe};

fn rule(fields: &str) -> Rule {
    let text = format!("[[rule]]\nname = 'a'\nkey = ['user']\n{fields}\n");
    Policy::from_toml(&text).unwrap_or_else(|error| panic!("{error}")).rules()[0].clone()
}

#[test]
fn fields_that_differ_are_described() {
    let window = "window = { max = 3, per = '1h' }";
    let with = |more: &str| format!("{window}\n{more}");
    let table = [
        (window.to_owned(), window.replace('3', "30"), "window.max 3 → 30"),
        (
            window.to_owned(),
            "window = { max = 4, per = '2h' }\nmode = 'shadow'".into(),
            r#"window.max 3 → 4, window.per "1h" → "2h", mode "shadow" added"#,
        ),
        (with("deny = 'a = b'"), window.into(), r#"deny "a = b" removed"#),
        (
            with("match = { path = '/a' }"),
            with("match = { path = ['/a', '/b'] }"),
            r#"match.path "/a" → ["/a", "/b"]"#,
        ),
        (
            window.into(),
            "cooldown = '1s'".into(),
            r#"window.max 3 removed, window.per "1h" removed, cooldown "1s" added"#,
        ),
        (
            with(
                "override = [{ key = { user = 'x' }, max = 4 }, { key = { user = 'y' }, max = 5 }]",
            ),
            with(
                "override = [{ key = { user = 'x' }, max = 4 }, { key = { user = 'y' }, max = 6 }]",
            ),
            r#"override { key = { user = "y" }, max = 5 } → { key = { user = "y" }, max = 6 }"#,
        ),
    ];
    for (before, after, expected) in table {
        let (before, after) = between(&rule(&before), &rule(&after));
        assert_eq!(describe(&before, &after), expected);
    }
}

#[test]
fn a_description_has_a_bounded_size() {
    let overrides = (0..1_000).map(|user| format!("{{ key = {{ user = 'u{user}' }}, max = 4 }}"));
    let overrides = overrides.collect::<Vec<_>>().join(", ");
    let window = "window = { max = 3, per = '1h' }";
    let (before, after) =
        between(&rule(window), &rule(&format!("{window}\noverride = [{overrides}]")));
    assert!(describe(&before, &after).ends_with(", more 992 added"));
    assert!(after.len() < 1_000);
}

#[test]
fn other_texts_are_described_as_they_are() {
    assert_eq!(describe("at most 3", "at most 4"), "at most 3 → at most 4");
}
