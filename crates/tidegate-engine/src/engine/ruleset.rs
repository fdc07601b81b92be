//! A policy as decisions need it: rules by domain, limits by number.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::{Period, Timestamp};
use tidegate_policy::Attributes;
use tidegate_policy::WindowUnit;
use tidegate_policy::internal::{CachedCalendar, PATH};
use tidegate_policy::policy::{
    Charging, Condition, Effective, Empty, EngineSettings, Grant, KeyPart, Limit, Matcher,
    NamedAttributes, OnError, Override, Periods, Policy, Rule, RuleBuilder,
};
use tidegate_table::hash::KeyedHash;

use super::plain_key::PlainKey;
use super::planning::{is_same, key_hash};
use super::tally::{Tally, continue_counting};
use crate::any_limit::{AnyLimit, NO_PERIOD, algorithm_of};
use crate::edits::{Ban, Overlay};
use crate::history::{
    History, KeyRef, Keys, OverrideLimit, RuleEdit, RuleHistory, RuleLimits, Version,
};
use crate::periods::{PeriodClock, Times};
use crate::plan::{Charge, ChargeTerms};
use crate::request_limit::RequestLimit;
use crate::store::Adoption;

/// The rules in force, compiled. Immutable; an edit makes a new one.
#[derive(Debug)]
pub(crate) struct Ruleset {
    pub(crate) version: u64,
    pub(crate) settings: EngineSettings,
    pub(crate) rules: Vec<CompiledRule>,
    /// The rules for limits that requests bring, one for each unit, if the policy accepts them;
    /// numbered after the rules.
    own: Vec<CompiledRule>,
    pub(crate) domains: Vec<CompiledDomain>,
    /// The index of each domain, for policies with many.
    by_name: HashMap<Box<str>, usize, KeyedHash>,
    /// Whether anything depends on the time of day.
    pub(crate) needs_wall: bool,
    /// Whether limits may change by themselves: overrides end, and edits wait.
    pub(super) changes_ahead: bool,
    /// Whether a rule has a local share for outages.
    pub(super) has_local: bool,
    /// Whether threads may keep it for a while after it was superseded.
    pub(super) is_small: bool,
    pub(crate) adoption: Adoption,
    /// The policy and the edits that this was made from.
    pub(crate) policy: Arc<Policy>,
    pub(crate) overlay: Overlay,
}

/// The rules of a domain.
#[derive(Debug)]
pub(crate) struct CompiledDomain {
    name: Box<str>,
    /// Whether every rule applies to every request.
    pub(crate) is_unconditional: bool,
    /// Whether there are no bans, and no rules that replace others.
    pub(super) is_plain: bool,
    /// Whether a rule or a ban uses the attribute `path`.
    pub(crate) reads_path: bool,
    /// The rules that a rule replaces, by number.
    pub(crate) replaces: HashMap<u32, Vec<u32>>,
    /// Numbers of the rules, in order.
    pub(crate) rules: Vec<u32>,
    /// Finds rules by their index in `rules`.
    pub(crate) matcher: Matcher,
    pub(crate) bans: Vec<Ban>,
    /// Finds bans.
    pub(crate) ban_finder: ConditionFinder,
}

/// A rule with its limits, ready to be charged.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) rule: Rule,
    /// A charge of it by the newest version of its limits, for a key without an override: all but what a
    /// request brings.
    pub(crate) charge: Charge,
    pub(crate) overrides: Vec<CompiledOverride>,
    /// Finds overrides by patterns.
    finder: ConditionFinder,
    /// The overrides that name their key, by its hash.
    named: Vec<(u64, u32)>,
    pub(crate) periods: Option<Arc<PeriodClock>>,
    pub(crate) history: Arc<RuleHistory>,
    /// Whether its limits change by themselves: overrides end, or an edit waits.
    has_stages: bool,
    /// Whether only its key and its common limit count: no overrides, costs, slots or exceptions.
    pub(super) is_plain: bool,
    pub(super) plain_key: PlainKey,
    /// Counts its decisions.
    pub(super) tally: Arc<Tally>,
}

