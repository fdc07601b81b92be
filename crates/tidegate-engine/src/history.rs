//! The history of each rule's limits.
//!
//! The limit of a key at an instant is a function of the history of its rule, the key and the
//! instant. A state has the number of the version that it was last written under, and is brought up
//! to date by going through everything that has happened since, each change at its own time. So a look
//! changes nothing.
//!
//! Everything here is plain data without clocks or locks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_policy::policy::Effective;

use crate::any_limit::{AnyLimit, DecisionTime, NO_PERIOD};
use crate::mixing::Mixing;
use crate::periods::{PeriodClock, Times};

mod advance;
mod edit;
mod idle;
mod spans;

pub(crate) use advance::{Current, StoredState};
pub(crate) use edit::{OverrideLimit, RuleEdit, RuleLimits};
pub(crate) use spans::{KeyRef, Keys, Span};

use spans::{SpanIndexes, Spans};

/// The histories of all rules.
#[derive(Clone, Debug, Default)]
#[allow(unreachable_pub, reason = "public for a sealed trait, not for callers")]
pub struct History {
    rules: HashMap<u64, Arc<RuleHistory>, Mixing>,
    /// Which rule a version belongs to, by the version's first number.
    families: BTreeMap<u32, u64>,
}

/// The limits of a rule, in all versions that some state may count under.
#[derive(Clone, Debug)]
pub(crate) struct RuleHistory {
    pub(crate) family: u64,
    /// Oldest first; never empty.
    pub(crate) versions: Vec<Arc<Version>>,
    /// In the order in which they were made.
    pub(crate) spans: Spans,
}

/// What an edit made of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Its number. A version has one more for every change that comes by itself while it is the
    /// newest: the end of an override, and the period from which on an edit counts.
    pub(crate) tag: u32,
    /// When the edit was made.
    pub(crate) at: Times,
    /// The period that was open then, as the version before numbers them.
    pub(crate) period_before: u64,
    /// The same, as this version numbers them.
    pub(crate) period: u64,
    /// Whether the edit counts from the next period or window on.
    pub(crate) effective: Effective,
    pub(crate) periods: Option<Arc<PeriodClock>>,
    /// Whether the rule is gone from here on.
    pub(crate) is_removed: bool,
    /// Whether versions before it were dropped although states may refer to them. Only the oldest
    /// one: its states, and older ones, count as fully used when the next version began.
    pub(crate) is_cut: bool,
    /// The ends of overrides that come after the edit, by time.
    pub(crate) ends: Vec<OverrideEnd>,
    /// The period after which edits count that wait for the next one.
    pub(crate) waits_for: Option<u64>,
}

/// The end of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverrideEnd {
    pub(crate) at: Times,
    /// The round that was open then, once it is closed.
    pub(crate) round: Option<u64>,
}

/// A point in a rule's history: so many changes after an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The index of the version.
    version: usize,
    /// How many changes have come by themselves since.
    stage: u32,
}

/// The changes that have come by themselves at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    /// How many overrides have ended.
    ends: usize,
    /// Whether the next period has begun, for edits that waited for it.
    is_next_period: bool,
}

/// When a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    now: Timestamp,
    /// The period that was open then.
    period: u64,
}

/// The limit that is in force for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce<'a> {
    /// The index of its span.
    span: usize,
    /// An unlimited key goes on under the common limit, and is charged nothing.
    pub(crate) limit: &'a AnyLimit,
    pub(crate) is_unlimited: bool,
}

/// The limits of a key: the overrides that match it by rank, and the common limits, oldest first.
struct KeyLimits<'a> {
    rule: &'a RuleHistory,
    overrides: SpanIndexes,
    common: &'a [usize],
}

/// The version that counts for a key, and the one that waits for the next period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phase {
    version: usize,
    waiting: Option<usize>,
}

