//! A batch is a list of independent decisions: each is what a loop over `check` returns.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::policy::{Policy, RuleId};
use tidegate::{
    CheckError, Edit, Report, Request, StoreEngine, Timestamp, WhenFull,
    clock::{Clock, ManualClock},
    store::MemoryStore,
};

use crate::paths::{Conditions, START, USERS, conditions, content, rule};

/// One request of a batch. With several of few users a batch has repeated keys.
#[derive(Clone, Debug)]
struct Item {
    domain: &'static str,
    user: Option<usize>,
    org: Option<&'static str>,
    plan: Option<&'static str>,
    cost: u64,
    /// The number of an idempotency key.
    key: Option<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<Item>),
    Pass { ms: u64 },
    Edit { number: u64 },
}

/// Plain rules in the domain `default`; in `other` also those that only the general path decides, and
/// some that are errors.
fn policy(rules: &[Conditions], number: u64) -> Policy {
    let plain = rules.iter().enumerate().map(|(index, it)| {
        let rule = rule(index, it.kind, number).replace("[\"user\"]", it.key);
        let rule = rule.replace("mode = \"shadow\"\n", "");
        let mode = if it.is_shadow { "mode = \"shadow\"\n" } else { "" };
        format!("{rule}{}missing = \"{}\"\n{mode}", it.matches, it.missing)
    });
    let others = format!(
        "[[rule]]\nname = \"costs\"\ndomain = \"other\"\nkey = [\"user\"]\n\
         cost = {{ by = \"plan\", free = 2, pro = 1 }}\n\
         window = {{ max = {number}, per = \"2s\" }}\n\
         [[rule]]\nname = \"named\"\ndomain = \"other\"\nkey = [\"org\"]\nempty = \"reject\"\n\
         bucket = {{ rate = \"{number}/s\", burst = {number} }}\n"
    );
    Policy::from_toml(&(plain.collect::<String>() + &others)).unwrap()
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let domain = prop::sample::select(vec!["default", "default", "default", "other", "unknown"]);
    let org =
        prop::option::of(prop::sample::select(vec!["acme", "", "an organisation of length 29"]));
    let plan = prop::option::of(prop::sample::select(vec!["free", "pro", "gold"]));
    let user = prop::option::weighted(0.9, 0..4_usize);
    let cost = prop_oneof![1 => Just(0), 9 => 1..3_u64];
    let item = (domain, user, org, plan, cost, prop::option::weighted(0.1, 0..3_u64)).prop_map(
        |(domain, user, org, plan, cost, key)| Item { domain, user, org, plan, cost, key },
    );
    prop::collection::vec(item, 0..40)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => items().prop_map(Step::Batch),
        2 => (0..2_000_u64).prop_map(|ms| Step::Pass { ms }),
        1 => (1..6_u64).prop_map(|number| Step::Edit { number }),
    ];
    prop::collection::vec(step, 1..8)
}

/// The result of a decision, with all that its report says.
fn described(result: Result<Report, CheckError>) -> String {
    match result {
        Ok(report) => {
            let more = (report.rule().cloned(), report.reason(), report.is_repeat());
            format!("{} {more:?} {:?}", content(&report), report.missing_attribute())
        }
        Err(error) => format!("{error:?}"),
    }
}

/// The decisions on requests, by a batch or by a loop, at the clock's time or at a given one.
fn decide(
    engine: &StoreEngine,
    items: &[Item],
    is_batch: bool,
    given: Option<Timestamp>,
) -> Vec<String> {
    let attributes: Vec<Vec<(&str, &str)>> = (items.iter())
        .map(|it| {
            let user = it.user.map(|user| ("user", USERS[user]));
            let (org, plan) = (it.org.map(|org| ("org", org)), it.plan.map(|plan| ("plan", plan)));
            user.into_iter().chain(org).chain(plan).collect()
        })
        .collect();
    let keys: Vec<_> = items.iter().map(|it| it.key.map(|key| key.to_string())).collect();
    let requests: Vec<Request<'_>> = (items.iter().zip(&attributes).zip(&keys))
        .map(|((it, attributes), key)| {
            let request = Request::new(it.domain, attributes).cost(it.cost);
            key.as_deref().map_or(request, |key| request.idempotency_key(key))
        })
        .collect();
    let results: Vec<_> = match (is_batch, given) {
        (true, None) => engine.check_many(&requests),
        (true, Some(now)) => engine.at(now).check_many(&requests),
        (false, None) => requests.iter().map(|it| engine.check(it)).collect(),
        (false, Some(now)) => requests.iter().map(|it| engine.at(now).check(it)).collect(),
    };
    results.into_iter().map(|result| described(result.block())).collect()
}

