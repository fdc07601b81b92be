use proptest::prelude::*;

use super::{Subsumption, WorkBudget, covers};
use crate::attributes::Attributes;
use crate::policy::{Condition, Pattern};

const PATTERNS: [&str; 16] = [
    "a",
    "ab",
    "a*",
    "ab*",
    "*",
    "**",
    "*b",
    "a*b",
    "1..=5",
    "2..=4",
    "3..",
    "3",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.3",
    "0.0.0.0/0",
];

const VALUES: [&str; 12] =
    ["a", "ab", "abb", "", "b", "3", "03", "5", "7", "10.1.2.3", "10.2.0.1", "11.0.0.1"];

const NAMES: [&str; 2] = ["x", "y"];

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let patterns = prop::collection::vec(prop::sample::select(&PATTERNS[..]), 1..3);
    prop::collection::btree_map(0_usize..2, patterns, 0..3).prop_map(|conditions| {
        let read = |text: &&str| Pattern::read(text).unwrap();
        let condition = |(at, any_of): (usize, Vec<&str>)| Condition {
            attribute: NAMES[at].into(),
            any_of: any_of.iter().map(read).collect(),
        };
        conditions.into_iter().map(condition).collect()
    })
}

fn effort() -> WorkBudget {
    WorkBudget::new(u64::MAX)
}

proptest! {
    #[test]
    fn covered_conditions_never_match_alone(wide in conditions(), narrow in conditions()) {
        prop_assume!(covers(&wide, &narrow, &mut effort()));
        for x in VALUES {
            for y in VALUES {
                let request = [("x", x), ("y", y)];
                for request in [&request[..], &request[..1], &request[1..]] {
                    let meets = |all: &[Condition]| all.iter().all(|c| c.holds(&Attributes::new(request)));
                    prop_assert!(!meets(&narrow) || meets(&wide), "{wide:?} {narrow:?} {request:?}");
                }
            }
        }
    }

    #[test]
    fn an_example_finds_every_covering_list(
        lists in prop::collection::vec(conditions(), 0..12),
        narrow in conditions(),
    ) {
        let coverage = Subsumption::new(lists.iter().map(|list| &**list).collect());
        let found = coverage.of(&narrow, &mut effort());
        let all = lists.iter().enumerate();
        let all: Vec<usize> =
            all.filter(|(_, list)| covers(list, &narrow, &mut effort())).map(|(at, _)| at).collect();
        prop_assert_eq!(found, all);
    }
}

#[test]
fn an_exhausted_budget_finds_nothing() {
    let all: &[Condition] = &[];
    assert_eq!(Subsumption::new(vec![all]).of(all, &mut WorkBudget::new(1)), Vec::<usize>::new());
    assert_eq!(Subsumption::new(vec![all]).of(all, &mut WorkBudget::new(2)), [0]);
}