impl History {
    pub(crate) fn rule(&self, family: u64) -> Option<&Arc<RuleHistory>> {
        self.rules.get(&family)
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = &Arc<RuleHistory>> {
        self.rules.values()
    }

    /// The rule that a version belongs to.
    pub(crate) fn rule_of(&self, tag: u32) -> Option<&RuleHistory> {
        let (_, family) = self.families.range(..=tag).next_back()?;
        self.rules.get(family).map(|rule| &**rule)
    }

    /// The first number that no version has.
    pub(crate) fn next_tag(&self) -> u32 {
        self.rules.values().map(|rule| rule.newest().next_tag()).max().unwrap_or(1)
    }

    /// Adds or replaces the history of a rule.
    pub(crate) fn insert(&mut self, rule: Arc<RuleHistory>) {
        let family = rule.family;
        // Those before a known one are known.
        for version in rule.versions.iter().rev() {
            if self.families.insert(version.tag, family) == Some(family) {
                break;
            }
        }
        self.rules.insert(family, rule);
    }

    /// Forgets versions before the oldest that some state was written under, by their numbers.
    pub(crate) fn forget_before(&mut self, used: &HashSet<u32>) {
        let mut oldest: HashMap<u64, u32> = HashMap::new();
        for tag in used {
            if let Some(rule) = self.rule_of(*tag) {
                let known = oldest.entry(rule.family).or_insert(*tag);
                *known = (*known).min(*tag);
            }
        }
        for rule in self.rules.values_mut() {
            let needed = oldest.get(&rule.family).copied().unwrap_or(u32::MAX);
            if let Some(shorter) = rule.without_versions_before(needed) {
                *rule = Arc::new(shorter);
            }
        }
        self.renumber();
    }

    /// The history without the versions that were superseded before a time, and that none of the
    /// states counts under which have these numbers.
    pub(crate) fn without_unused(&self, used: &HashSet<u32>, before: Timestamp) -> Self {
        let mut used = used.clone();
        for rule in self.rules.values() {
            let mut pairs = rule.versions.iter().zip(rule.versions.iter().skip(1));
            let young = pairs.find(|(_, next)| next.at.now >= before).map(|(version, _)| version);
            used.extend(young.map(|version| version.tag));
        }
        let mut shorter = self.clone();
        shorter.forget_before(&used);
        shorter
    }

    /// Makes sure that the numbers of versions that were forgotten are not taken for those of others.
    pub(crate) fn mark_forgotten(&mut self) {
        let ends = |rule: &Arc<RuleHistory>| {
            rule.versions.iter().map(|version| version.next_tag()).collect::<Vec<_>>()
        };
        for end in self.rules.values().flat_map(ends).collect::<Vec<_>>() {
            self.families.entry(end).or_insert(NO_RULE);
        }
    }

    /// Forgets the numbers that no version has. No state may have them.
    pub(crate) fn renumber(&mut self) {
        let versions = |rule: &Arc<RuleHistory>| {
            let family = rule.family;
            rule.versions.iter().map(move |it| (it.tag, family)).collect::<Vec<_>>()
        };
        self.families = self.rules.values().flat_map(versions).collect();
    }

    /// A history that an edit was made from, without the versions that were forgotten meanwhile.
    pub(crate) fn without_forgotten(&self, rule: &RuleHistory) -> RuleHistory {
        let known = self.rules.get(&rule.family).map(|known| &known.versions[0]);
        let is_first = |version: &Arc<Version>| known.is_some_and(|it| it.tag == version.tag);
        match (rule.versions.iter().position(is_first), known) {
            (Some(first), Some(oldest)) => {
                let mut shorter = rule.since(first);
                shorter.versions[0] = Arc::clone(oldest);
                shorter
            }
            _ => rule.clone(),
        }
    }

    /// Whether some rule has more than so many versions.
    pub(crate) fn has_more_versions_than(&self, most: usize) -> bool {
        self.rules.values().any(|rule| rule.versions.len() > most)
    }

    /// Drops the oldest half of the versions of rules that have more than so many; true if there
    /// were any. States that refer to them are still found by their numbers, until
    /// [`renumber`](Self::renumber).
    pub(crate) fn cut(&mut self, most: usize) -> bool {
        let mut is_cut = false;
        for rule in
            self.rules.values_mut().filter(|rule| rule.has_patterns() && rule.versions.len() > most)
        {
            *rule = Arc::new(rule.cut(most / 2));
            is_cut = true;
        }
        is_cut
    }

    /// Memory in use, in bytes, for rules of usual sizes.
    pub(crate) fn bytes(&self) -> usize {
        let of_rule = |rule: &Arc<RuleHistory>| {
            size_of::<RuleHistory>()
                + rule.versions.len() * (size_of::<Version>() + POINTER_BYTES)
                + rule.spans.bytes()
        };
        let tags = self.families.len() * (size_of::<(u32, u64)>() * 3 / 2);
        self.rules.values().map(of_rule).sum::<usize>() + tags
    }

    /// How many versions are no longer the newest of their rule.
    pub(crate) fn superseded(&self) -> usize {
        self.rules.values().map(|rule| rule.versions.len() - 1).sum()
    }

    /// Records the round in which overrides have ended, before it is closed. Returns the histories
    /// for which that is new, before and after.
    pub(crate) fn close_round(
        &mut self,
        domain: &str,
        times: Times,
    ) -> Vec<(Option<Arc<RuleHistory>>, Arc<RuleHistory>)> {
        let mut changed = Vec::new();
        for rule in self.rules.values_mut() {
            let has_new = |version: &Arc<Version>| {
                version.round_of(domain).is_some()
                    && version.ends.iter().any(|end| end.is_new_at(times))
            };
            if !rule.versions.iter().any(has_new) {
                continue;
            }
            let before = Arc::clone(rule);
            for version in &mut Arc::make_mut(rule).versions {
                let round = version.round_of(domain);
                let ends = Arc::make_mut(version).ends.iter_mut();
                ends.filter(|end| end.is_new_at(times)).for_each(|end| end.round = round);
            }
            changed.push((Some(before), Arc::clone(rule)));
        }
        changed
    }
}

/// No rule has this family.
const NO_RULE: u64 = 0;

impl OverrideEnd {
    fn is_new_at(&self, times: Times) -> bool {
        self.round.is_none() && self.at.wall <= times.wall
    }
}

impl Version {
    /// Whether nothing was recorded about it since.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.tag, self.at, &self.ends) == (other.tag, other.at, &other.ends)
    }

