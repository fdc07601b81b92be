//! The wait of a denied request is true: if nothing else happens, the same request is denied until
//! it is over, and allowed then. Limits change meanwhile: overrides end, edits wait for the next
//! period or window, and quotas that carry need several periods.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::policy::{Condition, Grant, Limit, Override, Policy, RuleId};
use tidegate::{
    Edit, Request, StoreEngine, Timestamp, Wait, WhenFull,
    clock::{Clock, ManualClock},
    edit::Ban,
    store::MemoryStore,
};

/// Midnight, a while after 1970.
const START: u64 = 86_400 * 20_000;

#[derive(Clone, Debug)]
enum Step {
    Check { cost: u64 },
    Pass { ms: u64 },
    Edit { rules: Vec<Rule> },
    Override { rule: usize, limit: usize, until_ms: Option<u64> },
    Ban { for_ms: u64 },
}

#[derive(Clone, Debug)]
struct Rule {
    limit: usize,
    number: u64,
    charge_refused: bool,
    is_next: bool,
}

/// The limits of each algorithm; an edit or an override keeps the algorithm.
fn limit(kind: usize, number: u64) -> String {
    match kind {
        0 => format!("bucket = {{ rate = \"{number}/s\", burst = {} }}", number * 2),
        1 => format!("window = {{ max = {number}, per = \"10s\" }}"),
        2 => format!("sliding = {{ max = {number}, per = \"10s\", parts = 5 }}"),
        3 => format!("cooldown = \"{number}s\""),
        4 => format!("quota = {{ max = {number}, per = \"minute\" }}"),
        _ => format!("quota = {{ max = {number}, per = \"minute\", carry = \"all\" }}"),
    }
}

fn text(rules: &[Rule]) -> String {
    let rule = |(index, rule): (usize, &Rule)| {
        let Rule { limit: kind, number, charge_refused, is_next } = *rule;
        let waits = matches!(kind, 1 | 4 | 5) && is_next;
        let effective = if waits { "effective = \"next\"\n" } else { "" };
        let limit = limit(kind, number);
        format!(
            "[[rule]]\nname = \"r{index}\"\nkey = [\"user\"]\n{limit}\n{effective}charge_refused = {charge_refused}\n"
        )
    };
    rules.iter().enumerate().map(rule).collect()
}

fn engine(rules: &[Rule], steps: &[Step]) -> (StoreEngine, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(START));
    let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
    let policy = Policy::from_toml(&text(rules)).unwrap();
    let engine = StoreEngine::builder(policy).store(store).clock(clock.clone()).build().unwrap();
    for step in steps {
        match step {
            Step::Check { cost } => {
                let _ = engine.check(&ada().cost(*cost)).block().unwrap();
            }
            Step::Pass { ms } => clock.advance(Duration::from_millis(*ms)),
            Step::Edit { rules } => {
                let _ = engine.edit("test", Edit::policy(Policy::from_toml(&text(rules)).unwrap()));
            }
            Step::Override { rule, limit: number, until_ms } => {
                let rule = rule % rules.len();
                let conditions = vec![Condition::new("user", ["ada"]).unwrap()];
                let grant = match number {
                    0 => Grant::Unlimited,
                    _ => Grant::Limit(parsed(rules[rule].limit, *number as u64)),
                };
                let mut given = Override::new(conditions, grant);
                if let Some(ms) = until_ms {
                    given = given.until(after(&clock, *ms).as_nanos());
                }
                engine
                    .edit("test", Edit::set_override(&RuleId::named(&format!("r{rule}")), given))
                    .block()
                    .unwrap();
            }
            Step::Ban { for_ms } => {
                let conditions = vec![Condition::new("user", ["ada"]).unwrap()];
                let ban = Ban::new("default", conditions).until(after(&clock, *for_ms));
                let _ = engine.edit("test", Edit::ban(ban));
            }
        }
    }
    (engine, clock)
}

