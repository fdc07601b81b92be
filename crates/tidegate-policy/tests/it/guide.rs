//! The examples of the guide to policy files are policy files.

use tidegate::policy::Policy;

const GUIDE: &str = include_str!("../../../../docs/guides/policy.md");

#[test]
fn every_example_of_the_guide_is_a_policy_without_warnings() {
    let mut examples = 0;
    for block in GUIDE.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let parsed = Policy::parse("guide", text.as_bytes());
        let parsed = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert!(parsed.warnings.is_empty(), "{:?}\n{text}", parsed.warnings);
        examples += 1;
    }
    assert!(examples >= 11, "{examples} examples");
}

#[test]
fn the_guide_shows_errors_as_they_are() {
    let block = GUIDE.split("```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    let text = "[[rule]]\nname = 'a'\n\n\nbucket = { rate = \"1/s\", burts = 5 }\n";
    let errors = Policy::parse("policy.toml", text.as_bytes()).unwrap_err();
    assert_eq!(errors.to_string(), block);
}
