//! A policy as decisions need it: rules by domain, limits by number.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use tidegate_core::Timestamp;

use super::overlay::{Ban, Overlay};
use super::tally::{Tally, continue_counting};
use crate::any_limit::AnyLimit;
use crate::calendar::CachedCalendar;
use crate::cycle::{CycleClock, Times};
use crate::hash::KeyedHash;
use crate::policy::{
    Condition, Cycle, Durability, Effective, Grant, KeyPart, Limit, Matcher, Override, Policy,
    Rule, ServerConfig,
};
use crate::request::Attributes;
use crate::request_limit::{RequestLimit, WindowUnit};
use crate::store::{Adoption, NewLimit, OverrideId, RestoredLimit, Store, Succession, Successor};

/// The rules in force, compiled. Immutable; an edit makes a new one.
#[derive(Debug)]
pub(crate) struct Ruleset {
    pub(crate) version: u64,
    pub(crate) server: ServerConfig,
    pub(crate) rules: Vec<CompiledRule>,
    /// The rules for limits that requests bring, one for each unit, if the policy accepts them;
    /// numbered after the rules.
    own: Vec<CompiledRule>,
    pub(crate) domains: Vec<Domain>,
    /// The index of each domain, for policies with many.
    by_name: HashMap<Box<str>, usize, KeyedHash>,
    /// Whether anything depends on the time of day.
    pub(crate) needs_wall: bool,
    pub(crate) adoption: Adoption,
    /// The policy and the edits that this was made from.
    pub(crate) policy: Arc<Policy>,
    pub(crate) overlay: Overlay,
    next_tag: u32,
}

/// The rules of a domain.
#[derive(Debug)]
pub(crate) struct Domain {
    name: Box<str>,
    /// Whether every rule applies to every request.
    pub(crate) is_unconditional: bool,
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
    /// The identity of the rule's states. A new key or algorithm changes it.
    pub(crate) family: u64,
    pub(crate) base: TaggedLimit,
    pub(crate) overrides: Vec<CompiledOverride>,
    /// Finds overrides.
    pub(crate) finder: ConditionFinder,
    pub(crate) cycle: Option<Arc<CycleClock>>,
    /// The limit that is in force for the rest of the period of the last edit.
    pub(crate) outgoing: Option<OutgoingLimit>,
    pub(crate) durability: Durability,
    /// Counts its decisions.
    pub(super) tally: Arc<Tally>,
}

/// A limit and its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TaggedLimit {
    pub(crate) tag: u32,
    pub(crate) limit: AnyLimit,
}

/// An override with its limit; `None` where it is unlimited.
#[derive(Debug)]
pub(crate) struct CompiledOverride {
    pub(crate) rule: Override,
    pub(crate) tagged: Option<TaggedLimit>,
}

/// A limit that ends with a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingLimit {
    pub(crate) tagged: TaggedLimit,
    pub(crate) last_period: u64,
}

