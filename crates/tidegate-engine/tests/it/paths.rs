//! The fast paths decide as the pure function does. A request with an idempotency key always goes
//! through the function; the same trace without keys takes the fast paths where it can. And it does
//! not matter when the engine notices what has come by itself: expired holds, closed periods, ended
//! overrides.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::policy::{Condition, Grant, Override, Policy, RuleId};
use tidegate::{
    Edit, Report, Request, StoreEngine, Timestamp, WhenFull,
    clock::{Clock, ManualClock},
    hold::HoldId,
    store::MemoryStore,
};

/// Midnight, a while after 1970.
pub(crate) const START: u64 = 86_400 * 20_000;

pub(crate) const USERS: [&str; 4] = ["ada", "bob", "cyd", "dee"];

#[derive(Clone, Debug)]
enum Step {
    Check { user: usize, cost: u64, late_ms: u64 },
    Peek { user: usize, cost: u64 },
    Reserve { user: usize, cost: u64 },
    Commit { units: u64 },
    Pass { ms: u64 },
    Edit { number: u64 },
    Override { user: usize, number: u64, for_ms: Option<u64> },
}

pub(crate) fn rule(index: usize, kind: usize, number: u64) -> String {
    let (limit, more) = match kind {
        0 => (format!("bucket = {{ rate = \"{number}/s\", burst = {} }}", number * 3), ""),
        1 => (format!("window = {{ max = {}, per = \"2s\" }}", number * 2), ""),
        2 => (format!("window = {{ max = {number}, per = \"3s\" }}"), "effective = \"next\"\n"),
        3 => (format!("cooldown = \"{number}s\""), ""),
        4 => (format!("sliding = {{ max = {number}, per = \"4s\", parts = 4 }}"), ""),
        5 => (format!("quota = {{ max = {number}, per = \"minute\" }}"), "effective = \"next\"\n"),
        6 => (format!("quota = {{ max = {number}, per = \"minute\", carry = \"all\" }}"), ""),
        _ => (format!("window = {{ max = {number}, per = \"2s\" }}"), "charge_refused = true\n"),
    };
    let reserve = "reserve_for = \"3s\"\n";
    let mode = if kind == 1 && number.is_multiple_of(2) { "mode = \"shadow\"\n" } else { "" };
    format!("[[rule]]\nname = \"r{index}\"\nkey = [\"user\"]\n{limit}\n{reserve}{more}{mode}")
}

fn policy(kinds: &[usize], number: u64) -> Policy {
    let rules = kinds.iter().enumerate();
    let text: String = rules.map(|(index, kind)| rule(index, *kind, number)).collect();
    Policy::from_toml(&text).unwrap()
}

/// One of two engines that see the same trace.
struct Side {
    engine: StoreEngine,
    clock: ManualClock,
    /// The last idempotency key, if requests have them.
    keys: Option<u64>,
    /// Whether it looks at every key all the time.
    looks: bool,
    holds: Vec<HoldId>,
}

