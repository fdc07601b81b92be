//! Tries an edit of a rule on the sampled requests of its keys: a real engine with the rule as it is, and
//! one with the rule as it would be, decide the same requests at the times at which they came.
//!
//! Everything else stays as it was: requests that other rules denied are not decided again.

use std::collections::HashMap;

use tidegate::policy::{Charging, KeyPart, Limit, NamedAttributes, Override, Policy, Rule, RuleId};
use tidegate::{
    Edit, Request, StoreEngine, Timestamp, WhenFull, clock::ManualClock, report::KeyName,
    store::StoreBounds,
};

use super::AdminError;
use super::payload::{in_list, table_of};
use crate::traffic::{KeySample, RuleSample, SampledRequest};

/// An edit of a rule whose requests are known.
#[derive(Debug)]
pub(super) struct RuleEdit {
    rule: RuleId,
    key_parts: Vec<KeyPart>,
    before: Policy,
    after: Policy,
    /// Overrides of the overlay, which stay.
    overrides: Vec<Override>,
    /// Which requests the rule has charged.
    charged: Charging,
    /// Whether what keys have used before the sample matters.
    needs_opening: bool,
}

/// What an edit would have changed, scaled to all keys.
#[derive(Debug)]
pub(super) struct Estimate {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) sampled_keys: u64,
    /// How many keys there were, about.
    pub(super) keys: u64,
    halvings: u32,
    /// Whether all requests of all keys were decided, and the rule as it is decides them as it did.
    pub(super) is_exact: bool,
    pub(super) requests: u64,
    pub(super) denied_before: u64,
    pub(super) denied_after: u64,
    pub(super) newly_denied: u64,
    pub(super) no_longer_denied: u64,
    pub(super) keys_newly_denied: u64,
    pub(super) keys_no_longer_denied: u64,
    /// The keys that change most, as they are.
    pub(super) top: Vec<KeyEstimate>,
}

/// What an edit would have changed for one key.
#[derive(Clone, Debug)]
pub(super) struct KeyEstimate {
    pub(super) name: KeyName,
    pub(super) requests: u64,
    pub(super) denied_before: u64,
    pub(super) denied_after: u64,
    newly_denied: u64,
    no_longer_denied: u64,
}

/// A request of a key, by its index.
struct Step {
    at: Timestamp,
    key: usize,
    cost: u64,
    count: u32,
    was_denied: bool,
}

/// Whether what keys have used before the sample matters: the period of the limit is as long.
pub(super) fn opening_matters(rule: &Rule) -> bool {
    match rule.limit() {
        Limit::Quota(..) => true,
        Limit::Window(window) => window.per().as_secs() >= LONG_SECS,
        Limit::Sliding(sliding) => sliding.per().as_secs() >= LONG_SECS,
        _ => false,
    }
}