impl Ruleset {
    /// Compiles a policy and the edits over it. Limits unchanged from `old` keep their numbers.
    pub(crate) fn new(
        policy: Arc<Policy>,
        overlay: Overlay,
        old: Option<&Self>,
        store: &impl Store,
        times: Times,
    ) -> Self {
        let restored = if old.is_none() { store.known_limits() } else { Vec::new() };
        let next_tag = restored.iter().map(|limit| limit.tag + 1).max().unwrap_or(1);
        let mut numbers = LimitNumbering {
            next_tag: old.map_or(next_tag, |old| old.next_tag),
            adoption: Adoption {
                version: old.map_or(1, |old| old.version + 1),
                ..Adoption::default()
            },
        };
        let old_rules: HashMap<u64, &CompiledRule> = old
            .iter()
            .flat_map(|old| old.rules.iter().chain(&old.own))
            .map(|rule| (rule.family, rule))
            .collect();
        let mut rules = Vec::new();
        let mut domains: Vec<Domain> = Vec::new();
        let mut by_name: HashMap<Box<str>, usize, _> = HashMap::with_hasher(store.hash().clone());
        for rule in overlay.over(&policy.rules) {
            let family = family(&rule, store.hash());
            let revived = CompiledRule::revive(&rule, family, (&restored, store.hash()), times);
            let old = old_rules.get(&family).copied().or(revived.as_ref());
            let domain = *by_name.entry(rule.domain.clone()).or_insert_with(|| {
                domains.push(Domain::new(&rule.domain, overlay.bans_in(&rule.domain)));
                domains.len() - 1
            });
            let domain = &mut domains[domain];
            domain.rules.push(u32::try_from(rules.len()).unwrap_or(u32::MAX));
            rules.push(numbers.compile(rule, (family, old), store, times));
        }
        continue_counting(old, &mut rules);
        let mut own = Vec::new();
        for unit in WindowUnit::ALL.into_iter().filter(|_| policy.takes_own_limits) {
            let rule = request_limit_rule(unit);
            let family = store.hash().hash_one(("own limit", unit));
            let revived = CompiledRule::revive(&rule, family, (&restored, store.hash()), times);
            let old = old_rules.get(&family).copied().or(revived.as_ref());
            own.push(numbers.compile(rule, (family, old), store, times));
        }
        // A domain without rules may still have bans.
        for ban in &overlay.bans {
            by_name.entry(ban.domain.clone()).or_insert_with(|| {
                domains.push(Domain::new(&ban.domain, overlay.bans_in(&ban.domain)));
                domains.len() - 1
            });
        }
        domains.iter_mut().for_each(|domain| domain.index(&rules));
        let policy_rules = rules.len();
        rules.append(&mut own);
        numbers.note_removed(&old_rules, &rules);
        numbers.note_restored(&restored, &mut rules);
        let own = rules.split_off(policy_rules);
        let needs_wall = rules.iter().any(CompiledRule::needs_wall)
            || domains.iter().any(|domain| domain.bans.iter().any(|ban| ban.until.is_some()));
        Self {
            version: numbers.adoption.version,
            server: policy.server.clone(),
            rules,
            own,
            domains,
            by_name,
            needs_wall,
            adoption: numbers.adoption,
            policy,
            overlay,
            next_tag: numbers.next_tag,
        }
    }

    /// The number of a domain.
    #[inline]
    pub(crate) fn domain_number(&self, name: &str) -> Option<usize> {
        if self.domains.len() <= FEW_DOMAINS {
            return self.domains.iter().position(|domain| &*domain.name == name);
        }
        self.by_name.get(name).copied()
    }

    /// A domain by its name.
    #[inline]
    pub(crate) fn domain(&self, name: &str) -> Option<&Domain> {
        self.domain_number(name).map(|number| &self.domains[number])
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

impl Domain {
    /// Builds the matcher of its rules.
    fn index(&mut self, rules: &[CompiledRule]) {
        let of_domain = || self.rules.iter().map(|&number| &rules[number as usize].rule);
        let is_unconditional =
            of_domain().all(|rule| rule.conditions.is_empty() && rule.group.is_none());
        let matcher = Matcher::new(of_domain());
        (self.matcher, self.is_unconditional) = (matcher, is_unconditional);
    }

    fn new(name: &str, bans: Vec<Ban>) -> Self {
        let (rules, matcher) = (Vec::new(), Matcher::new([]));
        let ban_finder = ConditionFinder::new(bans.iter().map(|ban| ban.conditions()));
        Self { name: name.into(), is_unconditional: true, rules, matcher, bans, ban_finder }
    }
}

impl CompiledRule {
    fn needs_wall(&self) -> bool {
        let is_calendar = self.cycle.as_deref().is_some_and(|cycle| cycle.is_calendar());
        is_calendar || self.overrides.iter().any(|it| it.rule.until_ns.is_some())
    }
}

/// Numbers limits, and records the successors of old ones.
struct LimitNumbering {
    next_tag: u32,
    adoption: Adoption,
}

/// What an edit of a rule does to its limits.
struct RuleEdit<'a> {
    hash: &'a KeyedHash,
    family: u64,
    cycle: Option<&'a Arc<CycleClock>>,
    is_same_cycle: bool,
    effective: Effective,
    period: u64,
}

impl LimitNumbering {
    fn compile(
        &mut self,
        rule: Rule,
        (family, old): (u64, Option<&CompiledRule>),
        store: &impl Store,
        times: Times,
    ) -> CompiledRule {
        let cycle = cycle_of(&rule, old, store);
        let is_same_cycle = old.is_none_or(|old| match (&old.cycle, &cycle) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() == new.is_none(),
        });
        // A calendar that is no longer followed has no next period.
        let effective = if is_same_cycle { rule.effective } else { Effective::Now };
        let period = cycle.as_ref().map_or(0, |cycle| cycle.period(times).index);
        let limit = any_limit_of(&rule.limit, &rule);
        let kept = old.map(|old| (old.base, is_same_cycle));
        let new = (limit, None, None);
        let (base, is_edited) = self.number(new, (family, cycle.as_ref()), kept);
        let mut outgoing = None;
        if let Some(old) = old {
            if is_edited {
                self.adoption.successions.push(Succession {
                    from: old.base.tag,
                    to: base.tag,
                    effective,
                    period,
                });
            }
            if is_same_cycle {
                outgoing = old.outgoing_at(is_edited, effective, times);
            }
            // An edit that waited for the next period waits no longer.
            if let (Some(waiting), None) = (old.outgoing, outgoing) {
                self.succeed(waiting.tagged, base, Effective::Now, 0);
            }
        }
        let hash = store.hash();
        let edit =
            RuleEdit { hash, family, cycle: cycle.as_ref(), is_same_cycle, effective, period };
        let overrides = self.compile_overrides(&rule, &edit, base, old);
        let finder = ConditionFinder::new(overrides.iter().map(|it| &*it.rule.key));
        let durability = rule.durability_on_disk();
        let tally = Arc::default();
        CompiledRule { rule, family, base, overrides, finder, cycle, outgoing, durability, tally }
    }

