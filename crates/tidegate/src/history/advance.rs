//! A state as of now: everything that has happened since it was written, applied in order.

use tidegate_core::{Period, QuotaState, Timestamp};

use super::{KeyRef, KeySpans, Moment, Position, REMOVED_FOR, RuleHistory, Version};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime};
use crate::policy::Effective;

/// A state, with the number of the version that it was written under.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StoredState {
    pub(crate) tag: u32,
    pub(crate) state: AnyState,
}

/// A state as of now, with the limit that it counts under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) tag: u32,
    pub(crate) limit: AnyLimit,
    pub(crate) state: AnyState,
    /// Set where the limit in force cannot express the state.
    pub(crate) stuck: Option<Stuck>,
}

/// The state of a bucket that is overdrawn so far under the limit in force that it cannot be
/// expressed in its units. Nothing is allowed; the state stays as it was when that limit came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    /// The limit in force.
    pub(crate) limit: AnyLimit,
    pub(crate) since: Timestamp,
}

impl RuleHistory {
    /// A state as of `now`, at the position with the number `tag`.
    ///
    /// A state that is further along stays where it is: the request came late.
    pub(crate) fn advance(
        &self,
        stored: StoredState,
        key: KeyRef<'_>,
        tag: u32,
        now: Timestamp,
    ) -> Current {
        let mut from = self.locate(stored.tag);
        let to = self.locate(tag).max(from);
        let spans = self.spans_of(key);
        let mut stored = stored;
        if self.cut_tag(stored.tag).is_some() && to.version > 0 {
            from = Position { version: 1, stage: 0 };
            let next = &self.versions[1];
            let limit = spans.at(from).limit;
            stored.state = limit.fully_used(&stored.state, next.at.now, next.period);
        }
        match stored.state {
            AnyState::Window(_) => self.advance_window((stored.state, now), &spans, from, to),
            AnyState::Quota(state) => self.advance_quota(state, &spans, from, to),
            state => self.advance_others(state, &spans, from, to),
        }
    }

    /// The state of a window is the same under every limit; the open one may keep its limit to its
    /// end.
    fn advance_window(
        &self,
        (mut state, now): (AnyState, Timestamp),
        spans: &KeySpans<'_>,
        from: Position,
        to: Position,
    ) -> Current {
        let is_open = |state: &AnyState, now: Timestamp| match state {
            AnyState::Window(window) => window.used > 0 && now.as_nanos() < window.ends_ns,
            _ => false,
        };
        let (mut position, mut is_waiting) = (from, false);
        let mut newest = spans.at(from).span;
        for (next, moment) in self.changes(from, to) {
            if self.is_back_too_late(next) {
                state = spans.at(next).limit.fresh(Period { index: 0, ends: None });
            }
            let span = spans.at(next).span;
            let is_changed = std::mem::replace(&mut newest, span) != span;
            is_waiting &= is_open(&state, moment.now);
            if is_changed && self.waits_for_window(next) && is_open(&state, moment.now) {
                is_waiting = true;
            } else if is_changed || !is_waiting {
                (position, is_waiting) = (next, false);
            }
        }
        if !is_open(&state, now) {
            position = to;
        }
        let limit = *spans.at(position).limit;
        Current { tag: self.tag(position), limit, state, stuck: None }
    }

    /// Quotas count by periods: each is closed under the limit that was in force then.
    fn advance_quota(
        &self,
        mut state: QuotaState,
        spans: &KeySpans<'_>,
        from: Position,
        to: Position,
    ) -> Current {
        let mut limit = *spans.at(from).limit;
        for (position, moment) in self.changes(from, to) {
            let version = &self.versions[position.version];
            if let AnyLimit::Quota(quota) = limit {
                state = quota.current(&state, Period { index: moment.period, ends: None });
            }
            limit = *spans.at(position).limit;
            if self.is_back_too_late(position) {
                let period = Period { index: version.period, ends: None };
                if let AnyLimit::Quota(quota) = limit {
                    let QuotaState { held, held_from, .. } = state;
                    state = QuotaState { held, held_from, ..quota.fresh(period) };
                }
            } else if position.stage == 0 && !self.before(position).has_cycle_of(version) {
                // Periods of another calendar have other numbers.
                state.held_from = version.renumbered(state.held_from);
                state.period = version.period;
            }
        }
        Current { tag: self.tag(to), limit, state: AnyState::Quota(state), stuck: None }
    }

