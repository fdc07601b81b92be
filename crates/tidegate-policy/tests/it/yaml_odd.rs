//! Any YAML file, however odd: it is parsed or rejected, and the names of its rules are unique.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate::policy::{Policy, PolicyErrors};

/// A text with all kinds of letters, in quotes: short, or longer than a name may be.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        select(vec!["a", "b", "*", "é", "😀", "\n", "\u{7f}", "\u{2028}", " ", "_", ".", "1"])
            .prop_map(str::to_owned),
        select(vec!["x", "é", "€"]).prop_flat_map(|it| (100..140_usize).prop_map(|n| it.repeat(n))),
        any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..4).prop_map(|pieces| quoted(&pieces.concat()))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' | '\u{a1}'.. if c != '\u{feff}' && c != '\u{2028}' && c != '\u{2029}' => {
                quoted.push(c);
            }
            c => quoted += &format!("\\U{:08x}", u32::from(c)),
        }
    }
    quoted + "\""
}

fn limit() -> impl Strategy<Value = String> {
    let max = select(vec!["0", "1", "0x10", "1_000", "-1", "1e3", "~"]);
    (max, of(text())).prop_map(|(max, name)| {
        let name = name.map_or_else(String::new, |name| format!(", name: {name}"));
        format!("{{unit: day, requests_per_unit: {max}{name}}}")
    })
}

/// A descriptor in one line, with what is below it.
fn descriptor() -> impl Strategy<Value = String> {
    let one = |below: Vec<String>| {
        (text(), of(text()), of(limit())).prop_map(move |(key, value, limit)| {
            let mut one = format!("{{key: {key}");
            one += &value.map_or_else(String::new, |value| format!(", value: {value}"));
            one += &limit.map_or_else(String::new, |limit| format!(", rate_limit: {limit}"));
            if !below.is_empty() {
                one += &format!(", descriptors: [{}]", below.join(", "));
            }
            one + "}"
        })
    };
    one(Vec::new()).prop_recursive(4, 24, 5, move |below| vec(below, 0..5).prop_flat_map(one))
}

fn limitador() -> impl Strategy<Value = String> {
    let condition = prop_oneof![
        text(),
        (text(), text()).prop_map(|(key, value)| {
            let inner = |quoted: &str| quoted[1..quoted.len() - 1].to_owned();
            format!("\"descriptors[0]['{}'] != '{}'\"", inner(&key), inner(&value))
        }),
        Just("[x]".to_owned()),
    ];
    let parts = (of(text()), vec(condition, 0..3), vec(text(), 0..3), select(vec![0, 1, 10]));
    parts.prop_map(|(name, conditions, variables, max)| {
        let name = name.map_or_else(String::new, |name| format!(", name: {name}"));
        format!(
            "- {{namespace: n, max_value: {max}, seconds: 1{name}, conditions: [{}], \
             variables: [{}]}}\n",
            conditions.join(", "),
            variables.join(", ")
        )
    })
}

/// It is a policy that can be written, or it is rejected; names are never the reason.
fn is_read_or_refused(text: &str) -> Result<(), TestCaseError> {
    is_policy_or_errors(text, Policy::load("f.yaml", text.as_bytes()).map(|it| it.policy))
}

fn is_policy_or_errors(
    text: &str,
    read: Result<Policy, PolicyErrors>,
) -> Result<(), TestCaseError> {
    match read {
        Err(errors) => {
            let text_of_errors = errors.to_string();
            prop_assert!(
                !text_of_errors.contains(" is already used in domain "),
                "{}\n{}",
                text_of_errors,
                text
            );
        }
        Ok(policy) => {
            let rules = policy.rules();
            let names: HashSet<_> = rules.iter().map(|it| (it.domain(), it.name())).collect();
            prop_assert_eq!(names.len(), rules.len(), "{}", text);
            let again = Policy::from_toml(&policy.to_toml());
            let again = again.expect("it can be written");
            prop_assert_eq!(again.rules(), rules, "{}", text);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn descriptors_with_any_text(level in vec(descriptor(), 1..5)) {
        is_read_or_refused(&format!("domain: d\ndescriptors: [{}]\n", level.join(", ")))?;
    }

    #[test]
    fn limits_with_any_text(limits in vec(limitador(), 1..5)) {
        let text = limits.concat();
        let converted = Policy::limitador_to_toml("f.yaml", text.as_bytes());
        let read = converted.map(|toml| Policy::from_toml(&toml).expect("it is a policy"));
        is_policy_or_errors(&text, read)?;
    }

    #[test]
    fn descriptors_that_were_cut_and_spoilt(
        level in vec(descriptor(), 1..4),
        positions in vec((any::<prop::sample::Index>(), any::<char>()), 1..4),
    ) {
        let text = format!("domain: d\ndescriptors: [{}]\n", level.join(",\n  "));
        let mut letters: Vec<char> = text.chars().collect();
        for (position, letter) in positions {
            let at = position.index(letters.len());
            letters[at] = letter;
        }
        is_read_or_refused(&letters.iter().collect::<String>())?;
    }
}