    fn compile_overrides(
        &mut self,
        rule: &Rule,
        edit: &RuleEdit<'_>,
        base: TaggedLimit,
        old: Option<&CompiledRule>,
    ) -> Vec<CompiledOverride> {
        let old_overrides = old.map_or(&[][..], |old| &old.overrides);
        let mut indexes = HashMap::new();
        for (index, old_override) in old_overrides.iter().enumerate() {
            indexes.entry(&*old_override.rule.key).or_insert(index);
        }
        let mut overrides = Vec::new();
        let mut last_index = 0;
        for given in &rule.overrides {
            let old_index = indexes.get(&*given.key).copied();
            // With another end, or in another order, it is another limit.
            let is_kept = old_index.is_some_and(|index| {
                edit.is_same_cycle
                    && index >= last_index
                    && old_overrides[index].rule.until_ns == given.until_ns
            });
            last_index = old_index.unwrap_or(0).max(last_index);
            let old_tagged = old_index.and_then(|index| old_overrides[index].tagged);
            let tagged = match &given.grant {
                Grant::Unlimited => {
                    // Nothing is charged meanwhile; earlier charges move to the common limit.
                    old_tagged
                        .into_iter()
                        .for_each(|old| self.succeed(old, base, Effective::Now, 0));
                    None
                }
                Grant::Limit(limit) => {
                    let until = given.until_ns.map(Timestamp::from_nanos);
                    let id = OverrideId {
                        key: edit.hash.hash_one(&given.key),
                        index: u32::try_from(overrides.len()).unwrap_or(u32::MAX),
                    };
                    let new = (any_limit_of(limit, rule), until, Some((base.tag, id)));
                    let kept = old_tagged.map(|old| (old, is_kept));
                    let (tagged, is_edited) = self.number(new, (edit.family, edit.cycle), kept);
                    if let (Some(old), true) = (old_tagged, is_edited) {
                        self.succeed(old, tagged, edit.effective, edit.period);
                    }
                    Some(tagged)
                }
            };
            overrides.push(CompiledOverride { rule: given.clone(), tagged });
        }
        // A key without its override continues under the common limit.
        let kept: HashSet<&[Condition]> = rule.overrides.iter().map(|given| &*given.key).collect();
        for gone in old_overrides.iter().filter(|gone| !kept.contains(&*gone.rule.key)) {
            if let Some(tagged) = gone.tagged {
                self.succeed(tagged, base, Effective::Now, 0);
            }
        }
        overrides
    }

    fn succeed(&mut self, from: TaggedLimit, to: TaggedLimit, effective: Effective, period: u64) {
        let (from, to) = (from.tag, to.tag);
        self.adoption.successions.push(Succession { from, to, effective, period });
    }

    /// The old number if the limit is unchanged, else a new one; and whether it is an edit.
    ///
    /// `old` is the limit before, and whether all else about it is unchanged.
    fn number(
        &mut self,
        (limit, until, override_id): (AnyLimit, Option<Timestamp>, Option<(u32, OverrideId)>),
        (family, cycle): (u64, Option<&Arc<CycleClock>>),
        old: Option<(TaggedLimit, bool)>,
    ) -> (TaggedLimit, bool) {
        if let Some((old, true)) = old
            && old.limit == limit
        {
            return (old, false);
        }
        let limit = old.map_or(limit, |(old, _)| limit.succeeding(&old.limit));
        let tag = self.next_tag;
        self.next_tag += 1;
        let cycle = cycle.cloned();
        let (common, override_id) = (override_id.map(|it| it.0), override_id.map(|it| it.1));
        self.adoption.limits.push(NewLimit {
            tag,
            family,
            limit,
            cycle,
            until,
            common,
            override_id,
        });
        (TaggedLimit { tag, limit }, old.is_some())
    }

