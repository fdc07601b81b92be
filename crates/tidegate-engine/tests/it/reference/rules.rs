//! Rules of the model: which limit a key has at an instant, and what edits change.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate::policy::{self, Condition, Effective, Grant, Mode, Override, Rule, RuleBuilder};
use tidegate::{Bucket, Cooldown, Rate, Sliding, Window, policy::Quota};

use super::limits::{Carry, Debt, Limit, Periods, State};

pub(super) const USERS: [&str; 3] = ["ada", "adi", "bob"];
pub(super) const DOMAINS: [&str; 2] = ["default", "other"];

/// The keys that an override is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Ada,
    Bob,
    /// Both names that begin so.
    Ad,
}

impl Target {
    pub(super) const ALL: [Self; 3] = [Self::Ada, Self::Bob, Self::Ad];

    fn matches(self, user: &str) -> bool {
        match self {
            Self::Ada => user == "ada",
            Self::Bob => user == "bob",
            Self::Ad => user.starts_with("ad"),
        }
    }

    pub(super) fn conditions(self) -> Vec<Condition> {
        let pattern = match self {
            Self::Ada => "ada",
            Self::Bob => "bob",
            Self::Ad => "ad*",
        };
        vec![Condition::new("user", [pattern]).unwrap()]
    }
}

/// An override: another limit, or none, for some keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherLimit {
    pub(super) target: Target,
    /// `None`: unlimited.
    pub(super) limit: Option<Limit>,
    pub(super) until: Option<u64>,
}

impl OtherLimit {
    /// The same override for a rule with such periods.
    pub(super) fn in_periods(self, periods: Option<Periods>) -> Self {
        Self { limit: self.limit.map(|limit| limit.in_periods(periods)), ..self }
    }

    pub(super) fn in_policy(&self) -> Override {
        let grant = self.limit.map_or(Grant::Unlimited, |limit| Grant::Limit(in_policy(&limit)));
        let given = Override::new(self.target.conditions(), grant);
        match self.until {
            Some(until) => given.until(until),
            None => given,
        }
    }
}

/// A rule as a policy file has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileRule {
    pub(super) number: usize,
    pub(super) domain: usize,
    pub(super) is_by_user: bool,
    pub(super) is_shadow: bool,
    pub(super) charges_refused: bool,
    pub(super) is_postpaid: bool,
    pub(super) is_next: bool,
    pub(super) reserve_s: u64,
    pub(super) limit: Limit,
    pub(super) overrides: Vec<OtherLimit>,
}

impl FileRule {
    pub(super) fn name(&self) -> String {
        format!("r{}", self.number)
    }

    pub(super) fn key_of(&self, user: &str) -> String {
        if self.is_by_user { user.to_owned() } else { String::new() }
    }

    pub(super) fn in_policy(&self) -> Rule {
        let key = self.is_by_user.then_some("user");
        let mut rule = Rule::builder(&self.name(), in_policy(&self.limit))
            .domain(DOMAINS[self.domain])
            .key(key)
            .mode(if self.is_shadow { Mode::Shadow } else { Mode::Enforce })
            .effective(if self.is_next { Effective::Next } else { Effective::Now })
            .reserve_for(Duration::from_secs(self.reserve_s));
        if self.charges_refused {
            rule = rule.charge_refused();
        }
        if self.is_postpaid {
            rule = rule.postpaid();
        }
        let overridden = |rule: RuleBuilder, given: &OtherLimit| rule.overridden(given.in_policy());
        self.overrides.iter().fold(rule, overridden).build().unwrap()
    }
}

/// A limit as the policy has it.
fn in_policy(limit: &Limit) -> policy::Limit {
    let nanos = Duration::from_nanos;
    match *limit {
        Limit::Bucket { count, per_ns, burst, debt } => {
            let bucket = Bucket::try_new(Rate::new(count, nanos(per_ns)), burst).unwrap();
            policy::Limit::Bucket(bucket.with_debt(tidegate::limiter::Debt::up_to(debt)).unwrap())
        }
        Limit::Window { max, per_ns, is_aligned } => {
            let window = Window::new(max, nanos(per_ns));
            policy::Limit::Window(if is_aligned { window.aligned() } else { window })
        }
        Limit::Sliding { max, per_ns } => {
            policy::Limit::Sliding(Sliding::new(max, nanos(per_ns), 10))
        }
        // `charge_refused` of the rule extends it.
        Limit::Cooldown { gap_ns, .. } => policy::Limit::Cooldown(Cooldown::new(nanos(gap_ns))),
        Limit::Quota { max, carry, periods, debt } => {
            let carry = match carry {
                Carry::Nothing => tidegate::policy::Carry::Nothing,
                Carry::UpTo(bound) => tidegate::policy::Carry::UpTo(bound),
                Carry::All => tidegate::policy::Carry::All,
            };
            let periods = match periods {
                Periods::Minute => policy::Periods::Calendar("minute".parse().unwrap()),
                Periods::Hour => policy::Periods::Calendar("hour".parse().unwrap()),
                Periods::Round => policy::Periods::Round,
            };
            let debt = match debt {
                Debt::None => tidegate::limiter::Debt::Nothing,
                Debt::UpTo(most) => tidegate::limiter::Debt::UpTo(most),
                Debt::All => tidegate::limiter::Debt::All,
            };
            let quota = Quota::try_new(max, carry).and_then(|quota| quota.with_debt(debt));
            policy::Limit::Quota(quota.unwrap(), periods)
        }
    }
}

