//! The limits that states count under, by number, with their successors.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_core::{Period, Timestamp};

use crate::any_limit::{AnyCharge, AnyLimit, AnyState, DecisionTime, NO_PERIOD};
use crate::cycle::{CycleClock, Times};
#[cfg(feature = "durable")]
use crate::policy::Cycle;
use crate::policy::Effective;
use crate::store::{Adoption, Charge};

/// Every limit that some state may count under.
#[derive(Debug, Default)]
pub(crate) struct LimitRegistry {
    known: HashMap<u32, KnownLimit>,
}

#[derive(Clone, Debug)]
struct KnownLimit {
    family: u64,
    limit: AnyLimit,
    cycle: Option<Arc<CycleClock>>,
    /// When it took effect.
    since: DecisionTime,
    /// When it expires.
    until: Option<Times>,
    /// The limit after that.
    common: Option<u32>,
    override_id: Option<OverrideId>,
    successor: Option<Successor>,
    /// Whether its rule is gone, so that its states are no longer used.
    is_removed: bool,
    /// Whether more than its numbers is known.
    is_whole: bool,
}

/// The override of a rule that a limit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverrideId {
    /// A hash of its key conditions.
    pub(crate) key: u64,
    /// Its index among the overrides of the rule.
    pub(crate) index: u32,
}

/// The limit that follows another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Successor {
    pub(crate) tag: u32,
    /// When the edit was made, in the periods of the limit that it ended.
    pub(crate) at: DecisionTime,
    /// The same in the periods of the successor.
    pub(crate) period_after: u64,
    pub(crate) effective: Effective,
}

/// Everything about a limit, for a file store.
#[cfg(feature = "durable")]
#[derive(Clone, Debug)]
pub(crate) struct LimitImage {
    pub(crate) tag: u32,
    pub(crate) family: u64,
    pub(crate) limit: AnyLimit,
    /// The cycle of a quota, and the domain whose rounds it counts, if any.
    pub(crate) cycle: Option<(Cycle, Box<str>)>,
    pub(crate) since: DecisionTime,
    pub(crate) until: Option<Times>,
    pub(crate) common: Option<u32>,
    pub(crate) override_id: Option<OverrideId>,
    pub(crate) successor: Option<Successor>,
    pub(crate) is_removed: bool,
}

/// A limit that takes effect.
#[derive(Clone, Debug)]
pub(crate) struct NewLimit {
    pub(crate) tag: u32,
    pub(crate) family: u64,
    pub(crate) limit: AnyLimit,
    pub(crate) cycle: Option<Arc<CycleClock>>,
    /// When it expires, by the time of day.
    pub(crate) until: Option<Timestamp>,
    /// The limit of its rule, where it is an override.
    pub(crate) common: Option<u32>,
    pub(crate) override_id: Option<OverrideId>,
}

/// A limit that ends, and its successor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Succession {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) effective: Effective,
    /// The period in which the edit was made.
    pub(crate) period: u64,
}

/// A state, with the limit that it counts under from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigratedState {
    pub(crate) tag: u32,
    pub(crate) limit: AnyLimit,
    pub(crate) state: AnyState,
}

/// A limit from before the restart.
#[derive(Clone, Debug)]
pub struct RestoredLimit {
    pub(crate) tag: u32,
    pub(crate) family: u64,
    pub(crate) limit: AnyLimit,
    pub(crate) cycle: Option<Arc<CycleClock>>,
    pub(crate) successor: Option<Successor>,
    /// The override it belongs to, where it is in force for one.
    pub(crate) override_id: Option<OverrideId>,
    /// When it expires, by the time of day.
    pub(crate) until: Option<Timestamp>,
    /// Whether it is known to be its rule's last limit, for keys without an override.
    pub(crate) is_base: bool,
}