    /// Restored states continue under the rules of the same names.
    fn note_restored(&mut self, restored: &[RestoredLimit], rules: &mut [CompiledRule]) {
        let by_family: HashMap<u64, usize> =
            rules.iter().map(|rule| rule.family).zip(0..).collect();
        for limit in restored {
            let Some(&index) = by_family.get(&limit.family) else {
                self.adoption.removed.push(limit.tag);
                continue;
            };
            let of_overrides = rules[index].overrides.iter().filter_map(|it| it.tagged);
            let is_in_force = of_overrides.chain([rules[index].base]).any(|it| it.tag == limit.tag);
            let is_followed = limit.successor.is_some()
                || self.adoption.successions.iter().any(|it| it.from == limit.tag);
            if limit.is_base || is_in_force || is_followed {
                continue;
            }
            let base = &mut rules[index].base;
            // Only a limit that no state counts under yet may change.
            for new in self.adoption.limits.iter_mut().filter(|new| new.tag == base.tag) {
                base.limit = base.limit.succeeding(&limit.limit);
                new.limit = base.limit;
            }
            let (from, to, effective) = (limit.tag, base.tag, Effective::Now);
            self.adoption.successions.push(Succession { from, to, effective, period: 0 });
        }
    }

    fn note_removed(&mut self, old: &HashMap<u64, &CompiledRule>, rules: &[CompiledRule]) {
        let kept: HashSet<u64> = rules.iter().map(|rule| rule.family).collect();
        for gone in old.values().filter(|old| !kept.contains(&old.family)) {
            let overrides = gone.overrides.iter().filter_map(|it| it.tagged);
            let limits = overrides.chain([gone.base]);
            self.adoption.removed.extend(limits.map(|tagged| tagged.tag));
        }
    }
}

impl CompiledRule {
    /// A rule as it was before the restart, if that is known: as far as an edit needs it.
    fn revive(
        rule: &Rule,
        family: u64,
        (restored, hash): (&[RestoredLimit], &KeyedHash),
        times: Times,
    ) -> Option<Self> {
        let of_rule = || restored.iter().filter(|limit| limit.family == family);
        // An edit that never took effect, because another one came first, looks like one in
        // force.
        let last = of_rule().filter(|limit| limit.is_base).max_by_key(|limit| limit.tag)?;
        let mut rule = rule.clone();
        if let (Limit::Quota(_, cycle), Some(clock)) = (&mut rule.limit, &last.cycle) {
            *cycle = clock.describe().0;
        }
        let is_next = |successor: &Successor| successor.effective == Effective::Next;
        // An edit that applies at once ends all waiting.
        let leads_to_last = |limit: &&RestoredLimit| {
            let mut next = limit.successor.filter(is_next);
            while let Some(successor) = next.filter(|successor| successor.tag != last.tag) {
                let follower = of_rule().find(|limit| limit.tag == successor.tag);
                next = follower.and_then(|it| it.successor).filter(is_next);
            }
            next.is_some()
        };
        let period = last.cycle.as_ref().map_or(u64::MAX, |cycle| cycle.period(times).index);
        let waits = |limit: &RestoredLimit| {
            let successor = limit.successor.filter(is_next)?;
            let last_period = successor.at.period.index;
            let tagged = TaggedLimit { tag: limit.tag, limit: limit.limit };
            (period <= last_period).then_some(OutgoingLimit { tagged, last_period })
        };
        let outgoing = of_rule().filter(leads_to_last).filter_map(waits);
        let mut overrides: Vec<(u32, CompiledOverride)> = Vec::new();
        for given in &rule.overrides {
            let id = hash.hash_one(&given.key);
            let is_its = |limit: &&RestoredLimit| limit.override_id.is_some_and(|it| it.key == id);
            let Some(limit) = of_rule().filter(is_its).max_by_key(|limit| limit.tag) else {
                continue;
            };
            let until_ns = limit.until.map(Timestamp::as_nanos);
            let tagged = Some(TaggedLimit { tag: limit.tag, limit: limit.limit });
            let rule = Override { until_ns, ..given.clone() };
            let index = limit.override_id.map_or(0, |it| it.index);
            overrides.push((index, CompiledOverride { rule, tagged }));
        }
        overrides.sort_by_key(|(index, _)| *index);
        let overrides = overrides.into_iter().map(|(_, it)| it).collect();
        let finder = ConditionFinder::new(std::iter::empty());
        Some(Self {
            durability: rule.durability_on_disk(),
            tally: Arc::default(),
            rule,
            family,
            base: TaggedLimit { tag: last.tag, limit: last.limit },
            overrides,
            finder,
            cycle: last.cycle.clone(),
            outgoing: outgoing.min_by_key(|outgoing| outgoing.tagged.tag),
        })
    }