impl RuleEdit {
    /// The edit; or why what it would have changed cannot be known.
    pub(super) fn new(
        before: &Rule,
        after: &Rule,
        overrides: Vec<Override>,
    ) -> Result<Self, String> {
        let why = match (before.limit(), after.limit()) {
            (Limit::Slots(_), _) | (_, Limit::Slots(_)) => {
                Some("how long slots are held is not in the sample")
            }
            _ if before.key() != after.key() => {
                Some("the rule would count other keys than those in the sample")
            }
            _ if before.conditions() != after.conditions() => {
                Some("the rule would match other requests than those in the sample")
            }
            _ if before.cost() != after.cost() => {
                Some("requests would cost other units than those in the sample")
            }
            _ if before.group() != after.group() => {
                Some("other rules of the group decide which requests the rule applies to")
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(why.into());
        }
        let alone = |rule: &Rule| {
            alone(rule).map_err(|_| "the rule cannot be decided without the others".to_owned())
        };
        Ok(Self {
            rule: before.id().clone(),
            key_parts: before.key().parts().to_vec(),
            before: alone(before)?,
            after: alone(after)?,
            overrides,
            charged: before.charging(),
            needs_opening: opening_matters(before),
        })
    }

    /// Decides the requests of a sample. `used` is what keys have used by now, where that matters.
    pub(super) fn estimate(
        self,
        sample: RuleSample,
        used: &HashMap<KeyName, u64>,
        until: Timestamp,
    ) -> Result<Estimate, String> {
        let failed = |_| "there is not enough memory".to_owned();
        let (before, after) = (self.engine(&self.before), self.engine(&self.after));
        let (before, after) = (before.map_err(failed)?, after.map_err(failed)?);
        let mut steps = steps_of(&sample);
        let since = steps.first().map_or(sample.since, |first| first.at.max(sample.since));
        let is_all = limit_requests(&mut steps);
        let attributes: Vec<_> = sample.keys.iter().map(|key| self.attributes(&key.name)).collect();
        let mut keys: Vec<_> = sample.keys.iter().map(KeyEstimate::new).collect();
        for (key, named) in sample.keys.iter().zip(&attributes) {
            if let Some(opening) = opening(key, used, self.charged) {
                let request = Request::with_attributes(self.rule.domain(), named.attributes());
                open(&before, &request, since, opening);
                open(&after, &request, since, opening);
            }
        }
        let is_opened = !self.needs_opening || used.len() == sample.keys.len();
        let mut is_exact = is_all && is_opened && sample.is_whole && sample.halvings == 0;
        for step in &steps {
            let attributes = attributes[step.key].attributes();
            let request = Request::with_attributes(self.rule.domain(), attributes).cost(step.cost);
            for _ in 0..step.count {
                let is_denied = |engine: &TrialEngine| {
                    let report = engine.at(step.at).check(&request).block();
                    report.map(|report| Denied {
                        is_enforced: !report.is_allowed(),
                        at_all: !report.is_allowed() || report.details().is_denied_in_shadow(),
                    })
                };
                let (Ok(was), Ok(is)) = (is_denied(&before), is_denied(&after)) else {
                    is_exact = false;
                    continue;
                };
                is_exact &= was.at_all == step.was_denied;
                keys[step.key].add(was.is_enforced, is.is_enforced);
            }
        }
        Ok(Estimate::new(&sample, keys, since, until, is_exact))
    }

    fn engine(&self, policy: &Policy) -> Result<TrialEngine, AdminError> {
        let bounds = StoreBounds::new(TRIAL_KEYS, WhenFull::Share);
        let clock = ManualClock::new(Timestamp::ZERO);
        let engine = StoreEngine::builder(policy.clone()).bounds(bounds).clock(clock).build();
        let engine = engine.map_err(|_| AdminError::outage())?;
        for given in &self.overrides {
            engine.edit("preview", Edit::set_override(&self.rule, given.clone()).now()).block()?;
        }
        Ok(engine)
    }

    /// The attributes of requests with this key, by the names that the rule reads.
    fn attributes<'k>(&self, name: &'k KeyName) -> NamedAttributes<'k> {
        let parts = name.parts().zip(&self.key_parts);
        let pairs = parts.filter_map(|((name, value), part)| {
            let value = value?;
            // The name of a network has the bits that count; the address is one of it.
            let address = match part {
                KeyPart::Address { .. } => value.rsplit_once('/').map(|(address, _)| address),
                KeyPart::Text(_) => None,
            };
            Some((name, address.unwrap_or(value)))
        });
        NamedAttributes::new(pairs)
    }
}

type TrialEngine = StoreEngine;

/// Whether a request is denied.
struct Denied {
    is_enforced: bool,
    /// Also in shadow mode.
    at_all: bool,
}

/// A policy with a rule alone, for requests that it applies to: they come with their cost.
fn alone(rule: &Rule) -> Result<Policy, AdminError> {
    let mut table = table_of(rule);
    for field in ["match", "cost", "group", "on_error", "durability", "effective", "missing"] {
        table.shift_remove(field);
    }
    table.insert("missing".into(), "share".into());
    let text = in_list("rule", table)?;
    Ok(Policy::parse("rule.toml", text.as_bytes())?.policy)
}

/// All requests of a sample that other rules did not deny, in the order of their times.
fn steps_of(sample: &RuleSample) -> Vec<Step> {
    let of_key = |(key, sample): (usize, &KeySample)| {
        let decided = sample.requests.iter().filter(|it| !it.is_denied_by_others);
        let step = move |it: &SampledRequest| {
            let (at, cost, count) = (it.at, it.cost, it.count);
            Step { at, key, cost, count, was_denied: it.is_denied }
        };
        decided.map(step).collect::<Vec<_>>()
    };
    let mut steps: Vec<Step> = sample.keys.iter().enumerate().flat_map(of_key).collect();
    steps.sort_by_key(|step| step.at);
    steps
}