impl RestoredLimit {
    /// A limit of which nothing else is known.
    pub(crate) const fn alone(tag: u32, family: u64, limit: AnyLimit) -> Self {
        let (cycle, successor, override_id, until) = (None, None, None, None);
        Self { tag, family, limit, cycle, successor, override_id, until, is_base: false }
    }
}

impl LimitRegistry {
    /// What is needed to restore the states later.
    pub(crate) fn restorable(&self) -> Vec<RestoredLimit> {
        let restored = |(tag, it): (&u32, &KnownLimit)| RestoredLimit {
            tag: *tag,
            family: it.family,
            limit: it.limit,
            cycle: it.cycle.clone(),
            successor: it.successor,
            override_id: it.override_id.filter(|_| !it.is_past()),
            until: it.until.map(|until| until.wall),
            is_base: it.is_whole && !it.is_past() && it.common.is_none(),
        };
        self.known.iter().map(restored).collect()
    }

    /// Restores limits.
    pub(crate) fn restore(&mut self, limits: Vec<RestoredLimit>) {
        let since = DecisionTime { now: Timestamp::ZERO, period: NO_PERIOD };
        for RestoredLimit { tag, family, limit, .. } in limits {
            self.known.insert(
                tag,
                KnownLimit {
                    family,
                    limit,
                    cycle: None,
                    since,
                    until: None,
                    common: None,
                    override_id: None,
                    successor: None,
                    is_removed: false,
                    is_whole: false,
                },
            );
        }
    }

    /// Adds new limits and the successors of old ones, from `at` on. Returns which have changed.
    pub(crate) fn adopt(&mut self, adoption: &Adoption, at: Times) -> Vec<u32> {
        let mut changed = self.revive(adoption, at);
        changed.extend(adoption.limits.iter().map(|limit| limit.tag));
        changed.extend(adoption.successions.iter().map(|succession| succession.from));
        changed.extend(&adoption.removed);
        for limit in &adoption.limits {
            let until = limit.until.map(|wall| Times { now: at.by_the_clock(wall), wall });
            self.known.entry(limit.tag).or_insert_with(|| KnownLimit {
                family: limit.family,
                limit: limit.limit,
                cycle: limit.cycle.clone(),
                since: decision_time(limit.cycle.as_deref(), at),
                until,
                common: limit.common,
                override_id: limit.override_id,
                successor: None,
                is_removed: false,
                is_whole: true,
            });
        }
        for succession in &adoption.successions {
            let Succession { from, to: tag, effective, period } = *succession;
            let period_after = self.known.get(&tag).map_or(0, |to| to.decided_at(at).period.index);
            if let Some(known) = self.known.get_mut(&from) {
                let at = match effective {
                    Effective::Now => known.decided_at(at),
                    // In the period in which the rules were made.
                    Effective::Next => known.decided_at(at).in_period(period),
                };
                let new = Successor { tag, at, period_after, effective };
                match &mut known.successor {
                    // An edit that applies at once precedes one that still waits.
                    Some(old)
                        if old.effective == Effective::Next && effective == Effective::Now =>
                    {
                        *old = new;
                    }
                    Some(_) => {}
                    None => known.successor = Some(new),
                }
            }
        }
        for tag in &adoption.removed {
            if let Some(known) = self.known.get_mut(tag) {
                known.is_removed = true;
            }
        }
        changed
    }

    /// Moves states of a rule that was removed and is back to its new limit.
    fn revive(&mut self, adoption: &Adoption, at: Times) -> Vec<u32> {
        let mut back = Vec::new();
        if !self.known.values().any(|known| known.is_removed) {
            return back;
        }
        for limit in adoption.limits.iter().filter(|limit| limit.common.is_none()) {
            let is_back = |(_, known): &(&u32, &mut KnownLimit)| {
                known.is_removed && known.family == limit.family
            };
            for (gone, known) in self.known.iter_mut().filter(is_back) {
                back.push(*gone);
                let (tag, effective, at) = (limit.tag, Effective::Now, known.decided_at(at));
                let period_after = at.period.index;
                known.is_removed = false;
                known.successor.get_or_insert(Successor { tag, at, period_after, effective });
            }
        }
        back
    }