    /// The limit in force for the rest of the period, where the rule's edits wait for the next.
    fn outgoing_at(
        &self,
        is_edited: bool,
        effective: Effective,
        times: Times,
    ) -> Option<OutgoingLimit> {
        let period = self.cycle.as_ref()?.period(times);
        // An edit that still waits keeps its start.
        let waiting = self.outgoing.filter(|outgoing| period.index <= outgoing.last_period);
        match (is_edited, effective, waiting) {
            (true, Effective::Now, _) => None,
            (_, _, Some(waiting)) => Some(waiting),
            (true, Effective::Next, None) => {
                Some(OutgoingLimit { tagged: self.base, last_period: period.index })
            }
            _ => None,
        }
    }
}

/// The rule for requests' own limits of a unit. Only the maximum comes from the request.
fn request_limit_rule(unit: WindowUnit) -> Rule {
    let RequestLimit { limit, .. } = RequestLimit::new(u32::MAX, unit);
    let AnyLimit::Window(window) = limit else { unreachable!("it is a window") };
    Rule::new(&format!("limit per {}", unit.name()), Limit::Window(window)).charge_refused()
}

/// The identity of a rule's states: its domain, name, key and algorithm.
fn family(rule: &Rule, hash: &KeyedHash) -> u64 {
    let parts: Vec<(&str, u8, u8)> = (rule.key.parts.iter())
        .map(|part| match part {
            KeyPart::Text(attribute) => (&**attribute, 0, 0),
            KeyPart::Address { attribute, v4_bits, v6_bits } => {
                (&**attribute, 1 + v4_bits, 1 + v6_bits)
            }
        })
        .collect();
    let algorithm: u8 = match &rule.limit {
        Limit::Bucket(_) => 1,
        Limit::Window(_) => 2,
        Limit::Sliding(_) => 3,
        Limit::Cooldown(_) => 4,
        Limit::Quota(_, Cycle::Calendar(_)) => 5,
        Limit::Quota(_, Cycle::Round) => 6,
        Limit::Slots(_) => 7,
    };
    hash.hash_one((&*rule.domain, &*rule.name, parts, algorithm))
}

/// The limit as decisions need it.
fn any_limit_of(limit: &Limit, rule: &Rule) -> AnyLimit {
    match limit {
        Limit::Bucket(bucket) => AnyLimit::Bucket(*bucket),
        Limit::Window(window) => AnyLimit::Window(*window),
        Limit::Sliding(sliding) => AnyLimit::Sliding(*sliding),
        Limit::Cooldown(cooldown) if rule.charge_refused => {
            AnyLimit::Cooldown(cooldown.extended_by_refusals())
        }
        Limit::Cooldown(cooldown) => AnyLimit::Cooldown(*cooldown),
        Limit::Quota(quota, _) => AnyLimit::Quota(*quota),
        Limit::Slots(slots) => AnyLimit::Slots(slots.max),
    }
}

fn cycle_of(
    rule: &Rule,
    old: Option<&CompiledRule>,
    store: &impl Store,
) -> Option<Arc<CycleClock>> {
    let Limit::Quota(_, cycle) = &rule.limit else { return None };
    let same = old.and_then(|old| match &old.rule.limit {
        Limit::Quota(_, old_cycle) if old_cycle == cycle => old.cycle.clone(),
        _ => None,
    });
    Some(same.unwrap_or_else(|| {
        Arc::new(match cycle {
            Cycle::Calendar(calendar) => {
                CycleClock::Calendar(CachedCalendar::new(calendar.clone()))
            }
            Cycle::Round => CycleClock::Round {
                domain: rule.domain.clone(),
                closed: store.rounds(&rule.domain),
            },
        })
    }))
}

/// Up to this many domains are scanned one by one.
const FEW_DOMAINS: usize = 4;

/// Up to this many overrides or bans are scanned one by one.
const FEW_CONDITIONS: usize = 4;
