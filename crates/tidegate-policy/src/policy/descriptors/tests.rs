use crate::attributes::Attributes;
use crate::policy::{Policy, Rule};

#[test]
fn a_domain_reads_descriptors_if_any_part_of_a_rule_does() {
    let rule =
        |domain: &str, rest: &str| format!("[[rule]]\nname = 'r'\ndomain = '{domain}'\n{rest}\n");
    let window = "window = { max = 1, per = '1s' }";
    let native = rule("native", &format!("key = ['user', '2fa']\n{window}"));
    let of_key = rule("key", &format!("key = ['1.user']\n{window}"));
    let of_match = rule("match", &format!("match = {{ '1.user' = 'ada' }}\n{window}"));
    let of_count = rule("count", &format!("match = {{ '{}' = '1' }}\n{window}", Attributes::COUNT));
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
        let matches = |entries: &[(&str, &str)]| rule.matches(&Attributes::new(entries));
        assert!(matches(&[("plan", "free"), ("user", "ada")]));
        assert!(!matches(&[("user", "ada"), ("plan", "free")]));
        assert!(!matches(&[("plan", "free"), ("user", "ada"), ("more", "x")]));
        assert!(policy.reads_descriptors("d"));
        let written = Policy::from_toml(&policy.to_toml()).expect("it can be written");
        assert!(written.reads_descriptors("d"), "{}", policy.to_toml());
    }

    #[test]
    fn each_number_of_entries_and_descriptors_has_its_own_condition() {
        for number in 1..=16 {
            for other in 1..=17 {
                let entries = vec![("k", "v"); other];
                let found = Attributes::new(&entries).with_number(other);
                assert_eq!(rule_names::entries(number).holds(&found), number == other);
                assert_eq!(rule_names::descriptor(number).holds(&found), number == other);
                assert!(rule_names::later_descriptor().holds(&found));
            }
        }
        assert!(!rule_names::later_descriptor().holds(&Attributes::new(&[])));
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