impl Side {
    fn new(kinds: &[usize], keys: Option<u64>) -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(START));
        let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
        let engine = StoreEngine::builder(policy(kinds, 2))
            .store(store)
            .clock(clock.clone())
            .build()
            .unwrap();
        Self { engine, clock, keys, looks: false, holds: Vec::new() }
    }

    fn looking(kinds: &[usize]) -> Self {
        Self { looks: true, ..Self::new(kinds, None) }
    }

    fn pass(&self, ms: u64) {
        if !self.looks {
            return self.clock.advance(Duration::from_millis(ms));
        }
        let step = (ms / 10).max(250);
        for passed in (0..ms).step_by(usize::try_from(step).unwrap()) {
            self.clock.advance(Duration::from_millis(step.min(ms - passed)));
            for user in USERS {
                let _ =
                    self.engine.peek(&Request::new("default", &[("user", user)])).block().unwrap();
            }
        }
    }

    fn step(&mut self, kinds: &[usize], step: &Step) -> Option<Report> {
        match *step {
            Step::Check { user, cost, late_ms } => {
                let at = self.clock.now().saturating_sub(Duration::from_millis(late_ms));
                let attributes = [("user", USERS[user])];
                let request = Request::new("default", &attributes).cost(cost);
                let report = match &mut self.keys {
                    None => self.engine.at(at).check(&request),
                    Some(last) => {
                        *last += 1;
                        let key = last.to_string();
                        self.engine.at(at).check(&request.idempotency_key(&key))
                    }
                };
                return Some(report.block().unwrap());
            }
            Step::Peek { user, cost } => {
                let attributes = [("user", USERS[user])];
                let request = Request::new("default", &attributes).cost(cost);
                return Some(self.engine.peek(&request).block().unwrap());
            }
            Step::Reserve { user, cost } => {
                let attributes = [("user", USERS[user])];
                let request = Request::new("default", &attributes).cost(cost);
                let report = self.engine.hold(&request).block().unwrap();
                self.holds.extend(report.hold());
                return Some(report);
            }
            Step::Commit { units } => {
                if let Some(hold) = self.holds.pop() {
                    let _ = self.engine.commit(hold, Some(units)).block();
                }
            }
            Step::Pass { ms } => self.pass(ms),
            Step::Edit { number } => {
                let _ = self.engine.edit("test", Edit::policy(policy(kinds, number)));
            }
            Step::Override { user, number, for_ms } => {
                let limit = policy(kinds, number).rules()[0].limit().clone();
                let conditions = vec![Condition::new("user", [USERS[user]]).unwrap()];
                let mut given = Override::new(conditions, Grant::Limit(limit));
                if let Some(ms) = for_ms {
                    let until = self.clock.now().saturating_add(Duration::from_millis(ms));
                    given = given.until(until.as_nanos());
                }
                self.engine
                    .edit("test", Edit::set_override(&RuleId::named("r0"), given))
                    .block()
                    .unwrap();
            }
        }
        None
    }
}

/// Steps that hold nothing: they may take the fast paths.
fn is_plain(step: &Step) -> bool {
    !matches!(step, Step::Reserve { .. } | Step::Commit { .. })
}

/// A request that comes late may find that what has expired since is released.
fn on_time(step: &Step) -> Step {
    match step.clone() {
        Step::Check { user, cost, .. } => Step::Check { user, cost, late_ms: 0 },
        step => step,
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..4_usize, 1..4_u64, prop_oneof![4 => Just(0), 1 => 1..3_000_u64])
            .prop_map(|(user, cost, late_ms)| Step::Check { user, cost, late_ms }),
        2 => (0..4_usize, 0..4_u64).prop_map(|(user, cost)| Step::Peek { user, cost }),
        4 => (0..4_usize, 1..4_u64).prop_map(|(user, cost)| Step::Reserve { user, cost }),
        1 => (0..5_u64).prop_map(|units| Step::Commit { units }),
        5 => prop_oneof![3 => 0..1_500_u64, 1 => 0..90_000_u64].prop_map(|ms| Step::Pass { ms }),
        1 => (1..6_u64).prop_map(|number| Step::Edit { number }),
        1 => (0..4_usize, 1..6_u64, prop::option::of(1..9_000_u64))
            .prop_map(|(user, number, for_ms)| Step::Override { user, number, for_ms }),
    ];
    prop::collection::vec(step, 1..60)
}

/// How a rule of a mixed policy applies, besides its limit.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) kind: usize,
    pub(crate) matches: &'static str,
    pub(crate) key: &'static str,
    pub(crate) missing: &'static str,
    pub(crate) is_shadow: bool,
}

/// A request with or without attributes that rules need.
#[derive(Clone, Debug)]
struct Attempt {
    user: usize,
    org: Option<&'static str>,
    plan: Option<&'static str>,
    cost: u64,
    after_ms: u64,
}

fn mixed_policy(rules: &[Conditions]) -> Policy {
    let rules = rules.iter().enumerate().map(|(index, it)| {
        let rule = rule(index, it.kind, 3)
            .replace("[\"user\"]", it.key)
            .replace("mode = \"shadow\"\n", "");
        let mode = if it.is_shadow { "mode = \"shadow\"\n" } else { "" };
        format!("{rule}{}missing = \"{}\"\n{mode}", it.matches, it.missing)
    });
    Policy::from_toml(&rules.collect::<String>()).unwrap()
}