/// An override with its limit; `None` where it is unlimited.
#[derive(Debug)]
pub(crate) struct CompiledOverride {
    pub(crate) rule: Override,
    pub(crate) limit: Option<AnyLimit>,
    /// Whether it names its key.
    is_named: bool,
}

/// When a set of rules is made, and from when on its edits count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RulesetEdit {
    pub(crate) times: Times,
    /// `None`: as each rule says.
    pub(crate) effective: Option<Effective>,
}

/// What rules are compiled with.
pub(crate) struct RulesetSource<'a> {
    pub(crate) history: Arc<History>,
    pub(crate) hash: &'a KeyedHash,
    /// How many rounds of a domain were closed.
    pub(crate) rounds: &'a dyn Fn(&str) -> Arc<AtomicU64>,
}

impl Ruleset {
    /// Compiles a policy and the edits over it. Limits unchanged from `old` keep their numbers.
    pub(crate) fn new(
        policy: Arc<Policy>,
        overlay: Overlay,
        old: Option<&Self>,
        store: &RulesetSource<'_>,
        edit: RulesetEdit,
    ) -> Self {
        let mut compiler = Compiler::new(old, Arc::clone(&store.history), edit);
        let mut rules = Vec::new();
        let mut domains: Vec<CompiledDomain> = Vec::new();
        let mut by_name: HashMap<Box<str>, usize, _> = HashMap::with_hasher(store.hash.clone());
        for rule in overlay.over(policy.rules()) {
            let family = family(&rule, store.hash);
            let domain = *by_name.entry(rule.domain().into()).or_insert_with(|| {
                domains.push(CompiledDomain::new(rule.domain(), overlay.bans_in(rule.domain())));
                domains.len() - 1
            });
            let domain = &mut domains[domain];
            let number = u32::try_from(rules.len()).unwrap_or(u32::MAX);
            domain.rules.push(number);
            rules.push(compiler.compile(rule, number, family, store));
        }
        continue_counting(old, &mut rules);
        let units = WindowUnit::ALL.into_iter().filter(|_| policy.takes_request_limits());
        let own: Vec<CompiledRule> = units
            .zip(u32::try_from(rules.len()).unwrap_or(u32::MAX)..)
            .map(|(unit, number)| {
                let family = store.hash.hash_one(("own limit", unit));
                let rule = request_limit_rule(unit);
                let rule = if policy.settings().quota_mode() { rule.quota_mode() } else { rule };
                let rule = rule.build().expect("it has no pattern");
                compiler.compile(rule, number, family, store)
            })
            .collect();
        // A domain without rules may still have bans.
        for ban in &overlay.bans {
            by_name.entry(ban.domain.clone()).or_insert_with(|| {
                domains.push(CompiledDomain::new(&ban.domain, overlay.bans_in(&ban.domain)));
                domains.len() - 1
            });
        }
        domains.iter_mut().for_each(|domain| domain.index(&rules));
        let needs_wall = rules.iter().any(CompiledRule::needs_wall)
            || domains.iter().any(|domain| domain.bans.iter().any(|ban| ban.until.is_some()));
        let changes_ahead = rules.iter().any(CompiledRule::changes_ahead);
        let is_local = |it: &CompiledRule| matches!(it.rule.without_store(), OnError::Local(_));
        let has_local = rules.iter().any(is_local);
        let bytes = rules.iter().map(CompiledRule::bytes_about).sum::<usize>();
        let is_small = bytes + overlay.bans.len() * CONDITIONS_BYTES <= SMALL_BYTES;
        let adoption = compiler.finish(rules.iter().chain(&own).map(|rule| rule.charge.family));
        Self {
            version: adoption.version,
            settings: policy.settings().clone(),
            rules,
            own,
            domains,
            by_name,
            needs_wall,
            changes_ahead,
            has_local,
            is_small,
            adoption,
            policy,
            overlay,
        }
    }