fn after(clock: &ManualClock, ms: u64) -> Timestamp {
    clock.now().saturating_add(Duration::from_millis(ms))
}

fn ada() -> Request<'static> {
    Request::new("default", &[("user", "ada")])
}

fn parsed(kind: usize, number: u64) -> Limit {
    let rule = format!("[[rule]]\nname = \"r\"\nkey = [\"user\"]\n{}\n", limit(kind, number));
    Policy::from_toml(&rule).unwrap().rules()[0].limit().clone()
}

/// Whether the request is allowed so long after the last step.
fn is_allowed_after(rules: &[Rule], steps: &[Step], cost: u64, wait: Duration) -> bool {
    let (engine, clock) = engine(rules, steps);
    clock.advance(wait);
    engine.check(&ada().cost(cost)).block().unwrap().is_allowed()
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let rule = (0..6_usize, 1..6_u64, any::<bool>(), any::<bool>()).prop_map(
        |(limit, number, charge_refused, is_next)| Rule { limit, number, charge_refused, is_next },
    );
    prop::collection::vec(rule, 1..=2)
}

/// The same rules with other numbers.
fn edited(rules: &[Rule], numbers: &[u64]) -> Vec<Rule> {
    let edit = |(rule, number): (&Rule, &u64)| Rule { number: *number, ..rule.clone() };
    rules.iter().zip(numbers.iter().cycle()).map(edit).collect()
}

fn steps(rules: &[Rule]) -> impl Strategy<Value = Vec<Step>> + use<> {
    let of_edit = rules.to_vec();
    let step = prop_oneof![
        6 => (1..5_u64).prop_map(|cost| Step::Check { cost }),
        3 => (0..20_000_u64).prop_map(|ms| Step::Pass { ms }),
        2 => prop::collection::vec(1..6_u64, 2)
            .prop_map(move |numbers| Step::Edit { rules: edited(&of_edit, &numbers) }),
        3 => (0..2_usize, 0..6_usize, prop::option::weighted(0.8, 1..90_000_u64)).prop_map(
            |(rule, limit, until_ms)| Step::Override { rule, limit, until_ms }
        ),
        1 => (1..30_000_u64).prop_map(|for_ms| Step::Ban { for_ms }),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(crate::reference::cases(4_000))]

    #[test]
    fn wait_of_a_denied_request_is_true(
        (rules, mut steps) in rules().prop_flat_map(|rules| (Just(rules.clone()), steps(&rules))),
        cost in 1..5_u64,
    ) {
        let (engine, _) = engine(&rules, &steps);
        let report = engine.check(&ada().cost(cost)).block().unwrap();
        steps.push(Step::Check { cost });
        match report.retry_after() {
            None => prop_assert!(report.is_allowed()),
            Some(Wait::After(wait)) => {
                prop_assert!(is_allowed_after(&rules, &steps, cost, wait), "denied after {wait:?}");
                if let Some(before) = wait.checked_sub(Duration::from_nanos(1)) {
                    let early = is_allowed_after(&rules, &steps, cost, before);
                    prop_assert!(!early, "allowed before {wait:?}");
                    let early = is_allowed_after(&rules, &steps, cost, wait / 2);
                    prop_assert!(!early, "allowed after half of {wait:?}");
                }
            }
            Some(Wait::Never) => {
                for seconds in [1, 10, 60, 120, 3_600, 86_400] {
                    let late = Duration::from_secs(seconds);
                    prop_assert!(!is_allowed_after(&rules, &steps, cost, late), "after {late:?}");
                }
            }
            // A key whose first request a ban denies carries nothing over before its next one.
            Some(Wait::Unknown) => {
                let is_ban = |step: &Step| matches!(step, Step::Ban { .. });
                prop_assert!(rules.iter().any(|rule| rule.limit == 5) && steps.iter().any(is_ban));
            }
        }
    }
}
