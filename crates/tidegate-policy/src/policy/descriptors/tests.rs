use super::DescriptorNames;
use crate::attributes::Attributes;
use crate::policy::{Policy, Rule};

fn attributes<'a>(
    names: &'a DescriptorNames,
    entries: &[(&'a str, &'a str)],
    number: usize,
) -> Vec<(&'a str, &'a str)> {
    names.attributes(entries.to_vec(), number).collect()
}

fn names_of(entries: &[(&str, &str)]) -> DescriptorNames {
    DescriptorNames::new(entries.iter().map(|(key, _)| *key))
}

#[test]
fn entries_are_found_by_position_and_by_key() {
    let entries = [("plan", "free"), ("path", "/a"), ("plan", "pro")];
    let names = names_of(&entries);
    let all = attributes(&names, &entries, 0);
    let found = Attributes::new(&all);
    for (name, value) in [
        (DescriptorNames::ENTRIES, Some("3")),
        ("1.plan", Some("free")),
        ("2.path", Some("/a")),
        ("3.plan", Some("pro")),
        ("plan", Some("pro")),
        ("path", Some("/a")),
        ("2.plan", None),
        ("4.plan", None),
        ("0.plan", None),
        (DescriptorNames::NUMBER, None),
    ] {
        assert_eq!(found.get(name), value, "{name}");
    }
    let second = attributes(&names, &entries, 1);
    assert_eq!(Attributes::new(&second).get(DescriptorNames::NUMBER), Some("1"));
}

#[test]
fn keys_do_not_hide_names_of_descriptors() {
    let entries = [
        (DescriptorNames::ENTRIES, "9"),
        ("1.user", "eve"),
        (DescriptorNames::NUMBER, "7"),
        ("user", "ada"),
    ];
    let names = names_of(&entries);
    for (number, expected) in [(0, None), (3, Some("3"))] {
        let all = attributes(&names, &entries, number);
        let found = Attributes::new(&all);
        assert_eq!(found.get(DescriptorNames::ENTRIES), Some("4"));
        assert_eq!(found.get(DescriptorNames::NUMBER), expected);
    }
    let collides = [("x", "first"), ("1.x", "second")];
    let names = names_of(&collides);
    let all = attributes(&names, &collides, 0);
    assert_eq!(Attributes::new(&all).get("1.x"), Some("first"));
}

#[test]
fn numbers_above_those_that_rules_distinguish_are_the_same() {
    for (count, expected) in [(0, "0"), (16, "16"), (17, "more"), (40, "more")] {
        let entries = vec![("k", "v"); count];
        let names = names_of(&entries);
        let all = attributes(&names, &entries, count);
        let found = Attributes::new(&all);
        assert_eq!(found.get(DescriptorNames::ENTRIES), Some(expected));
        assert_eq!(found.get(DescriptorNames::NUMBER), Some(expected).filter(|_| count > 0));
    }
}

#[test]
fn only_entries_by_key_get_another_value() {
    let entries = [("path", "/./a"), ("user", "ada")];
    let names = names_of(&entries);
    let by_key = |key, value| if key == "path" { "/a" } else { value };
    let all: Vec<_> = names.attributes_with(entries, 0, by_key).collect();
    let found = Attributes::new(&all);
    assert_eq!((found.get("path"), found.get("1.path")), (Some("/a"), Some("/./a")));
    assert_eq!((found.get("user"), found.get("2.user")), (Some("ada"), Some("ada")));
}

#[test]
fn a_key_of_a_client_stands_for_no_other_entry_and_no_number() {
    let (entries, number) = (DescriptorNames::ENTRIES, DescriptorNames::NUMBER);
    let forged = [(entries, "1"), (number, "3"), ("1.user", "eve"), ("user", "ada"), ("5.x", "y")];
    let names = names_of(&forged);
    let all = attributes(&names, &forged, 0);
    let found = Attributes::new(&all);
    assert_eq!(found.get(entries), Some("5"));
    for name in [number, "1.user", "5.x"] {
        assert_eq!(found.get(name), None, "{name}");
    }
    assert_eq!((found.get("user"), found.get("4.user")), (Some("ada"), Some("ada")));
    assert_eq!(found.get("3.1.user"), Some("eve"));
}

#[test]
fn the_name_of_a_key_has_the_entries_of_its_descriptor() {
    let of = |parts: &[(&'static str, &'static str)]| {
        DescriptorNames::entries_of_key(parts.iter().copied())
    };
    let entries = vec![("plan", "free"), ("user", "ada")];
    assert_eq!(of(&[("2.user", "ada"), ("1.plan", "free")]), Some(entries));
    assert_eq!(of(&[]), Some(Vec::new()));
    for other in [
        &[("2.user", "ada")][..],
        &[("1.plan", "x"), ("user", "ada")],
        &[("1.a", "x"), ("1.b", "y")],
    ] {
        assert_eq!(of(other), None, "{other:?}");
    }
}