    /// The number of a domain.
    #[inline(always)]
    pub(crate) fn domain_number(&self, name: &str) -> Option<usize> {
        match self.domains.first() {
            Some(first) if is_same(&first.name, name) => Some(0),
            _ => self.later_domain_number(name),
        }
    }

    /// The number of a domain that is not the first.
    #[inline(never)]
    fn later_domain_number(&self, name: &str) -> Option<usize> {
        if self.domains.len() <= FEW_DOMAINS {
            return self.domains.iter().position(|domain| &*domain.name == name);
        }
        self.by_name.get(name).copied()
    }

    /// A domain by its name.
    #[inline]
    pub(crate) fn domain(&self, name: &str) -> Option<&CompiledDomain> {
        self.domain_number(name).map(|number| &self.domains[number])
    }

    /// The rules of a domain, by family.
    pub(crate) fn families(&self, domain: &str) -> HashSet<u64> {
        let is_of_domain = |it: &&CompiledRule| *it.rule.domain() == *domain;
        self.rules.iter().filter(is_of_domain).map(|it| it.charge.family).collect()
    }

    #[inline]
    pub(crate) fn rule(&self, number: u32) -> &CompiledRule {
        let number = number as usize;
        match self.rules.get(number) {
            Some(rule) => rule,
            None => &self.own[number - self.rules.len()],
        }
    }

    /// The number of the rule for requests' own limits of this unit, if the policy accepts them.
    pub(crate) fn own(&self, unit: WindowUnit) -> Option<u32> {
        let index = WindowUnit::ALL.iter().position(|it| *it == unit)?;
        self.own.get(index)?;
        u32::try_from(self.rules.len() + index).ok()
    }
}

/// Finds which of a list of conditions a request meets, in order; short lists are scanned.
#[derive(Debug)]
pub(crate) struct ConditionFinder(Option<Matcher>);

impl ConditionFinder {
    fn new<'a>(lists: impl ExactSizeIterator<Item = &'a [Condition]>) -> Self {
        Self((lists.len() > FEW_CONDITIONS).then(|| Matcher::of_conditions(lists)))
    }

    /// The first item that `is_met`, among the candidates.
    #[inline]
    pub(crate) fn first<T>(
        &self,
        list: &[T],
        attributes: &Attributes<'_>,
        is_met: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        match &self.0 {
            None => list.iter().position(is_met),
            Some(matcher) => {
                let found = matcher.find(attributes);
                found.iter().find(|&index| list.get(index).is_some_and(&is_met))
            }
        }
    }
}

impl CompiledDomain {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Builds the matcher of its rules.
    fn index(&mut self, rules: &[CompiledRule]) {
        let of_domain = || self.rules.iter().map(|&number| &rules[number as usize].rule);
        let is_unconditional =
            of_domain().all(|rule| rule.conditions().is_empty() && rule.group().is_none());
        let matcher = Matcher::new(of_domain());
        let is_of_path = |condition: &Condition| condition.attribute() == PATH;
        self.reads_path = of_domain().any(|rule| rule.reads(PATH))
            || self.bans.iter().any(|ban| ban.conditions().iter().any(is_of_path));
        if of_domain().any(|rule| rule.replaces().next().is_some()) {
            self.replaces = replaced_numbers(&self.rules, rules);
        }
        self.is_plain = self.bans.is_empty() && self.replaces.is_empty();
        (self.matcher, self.is_unconditional) = (matcher, is_unconditional);
    }

    fn new(name: &str, bans: Vec<Ban>) -> Self {
        let (rules, matcher) = (Vec::new(), Matcher::new([]));
        let ban_finder = ConditionFinder::new(bans.iter().map(|ban| ban.conditions()));
        Self {
            name: name.into(),
            is_unconditional: true,
            is_plain: false,
            reads_path: false,
            replaces: HashMap::new(),
            rules,
            matcher,
            bans,
            ban_finder,
        }
    }
}

