//! What rules with `on_error = { local = … }` decide while the store is unavailable: the process
//! counts by itself, under a share of each limit.
//!
//! A state counts until it is as good as fresh, whether or not the outage goes on: so in any time a
//! process allows at most what the share of the limit allows, however many outages there are.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Timestamp, Wait};
use tidegate_policy::policy::{Charging, Mode, OnError, Share};
use tidegate_table::locks::lock;
use tidegate_table::table::WhenFull;

use super::report::Report;
use super::ruleset::Ruleset;
use crate::any_limit::{AnyLimit, AnyState, DecisionTime, NO_PERIOD};
use crate::decision::{Decisions, INLINE, LimitRequest, Operation, decide};
use crate::plan::{Charge, Plan, PlanTime};
use scaled::scaled;

mod scaled;

/// The states of all keys that were decided locally. Their number is bounded.
#[derive(Default)]
pub(super) struct LocalTable {
    states: Mutex<LocalStates>,
    /// Whether there are any, as of the last change.
    is_used: AtomicBool,
}

#[derive(Default)]
struct LocalStates {
    /// The states of keys, by the hash of rule and key.
    own: HashMap<u64, LocalState>,
    /// The states that keys beyond the maximum share, by rule and a part of the key's hash.
    shared: HashMap<(u64, u64), LocalState>,
    /// When idle states were last dropped.
    swept: Timestamp,
}

/// A state, and the share of a limit that it counts under.
#[derive(Clone, Copy)]
struct LocalState {
    limit: AnyLimit,
    state: AnyState,
}

/// How many keys have a state of their own, and what happens to the others.
#[derive(Clone, Copy, Debug)]
struct LocalCapacity {
    max_keys: usize,
    when_full: WhenFull,
}

/// Where the state of a charge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalSlot {
    Own(u64),
    Shared(u64, u64),
    /// It is not stored, and the request is denied.
    Full,
}

/// What is decided locally, if the store turns out to be unavailable.
pub(super) struct LocalFallback {
    table: Arc<LocalTable>,
    now: Timestamp,
    act: Operation,
    /// Never empty.
    charges: SmallVec<[LocalCharge; INLINE]>,
}

/// The charge of a rule that is decided locally.
#[derive(Clone, Copy, Debug)]
struct LocalCharge {
    /// Its index in the plan.
    index: usize,
    family: u64,
    hash: u64,
    cost: u64,
    mode: Mode,
    charging: Charging,
    /// The whole limit.
    limit: AnyLimit,
    share: Share,
}

impl LocalFallback {
    /// That of a plan; `None` if none of its rules is decided locally.
    #[cold]
    pub(super) fn new(
        table: &Arc<LocalTable>,
        rules: &Ruleset,
        plan: &Plan<'_>,
        now: Timestamp,
    ) -> Option<Box<Self>> {
        let local = |(index, charge): (usize, &Charge)| match rules.without_store(charge.rule) {
            OnError::Local(share) => {
                // A reservation has to fit, and becomes a charge without one.
                let charging = match plan.act {
                    Operation::Hold => Charging::Allowed,
                    _ => charge.terms.charging,
                };
                Some(LocalCharge { charging, ..LocalCharge::new(index, charge, share) })
            }
            OnError::Allow | OnError::Deny => None,
        };
        let charges: SmallVec<_> = plan.charges.iter().enumerate().filter_map(local).collect();
        // An outage grants no slots, so a request for one charges nothing.
        let takes_slot = plan.charges.iter().any(|it| matches!(it.limit, AnyLimit::Slots(_)));
        let act = match plan.act {
            Operation::Charge | Operation::Hold if !takes_slot => Operation::Charge,
            _ => Operation::Look,
        };
        let table = Arc::clone(table);
        // A peek at a time ahead is about the store.
        (!charges.is_empty() && plan.time != PlanTime::Ahead)
            .then(|| Box::new(Self { table, now, act, charges }))
    }

    /// Drops idle states, from time to time: the store is available.
    pub(super) fn tidy(&self) {
        self.table.tidy(self.now);
    }

    /// Charges it even though it is a request for a slot, because that was granted.
    pub(super) fn of_granted(mut self: Box<Self>) -> Box<Self> {
        self.act = Operation::Charge;
        self
    }
}