pub(crate) fn conditions() -> impl Strategy<Value = Conditions> {
    let matches = prop::sample::select(vec![
        "",
        "",
        "match = { plan = \"free\" }\n",
        "match = { plan = [\"free\", \"pro\"] }\n",
    ]);
    let key = prop::sample::select(vec!["[\"user\"]", "[\"org\"]", "[\"org\", \"user\"]", "[]"]);
    let missing = prop::sample::select(vec!["skip", "share", "refuse"]);
    (0..8_usize, matches, key, missing, prop::bool::weighted(0.2)).prop_map(
        |(kind, matches, key, missing, is_shadow)| Conditions {
            kind,
            matches,
            key,
            missing,
            is_shadow,
        },
    )
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let org = prop::option::of(prop::sample::select(vec!["acme", "an organisation of length 29"]));
    let plan = prop::option::of(prop::sample::select(vec!["free", "pro", "other"]));
    let after_ms = prop_oneof![3 => Just(0), 1 => 0..2_000_u64];
    (0..4_usize, org, plan, 1..3_u64, after_ms)
        .prop_map(|(user, org, plan, cost, after_ms)| Attempt { user, org, plan, cost, after_ms })
}

/// What a report says.
pub(crate) fn content(report: &Report) -> String {
    let rules: Vec<_> = report.rules().map(|it| (it.rule, it.mode, *it.decision)).collect();
    format!("{} {:?} {rules:?}", report.is_allowed(), report.retry_after())
}

proptest! {
    #![proptest_config(crate::reference::cases(1_500))]

    #[test]
    fn fast_paths_decide_as_the_pure_function_does(
        kinds in prop::collection::vec(0..8_usize, 1..=3),
        steps in steps(),
    ) {
        let (mut fast, mut pure) = (Side::new(&kinds, None), Side::new(&kinds, Some(0)));
        for (index, step) in steps.iter().filter(|step| is_plain(step)).enumerate() {
            let (fast, pure) = (fast.step(&kinds, step), pure.step(&kinds, step));
            let (fast, pure) = (fast.as_ref().map(content), pure.as_ref().map(content));
            prop_assert_eq!(fast, pure, "step {}: {:?}", index, step);
        }
    }

    #[test]
    fn plain_requests_are_planned_as_all_others(
        rules in prop::collection::vec(conditions(), 1..=5),
        requests in prop::collection::vec(attempt(), 1..60),
    ) {
        let clock = ManualClock::new(Timestamp::from_secs(START));
        let engine = || {
            let store = MemoryStore::new(100, WhenFull::Deny).unwrap();
            let builder = StoreEngine::builder(mixed_policy(&rules)).store(store);
            builder.clock(clock.clone()).build().unwrap()
        };
        let (plain, planned) = (engine(), engine());
        for (index, it) in requests.iter().enumerate() {
            clock.advance(Duration::from_millis(it.after_ms));
            let mut attributes = vec![("user", USERS[it.user])];
            attributes.extend(it.org.map(|org| ("org", org)));
            attributes.extend(it.plan.map(|plan| ("plan", plan)));
            let request = Request::new("default", &attributes).cost(it.cost);
            let key = index.to_string();
            let plain = plain.check(&request).block().map(|it| content(&it));
            let planned = planned.check(&request.idempotency_key(&key)).block();
            prop_assert_eq!(plain, planned.map(|it| content(&it)), "request {}: {:?}", index, it);
        }
    }

    #[test]
    fn looking_never_matters(
        kinds in prop::collection::vec(0..8_usize, 1..=3),
        steps in steps(),
    ) {
        let (mut busy, mut lazy) = (Side::looking(&kinds), Side::new(&kinds, None));
        for (index, step) in steps.iter().map(on_time).enumerate() {
            let (busy, lazy) = (busy.step(&kinds, &step), lazy.step(&kinds, &step));
            let (busy, lazy) = (busy.as_ref().map(content), lazy.as_ref().map(content));
            prop_assert_eq!(busy, lazy, "step {}: {:?}", index, step);
        }
    }
}
