//! Edits: a new version of a rule's limits, made from the one before.

use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_policy::policy::{Condition, Effective};

use super::{KeyRef, Keys, OverrideEnd, RuleHistory, Span, Spans, Version};
use crate::any_limit::AnyLimit;
use crate::periods::{PeriodClock, Times};

/// The limits that a rule shall have.
#[derive(Clone, Debug)]
pub(crate) struct RuleLimits {
    pub(crate) common: AnyLimit,
    pub(crate) periods: Option<Arc<PeriodClock>>,
    /// By precedence.
    pub(crate) overrides: Vec<OverrideLimit>,
}

/// An override of a rule.
#[derive(Clone, Debug)]
pub(crate) struct OverrideLimit {
    pub(crate) keys: Keys,
    /// `None`: unlimited.
    pub(crate) limit: Option<AnyLimit>,
    pub(crate) until: Option<Timestamp>,
}

/// When an edit is made, and from when on it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleEdit {
    pub(crate) family: u64,
    /// The number of the new version.
    pub(crate) tag: u32,
    pub(crate) times: Times,
    pub(crate) effective: Effective,
}

impl RuleHistory {
    /// The first version of a rule.
    pub(crate) fn new(limits: RuleLimits, edit: RuleEdit) -> Self {
        let (versions, spans) = (Vec::new(), Spans::default());
        let mut history = Self { family: edit.family, versions, spans };
        history.push_span(None, 0, Some(limits.common), None, edit.tag);
        history.add_overrides(limits.overrides, edit.tag);
        history.add_version(limits.periods, RuleEdit { effective: Effective::Now, ..edit }, false);
        history
    }

    /// The history with another version of the limits; `None` if they are as they were.
    pub(crate) fn edited(&self, limits: RuleLimits, edit: RuleEdit) -> Option<Self> {
        let newest = self.newest();
        let has_same_periods = newest.is_of_periods(limits.periods.as_ref());
        let is_same = has_same_periods
            && !newest.is_removed
            && *self.common() == limits.common
            && self.has_overrides(&limits.overrides);
        if is_same {
            return None;
        }
        let mut history = self.clone();
        let mut edit = edit;
        if !has_same_periods || newest.is_removed {
            // A calendar that is no longer followed has no next period.
            edit.effective = Effective::Now;
        }
        if !has_same_periods || *history.common() != limits.common {
            history.replace_common(limits.common, edit.tag);
        }
        history.replace_overrides(limits.overrides, has_same_periods, edit.tag);
        history.add_version(limits.periods, edit, false);
        Some(history)
    }

    /// The history with the end of the rule; `None` if it has ended.
    pub(crate) fn removed(&self, edit: RuleEdit) -> Option<Self> {
        let newest = self.newest();
        if newest.is_removed {
            return None;
        }
        let mut history = self.clone();
        history.add_version(newest.periods.clone(), edit, true);
        Some(history)
    }

    /// Sets the times that are known once the newest version is in force.
    pub(crate) fn in_force_at(mut self, times: Times) -> Self {
        let before = self.versions.len().checked_sub(2).map(|index| &self.versions[index]);
        let period_before = before.map(|before| before.decided_at(times).period.index);
        if let Some(newest) = self.versions.last_mut().map(Arc::make_mut) {
            if newest.effective == Effective::Now {
                newest.period = newest.decided_at(times).period.index;
            }
            let waits = newest.effective == Effective::Next;
            newest.period_before = period_before.filter(|_| !waits).unwrap_or(newest.period);
            newest.at.now = times.now;
            for end in &mut newest.ends {
                end.at.now = times.by_the_clock(end.at.wall);
            }
        }
        self
    }

    fn replace_common(&mut self, limit: AnyLimit, tag: u32) {
        let limit = limit.succeeding(self.common());
        let newest = self.spans.common().last().copied();
        newest.into_iter().for_each(|index| self.spans.end(index, tag));
        self.push_span(None, 0, Some(limit), None, tag);
    }

    fn push_span(
        &mut self,
        keys: Option<Keys>,
        rank: i64,
        limit: Option<AnyLimit>,
        until: Option<Timestamp>,
        from: u32,
    ) {
        self.spans.push(Span { keys, rank, limit, from, to: None, until });
    }

    /// The indexes of the overrides that no edit has ended, by rank.
    fn open_overrides(&self) -> Vec<usize> {
        let is_open = |index: &usize| {
            let span = &self.spans[*index];
            span.keys.is_some() && span.to.is_none()
        };
        let mut open: Vec<usize> = (0..self.spans.len()).filter(is_open).collect();
        open.sort_by_key(|index| self.spans[*index].rank);
        open
    }