impl LocalCharge {
    fn new(index: usize, charge: &Charge, share: Share) -> Self {
        let Charge { family, hash, cost, mode, limit, terms, .. } = *charge;
        Self { index, family, hash, cost, mode, charging: terms.charging, limit, share }
    }

    /// The state that it shares when there is no room for one of its own.
    const fn shared_key(&self) -> (u64, u64) {
        (self.family, self.hash % PARTS_OF_A_RULE)
    }

    /// Whether the whole limit would ever allow the cost.
    fn may_be_allowed(&self, at: DecisionTime) -> bool {
        let fresh = self.limit.fresh(at.period);
        self.limit.peek(&fresh, self.cost, at).retry_after() != Some(Wait::Never)
    }
}

impl Ruleset {
    /// What a rule decides without the store.
    pub(super) fn without_store(&self, rule: u32) -> OnError {
        self.rule(rule).rule.without_store()
    }

    fn local_capacity(&self) -> LocalCapacity {
        let bounds = self.settings.bounds();
        LocalCapacity { max_keys: bounds.max_keys.min(MOST_KEYS), when_full: bounds.when_full }
    }
}

impl Report {
    /// Decides by the local shares of the limits. What is left in the report are the rules that have
    /// one.
    pub(super) fn decide_locally(&mut self, local: &LocalFallback) {
        let capacity = self.ruleset().local_capacity();
        let is_allowed = local.table.decide(local, capacity, &mut self.body.decisions);
        self.body.is_allowed = is_allowed;
        let new_index = |index: usize| local.charges.iter().position(|it| it.index == index);
        let mut index = 0;
        self.body.evaluated.retain(|_| {
            index += 1;
            new_index(index - 1).is_some()
        });
        self.body.hits.retain_mut(|hit| {
            let Some(charge) = hit.charge else { return true };
            let moved = usize::try_from(charge).ok().and_then(new_index);
            hit.charge = moved.and_then(|index| u32::try_from(index).ok());
            hit.charge.is_some()
        });
    }
}

impl LocalTable {
    /// Makes one whole decision: all local rules are charged, or none.
    fn decide(
        &self,
        local: &LocalFallback,
        capacity: LocalCapacity,
        decisions: &mut Decisions,
    ) -> bool {
        let decided_at = DecisionTime { now: local.now, period: NO_PERIOD };
        let limits: SmallVec<[AnyLimit; INLINE]> =
            local.charges.iter().map(|it| scaled(&it.limit, it.share)).collect();
        let mut table = lock(&self.states);
        let slots = table.slots(local, capacity);
        let charges = || local.charges.iter().zip(&limits).zip(&slots);
        let mut states: SmallVec<[AnyState; INLINE]> = charges()
            .map(|((charge, limit), slot)| table.state(*slot, charge, limit, decided_at))
            .collect();
        let requests: SmallVec<[LimitRequest<'_>; INLINE]> = charges()
            .map(|((charge, limit), slot)| LimitRequest {
                limit,
                cost: charge.cost,
                mode: charge.mode,
                charging: charge.charging,
                has_room: *slot != LocalSlot::Full,
                decided_at,
            })
            .collect();
        let before = states.clone();
        let is_allowed = decide(local.act, &requests, &mut states, decisions);
        let changed = charges().zip(before.iter().zip(&states)).filter(|(_, (a, b))| a != b);
        for (((_, limit), slot), (_, state)) in changed {
            table.store(*slot, LocalState { limit: *limit, state: *state });
        }
        self.is_used.store(!table.is_empty(), Ordering::Relaxed);
        drop(table);
        for (((charge, limit), _), (state, decision)) in
            charges().zip(states.iter().zip(decisions.iter_mut()))
        {
            // The store may allow it, when it is back.
            let is_never = decision.retry_after() == Some(Wait::Never);
            if is_never && charge.may_be_allowed(decided_at) {
                *decision = limit.peek(state, 0, decided_at).denied_for_unknown_time();
            }
        }
        is_allowed
    }

    /// Memory in use, in bytes; an estimate.
    pub(super) fn bytes(&self) -> usize {
        let table = lock(&self.states);
        table.own.capacity() * size_of::<(u64, LocalState)>()
            + table.shared.capacity() * size_of::<((u64, u64), LocalState)>()
    }

    /// Drops idle states, from time to time, while the store is available.
    #[inline]
    pub(super) fn tidy(&self, now: Timestamp) {
        if self.is_used.load(Ordering::Relaxed) {
            let mut table = lock(&self.states);
            table.sweep(now, TIDY_PAUSE);
            self.is_used.store(!table.is_empty(), Ordering::Relaxed);
        }
    }
}

impl LocalStates {
    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    /// Where the state of each charge is. No two charges have the same.
    fn slots(
        &mut self,
        local: &LocalFallback,
        capacity: LocalCapacity,
    ) -> SmallVec<[LocalSlot; INLINE]> {
        let is_new = |table: &Self| {
            local.charges.iter().filter(|it| !table.own.contains_key(&it.hash)).count()
        };
        if self.own.len() + is_new(self) > capacity.max_keys {
            self.sweep(local.now, SWEEP_PAUSE);
        }
        let mut room = capacity.max_keys.saturating_sub(self.own.len());
        let mut slots = SmallVec::<[LocalSlot; INLINE]>::new();
        for charge in &local.charges {
            let own = LocalSlot::Own(charge.hash);
            let slot = if self.own.contains_key(&charge.hash) {
                own
            } else if room > 0 {
                room -= 1;
                own
            } else {
                self.slot_when_full(charge, capacity.when_full)
            };
            slots.push(if slots.contains(&slot) { LocalSlot::Full } else { slot });
        }
        slots
    }