    /// Whether the rule of a limit is gone.
    pub(crate) fn is_removed(&self, tag: u32) -> bool {
        self.known.get(&tag).is_some_and(|known| known.is_removed)
    }

    /// How many limits are no longer in force.
    pub(crate) fn superseded(&self) -> usize {
        self.known.values().filter(|known| known.is_past()).count()
    }

    /// Forgets limits that no state counts under, nor on the way to the one in force.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        let is_kept =
            |(tag, known): (&u32, &KnownLimit)| (!known.is_past() || keep(*tag)).then_some(*tag);
        let mut to_see: Vec<u32> = self.known.iter().filter_map(is_kept).collect();
        let mut kept: HashSet<u32> = to_see.iter().copied().collect();
        while let Some(known) = to_see.pop().and_then(|tag| self.known.get(&tag)) {
            let next = known.successor.map(|successor| successor.tag);
            to_see.extend(next.into_iter().chain(known.common).filter(|&tag| kept.insert(tag)));
        }
        self.known.retain(|tag, _| kept.contains(tag));
    }

    /// A state as of now, under the successor of the limit it was counted under.
    ///
    /// Each edit applies at its own time, so that nothing is refilled at a rate that was not in
    /// force.
    ///
    /// `period` is the number of the quota's current period, if it is known.
    pub(crate) fn current(
        &self,
        carried: MigratedState,
        now: Timestamp,
        period: Option<u64>,
    ) -> MigratedState {
        self.follow(carried, now, period).0
    }

    /// [`current`](Self::current), and when the last change applied.
    fn follow(
        &self,
        mut carried: MigratedState,
        now: Timestamp,
        period: Option<u64>,
    ) -> (MigratedState, DecisionTime) {
        let mut last = DecisionTime { now: Timestamp::ZERO, period: NO_PERIOD };
        while let Some(known) = self.known.get(&carried.tag) {
            let successor = known.successor.filter(|it| self.known.contains_key(&it.tag));
            let ended = known.until.filter(|until| {
                until.now <= now && successor.is_none_or(|successor| until.now < successor.at.now)
            });
            if let (Some(until), Some(common)) = (ended, known.common)
                && let Some(next) = self.known.get(&common)
            {
                last = known.decided_at(until).no_earlier_than(last);
                carried = next.take_over(common, known, &carried, last);
                continue;
            }
            let Some(successor) = successor else { break };
            let Some(next) = self.known.get(&successor.tag) else { break };
            let mut edited = successor.at;
            if successor.effective == Effective::Next {
                // The period of the edit is the last one of the old limit.
                let is_last = period.is_none_or(|period| period <= edited.period.index);
                let is_last = is_last && self.has_its_cycle_to_the_end(known);
                if carried.is_window_open(now) || (known.cycle.is_some() && is_last) {
                    break;
                }
                edited = edited.in_period(edited.period.index.saturating_add(1));
            }
            last = edited.no_earlier_than(last);
            carried = next.take_over(successor.tag, known, &carried, last);
            if let (AnyState::Quota(state), false) = (&mut carried.state, next.has_cycle_of(known))
            {
                // Periods of another calendar have other numbers.
                let since_hold = state.period.saturating_sub(state.held_from);
                state.held_from = successor.period_after.saturating_sub(since_hold);
                state.period = successor.period_after;
                last = last.in_period(successor.period_after);
            }
        }
        (carried, last)
    }

    /// Whether the successors count the same periods.
    fn has_its_cycle_to_the_end(&self, known: &KnownLimit) -> bool {
        let mut last = known;
        while let Some(next) = last.successor.and_then(|next| self.known.get(&next.tag)) {
            last = next;
        }
        last.has_cycle_of(known)
    }

    /// A state as the charge finds it: under the charge's own limit, or under an older one that is
    /// still in force for the open window.
    pub(crate) fn carry(
        &self,
        tag: u32,
        state: AnyState,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> MigratedState {
        let Some(known) = self.known.get(&tag) else {
            // Only a state from elsewhere has an unknown number.
            return MigratedState { tag: charge.tag, limit: *charge.limit, state };
        };
        let carried = MigratedState { tag, limit: known.limit, state };
        let (carried, last) = self.follow(carried, now, Some(charge.period.index));
        if carried.tag == charge.tag || carried.is_waiting_for_next(self) {
            return carried;
        }
        // Both are in force: the key has moved to an override, or to another one.
        let from = self.known.get(&carried.tag).unwrap_or(known);
        let since = self.known.get(&charge.tag).map_or(from.since, |to| to.since);
        let at = since.no_earlier_than(last);
        let state = charge.limit.carry_over(&carried.limit, &carried.state, at);
        MigratedState { tag: charge.tag, limit: *charge.limit, state }
    }

    /// A limit, and the period that it, or its last successor, is in.
    pub(crate) fn get(&self, tag: u32, times: Times) -> Option<(AnyLimit, DecisionTime)> {
        let mut known = self.known.get(&tag)?;
        let limit = known.limit;
        while let Some(next) = known.successor.and_then(|next| self.known.get(&next.tag)) {
            known = next;
        }
        Some((limit, known.decided_at(times)))
    }

    /// Whether the round with this number is closed, where a limit or its last successor counts
    /// rounds.
    pub(crate) fn is_round_over(&self, tag: u32, round: u64) -> bool {
        let mut known = self.known.get(&tag);
        while let Some(next) = known.and_then(|it| it.successor) {
            known = self.known.get(&next.tag);
        }
        let cycle = known.and_then(|known| known.cycle.as_deref());
        cycle.and_then(CycleClock::round).is_some_and(|now| round < now)
    }

    /// Whether a state is as good as fresh.
    pub(crate) fn is_idle(&self, carried: MigratedState, since: Timestamp) -> bool {
        let current = self.current(carried, since, None);
        current.limit.is_idle(&current.state, since)
    }

    /// Whether a quota without carry is in debt, or stays so when its period closes.
    ///
    /// How many periods have closed is not known here: a larger debt is kept until a request finds
    /// it paid.
    pub(crate) fn owes(&self, carried: MigratedState, since: Timestamp, is_over: bool) -> bool {
        let MigratedState { limit, state, .. } = self.current(carried, since, None);
        match (limit, state) {
            (AnyLimit::Quota(limit), AnyState::Quota(state)) if is_over => {
                let index = state.period.saturating_add(1);
                limit.current(&state, Period { index, ends: None }).debt > 0
            }
            (_, AnyState::Quota(state)) => state.debt > 0,
            _ => false,
        }
    }

    /// Whether a quota carries unused units over, or does so since a later edit.
    pub(crate) fn carries(&self, tag: u32) -> bool {
        let Some(known) = self.known.get(&tag) else { return false };
        // An override that ends leads to the common limit; no limit follows itself.
        let next = known.successor.map(|successor| successor.tag).into_iter().chain(known.common);
        known.limit.knows_from_first_request() || next.into_iter().any(|tag| self.carries(tag))
    }

    pub(crate) fn limit(&self, tag: u32) -> Option<AnyLimit> {
        self.known.get(&tag).map(|known| known.limit)
    }
}