impl CompiledRule {
    fn needs_wall(&self) -> bool {
        let is_calendar = self.periods.as_deref().is_some_and(|periods| periods.is_calendar());
        is_calendar || self.overrides.iter().any(|it| it.rule.until_ns().is_some())
    }

    /// Its memory in bytes, roughly. Versions are shared with the sets of rules before and after.
    fn bytes_about(&self) -> usize {
        let pointers = self.history.versions.len() * size_of::<usize>();
        2 * size_of::<Self>() + self.overrides.len() * CONDITIONS_BYTES + pointers
    }

    /// The number of the limits in force, and the limit of a key; `None` if it has none.
    #[inline]
    pub(crate) fn limit_of(
        &self,
        hash: u64,
        attributes: &Attributes<'_>,
        period: Period,
        times: Times,
    ) -> (u32, Option<&AnyLimit>) {
        if !self.has_stages && self.overrides.is_empty() {
            return (self.charge.tag, Some(&self.charge.limit));
        }
        if self.is_waiting(period) {
            return self.limit_in_history(hash, attributes, period, times);
        }
        let tag = self.charge.tag + self.history.newest().stage_at(times.wall, period.index);
        match self.override_by_rank(hash, attributes, times.wall) {
            Some(found) => (tag, self.overrides[found].limit.as_ref()),
            None => (tag, Some(&self.charge.limit)),
        }
    }

    /// Whether an edit waits for the next period.
    fn is_waiting(&self, period: Period) -> bool {
        self.history.newest().waits_for.is_some_and(|last| period.index <= last)
    }

    /// The limit where an edit waits for the next period.
    #[cold]
    fn limit_in_history(
        &self,
        hash: u64,
        attributes: &Attributes<'_>,
        period: Period,
        times: Times,
    ) -> (u32, Option<&AnyLimit>) {
        let tag = self.charge.tag + self.history.newest().stage_at(times.wall, period.index);
        let meets = |conditions: &[Condition]| conditions.iter().all(|it| it.holds(attributes));
        let in_force = self.history.limit_at(tag, KeyRef { hash, meets: &meets });
        (tag, Some(in_force.limit).filter(|_| !in_force.is_unlimited))
    }

    /// The index of the override in force for a key.
    pub(crate) fn override_index(
        &self,
        hash: u64,
        attributes: &Attributes<'_>,
        period: Period,
        times: Times,
    ) -> Option<usize> {
        if !self.is_waiting(period) {
            return self.override_by_rank(hash, attributes, times.wall);
        }
        let (tag, _) = self.limit_in_history(hash, attributes, period, times);
        let meets = |conditions: &[Condition]| conditions.iter().all(|it| it.holds(attributes));
        self.history.override_at(tag, KeyRef { hash, meets: &meets })
    }

    /// The first override that applies.
    #[inline]
    fn override_by_rank(
        &self,
        hash: u64,
        attributes: &Attributes<'_>,
        wall: Timestamp,
    ) -> Option<usize> {
        let is_on = |it: &CompiledOverride| it.rule.is_on(wall.as_nanos());
        let first = self.named.partition_point(|(known, _)| *known < hash);
        let same = self.named[first..].iter().take_while(|(known, _)| *known == hash);
        let named = same.map(|(_, index)| *index as usize).find(|it| is_on(&self.overrides[*it]));
        let applies =
            |it: &CompiledOverride| !it.is_named && it.rule.applies(attributes, wall.as_nanos());
        let found = self.finder.first(&self.overrides, attributes, applies);
        match (named, found) {
            (Some(named), Some(found)) => Some(named.min(found)),
            (named, found) => named.or(found),
        }
    }
}

/// Compiles rules, and notes which limits have changed.
struct Compiler {
    history: Arc<History>,
    edit: RulesetEdit,
    next_tag: u32,
    adoption: Adoption,
}

impl Compiler {
    fn new(old: Option<&Ruleset>, history: Arc<History>, edit: RulesetEdit) -> Self {
        let version = old.map_or(1, |old| old.version + 1);
        let next_tag = history.next_tag();
        Self { history, edit, next_tag, adoption: Adoption { version, rules: Vec::new() } }
    }

