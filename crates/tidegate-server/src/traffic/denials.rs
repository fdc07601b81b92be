//! Recent denials, by the ids of their decisions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tidegate::policy::{Mode, RuleId};
use tidegate::{Report, Request, StoreEngine, Timestamp};
use tidegate_proto::times::time_text;

use crate::body::{DecisionBody, DecisionId};
use crate::listener::Listener;
use crate::telemetry::{ShardedCounter, TopKey, printable_value};

/// Recent denials: all while there are few; of many, some of each key.
#[derive(Debug)]
pub(crate) struct Denials {
    hides_keys: bool,
    kept: Mutex<KeptDenials>,
    /// How many were kept in the current second, of all keys.
    in_second: RateGate,
    /// The same by a hash of the key, so that one busy key leaves room for others.
    in_second_by_key: Box<[RateGate; KEY_GATES]>,
    not_kept: ShardedCounter,
}

#[derive(Debug, Default)]
struct KeptDenials {
    /// Oldest first.
    denials: VecDeque<Denial>,
    bytes: usize,
}

/// A denial that was kept.
#[derive(Debug)]
struct Denial {
    id: DecisionId,
    at: Timestamp,
    domain: Box<str>,
    rule: Option<Box<str>>,
    /// The values of the attributes, as they are shown.
    values: Vec<Box<str>>,
    body: Value,
    bytes: usize,
}

/// Which denials are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DenialFilter {
    pub(crate) id: Option<DecisionId>,
    pub(crate) domain: Option<String>,
    pub(crate) rule: Option<String>,
    /// A part of the value of an attribute, in whatever case.
    pub(crate) text: Option<String>,
}

/// A number of events per second, which is only read once it is reached.
#[derive(Debug, Default)]
struct RateGate {
    /// The second in the upper half, the number of events in the lower one.
    passed: AtomicU64,
}

impl RateGate {
    /// Whether another event fits into this second.
    fn pass(&self, second: u64, most: u64) -> bool {
        let mut passed = self.passed.load(Ordering::Relaxed);
        loop {
            let next = match passed >> 32 == second & LOW {
                true if passed & LOW >= most => return false,
                true => passed + 1,
                false => ((second & LOW) << 32) + 1,
            };
            let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.passed.compare_exchange_weak(passed, next, order, failed) {
                Ok(_) => return true,
                Err(other) => passed = other,
            }
        }
    }
}

impl Denials {
    pub(super) fn new(hides_keys: bool) -> Self {
        Self {
            hides_keys,
            kept: Mutex::default(),
            in_second: RateGate::default(),
            in_second_by_key: Box::new(std::array::from_fn(|_| RateGate::default())),
            not_kept: ShardedCounter::default(),
        }
    }

