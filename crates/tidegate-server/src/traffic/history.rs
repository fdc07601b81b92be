//! Counts of decisions over time: those of all requests each second, those of each rule each ten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tidegate::policy::{Mode, RuleId};
use tidegate::report::RuleTally;

/// Counts of decisions over time.
#[derive(Debug, Default)]
pub(crate) struct History {
    kept: Mutex<KeptHistory>,
}

#[derive(Debug, Default)]
struct KeptHistory {
    /// Oldest first, one for each second.
    points: VecDeque<Point>,
    /// When the steps of rules ended, in milliseconds since 1970; oldest first.
    steps: VecDeque<u64>,
    /// By rule.
    rules: HashMap<RuleId, RuleHistory>,
}

/// What was decided in a second, and what was there at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// In milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) shadow_denied: u64,
    pub(crate) unmatched: u64,
    /// `None` without requests.
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// What a rule decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCounts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) shadow_denied: u64,
}

#[derive(Debug, Default)]
struct RuleHistory {
    total: RuleCounts,
    /// One for each step, the newest last; shorter for rules that came later.
    counts: VecDeque<RuleCounts>,
}

impl RuleCounts {
    /// The counts of every rule.
    pub(crate) fn by_rule(tallies: &[RuleTally]) -> HashMap<&RuleId, Self> {
        let mut totals: HashMap<&RuleId, Self> = HashMap::with_capacity(tallies.len());
        for tally in tallies {
            let total = totals.entry(&tally.rule).or_default();
            total.allowed += tally.allowed;
            match tally.mode {
                Mode::Enforce => total.denied += tally.denied,
                Mode::Shadow => total.shadow_denied += tally.denied,
            }
        }
        totals
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow_denied: self.shadow_denied.saturating_sub(before.shadow_denied),
        }
    }
}

impl History {
    /// Adds a second.
    pub(crate) fn push(&self, point: Point) {
        let points = &mut self.lock().points;
        points.push_back(point);
        if points.len() > MOST_POINTS {
            points.pop_front();
        }
    }

    /// Adds a step of rules, by what they have decided in total.
    pub(crate) fn push_rules(&self, time_ms: u64, tallies: &[RuleTally]) {
        let totals = RuleCounts::by_rule(tallies);
        let KeptHistory { steps, rules, .. } = &mut *self.lock();
        steps.push_back(time_ms);
        if steps.len() > MOST_STEPS {
            steps.pop_front();
        }
        rules.retain(|rule, _| totals.contains_key(rule));
        for (rule, total) in totals {
            if !rules.contains_key(rule) && rules.len() >= MOST_RULES {
                continue;
            }
            let history = rules.entry(rule.clone()).or_default();
            history.counts.push_back(total.since(history.total));
            history.total = total;
            if history.counts.len() > steps.len() {
                history.counts.pop_front();
            }
        }
    }

    /// Everything, as parallel lists.
    pub(crate) fn to_json(&self) -> Value {
        let KeptHistory { points, steps, rules } = &*self.lock();
        let list = |of: fn(&Point) -> Value| points.iter().map(of).collect::<Vec<_>>();
        let mut by_name: Vec<_> = rules.iter().collect();
        by_name.sort_unstable_by_key(|(rule, _)| *rule);
        let rules = by_name.into_iter().map(|(rule, history)| {
            let missing = steps.len() - history.counts.len();
            let list = |of: fn(&RuleCounts) -> u64| {
                let before = std::iter::repeat_n(0, missing);
                before.chain(history.counts.iter().map(of)).collect::<Vec<_>>()
            };
            json!({
                "domain": rule.domain(), "name": rule.name(),
                "allowed": list(|it| it.allowed),
                "denied": list(|it| it.denied),
                "shadow_denied": list(|it| it.shadow_denied),
            })
        });
        json!({
            "step_ms": STEP_MS,
            "time_ms": list(|it| it.time_ms.into()),
            "allowed": list(|it| it.allowed.into()),
            "denied": list(|it| it.denied.into()),
            "shadow_denied": list(|it| it.shadow_denied.into()),
            "unmatched": list(|it| it.unmatched.into()),
            "p50_us": list(|it| it.p50_us.into()),
            "p99_us": list(|it| it.p99_us.into()),
            "keys": list(|it| it.keys.into()),
            "bytes": list(|it| it.bytes.into()),
            "rules": {
                "step_ms": STEP_MS * RULE_STEPS,
                "time_ms": steps,
                "rules": rules.collect::<Vec<_>>(),
            },
        })
    }

    fn lock(&self) -> MutexGuard<'_, KeptHistory> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a point stands for.
pub(crate) const STEP_MS: u64 = 1_000;
/// How many points a step of rules stands for.
pub(crate) const RULE_STEPS: u64 = 10;
/// A quarter of an hour.
const MOST_POINTS: usize = 900;
const MOST_STEPS: usize = 90;
/// A rule has 24 bytes for each of its steps.
const MOST_RULES: usize = 1_000;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate::policy::Policy;
    use tidegate::{Request, StoreEngine};

    use crate::openapi;

    use super::{History, MOST_POINTS, Point};

    #[test]
    fn points_are_bounded_and_in_parallel_lists() {
        let history = History::default();
        for time_ms in 0..2 * MOST_POINTS as u64 {
            history.push(Point { time_ms, allowed: time_ms, ..Point::default() });
        }
        let json = history.to_json();
        for list in ["time_ms", "allowed", "denied", "p99_us", "bytes"] {
            assert_eq!(json[list].as_array().map(Vec::len), Some(MOST_POINTS), "{list}");
        }
        assert_eq!(json["time_ms"][0], MOST_POINTS);
    }

    #[test]
    fn a_step_has_what_each_rule_decided_in_it() {
        let policy = "[[rule]]\nname = 'a'\nwindow = { max = 2, per = '1h' }\n\
                      [[rule]]\nname = 'b'\nmode = 'shadow'\nwindow = { max = 1, per = '1h' }";
        let engine = StoreEngine::new(Policy::from_toml(policy).unwrap());
        let history = History::default();
        let check =
            || engine.check(&Request::new("default", &[])).block().unwrap().details().count();
        history.push_rules(1, &engine.tallies());
        (0..3).for_each(|_| check());
        history.push_rules(2, &engine.tallies());
        let rules = &history.to_json()["rules"];
        assert_eq!(rules["time_ms"], json!([1, 2]));
        assert_eq!(rules["rules"][0]["name"], "a");
        assert_eq!(rules["rules"][0]["allowed"], json!([0, 2]));
        assert_eq!(rules["rules"][0]["denied"], json!([0, 1]));
        assert_eq!(rules["rules"][1]["denied"], json!([0, 0]));
        assert_eq!(rules["rules"][1]["shadow_denied"], json!([0, 2]));
        let document: Value = serde_json::from_str(openapi::TEXT).unwrap();
        let schema = "/components/schemas/admin-history/properties/rules/properties/rules/items";
        let documented = document.pointer(schema).unwrap()["properties"].as_object().unwrap();
        let rule = rules["rules"][0].as_object().unwrap();
        assert!(rule.keys().eq(documented.keys()), "{rule:?}, but {documented:?}");
    }
}
