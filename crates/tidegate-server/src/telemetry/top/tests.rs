use tidegate::policy::Policy;
use tidegate::{Request, StoreEngine};

use super::*;

fn name(user: &str) -> KeyName {
    let policy = "[[rule]]\nname = 'n'\nkey = ['user']\nwindow = { max = 1, per = '1h' }\n";
    let engine = StoreEngine::new(Policy::from_toml(policy).unwrap());
    let attributes = [("user", user)];
    let request = Request::new("default", &attributes);
    let report = engine.check(&request).block().unwrap();
    report.details().key_of(&request).unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(1 + seconds * 1_000_000_000)
}

#[test]
fn busiest_keys_come_first_and_denials_are_counted_apart() {
    let top = Top::new(false);
    let (ada, bob) = (name("ada"), name("bob"));
    (0..3).for_each(|_| top.add(&ada, true, 1, at(0)));
    (0..2).for_each(|_| top.add(&bob, false, 1, at(0)));
    let keys = top.read(10, at(0));
    let described = |seen: &[KeyCount]| {
        seen.iter().map(|it| format!("{} {}", it.key.describe(), it.count)).collect::<Vec<_>>()
    };
    assert_eq!(
        described(&keys.busiest),
        [r#"default/n user="ada" 3"#, r#"default/n user="bob" 2"#]
    );
    assert_eq!(described(&keys.most_denied), [r#"default/n user="bob" 2"#]);
    assert_eq!(top.read(1, at(0)).busiest.len(), 1);
}

#[test]
fn counts_halve_with_age() {
    let top = Top::new(false);
    top.add(&name("ada"), true, 8, at(0));
    assert_eq!(top.read(1, at(599)).busiest[0].count, 8);
    assert_eq!(top.read(1, at(600)).busiest[0].count, 4);
    assert!(top.read(1, at(1_000_000)).busiest.is_empty());
}

#[test]
fn keys_are_printed_on_one_line_and_truncated() {
    let odd = TopKey::new(&name("a\0b\r\n\"<script>\u{202e}"), false);
    assert_eq!(odd.describe(), r#"default/n user="a\0b\r\n\"<script>\u{202e}""#);
    let long = TopKey::new(&name(&"ä".repeat(1_000)), false).describe();
    assert!(long.len() < 200 && long.contains("2000 bytes"), "{long}");
}

#[test]
fn hidden_keys_are_distinct_but_not_readable() {
    let shown = |user: &str| TopKey::new(&name(user), true).describe();
    assert_eq!(shown("ada"), shown("ada"));
    assert_ne!(shown("ada"), shown("bob"));
    assert!(!shown("ada").contains("ada"));
}