    fn slot_when_full(&self, charge: &LocalCharge, when_full: WhenFull) -> LocalSlot {
        let (family, part) = charge.shared_key();
        match when_full {
            WhenFull::Share
                if self.shared.len() < MOST_SHARED || self.shared.contains_key(&(family, part)) =>
            {
                LocalSlot::Shared(family, part)
            }
            _ => LocalSlot::Full,
        }
    }

    /// The state in a slot, under this limit.
    fn state(
        &self,
        slot: LocalSlot,
        charge: &LocalCharge,
        limit: &AnyLimit,
        at: DecisionTime,
    ) -> AnyState {
        let known = match slot {
            // It may have shared a state before.
            LocalSlot::Own(hash) => {
                self.own.get(&hash).or_else(|| self.shared.get(&charge.shared_key()))
            }
            LocalSlot::Shared(family, part) => self.shared.get(&(family, part)),
            LocalSlot::Full => None,
        };
        match known {
            None => limit.fresh(at.period),
            Some(known) if known.limit == *limit => known.state,
            // An edit, an override that ended, or keys with other overrides in the same slot.
            Some(known) => limit.carry_over(&known.limit, &known.state, at),
        }
    }

    fn store(&mut self, slot: LocalSlot, state: LocalState) {
        match slot {
            LocalSlot::Own(hash) => drop(self.own.insert(hash, state)),
            LocalSlot::Shared(family, part) => drop(self.shared.insert((family, part), state)),
            LocalSlot::Full => {}
        }
    }

    /// Drops states that are as good as fresh, unless that was done a moment ago.
    fn sweep(&mut self, now: Timestamp, pause: Duration) {
        if now < self.swept.saturating_add(pause) || self.is_empty() {
            return;
        }
        self.swept = now;
        let is_in_use = |it: &LocalState| !it.limit.is_idle(&it.state, now);
        self.own.retain(|_, it| is_in_use(it));
        self.shared.retain(|_, it| is_in_use(it));
        self.own.shrink_to_fit();
        self.shared.shrink_to_fit();
    }
}

impl fmt::Debug for LocalTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTable")
            .field("keys", &lock(&self.states).own.len())
            .finish_non_exhaustive()
    }
}

/// How many keys have a local state of their own, over all rules.
const MOST_KEYS: usize = 1 << 16;

/// How many states the keys of a rule share when there are more.
const PARTS_OF_A_RULE: u64 = 64;

/// How many shared states there are, over all rules.
const MOST_SHARED: usize = 1 << 12;

/// How often idle states are looked for when there is no room: it takes time with the table locked.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// How often they are looked for otherwise.
const TIDY_PAUSE: Duration = Duration::from_secs(60);
