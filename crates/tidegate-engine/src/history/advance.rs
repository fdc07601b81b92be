//! A state as of now: everything that has happened since it was written, applied in order.

use tidegate_core::{Period, QuotaState, Timestamp};
use tidegate_policy::policy::Effective;

use super::{
    InForce, KeyLimits, KeyRef, Moment, Phase, Position, REMOVED_FOR, RuleHistory, Version,
};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime, NO_PERIOD};

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
    /// The state then, in the units of the last limit that could express it.
    pub(crate) state: AnyState,
    /// When that limit ended.
    pub(crate) kept_at: Timestamp,
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
        let limits = self.limits_of(key);
        let mut stored = stored;
        if self.cut_tag(stored.tag).is_some() && to.version > 0 {
            from = Position { version: 1, stage: 0 };
            let next = &self.versions[1];
            let limit = limits.at(from).limit;
            stored.state = limit.fully_used(&stored.state, next.at.now, next.period);
        }
        match stored.state {
            AnyState::Window(_) => self.advance_window(stored.state, now, &limits, from, to),
            AnyState::Quota(state) => self.advance_quota(state, &limits, from, to),
            state => self.advance_others(state, &limits, from, to),
        }
    }

    /// The state of a window is the same under every limit; the open one may keep its limit to its
    /// end.
    fn advance_window(
        &self,
        mut state: AnyState,
        now: Timestamp,
        limits: &KeyLimits<'_>,
        from: Position,
        to: Position,
    ) -> Current {
        let is_open = |state: &AnyState, now: Timestamp| match state {
            AnyState::Window(window) => window.used > 0 && now.as_nanos() < window.ends_ns,
            _ => false,
        };
        let mut position = from;
        let mut phase = Phase { version: from.version, waiting: None };
        let mut in_force = limits.of_version(from.version, self.wall_at(from));
        for (next, moment) in self.changes(from, to) {
            let version = next.version;
            if self.is_back_too_late(next) {
                state = limits.of_version(version, self.wall_at(next)).limit.fresh(NO_PERIOD);
            }
            if !is_open(&state, moment.now) {
                phase.stop_waiting();
            }
            if next.stage == 0 {
                let waits = self.versions[version].effective == Effective::Next
                    && is_open(&state, moment.now);
                let goes_on = phase.waiting.is_some() && !limits.is_changed(phase, version);
                if !self.is_return(next) && (waits || goes_on) {
                    phase.waiting = Some(version);
                } else {
                    phase = Phase { version, waiting: None };
                }
            }
            let after = limits.of_version(phase.version, self.wall_at(next));
            if !after.is_same(in_force) {
                forget_end_of_hold(&mut state, after.limit, moment.now);
            }
            in_force = after;
            // While it waits, it is written where it was: so it can be advanced again.
            if phase.waiting.is_none() {
                position = next;
            }
        }
        if !is_open(&state, now) {
            phase.stop_waiting();
            position = to;
        }
        let limit = *limits.of_version(phase.version, self.wall_at(to)).limit;
        Current { tag: self.tag(position), limit, state, stuck: None }
    }

    /// Quotas count by periods: each is closed under the limit that was in force then.
    fn advance_quota(
        &self,
        mut state: QuotaState,
        limits: &KeyLimits<'_>,
        from: Position,
        to: Position,
    ) -> Current {
        let mut phase = limits.phase_at(from);
        let mut limit = *limits.of_version(phase.version, self.wall_at(from)).limit;
        for (position, moment) in self.changes(from, to) {
            let version = &self.versions[position.version];
            if let AnyLimit::Quota(quota) = limit {
                state = quota.current(&state, Period { index: moment.period, ends: None });
            }
            if position.stage == 0 {
                limits.edit(&mut phase, position.version);
            } else if version.passed(position.stage).is_next_period {
                phase.stop_waiting();
            }
            limit = *limits.of_version(phase.version, self.wall_at(position)).limit;
            if self.is_back_too_late(position) {
                let period = Period { index: version.period, ends: None };
                if let AnyLimit::Quota(quota) = limit {
                    let QuotaState { held, held_from, .. } = state;
                    state = QuotaState { held, held_from, ..quota.fresh(period) };
                }
            } else if position.stage == 0 && !self.before(position).has_periods_of(version) {
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
        limits: &KeyLimits<'_>,
        from: Position,
        to: Position,
    ) -> Current {
        let in_force_at = |at: Position| limits.of_version(at.version, self.wall_at(at));
        let mut in_force = in_force_at(from);
        let mut limit = *in_force.limit;
        if from == to {
            return Current { tag: self.tag(to), limit, state, stuck: None };
        }
        let mut last = self.last_change(from, in_force_at);
        let mut stuck: Option<(Position, AnyState, Stuck)> = None;
        let mut changes = self.changes(from, to).peekable();
        while let Some((position, moment)) = changes.next() {
            let is_for_an_instant = changes.peek().is_some_and(|(_, next)| next.now <= moment.now);
            if self.is_back_too_late(position) {
                in_force = in_force_at(position);
                (limit, stuck) = (*in_force.limit, None);
                state = limit.fresh(NO_PERIOD).with_held(state.held());
                continue;
            }
            let next = in_force_at(position);
            // What was in force for no time has changed nothing: there and back is the identity.
            if next.is_same(in_force) || is_for_an_instant {
                continue;
            }
            let at = moment.now.max(last);
            if at > last {
                // What has left a sliding window does not come back when it becomes longer.
                let before = Timestamp::from_nanos(at.as_nanos() - 1);
                state = limit.current(&state, before);
            }
            if let Some((_, _, Stuck { limit: unable, since, .. })) = &stuck {
                state = limit.refilled_by(unable, &state, *since, at);
            }
            if next.limit.can_take_over(&limit, &state, at) {
                let edited = DecisionTime { now: at, period: NO_PERIOD };
                state = next.limit.carry_over(&limit, &state, edited);
                (limit, stuck) = (*next.limit, None);
            } else {
                let (before, kept, kept_at) = match stuck {
                    Some((before, kept, Stuck { kept_at, .. })) => (before, kept, kept_at),
                    None => (self.previous(position), state, at),
                };
                let stuck_now = Stuck { limit: *next.limit, since: at, state, kept_at };
                stuck = Some((before, kept, stuck_now));
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

    /// The number that a version has for a period of an earlier one.
    pub(crate) fn renumbered(&self, tag: u32, period: u64, to: u32) -> u64 {
        let (first, last) = (self.locate(tag).version, self.locate(to).version);
        let versions = &self.versions[first..=last.max(first)];
        let pairs = versions.iter().zip(&versions[1..]);
        pairs.fold(period, |period, (before, version)| {
            if before.has_periods_of(version) { period } else { version.renumbered(period) }
        })
    }

    /// When the limit of a key changed at a position, if it did; else some time before.
    fn last_change<'a>(
        &self,
        mut position: Position,
        in_force_at: impl Fn(Position) -> InForce<'a>,
    ) -> Timestamp {
        let at = self.moment(position).now;
        let in_force = in_force_at(position);
        while self.moment(position).now == at {
            let before = self.previous(position);
            if before == position {
                break;
            }
            if !in_force_at(before).is_same(in_force) {
                return at;
            }
            position = before;
        }
        Timestamp::ZERO
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
    pub(super) fn last_stage(&self, version: usize) -> u32 {
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

    /// Whether a rule that was gone is back there.
    fn is_return(&self, position: Position) -> bool {
        let (version, before) = (&self.versions[position.version], self.before(position));
        position.stage == 0 && before.is_removed && !version.is_removed
    }

    /// The same, after it was gone for so long that its states were dropped.
    fn is_back_too_late(&self, position: Position) -> bool {
        let (version, before) = (&self.versions[position.version], self.before(position));
        let dropped = before.at.now.saturating_add(REMOVED_FOR);
        self.is_return(position) && version.at.now >= dropped
    }
}

/// Units on hold alone open no window, so none keeps its end under another limit.
fn forget_end_of_hold(state: &mut AnyState, limit: &AnyLimit, now: Timestamp) {
    if let (AnyState::Window(state), AnyLimit::Window(limit)) = (state, limit)
        && state.used == 0
    {
        state.ends_ns = state.ends_ns.min(limit.end_of_window_at(now));
    }
}
