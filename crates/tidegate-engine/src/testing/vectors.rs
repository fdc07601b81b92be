//! The test vectors of the core, through a store.

use crate::Edit;
use std::time::Duration;

use serde_json::Value;
use tidegate_core::{
    Bucket, Carry, Cooldown, Debt, Decision, Quota, Rate, Sliding, Timestamp, Wait, Window,
};
use tidegate_policy::policy::{Limit, Periods, Policy, Rule};
use tidegate_table::ManualClock;

use crate::{HoldId, Request, Store, StoreEngine};

/// Replays test vectors of `tidegate-core`, one file's text at a time, and returns how many cases.
///
/// Only cases in whole microseconds, and no quotas whose periods are not rounds. A step that has no
/// counterpart ends its case, such as a commit of units that were held by two reservations.
///
/// # Panics
///
/// If a store makes another decision, or the text is not of that form.
pub fn vectors<S: Into<Store>>(make: impl Fn() -> S, json: &str) -> usize {
    let cases: Vec<Value> = serde_json::from_str(json).unwrap();
    let can_replay = |case: &&Value| case["whole_us"] == true && first_round(case) == Some(0);
    cases.iter().filter(can_replay).map(|case| replay(make().into(), case)).count()
}

/// The first round of a case; `None` where periods are not rounds.
fn first_round(case: &Value) -> Option<u64> {
    let steps = case["steps"].as_array().unwrap();
    let is_round = |step: &Value| step["period"]["ends_ns"].is_null();
    let first = &steps[0]["period"]["index"];
    steps.iter().all(is_round).then(|| if first.is_null() { 0 } else { number(first) })
}

fn replay(store: Store, case: &Value) {
    let clock = ManualClock::default();
    let steps = case["steps"].as_array().unwrap();
    let is_postpaid = steps.iter().any(|step| step["op"] == "check_postpaid");
    let policy = |limit: &Value| Policy::new([rule(limit, is_postpaid)]).unwrap();
    let engine = StoreEngine::builder(policy(&case["limit"]))
        .store(store)
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut holds: Vec<(u64, HoldId)> = Vec::new();
    let mut rounds = 0;
    for step in steps {
        clock.set(Timestamp::from_nanos(number(&step["at_ns"])));
        if !step["period"].is_null() {
            let index = number(&step["period"]["index"]);
            if index < rounds || index - rounds > 100 {
                return;
            }
            for _ in rounds..index {
                engine.close_round("default", None).block().unwrap();
            }
            rounds = index;
        }
        let request = |field: &str| Request::new("default", &[]).cost(number(&step[field]));
        let position = || format!("{step} in {}", case["name"]);
        let (op, expect) = (step["op"].as_str().unwrap(), &step["expect"]);
        match op {
            "check" | "check_postpaid" | "peek" | "hold" => {
                let report = match op {
                    "check" | "check_postpaid" => engine.check(&request("cost")).block(),
                    "peek" => engine.peek(&request("cost")).block(),
                    _ if number(&step["units"]) == 0 => return,
                    _ => engine.hold(&request("units")).block(),
                };
                let report = report.unwrap();
                if op == "hold" && !report.is_allowed() && case["limit"]["kind"] == "cooldown" {
                    // A store does not charge a hold that it denies.
                    return;
                }
                holds.extend(report.hold().map(|id| (number(&step["units"]), id)));
                meets(report.decision().unwrap(), expect, &position());
            }
            "commit" | "cancel" => {
                let units = number(&step["units"]);
                let Some(index) = holds.iter().position(|(held, _)| *held == units) else { return };
                let (_, id) = holds.swap_remove(index);
                if op == "cancel" {
                    engine.cancel(id, None).block().unwrap();
                } else {
                    let charged = engine.commit(id, Some(number(&step["actual"]))).block();
                    let charged = charged.map(|done| done.charged);
                    assert_eq!(charged, Ok(number(&expect["charged"])), "{}", position());
                }
            }
            "refund" => {
                let given = engine.refund(&request("units")).block().unwrap();
                assert_eq!(given, number(&expect["given"]), "{}", position());
            }
            "edit" => {
                drop(engine.edit("test", Edit::policy(policy(&step["limit"]))).block().unwrap())
            }
            other => panic!("no such operation: {other}"),
        }
    }
}

fn meets(decision: &Decision, expect: &Value, position: &str) {
    let wait = match decision.retry_after() {
        None => Value::Null,
        Some(Wait::Never) => "never".into(),
        Some(Wait::Unknown) => "unknown".into(),
        Some(Wait::After(wait)) => format!("{}ns", wait.as_nanos()).into(),
    };
    let reset = decision.reset().map_or(Value::Null, |it| it.as_nanos().to_string().into());
    assert_eq!(expect["allowed"], decision.is_allowed(), "{position}");
    assert_eq!(number(&expect["remaining"]), decision.remaining(), "{position}");
    assert_eq!((&expect["wait"], &expect["reset_ns"]), (&wait, &reset), "{position}");
}

fn rule(limit: &Value, is_postpaid: bool) -> Rule {
    let field = |name: &str| number(&limit[name]);
    let length = |name: &str| Duration::from_nanos(field(name));
    let is_set = |name: &str| limit[name] == true;
    let built = match limit["kind"].as_str().unwrap() {
        "bucket" => {
            let rate = Rate::new(field("count"), length("period_ns"));
            let bucket = Bucket::try_new(rate, field("burst")).unwrap();
            let debt = match limit["debt"].as_str().unwrap() {
                "all" => Debt::All,
                units => Debt::up_to(units.parse().unwrap()),
            };
            Limit::Bucket(bucket.with_debt(debt).unwrap())
        }
        "window" => {
            let window = Window::new(field("max"), length("per_ns"));
            Limit::Window(if is_set("aligned") { window.aligned() } else { window })
        }
        "sliding" => {
            let parts = u32::try_from(field("parts")).unwrap();
            Limit::Sliding(Sliding::new(field("max"), length("per_ns"), parts))
        }
        "cooldown" => Limit::Cooldown(Cooldown::new(length("gap_ns"))),
        "quota" => {
            let carry = match limit["carry"].as_str().unwrap() {
                "nothing" => Carry::Nothing,
                "up_to" => Carry::UpTo(field("bound")),
                _ => Carry::All,
            };
            let debt = match limit["debt"].as_str().unwrap() {
                "nothing" => Debt::Nothing,
                "up_to" => Debt::UpTo(field("debt_bound")),
                _ => Debt::All,
            };
            let quota = Quota::new(field("max"), carry).with_debt(debt).unwrap();
            Limit::Quota(quota, Periods::Round)
        }
        other => panic!("no such limit: {other}"),
    };
    let rule = Rule::builder("r", built).reserve_for(Duration::MAX);
    let rule = if is_set("extended_by_refusals") { rule.charge_refused() } else { rule };
    let rule = if is_postpaid { rule.postpaid() } else { rule };
    rule.build().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}