/// The limits of a rule as one edit has left them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Version {
    pub(super) common: Limit,
    /// In the order of precedence.
    pub(super) overrides: Vec<OtherLimit>,
}

/// What a key has at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    /// The limit that its state counts under.
    pub(super) limit: Limit,
    /// Whether nothing is charged.
    pub(super) is_unlimited: bool,
}

impl Version {
    pub(super) fn at(&self, key: &str, now: u64) -> InForce {
        let applies =
            |it: &&OtherLimit| it.target.matches(key) && it.until.is_none_or(|until| now < until);
        match self.overrides.iter().find(applies) {
            Some(OtherLimit { limit: Some(limit), .. }) => {
                InForce { limit: *limit, is_unlimited: false }
            }
            Some(_) => InForce { limit: self.common, is_unlimited: true },
            None => InForce { limit: self.common, is_unlimited: false },
        }
    }

    /// The next end of an override.
    pub(super) fn next_end(&self, now: u64) -> Option<u64> {
        self.overrides.iter().filter_map(|it| it.until).filter(|until| *until > now).min()
    }
}

/// A key of a rule, and everything that counts for it.
#[derive(Clone, Debug)]
pub(super) struct KeyEntry {
    pub(super) version: Rc<Version>,
    /// The version that waits for the next period or window.
    pub(super) waiting: Option<Rc<Version>>,
    pub(super) in_force: InForce,
    /// Since when that is in force.
    pub(super) since: u64,
    pub(super) state: State,
    /// Whether it has been requested, so that units carry over.
    pub(super) is_known: bool,
    /// The state that each committed hold has left, by the hold's index.
    pub(super) charges: BTreeMap<usize, State>,
}

impl KeyEntry {
    fn new(version: &Rc<Version>, key: &str, now: u64) -> Self {
        let in_force = version.at(key, now);
        Self {
            version: Rc::clone(version),
            waiting: None,
            in_force,
            since: now,
            state: in_force.limit.fresh(),
            is_known: false,
            charges: BTreeMap::new(),
        }
    }

    /// Puts what the version has for the key now into force.
    pub(super) fn refresh(&mut self, key: &str, now: u64) {
        let new = self.version.at(key, now);
        if new != self.in_force {
            let old = self.in_force.limit;
            for state in std::iter::once(&mut self.state).chain(self.charges.values_mut()) {
                old.leave(state, self.since, now);
            }
            (self.in_force, self.since) = (new, now);
        }
    }

    /// The waiting version waits no longer.
    pub(super) fn stop_waiting(&mut self, key: &str, now: u64) {
        if let Some(version) = self.waiting.take() {
            self.version = version;
        }
        self.refresh(key, now);
    }

    fn edit(&mut self, key: &str, new: &Rc<Version>, is_next: bool, now: u64) {
        let waits = is_next
            && match self.state {
                State::Quota { .. } => true,
                State::Window { .. } => self.state.is_open_window(now),
                _ => false,
            };
        let last = self.waiting.as_ref().unwrap_or(&self.version);
        let is_changed = last.at(key, now) != new.at(key, now);
        if waits || (!is_changed && self.waiting.is_some()) {
            self.waiting = Some(Rc::clone(new));
        } else {
            self.version = Rc::clone(new);
            self.waiting = None;
        }
        self.refresh(key, now);
    }
}

/// A rule with the states of its keys. It stays when the policy loses it.
#[derive(Clone, Debug)]
pub(super) struct ModelRule {
    /// As the policy or the last edit over it has it.
    pub(super) rule: FileRule,
    pub(super) is_present: bool,
    pub(super) version: Rc<Version>,
    pub(super) keys: BTreeMap<String, KeyEntry>,
}

impl ModelRule {
    pub(super) fn new(rule: &FileRule, version: Version, now: u64) -> Self {
        let version = Rc::new(version);
        let keys = USERS.iter().map(|user| rule.key_of(user));
        let keys = keys.map(|key| (key.clone(), KeyEntry::new(&version, &key, now))).collect();
        Self { rule: rule.clone(), is_present: true, version, keys }
    }

    /// Makes a new version of its limits, if they have changed.
    pub(super) fn edit(&mut self, rule: Option<&FileRule>, version: Version, now: u64) {
        let Some(rule) = rule else {
            self.is_present = false;
            return;
        };
        self.rule = rule.clone();
        let is_back = !std::mem::replace(&mut self.is_present, true);
        if !is_back && *self.version == version {
            return;
        }
        // Another calendar applies at once: the old one has no next period.
        let is_next = rule.is_next && self.version.common.periods() == version.common.periods();
        self.version = Rc::new(version);
        for (key, entry) in &mut self.keys {
            if is_back {
                // From its return on it has the new limits.
                entry.waiting = None;
                entry.version = Rc::clone(&self.version);
                entry.refresh(key, now);
            } else {
                entry.edit(key, &self.version, is_next, now);
            }
        }
    }

    pub(super) fn periods(&self) -> Option<Periods> {
        self.version.common.periods()
    }
}