/// What a file store needs.
#[cfg(feature = "durable")]
impl LimitRegistry {
    /// Everything about a limit.
    pub(crate) fn image(&self, tag: u32) -> Option<LimitImage> {
        let known = self.known.get(&tag)?;
        Some(LimitImage {
            tag,
            family: known.family,
            limit: known.limit,
            cycle: known.cycle.as_ref().map(|cycle| cycle.describe()),
            since: known.since,
            until: known.until,
            common: known.common,
            override_id: known.override_id,
            successor: known.successor,
            is_removed: known.is_removed,
        })
    }

    /// All limits.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// Restores everything about a limit.
    pub(crate) fn restore_whole(&mut self, image: LimitImage, cycle: Option<Arc<CycleClock>>) {
        let known = KnownLimit {
            family: image.family,
            limit: image.limit,
            cycle,
            since: image.since,
            until: image.until,
            common: image.common,
            override_id: image.override_id,
            successor: image.successor,
            is_removed: image.is_removed,
            is_whole: true,
        };
        self.known.insert(image.tag, known);
    }

    /// Whether some limit is its own successor, directly or not: no edit makes that.
    pub(crate) fn has_cycle(&self) -> bool {
        let mut good: HashSet<u32> = HashSet::new();
        for tag in self.known.keys() {
            let (mut path, mut next) = (Vec::new(), Some(*tag));
            while let Some(tag) = next.filter(|tag| !good.contains(tag)) {
                if path.contains(&tag) {
                    return true;
                }
                path.push(tag);
                let known = self.known.get(&tag);
                let follows = known.and_then(|it| it.successor).map(|it| it.tag);
                next = follows.or_else(|| known.and_then(|it| it.common));
            }
            good.extend(path);
        }
        false
    }
}

