//! Any tree of descriptors, against a walk down the tree as envoyproxy/ratelimit does it.

use proptest::prelude::*;
use tidegate::policy::{Policy, RuleId};
use tidegate::{Request, StoreEngine, Timestamp, clock::ManualClock};

/// A descriptor: key, value, whether it has a limit, and what is below it.
#[derive(Clone, Debug)]
struct Tree {
    key: &'static str,
    value: Option<&'static str>,
    is_limited: bool,
    below: Vec<Tree>,
}

impl Tree {
    fn write(&self, indent: usize, out: &mut String) {
        let pad = " ".repeat(indent);
        *out += &format!("{pad}- key: {}\n", self.key);
        if let Some(value) = self.value {
            *out += &format!("{pad}  value: \"{value}\"\n");
        }
        if self.is_limited {
            *out += &format!("{pad}  rate_limit: {{unit: day, requests_per_unit: 7}}\n");
        }
        if !self.below.is_empty() {
            *out += &format!("{pad}  descriptors:\n");
            self.below.iter().for_each(|tree| tree.write(indent + 4, out));
        }
    }

    fn label(&self) -> String {
        match self.value {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.into(),
        }
    }
}

/// The labels of the way to the limit that a request finds.
fn walk(level: &[Tree], entries: &[(&str, &str)]) -> Option<String> {
    let ((key, value), rest) = entries.split_first()?;
    let exact = level.iter().find(|it| it.key == *key && it.value == Some(value));
    let is_prefix = |it: &&Tree| {
        let prefix = it.value.and_then(|pattern| pattern.strip_suffix('*'));
        it.key == *key && prefix.is_some_and(|prefix| value.starts_with(prefix))
    };
    let wildcard = || level.iter().find(is_prefix);
    let bare = || level.iter().find(|it| it.key == *key && it.value.is_none());
    let found = exact.or_else(wildcard).or_else(bare)?;
    if rest.is_empty() {
        return found.is_limited.then(|| found.label());
    }
    walk(&found.below, rest).map(|below| format!("{}.{below}", found.label()))
}

/// No two with the same key and value.
fn distinct(trees: Vec<Tree>) -> Vec<Tree> {
    let mut seen = std::collections::HashSet::new();
    trees.into_iter().filter(|tree| seen.insert((tree.key, tree.value))).collect()
}

fn level() -> impl Strategy<Value = Vec<Tree>> {
    let key = || prop_oneof![Just("a"), Just("b")];
    let value = || {
        let some = ["x", "xy", "x*", "xy*", "*", "10.0.0.1", "1..5"].map(Some);
        prop_oneof![Just(None), proptest::sample::select(some.to_vec())]
    };
    let leaf = (key(), value(), any::<bool>()).prop_map(|(key, value, is_limited)| Tree {
        key,
        value,
        is_limited,
        below: vec![],
    });
    let tree = leaf.prop_recursive(3, 24, 4, move |below| {
        (key(), value(), any::<bool>(), proptest::collection::vec(below, 0..4)).prop_map(
            |(key, value, is_limited, below)| Tree {
                key,
                value,
                is_limited,
                below: distinct(below),
            },
        )
    });
    proptest::collection::vec(tree, 1..5).prop_map(distinct)
}

fn request() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let key = proptest::sample::select(vec!["a", "b", "c"]);
    let value = proptest::sample::select(vec!["x", "xy", "xyz", "z", "10.0.0.1", "3", "1..5", ""]);
    proptest::collection::vec((key, value), 1..5)
}

proptest! {
    #[test]
    fn requests_find_what_a_walk_of_the_tree_finds(
        trees in level(),
        requests in proptest::collection::vec(request(), 1..20),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        text += "  - {key: unused, rate_limit: {unit: day, requests_per_unit: 1}}\n";
        trees.iter().for_each(|tree| tree.write(2, &mut text));
        let policy = Policy::load("f.yaml", text.as_bytes()).expect("a policy").policy;
        let engine = StoreEngine::builder(policy).clock(ManualClock::new(Timestamp::from_secs(5))).build().unwrap();
        for entries in requests {
            let report = engine.peek(&Request::new("d", &entries)).block().unwrap();
            let expected = walk(&trees, &entries);
            let rule = report.rule().map(RuleId::name);
            prop_assert_eq!(rule, expected.as_deref(), "{:?}\n{}", entries, text);
        }
    }
}