/// Keeps the newest requests, as many as can be decided in a second or two. Whether these are all.
fn limit_requests(steps: &mut Vec<Step>) -> bool {
    let mut count = 0_u64;
    let first = steps.iter().rposition(|step| {
        count += u64::from(step.count);
        count > MOST_REQUESTS
    });
    first.is_none_or(|first| {
        steps.drain(..=first);
        false
    })
}

/// What a key had used before the first of its requests in the sample.
fn opening(key: &KeySample, used: &HashMap<KeyName, u64>, charged: Charging) -> Option<u64> {
    let used = *used.get(&*key.name)?;
    let charges_denials = charged != Charging::Allowed;
    let is_charged =
        |it: &&SampledRequest| (charges_denials || !it.is_denied) && !it.is_denied_by_others;
    let charged = key.requests.iter().filter(is_charged);
    let charged = charged.map(|it| it.cost.saturating_mul(u64::from(it.count)));
    let opening = used.saturating_sub(charged.fold(0, u64::saturating_add));
    (opening > 0).then_some(opening)
}

/// Charges what was used before, as far as the limit goes; a postpaid rule books all of it.
fn open(engine: &TrialEngine, request: &Request<'_>, at: Timestamp, opening: u64) {
    let is_postpaid =
        engine.policy().rules().iter().any(|rule| rule.charging() == Charging::Postpaid);
    let engine = engine.at(at);
    let limit = engine.peek(request).block().ok().and_then(|report| report.limit());
    let limit = limit.filter(|_| !is_postpaid);
    let cost = opening.min(limit.unwrap_or(opening));
    if cost > 0 {
        // An error leaves the key as it is: it is an estimate.
        let _ = engine.check(&request.cost(cost)).block();
    }
}

impl Estimate {
    fn new(
        sample: &RuleSample,
        mut keys: Vec<KeyEstimate>,
        since: Timestamp,
        until: Timestamp,
        is_exact: bool,
    ) -> Self {
        let scaled = |count: u64| count.saturating_mul(1 << sample.halvings.min(63));
        let sum =
            |of: fn(&KeyEstimate) -> u64| scaled(keys.iter().map(of).fold(0, u64::saturating_add));
        let sampled_keys = keys.len() as u64;
        let mut estimate = Self {
            since,
            until,
            sampled_keys,
            keys: scaled(sampled_keys),
            halvings: sample.halvings,
            is_exact,
            requests: sum(|key| key.requests),
            denied_before: sum(|key| key.denied_before),
            denied_after: sum(|key| key.denied_after),
            newly_denied: sum(|key| key.newly_denied),
            no_longer_denied: sum(|key| key.no_longer_denied),
            keys_newly_denied: sum(|key| u64::from(key.newly_denied > 0)),
            keys_no_longer_denied: sum(|key| u64::from(key.no_longer_denied > 0)),
            top: Vec::new(),
        };
        let change = |key: &KeyEstimate| key.newly_denied.saturating_add(key.no_longer_denied);
        keys.sort_by_key(|key| std::cmp::Reverse((change(key), key.denied_after)));
        keys.retain(|key| key.denied_before > 0 || key.denied_after > 0);
        keys.truncate(MOST_TOP);
        estimate.top = keys;
        estimate
    }

    /// The share of keys that is in the sample.
    pub(super) fn share(&self) -> f64 {
        0.5_f64.powi(i32::try_from(self.halvings).unwrap_or(i32::MAX))
    }
}

impl KeyEstimate {
    fn new(key: &KeySample) -> Self {
        let counts = key.requests.iter().map(|it| u64::from(it.count));
        Self {
            name: (*key.name).clone(),
            requests: counts.fold(0, u64::saturating_add),
            denied_before: 0,
            denied_after: 0,
            newly_denied: 0,
            no_longer_denied: 0,
        }
    }

    fn add(&mut self, was_denied: bool, is_denied: bool) {
        self.denied_before += u64::from(was_denied);
        self.denied_after += u64::from(is_denied);
        self.newly_denied += u64::from(is_denied && !was_denied);
        self.no_longer_denied += u64::from(was_denied && !is_denied);
    }
}

/// A period that is as long as the sample.
const LONG_SECS: u64 = 900;
/// The most requests that are decided.
const MOST_REQUESTS: u64 = 1_000_000;
/// The most keys of a sample are fewer.
const TRIAL_KEYS: usize = 1 << 17;
/// How many keys are named.
const MOST_TOP: usize = 20;