    /// The number after its last one.
    pub(crate) fn next_tag(&self) -> u32 {
        self.tag + 1 + self.stages()
    }

    /// How many changes come by themselves.
    fn stages(&self) -> u32 {
        let ends = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        ends + u32::from(self.waits_for.is_some())
    }

    /// The open round, if it counts rounds of this domain.
    fn round_of(&self, domain: &str) -> Option<u64> {
        let periods = self.periods.as_deref()?;
        periods.round().filter(|_| *periods.describe().1 == *domain)
    }

    /// The period at a time.
    pub(crate) fn decided_at(&self, times: Times) -> DecisionTime {
        let period = self.periods.as_deref().map_or(NO_PERIOD, |periods| periods.period(times));
        DecisionTime { now: times.now, period }
    }

    /// The period in which an override ended.
    fn period_of(&self, end: &OverrideEnd) -> u64 {
        match self.periods.as_deref() {
            None => 0,
            Some(periods) => match periods.round() {
                Some(open) => end.round.unwrap_or(open),
                None => periods.period(end.at).index,
            },
        }
    }

    /// How many changes have come by themselves at a time.
    pub(crate) fn stage_at(&self, wall: Timestamp, period: u64) -> u32 {
        let ends = self.ends.partition_point(|end| end.at.wall <= wall);
        let is_next_period = self.waits_for.is_some_and(|last| period > last);
        u32::try_from(ends).unwrap_or(u32::MAX) + u32::from(is_next_period)
    }

    /// What has changed after so many changes.
    fn passed(&self, stage: u32) -> Passed {
        let stage = stage as usize;
        let Some(last) = self.waits_for else {
            return Passed { ends: stage, is_next_period: false };
        };
        // Overrides that end in the period of the edit do so before the next one begins.
        let before = self.ends.iter().take_while(|end| self.period_of(end) <= last).count();
        match stage.checked_sub(before + 1) {
            None => Passed { ends: stage, is_next_period: false },
            Some(after) => Passed { ends: before + after, is_next_period: true },
        }
    }

    /// The number of a period of the version before.
    fn renumbered(&self, period: u64) -> u64 {
        self.period.saturating_sub(self.period_before.saturating_sub(period))
    }

    fn has_periods_of(&self, other: &Self) -> bool {
        match (&self.periods, &other.periods) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, None) => true,
            _ => false,
        }
    }
}