    fn compile(
        &mut self,
        rule: Rule,
        number: u32,
        family: u64,
        store: &RulesetSource<'_>,
    ) -> CompiledRule {
        let before = self.history.rule(family).cloned();
        let periods = periods_of(&rule, before.as_deref().map(RuleHistory::newest), store);
        let keys_of = |given: &Override| keys_of(&rule, family, given, store.hash);
        let override_limit = |given: &Override| OverrideLimit {
            keys: keys_of(given),
            limit: match given.grant() {
                Grant::Unlimited => None,
                Grant::Limit(limit) => Some(AnyLimit::of(limit, &rule)),
            },
            until: given.until_ns().map(Timestamp::from_nanos),
        };
        let limits = RuleLimits {
            common: AnyLimit::of(rule.limit(), &rule),
            periods: periods.clone(),
            overrides: rule.overrides().iter().map(override_limit).collect(),
        };
        let effective = self.edit.effective.unwrap_or(rule.effective());
        let edit = RuleEdit { family, tag: self.next_tag, times: self.edit.times, effective };
        let edited = match &before {
            None => Some(RuleHistory::new(limits, edit)),
            Some(before) => before.edited(limits, edit),
        };
        let history = match (edited, before) {
            (Some(edited), _) => self.adopt(edited),
            (None, Some(before)) => before,
            (None, None) => unreachable!("a new rule has a new history"),
        };
        CompiledRule::new(rule, number, periods, history, store.hash)
    }

    fn adopt(&mut self, history: RuleHistory) -> Arc<RuleHistory> {
        self.next_tag = history.newest().next_tag();
        let history = Arc::new(history);
        self.adoption.rules.push(Arc::clone(&history));
        history
    }

    /// What a store has to know, with the end of the rules that are gone.
    fn finish(mut self, families: impl Iterator<Item = u64>) -> Adoption {
        let kept: HashSet<u64> = families.collect();
        let gone: Vec<_> = self.history.rules().filter(|it| !kept.contains(&it.family)).collect();
        let gone: Vec<_> = gone.into_iter().map(Arc::clone).collect();
        for rule in gone {
            let (family, tag, times) = (rule.family, self.next_tag, self.edit.times);
            let edit = RuleEdit { family, tag, times, effective: Effective::Now };
            if let Some(removed) = rule.removed(edit) {
                self.adopt(removed);
            }
        }
        self.adoption
    }
}

impl CompiledRule {
    fn new(
        rule: Rule,
        number: u32,
        periods: Option<Arc<PeriodClock>>,
        history: Arc<RuleHistory>,
        hash: &KeyedHash,
    ) -> Self {
        let limits = history.overrides();
        let overrides: Vec<CompiledOverride> = (rule.overrides().iter().zip(limits))
            .map(|(given, (keys, limit))| CompiledOverride {
                rule: given.clone(),
                limit,
                is_named: keys.only.is_some(),
            })
            .collect();
        let named =
            history.overrides().zip(0..).filter_map(|((keys, _), it)| Some((keys.only?, it)));
        let mut named: Vec<(u64, u32)> = named.collect();
        named.sort_unstable();
        let has_stages = history.newest().next_tag() > history.newest().tag + 1;
        let is_plain = !has_stages
            && overrides.is_empty()
            && rule.cost().is_none()
            && rule.empty() != Empty::Reject
            && rule.charging() == Charging::Allowed
            && !matches!(rule.limit(), Limit::Slots(_));
        Self {
            finder: ConditionFinder::new(overrides.iter().map(|it| it.rule.key())),
            charge: Charge {
                rule: number,
                tag: history.newest().tag,
                mode: rule.mode(),
                terms: ChargeTerms {
                    charging: rule.charging(),
                    durability: rule.durability_on_disk(),
                    sets_durability: rule.durability().is_some(),
                    is_by_request: true,
                },
                family: history.family,
                hash: 0,
                cost: 0,
                limit: *history.common(),
                period: NO_PERIOD,
            },
            overrides,
            named,
            periods,
            tally: Arc::default(),
            has_stages,
            is_plain,
            plain_key: PlainKey::new(history.family, rule.key().parts(), hash),
            history,
            rule,
        }
    }
}