impl MigratedState {
    /// Refunds up to `units` of the charge that left this state, from the state of its key.
    /// `outstanding` are the units of the charge that were not refunded yet.
    pub(crate) fn refund(
        &mut self,
        limit: &AnyLimit,
        state: &mut AnyState,
        (units, outstanding): (u64, &mut u64),
        at: DecisionTime,
    ) -> u64 {
        let units = units.min(*outstanding);
        let mut charge = AnyCharge { state: self.state, units: *outstanding };
        let is_quota = matches!((limit, self.limit), (AnyLimit::Quota(_), AnyLimit::Quota(_)));
        // Equal buckets may count in different ticks; their words tell. Quotas count in units.
        if is_quota || self.limit.to_words() == limit.to_words() {
            let refunded = limit.refund_charge(state, &mut charge, units, at);
            (self.state, *outstanding) = (charge.state, charge.units);
            return refunded;
        }
        // The key has come under another limit since.
        let most = self.limit.refund(&mut self.state.clone(), units, at);
        let refunded = limit.refund(state, units.min(most), at);
        self.limit.refund(&mut self.state, refunded, at);
        *outstanding -= refunded.min(*outstanding);
        refunded
    }

    /// Whether something was charged to a window that has not ended.
    fn is_window_open(&self, now: Timestamp) -> bool {
        match self.state {
            AnyState::Window(_) => !self.limit.is_idle(&self.state, now),
            _ => false,
        }
    }

    fn is_waiting_for_next(&self, limits: &LimitRegistry) -> bool {
        limits.known.get(&self.tag).is_some_and(|known| known.successor.is_some())
    }
}

impl KnownLimit {
    /// Whether it is no longer in force.
    fn is_past(&self) -> bool {
        self.successor.is_some() || self.is_removed
    }

    /// Whether both count the same periods, if any.
    fn has_cycle_of(&self, other: &Self) -> bool {
        match (&self.cycle, &other.cycle) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, None) => true,
            _ => false,
        }
    }

    /// The state, migrated to this limit.
    fn take_over(
        &self,
        tag: u32,
        old: &Self,
        carried: &MigratedState,
        edited: DecisionTime,
    ) -> MigratedState {
        let state = self.limit.carry_over(&old.limit, &carried.state, edited);
        MigratedState { tag, limit: self.limit, state }
    }

    fn decided_at(&self, times: Times) -> DecisionTime {
        decision_time(self.cycle.as_deref(), times)
    }
}

fn decision_time(cycle: Option<&CycleClock>, times: Times) -> DecisionTime {
    let period = cycle.map_or(NO_PERIOD, |cycle| cycle.period(times));
    DecisionTime { now: times.now, period }
}