impl RuleHistory {
    /// The history, if it is one: read from a file, it may be anything.
    pub(crate) fn if_sound(self) -> Option<Self> {
        let has_limit = |span: &Arc<Span>| span.keys.is_none() && span.limit.is_some();
        let algorithm = |limit: &AnyLimit| std::mem::discriminant(limit);
        let first = self.spans.iter().find(|span| has_limit(span))?.limit.as_ref()?;
        let limits = self.spans.iter().filter_map(|span| span.limit.as_ref());
        let is_one_algorithm = limits.map(algorithm).all(|it| it == algorithm(first));
        let pairs = || self.versions.iter().zip(self.versions.iter().skip(1));
        let is_sorted =
            pairs().all(|(a, b)| a.tag.checked_add(1 + a.stages()).is_some_and(|it| it <= b.tag));
        let newest = self.versions.last()?;
        let has_room = newest.tag.checked_add(1 + newest.stages()).is_some();
        (is_one_algorithm && is_sorted && has_room).then_some(self)
    }

    pub(crate) fn newest(&self) -> &Version {
        self.versions.last().expect("a history has a version")
    }

    /// The limit that the rule is about to have for keys without an override.
    pub(crate) fn common(&self) -> &AnyLimit {
        let is_common = |span: &&Arc<Span>| span.keys.is_none();
        let newest = self.spans.iter().rev().filter(is_common).find_map(|span| span.limit.as_ref());
        newest.expect("a rule has a common limit")
    }

    /// Where a number is.
    fn locate(&self, tag: u32) -> Position {
        let after = self.versions.partition_point(|version| version.tag <= tag);
        match after.checked_sub(1) {
            Some(version) => Position { version, stage: tag - self.versions[version].tag },
            // Its version was forgotten.
            None => Position { version: 0, stage: 0 },
        }
    }

    /// The number of a position.
    fn tag(&self, position: Position) -> u32 {
        self.versions[position.version].tag + position.stage
    }

    /// Where a request at this time is, which is never before the newest edit.
    pub(crate) fn tag_at(&self, times: Times) -> u32 {
        let newest = self.newest();
        newest.tag + newest.stage_at(times.wall, newest.decided_at(times).period.index)
    }

    /// Where the history was at a time in the past.
    pub(crate) fn tag_back_then(&self, times: Times) -> u32 {
        let after = self.versions.partition_point(|version| version.at.now <= times.now);
        let index = after.saturating_sub(1);
        let version = &self.versions[index];
        let is_round = version.periods.as_deref().is_some_and(|periods| periods.round().is_some());
        // Which round was open then is not known.
        let period = if is_round { 0 } else { version.decided_at(times).period.index };
        let stage = version.stage_at(times.wall, period);
        let last = if index + 1 < self.versions.len() { self.last_stage(index) } else { u32::MAX };
        version.tag + stage.min(last)
    }

    /// The period that a version is in, by the number of one of its positions.
    pub(crate) fn decided_at(&self, tag: u32, times: Times) -> DecisionTime {
        self.versions[self.locate(tag).version].decided_at(times)
    }

