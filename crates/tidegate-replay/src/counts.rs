//! What a replay counts: by rule, by key, over time.

use std::collections::HashMap;

use tidegate::policy::{Key, Limit, Mode, Policy, Rule, RuleId};
use tidegate::{Report, Request, hash::KeyedHash};

use crate::denied::{Denial, DeniedCounts, DeniedKeys};
use crate::keys::{KeyTable, key_hash, key_values};
use crate::minutes::{Minutes, WorstMinute};
use crate::series::{Bucket, Series};

/// The counters of a replay.
#[derive(Debug)]
pub struct Counts {
    rules: Vec<ReplayedRule>,
    numbers: HashMap<RuleId, u32>,
    hash: KeyedHash,
    keys: KeyTable,
    /// Scopes of keys that several rules share.
    shared_scopes: Vec<u32>,
    denied_keys: DeniedKeys,
    totals: Totals,
    series: Series,
    minutes: Minutes,
}

#[derive(Debug)]
struct ReplayedRule {
    id: RuleId,
    key: Key,
    mode: Mode,
    is_left_out: bool,
    denied: u64,
    /// The scope of the keys that it shares with other rules, if it does.
    shared_scope: Option<u32>,
}

/// What was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Requests.
    pub requests: u64,
    /// Requests that enforced rules denied.
    pub denied: u64,
    /// Requests that rules in shadow mode would deny.
    pub shadow_denied: u64,
    /// Requests that no rule matches.
    pub unmatched: u64,
    /// Requests that cannot be decided: a cost is not covered, or an empty value is rejected.
    pub undecided: u64,
    /// The time of the first request, in nanoseconds since 1970.
    pub first_ns: Option<u64>,
    /// The time of the last request.
    pub last_ns: u64,
}

/// What one rule decided.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleCount {
    /// The rule.
    pub rule: RuleId,
    /// Whether its denials are enforced.
    pub mode: Mode,
    /// Whether it was left out: it limits requests in flight.
    pub is_left_out: bool,
    /// Its denials, in its mode.
    pub denied: u64,
    /// The keys that it counted.
    pub keys: u64,
    /// Those of them that it denied at least once.
    pub keys_denied: u64,
}

/// A key that a rule denied.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeniedKey {
    /// The rule.
    pub rule: RuleId,
    /// Whether its denials are enforced.
    pub mode: Mode,
    /// The attributes of the key and their values, as they count.
    pub key: Vec<(Box<str>, Option<Box<str>>)>,
    /// The requests of the key; `None` if there were more keys than are counted.
    pub requests: Option<u64>,
    /// The denials.
    pub denied: u64,
    /// The time of the first denial, in nanoseconds since 1970.
    pub first_ns: u64,
    /// The time of the last denial.
    pub last_ns: u64,
    /// The denials over time: the start of a bucket of the series of requests in seconds, and
    /// how many.
    pub over_time: Vec<(u64, u32)>,
}

impl Counts {
    pub(crate) fn new(policy: &Policy, domain: &str, max_keys: usize) -> Self {
        let of_domain = policy.rules().iter().filter(|rule| rule.domain() == domain);
        let listed = of_domain.filter(|rule| !rule.is_placeholder());
        let mut rules: Vec<ReplayedRule> = listed.map(ReplayedRule::new).collect();
        let (scopes, shared_scopes) = share_scopes(&mut rules);
        Self {
            numbers: (0..).zip(&rules).map(|(number, rule)| (rule.id.clone(), number)).collect(),
            rules,
            hash: KeyedHash::new(),
            keys: KeyTable::new(max_keys, scopes),
            shared_scopes,
            denied_keys: DeniedKeys::new(max_keys),
            totals: Totals::default(),
            series: Series::new(MOST_BUCKETS),
            minutes: Minutes::default(),
        }
    }

    /// Counts a request, before its decision.
    pub(crate) fn add_request(&mut self, time_ns: u64) {
        self.totals.requests += 1;
        self.totals.first_ns.get_or_insert(time_ns);
        self.totals.last_ns = time_ns;
    }

    /// Counts a request that cannot be decided.
    pub(crate) const fn add_undecided(&mut self) {
        self.totals.undecided += 1;
    }

    /// Counts a decision.
    pub(crate) fn add(&mut self, report: &Report, request: &Request<'_>, time_ns: u64) {
        let attributes = request.attributes();
        let mut is_shadow_denied = false;
        let width_s = self.series.width_s();
        let mut next = 0;
        for it in report.rules() {
            // Rules are reported in the order of the policy.
            let is_next = self.rules.get(next).is_some_and(|rule| rule.id == *it.rule);
            let number = if is_next { Some(next) } else { self.number(it.rule) };
            let Some(number) = number else { continue };
            next = number + 1;
            let is_denied = !it.decision.is_allowed();
            is_shadow_denied |= is_denied && it.mode == Mode::Shadow;
            let rule = &mut self.rules[number];
            let key = key_hash(&rule.key, &attributes, &self.hash);
            // Rules are fewer than 2^32: a policy has at most 250 000 tables.
            let scope = u32::try_from(number).unwrap_or(u32::MAX);
            self.keys.see(scope, key, is_denied);
            if let Some(shared) = rule.shared_scope {
                self.keys.see(shared, key, is_denied && it.mode == Mode::Enforce);
            }
            if is_denied {
                rule.denied += 1;
                let denial = Denial { rule: scope, key, time_ns, width_s };
                self.denied_keys.add(denial, || key_values(&rule.key, &attributes));
            }
        }
        if !report.is_allowed()
            && report.missing_attribute().is_some()
            && let Some(number) = report.rule().and_then(|rule| self.number(rule))
        {
            self.rules[number].denied += 1;
        }
        self.totals.unmatched += u64::from(!report.details().is_matched());
        let (allowed, denied) = (u64::from(report.is_allowed()), u64::from(!report.is_allowed()));
        let shadow_denied = u64::from(is_shadow_denied);
        self.totals.denied += denied;
        self.totals.shadow_denied += shadow_denied;
        let what = Bucket { allowed, denied, shadow_denied };
        let second = time_ns / 1_000_000_000;
        self.series.add(second, what);
        self.minutes.add(second, what);
    }