    /// Keeps a denial, unless there were too many in this second.
    pub(super) fn observe(
        &self,
        engine: &StoreEngine,
        id: DecisionId,
        listener: Listener,
        requests: &[Request<'_>],
        report: &Report,
    ) {
        let mut key = 0;
        engine.each_rule_key(report, requests, |it| {
            if !it.decision.is_allowed() && it.mode == Mode::Enforce {
                key ^= it.hash;
            }
        });
        let at = engine.clock().wall();
        let second = at.as_nanos() / 1_000_000_000;
        let index = usize::try_from(key % KEY_GATES as u64).unwrap_or(0);
        let is_kept = self.in_second_by_key[index].pass(second, MOST_PER_KEY)
            && self.in_second.pass(second, MOST_PER_SECOND);
        let Some(request) = requests.get(report.details().decisive_request()).filter(|_| is_kept)
        else {
            self.not_kept.add(1);
            return;
        };
        self.push(self.denial(id, at, listener, request, report));
    }

    fn denial(
        &self,
        id: DecisionId,
        at: Timestamp,
        listener: Listener,
        request: &Request<'_>,
        report: &Report,
    ) -> Denial {
        let key = report.details().key_of(request).map(|key| TopKey::new(&key, self.hides_keys));
        let key: Map<_, _> = key.map_or_else(Map::new, |key| {
            key.key.iter().map(|(name, value)| (name.to_string(), json!(value))).collect()
        });
        let attributes = request.attributes();
        let shown = attributes.iter().take(MOST_ATTRIBUTES).map(|(name, value)| {
            (printable_value(name, false), printable_value(value, self.hides_keys))
        });
        let shown: Vec<(Box<str>, Box<str>)> = shown.collect();
        let mut body = DecisionBody::new(report, id);
        body.rules.truncate(MOST_RULES);
        let mut fields = Map::new();
        fields.insert("time".into(), json!(time_text(at)));
        fields.insert("listener".into(), json!(listener.name()));
        fields.insert("domain".into(), json!(printable_value(request.domain(), false)));
        fields.insert("key".into(), key.into());
        let pairs = shown.iter().map(|(name, value)| (name.to_string(), json!(value)));
        fields.insert("attributes".into(), pairs.collect::<Map<_, _>>().into());
        if let Ok(Value::Object(decision)) = serde_json::to_value(&body) {
            fields.extend(decision);
        }
        let values: Vec<_> = shown.into_iter().map(|(_, value)| value).collect();
        let body = Value::Object(fields);
        // Its text is as good a measure as any, and the values are in it once more.
        let bytes = size_of::<Denial>() + 2 * body.to_string().len();
        let rule = report.rule().map(RuleId::name).map(Into::into);
        let domain = printable_value(request.domain(), false);
        Denial { id, at, domain, rule, values, body, bytes }
    }

    fn push(&self, denial: Denial) {
        let kept = &mut *self.lock();
        kept.bytes += denial.bytes;
        kept.denials.push_back(denial);
        while kept.denials.len() > MOST_DENIALS || kept.bytes > MOST_BYTES {
            let Some(oldest) = kept.denials.pop_front() else { break };
            kept.bytes -= oldest.bytes;
        }
    }

    /// The denials that a filter lets through, newest first, as JSON.
    pub(crate) fn list(&self, filter: &DenialFilter, limit: usize) -> Value {
        let kept = self.lock();
        let found = kept.denials.iter().rev().filter(|it| filter.has(it)).take(limit);
        json!({
            "denials": found.map(|it| it.body.clone()).collect::<Vec<_>>(),
            "kept": kept.denials.len(),
            "oldest": kept.denials.front().map(|it| time_text(it.at)),
            "not_kept": self.not_kept.get(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, KeptDenials> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DenialFilter {
    fn has(&self, denial: &Denial) -> bool {
        let is = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == is)
        };
        let has_text = |text: &String| {
            let text = text.to_lowercase();
            denial.values.iter().any(|value| value.to_lowercase().contains(&text))
        };
        self.id.is_none_or(|id| id == denial.id)
            && is(&self.domain, Some(&denial.domain))
            && is(&self.rule, denial.rule.as_deref())
            && self.text.as_ref().is_none_or(has_text)
    }
}

const LOW: u64 = u32::MAX as u64;
/// How many are kept in a second, of all keys and of those that share a gate.
const MOST_PER_SECOND: u64 = 64;
const MOST_PER_KEY: u64 = 8;
const KEY_GATES: usize = 256;
/// How many are kept at all, and how many bytes they take together.
const MOST_DENIALS: usize = 4_096;
const MOST_BYTES: usize = 8 << 20;
/// How many attributes and rules of a denial are kept.
const MOST_ATTRIBUTES: usize = 32;
const MOST_RULES: usize = 16;

#[cfg(test)]
mod tests {
    use super::RateGate;

    #[test]
    fn a_gate_lets_so_many_through_in_each_second() {
        let gate = RateGate::default();
        let passed = |second| (0..10).filter(|_| gate.pass(second, 3)).count();
        assert_eq!((passed(7), passed(7), passed(8)), (3, 0, 3));
    }
}