    /// The limit of a key at the position with this number.
    pub(crate) fn limit_at(&self, tag: u32, key: KeyRef<'_>) -> InForce<'_> {
        self.limits_of(key).at(self.locate(tag))
    }

    fn limits_of(&self, key: KeyRef<'_>) -> KeyLimits<'_> {
        let (overrides, common) = (self.spans.overrides_of(key), self.spans.common());
        KeyLimits { rule: self, overrides, common }
    }

    /// The next end of an override that concerns a key, by the time of day.
    pub(crate) fn next_end(&self, key: KeyRef<'_>, wall: Timestamp) -> Option<Timestamp> {
        self.spans.next_end(key, wall)
    }

    /// Whether some override does not name its key.
    pub(crate) fn has_patterns(&self) -> bool {
        self.spans.has_patterns()
    }

    /// The history without the versions before the one with this number; `None` if there are none.
    fn without_versions_before(&self, tag: u32) -> Option<Self> {
        let newest = self.newest();
        let first = self.locate(tag.min(newest.tag)).version;
        // While edits wait, the version before them counts for some keys.
        let settled = self.versions[..=first].iter().rposition(|it| it.waits_for.is_none());
        let first = settled.unwrap_or(0);
        if first == 0 {
            return None;
        }
        Some(self.since(first))
    }

    /// The history from a version on.
    fn since(&self, first: usize) -> Self {
        let versions = self.versions[first..].to_vec();
        let start = versions[0].tag;
        let is_needed = |span: &&Arc<Span>| span.to.is_none_or(|to| to > start);
        let spans = self.spans.iter().filter(is_needed).cloned().collect();
        Self { family: self.family, versions, spans }
    }

    /// The history with its newest versions, so many of them.
    fn cut(&self, most: usize) -> Self {
        let mut shorter = self.since(self.versions.len().saturating_sub(most));
        Arc::make_mut(&mut shorter.versions[0]).is_cut = true;
        shorter
    }

    /// The number of the version in which a state counts as fully used, if its own was dropped.
    pub(crate) fn cut_tag(&self, tag: u32) -> Option<u32> {
        let first = &self.versions[0];
        (first.is_cut && tag < first.next_tag()).then_some(first.tag)
    }

    /// The time of day up to which overrides have ended at a position.
    fn wall_at(&self, position: Position) -> Timestamp {
        let version = &self.versions[position.version];
        let ended = version.passed(position.stage).ends.checked_sub(1);
        let ended = ended.and_then(|index| version.ends.get(index));
        ended.map_or(version.at.wall, |end| end.at.wall.max(version.at.wall))
    }
}

impl<'a> KeyLimits<'a> {
    /// The limit that a version has for the key, at a time of day.
    fn of_version(&self, version: usize, wall: Timestamp) -> InForce<'a> {
        let (rule, tag) = (self.rule, self.rule.versions[version].tag);
        let is_active = |span: &Span| {
            span.from <= tag
                && span.to.is_none_or(|to| tag < to)
                && span.until.is_none_or(|until| wall < until)
        };
        let known = self.common.partition_point(|index| rule.spans[*index].from <= tag);
        // The oldest common limit has no beginning.
        let common = self.common[..known].last().or(self.common.first()).copied().unwrap_or(0);
        let found = self.overrides.iter().copied().find(|index| is_active(&rule.spans[*index]));
        let span = found.unwrap_or(common);
        let limit_of = |index: usize| rule.spans[index].limit.as_ref();
        let (own, base) = (limit_of(span), limit_of(common).unwrap_or_else(|| rule.common()));
        InForce { span, limit: own.unwrap_or(base), is_unlimited: own.is_none() }
    }

    /// Which version counts at a position.
    fn phase_at(&self, position: Position) -> Phase {
        let versions = &self.rule.versions;
        // Where nothing waits, the version counts for every key.
        let settled = versions[..=position.version].iter().rposition(|it| it.waits_for.is_none());
        let first = settled.unwrap_or(0);
        let mut phase = Phase { version: first, waiting: None };
        for version in first + 1..=position.version {
            let last = versions[version - 1].waits_for;
            if last.is_some_and(|last| versions[version].period_before > last) {
                phase.stop_waiting();
            }
            self.edit(&mut phase, version);
        }
        if versions[position.version].passed(position.stage).is_next_period {
            phase.stop_waiting();
        }
        phase
    }

    /// A new version comes.
    fn edit(&self, phase: &mut Phase, version: usize) {
        let new = &self.rule.versions[version];
        if new.waits_for.is_none() {
            *phase = Phase { version, waiting: None };
        } else if new.effective == Effective::Next
            || (phase.waiting.is_some() && !self.is_changed(*phase, version))
        {
            phase.waiting = Some(version);
        } else {
            *phase = Phase { version, waiting: None };
        }
    }

    /// Whether a version has another limit for the key than it was to have before.
    fn is_changed(&self, phase: Phase, version: usize) -> bool {
        let wall = self.rule.versions[version].at.wall;
        let before = self.of_version(phase.waiting.unwrap_or(phase.version), wall);
        let after = self.of_version(version, wall);
        (before.limit, before.is_unlimited) != (after.limit, after.is_unlimited)
    }

    /// The limit that is in force at a position.
    fn at(&self, position: Position) -> InForce<'a> {
        self.of_version(self.phase_at(position).version, self.rule.wall_at(position))
    }
}

impl InForce<'_> {
    /// Whether it is the same limit. That of an unlimited key changes with the common one.
    fn is_same(self, other: Self) -> bool {
        std::ptr::eq(self.limit, other.limit)
    }
}

impl Phase {
    fn stop_waiting(&mut self) {
        self.version = self.waiting.take().unwrap_or(self.version);
    }
}

impl std::fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRef").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A shared pointer, and the counts at what it points to.
const POINTER_BYTES: usize = 3 * size_of::<usize>();

/// How long a rule may be gone before its states are dropped.
pub(crate) const REMOVED_FOR: Duration = Duration::from_secs(24 * 3_600);

#[cfg(test)]
mod tests;