    fn number(&self, rule: &RuleId) -> Option<usize> {
        self.numbers.get(rule).map(|number| *number as usize)
    }
}

/// What was counted.
impl Counts {
    /// The sums over all requests.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// What each rule of the domain decided, in the order of the policy.
    pub fn rules(&self) -> impl Iterator<Item = RuleCount> {
        (0..).zip(&self.rules).map(|(scope, rule)| RuleCount {
            rule: rule.id.clone(),
            mode: rule.mode,
            is_left_out: rule.is_left_out,
            denied: rule.denied,
            keys: self.keys.keys(scope),
            keys_denied: self.keys.denied(scope),
        })
    }

    /// How many different keys the rules counted. Rules with the same attributes in their keys have
    /// the same keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.scopes().map(|(scope, _)| self.keys.keys(scope)).sum()
    }

    /// How many of them an enforced rule denied at least once.
    #[must_use]
    pub fn keys_denied(&self) -> u64 {
        let enforced = self.scopes().filter(|(_, mode)| *mode == Mode::Enforce);
        enforced.map(|(scope, _)| self.keys.denied(scope)).sum()
    }

    /// The scopes whose keys are different: of rules that share them, and of all other rules.
    fn scopes(&self) -> impl Iterator<Item = (u32, Mode)> {
        let alone = (0..).zip(&self.rules).filter(|(_, rule)| rule.shared_scope.is_none());
        let shared = self.shared_scopes.iter().map(|scope| (*scope, Mode::Enforce));
        alone.map(|(scope, rule)| (scope, rule.mode)).chain(shared)
    }

    /// Whether there were more keys than are counted: then numbers of keys are estimates.
    #[must_use]
    pub const fn is_estimate(&self) -> bool {
        self.keys.is_full()
    }

    /// Whether denied keys were forgotten, because there were too many.
    #[must_use]
    pub const fn is_pruned(&self) -> bool {
        self.denied_keys.is_pruned()
    }

    /// The keys with the most denials.
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<DeniedKey> {
        self.denied_keys.top(most).into_iter().map(|it| self.denied_key(it)).collect()
    }

    /// All keys with denials, in no order; see [`is_pruned`](Self::is_pruned).
    pub fn denied_keys(&self) -> impl Iterator<Item = DeniedKey> {
        self.denied_keys.iter().map(|it| self.denied_key(it))
    }

    fn denied_key(&self, counts: &DeniedCounts) -> DeniedKey {
        let rule = &self.rules[counts.rule as usize];
        let names = rule.key.parts().iter().map(|part| part.attribute().into());
        DeniedKey {
            rule: rule.id.clone(),
            mode: rule.mode,
            key: names.zip(counts.values.iter().cloned()).collect(),
            requests: self.keys.requests(counts.rule, counts.key).map(u64::from),
            denied: counts.denied,
            first_ns: counts.first_ns,
            last_ns: counts.last_ns,
            over_time: counts.row(self.series.width_s()),
        }
    }

    /// Requests over time.
    #[must_use]
    pub const fn series(&self) -> &Series {
        &self.series
    }

    /// The minutes with the most denials, worst first.
    #[must_use]
    pub fn worst_minutes(&self) -> Vec<WorstMinute> {
        self.minutes.worst()
    }
}

impl ReplayedRule {
    fn new(rule: &Rule) -> Self {
        Self {
            id: rule.id().clone(),
            key: rule.key().clone(),
            mode: rule.mode(),
            is_left_out: matches!(rule.limit(), Limit::Slots(_)),
            denied: 0,
            shared_scope: None,
        }
    }
}

/// Gives rules with equal keys a scope that they share; the number of scopes, and those.
fn share_scopes(rules: &mut [ReplayedRule]) -> (usize, Vec<u32>) {
    let mut with_key: Vec<(Key, Vec<usize>)> = Vec::new();
    for (number, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.is_left_out) {
        match with_key.iter_mut().find(|(key, _)| *key == rule.key) {
            Some((_, numbers)) => numbers.push(number),
            None => with_key.push((rule.key.clone(), vec![number])),
        }
    }
    let mut next = rules.len();
    let mut shared = Vec::new();
    for (_, numbers) in with_key.into_iter().filter(|(_, numbers)| numbers.len() > 1) {
        let scope = u32::try_from(next).unwrap_or(u32::MAX);
        numbers.into_iter().for_each(|number| rules[number].shared_scope = Some(scope));
        shared.push(scope);
        next += 1;
    }
    (next, shared)
}

/// A chart has room for as many.
const MOST_BUCKETS: usize = 512;