    /// The overrides that no edit has ended, by precedence.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = (&Keys, Option<AnyLimit>)> {
        let spans = self.open_overrides().into_iter().map(|index| &self.spans[index]);
        spans.filter_map(|span| Some((span.keys.as_ref()?, span.limit)))
    }

    /// The index of the override that is in force for a key at a position, among those.
    pub(crate) fn override_at(&self, tag: u32, key: KeyRef<'_>) -> Option<usize> {
        let span = self.limit_at(tag, key).span;
        self.open_overrides().iter().position(|index| *index == span)
    }

    fn has_overrides(&self, overrides: &[OverrideLimit]) -> bool {
        let open = self.open_overrides();
        let is_same = |(index, given): (&usize, &OverrideLimit)| self.spans[*index].is_of(given);
        open.len() == overrides.len() && open.iter().zip(overrides).all(is_same)
    }

    /// Ends the overrides that are gone or have changed, and adds those that are new.
    fn replace_overrides(&mut self, given: Vec<OverrideLimit>, keeps: bool, tag: u32) {
        let open = self.open_overrides();
        // Those at the end of both lists stay as they are: new ones usually come first.
        let pairs = open.iter().rev().zip(given.iter().rev());
        let same_end = pairs.take_while(|(index, it)| keeps && self.spans[**index].is_of(it));
        let same_end = same_end.count();
        let (open, kept) = open.split_at(open.len() - same_end);
        let first_kept = kept.first().map(|index| self.spans[*index].rank);
        let mut given = given;
        given.truncate(given.len() - same_end);
        // Of the others, those that keep their order stay if their ranks leave room.
        let mut next = 0;
        let mut is_kept = vec![false; open.len()];
        let mut added: Vec<(usize, OverrideLimit)> = Vec::new();
        for (place, it) in given.into_iter().enumerate() {
            let found = (next..open.len()).find(|at| keeps && self.spans[open[*at]].is_of(&it));
            match found.filter(|_| added.is_empty()) {
                Some(at) => {
                    is_kept[at] = true;
                    next = at + 1;
                }
                None => added.push((place, it)),
            }
        }
        let mut last_kept = None;
        for (at, index) in open.iter().enumerate() {
            if is_kept[at] {
                last_kept = Some(self.spans[*index].rank);
            } else {
                self.spans.end(*index, tag);
            }
        }
        let count = i64::try_from(added.len()).unwrap_or(i64::MAX);
        let ranks = match (last_kept, first_kept) {
            (None, Some(first)) => Some(first - count),
            (None, None) => Some(0),
            (Some(last), None) => Some(last + 1),
            (Some(last), Some(first)) => (first - last > count).then_some(last + 1),
        };
        let added = added.into_iter().map(|(_, it)| it);
        match ranks {
            Some(first) => self.push_overrides(added.collect(), first, tag),
            None => {
                // No room between: all that follow are made anew, with higher ranks.
                let again: Vec<OverrideLimit> =
                    kept.iter().filter_map(|index| self.spans[*index].as_given()).collect();
                let highest = kept.iter().map(|index| self.spans[*index].rank).max().unwrap_or(0);
                for index in kept {
                    self.spans.end(*index, tag);
                }
                self.push_overrides(added.chain(again).collect(), highest + 1, tag);
            }
        }
    }

    fn add_overrides(&mut self, overrides: Vec<OverrideLimit>, tag: u32) {
        self.push_overrides(overrides, 0, tag);
    }

    fn push_overrides(&mut self, overrides: Vec<OverrideLimit>, first_rank: i64, tag: u32) {
        for (rank, OverrideLimit { keys, limit, until }) in (first_rank..).zip(overrides) {
            let limit = limit.map(|limit| limit.succeeding(self.limit_before(&keys)));
            self.push_span(Some(keys), rank, limit, until, tag);
        }
    }

    /// The limit that an override for these keys most likely takes over from.
    fn limit_before(&self, keys: &Keys) -> &AnyLimit {
        let is_same = |span: &&Arc<Span>| span.keys.as_ref() == Some(keys);
        let same = self.spans.iter().rev().filter(is_same).find_map(|span| span.limit.as_ref());
        same.unwrap_or_else(|| self.common())
    }

    fn add_version(&mut self, periods: Option<Arc<PeriodClock>>, edit: RuleEdit, is_removed: bool) {
        let RuleEdit { tag, times, effective, .. } = edit;
        let waiting = self.versions.last().and_then(|newest| newest.waits_for);
        let mut version = Version {
            tag,
            at: times,
            period_before: 0,
            period: 0,
            effective,
            periods,
            is_removed,
            is_cut: false,
            ends: Vec::new(),
            waits_for: None,
        };
        version.period = version.decided_at(times).period.index;
        version.period_before = version.period;
        // Keys whose limit this edit does not change go on waiting.
        let waiting = waiting.filter(|last| {
            let is_followed = self
                .versions
                .last()
                .is_some_and(|it| it.has_periods_of(&version) && !it.is_removed);
            is_followed && version.period <= *last
        });
        let waits = effective == Effective::Next && version.periods.is_some();
        version.waits_for = waiting.or(waits.then_some(version.period));
        let end = |span: &Arc<Span>| {
            // One that an edit has ended may still be in force, where edits wait.
            let waits = version.waits_for.is_some() || effective == Effective::Next;
            let is_over = span.to.is_some() && !waits;
            span.until.filter(|until| !is_over && *until > times.wall)
        };
        let mut ends: Vec<Timestamp> = self.spans.iter().filter_map(end).collect();
        ends.sort_unstable();
        ends.dedup();
        let end = |wall| Times { now: times.by_the_clock(wall), wall };
        version.ends =
            ends.into_iter().map(|wall| OverrideEnd { at: end(wall), round: None }).collect();
        self.versions.push(Arc::new(version));
    }
}

impl Version {
    fn is_of_periods(&self, periods: Option<&Arc<PeriodClock>>) -> bool {
        match (&self.periods, periods) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (ours, theirs) => ours.is_none() == theirs.is_none(),
        }
    }
}

impl Span {
    /// Whether it is this override.
    fn is_of(&self, given: &OverrideLimit) -> bool {
        let conditions = |keys: &Keys| -> Arc<[Condition]> { Arc::clone(&keys.conditions) };
        self.keys.as_ref().map(conditions) == Some(conditions(&given.keys))
            && (self.limit, self.until) == (given.limit, given.until)
    }

    fn as_given(&self) -> Option<OverrideLimit> {
        let (keys, limit, until) = (self.keys.clone()?, self.limit, self.until);
        Some(OverrideLimit { keys, limit, until })
    }
}
