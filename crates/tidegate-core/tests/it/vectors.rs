//! The test vectors for other languages: they are up to date, and this crate passes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::{
    Algorithm, Bucket, Carry, Committed, Cooldown, Debt, Decision, HeldUnits, Period, Quota, Rate,
    Sliding, Timestamp, Wait, Window,
};

#[path = "../../examples/vectors/generate/mod.rs"]
mod generate;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name)
}

fn cases(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn committed_vectors_are_up_to_date() {
    for (name, text) in generate::files() {
        let committed = std::fs::read_to_string(file(name)).unwrap_or_default();
        assert!(
            committed == text,
            "vectors/{name} is out of date. If the change is meant, run\n\
             cargo run -p tidegate-core --example vectors -- --write"
        );
    }
}

/// The TypeScript package has its own copies, so that it can be tested alone.
#[test]
fn copies_in_the_typescript_package_are_the_same() {
    let copies =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript/test/vectors");
    for name in ["bucket.json", "window.json", "sliding.json", "cooldown.json"] {
        let copy = std::fs::read_to_string(copies.join(name)).unwrap();
        assert!(
            copy == std::fs::read_to_string(file(name)).unwrap(),
            "{name} of the TypeScript package is out of date: run\n\
             cargo run -p tidegate-core --example vectors -- --write"
        );
    }
}

#[test]
fn vectors_cover_every_operation_in_many_cases() {
    for name in ["bucket", "window", "sliding", "cooldown", "quota"] {
        let cases = cases(&format!("{name}.json"));
        assert!(cases.len() >= 12, "{} cases of {name}", cases.len());
        let whole_us = cases.iter().filter(|case| case["whole_us"] == true).count();
        assert!(whole_us >= 8, "{whole_us} cases of {name} in whole microseconds");
        let mut ops = vec!["check", "peek", "refund", "hold", "commit", "cancel"];
        ops.extend((name != "quota").then_some("edit"));
        ops.extend((name != "cooldown").then_some("check_postpaid"));
        for op in ops {
            let has_op = |case: &Value| steps(case).iter().any(|step| step["op"] == op);
            assert!(cases.iter().any(has_op), "no {op} of {name}");
        }
        for wait in ["never", "unknown"] {
            let has_wait =
                |case: &Value| steps(case).iter().any(|step| step["expect"]["wait"] == wait);
            let is_possible = name != "cooldown" || wait == "never";
            assert_eq!(cases.iter().any(has_wait), is_possible, "a wait {wait} of {name}");
        }
    }
}

#[test]
fn crate_passes_the_bucket_vectors() {
    replay("bucket.json", |limit| {
        let rate = Rate::new(number(&limit["count"]), nanos(&limit["period_ns"]));
        let bucket = Bucket::try_new(rate, number(&limit["burst"])).unwrap();
        let debt = match limit["debt"].as_str().unwrap() {
            "all" => Debt::All,
            units => Debt::up_to(units.parse().unwrap()),
        };
        bucket.with_debt(debt).unwrap()
    });
}

#[test]
fn crate_passes_the_window_vectors() {
    replay("window.json", |limit| {
        let window = Window::new(number(&limit["max"]), nanos(&limit["per_ns"]));
        if limit["aligned"].as_bool().unwrap() { window.aligned() } else { window }
    });
}

#[test]
fn crate_passes_the_sliding_vectors() {
    replay("sliding.json", |limit| {
        let parts = u32::try_from(number(&limit["parts"])).unwrap();
        Sliding::new(number(&limit["max"]), nanos(&limit["per_ns"]), parts)
    });
}

#[test]
fn crate_passes_the_cooldown_vectors() {
    replay("cooldown.json", |limit| {
        let cooldown = Cooldown::new(nanos(&limit["gap_ns"]));
        let is_extended = limit["extended_by_refusals"].as_bool().unwrap();
        if is_extended { cooldown.extended_by_refusals() } else { cooldown }
    });
}

#[test]
fn crate_passes_the_quota_vectors() {
    for case in cases("quota.json") {
        let limit = quota(&case["limit"]);
        let mut state = limit.fresh(period(&steps(&case)[0]));
        for step in steps(&case) {
            let (now, period) = (Timestamp::from_nanos(number(&step["at_ns"])), period(step));
            let amount = |field: &str| number(&step[field]);
            let held = || HeldUnits { units: amount("units"), period: amount("held_in") };
            let found = match step["op"].as_str().unwrap() {
                "check" => Found::Decision(limit.check(&mut state, amount("cost"), period, now)),
                "check_postpaid" => {
                    let cost = amount("cost");
                    Found::Decision(limit.check_postpaid(&mut state, cost, period, now))
                }
                "peek" => Found::Decision(limit.peek(&state, amount("cost"), period, now)),
                "hold" => Found::Decision(limit.hold(&mut state, amount("units"), period, now)),
                "refund" => Found::Given(limit.refund(&mut state, amount("units"), period)),
                "commit" => {
                    let actual = amount("actual");
                    Found::Committed(limit.commit(&mut state, held(), actual, period))
                }
                "cancel" => {
                    limit.cancel(&mut state, held(), period);
                    Found::Nothing
                }
                other => panic!("no such operation: {other}"),
            };
            found.meets(step, &case);
        }
    }
}

fn quota(limit: &Value) -> Quota {
    let carry = match limit["carry"].as_str().unwrap() {
        "nothing" => Carry::Nothing,
        "up_to" => Carry::UpTo(number(&limit["bound"])),
        "all" => Carry::All,
        other => panic!("no such carry: {other}"),
    };
    Quota::new(number(&limit["max"]), carry).with_debt(debt_of(limit)).unwrap()
}

fn debt_of(limit: &Value) -> Debt {
    match limit["debt"].as_str().unwrap() {
        "nothing" => Debt::Nothing,
        "up_to" => Debt::UpTo(number(&limit["debt_bound"])),
        "all" => Debt::All,
        other => panic!("no such debt: {other}"),
    }
}

/// What a step came to.
enum Found {
    Decision(Decision),
    Given(u64),
    Charged(u64),
    Committed(Committed),
    Nothing,
}

impl Found {
    fn meets(self, step: &Value, case: &Value) {
        let (expect, position) = (&step["expect"], format!("{step} in {}", case["name"]));
        match self {
            Self::Decision(decision) => {
                let wait = match decision.retry_after() {
                    None => Value::Null,
                    Some(Wait::Never) => "never".into(),
                    Some(Wait::Unknown) => "unknown".into(),
                    Some(Wait::After(wait)) => format!("{}ns", wait.as_nanos()).into(),
                };
                let reset =
                    decision.reset().map_or(Value::Null, |it| it.as_nanos().to_string().into());
                assert_eq!(expect["allowed"], decision.is_allowed(), "{position}");
                assert_eq!(number(&expect["remaining"]), decision.remaining(), "{position}");
                assert_eq!((&expect["wait"], &expect["reset_ns"]), (&wait, &reset), "{position}");
            }
            Self::Given(units) => assert_eq!(number(&expect["given"]), units, "{position}"),
            Self::Charged(units) => assert_eq!(number(&expect["charged"]), units, "{position}"),
            Self::Committed(Committed { charged, debt, closed, forgiven }) => {
                let expected =
                    ["charged", "debt", "closed", "forgiven"].map(|it| number(&expect[it]));
                assert_eq!(expected, [charged, debt, closed, forgiven], "{position}");
            }
            Self::Nothing => assert!(expect.as_object().unwrap().is_empty(), "{position}"),
        }
    }
}

fn replay<L: Algorithm>(name: &str, build: impl Fn(&Value) -> L) {
    for case in cases(name) {
        let mut limit = build(&case["limit"]);
        let mut state = limit.fresh();
        for step in steps(&case) {
            let now = Timestamp::from_nanos(number(&step["at_ns"]));
            let amount = |field: &str| number(&step[field]);
            let found = match step["op"].as_str().unwrap() {
                "check" => Found::Decision(limit.check(&mut state, amount("cost"), now)),
                "check_postpaid" => {
                    Found::Decision(limit.check_postpaid(&mut state, amount("cost"), now))
                }
                "peek" => Found::Decision(limit.peek(&state, amount("cost"), now)),
                "hold" => Found::Decision(limit.hold(&mut state, amount("units"), now)),
                "refund" => Found::Given(limit.refund(&mut state, amount("units"), now)),
                "commit" => {
                    let (units, actual) = (amount("units"), amount("actual"));
                    Found::Charged(limit.commit(&mut state, units, actual, now))
                }
                "cancel" => {
                    limit.cancel(&mut state, amount("units"), now);
                    Found::Nothing
                }
                "edit" => {
                    let new = build(&step["limit"]).succeeding(&limit);
                    state = new.carry_over(&limit, &state, now);
                    limit = new;
                    Found::Nothing
                }
                other => panic!("no such operation: {other}"),
            };
            found.meets(step, &case);
        }
    }
}

fn steps(case: &Value) -> &Vec<Value> {
    case["steps"].as_array().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

fn nanos(value: &Value) -> Duration {
    Duration::from_nanos(number(value))
}

fn period(step: &Value) -> Period {
    let period = &step["period"];
    let ends = (!period["ends_ns"].is_null()).then(|| number(&period["ends_ns"]));
    Period { index: number(&period["index"]), ends: ends.map(Timestamp::from_nanos) }
}
