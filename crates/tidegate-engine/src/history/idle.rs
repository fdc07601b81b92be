//! Whether a state is as good as a fresh one, so that its slot may be reused.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Carry, Period, QuotaState, Timestamp};

use super::{History, KeyRef, REMOVED_FOR, RuleHistory, StoredState, Version};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime, NO_PERIOD};
use crate::periods::Times;

impl History {
    /// Whether a state is as good as fresh from `now` on. `ends` is when its period ends, if it has
    /// one.
    ///
    /// Only the hash of the key is known here, so patterns of overrides may match it or not: then
    /// the slowest limit counts.
    pub(crate) fn is_idle(
        &self,
        stored: StoredState,
        hash: u64,
        now: Timestamp,
        ends: Timestamp,
    ) -> bool {
        self.rule_of(stored.tag).is_none_or(|rule| rule.is_idle(stored, hash, now, ends))
    }
}

impl RuleHistory {
    /// Whether a state of this rule is as good as fresh from `now` on.
    fn is_idle(&self, stored: StoredState, hash: u64, now: Timestamp, ends: Timestamp) -> bool {
        if self.is_gone_at(now) {
            return true;
        }
        match stored.state {
            AnyState::Quota(state) => {
                let is_over = self.is_over(stored.tag, state.period, now, ends);
                let is_used = state.used > 0 && !is_over;
                !self.may_carry() && !is_used && state.held == 0 && !self.owes(&state, is_over)
            }
            AnyState::Window(state) => {
                state.held == 0 && (state.used == 0 || state.ends_ns <= now.as_nanos())
            }
            state if self.cut_tag(stored.tag).is_some() => self.is_idle_since_cut(&state, now),
            _ if self.has_patterns() => self.is_idle_by_any_limit(stored, now),
            _ => {
                let key = KeyRef { hash, meets: &|_| false };
                let current = self.advance(stored, key, self.tag_by_clock(now), now);
                current.stuck.is_none() && current.limit.is_idle(&current.state, now)
            }
        }
    }
}

impl History {
    /// How long from now a state may be needed: the first of 1, 2, 4, … seconds after which it is
    /// as good as a fresh one. `None` if it may be needed for good.
    pub(crate) fn needed_for(
        &self,
        stored: StoredState,
        hash: u64,
        times: Times,
    ) -> Option<Duration> {
        let rule = self.rule_of(stored.tag)?;
        let ends = rule.newest().decided_at(times).period.ends;
        let ends = ends.unwrap_or(Timestamp::from_nanos(u64::MAX));
        let is_fresh_after =
            |after: &Duration| rule.is_idle(stored, hash, times.now.saturating_add(*after), ends);
        (0..POWERS).map(|power| Duration::from_secs(1 << power)).find(is_fresh_after)
    }
}

impl Version {
    fn is_round_over(&self, round: u64) -> bool {
        self.periods.as_deref().and_then(|periods| periods.round()).is_some_and(|open| round < open)
    }
}

impl RuleHistory {
    /// Whether a period is over. `ends` is when it was to end, as the calendar was then.
    fn is_over(&self, tag: u32, period: u64, now: Timestamp, ends: Timestamp) -> bool {
        let newest = self.newest();
        let since = &self.versions[self.locate(tag).version..];
        if since.iter().zip(&since[1..]).all(|(before, after)| before.has_periods_of(after)) {
            return ends <= now || newest.is_round_over(period);
        }
        // Under another calendar it is another period.
        let open = newest.decided_at(newest.at.at(now)).period.index;
        self.renumbered(tag, period, newest.tag) < open
    }

    /// Whether the rule has been gone for so long that its states are dropped.
    pub(crate) fn is_gone_at(&self, now: Timestamp) -> bool {
        let newest = self.newest();
        newest.is_removed && newest.at.now.saturating_add(REMOVED_FOR) <= now
    }

    /// Whether some key of a quota may carry units over.
    fn may_carry(&self) -> bool {
        let carries = |limit: &AnyLimit| match limit {
            AnyLimit::Quota(quota) => quota.carry() != Carry::Nothing,
            _ => false,
        };
        self.limits().any(carries)
    }

    /// Whether a quota is in debt, or stays so when its period closes.
    ///
    /// How many periods have closed is not known here: a larger debt is kept until a request finds
    /// it paid.
    fn owes(&self, state: &QuotaState, is_over: bool) -> bool {
        let after = Period { index: state.period.saturating_add(1), ends: None };
        let is_left = |limit: &AnyLimit| match limit {
            AnyLimit::Quota(quota) => quota.current(state, after).debt > 0,
            _ => false,
        };
        state.debt > 0 && (!is_over || self.limits().any(is_left))
    }

    pub(crate) fn limits(&self) -> impl Iterator<Item = &AnyLimit> {
        self.spans.iter().filter_map(|span| span.limit.as_ref())
    }

    /// The position at a time of the clock.
    fn tag_by_clock(&self, now: Timestamp) -> u32 {
        let newest = self.newest();
        let ended = newest.ends.iter().filter(|end| end.at.now <= now).count();
        newest.tag + u32::try_from(ended).unwrap_or(0)
    }

    /// Whether a state whose version was dropped is idle, whatever limits it counts under.
    fn is_idle_since_cut(&self, state: &AnyState, now: Timestamp) -> bool {
        let Some(next) = self.versions.get(1) else { return false };
        self.limits()
            .all(|limit| limit.is_idle(&limit.fully_used(state, next.at.now, next.period), now))
    }

    /// Whether a state is idle whatever limits it counted under.
    fn is_idle_by_any_limit(&self, stored: StoredState, now: Timestamp) -> bool {
        let is_newest = stored.tag == self.tag_by_clock(now);
        if is_newest || !stored.state.falls_gradually() {
            return self.limits().all(|limit| limit.is_idle(&stored.state, now));
        }
        let changed = self.versions[self.locate(stored.tag).version..].iter();
        let changed = changed.skip(1).map(|version| version.at.now).min();
        changed.is_some_and(|changed| self.is_idle_since(&stored.state, changed, now))
    }

    /// Whether a bucket or a sliding window is idle, whatever limits it counted under until a
    /// change, and has counted under since: the slowest of them is the worst case.
    fn is_idle_since(&self, state: &AnyState, changed: Timestamp, now: Timestamp) -> bool {
        let mut limits: SmallVec<[&AnyLimit; MOST_LIMITS]> = SmallVec::new();
        for limit in self.limits() {
            if !limits.contains(&limit) {
                limits.push(limit);
            }
            if limits.len() > MOST_LIMITS {
                return false;
            }
        }
        let at = DecisionTime { now: changed.min(now), period: NO_PERIOD };
        let just_before = Timestamp::from_nanos(at.now.as_nanos().saturating_sub(1));
        limits.iter().all(|before| {
            let state = before.current(state, just_before);
            limits.iter().all(|since| {
                since.can_take_over(before, &state, at.now)
                    && since.is_idle(&since.carry_over(before, &state, at), now)
            })
        })
    }
}

/// So many powers of two are tried, in seconds: up to two years.
const POWERS: u32 = 27;

/// With more limits than this, a slot stays until its key comes again.
const MOST_LIMITS: usize = 16;