/// Plain attributes are names and values: only the adapter makes names by position.
#[test]
fn attributes_find_nothing_but_names() {
    let plain = Attributes::new(&[("plan", "free"), ("user", "ada"), ("user", "eve")]);
    for name in ["1.plan", "2.user", DescriptorNames::ENTRIES, DescriptorNames::NUMBER] {
        assert_eq!(plain.get(name), None, "{name}");
    }
    assert_eq!(plain.get("user"), Some("ada"));
}

#[test]
fn names_that_only_descriptors_have_are_known() {
    for name in
        [DescriptorNames::ENTRIES, DescriptorNames::NUMBER, "1.plan", "16.a.b", "7.", "123.x"]
    {
        assert!(DescriptorNames::is_one(name), "{name}");
    }
    for name in ["", "plan", "2fa", "1", ".x", "0.x", "01.x", "1a.x", "+1.x", "req.method"] {
        assert!(!DescriptorNames::is_one(name), "{name}");
    }
}

#[test]
fn a_domain_reads_descriptors_if_any_part_of_a_rule_does() {
    let rule =
        |domain: &str, rest: &str| format!("[[rule]]\nname = 'r'\ndomain = '{domain}'\n{rest}\n");
    let window = "window = { max = 1, per = '1s' }";
    let native = rule("native", &format!("key = ['user', '2fa']\n{window}"));
    let of_key = rule("key", &format!("key = ['1.user']\n{window}"));
    let of_match = rule("match", &format!("match = {{ '1.user' = 'ada' }}\n{window}"));
    let of_count =
        rule("count", &format!("match = {{ '{}' = '1' }}\n{window}", DescriptorNames::ENTRIES));
    let of_cost = rule("cost", &format!("cost = {{ by = '2.model', a = 1 }}\n{window}"));
    let of_queue = rule("queue", "slots = { max = 1, priority = '1.rank', expires = '1m' }");
    let text = native + &of_key + &of_match + &of_count + &of_cost + &of_queue;
    let policy = Policy::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(!policy.reads_descriptors("native"));
    assert!(!policy.reads_descriptors("unknown"));
    for domain in ["key", "match", "count", "cost", "queue"] {
        assert!(policy.reads_descriptors(domain), "{domain}");
    }
}

#[cfg(feature = "yaml")]
mod files {
    use super::*;
    use crate::policy::descriptors::rule_names;

    fn policy(text: &str) -> Policy {
        let parsed = Policy::load("limits.yaml", text.as_bytes());
        parsed.unwrap_or_else(|errors| panic!("{errors}")).policy
    }

    /// The names that a file's rules have are those that requests get.
    #[test]
    fn rules_and_requests_have_the_same_names() {
        let policy = policy(
            "domain: d
descriptors:
  - key: plan
    value: free
    descriptors:
      - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
",
        );
        let [rule] = policy.rules() else { panic!("one limit: {:?}", policy.rules()) };
        let matches = |entries: &[(&str, &str)]| {
            let names = names_of(entries);
            rule.matches(&Attributes::new(&attributes(&names, entries, 0)))
        };
        assert!(matches(&[("plan", "free"), ("user", "ada")]));
        assert!(!matches(&[("user", "ada"), ("plan", "free")]));
        assert!(!matches(&[("plan", "free"), ("user", "ada"), ("more", "x")]));
        assert!(!rule.matches(&Attributes::new(&[("plan", "free"), ("user", "ada")])));
        assert!(policy.reads_descriptors("d"));
        let written = Policy::from_toml(&policy.to_toml()).expect("it can be written");
        assert!(written.reads_descriptors("d"), "{}", policy.to_toml());
    }

    #[test]
    fn each_number_of_entries_and_descriptors_has_its_own_condition() {
        for number in 1..=16 {
            for other in 1..=17 {
                let entries = vec![("k", "v"); other];
                let names = names_of(&entries);
                let all = attributes(&names, &entries, other);
                let found = Attributes::new(&all);
                assert_eq!(rule_names::entries(number).holds(&found), number == other);
                assert_eq!(rule_names::descriptor(number).holds(&found), number == other);
                assert!(rule_names::later_descriptor().holds(&found));
            }
        }
        let none = DescriptorNames::default();
        let first = attributes(&none, &[], 0);
        assert!(!rule_names::later_descriptor().holds(&Attributes::new(&first)));
    }

    /// Limitador finds entries by their keys, so plain attributes need no positions.
    #[test]
    fn limits_of_limitador_read_plain_attributes() {
        let limits = b"[{namespace: n, max_value: 1, seconds: 9, variables: [user]}]";
        let policy = Policy::limitador_to_toml("limits.yaml", limits).unwrap();
        let policy = Policy::from_toml(&policy).unwrap();
        assert!(!policy.reads_descriptors("n"));
        let (limits, others): (Vec<&Rule>, Vec<&Rule>) =
            policy.rules().iter().partition(|rule| !rule.is_placeholder());
        assert!(others.iter().all(|rule| rule.excludes_later_descriptors()));
        assert!(limits.iter().all(|rule| !rule.excludes_later_descriptors()));
        assert_eq!((limits.len(), others.len()), (1, 1));
    }
}