    fn advance_others(
        &self,
        mut state: AnyState,
        spans: &KeySpans<'_>,
        from: Position,
        to: Position,
    ) -> Current {
        let mut in_force = spans.at(from);
        let mut limit = *in_force.limit;
        let mut last = Timestamp::ZERO;
        let mut stuck: Option<(Position, AnyState, Stuck)> = None;
        for (position, moment) in self.changes(from, to) {
            if self.is_back_too_late(position) {
                in_force = spans.at(position);
                (limit, stuck) = (*in_force.limit, None);
                state = limit.fresh(Period { index: 0, ends: None }).with_held(state.held());
                continue;
            }
            let next = spans.at(position);
            if next.span == in_force.span {
                continue;
            }
            let at = moment.now.max(last);
            if let Some((_, _, Stuck { limit: unable, since })) = &mut stuck {
                state = limit.refilled_by(unable, &state, (*since, at));
                *since = at;
            }
            if next.limit.can_take_over(&limit, &state, at) {
                let edited = DecisionTime { now: at, period: Period { index: 0, ends: None } };
                state = next.limit.carry_over(&limit, &state, edited);
                (limit, stuck) = (*next.limit, None);
            } else {
                let (before, kept, since) = match stuck {
                    Some((before, kept, Stuck { since, .. })) => (before, kept, since),
                    None => (self.previous(position), state, at),
                };
                stuck = Some((before, kept, Stuck { limit: *next.limit, since }));
            }
            (in_force, last) = (next, at);
        }
        match stuck {
            None => Current { tag: self.tag(to), limit, state, stuck: None },
            // Written as it was, it can be advanced again.
            Some((position, kept, at)) => {
                Current { tag: self.tag(position), limit, state: kept, stuck: Some(at) }
            }
        }
    }

    /// The number that the newest version has for a period of an earlier one.
    pub(crate) fn period_since(&self, tag: u32, period: u64) -> u64 {
        let first = self.locate(tag).version;
        let pairs = self.versions[first..].iter().zip(&self.versions[first + 1..]);
        pairs.fold(period, |period, (before, version)| {
            if before.has_cycle_of(version) { period } else { version.renumbered(period) }
        })
    }

    /// When the first change after a position came, up to another one.
    pub(crate) fn first_change(&self, after: u32, to: u32) -> Option<Timestamp> {
        let changes = self.changes(self.locate(after), self.locate(to));
        changes.map(|(_, moment)| moment.now).next()
    }

    /// The changes after one position, up to another, and when they came.
    fn changes(&self, from: Position, to: Position) -> impl Iterator<Item = (Position, Moment)> {
        (from.version..=to.version).flat_map(move |version| {
            let first = if version == from.version { from.stage + 1 } else { 0 };
            let last = if version == to.version { to.stage } else { self.last_stage(version) };
            (first..=last).map(move |stage| {
                let position = Position { version, stage };
                (position, self.moment(position))
            })
        })
    }

    /// How many changes came by themselves before the next edit.
    fn last_stage(&self, version: usize) -> u32 {
        let (it, next) = (&self.versions[version], &self.versions[version + 1]);
        it.stage_at(next.at.wall, next.period_before)
    }

    /// When a change came, and in which period.
    fn moment(&self, position: Position) -> Moment {
        let version = &self.versions[position.version];
        let Some(stage) = position.stage.checked_sub(1) else {
            return Moment { now: version.at.now, period: version.period_before };
        };
        let (before, after) = (version.passed(stage), version.passed(position.stage));
        match (after.is_next_period != before.is_next_period, version.waits_for) {
            // The period of the edit is the last one of the old limit. Only quotas wait, and they
            // count by periods alone.
            (true, Some(last)) => Moment { now: Timestamp::ZERO, period: last.saturating_add(1) },
            _ => {
                let end = &version.ends[before.ends];
                Moment { now: end.at.now, period: version.period_of(end) }
            }
        }
    }

    fn before(&self, position: Position) -> &Version {
        &self.versions[position.version.saturating_sub(1)]
    }

    /// The position before another one.
    fn previous(&self, position: Position) -> Position {
        match (position.stage.checked_sub(1), position.version.checked_sub(1)) {
            (Some(stage), _) => Position { stage, ..position },
            (None, Some(version)) => Position { version, stage: self.last_stage(version) },
            (None, None) => position,
        }
    }

    /// Whether a rule is back there after it was gone for so long that its states were dropped.
    fn is_back_too_late(&self, position: Position) -> bool {
        let (version, before) = (&self.versions[position.version], self.before(position));
        position.stage == 0
            && before.is_removed
            && !version.is_removed
            && version.at.now >= before.at.now.saturating_add(REMOVED_FOR)
    }

    /// Whether a change waits for the end of a key's open window.
    fn waits_for_window(&self, position: Position) -> bool {
        let version = &self.versions[position.version];
        position.stage == 0 && version.effective == Effective::Next
    }
}