/// The numbers of the rules that each rule of a domain replaces.
fn replaced_numbers(numbers: &[u32], rules: &[CompiledRule]) -> HashMap<u32, Vec<u32>> {
    let rule = |number: u32| &rules[number as usize].rule;
    let by_name: HashMap<&str, u32> =
        numbers.iter().map(|&number| (rule(number).name(), number)).collect();
    let replaced = numbers.iter().map(|&number| {
        let names = rule(number).replaces();
        (number, names.filter_map(|name| by_name.get(name).copied()).collect::<Vec<_>>())
    });
    replaced.filter(|(_, replaced)| !replaced.is_empty()).collect()
}

/// The keys of an override.
fn keys_of(rule: &Rule, family: u64, given: &Override, hash: &KeyedHash) -> Keys {
    let named: Option<Vec<(&str, String)>> =
        given.key().iter().map(Condition::only_value).collect();
    let pairs = || named.iter().flatten().map(|(name, value)| (*name, value.as_str()));
    let attributes = NamedAttributes::new(pairs());
    let attributes = attributes.attributes();
    let is_of_key = |(name, _): (&str, &str)| {
        rule.key().parts().iter().any(|part: &KeyPart| part.attribute() == name)
    };
    let is_whole = rule.key().parts().iter().all(|part| attributes.get(part.attribute()).is_some());
    let is_one = named.is_some() && is_whole && pairs().all(is_of_key);
    let only = is_one.then(|| key_hash(family, rule.key().parts(), &attributes, hash));
    Keys { conditions: given.key().into(), only }
}

/// The rule for requests' own limits of a unit. Only the maximum comes from the request.
fn request_limit_rule(unit: WindowUnit) -> RuleBuilder {
    let RequestLimit { limit, .. } = RequestLimit::new(u32::MAX, unit);
    let AnyLimit::Window(window) = limit else { unreachable!("it is a window") };
    Rule::builder(&format!("limit per {}", unit.name()), Limit::Window(window)).charge_refused()
}

/// The identity of a rule's states: its domain, name, key and algorithm.
fn family(rule: &Rule, hash: &KeyedHash) -> u64 {
    let parts: Vec<(&str, u8, u8)> = (rule.key().parts().iter())
        .map(|part| match part {
            KeyPart::Text(attribute) => (&**attribute, 0, 0),
            KeyPart::Address { attribute, v4_bits, v6_bits } => {
                (&**attribute, 1 + v4_bits, 1 + v6_bits)
            }
        })
        .collect();
    hash.hash_one((rule.domain(), rule.name(), parts, algorithm_of(rule.limit())))
}

fn periods_of(
    rule: &Rule,
    newest: Option<&Version>,
    store: &RulesetSource<'_>,
) -> Option<Arc<PeriodClock>> {
    let Limit::Quota(_, periods) = rule.limit() else { return None };
    let known = newest.and_then(|newest| newest.periods.clone());
    let same = known.filter(|known| known.describe().0 == *periods);
    Some(same.unwrap_or_else(|| {
        Arc::new(match periods {
            Periods::Calendar(calendar) => {
                PeriodClock::Calendar(CachedCalendar::new(calendar.clone()))
            }
            Periods::Round => PeriodClock::Round {
                domain: rule.domain().into(),
                closed: (store.rounds)(rule.domain()),
            },
        })
    }))
}

/// A small set of rules has up to this many bytes.
const SMALL_BYTES: usize = 64 << 10;

/// About the size of an override or a ban, with its conditions.
const CONDITIONS_BYTES: usize = 512;

/// Up to this many domains are scanned one by one.
const FEW_DOMAINS: usize = 4;

/// Up to this many overrides or bans are scanned one by one.
const FEW_CONDITIONS: usize = 4;