proptest! {
    #![proptest_config(crate::reference::cases(1_500))]

    #[test]
    fn batch_decides_as_a_loop_does(
        rules in prop::collection::vec(conditions(), 1..=5),
        steps in steps(),
        is_given in prop::bool::ANY,
    ) {
        let clock = ManualClock::new(Timestamp::from_secs(START));
        let engine = || {
            let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
            StoreEngine::builder(policy(&rules, 3)).store(store).clock(clock.clone()).build().unwrap()
        };
        let (batch, single) = (engine(), engine());
        for step in &steps {
            match step {
                Step::Batch(items) => {
                    let given = is_given.then(|| clock.now());
                    let (batch, single) =
                        (decide(&batch, items, true, given), decide(&single, items, false, given));
                    prop_assert_eq!(batch, single);
                }
                Step::Pass { ms } => clock.advance(Duration::from_millis(*ms)),
                Step::Edit { number } => {
                    for engine in [&batch, &single] {
                        let edited = engine.edit("test", Edit::policy(policy(&rules, *number)));
                        edited.block().unwrap();
                    }
                }
            }
        }
    }
}

type OnWall = Box<dyn FnOnce() + Send>;

/// A clock whose time of day is another one, and that does something when it is read.
#[derive(Clone)]
struct OddClock {
    on_wall: Arc<Mutex<Option<OnWall>>>,
}

impl OddClock {
    fn new() -> Self {
        Self { on_wall: Arc::default() }
    }
}

impl Clock for OddClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_000)
    }

    fn wall(&self) -> Timestamp {
        let act = self.on_wall.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        Timestamp::from_secs(START)
    }
}

fn daily(max: u64) -> Policy {
    let rule = "name = \"calls\"\nkey = [\"user\"]";
    Policy::from_toml(&format!("[[rule]]\n{rule}\nquota = {{ max = {max}, per = \"day\" }}"))
        .unwrap()
}

#[test]
fn batch_counts_by_the_time_of_day() {
    let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
    let engine =
        StoreEngine::builder(daily(2)).store(store).clock(OddClock::new()).build().unwrap();
    let ada = Request::new("default", &[("user", "ada")]);
    let until_reset = engine.check(&ada).block().unwrap().reset();
    assert_eq!(until_reset, Some(Duration::from_secs(86_400)), "the day has just begun");
    let decided: Vec<_> =
        engine.check_many(&[ada, ada]).into_iter().map(|it| it.block().unwrap()).collect();
    assert_eq!(decided[0].reset(), until_reset);
    assert_eq!(decided.iter().map(Report::is_allowed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn edit_counts_for_requests_of_a_batch_that_are_planned_and_not_decided() {
    let clock = OddClock::new();
    let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
    let engine = StoreEngine::builder(daily(3)).store(store).clock(clock.clone()).build().unwrap();
    let ada = Request::new("default", &[("user", "ada")]);
    assert!(engine.check(&ada).block().unwrap().is_allowed(), "the key has its slot now");
    let editor = engine.clone();
    // The batch has its rules when it reads the time of day.
    *clock.on_wall.lock().unwrap() = Some(Box::new(move || {
        editor.edit("test", Edit::policy(daily(2))).block().unwrap();
    }));
    let decided: Vec<_> =
        engine.check_many(&[ada, ada]).into_iter().map(|it| it.block().unwrap()).collect();
    assert!(clock.on_wall.lock().unwrap().is_none(), "the edit came");
    assert_eq!(decided.iter().map(Report::is_allowed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(decided[0].limit(), Some(2));
    assert_eq!(decided[1].rule().map(RuleId::name), Some("calls"));
}
